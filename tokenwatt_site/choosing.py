"""Choose the windows of chat-mix-v1: `python -m tokenwatt_site.choosing`.

A panel of modelled engines, of several families, is scaled to each band of rates: their boundaries
in the long run lie in its lower, middle and upper third. A window is any piece of draw WINDOW_DRAW
whose lead-in fills an engine and whose scored rows last long enough at the highest rate of the
band. It is chosen where every engine of the panel has its boundary within TOLERANCE of the long
run; of those found first, the WINDOWS of the smallest mean square are published, best first.

The result is chosen/<workload>.json, with panel, scores and digests; the same on every platform.
A band that is done is kept in build/choosing, and not done again by the same definition.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from tokenwatt_site.canonical import digest
from tokenwatt_site.engine_model.boundary import Edges, find_edges
from tokenwatt_site.engine_model.load import Load, holds
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.engine_model.steps import Ints
from tokenwatt_site.schema import Model, Sha256
from tokenwatt_site.spec import MIN_SCORED, MIN_WINDOW_S, Objective
from tokenwatt_site.windows import WINDOW_DRAW, Band, long_run, window
from tokenwatt_site.workload import NAMED, Workload

WORKLOAD = NAMED["chat-mix-v1"]
SLO = (
    Objective(metric="ttft", quantile=0.99, limit_ms=2000),
    Objective(metric="tpot", quantile=0.99, limit_ms=50),
)
BANDS = tuple((250_000 << n, 500_000 << n) for n in range(9))
TOLERANCE = Fraction(15, 1000)
WINDOWS = 12
POOL = 18
"""Of how many windows that agree, none of which overlap, those are the best."""

MOST_ROWS = 40_000_000
STRIDES = 8
"""Candidates that begin within the rows of one window."""

_SHAPED_URPS = 5_656_854
"""The rate, in the middle of [4, 8) requests/s, at which the prices of a shape are about right."""

_MIDDLE_URPS = 4_000_000
_SETTLED = 1.01
_BEGINNING = 20_000
"""Rows of the long run on which engines are scaled."""

_HOME = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Shape:
    """An engine of the panel before it is scaled to a band: its prices in us, but context in ns.

    Its boundary is to lie at `place` of the band, 0 to 1 on log rate. At higher rates it has more
    replicas where it is `spread`, else a larger budget, batch and cache.
    """

    name: str
    place: Fraction
    base: int
    sequence: int
    prompt: int
    context: int = 0
    prefill: Literal["chunked", "first"] = "chunked"
    budget: int = 8192
    batch: int = 1024
    kv_tokens: int | None = None
    replicas: int = 1
    spread: bool = False

    def engine(self, band: Band, pace: float) -> EngineModel:
        """Return it for a band: all but its base price times `pace`, and less at higher rates."""
        size = max(1, band.low_urps // 4_000_000)
        grown = 1 if self.spread else size
        share = Fraction(math.isqrt(band.low_urps * band.high_urps), _SHAPED_URPS)
        own = share / (size if self.spread else 1) / self.replicas
        kv_tokens = self.kv_tokens and max(2 * 7680, int(self.kv_tokens * own))
        return EngineModel(
            Family(
                prefill=self.prefill,
                token_budget=self.budget * grown,
                max_batch=max(4, int(self.batch * min(own, Fraction(grown)))),
                kv_tokens=kv_tokens,
                replicas=self.replicas * (size if self.spread else 1),
            ),
            Prices(
                base_ps=self.base * 10**6,
                sequence_ps=round(self.sequence * 10**6 * pace / own),
                prompt_token_ps=round(self.prompt * 10**6 * pace / own),
                context_token_ps=round(self.context * 10**3 * pace / own),
            ),
        )


_LOWER, _MIDDLE, _UPPER = Fraction(1, 6), Fraction(1, 2), Fraction(5, 6)
PANEL = (
    Shape("chunked", _MIDDLE, 8000, 280, 12),
    Shape("small chunks", _UPPER, 8000, 280, 12, budget=1024),
    Shape("context", _LOWER, 8000, 120, 12, context=120, spread=True),
    Shape("prefill first", _MIDDLE, 8000, 200, 15, prefill="first", spread=True),
    Shape("batch cap", _UPPER, 10000, 200, 12, batch=64),
    Shape("cache limit", _LOWER, 8000, 240, 12, kv_tokens=150_000),
    Shape("two replicas", _MIDDLE, 8000, 250, 12, context=20, budget=2048, replicas=2),
    Shape("high base", _UPPER, 25000, 80, 5, context=20, budget=2048, spread=True),
)


class PanelEngine(Model):
    """An engine of the panel and where its boundary is in the long run."""

    name: str
    family: Family
    prices: Prices
    boundary_urps: int

    @property
    def model(self) -> EngineModel:
        return EngineModel(self.family, self.prices)


class ChosenWindow(Model):
    """A window. `off_ppm`: its boundary / that of the long run - 1, in 1e-6, for each engine.

    `hash` is that of the realisation that it is, of the repeat that its place in the list gives.
    """

    first_row: int
    hash: Sha256
    off_ppm: tuple[int, ...]


class ChosenBand(Model):
    """The windows of a band; `agreed` of `looked_at` had all boundaries within the tolerance."""

    low_urps: int
    high_urps: int
    lead_in: int
    scored: int
    tail: int
    looked_at: int
    agreed: int
    panel: tuple[PanelEngine, ...]
    windows: tuple[ChosenWindow, ...]


class Choice(Model):
    """The whole file."""

    choice_schema: Literal[1]
    workload: str
    workload_hash: Sha256
    slo: tuple[Objective, ...]
    long_run_hash: Sha256
    bands: tuple[ChosenBand, ...]


@dataclass(frozen=True, slots=True)
class Needs:
    """How long the parts of a window last at least, in ns."""

    lead_in_ns: int
    scored_ns: int
    tail_ns: int

    @classmethod
    def of(cls, workload: Workload) -> Needs:
        ttft, tpot = SLO[0].limit_ns, SLO[1].limit_ns
        longest_ns = workload.output_tokens.longest * tpot
        return cls(2 * longest_ns, MIN_WINDOW_S * 10**9, ttft + longest_ns)

    def band(self, low_urps: int, high_urps: int) -> Band:
        """Return a band with enough rows that most windows last so long at its highest rate."""
        highest_urps = Band(low_urps, high_urps, 0, 0, 0).highest_urps
        lead_in, scored, tail = (
            _rounded(part_ns * highest_urps // 10**15)
            for part_ns in (self.lead_in_ns, self.scored_ns, self.tail_ns)
        )
        return Band(low_urps, high_urps, lead_in, max(scored, MIN_SCORED), tail)

    def met_by(self, load: Load, band: Band) -> bool:
        due = load.due_ns(band.highest_urps)
        start, end = int(due[load.scored.start]), int(due[load.scored.stop - 1])
        return (
            start >= self.lead_in_ns
            and end - start >= self.scored_ns
            and int(due[-1]) - end >= self.tail_ns
        )


def _rounded(expected: int) -> int:
    """Return so many rows that, with random gaps, one standard deviation is to spare."""
    return math.ceil((expected + math.isqrt(expected)) / 10) * 10


class Columns:
    """The rows of a draw as columns, drawn as far as they are asked for, and kept in a folder."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        self._workload = workload
        self._folder = folder
        self._parts: list[Ints] = []

    _PART = 1_000_000

    def part(self, first_row: int, count: int) -> Ints:
        """Return gap, input and output of rows; shape (count, 3)."""
        first, last = first_row // self._PART, (first_row + count - 1) // self._PART
        while len(self._parts) <= last:
            self._parts.append(self._drawn(len(self._parts)))
        joined = self._parts[first : last + 1]
        rows = joined[0] if len(joined) == 1 else np.concatenate(joined)
        return rows[first_row - first * self._PART :][:count]

    def _drawn(self, number: int) -> Ints:
        path = self._folder / f"{self._workload.hash[:12]}-{WINDOW_DRAW}-{number}.npy"
        if not path.exists():
            part = range(number * self._PART, (number + 1) * self._PART)
            drawn = self._workload.rows(WINDOW_DRAW, part)
            np.save(path, np.array([row[:3] for row in drawn], np.int64))
        return np.asarray(np.load(path), np.int64)


