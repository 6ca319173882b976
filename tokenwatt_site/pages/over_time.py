"""Figures of what the instruments read over time: watts, and memory traffic where boards tell it.

Each instrument is drawn by itself, in its own words: watts of two boundaries are never added.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.energy.window import MAX_GAP_PERIODS
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import instruments, outcomes, text
from tokenwatt_site.pages.drawing import MOST_HALVES
from tokenwatt_site.pages.figure import Figure, Table
from tokenwatt_site.pages.time_chart import MOST_PANELS, Frame, Line, over_time
from tokenwatt_site.pages.windows import Span, Spans, spans
from tokenwatt_site.run import MetricClaim

MOST_POINTS = 240
"""Of one line: what is nearer than three pixels nobody tells apart."""

PANEL_POINTS = 100
SMALL_PANEL_POINTS = 60
"""Of one line in a panel beside others, which is half as wide or less."""

MOST_ROWS = 40
MOST_CELLS = 200
"""Of readings in the table of one instrument: of many boards there are fewer rows."""

_LONG_S = 600

Reading = Callable[[PowerSample], int | None]


@dataclass(frozen=True, slots=True)
class Round:
    """The mean readings of every board about one time; None where a board told nothing then."""

    seconds: float
    values: tuple[float | None, ...]

    @property
    def total(self) -> float | None:
        """Of all boards; None where one is missing: a part of the boards is not all of them."""
        known = [value for value in self.values if value is not None]
        return math.fsum(known) if known and len(known) == len(self.values) else None


def figures(configuration: Configuration) -> Iterator[Figure]:
    """Yield the boards' power, their memory traffic where it was read, then other instruments."""
    evidence, claims = configuration.headline.evidence, configuration.claims
    marked = spans(configuration) if evidence.power or evidence.beside else Spans((), ())
    board_power = claims.metric("board_power")
    log = evidence.power
    if log is None or not log.samples:
        yield _missing("chart-power", "Board power over time", outcomes.why(claims, board_power))
    else:
        note = outcomes.noted(claims, "tokens_per_joule", "board_power", "joules_per_token")
        by_counter = any(sample.energy_mj is not None for sample in log.samples)
        if board_power.value is not None and by_counter:
            note = f"{_BY_COUNTER} {note}".strip()
        yield _power("chart-power", log, marked, board_power, note)
    for own in (log, *evidence.beside):
        if own is not None and any(sample.dram_ppm is not None for sample in own.samples):
            yield _traffic(own, marked, outcomes.find(claims, "mbu_measured_bus"))
            break
    for number, beside in enumerate(evidence.beside, start=1):
        claim = outcomes.find(claims, _BESIDE.get(beside.scope, "board_power"))
        alike = sum(other.scope == beside.scope for other in evidence.beside)
        if beside.scope not in _BESIDE or alike > 1:
            claim = claim.model_copy(update={"value": None})  # of another, or of several together
        apart = "Read beside the instrument that the energy is from, and never added to it."
        if beside.samples:
            yield _power(f"chart-power-beside-{number}", beside, marked, claim, apart)
    told = {beside.scope for beside in evidence.beside if beside.samples}
    for scope, key in _BESIDE.items():
        asked = [claim for claim in claims.metrics if claim.key == key]
        if asked and scope not in told:
            heading = f"{METRICS[key].label} over time"
            yield _missing(f"chart-{key.replace('_', '-')}", heading, text.reason(asked[0]))


_BY_COUNTER = (
    "The number of a window is what the energy counters gained in it, where they can be used; these"
    " readings are held against it."
)
_BESIDE = {"cpu": "cpu_power", "host": "host_power"}
"""Scope of an instrument beside -> the number that comes from it."""


def _missing(figure_id: str, heading: str, why: str) -> Figure:
    return Figure(figure_id, heading, "", None, why, "", None, whole=True)


def _power(figure_id: str, log: PowerLog, marked: Spans, claim: MetricClaim, note: str) -> Figure:
    name = instruments.instrument(log.sensor, log.scope)
    heading = f"{name} over time"
    counted, log = not any(_watts(s) is not None for s in log.samples), with_watts(log)
    if claim.value is not None:
        watts = text.amount(claim.value, METRICS[claim.key])
        heading = f"{instruments.DREW[log.scope]} {watts} W in the window"
    limits = [None if b.limit_mw is None else b.limit_mw / 1e3 for b in log.boards]
    lines = _lines(log, _watts, limits)
    if not any(line.points for line in lines):
        return _missing(figure_id, heading, f"{text.NOT_MEASURED}: no reading has watts")
    told = (instruments.BOUNDARY[log.scope], _how(log, marked, _watts, counted=counted))
    frame = _frame(log, name, "Watts", marked)
    return Figure(
        id=figure_id,
        heading=heading,
        lead=_lead(log, lines, frame),
        chart=over_time(figure_id, lines, frame),
        missing=None,
        note=" ".join(part for part in (*told, note) if part),
        table=_table(log, _watts, 1, "All together, W", "W"),
        whole=True,
    )


