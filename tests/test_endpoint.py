from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.runs import replica_spec, small_spec
from tokenwatt_site.errors import SpecError
from tokenwatt_site.spec import parse_spec


def test_a_url_with_v1_is_refused_as_it_would_be_asked_for_v1_v1() -> None:
    with pytest.raises(SpecError, match="without /v1"):
        small_spec(endpoint__start="attach", endpoint__url="http://127.0.0.1:8000/v1/")


@pytest.mark.parametrize(
    "url",
    ["https://", "http://u:p@h", "https://k@h", "http://h/a b", "file:///x", "http://", "h:80"],
)
def test_only_an_http_url_without_credentials_is_an_endpoint(url: str) -> None:
    with pytest.raises(SpecError):
        small_spec(endpoint__start="attach", endpoint__url=url)


REPLICAS = ["http://node-1:8000", "https://node-2:8000/"]


def test_replicas_are_asked_by_their_addresses_which_are_no_identity_and_not_published() -> None:
    spec = replica_spec(2, endpoint__urls=REPLICAS)
    behind = small_spec(setup__parallelism__replicas=2)
    assert (spec.endpoint.addresses, spec.endpoint.replicas) == (tuple(REPLICAS), 2)
    assert (behind.endpoint.addresses, behind.endpoint.replicas) == ((), 1)
    assert (spec.endpoint.over_tls, behind.endpoint.over_tls) == (True, False)
    assert spec.configuration_id == behind.configuration_id
    assert "urls" not in behind.to_json()["endpoint"]
    published = spec.published()
    assert "node-" not in str(published.to_json())
    assert parse_spec(published.to_json(), source="x") == published


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"endpoint__urls": REPLICAS[:1]}, "at least 2 items"),
        ({"endpoint__urls": [*REPLICAS, "http://h:1"]}, "names 3 replicas, and setup.parallelism"),
        ({"endpoint__urls": [REPLICAS[0], REPLICAS[0] + "/"]}, "more than once"),
        ({"endpoint__urls": [REPLICAS[0], "http://h/v1"]}, "without /v1"),
        ({"endpoint__url": "http://h:1"}, "give one of them"),
        ({"endpoint__start": "launch"}, "remove url"),
    ],
)
def test_replicas_that_cannot_be_told_apart_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        replica_spec(2, **changes)


@pytest.mark.parametrize("url", ["http://h", "https://h", "https://h:8443/base"])
def test_an_endpoint_is_http_or_https(url: str) -> None:
    assert small_spec(endpoint__start="attach", endpoint__url=url).endpoint.url == url


def test_the_variable_of_the_key_is_named_in_the_spec() -> None:
    named = small_spec(endpoint__api_key_variable="ENGINE_KEY")
    assert named.to_json()["endpoint"]["api_key_variable"] == "ENGINE_KEY"
    assert parse_spec(named.to_json(), source="test") == named


def test_prompts_and_tokenizer_are_no_identity() -> None:
    named = small_spec(endpoint__prompt="text", endpoint__tokenizer="models/toy/tokenizer.json")
    written_endpoint = named.to_json()["endpoint"]
    assert written_endpoint["prompt"] == "text"
    assert written_endpoint["tokenizer"] == "models/toy/tokenizer.json"
    assert parse_spec(named.to_json(), source="test") == named
    assert named.configuration_id == small_spec().configuration_id


@pytest.mark.parametrize(
    ("api", "prompt", "kind"),
    [
        ("completions", None, "ids"),
        ("completions", "ids", "ids"),
        ("completions", "text", "text"),
        ("chat", None, "text"),
        ("chat", "text", "text"),
    ],
)
def test_completions_are_asked_with_ids_unless_told_otherwise_and_chat_with_text(
    api: str, prompt: str | None, kind: str
) -> None:
    changes = {} if prompt is None else {"endpoint__prompt": prompt}
    assert small_spec(endpoint__api=api, **changes).endpoint.prompt_kind == kind


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"endpoint__api": "chat", "endpoint__prompt": "ids"}, "chat takes text"),
        ({"endpoint__tokenizer": "t.json"}, "token ids need no tokenizer"),
        ({"endpoint__tokenizer": "t.json", "endpoint__prompt": "ids"}, "need no tokenizer"),
        ({"endpoint__prompt": "words"}, r"endpoint\.prompt"),
    ],
)
def test_prompts_that_contradict_the_rest_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        small_spec(**changes)


@pytest.mark.parametrize("path", ["/m/t.json", "~/t.json", "~me/t.json", "C:/t.json", "\\\\h\\t"])
def test_d6_an_absolute_path_of_a_tokenizer_is_refused_as_it_would_be_published(path: str) -> None:
    with pytest.raises(SpecError, match="a path from the folder of the command"):
        small_spec(endpoint__api="chat", endpoint__tokenizer=path)


@pytest.mark.parametrize("text", ["sk-abcdefghijklmnopqr", "hf_abcdefghijklmnopqr", "0a1b2c3d", ""])
def test_a_key_in_place_of_the_name_of_its_variable_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SpecError, match="name of an environment variable") as caught:
        small_spec(endpoint__api_key_variable=text)
    assert not text or text not in str(caught.value)


def test_the_folder_of_the_models_files_is_no_identity_and_no_path_of_the_machine() -> None:
    spec = small_spec(endpoint__model_files="models/toy")

    assert spec.endpoint.model_files == "models/toy"
    assert spec.configuration_id == small_spec().configuration_id
    with pytest.raises(SpecError, match=r"endpoint\.model_files.*a path from the folder"):
        small_spec(endpoint__model_files="/data/models/toy")