def load_of(rows: Ints, band: Band) -> Load:
    return Load(
        elapsed=np.cumsum(rows[:, 0]),
        n_in=np.ascontiguousarray(rows[:, 1]),
        n_out=np.ascontiguousarray(rows[:, 2]),
        scored=slice(band.lead_in, band.lead_in + band.scored),
    )


def edges_of(model: EngineModel, load: Load, near_urps: int) -> Edges:
    """Return the boundary nearest to a rate of an engine of the panel, which has one."""
    edges = find_edges(model, load, SLO, near_urps)
    if edges is None:
        raise ValueError("an engine of the panel has no boundary")
    return edges


def scaled(shape: Shape, band: Band, run: Load) -> PanelEngine:
    """Return an engine whose boundary is near its place in the band, and in the long run where.

    It is scaled on the beginning of the long run, which is near enough.
    """
    low, high = band.low_urps, band.high_urps
    target = low * (high / low) ** float(shape.place)
    pace, near = 1.0, round(target)
    for _ in range(30):
        model = shape.engine(band, pace)
        near = edges_of(model, beginning_of(run), near).boundary_urps
        if 1 / _SETTLED <= near / target <= _SETTLED:
            break
        pace *= near / target
    return PanelEngine(
        name=shape.name,
        family=model.family,
        prices=model.prices,
        boundary_urps=edges_of(model, run, near).boundary_urps,
    )


def beginning_of(run: Load) -> Load:
    start, rows = run.scored.start, run.scored.start + _BEGINNING
    scored = slice(start, rows - start)
    return Load(run.elapsed[:rows], run.n_in[:rows], run.n_out[:rows], scored)


