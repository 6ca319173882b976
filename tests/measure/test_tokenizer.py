"""Who says what a token is: files made here, and each dialect of /tokenize, honest or not."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from tests.measure.stub_engine import Answer, StubEngine, as_json, serving
from tests.support.runs import small_spec
from tests.support.tokenizer_files import byte_level, metaspace, over_words
from tokenwatt_site.canonical import sha256_hex
from tokenwatt_site.endpoint import Endpoint
from tokenwatt_site.errors import EngineError, EnvironmentProblem, InputError
from tokenwatt_site.measure.tokenizer import (
    ServerTokenizer,
    TokenizerFile,
    prompts_by_file,
    prompts_for,
)
from tokenwatt_site.prompts import COMMON_WORDS, ENOUGH_WORDS, Ids, Words

KEY = b"k" * 32
OWN_WORDS = tuple(f"{a}{b}{c}" for a in "bdfgkm" for b in "aeiou" for c in ("lo", "na", "ri"))
"""90 words of no language."""


MADE = {"byte level": byte_level, "metaspace": metaspace}


def written(folder: Path, text: str) -> str:
    path = folder / "tokenizer.json"
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize("kind", MADE)
def test_common_words_come_first_and_words_of_the_vocabulary_fill_up(
    tmp_path: Path, kind: str
) -> None:
    name = written(tmp_path, MADE[kind](COMMON_WORDS[:40] + OWN_WORDS))

    chosen = prompts_by_file(name)

    own = set(chosen.words) - set(COMMON_WORDS)
    assert chosen.words[:40] == COMMON_WORDS[:40]
    assert set(OWN_WORDS) <= own
    assert chosen.added == 0


@pytest.mark.parametrize("kind", MADE)
@given(st.integers(1, 3000), st.integers(0, 50), st.integers(0, 40))
def test_a_text_has_exactly_as_many_tokens_as_were_asked_for(
    tmp_path_factory: pytest.TempPathFactory, kind: str, tokens: int, stream: int, shared: int
) -> None:
    text = MADE[kind](COMMON_WORDS)
    prompts = cached_prompts(text, tmp_path_factory)
    oracle = tokenizers.Tokenizer.from_str(text)

    prompt = prompts.prompt(KEY, stream, tokens, shared)

    assert len(oracle.encode(prompt, add_special_tokens=False).ids) == tokens


MADE_PROMPTS: dict[str, Words] = {}


def cached_prompts(text: str, folders: pytest.TempPathFactory) -> Words:
    if text not in MADE_PROMPTS:
        MADE_PROMPTS[text] = prompts_by_file(written(folders.mktemp("tokenizer"), text))
    return MADE_PROMPTS[text]


def test_a_file_is_named_by_its_digest_and_may_be_a_link(tmp_path: Path) -> None:
    text = byte_level(COMMON_WORDS)
    written(tmp_path, text)
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "tokenizer.json")

    told = prompts_by_file(str(link)).to_json()

    assert told["tokenizer_sha256"] == sha256_hex(text.encode())
    assert (told["source"], len(told["words"])) == ("tokenizer file", ENOUGH_WORDS)
    assert str(tmp_path) not in json.dumps(told)


def test_a_file_that_cuts_or_fills_texts_counts_them_whole(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_str(metaspace(COMMON_WORDS))
    tokenizer.enable_truncation(10)
    tokenizer.enable_padding(length=100)

    file = TokenizerFile(written(tmp_path, tokenizer.to_str()))

    assert len(file.tokenize(" ".join(COMMON_WORDS[:50]))) == 50
    assert len(file.tokenize(COMMON_WORDS[0])) == 1


def test_a_vocabulary_lists_its_plain_words_those_with_a_space_before_them_first(
    tmp_path: Path,
) -> None:
    vocabulary = {"plain": 0, "▁later": 5, "Ġsooner": 2, "▁No": 3, "▁no2": 4, "▁": 6, "": 7}
    model = models.WordLevel(vocabulary)

    words = TokenizerFile(
        written(tmp_path, tokenizers.Tokenizer(model).to_str())
    ).vocabulary_words()

    assert words == ("sooner", "later", "plain")


@pytest.mark.parametrize(
    ("text", "found"),
    [("{}", "Model missing"), ("", "EOF"), ("[" * 200_000, "invalid type"), ("\udcff", "utf-8")],
    ids=["no tokenizer", "empty", "deep", "no text"],
)
def test_a_file_that_is_no_tokenizer_is_an_error_of_its_field(
    tmp_path: Path, text: str, found: str
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(InputError) as caught:
        TokenizerFile(str(path))

    (problem,) = caught.value.problems
    assert (problem.file, problem.field) == (str(path), "endpoint.tokenizer")
    assert found in (problem.found or "")


def test_a_file_that_is_not_there_is_an_error_that_says_from_where_paths_count() -> None:
    with pytest.raises(InputError) as caught:
        TokenizerFile("no/such/tokenizer.json")

    (problem,) = caught.value.problems
    assert problem.file == "no/such/tokenizer.json"
    assert "folder in which the command runs" in (problem.remedy or "")


def test_words_that_a_tokenizer_knows_only_as_unknown_are_left_out(tmp_path: Path) -> None:
    vocabulary = {word: n for n, word in enumerate(("?", *COMMON_WORDS[5:105]))}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="?"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    assert prompts_by_file(written(tmp_path, tokenizer.to_str())).words == COMMON_WORDS[5:105]


def test_a_tokenizer_with_few_words_is_refused_by_its_file(tmp_path: Path) -> None:
    name = written(tmp_path, metaspace(OWN_WORDS[:20]))

    with pytest.raises(EnvironmentProblem, match="too few words") as caught:
        prompts_by_file(name)

    assert caught.value.problems[0].file == name


def test_a_tokenizer_whose_tokens_reach_over_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"one token each|reach over words"):
        prompts_by_file(written(tmp_path, over_words(COMMON_WORDS)))


ToIds = Callable[[str], list[int]]
Dialect = Callable[[dict[str, Any], ToIds], Answer]


def vllm(body: dict[str, Any], ids: ToIds) -> Answer:
    assert body["add_special_tokens"] is False
    found = ids(body["prompt"])
    return as_json(
        {"count": len(found), "max_model_len": 8192, "tokens": found, "token_strs": None}
    )


def sglang(body: dict[str, Any], ids: ToIds) -> Answer:
    found = ids(body["prompt"])
    return as_json({"tokens": found, "count": len(found), "max_model_len": -1})


def llama_cpp(body: dict[str, Any], ids: ToIds) -> Answer:
    return as_json({"tokens": ids(body["content"])})


def tgi(body: dict[str, Any], ids: ToIds) -> Answer:
    found = [1, *ids(body["inputs"])]
    return as_json([{"id": n, "text": "w", "start": 0, "stop": 1} for n in found])


DIALECTS = [vllm, sglang, llama_cpp, tgi]


def by_words(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) >> 1 for word in text.split()]


@contextmanager
def asked(dialect: Dialect, ids: ToIds = by_words, **more: Any) -> Iterator[str]:
    engine = StubEngine(tokenize=lambda body: dialect(body, ids), **more)
    with serving(engine) as url:
        yield url


def endpoint(**changes: Any) -> Endpoint:
    changes = {f"endpoint__{key}": value for key, value in changes.items()}
    return small_spec(endpoint__model="toy", **changes).endpoint


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_tokenizer_of_an_engine_is_asked_in_its_own_dialect(dialect: Dialect) -> None:
    odd = {*COMMON_WORDS[3:9], *COMMON_WORDS[100:110]}

    def ids(text: str) -> list[int]:
        return [n for word in text.split() for n in by_words(word) * (1 + (word in odd))]

    with asked(dialect, ids) as url:
        prompts = prompts_for(endpoint(api="chat"), url)

    assert isinstance(prompts, Words)
    assert prompts.words == tuple(word for word in COMMON_WORDS if word not in odd)
    assert (prompts.source, prompts.tokenizer) == ("server /tokenize", f"{url}/tokenize")
    assert prompts.added == (dialect is tgi)
    assert prompts.tokenize is None


def test_an_engine_without_a_tokenizer_gets_the_common_words_and_that_is_told() -> None:
    with serving(StubEngine()) as url:
        prompts = prompts_for(endpoint(api="chat"), url)

    assert prompts.to_json()["source"] == "common words"


def test_token_ids_ask_no_tokenizer() -> None:
    assert prompts_for(endpoint(), "http://127.0.0.1:9") == Ids(32000)


def test_the_file_goes_before_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, metaspace(COMMON_WORDS))
    monkeypatch.chdir(tmp_path)

    prompts = prompts_for(endpoint(prompt="text", tokenizer="tokenizer.json"), "http://127.0.0.1:9")

    assert isinstance(prompts, Words)
    assert (prompts.source, prompts.tokenizer) == ("tokenizer file", "tokenizer.json")


def test_an_engine_that_wants_a_key_is_asked_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "k3y-0123456789abcdef")
    with asked(vllm, key="k3y-0123456789abcdef") as url:
        prompts = prompts_for(endpoint(api="chat", api_key_variable="ENGINE_KEY"), url)
        unkeyed = prompts_for(endpoint(api="chat"), url)

    assert prompts.to_json()["source"] == "server /tokenize"
    assert unkeyed.to_json()["source"] == "common words"


def test_an_engine_whose_words_are_several_tokens_each_is_refused_by_its_address() -> None:
    with (
        asked(vllm, lambda text: 3 * by_words(text)) as url,
        pytest.raises(EnvironmentProblem, match="too few words") as caught,
    ):
        prompts_for(endpoint(api="chat"), url)

    assert caught.value.problems[0].file == f"{url}/tokenize"


HOSTILE: dict[str, tuple[Answer, str]] = {
    "no JSON": ((200, {"Content-Type": "text/html"}, b"<html>"), "no JSON (text/html)"),
    "nothing": ((200, {}, b""), "no JSON"),
    "deep": ((200, {}, b"[" * 100_000), "no JSON"),
    "null": (as_json(None), "null"),
    "a number": (as_json(5), "5"),
    "a text": (as_json("5"), '"5"'),
    "no tokens": (as_json({"count": 5}), '{"count": 5}'),
    "tokens that are a number": (as_json({"tokens": 5}), '{"tokens": 5}'),
    "tokens that are a mapping": (as_json({"tokens": {"0": 5}}), '{"0": 5}'),
    "an empty list": (as_json({"tokens": []}), '{"tokens": []}'),
    "a bare empty list": (as_json([]), "[]"),
    "bools": (as_json({"tokens": [True]}), "[true]"),
    "negative": (as_json({"tokens": [-1]}), "[-1]"),
    "huge": (as_json({"tokens": [2**60]}), str(2**60)),
    "fractions": (as_json({"tokens": [1.0]}), "[1.0]"),
    "texts": (as_json({"tokens": ["a"]}), '["a"]'),
    "lists": (as_json({"tokens": [[1]]}), "[[1]]"),
    "objects without an id": (as_json([{"text": "a"}]), '[{"text": "a"}]'),
    "a count of another number": (as_json({"tokens": [1], "count": 2}), "a count of 2 beside 1"),
    "a negative count": (as_json({"tokens": [1], "count": -1}), "a count of -1 beside 1"),
    "a huge count": (as_json({"tokens": [1], "count": 2**60}), f"a count of {2**60}"),
    "a count that is true": (as_json({"tokens": [1], "count": True}), "a count of true"),
    "a count that is a list": (as_json({"tokens": [1], "count": [1]}), "a count of [1]"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_b9_an_answer_that_is_no_list_of_tokens_is_refused_and_shown(name: str) -> None:
    answer, found = HOSTILE[name]
    with asked(lambda *_: answer) as url, pytest.raises(EngineError) as caught:
        prompts_for(endpoint(api="chat"), url)

    (problem,) = caught.value.problems
    assert (problem.file, problem.field) == (f"{url}/tokenize", "endpoint.url")
    assert found in (problem.found or "")
    assert "endpoint.tokenizer" in (problem.remedy or "")


@pytest.mark.parametrize("status", [301, 400, 401, 404, 405, 422, 500, 501])
def test_an_engine_that_refuses_to_tokenize_has_no_tokenizer(status: int) -> None:
    with asked(lambda *_: (status, {}, b'{"error": "no"}')) as url:
        assert not ServerTokenizer(url, "toy").offered()


def test_an_engine_that_stops_tokenizing_half_way_is_an_error() -> None:
    counted: list[str] = []

    def tired(body: dict[str, Any], ids: ToIds) -> Answer:
        counted.append(body["prompt"])
        return vllm(body, ids) if len(counted) < 50 else (503, {}, b"{}")

    with asked(tired) as url, pytest.raises(EngineError, match="found HTTP 503"):
        prompts_for(endpoint(api="chat"), url)


def test_b2_an_answer_without_measure_is_cut() -> None:
    with (
        asked(lambda *_: as_json({"tokens": [5] * 3_000_000})) as url,
        pytest.raises(EngineError, match="larger than 4 MiB"),
    ):
        prompts_for(endpoint(api="chat"), url)
