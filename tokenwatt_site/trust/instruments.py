"""What no instrument can have read: of check 9 of `trust.verify`, power and counters. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tokenwatt_site import accelerators
from tokenwatt_site.energy.idle import MIN_IDLE_S, IdleSpan
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.engine import COUNTERS, EngineLog
from tokenwatt_site.evidence.power import (
    LIMIT_WITHIN_W,
    MOST_DRAM_PPM,
    PowerLog,
    impossible,
    possible,
)
from tokenwatt_site.journal import Entry
from tokenwatt_site.meters import GPU_SCOPES, SCOPES
from tokenwatt_site.run import Run
from tokenwatt_site.spec import Accelerator, Spec
from tokenwatt_site.trials import Evidence, Trial
from tokenwatt_site.trust.difference import expect_equal

REPLAYED = 20
"""So many readings of a board in a row never come again, to the milliwatt..."""

_VARIED = 10
"""...where so many of them differ: one that stands still, or is told seldom, repeats itself."""

_MOST = 1 << 53
"""Beyond this no clock and no counter goes."""


def check_power(run: Run, evidence: Evidence) -> None:
    """Check that power was read from the source and all the boards that the run names.

    Boards are of the model and the limit that the setup declares, as `measure` asks before any
    load. What was read beside it is of instruments that the spec asks for, at most one log for
    each. In a complete run a log is there of each that the journal does not excuse, and of no
    other; so nobody leaves out what displeases. No readings come a second time.

    Raises:
        InputError: another sensor, scope, period or board than named, a board too few or too many,
            a log too few or too many, or one that no instrument can have left; see `check_log`.
    """
    log, setup = evidence.power, run.spec.setup
    boards = [board.uuid for board in log.boards] if log else []
    expect_equal("conditions.board_uuids", list(run.conditions.board_uuids), boards)
    if log is not None:
        expect_equal("setup.power.sensor", setup.power.sensor, log.sensor)
        expect_equal("setup.power.scope", setup.power.scope, log.scope)
        check_log("power", log)
        if log.scope in GPU_SCOPES:
            what = "is not one of each board of setup.accelerator.count"
            expect_equal("conditions.board_uuids", len(boards), setup.accelerator.count, what)
            _check_boards(setup.accelerator, log)
            _check_roles(run.spec, boards)
    for number, beside in enumerate(evidence.beside, start=1):
        check_log(f"power-beside-{number}", beside)
    # The session reads once a second, and never more often: see `spec.PowerSource`.
    period_ns = round(1e9 / (setup.power.rate_hz or 1))
    for field, each in enumerate([log, *evidence.beside]):
        if each is not None:
            place = f"evidence.power-beside-{field}" if field else "evidence.power"
            what = "is not that of setup.power.rate_hz"
            expect_equal(f"{place}.period_ns", each.period_ns, period_ns, what)
            if not run.simulated:  # a formula may well give the same watts twice
                check_replayed(place, each)
    _check_none_is_left_out(run, evidence)


def _check_roles(spec: Spec, uuids: Sequence[str]) -> None:
    roles = spec.board_roles
    if roles is None:
        return
    without = [uuid for uuid in uuids if roles.of(uuid) is None]
    what = "are not of the boards that were read, each with one"
    expect_equal("spec.board_roles", [*without, *roles.unused(uuids)], [], what)


def _check_boards(declared: Accelerator, log: PowerLog) -> None:
    for number, board in enumerate(log.boards):
        field = f"evidence.power.boards.{number}"
        if not accelerators.is_model(declared.model, board.name):
            what = "is not the model of setup.accelerator"
            expect_equal(f"{field}.name", board.name, declared.model, what)
        limit_w = declared.power_limit_w
        if board.limit_mw is None or isinstance(limit_w, str):
            continue
        if abs(board.limit_mw / 1000 - limit_w) > LIMIT_WITHIN_W:
            what = "is not the limit of setup.accelerator"
            expect_equal(f"{field}.limit_mw", board.limit_mw, round(limit_w * 1000), what)


def _check_none_is_left_out(run: Run, evidence: Evidence) -> None:
    opening, sensor = evidence.journal[0].data, run.spec.setup.power.sensor
    told = opening.get("instruments") or ()
    readable: Counter[str] = Counter(
        item["sensor"] for item in told if item["sensor"] != sensor and not item.get("reason")
    )
    found: Counter[str] = Counter(log.sensor for log in evidence.beside)
    if sensor != "none":
        readable[sensor] = int(not opening.get("power_reason"))
        found[sensor] = int(evidence.power is not None)
    complete = run.status == "complete"
    if found - readable or (complete and readable - found):
        raise InputError(
            Problem(
                "is not of the instruments that the journal says could be read",
                field="evidence",
                found=_named(found),
                expected=_named(readable),
            )
        )


def _named(sensors: Counter[str]) -> str:
    return ", ".join(sorted(sensors.elements())) or "none"


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
        if not last_ns[sample.board] <= sample.at_ns < _MOST:
            raise _fault(f"{field}.{position}", "goes back in time, or beyond all clocks")
        last_ns[sample.board] = sample.at_ns
    if not possible(log.samples, log.scope):
        for position, sample in enumerate(log.samples):
            for name in impossible(sample, log.scope):
                value = getattr(sample, name)
                raise _fault(f"{field}.{position}.{name}", f"is beyond any reading: {value}")
    _check_spans(field, log)


def check_replayed(field: str, log: PowerLog) -> None:
    """Check that no board's readings are those of an earlier time once more.

    Raises:
        InputError: naming the board, and both times.
    """
    for board in range(len(log.boards)):
        readings = log.of_board(board)
        values = array("q", (s.power_mw for s in readings if s.power_mw is not None))
        width, raw = values.itemsize * REPLAYED, values.tobytes()
        seen: dict[bytes, int] = {}
        for at in range(len(values) - REPLAYED + 1):
            start = values.itemsize * at
            first = seen.setdefault(raw[start : start + width], at)
            if first != at and len(set(values[at : at + REPLAYED])) >= _VARIED:
                what = f"repeats {REPLAYED} readings: those from {first} on come again from {at} on"
                raise _fault(f"{field}, board {board}", what)


def _check_spans(field: str, log: PowerLog) -> None:
    end_ns: dict[int, int] = {}
    for number, span in sorted(enumerate(log.spans), key=lambda each: each[1].start_ns):
        place, read = f"{field}.spans.{number}", log.of_board(span.board)
        if not read or not read[0].at_ns <= span.start_ns < span.end_ns <= read[-1].at_ns:
            raise _fault(place, "does not lie between the readings of its board")
        if span.start_ns < end_ns.get(span.board, 0):
            raise _fault(place, "overlaps another of its board")
        if span.ppm > MOST_DRAM_PPM:
            raise _fault(place, f"is beyond any reading: {span.ppm}")
        end_ns[span.board] = span.end_ns


def check_idle(journal: Sequence[Entry], trials: Sequence[Trial]) -> None:
    """Check that no idle span overlaps a trial, or another span, and is long enough to be read.

    Raises:
        InputError: naming the line of the journal.
    """
    for before, after in pairwise(_moments(journal, trials)):
        if after[1] < before[2]:
            raise _fault(
                f"journal line {after[0].seq} ({after[0].event})",
                f"begins before what line {before[0].seq} ({before[0].event}) tells of had ended",
            )
    for line, start_ns, end_ns in _moments(journal, trials):
        if line.event == "idle" and end_ns - start_ns < MIN_IDLE_S * 10**9:
            raise _fault(
                f"journal line {line.seq} (idle)", f"is shorter than {MIN_IDLE_S} s of readings"
            )


def check_engine(journal: Sequence[Entry], trials: Sequence[Trial], log: EngineLog | None) -> None:
    """Check that an engine's counters run forward from launch to launch, and so does time.

    Raises:
        InputError: naming the sample and the counter.
    """
    if log is None:
        return
    launches = sorted(_launches(journal, trials))
    starts = [start for start, _ in launches]
    for position, (before, after) in enumerate(pairwise(log.samples), start=1):
        field = f"engine.{position}"
        if not before.at_ns <= after.at_ns < _MOST:
            raise _fault(field, "goes back in time, or beyond all clocks")
        launched = bisect_right(starts, before.at_ns)
        one = launched > 0 and after.at_ns <= launches[launched - 1][1]
        for name in COUNTERS:
            was, now = getattr(before, name), getattr(after, name)
            if one and was is not None and now is not None and now < was:
                raise _fault(f"{field}.{name}", f"runs backwards in one launch: {now} after {was}")
    for position, sample in enumerate(log.samples):
        for name in ("at_ns", *COUNTERS, "running", "waiting", "kv_ppm"):
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
