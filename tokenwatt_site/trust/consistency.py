"""What must hold between the parts of a run, and within one request. Pure.

These are the contents of the checks 7, 9 and 10 of `trust.verify`, which gives each failure its
number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence import PowerLog, RequestRecord, Status
from tokenwatt_site.journal import Line
from tokenwatt_site.run import Run

TOLERANCE = 5e-7
"""Relative; libm's log and exp differ in the last bits between platforms, far below this."""

CLOCK_SLACK_NS = 1_000_000
"""Sends are stamped by us and arrivals by the kernel, whose clocks are paired to within this."""


def expect_equal(field: str, found: str, expected: str) -> None:
    """Raise an InputError that names `field` when two texts differ."""
    if found != expected:
        raise InputError(
            Problem("is not what it should be", field=field, found=found, expected=expected)
        )


def first_difference(
    found: JsonValue, expected: JsonValue, path: str
) -> tuple[str, JsonValue, JsonValue] | None:
    """Return (path, found, expected) of the first place where two values differ, or None.

    Numbers are equal when |a - b| <= TOLERANCE max(|a|, |b|) if either is a fraction, and integers
    only when they are the same.
    """
    if isinstance(found, dict) and isinstance(expected, dict):
        if found.keys() != expected.keys():
            return path, sorted(found), sorted(expected)
        pairs = [(f"{path}.{key}", found[key], expected[key]) for key in expected]
    elif isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            return f"{path}.length", len(found), len(expected)
        pairs = [
            (f"{path}.{index}", a, b)
            for index, (a, b) in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return None if _same(found, expected) else (path, found, expected)
    return next(
        (different for key, a, b in pairs if (different := first_difference(a, b, key))), None
    )


def _same(a: JsonValue, b: JsonValue) -> bool:
    numbers = all(isinstance(value, int | float) and type(value) is not bool for value in (a, b))
    if numbers and (isinstance(a, float) or isinstance(b, float)):
        return bool(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)))
    return type(a) is type(b) and bool(a == b)


def check_journal(run: Run, journal: Sequence[Line]) -> None:
    """Check that the journal was opened for this run, and that no trial was dropped or added.

    A trial belongs to the launch before it, which was for its repeat: so repeats are launches. It
    may lack its end only where it was broken off: `interrupted`, a new launch or nothing follows. A
    complete run has every repeat of its plan and ends with `close`.

    Raises:
        InputError: naming the line and what was expected there.
    """
    if [line.seq for line in journal if line.event == "open"] != [0]:
        raise InputError(Problem("does not begin with its only open line", field="journal"))
    opening = journal[0].data
    expect_equal(
        "journal line 0.configuration", str(opening.get("configuration")), run.configuration
    )
    if different := first_difference(
        opening.get("spec"), run.spec.to_json(), "journal line 0.spec"
    ):
        field, found, expected = different
        raise InputError(
            Problem(
                "was opened with another spec",
                field=field,
                found=repr(found)[:200],
                expected=repr(expected)[:200],
            )
        )
    repeats = {repeat for repeat, _ in _ended_trials(journal)}
    planned = set(range(1, run.spec.protocol.repeats + 1))
    complete = journal[-1].event == "close" and repeats == planned
    if not repeats <= planned or (run.status == "complete" and not complete):
        raise InputError(
            Problem(
                f"says {run.status}, which the journal does not show",
                field="status",
                found=f"repeats {sorted(repeats)}, last line {journal[-1].event}",
                expected=f"repeats 1 to {run.spec.protocol.repeats}, last line close",
            )
        )


def _ended_trials(journal: Sequence[Line]) -> list[tuple[JsonValue, JsonValue]]:
    """Return (repeat, trial) of every trial that ended; see `check_journal`."""
    started: list[tuple[JsonValue, JsonValue]] = []
    ended: list[tuple[JsonValue, JsonValue]] = []
    running: tuple[JsonValue, JsonValue] | None = None
    launched: JsonValue = None
    for line in journal:
        trial = (line.data.get("repeat"), line.data.get("trial"))
        if line.event == "trial_end":
            if trial != running:
                raise _at(line, f"ends the trial {trial}, while {running or 'none'} was running")
            ended.append(trial)
            running = None
        elif running is not None and line.event not in {"interrupted", "launch"}:
            raise _at(line, f"follows the start of the trial {running}, which has no end")
        elif line.event == "trial_start":
            if trial in started or not all(type(number) is int for number in trial):
                raise _at(line, f"starts the trial {trial}, which is no new trial")
            if trial[0] != launched:
                raise _at(line, f"starts the trial {trial} on the launch of repeat {launched}")
            started.append(trial)
            running = trial
        else:
            running = None
            launched = line.data.get("repeat") if line.event == "launch" else launched
    return ended


