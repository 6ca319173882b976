"""What programs read, as files below `api/v1/`: an index, the catalogue, each result, schemas.

Additive inside v1: fields may come, none goes and none changes its meaning. Quoted records are in
none of it, for they were not recomputed. What was taken back is there and says so. Files that
failed verification are listed in the index: who counts results has to know that some are missing.
The same input gives the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic import JsonValue as Json
from pydantic.json_schema import models_json_schema

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import Leaderboard
from tokenwatt_site.pages import cite, dataset, statements
from tokenwatt_site.pages.dataset import Publisher
from tokenwatt_site.pages.detail import detail
from tokenwatt_site.spec import json_schema as spec_schema
from tokenwatt_site.trust.verify import ValidatedRun

FOLDER = "api/v1"
SPEC_SCHEMA = f"{FOLDER}/spec.schema.json"
"""For the editors of those who write a spec; of none of the documents here."""

VERSION = "1.1"
"""Of all documents; the second number grows with their fields."""

State: TypeAlias = Literal["stands", "withdrawn", "superseded", "disputed"]


class _Document(BaseModel):
    """Readers must take fields that they do not know: v1 may get more."""

    model_config = ConfigDict(extra="allow")


class Named(_Document):
    """A licence: its name, and where its text is."""

    name: str
    url: str


class Statement(_Document):
    """A signed statement about a run that counts."""

    kind: str
    made: str
    by: str
    says: str


class RunEntry(_Document):
    """One run. `state` is the gravest that counts; links are relative to the root of the site."""

    run: str = Field(pattern="^[0-9a-f]{64}$")
    configuration: str
    title: str
    simulated: bool
    status: Literal["complete", "interrupted"]
    mode: str
    state: State
    statements: list[Statement]
    leads: bool
    started: str
    ended: str
    signer: str | None
    keyid: str
    page: str
    file: str


class ResultEntry(_Document):
    """One configuration and where its result, report and badge are."""

    id: str
    title: str
    run: str
    updated: str
    result: str
    report: str
    badge: str


class LeftOut(_Document):
    """A file that failed verification."""

    file: str
    why: str


class Counts(_Document):
    """`ranked` and `results` are configurations; the rest are runs, and `left_out` files."""

    results: int
    ranked: int
    runs: int
    stands: int
    withdrawn: int
    superseded: int
    disputed: int
    left_out: int


class Index(_Document):
    """`index.json`. `licence` null: none is stated, so no right to use the data is given here."""

    schema_: Literal["tokenwatt/index/1"] = Field(alias="schema")
    schema_version: str
    site: str
    address: str | None
    licence: Named | None
    counts: Counts
    links: dict[str, str]
    deprecated: list[str]
    results: list[ResultEntry]
    runs: list[RunEntry]
    left_out: list[LeftOut]


class MetricEntry(_Document):
    """One number. A missing `value` is null, never 0, and `reason` says why."""

    key: str
    label: str
    unit: str
    better: Literal["higher", "lower", "neither"]
    value: float | None
    low: float | None
    high: float | None
    repeats: list[float]
    n: int
    reason: str | None
    definition: str


class Excluded(_Document):
    """Why a configuration does not rank."""

    code: str
    text: str


class Result(_Document):
    """`results/<id>.json`: the run that leads a configuration, with every number and its setup."""

    schema_: Literal["tokenwatt/result/1"] = Field(alias="schema")
    schema_version: str
    licence: Named | None
    id: str
    title: str
    run: str
    runs: list[str]
    simulated: bool
    state: State
    status: str
    signer: str | None
    key_state: str
    mode: str
    measured: str
    setup: dict[str, Json]
    slo: list[dict[str, Json]]
    workload: dict[str, Json]
    power_scope: str
    cards: int | None
    metrics: list[MetricEntry]
    gate: dict[str, Json]
    exclusions: list[Excluded]
    retracted: bool
    disputed: bool


class Column(_Document):
    """A number that every row has, from the registry of metrics."""

    key: str
    label: str
    unit: str
    better: Literal["higher", "lower", "neither"]


class CellEntry(_Document):
    """A number of a row: null where there is none, with the reason."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    reason: str | None


class CatalogueRow(_Document):
    """One configuration in the leaderboard; `rank` is [best, worst], null where it may not rank.

    `excluded` has why not: a code, a sentence, and a few words.
    """

    id: str
    title: str
    url: str
    section: int
    rank: tuple[int, int] | None
    tied: bool
    simulated: bool
    retracted: bool
    excluded: list[tuple[str, str, str]]
    mode: str
    measured: str
    n: int
    cards: int | None
    cells: dict[str, CellEntry]


class Catalogue(_Document):
    """`catalogue.json`: the leaderboard. Rows of two sections answer two questions."""

    schema_: Literal["tokenwatt/catalogue/1"] = Field(alias="schema")
    schema_version: str
    licence: Named | None
    columns: list[Column]
    sections: list[dict[str, Json]]
    rows: list[CatalogueRow]


DOCUMENTS: tuple[type[_Document], ...] = (Index, Catalogue, Result)


