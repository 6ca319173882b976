"""What programs read: every document is of the published schema, and hides nothing."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.pages.conftest import HOSTILE
from tests.support.runs import small_spec_dict
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.pages import api, catalogue
from tokenwatt_site.pages.dataset import Publisher

Configurations = tuple[Configuration, ...]
LEFT_OUT = [("bad.json", "check 4: the signature is not valid")]


@pytest.fixture(scope="module")
def files(published: Configurations, publisher: Publisher) -> dict[str, str]:
    return made(published, LEFT_OUT, publisher)


def made(
    published: Configurations, left_out: list[tuple[str, str]], publisher: Publisher
) -> dict[str, str]:
    board = rank(published)
    known = {each.id: each for each in published}
    listed = catalogue.catalogue(board, known, {i: f"reports/{i}.html" for i in known})
    told = api.index(published, board, left_out, publisher)
    results = {api.path(each): api.result(each, publisher) for each in published}
    whole = {path: api.written(value) for path, value in api.files(told, listed, publisher)}
    return whole | results


def read(files: dict[str, str], name: str) -> Any:
    return json.loads(files[f"api/v1/{name}"])


def test_every_document_is_of_the_schema_that_is_published_beside_it(files: dict[str, str]) -> None:
    schema = read(files, "schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    names = [name for name in files if not name.endswith("schema.json")]
    assert len(names) == 4
    for name in names:
        jsonschema.validate(json.loads(files[name]), schema)


@pytest.mark.parametrize(
    ("field", "value"), [("schema", "tokenwatt/index/2"), ("counts", None), ("runs", [{}])]
)
def test_the_schema_refuses_a_document_that_is_wrong(
    files: dict[str, str], field: str, value: Any
) -> None:
    wrong = read(files, "index.json") | {field: value}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, read(files, "schema.json"))


def test_the_schema_of_a_spec_is_where_the_index_says_and_takes_what_the_loader_takes(
    files: dict[str, str],
) -> None:
    there = files[read(files, "index.json")["links"]["spec_schema"]]
    jsonschema.Draft202012Validator(json.loads(there)).validate(small_spec_dict())


def test_a_missing_number_is_null_with_its_reason_and_never_zero(files: dict[str, str]) -> None:
    rows = read(files, "catalogue.json")["rows"]
    missing = [c for row in rows for c in row["cells"].values() if c["value"] is None]
    assert missing
    assert all(cell["reason"] for cell in missing)
    results = [json.loads(text) for name, text in files.items() if "/results/" in name]
    for metric in (m for result in results for m in result["metrics"]):
        assert (metric["value"] is None) == bool(metric["reason"])


def test_h24_a_run_that_was_withdrawn_is_there_and_says_so(
    files: dict[str, str], published: Configurations
) -> None:
    index = read(files, "index.json")
    assert len(index["runs"]) == sum(len(c.runs) for c in published) == 3
    (taken,) = [run for run in index["runs"] if run["state"] == "withdrawn"]
    assert taken["leads"] is False
    assert taken["statements"][0]["says"] == "the driver was another one"
    counts = index["counts"]
    assert (counts["results"], counts["stands"], counts["withdrawn"]) == (2, 2, 1)


def test_what_was_left_out_is_counted_and_named(files: dict[str, str]) -> None:
    index = read(files, "index.json")
    assert index["counts"]["left_out"] == 1
    assert index["left_out"] == [{"file": "bad.json", "why": LEFT_OUT[0][1]}]


def test_quoted_records_are_in_none_of_it(files: dict[str, str]) -> None:
    assert not [name for name, text in files.items() if "deepseek-v4.1-flash" in name + text]


def test_hostile_words_come_out_as_they_went_in(files: dict[str, str]) -> None:
    titles = [each["title"] for each in read(files, "index.json")["results"]]
    assert HOSTILE in titles


def test_the_same_runs_give_the_same_bytes(
    files: dict[str, str], published: Configurations, publisher: Publisher
) -> None:
    assert made(published, LEFT_OUT, publisher) == files


def test_a_site_without_licence_says_so_with_null(published: Configurations) -> None:
    bare = Publisher("A bench", None, None)
    files = made(published, [], bare)
    index = read(files, "index.json")
    assert index["licence"] is None
    assert index["address"] is None
    assert "feed" not in index["links"]
    jsonschema.validate(index, read(files, "schema.json"))
