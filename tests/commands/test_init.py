from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.stub_engine import StubEngine, as_json, serving
from tests.support.nvml import ScriptedBoard, eight_boards
from tests.support.nvml.fixtures import Scripted
from tests.support.runs import small_spec_dict
from tests.support.safetensors_files import LLAMA, llama, write
from tokenwatt_site.commands import hardware
from tokenwatt_site.commands.hardware import open_nvml
from tokenwatt_site.commands.init import MAX_QUESTIONS, init, spec_yaml
from tokenwatt_site.errors import (
    EngineError,
    EnvironmentProblem,
    InputError,
    ReadBackError,
    SpecError,
    UsageError,
)
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.measure.engine import free_port
from tokenwatt_site.measure.power import NvmlMeter
from tokenwatt_site.measure.power.nvml import NvmlUnavailable, Select
from tokenwatt_site.measure.power.rapl import RaplMeter, RaplUnavailable
from tokenwatt_site.model_shape.document import headers_digest
from tokenwatt_site.model_shape.folder import read_model
from tokenwatt_site.spec import Spec, load_spec, parse_spec

VLLM = {
    "/v1/models": as_json({"data": [{"id": "org/toy", "owned_by": "vllm", "max_model_len": 8192}]}),
    "/version": as_json({"version": "0.32.0"}),
}
HTML = (200, {"Content-Type": "text/html"}, b"<html><body>Log in</body></html>")


class Answers:
    """Answers questions by a word in them; Enter to all others."""

    def __init__(self, **by_word: str) -> None:
        self.by_word = by_word
        self.asked: list[str] = []

    def __call__(self, question: str) -> str:
        self.asked.append(question)
        return next((a for word, a in self.by_word.items() if word in question), "")


def no_nvml(_: Select) -> NvmlMeter:
    raise NvmlUnavailable("no library")


def written(tmp_path: Path, answers: Answers, **options: Any) -> Spec:
    with serving(StubEngine(get=VLLM)) as url:
        path = init(url, tmp_path / "new.spec.yaml", answers, **{"opener": no_nvml, **options})
    return load_spec(path)


def test_enter_to_every_question_gives_a_valid_spec_that_says_what_is_not_recorded(
    tmp_path: Path,
) -> None:
    answers = Answers()

    spec = written(tmp_path, answers)

    engine = spec.setup.engine
    assert (engine.name, engine.version, engine.build) == ("vLLM", "0.32.0", "not recorded")
    assert spec.endpoint.model == spec.setup.model.name == "org/toy"
    assert spec.setup.accelerator.model == "not recorded"
    assert spec.title == "org/toy on vLLM"
    assert spec.setup.power.sensor == "none"
    assert [o.label for o in spec.setup.slo] == ["TTFT p99", "TPOT p99"]
    assert [o.limit_ms for o in spec.setup.slo] == [2000, 50]
    protocol = spec.protocol
    assert (protocol.mode, protocol.repeats, protocol.max_rate) == ("quick", 2, None)
    assert (protocol.lead_in, protocol.scored, protocol.tail) == (None, None, None)
    assert spec.setup.workload.name == "chat-mix-v1"
    assert len(answers.asked) == MAX_QUESTIONS


def test_what_nvml_tells_is_written_and_not_asked(tmp_path: Path, scripted: Scripted) -> None:
    scripted(*eight_boards()[:2])
    answers = Answers()

    spec = written(tmp_path, answers, opener=open_nvml)

    accelerator = spec.setup.accelerator
    assert (accelerator.model, accelerator.count) == ("NVIDIA H200 SXM 141GB", 2)
    assert (accelerator.memory_gib, accelerator.rated_bandwidth_gb_s) == (141, 4800)
    assert accelerator.power_limit_w == 700
    assert spec.setup.driver == "595.91.07"
    assert (spec.setup.power.sensor, spec.setup.power.rate_hz) == ("nvml", 1)
    assert len(answers.asked) == MAX_QUESTIONS
    assert not any("Accelerators" in question for question in answers.asked)


def write_model(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA), "utf-8")
    write(folder / "model.safetensors", llama())


def notes(tmp_path: Path) -> str:
    return (tmp_path / "new.spec.yaml").read_text("utf-8")


def test_boards_are_those_on_which_the_engine_is_seen(tmp_path: Path, scripted: Scripted) -> None:
    boards = eight_boards()
    for board in (boards[2], boards[5]):
        board.pids = (os.getpid(), 1)
    scripted(*boards)

    spec = written(tmp_path, Answers(), opener=open_nvml)

    assert spec.setup.accelerator.count == 2
    assert spec.title == "org/toy on 2× NVIDIA H200 SXM 141GB"
    assert f"# Boards: {boards[2].uuid} (by process), {boards[5].uuid} (by process)" in notes(
        tmp_path
    )


