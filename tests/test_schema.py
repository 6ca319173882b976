"""Texts that may not be published."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runs import small_spec, small_spec_dict
from tokenwatt_site.errors import SpecError
from tokenwatt_site.schema import GrowingModel
from tokenwatt_site.spec import parse_spec


@pytest.mark.parametrize(
    "argument",
    [
        "--api-key",
        "--api-key=abcdef",
        "--token",
        "--hf-token",
        "hf_abcdefghijklmnopqrst",
        "sk-abcdefghijklmnopqrst",
        "github_pat_abcdefghijklmnopqrst",
        "HF_TOKEN=abc",
        "password: abc",
        "Authorization: Bearer abcdefgh",
        "Bearer abcdefghijk",
        '{"api_key": "abc"}',
        "https://user:pass@host/path",
        "AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_f27_a_secret_in_argv_is_refused_and_not_repeated(argument: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(small_spec_dict(setup__engine__argv=["vllm", argument]), source="x")
    (problem,) = caught.value.problems
    assert problem.field == "setup.engine.argv.1"
    assert "secret" in (problem.expected or "")
    assert argument not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "abc"),
        ("OPENAI_API_KEY", "abc"),
        ("AWS_SECRET_ACCESS_KEY", "abc"),
        ("MY_PASSWORD", "abc"),
        ("GOOGLE_CREDENTIALS", "abc"),
        ("TOKEN_FILE", "abc"),
        ("OPENAI_KEY", "abc"),
        ("DB_PASS", "abc"),
        ("MYPWD", "abc"),
        ("ANY", "sk-abcdefghijklmnopqrst"),
    ],
)
def test_f27_a_secret_in_the_environment_is_refused_and_not_repeated(name: str, value: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(small_spec_dict(setup__engine__environment={name: value}), source="x")
    assert "secret" in str(caught.value)
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"note": "my key is hf_abcdefghijklmnopqrst"},
        {"title": "AKIAABCDEFGHIJKLMNOP"},
        {"setup__engine__build": "sk-abcdefghijklmnopqrst"},
        {"endpoint__start": "attach", "endpoint__url": "http://h:1/?api_key=abc"},
    ],
)
def test_f27_a_secret_in_any_published_text_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="secret"):
        small_spec(**changes)


@pytest.mark.parametrize(
    "argument",
    [
        "--max-tokens=5",
        "--tokenizer-mode",
        "deepseek_v41",
        "--max-num-batched-tokens",
        '{"cpu_offload":true}',
        "--kv-cache-dtype",
        "http://127.0.0.1:8000/v1",
        "./hf_models/smol",
        "--task-name=disk-cache-of-the-node",
    ],
)
def test_flags_that_only_speak_of_tokens_are_no_secrets(argument: str) -> None:
    spec = small_spec(
        setup__engine__argv=["vllm", "{port}", argument],
        setup__engine__environment={"TOKENIZERS_PARALLELISM": "false", "VLLM_MAX_TOKENS": "8"},
    )
    assert spec.setup.engine.argv == ("vllm", "{port}", argument)


class Grown(GrowingModel):
    younger = frozenset({"second"})

    first: int | None
    second: int | None = None


def test_a_field_younger_than_ids_is_written_only_where_it_is_there() -> None:
    assert Grown(first=None).to_json() == {"first": None}
    assert Grown(first=1, second=0).to_json() == {"first": 1, "second": 0}
    assert Grown.model_validate_json('{"first": null}') == Grown(first=None, second=None)