def _traffic(log: PowerLog, marked: Spans, claim: MetricClaim) -> Figure:
    heading = "Measured memory traffic over time"
    if claim.value is not None:
        share = text.amount(claim.value, METRICS[claim.key])
        heading = f"Reads and writes take {share}% of bus × clock in the window"
    lines = _lines(log, _dram, [None] * len(log.boards))
    top = max(100.0, *(1.05 * y for line in lines for _, y, _ in line.points))
    note = (
        "All processes on the boards, by the boards' own counters, of what the bus carries at its"
        " highest clock. The number of a window is one pair of readings at its edges; these are"
        " the pairs of neighbouring readings."
    )
    frame = _frame(log, "Memory traffic", "% of bus × clock", marked, top)
    return Figure(
        id="chart-dram",
        heading=heading,
        lead=_lead(log, lines, frame),
        chart=over_time("chart-dram", lines, frame),
        missing=None,
        note=f"{note} {_how(log, marked, _dram)}",
        table=_table(log, _dram, 1, None, "%"),
        whole=True,
    )


def _watts(sample: PowerSample) -> int | None:
    return sample.power_mw if sample.power_mw is not None else sample.instant_mw


def with_watts(log: PowerLog) -> PowerLog:
    """Give an instrument that has a counter alone the mean watts since its reading before.

    One that tells any watts is left as it is.
    """
    if any(_watts(sample) is not None for sample in log.samples):
        return log
    before: dict[int, PowerSample] = {}
    samples = []
    for sample in log.samples:
        last = before.get(sample.board)
        mw = None
        if last is not None and sample.energy_mj is not None and last.energy_mj is not None:
            gained, passed_ns = sample.energy_mj - last.energy_mj, sample.at_ns - last.at_ns
            mw = round(gained * 1e9 / passed_ns) if gained >= 0 and passed_ns > 0 else None
        if sample.energy_mj is not None:
            before[sample.board] = sample
        samples.append(replace(sample, power_mw=mw))
    return replace(log, samples=tuple(samples))


def _dram(sample: PowerSample) -> int | None:
    return sample.dram_ppm


_SCALE: dict[Reading, float] = {_watts: 1e3, _dram: 1e4}
"""Readings in mW -> W, in 1e-6 -> per cent."""


