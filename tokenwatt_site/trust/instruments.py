"""What no instrument can have read: of check 10 of `trust.verify`, power and counters. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tokenwatt_site.engine_log import COUNTERS, EngineLog
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.idle import IdleSpan
from tokenwatt_site.journal import Entry
from tokenwatt_site.power_log import PowerLog, impossible
from tokenwatt_site.run import Run
from tokenwatt_site.spec import SCOPES
from tokenwatt_site.trials import Evidence, Trial
from tokenwatt_site.trust.difference import expect_equal


def check_power(run: Run, evidence: Evidence) -> None:
    """Check that power was read from the source and all the boards that the run names.

    What was read beside it is of instruments that the spec asks for, at most one log for each.

    Raises:
        InputError: another sensor, scope or board than named, a board too few or too many, or a
            log that no instrument can have left; see `check_log`.
    """
    log, setup = evidence.power, run.spec.setup
    boards = [board.uuid for board in log.boards] if log else []
    expect_equal("conditions.board_uuids", list(run.conditions.board_uuids), boards)
    if log is not None:
        expect_equal("setup.power.sensor", setup.power.sensor, log.sensor)
        expect_equal("setup.power.scope", setup.power.scope, log.scope)
        check_log("power", log)
        if log.scope in {"gpu", "module"}:
            what = "is not one of each board of setup.accelerator.count"
            expect_equal("conditions.board_uuids", len(boards), setup.accelerator.count, what)
    asked = [i.sensor for i in run.spec.instruments if i.sensor != setup.power.sensor]
    for number, beside in enumerate(evidence.beside, start=1):
        field = f"power-beside-{number}"
        if beside.sensor not in asked:
            raise InputError(
                Problem(
                    "is of an instrument that the spec does not ask for",
                    field=f"evidence.{field}",
                    found=beside.sensor,
                    expected=" or ".join(sorted(set(asked))) or "none",
                )
            )
        asked.remove(beside.sensor)
        check_log(field, beside)


def check_log(field: str, log: PowerLog) -> None:
    """Check that an instrument can have left this log.

    Its scope is one that its sensor has, its boards are one of each, its samples are in order of
    time for each board and within what can be read, and its spans lie between its samples.

    Raises:
        InputError: naming the sample or the board.
    """
    if log.sensor == "none" or log.scope not in SCOPES[log.sensor]:
        raise _fault(field, f"is of scope {log.scope}, which the sensor {log.sensor} does not have")
    uuids = [board.uuid for board in log.boards]
    if not uuids or len(set(uuids)) != len(uuids):
        raise _fault(field, f"has {len(uuids)} boards, of which {len(set(uuids))} are different")
    last_ns = dict.fromkeys(range(len(uuids)), 0)
    for position, sample in enumerate(log.samples):
        if sample.at_ns < last_ns[sample.board]:
            raise _fault(f"{field}.{position}", "goes back in time")
        last_ns[sample.board] = sample.at_ns
        for name in impossible(sample, log.scope):
            value = getattr(sample, name)
            raise _fault(f"{field}.{position}.{name}", f"is beyond any reading: {value}")
    _check_spans(field, log)


def _check_spans(field: str, log: PowerLog) -> None:
    for number, span in enumerate(log.spans):
        read = log.of_board(span.board)
        if not read or not read[0].at_ns <= span.start_ns < span.end_ns <= read[-1].at_ns:
            raise _fault(
                f"{field}.spans.{number}", "does not lie between the readings of its board"
            )


def check_idle(journal: Sequence[Entry], trials: Sequence[Trial]) -> None:
    """Check that no idle span overlaps a trial, or another span, and that time goes on.

    Raises:
        InputError: naming the line of the journal.
    """
    for before, after in pairwise(_moments(journal, trials)):
        if after[1] < before[2]:
            raise _fault(
                f"journal line {after[0].seq} ({after[0].event})",
                f"begins before what line {before[0].seq} ({before[0].event}) tells of had ended",
            )


def check_engine(journal: Sequence[Entry], trials: Sequence[Trial], log: EngineLog | None) -> None:
    """Check that an engine's counters run forward from launch to launch, and so does time.

    Raises:
        InputError: naming the sample and the counter.
    """
    if log is None:
        return
    launches = list(_launches(journal, trials))
    for position, (before, after) in enumerate(pairwise(log.samples), start=1):
        field = f"engine.{position}"
        if after.at_ns < before.at_ns:
            raise _fault(field, "goes back in time")
        one = any(start <= before.at_ns and after.at_ns <= end for start, end in launches)
        for name in COUNTERS:
            was, now = getattr(before, name), getattr(after, name)
            if one and was is not None and now is not None and now < was:
                raise _fault(f"{field}.{name}", f"runs backwards in one launch: {now} after {was}")
    for position, sample in enumerate(log.samples):
        for name in (*COUNTERS, "running", "waiting", "kv_ppm"):
            if (getattr(sample, name) or 0) < 0:
                raise _fault(f"engine.{position}.{name}", "is negative")


def _launches(journal: Sequence[Entry], trials: Sequence[Trial]) -> Iterator[tuple[int, int]]:
    """Return from when to when each launch is known to have run."""
    starts = [line.seq for line in journal if line.event == "launch"]
    moments = list(_moments(journal, trials))
    for first, last in zip(starts, [*starts[1:], len(journal)], strict=True):
        own = [moment for moment in moments if first < moment[0].seq < last]
        if own:
            yield min(start for _, start, _ in own), max(end for _, _, end in own)


def _moments(journal: Sequence[Entry], trials: Sequence[Trial]) -> Iterator[tuple[Entry, int, int]]:
    """Return the line, start and end of every trial and idle span, as the journal has them."""
    ended = {(trial.repeat, trial.number): trial for trial in trials}
    for line in journal:
        if line.event == "idle":
            span = IdleSpan.of(line)
            yield line, span.start_ns, span.end_ns
        elif line.event == "trial_start":
            trial = ended.get((line.data["repeat"], line.data["trial"]))
            if trial is not None:
                last_ns = max((r.end_ns for r in trial.records), default=0)
                yield line, trial.epoch_ns, trial.epoch_ns + last_ns


def _fault(field: str, what: str) -> InputError:
    return InputError(Problem(what, field=field))