def _at(line: Line, what: str) -> InputError:
    return InputError(Problem(what, field=f"journal line {line.seq} ({line.event})"))


def check_dates(run: Run, journal: Sequence[Line]) -> None:
    """Check that dates are UTC in RFC 3339, and that the run's are those of its journal, in order.

    Lines between may go back: the wall clock of a machine is set now and then.

    Raises:
        InputError: naming the field.
    """
    for line in journal:
        _utc(f"journal line {line.seq}.at", line.at)
    expect_equal("conditions.started", run.conditions.started, journal[0].at)
    expect_equal("conditions.ended", run.conditions.ended, journal[-1].at)
    if _utc("", journal[-1].at) < _utc("", journal[0].at):
        raise InputError(
            Problem(
                "lies before the start",
                field="conditions.ended",
                found=run.conditions.ended,
                expected=f"not before {run.conditions.started}",
            )
        )


def check_power(run: Run, log: PowerLog | None) -> None:
    """Check that power was read from the source and the boards that the run names, in order.

    Raises:
        InputError: another sensor, scope or board than named, or samples that go back in time.
    """
    boards = tuple(board.uuid for board in log.boards) if log else ()
    expect_equal("conditions.board_uuids", str(run.conditions.board_uuids), str(boards))
    if log is None:
        return
    source = run.spec.setup.power
    expect_equal("setup.power", f"{source.sensor} {source.scope}", f"{log.sensor} {log.scope}")
    last_ns = dict.fromkeys(range(len(boards)), 0)
    for position, sample in enumerate(log.samples):
        if sample.at_ns < last_ns[sample.board]:
            raise InputError(Problem("goes back in time", field=f"power.{position}"))
        last_ns[sample.board] = sample.at_ns


def _utc(field: str, text: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        date = None
    if date is None or date.utcoffset() != timedelta(0):
        raise InputError(Problem("is no UTC date in RFC 3339", field=field, found=repr(text)[:80]))
    return date


def check_requests(records: Sequence[RequestRecord]) -> None:
    """Check that no request does what no request can do.

    Raises:
        InputError: the first such request, and what it claims.
    """
    for position, record in enumerate(records):
        for fault in _faults(record):
            raise InputError(
                Problem(
                    fault,
                    field=f"requests.{position} (repeat {record.repeat}, trial {record.trial})",
                    found=str(record),
                )
            )


def _faults(r: RequestRecord) -> Iterator[str]:
    yield from _time_faults(r)
    yield from _token_faults(r)
    if r.status is Status.OK and (
        None in (r.sent_ns, r.first_ns, r.last_ns) or r.output_tokens != r.output_asked
    ):
        yield "is called complete, and lacks a time or tokens"


def _time_faults(r: RequestRecord) -> Iterator[str]:
    if r.due_ns < 0 or r.uncertainty_ns < 0:
        yield "has a negative time"
    if r.sent_ns is not None:
        if r.sent_ns < r.due_ns - CLOCK_SLACK_NS:
            yield "was sent before it was due"
        if r.end_ns < r.sent_ns - CLOCK_SLACK_NS:
            yield "ended before it was sent"
    if r.first_ns is not None:
        if r.sent_ns is None or r.first_ns < r.sent_ns - CLOCK_SLACK_NS:
            yield "was answered before it was sent"
        if r.last_ns is None or r.last_ns < r.first_ns:
            yield "had its last token before its first"
        elif r.end_ns < r.last_ns - CLOCK_SLACK_NS:
            yield "ended before its last token"


def _token_faults(r: RequestRecord) -> Iterator[str]:
    told = (r.events, r.prompt_tokens, r.cached_tokens, r.output_tokens, r.first_tokens)
    if any(count is not None and count < 0 for count in told):
        yield "has a negative count"
    if r.cached_tokens is not None and r.cached_tokens > (r.prompt_tokens or 0):
        yield "had more cached prompt tokens than prompt tokens"
    if r.output_tokens is not None:
        if r.output_tokens > r.output_asked:
            yield "yielded more tokens than were asked for"
        if r.first_tokens is not None and r.first_tokens > r.output_tokens:
            yield "had more tokens in its first event than in all"