def off_ppm(engine: PanelEngine, load: Load) -> int:
    """Return how far the boundary of an engine on a window is from that of the long run."""
    found = edges_of(engine.model, load, engine.boundary_urps).boundary_urps
    return round(Fraction(found - engine.boundary_urps, engine.boundary_urps) * 10**6)


def agrees(engine: PanelEngine, load: Load) -> bool:
    """Tell whether an engine fails above the tolerance and passes below it: two plays, or one."""
    above, below = (round(engine.boundary_urps * (1 + s * TOLERANCE)) for s in (1, -1))
    return not holds(engine.model, load, above, SLO) and holds(engine.model, load, below, SLO)


@dataclass(frozen=True)
class Chooser:
    """Makes the choice of one workload."""

    workload: Workload
    folder: Path

    @cached_property
    def columns(self) -> Columns:
        return Columns(self.workload, self.folder)

    @cached_property
    def long_load(self) -> Load:
        return Load.of(long_run(self.workload))

    @cached_property
    def long_hash(self) -> str:
        return long_run(self.workload).hash

    @cached_property
    def needs(self) -> Needs:
        return Needs.of(self.workload)

    def choose(self, low_urps: int, high_urps: int) -> ChosenBand:
        """Choose the windows of one band."""
        band = self.needs.band(low_urps, high_urps)
        panel = tuple(scaled(shape, band, self.long_load) for shape in PANEL)
        looked_at = agreed = 0
        pool: list[_Scored] = []
        for first_row in range(0, MOST_ROWS - band.rows, max(1, band.rows // STRIDES)):
            looked_at += 1
            scores = self._scores(first_row, band, panel)
            if scores is None:
                continue
            agreed += 1
            pool = _apart([*pool, (_square(scores), first_row, scores)], band.rows)
            if len(pool) == POOL:
                break
        return ChosenBand(
            low_urps=low_urps,
            high_urps=high_urps,
            lead_in=band.lead_in,
            scored=band.scored,
            tail=band.tail,
            looked_at=looked_at,
            agreed=agreed,
            panel=panel,
            windows=tuple(
                ChosenWindow(
                    first_row=first_row,
                    hash=window(self.workload, repeat, band, first_row).hash,
                    off_ppm=scores,
                )
                for repeat, (_, first_row, scores) in enumerate(pool[:WINDOWS], 1)
            ),
        )

    def _scores(
        self, first_row: int, band: Band, panel: Sequence[PanelEngine]
    ) -> tuple[int, ...] | None:
        load = load_of(self.columns.part(first_row, band.rows), band)
        if not self.needs.met_by(load, band) or not all(agrees(e, load) for e in panel):
            return None
        scores = tuple(off_ppm(engine, load) for engine in panel)
        return scores if max(map(abs, scores)) <= TOLERANCE * 10**6 else None

    def choice(self, bands: Sequence[ChosenBand]) -> Choice:
        return Choice(
            choice_schema=1,
            workload=self.workload.name,
            workload_hash=self.workload.hash,
            slo=SLO,
            long_run_hash=self.long_hash,
            bands=tuple(bands),
        )


_Scored = tuple[int, int, tuple[int, ...]]


def _square(scores: Sequence[int]) -> int:
    return sum(score * score for score in scores)


def _apart(pool: Sequence[_Scored], rows: int) -> list[_Scored]:
    """Return the best of a pool, best first, of which no two have a row in common."""
    kept: list[_Scored] = []
    for scored in sorted(pool):
        if all(abs(scored[1] - other[1]) >= rows for other in kept):
            kept.append(scored)
    return kept


def text_of(document: Model) -> str:
    """Write a choice as JSON, a list of numbers on one line."""
    text = json.dumps(document.to_json(), indent=1)
    return re.sub(r"\[\s+([-\d,\s]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n"


def _middle_first(bands: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return bands from 4 requests/s on, then those below: what most engines need comes first."""
    return [band for band in bands if band[0] >= _MIDDLE_URPS] + [
        band for band in reversed(bands) if band[0] < _MIDDLE_URPS
    ]


def main() -> int:
    """Choose the windows of band after band, and write those that are done into the package."""
    kept = _HOME.parent / "build" / "choosing"
    kept.mkdir(parents=True, exist_ok=True)
    chooser = Chooser(WORKLOAD, kept)
    bands: dict[int, ChosenBand] = {}
    for low, high in _middle_first(BANDS):
        definition = digest(
            [WORKLOAD.hash, repr((low, high, SLO, PANEL, POOL, MOST_ROWS, STRIDES))]
        )
        path = kept / f"{WORKLOAD.name}-{low}-{definition[:12]}.json"
        if not path.exists():
            path.write_text(text_of(chooser.choose(low, high)))
        band = bands[low] = ChosenBand.model_validate_json(path.read_text())
        sys.stderr.write(
            f"{low / 1e6:g} to {high / 1e6:g} requests/s: {len(band.windows)} windows,"
            f" {band.agreed:,} of {band.looked_at:,} agree\n"
        )
        target = _HOME / "chosen" / f"{WORKLOAD.name}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text_of(chooser.choice([bands[done] for done in sorted(bands)])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