def test_boards_that_are_named_are_taken_where_the_engine_is_not_seen(
    tmp_path: Path, scripted: Scripted
) -> None:
    scripted(*eight_boards())

    spec = written(tmp_path, Answers(), opener=open_nvml, gpus=("GPU-3333", "GPU-4444"))

    assert spec.setup.accelerator.count == 2
    assert "(by name)" in notes(tmp_path)
    assert "# Measure with --gpus GPU-33333333-0000-0000-0000-000000000000,GPU" in notes(tmp_path)


def test_all_boards_are_taken_with_a_note_where_none_is_seen_or_named(
    tmp_path: Path, scripted: Scripted
) -> None:
    scripted(*eight_boards())

    spec = written(tmp_path, Answers(), opener=open_nvml)

    assert spec.setup.accelerator.count == 8
    assert "write this spec again with --gpus UUID,..." in notes(tmp_path)


def test_a_name_that_no_board_has_leaves_no_spec(tmp_path: Path, scripted: Scripted) -> None:
    scripted(*eight_boards())
    with pytest.raises(ReadBackError, match="names no board here"):
        written(tmp_path, Answers(), opener=open_nvml, gpus=("GPU-9999",))
    with pytest.raises(NvmlUnavailable, match="no library"):
        written(tmp_path, Answers(), gpus=("GPU-9999",))

    assert not (tmp_path / "new.spec.yaml").exists()


def test_module_power_is_written_as_such(tmp_path: Path, scripted: Scripted) -> None:
    scripted(ScriptedBoard(average_scopes=2, instant_scopes=2))

    spec = written(tmp_path, Answers(), opener=open_nvml)

    assert (spec.setup.power.sensor, spec.setup.power.scope) == ("nvml", "module")


def test_boards_that_tell_no_power_leave_none_and_the_reason(
    tmp_path: Path, scripted: Scripted
) -> None:
    scripted(ScriptedBoard(mig=True, instances=("MIG-1",)))

    spec = written(tmp_path, Answers(), opener=open_nvml)

    assert spec.setup.power.sensor == "none"
    assert "# NVML reads no board: board GPU-1" in notes(tmp_path)


@pytest.mark.parametrize("readable", [True, False])
def test_the_power_of_a_cpu_is_that_of_its_packages_where_they_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    class Packages(RaplMeter):
        def __init__(self) -> None:
            if not readable:
                raise RaplUnavailable("no permission")

        def boards(self) -> tuple[Board, ...]:
            return (Board(uuid="intel-rapl:0", name="package-0"),)

    monkeypatch.setattr(hardware, "RaplMeter", Packages)

    power = written(tmp_path, Answers(Accelerators="cpu")).setup.power

    assert (power.sensor, power.scope) == (("rapl", "cpu") if readable else ("none", "none"))
    assert ("# Power is not covered: no permission" in notes(tmp_path)) != readable


def test_the_files_of_a_model_tell_its_kind_its_format_and_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models" / "toy"
    write_model(folder)
    answers = Answers()

    spec = written(tmp_path, answers, model_files=Path("models/toy"))

    assert spec.setup.model.architecture == "dense"
    assert spec.setup.model.digest == headers_digest(read_model(folder))
    assert (spec.setup.quantization.weights, spec.setup.quantization.kv_cache) == (
        "bf16",
        "not recorded",
    )
    assert spec.endpoint.model_files == "models/toy"
    assert len(answers.asked) == MAX_QUESTIONS
    assert any("[bf16/not recorded]" in question for question in answers.asked)


def test_a_model_that_is_not_modelled_is_written_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    Path("m/config.json").write_text(json.dumps({**LLAMA, "model_type": "rwkv"}), "utf-8")

    spec = written(tmp_path, Answers(), model_files=Path("m"))

    assert (spec.setup.model.architecture, spec.setup.model.digest) == (
        "not recorded",
        "not recorded",
    )
    assert "# Bandwidth is not modelled: " in notes(tmp_path)
    assert "rwkv" in notes(tmp_path)


def test_model_files_that_are_not_there_leave_no_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        written(tmp_path, Answers(), model_files=Path("none"))
    write_model(tmp_path / "m")
    with pytest.raises(SpecError, match=r"endpoint\.model_files"):
        written(tmp_path, Answers(), model_files=tmp_path / "m")

    assert not (tmp_path / "new.spec.yaml").exists()


