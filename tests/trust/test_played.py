"""Runs that play a trace or hold conversations: redrawn by whoever verifies, or refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import (
    JournalPlan,
    RunBuilder,
    a_trace,
    conversation_spec,
    small_spec,
    trace_spec,
)
from tests.trust.test_verify import check, document, evidence_file, gzip, put, refused
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.evidence.store import store
from tokenwatt_site.spec import Spec
from tokenwatt_site.trace import MAX_TRACE_BYTES, Trace, TraceLine, encode, parse
from tokenwatt_site.workload import Workload

TRACE = a_trace(400)


def of_trace(trace: Trace = TRACE, **changes: Any) -> RunBuilder:
    return RunBuilder(spec=trace_spec(trace, **changes), trace=trace)


def of_conversations() -> RunBuilder:
    return RunBuilder(spec=conversation_spec(3, 4, 24))


def test_a_run_of_a_trace_is_redrawn_from_the_trace_beside_it(tmp_path: Path) -> None:
    run = check(of_trace(protocol__repeats=2).write(tmp_path))
    assert run.evidence.trace == TRACE
    assert {entry.role for entry in run.run.evidence} == {"requests", "journal", "trace"}
    asked = [(r.prompt_asked, r.output_asked) for r in run.evidence.requests if r.trial == 1]
    assert asked == [request[1:] for request in TRACE.requests[: len(asked)]]
    assert run.claims.slo_met


def test_a_run_of_conversations_is_redrawn_from_its_setup(tmp_path: Path) -> None:
    run = check(of_conversations().write(tmp_path))
    assert run.claims.metric("cached_prompt_share").value == 0
    assert run.run.spec.setup.conversation is not None


@pytest.mark.parametrize("builder", [of_trace(), of_conversations()], ids=["trace", "turns"])
def test_requests_of_other_lengths_than_the_workload_s_are_refused(
    tmp_path: Path, builder: RunBuilder
) -> None:
    def shorter(records: list[RequestRecord]) -> list[RequestRecord]:
        return [replace(r, prompt_asked=20, prompt_tokens=20) for r in records]

    refused(replace(builder, edit_requests=shorter).write(tmp_path), 8, "not the one that was")


def test_requests_that_come_at_other_times_than_the_trace_s_are_refused(tmp_path: Path) -> None:
    def evenly(records: list[RequestRecord]) -> list[RequestRecord]:
        return [replace(r, due_ns=r.due_ns + r.row) for r in records]

    refused(replace(of_trace(), edit_requests=evenly).write(tmp_path), 8, "not the one that was")


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    def drop(value: dict[str, Any]) -> None:
        value["evidence"] = [e for e in value["evidence"] if e["role"] != "trace"]

    refused(replace(of_trace(), edit_document=drop).write(tmp_path), 6, "the trace is missing")


def test_a_trace_where_the_setup_plays_none_is_refused(tmp_path: Path) -> None:
    entry = store(tmp_path / "evidence", "trace", TRACE.data)

    def add(value: dict[str, Any]) -> None:
        value["evidence"].append(entry.to_json())

    refused(RunBuilder(edit_document=add).write(tmp_path), 6, "a trace that nothing plays")


def test_a_trace_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    def double(value: dict[str, Any]) -> None:
        value["evidence"].append(value["evidence"][-1])

    refused(replace(of_trace(), edit_document=double).write(tmp_path), 6, "roles")


def test_another_trace_than_the_workload_s_hash_names_is_refused(tmp_path: Path) -> None:
    other = store(tmp_path / "evidence", "trace", a_trace(401).data)
    swap = put("evidence", 2, value=other.to_json())
    builder = replace(of_trace(), edit_document=swap)
    refused(builder.write(tmp_path), 6, "setup.workload.hash", a_trace(401).sha256)


def test_f25_a_trace_with_a_changed_byte_is_refused(tmp_path: Path) -> None:
    path = of_trace().write(tmp_path)
    changed = TRACE.data.replace(b'"arrival_s":2,', b'"arrival_s":3,', 1)
    evidence_file(path, "trace").write_bytes(gzip(changed))
    refused(path, 6, "digest")


def test_f11_a_bomb_in_place_of_the_trace_is_stopped_at_the_stated_size(tmp_path: Path) -> None:
    path = of_trace().write(tmp_path)
    evidence_file(path, "trace").write_bytes(gzip(bytes(4 << 20)))
    refused(path, 6, "stated size")


LINE = b'{"arrival_s":1000,"input_tokens":5,"output_tokens":5}\n'
HOSTILE = {
    "f2 NaN": LINE.replace(b"1000", b"NaN"),
    "f2 infinite": LINE.replace(b"1000", b"1e999"),
    "f2 a large integer": LINE.replace(b"1000", b"9007199254740993"),
    "a time that never comes": LINE.replace(b"1000", b"1000001"),
    "a prompt of a billion": LINE.replace(b'input_tokens":5', b'input_tokens":1000000000'),
    "f1 a key twice": LINE.replace(b'"arrival_s"', b'"input_tokens":5,"arrival_s"'),
    "f3 deep": b"[" * 900 + b"\n",
    "f4 bidi": b'{"arrival_s":1000,"input_tokens":5,"output_\xe2\x80\xaetokens":5}\n',
    "cut": LINE[:-1],
    "goes back": LINE.replace(b"1000", b"0"),
    "f11 larger than is read": b" " * MAX_TRACE_BYTES + b"\n",
    "f11 more lines than are read": LINE * 50_000,
}


@pytest.mark.parametrize("end", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_trace_is_refused_though_its_hash_is_in_the_signed_setup(
    tmp_path: Path, end: bytes
) -> None:
    # The builder measures with the honest lines; what it stores and signs is the hostile file.
    hostile = Trace(TRACE.data + end, TRACE.requests)
    refused(of_trace(hostile).write(tmp_path), 6, "trace")


def test_a_setup_that_lies_about_the_lengths_of_its_trace_is_refused(tmp_path: Path) -> None:
    told = TRACE.lengths("input_tokens").model_copy(update={"max": 60})
    workload = Workload("toy-trace", 1, told, TRACE.lengths("output_tokens"), trace=TRACE)

    def lie(value: dict[str, Any]) -> None:
        setup = value["spec"]["setup"]
        setup["input_tokens"] = told.to_json()
        setup["workload"]["hash"] = workload.hash
        value["configuration"] = Spec.model_validate_json(
            json.dumps(value["spec"])
        ).configuration_id

    refused(replace(of_trace(), edit_document=lie).write(tmp_path), 6, "are not the lengths")


class FirstOfFive(RunBuilder):
    """Its first repeat alone was measured."""

    @property
    def _repeats(self) -> range:
        return range(1, 2)


def test_a_repeat_beyond_the_end_of_the_trace_is_refused(tmp_path: Path) -> None:
    def and_the_fifth(plan: JournalPlan) -> JournalPlan:
        (_, launch), (_, start), (_, end) = plan[1:4]
        number = {"repeat": 5, "trial": 2, "realisation": 5, "engine_started": "later"}
        fifth: JournalPlan = [
            ("launch", launch | number),
            ("trial_start", start | number),
            ("trial_end", end | number),
        ]
        return [*plan[:-1], *fifth, plan[-1]]

    builder = FirstOfFive(
        spec=trace_spec(TRACE, protocol__repeats=5),
        trace=TRACE,
        rates_urps=(500_000,),
        status="interrupted",
        edit_journal=and_the_fifth,
    )
    refused(builder.write(tmp_path), 6, "400 rows, enough for 4 of the repeats, 85 rows each")


@pytest.mark.parametrize(
    "change",
    [
        put("spec", "trace", value="/home/somebody/trace.jsonl"),
        put("spec", "trace", value="../trace.jsonl"),
        lambda value: value["spec"].pop("trace"),
        put("spec", "setup", "arrival", value="poisson"),
    ],
    ids=["absolute", "outside", "none", "not played"],
)
def test_a_signed_spec_whose_trace_is_not_below_it_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    refused(replace(of_trace(), edit_document=change).write(tmp_path), 5)


def test_a_plain_run_has_neither_trace_nor_conversation(tmp_path: Path) -> None:
    value = document(RunBuilder(spec=small_spec()).write(tmp_path))
    assert value["spec"]["trace"] is None
    assert "conversation" not in value["spec"]["setup"]
    assert [entry["role"] for entry in value["evidence"]] == ["requests", "journal"]


def drawn_out(gap_s: int) -> Trace:
    """Return a trace of a request a second, of which the rows that are scored are further apart."""
    gaps_s = [gap_s if 6 <= row <= 24 else 1 for row in range(1, 400)]
    arrivals = itertools.accumulate(gaps_s, initial=0)
    return parse(encode([TraceLine(at * 10**9, 20, 8) for at in arrivals]), source="t")


def test_the_part_of_a_trace_decides_neither_rate_nor_goodput(tmp_path: Path) -> None:
    runs = [check(of_trace(drawn_out(gap)).write(tmp_path / str(gap))) for gap in (1, 2)]
    for run in runs:
        goodput, boundary = (
            run.claims.metric(key).value or 0 for key in ("goodput", "boundary_rate")
        )
        for trial in run.claims.trials:
            own = [r for r in run.evidence.requests if r.trial == trial.trial][5:25]
            window_s = (own[-1].due_ns - own[0].due_ns) / 1e9
            assert 19 / window_s == pytest.approx(trial.rate_urps / 1e6, rel=1e-5)
        assert goodput == pytest.approx(8 * boundary)
    even, apart = (run.claims.metric("goodput").value for run in runs)
    assert even == pytest.approx(apart, rel=0.15)


@pytest.mark.parametrize("gap", [3, 50])
def test_a_run_of_a_part_that_is_sparser_than_the_trace_is_refused(
    tmp_path: Path, gap: int
) -> None:
    path = of_trace(drawn_out(gap)).write(tmp_path)
    refused(path, 6, "the scored rows of repeat 1 came at 0.", "times the rate of the whole trace")


def test_a_run_whose_scored_rows_all_come_at_once_is_refused(tmp_path: Path) -> None:
    # The builder measures with lines that are apart; what it stores and signs are these.
    at_once = Trace(drawn_out(0).data, drawn_out(1).requests)
    path = of_trace(at_once).write(tmp_path)
    refused(path, 6, "the scored rows of repeat 1 all come at once")