def rounds(log: PowerLog, of: Reading, most: int) -> tuple[Round, ...]:
    """Gather readings by time, at most about `most` rounds; a round without a reading is none.

    A round is a whole number of periods long, and its middle is on a deadline of the sampler, so
    that a reading that is late by less than half a period stays in its own.
    """
    origin, last = log.samples[0].at_ns, log.samples[-1].at_ns
    period = max(1, log.period_ns)
    width = period * max(1, math.ceil((last - origin) / period / most))
    found: dict[int, list[list[int]]] = {}
    for sample in log.samples:
        value = of(sample)
        if value is not None:
            place = (sample.at_ns - origin + period // 2) // width
            if place not in found:  # setdefault would make a list of each board every time
                found[place] = [[] for _ in log.boards]
            found[place][sample.board].append(value)
    unit, middle = _SCALE[of], (width - period) / 2
    return tuple(
        Round(
            (place * width + middle) / 1e9,
            tuple(sum(own) / len(own) / unit if own else None for own in at),
        )
        for place, at in sorted(found.items())
    )


def _lines(log: PowerLog, of: Reading, limits: Sequence[float | None]) -> list[Line]:
    drawn = rounds(log, of, _most(log))
    if len(log.boards) > MOST_PANELS:
        # A band over some of the boards would look like one over all.
        drawn = tuple(found for found in drawn if found.total is not None)
    unit = _unit(log)[1]
    steps = [b.seconds - a.seconds for a, b in pairwise(drawn)]
    apart = max(MAX_GAP_PERIODS * log.period_ns / 1e9, 1.5 * min(steps, default=0.0))
    lines = []
    for board, limit in enumerate(limits):
        points: list[tuple[float, float, int]] = []
        part, before = 0, 0.0
        for found in drawn:
            value = found.values[board]
            if value is None:
                continue
            part += bool(points) and found.seconds - before > apart
            before = found.seconds
            points.append((found.seconds / unit, value, part))
        lines.append(Line(_name(board, log.boards[board]), points, limit))
    return lines


def _most(log: PowerLog) -> int:
    if not 1 < len(log.boards) <= MOST_PANELS:
        return MOST_POINTS
    return PANEL_POINTS if len(log.boards) <= MOST_HALVES else SMALL_PANEL_POINTS


def _name(number: int, board: Board) -> str:
    return f"{number} · {board.uuid if len(board.uuid) <= 14 else f'{board.uuid[:12]}…'}"


def _unit(log: PowerLog) -> tuple[str, float]:
    long = log.samples[-1].at_ns - log.samples[0].at_ns > _LONG_S * 10**9
    return ("Minutes", 60.0) if long else ("Seconds", 1.0)


def _frame(log: PowerLog, title: str, y: str, marked: Spans, top: float | None = None) -> Frame:
    words, unit = _unit(log)
    origin = log.samples[0].at_ns

    def placed(found: Sequence[Span]) -> tuple[tuple[float, float], ...]:
        return tuple(((a - origin) / 1e9 / unit, (b - origin) / 1e9 / unit) for a, b in found)

    return Frame(f"{title} over time", words, y, placed(marked.windows), placed(marked.idle), top)


def _lead(log: PowerLog, lines: Sequence[Line], frame: Frame) -> str:
    n, one = len(lines), instruments.ONE[log.scope]
    if n > MOST_PANELS:
        words = f"The band spans the {n} {one}s from least to most, the line is their mean."
    else:
        axes = f"{frame.y.lower()} against {frame.x.lower()}"
        words = f"Each {one} by itself, on one scale: {axes}." if n > 1 else ""
    words += " The shaded spans are the scored windows at the highest passing rates"
    if frame.idle:
        words += "; grey bars along the bottom are idle spans: engine loaded, no request"
    if any(line.limit is not None for line in lines):
        words += f"; the dashed line is the enforced limit of a {one}"
    return f"{words.strip()}."


def _how(log: PowerLog, marked: Spans, of: Reading, *, counted: bool = False) -> str:
    """Say period, averaging and the longest gap of an instrument."""
    period = log.period_ns / 1e9
    words = f"Read through {instruments.THROUGH[log.sensor]} every {period:g} s"
    if counted:
        words += ", each point what the energy counter gained since the one before"
    elif of is _watts and log.averaging_ns is not None:
        words += f", each reading the instrument's own mean over {log.averaging_ns / 1e9:g} s"
    elif of is _watts:
        words += ", each reading averaged over a time that the instrument does not tell"
    if (gap_ns := longest_gap_ns(log, of, marked.windows)) is not None:
        where = "in the windows" if marked.windows else "in all"
        one = instruments.ONE[log.scope]
        words += f"; longest gap between two readings of a {one} {where}: {gap_ns / 1e9:.2f} s"
    width = math.ceil((log.samples[-1].at_ns - log.samples[0].at_ns) / 1e9 / period / _most(log))
    return f"{words}." + (f" A point is the mean of {width * period:g} s." if width > 1 else "")


def longest_gap_ns(log: PowerLog, of: Reading, windows: Sequence[Span]) -> int | None:
    """Return the longest time between two readings of one board, any part of it in a window.

    Without windows that is of the whole log; None where no board has two readings.
    """
    gaps = []
    for board in range(len(log.boards)):
        known = [sample.at_ns for sample in log.of_board(board) if of(sample) is not None]
        if not windows:
            gaps += [b - a for a, b in pairwise(known)]
        for start, end in windows:
            first = max(0, bisect_right(known, start) - 1)
            around = known[first : bisect_left(known, end) + 1]
            gaps += [b - a for a, b in pairwise(around)]
    return max(gaps, default=None)


def _table(log: PowerLog, of: Reading, decimals: int, total: str | None, unit: str) -> Table:
    """The readings by board, or of many boards least, mean and most; then all boards together."""
    many = len(log.boards) > MOST_PANELS
    names = [f"{_name(i, board)}, {unit}" for i, board in enumerate(log.boards)]
    if many:
        names = [f"{word} of {len(log.boards)}, {unit}" for word in ("Least", "Mean", "Most")]
    rows = []
    for found in rounds(log, of, min(MOST_ROWS, MOST_CELLS // len(names))):
        values = list(found.values)
        if many:
            known = [value for value in values if value is not None]
            whole = found.total is not None
            values = (
                [min(known), math.fsum(known) / len(known), max(known)] if whole else [None] * 3
            )
        shown = [*values, found.total] if total and len(log.boards) > 1 else values
        cells = ("not read" if v is None else text.number(v, decimals) for v in shown)
        rows.append((text.number(found.seconds, 1), *cells))
    last = (total,) if total and len(log.boards) > 1 else ()
    return ("Second", *names, *last), tuple(rows)