def test_the_schema_beside_a_spec_is_named_in_its_first_line_and_else_how_to_get_it(
    tmp_path: Path,
) -> None:
    modeline = "# yaml-language-server: $schema=spec.schema.json"
    written(tmp_path, Answers())
    without = notes(tmp_path).splitlines()
    assert modeline not in without
    assert "`tokenwatt-site spec schema > spec.schema.json`" in without[0]
    (tmp_path / "new.spec.yaml").unlink()
    (tmp_path / "spec.schema.json").write_text("{}", "utf-8")
    written(tmp_path, Answers())
    assert notes(tmp_path).splitlines()[0] == modeline


def test_the_instruments_that_are_shown_can_be_written_as_they_are(tmp_path: Path) -> None:
    written(tmp_path, Answers())
    text = notes(tmp_path)
    shown = text[text.index("# instruments:") :].replace("# ", "")

    path = tmp_path / "more.spec.yaml"
    path.write_text(text.replace("instruments: []\n", shown, 1), "utf-8")

    assert [one.sensor for one in load_spec(path).instruments] == ["dcgm", "redfish"]


def test_answers_go_to_their_fields(tmp_path: Path) -> None:
    spec = written(
        tmp_path,
        Answers(
            published="Org/Toy-7B@3f2a",
            Formats="fp8/bf16",
            Command="vllm serve 'Org/Toy 7B' --port 8000",
            Parallelism="1x4x1x1x2",
            Accelerators="4x NVIDIA B200",
        ),
    )

    assert (spec.setup.model.name, spec.setup.model.revision) == ("Org/Toy-7B", "3f2a")
    assert spec.setup.quantization.weights == "fp8"
    assert spec.setup.quantization.kv_cache == "bf16"
    assert spec.setup.engine.argv == ("vllm", "serve", "Org/Toy 7B", "--port", "8000")
    told = spec.setup.parallelism
    assert (told.tensor, told.data, told.prefill_decode_split) == (4, 2, "none")
    assert (spec.setup.accelerator.count, spec.setup.accelerator.rated_bandwidth_gb_s) == (4, 8000)
    assert (spec.label, spec.title) == ("org-toy-7b", "Org/Toy-7B on 4× NVIDIA B200 SXM 180GB")


@pytest.mark.parametrize(
    ("answer", "tensor", "split"), [("1x8x1x1x1/1P1D", 8, "1P1D"), ("", 1, "not recorded")]
)
def test_whether_prefill_and_decode_are_apart_is_told_with_the_parallelism(
    tmp_path: Path, answer: str, tensor: int, split: str
) -> None:
    told = written(tmp_path, Answers(Parallelism=answer)).setup.parallelism
    assert (told.tensor, told.prefill_decode_split) == (tensor, split)


def test_a_new_spec_says_how_an_engine_is_asked_that_takes_text_alone(tmp_path: Path) -> None:
    spec = written(tmp_path, Answers())

    assert spec.endpoint.prompt_kind == "ids"
    text = (tmp_path / "new.spec.yaml").read_text("utf-8")
    assert "`prompt: text`" in text
    assert "`tokenizer: PATH`" in text


def test_a_cpu_is_a_class_of_its_own(tmp_path: Path) -> None:
    assert written(tmp_path, Answers(Accelerators="CPU")).setup.is_cpu


def test_boards_here_are_not_those_of_an_engine_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted: Scripted
) -> None:
    scripted(*eight_boards()[:2])
    monkeypatch.setattr(hardware, "is_here", lambda _: False)

    assert written(tmp_path, Answers(), opener=open_nvml).setup.power.sensor == "none"


