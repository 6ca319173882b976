"""What cannot have happened: of check 9 of `trust.verify`, dates, trials and requests. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.journal import Entry
from tokenwatt_site.run import Run
from tokenwatt_site.trials import Trial
from tokenwatt_site.trust.difference import expect_equal

CLOCK_SLACK_NS = 1_000_000
"""Sends are stamped by us and arrivals by the kernel, whose clocks are paired to within this."""


EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""No file of this format is older."""

FUTURE_SLACK = timedelta(days=1)
CLOCK_SET = timedelta(days=1)
"""By less than this the wall clock of a machine is set while it measures."""


def check_dates(run: Run, journal: Sequence[Entry], now: datetime) -> None:
    """Check that dates are UTC in RFC 3339, and that the run's are those of its journal, in order.

    Lines between may go back: the wall clock of a machine is set now and then, by less than a day.
    The run's own dates lie between EARLIEST and a day after `now`, the clock of whoever verifies.

    Raises:
        InputError: naming the field.
    """
    times = [_utc(f"journal line {line.seq}.at", line.at) for line in journal]
    expect_equal("conditions.started", run.conditions.started, journal[0].at)
    expect_equal("conditions.ended", run.conditions.ended, journal[-1].at)
    for line in (journal[0], journal[-1]):
        if not EARLIEST <= _utc("", line.at) <= now + FUTURE_SLACK:
            raise InputError(
                Problem(
                    "is no time at which this was measured",
                    field=f"journal line {line.seq}.at",
                    found=line.at,
                    expected=f"from {EARLIEST:%Y-%m-%d} to a day from now",
                )
            )
    if _utc("", journal[-1].at) < _utc("", journal[0].at):
        raise InputError(
            Problem(
                "lies before the start",
                field="conditions.ended",
                found=run.conditions.ended,
                expected=f"not before {run.conditions.started}",
            )
        )
    # Else a first trial in a far future would be after whatever somebody saw of it.
    for line, at in zip(journal, times, strict=True):
        if not times[0] - CLOCK_SET < at < times[-1] + CLOCK_SET:
            raise InputError(
                Problem(
                    "is no time of this run",
                    field=f"journal line {line.seq}.at",
                    found=line.at,
                    expected=f"from {run.conditions.started} to {run.conditions.ended}",
                )
            )


def _utc(field: str, text: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        date = None
    if date is None or date.utcoffset() != timedelta(0):
        raise InputError(Problem("is no UTC date in RFC 3339", field=field, found=repr(text)[:80]))
    return date


def check_epochs(trials: Sequence[Trial]) -> None:
    """Check that no trial began before the last request of the one before it had ended.

    Raises:
        InputError: naming the trial.
    """
    for before, trial in pairwise(trials):
        least_ns = before.epoch_ns + max([1, *(r.end_ns for r in before.records)])
        if trial.epoch_ns < least_ns:
            raise InputError(
                Problem(
                    f"lies before the end of trial {before.number}",
                    field=f"epoch_ns of repeat {trial.repeat}, trial {trial.number}",
                    found=str(trial.epoch_ns),
                    expected=f"at least {least_ns}",
                )
            )


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
    yield from _connection_faults(r)
    yield from _time_faults(r)
    yield from _token_faults(r)
    if r.status is Status.OK and (
        None in (r.sent_ns, r.first_ns, r.last_ns) or (r.output_tokens or 0) < r.output_asked
    ):
        yield "is called complete, and lacks a time or tokens"


def _connection_faults(r: RequestRecord) -> Iterator[str]:
    if r.dialled_ns is None:
        return
    if r.dialled_ns < r.due_ns - CLOCK_SLACK_NS:
        yield "was dialled for before it was due"
    if r.connected_ns is not None and r.connected_ns < r.dialled_ns:
        yield "was connected before it was dialled for"


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
    counts = (r.events, r.prompt_tokens, r.cached_tokens, r.output_tokens, r.first_tokens)
    if any(count is not None and count < 0 for count in counts):
        yield "has a negative count"
    # Engines may tell what was cached in every chunk, and of the prompt only at the end.
    known = r.prompt_tokens is not None or r.status is Status.OK
    if known and (r.cached_tokens or 0) > (r.prompt_tokens or 0):
        yield "had more cached prompt tokens than prompt tokens"
    told = r.output_tokens is not None and r.first_tokens is not None
    if told and (r.first_tokens or 0) > (r.output_tokens or 0):
        yield "had more tokens in its first event than in all"
