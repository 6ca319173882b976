"""Who answers at each address, and whether all are one engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.measure.stub_engine import StubEngine, as_json, serving
from tests.support.runs import replica_spec
from tokenwatt_site.errors import EngineError, ReadBackError
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.measure.engine import free_port
from tokenwatt_site.measure.roster import as_told, read_back_all, require_alike, who_answers

SPEC = replica_spec(3)
FACTS = EngineFacts("toy", "1.0", "test", ("toy-135m",), 4096, 32000, "2026-01-01T00:00:00Z")
STUB = StubEngine(get={"/v1/models": as_json({"data": [{"id": "toy-135m"}]})})


def test_one_that_does_not_answer_is_named_before_and_is_missing_after() -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with serving(STUB) as url:
        with pytest.raises(EngineError, match=r": replica 2 of 2: no engine answers"):
            read_back_all([url, dead])
        with pytest.raises(EngineError, match=r"url: no engine answers"):
            read_back_all([dead])
        alive, gone = who_answers([url, dead], None)
        assert (alive, gone) == (as_told(*read_back_all([url])), None)


def test_replicas_that_differ_are_named_with_what_each_says() -> None:
    require_alike(SPEC, [FACTS] * 3)
    other = replace(FACTS, version="1.1", build=None, process_started=None)
    with pytest.raises(ReadBackError) as caught:
        require_alike(SPEC, [FACTS, other, FACTS])
    version, build = caught.value.problems
    assert (version.field, version.found) == (
        "setup.engine.version",
        "1.0 (replicas 1, 3); 1.1 (replica 2)",
    )
    assert build.found == "test (replicas 1, 3); not told (replica 2)"


def test_one_that_serves_another_model_is_named() -> None:
    with pytest.raises(ReadBackError) as caught:
        require_alike(SPEC, [FACTS, FACTS, replace(FACTS, models=("a", "b"))])
    (problem,) = caught.value.problems
    assert (problem.field, problem.found) == ("endpoint.model", "a, b (replica 3)")
    assert problem.expected == "toy-135m of each"
