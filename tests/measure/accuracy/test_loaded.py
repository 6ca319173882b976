"""Answers under load against the same alone, of a server that knows what it answered to whom."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import pytest

from tests.simulate.test_engine import engine
from tests.support.runs import small_spec
from tokenwatt_site.errors import EngineError
from tokenwatt_site.evidence.answers import text_digest
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.evidence.under_load import Compared, sampled_rows
from tokenwatt_site.measure.accuracy.loaded import compare_alone
from tokenwatt_site.measure.client import Target
from tokenwatt_site.measure.trial import plan_requests, run_trial
from tokenwatt_site.prompts import Ids, Prompts, common_words, trial_key
from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.simulate.text import text
from tokenwatt_site.simulate.truth import Served
from tokenwatt_site.spec import Spec
from tokenwatt_site.workload import Realisation, workload_of

NONCE = "ab" * 32
RATE = 2_000_000_000  # 2,000 requests/s: all are in progress at once
FAST = Script(ttft_ms=1, interval_ms=0.01)


def spec_for(api: str = "completions", timeout_s: float = 30.0) -> Spec:
    return small_spec(
        endpoint__api=api,
        endpoint__model="simulated",
        setup__slo=[{"metric": "ttft", "quantile": 0.9, "limit_ms": 60_000.0}],
        protocol__request_timeout_s=timeout_s,
    )


def realisation_of(spec: Spec) -> Realisation:
    return workload_of(spec.setup).realisation(1, lead_in=1, scored=12, tail=0)


def rows_of(spec: Spec) -> tuple[int, ...]:
    return sampled_rows(NONCE, 1, realisation_of(spec).scored_rows, spec.protocol.mode)


def prompts_for(spec: Spec) -> Prompts:
    return common_words() if spec.endpoint.api == "chat" else Ids(32000)


def load(spec: Spec, url: str) -> Mapping[int, str]:
    """Offer the realisation at once; return the texts of the sampled rows."""
    offered = run_trial(
        spec,
        realisation_of(spec),
        Target.from_url(url, spec.endpoint.api),
        repeat=1,
        trial=3,
        rate_urps=RATE,
        nonce=NONCE,
        prompts=prompts_for(spec),
        chat_overhead=0,
        trials_left=1,
        alive=lambda: True,
        report=lambda _: None,
        keep=lambda _: None,
        window=lambda *_: None,
        folder=None,
        texts_of=rows_of(spec),
    )
    assert {record.status for record in offered.records} == {Status.OK}
    return offered.texts


def alone(
    spec: Spec, url: str, texts: Mapping[int, str], said: list[str] | None = None
) -> tuple[Compared, ...]:
    return compare_alone(
        spec,
        realisation_of(spec),
        Target.from_url(url, spec.endpoint.api),
        repeat=1,
        trial=3,
        rate_urps=RATE,
        nonce=NONCE,
        prompts=prompts_for(spec),
        chat_overhead=0,
        texts=texts,
        folder=None,
        say=(said if said is not None else []).append,
    )


def bodies(spec: Spec) -> list[bytes]:
    """Return what the trial sent, by row."""
    plan = plan_requests(
        spec,
        realisation_of(spec),
        RATE,
        key=trial_key(NONCE, spec.configuration_id, 1, 3),
        prompts=prompts_for(spec),
        chat_overhead=0,
    )
    return [planned.body for planned in plan]


def others_at_begin(one: Served, log: list[Served]) -> int:
    """Count what else was in progress when a request came, by the log alone."""
    at_ns = one.received.monotonic_ns
    return sum(
        other.received.monotonic_ns < at_ns
        and (other.ended_at is None or other.ended_at.monotonic_ns > at_ns)
        for other in log
    )


def differ(compared: tuple[Compared, ...]) -> set[int]:
    return {each.row for each in compared if each.loaded != each.alone}


@pytest.mark.parametrize(
    ("api", "script"),
    [
        ("completions", "llama.cpp"),
        ("chat", "vllm,think:2,fragment:7,bursts:3"),
    ],
)
def test_an_honest_engine_says_the_same_under_load_and_alone(api: str, script: str) -> None:
    spec = spec_for(api)
    with SimulatedServer(named(script), engine()) as server:
        texts = load(spec, server.url)
        server.wait_until_unused()
        compared = alone(spec, server.url, texts)
    assert tuple(each.row for each in compared) == rows_of(spec)
    for each in compared:
        assert each.loaded == each.alone == each.again == text_digest(texts[each.row])
        assert each.same_chars == each.chars == len(texts[each.row]) > 0


def test_an_engine_that_garbles_under_load_is_seen_in_the_rows_that_it_garbled() -> None:
    spec, said = spec_for(), []
    with SimulatedServer(named("load-garbles:5"), engine(max_batch=2)) as server:
        texts = load(spec, server.url)
        server.wait_until_unused()
        loaded = list(server.log)
        compared = alone(spec, server.url, texts, said)
    sent = bodies(spec)
    expected = {
        sent.index(served.body) for served in loaded if others_at_begin(served, loaded) >= 5
    } & set(rows_of(spec))
    assert expected
    assert differ(compared) == expected
    for each in compared:
        assert each.alone == each.again
        assert each.same_chars == (len(" t") if each.row in expected else each.chars)
    assert said == ["asking 6 prompts of trial 3 again, one at a time, twice"]


def test_the_same_bodies_are_asked_one_at_a_time_and_all_once_before_any_again() -> None:
    spec = spec_for()
    with SimulatedServer(Script(), engine()) as server:
        texts = load(spec, server.url)
        server.wait_until_unused()
        begun = len(server.log)
        compared = alone(spec, server.url, texts)
        asked = server.log[begun:]
    sent, rows = bodies(spec), rows_of(spec)
    first, *sampled = [sent.index(served.body) for served in asked]
    assert first not in rows
    assert sampled == [*rows, *rows]
    for one, other in pairwise(asked):
        assert one.ended_at is not None
        assert other.received.monotonic_ns >= one.ended_at.monotonic_ns
    # What the engine still had of the trial, in whole blocks.
    told = [served.cached_tokens for served in asked[1 : 1 + len(rows)]]
    assert [each.cached_tokens for each in compared] == told
    assert max(told) > 0


def test_a_row_that_did_not_end_well_under_load_is_asked_alone_all_the_same() -> None:
    spec = spec_for()
    row, *others = rows_of(spec)
    with SimulatedServer(FAST) as server:
        missing, *compared = alone(spec, server.url, dict.fromkeys(others, " token tok!"))
    assert (missing.row, missing.loaded, missing.same_chars) == (row, None, 0)
    assert missing.alone == missing.again is not None
    assert missing.chars > 0
    for each in compared:
        assert each.loaded == text_digest(" token tok!")
        assert each.same_chars == len(" token tok")


def test_an_answer_alone_that_is_not_whole_is_none_and_the_others_are_compared() -> None:
    spec = spec_for()
    faults = {1: "http:503", 2: "short:1", 3: "no-usage", 8: "error:1"}
    with SimulatedServer(lambda number: named(faults.get(number, ""), FAST)) as server:
        compared = alone(spec, server.url, {})
        asked = [json.loads(served.body)["max_tokens"] for served in server.log]
    assert [each.alone is None for each in compared] == [True] * 3 + [False] * 3
    assert [each.again is None for each in compared] == [False, True] + [False] * 4
    assert [each.chars for each in compared] == [0] * 3 + [len(" token") * n for n in asked[4:7]]


def test_a_connection_that_breaks_once_is_no_answer_of_the_engine() -> None:
    spec = spec_for()
    with SimulatedServer(lambda n: named("drop:1" if n in (0, 2, 7) else "", FAST)) as server:
        compared = alone(spec, server.url, {})
    asked = dict(enumerate(realisation_of(spec).rows))
    for each in compared:
        whole = text_digest(text(FAST, 0, asked[each.row].output_tokens))
        assert each.alone == each.again == whole


@pytest.mark.parametrize(
    ("fault", "found"),
    [("drop:1", "closed the connection"), ("hang:1", "no end within 0.4 s")],
)
def test_an_engine_that_ends_midway_is_an_error_that_names_the_row(fault: str, found: str) -> None:
    spec = spec_for(timeout_s=0.4)
    rows = rows_of(spec)
    with (
        SimulatedServer(lambda number: named(fault if number > 2 else "", FAST)) as server,
        pytest.raises(EngineError, match=f"row {rows[2]} of trial 3, asked alone 2 times") as error,
    ):
        alone(spec, server.url, {})
    assert found in str(error.value)
    assert len(server.log) == 5


def test_an_engine_that_is_gone_is_an_error() -> None:
    with SimulatedServer() as server:
        url = server.url
    with pytest.raises(EngineError, match="cannot connect"):
        alone(spec_for(), url, {})