def files(
    told: Mapping[str, JsonValue], listed: Mapping[str, JsonValue], publisher: Publisher
) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
    """Yield (path from the root of the site, document) of every file that is one of its kind.

    Args:
        told: see `index`.
        listed: the catalogue of what is published.
        publisher: what the site says of itself.
    """
    yield f"{FOLDER}/index.json", told
    yield f"{FOLDER}/catalogue.json", {**listed, **_head(publisher)}
    yield f"{FOLDER}/schema.json", schema()
    yield SPEC_SCHEMA, spec_schema()


def path(configuration: Configuration) -> str:
    """Return where the result of a configuration is, from the root of the site."""
    return f"{FOLDER}/results/{configuration.id}.json"


def result(configuration: Configuration, publisher: Publisher) -> str:
    """Return the file of one result.

    Args:
        configuration: whose it is.
        publisher: what the site says of itself.
    """
    told = detail(configuration) | _head(publisher) | {"state": state(configuration.headline)}
    return written(told)


def runs(configuration: Configuration) -> list[dict[str, Any]]:
    """Return the entry of each run of a configuration."""
    return [_run(configuration, run) for run in configuration.runs]


def index(
    configurations: Sequence[Configuration],
    board: Leaderboard,
    left_out: Sequence[tuple[str, str]],
    publisher: Publisher,
    told: Callable[[Configuration], Sequence[dict[str, Any]]] = runs,
) -> dict[str, JsonValue]:
    """Return the document by which all others are found.

    Args:
        configurations: what is published.
        board: the same, ranked.
        left_out: (file, why) of what failed verification.
        publisher: what the site says of itself.
        told: gives what `runs` does, as whoever has thousands of them kept it.
    """
    entries = [run for each in configurations for run in told(each)]
    states = Counter(run["state"] for run in entries)
    return {
        "schema": "tokenwatt/index/1",
        "schema_version": VERSION,
        "site": publisher.name,
        "address": publisher.address,
        "licence": publisher.licence_json(),
        "counts": {
            "results": len(configurations),
            "ranked": sum(section.ranked for section in board.sections),
            "runs": len(entries),
            **{word: states[word] for word in ("stands", *statements.AGAINST)},
            "left_out": len(left_out),
        },
        "links": {
            "catalogue": f"{FOLDER}/catalogue.json",
            "schema": f"{FOLDER}/schema.json",
            "spec_schema": SPEC_SCHEMA,
            "result": f"{FOLDER}/results/{{id}}.json",
            "run": f"{cite.FOLDER}/{{run}}/run.json",
            "csv": "ranking.csv",
            **({} if publisher.address is None else {"feed": "feed.xml"}),
        },
        "deprecated": [],
        "results": [
            {
                "id": each.id,
                "title": each.title,
                "run": each.headline.run_id,
                "updated": dataset.latest(each),
                "result": path(each),
                "report": _report(each),
                "badge": f"badges/{each.id}.svg",
            }
            for each in configurations
        ],
        "runs": entries,
        "left_out": [{"file": file, "why": why} for file, why in left_out],
    }


def state(run: ValidatedRun) -> State:
    """Say in a word what was stated against a run and counts, the gravest first."""
    for word in statements.AGAINST:
        if run.standing.counting(word):
            return word
    return "stands"


def schema() -> dict[str, JsonValue]:
    """Return the JSON Schema of the documents; `oneOf` tells them by their `schema`."""
    refs, definitions = models_json_schema(
        [(each, "validation") for each in DOCUMENTS], ref_template="#/$defs/{model}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tokenwatt API, version {VERSION}",
        "oneOf": [refs[each, "validation"] for each in DOCUMENTS],
        **definitions,
    }


def written(value: Mapping[str, Any]) -> str:
    """Write a document: keys in the order given, as numbers are, one line."""
    return "".join(pieces(value))


def pieces(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield what `written` returns in pieces: a document of thousands takes tens of megabytes."""
    yield "{"
    for number, (name, field) in enumerate(value.items()):
        yield f"{',' if number else ''}{_json(name)}:"
        if isinstance(field, list):
            yield "["
            for place, item in enumerate(field):
                yield f"{',' if place else ''}{_json(item)}"
            yield "]"
        else:
            yield _json(field)
    yield "}\n"


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _head(publisher: Publisher) -> dict[str, JsonValue]:
    return {"schema_version": VERSION, "licence": publisher.licence_json()}


def _report(configuration: Configuration) -> str:
    return f"reports/{configuration.id}.html"


def _run(configuration: Configuration, run: ValidatedRun) -> dict[str, Any]:
    conditions, standing = run.run.conditions, run.standing
    return {
        "run": run.run_id,
        "configuration": configuration.id,
        "title": run.run.spec.title,
        "simulated": run.run.simulated,
        "status": run.run.status,
        "mode": run.run.spec.protocol.mode,
        "state": state(run),
        "statements": [
            {
                "kind": told.signed.kind,
                "made": told.signed.said.made,
                "by": statements.signer(told),
                "says": statements.says(told),
            }
            for told in standing.told
            if told.why_not is None
        ],
        "leads": run is configuration.headline,
        "started": conditions.started,
        "ended": conditions.ended,
        "signer": run.signer,
        "keyid": run.keyid,
        "page": f"{cite.FOLDER}/{run.run_id}/index.html",
        "file": f"{cite.FOLDER}/{run.run_id}/run.json",
    }