@pytest.mark.parametrize(
    ("answers", "error", "field"),
    [
        (
            Answers(Command="vllm serve m --api-key sk-abcdefghijkl"),
            SpecError,
            "setup.engine.argv",
        ),
        (Answers(Command="vllm 'serve"), UsageError, "setup.engine.argv"),
        (Answers(Parallelism="4"), UsageError, "setup.parallelism"),
        (Answers(Parallelism="0x1x1x1x1"), UsageError, "setup.parallelism"),
        (Answers(published="x" * 400), SpecError, "setup.model.name"),
    ],
)
def test_an_answer_that_a_spec_may_not_hold_is_named_and_nothing_is_written(
    tmp_path: Path, answers: Answers, error: type[UsageError], field: str
) -> None:
    with pytest.raises(error) as caught:
        written(tmp_path, answers)

    assert any((problem.field or "").startswith(field) for problem in caught.value.problems)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_file_that_is_there_is_never_overwritten_and_nothing_is_asked(
    tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "my.spec.yaml"
    if kind == "file":
        out.write_text("mine", "utf-8")
    else:
        out.symlink_to(tmp_path / "gone")
    answers = Answers()

    with pytest.raises(UsageError, match="is there already"):
        init("http://127.0.0.1:1", out, answers, no_nvml)

    assert answers.asked == []
    assert kind != "file" or out.read_text("utf-8") == "mine"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with serving(StubEngine(get=VLLM)) as url, pytest.raises(EnvironmentProblem, match="written"):
        init(url, tmp_path / "no" / "x.yaml", Answers(), no_nvml)


def test_no_engine_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    answers = Answers()

    with pytest.raises(EngineError, match="no engine answers"):
        init(f"http://127.0.0.1:{free_port()}", tmp_path / "x.yaml", answers, no_nvml)

    assert answers.asked == []


@pytest.mark.parametrize(
    ("engine", "base", "told"),
    [
        (StubEngine(get={"/v1/models": HTML}), "", "HTTP 200, text/html"),
        (StubEngine(get={"/v1/models": (302, {"Location": "/login"}, b"")}), "", "HTTP 302"),
        (StubEngine(get={"/v1/models": (401, {}, b"{}")}), "", "endpoint.api_key_variable"),
        (StubEngine(get={"/v1/models": (200, {}, b"[" * 100_000)}), "", "lists no model"),
        (StubEngine(get=VLLM), "/v1", "Give the base without /v1: http://127.0.0.1"),
        (StubEngine(get=VLLM), "/v1/", "Give the base without /v1: http://127.0.0.1"),
    ],
    ids=["page", "redirect", "key", "deep", "v1", "v1 with slash"],
)
def test_b1_what_is_no_engine_gives_no_spec(
    tmp_path: Path, engine: StubEngine, base: str, told: str
) -> None:
    answers = Answers()

    with serving(engine) as url, pytest.raises(EngineError) as caught:
        init(url + base, tmp_path / "x.yaml", answers, no_nvml)

    assert told in str(caught.value)
    assert answers.asked == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://me:hunter2@127.0.0.1:1"])
def test_d6_an_address_that_cannot_be_asked_is_refused_without_its_secrets(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(UsageError, match=r"endpoint\.url") as caught:
        init(url, tmp_path / "x.yaml", Answers(), no_nvml)

    assert "127.0.0.1" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_of_an_engine_with_a_key_the_spec_holds_the_name_of_its_variable_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "k3y-0123456789abcdef")
    out = tmp_path / "x.yaml"
    with serving(StubEngine(get=VLLM, key="k3y-0123456789abcdef")) as url:
        init(url, out, Answers(), no_nvml, api_key_variable="ENGINE_KEY")

    assert load_spec(out).endpoint.api_key_variable == "ENGINE_KEY"
    assert "k3y" not in out.read_text("utf-8")


def test_a_key_that_is_not_in_the_environment_is_asked_for_by_the_name_of_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    with pytest.raises(UsageError, match="environment variable ENGINE_KEY"):
        init(
            "http://127.0.0.1:9",
            tmp_path / "x.yaml",
            Answers(),
            no_nvml,
            api_key_variable="ENGINE_KEY",
        )


@contextmanager
def _full_disk() -> Iterator[None]:
    """No file may grow beyond 10 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_d4_a_full_disk_leaves_nothing_so_the_next_try_succeeds(tmp_path: Path) -> None:
    out = tmp_path / "x.yaml"
    with serving(StubEngine(get=VLLM)) as url:
        with _full_disk(), pytest.raises(EnvironmentProblem, match="cannot be written") as caught:
            init(url, out, Answers(), no_nvml)
        left = list(tmp_path.iterdir())
        init(url, out, Answers(), no_nvml)

    assert caught.value.problems[0].file == str(out)
    assert left == []
    assert list(tmp_path.iterdir()) == [out]


def test_d4_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "x.yaml"

    def answer(_: str) -> str:
        out.write_text("mine", "utf-8")
        return ""

    with serving(StubEngine(get=VLLM)) as url, pytest.raises(UsageError, match="there already"):
        init(url, out, answer, no_nvml)

    assert out.read_text("utf-8") == "mine"
    assert list(tmp_path.iterdir()) == [out]


TEXT = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=60)


@given(note=TEXT, driver=TEXT, build=st.sampled_from(["no", "1.0", "0123", "~", "12:30", "- a"]))
def test_a_written_spec_is_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, note: str, driver: str, build: str
) -> None:
    values = small_spec_dict()
    values["note"] = f"{note}\n{note}"
    values["setup"]["driver"] = driver
    values["setup"]["engine"]["build"] = build
    spec = parse_spec(values, source="test")
    path = tmp_path_factory.mktemp("spec") / "x.spec.yaml"

    path.write_text(spec_yaml(spec), "utf-8")

    assert load_spec(path) == spec
