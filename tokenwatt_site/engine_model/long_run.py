"""What a short window's boundary is in the long run, by a model that was fitted to its trials.

Corrected = measured boundary x the model's in the long run / the model's on the same realisation,
for each repeat. How far the model can be trusted is told by repeats that it was not fitted to:
error of a repeat = ln(measured boundary / boundary of the model that was fitted to the others).
A right model has small errors on all; the rule is on their root mean square.

Everything here replays what was fitted: each boundary is told as a rate that passes and one just
above it that fails, and is checked, not found. All rates are integers in 1e-6 requests/s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenwatt_site.engine_model.boundary import Edges, edges_of, shows
from tokenwatt_site.engine_model.document import Fit, ModelFit
from tokenwatt_site.engine_model.load import Load, Played, counts, play
from tokenwatt_site.engine_model.model import EngineModel
from tokenwatt_site.engine_model.sliding import counted
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.goodput import rank
from tokenwatt_site.spec import Objective
from tokenwatt_site.windows import Windows
from tokenwatt_site.windows import long_run as drawn_long_run

MIN_REPEATS = 3
MAX_RMS = 0.03
"""Of the repeats' errors. In simulations right families stay below it, and wrong ones above."""

MINUTE_NS = 60 * 10**9
WINDOW_NS = 10 * MINUTE_NS
HOUR_NS = 60 * MINUTE_NS
MOST_WINDOWS = 1_000_000

CURVE_PERMILLE = (600, 700, 800, 900, 950, 980, 1000, 1020, 1050, 1100)
"""Where the misses are told, in 1/1000 of the long-run boundary."""

_MOST_LOADS = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """One repeat as it was measured: what it offered last, and the boundary that it has there."""

    repeat: int
    load: Load
    boundary_urps: int


@dataclass(frozen=True, slots=True)
class Corrected:
    """One repeat's boundary: measured, the models' on the same rows, and in the long run.

    `left_out_urps` is of the model that was fitted to the other repeats; None: there is no other.
    """

    repeat: int
    measured_urps: int
    model_urps: int
    left_out_urps: int | None
    corrected_urps: int

    @property
    def error(self) -> float | None:
        """ln(measured / left out)."""
        if self.left_out_urps is None:
            return None
        return math.log(self.measured_urps / self.left_out_urps)


@dataclass(frozen=True, slots=True)
class LongRun:
    """The long run of what was measured. `edges` and `windows_95` are the model's own rates."""

    model: EngineModel
    repeats: tuple[Corrected, ...]
    edges: Edges
    windows_95: Edges | None

    @property
    def corrected_urps(self) -> int:
        """The geometric mean over the repeats, rounded down; exact, so the same everywhere."""
        return _root(math.prod(r.corrected_urps for r in self.repeats), len(self.repeats))

    @property
    def rms(self) -> float | None:
        """Root mean square of the repeats' errors; None where a repeat has none."""
        errors = [r.error for r in self.repeats]
        known = [error for error in errors if error is not None]
        if len(known) < len(errors):
            return None
        return math.sqrt(math.fsum(error * error for error in known) / len(known))

    @property
    def refusal(self) -> str | None:
        """Why these repeats do not carry a correction, in words; None: they do."""
        if len(self.repeats) < MIN_REPEATS:
            return (
                f"leaving out repeats needs {MIN_REPEATS} of them with a boundary;"
                f" there are {len(self.repeats)}"
            )
        if self.rms is None or self.rms > MAX_RMS:
            return (
                f"models fitted without a repeat miss its boundary by {100 * (self.rms or 0):.1f}%"
                f" (root mean square); {100 * MAX_RMS:g}% is allowed"
            )
        return None

    def scaled(self, model_urps: int) -> int:
        """Return the rate at which the measured engine is what the model is at its own rate."""
        return model_urps * self.corrected_urps // self.edges.boundary_urps


@dataclass(frozen=True, slots=True)
class Kept:
    """How many spans of a length there are in the long run, and how many of them keep the SLO."""

    kept: int
    spans: int

    @property
    def percent(self) -> float:
        return 100 * self.kept / self.spans

    @property
    def is_95(self) -> bool:
        """Whether 95% of them do."""
        return 100 * self.kept >= 95 * self.spans


@dataclass(frozen=True, slots=True)
class Outlook:
    """What users feel. `misses`: the model's own rate, and the share of each objective's misses."""

    windows: Kept | None
    hours: Kept | None
    misses: tuple[tuple[int, tuple[float, ...]], ...]


def long_load(windows: Windows) -> Load | None:
    """Return the long run of a workload, drawn once in a process; None: a trace has none."""
    if windows.workload.trace is not None:
        return None
    key = windows.workload.hash
    if key not in _loads:
        if len(_loads) >= _MOST_LOADS:
            _loads.clear()
        _loads[key] = Load.of(drawn_long_run(windows.workload))
    return _loads[key]


_loads: dict[str, Load] = {}


def mean_output_tokens(load: Load) -> float:
    """Return the mean output tokens asked of the scored rows."""
    asked = load.n_out[load.scored]
    return int(asked.sum()) / len(asked)


def lacks(fit: ModelFit, repeats: Sequence[int]) -> str | None:
    """Say in words which boundary of these repeats a fit has not; None: it has all.

    There is none where a modelled engine passes at every rate, or at none: then it is no model of
    one that was seen to do both.
    """
    told = {(f.left_out, b.repeat) for f in fit.fits for b in f.boundaries}
    for repeat in (0, *repeats):
        if (0, repeat) not in told:
            where = f"on what repeat {repeat} offered" if repeat else "in the long run"
            return f"the model has no boundary {where}"
    for repeat in repeats if len(repeats) > 1 else ():
        if (repeat, repeat) not in told:
            return f"the model fitted without repeat {repeat} has no boundary on what it offered"
    return None


def long_run(
    fit: ModelFit, slo: Sequence[Objective], measured: Sequence[Measured], long_load: Load
) -> LongRun:
    """Correct measured boundaries to the long run, by a model that was fitted to all repeats.

    Raises:
        InputError: the fit is not of these repeats, or does not show a boundary that it states; or
            nothing was measured.
    """
    if not measured:
        raise InputError(Problem("corrects nothing: no repeat has a boundary", field=_FIELD))
    repeats = sorted(m.repeat for m in measured)
    left_out = repeats if len(repeats) > 1 else []
    _expect("fits", [f.left_out for f in fit.fits], [0, *left_out])
    full, others = fit.fits[0], {f.left_out: f for f in fit.fits[1:]}
    _expect("fits.0.boundaries", sorted(b.repeat for b in full.boundaries), [0, *repeats])
    model = _model(full)
    edges = _shown(full, 0, long_load, slo)
    corrected = []
    for each in sorted(measured, key=lambda m: m.repeat):
        own = _shown(full, each.repeat, each.load, slo).boundary_urps
        without = None
        if (other := others.get(each.repeat)) is not None:
            field = f"fits of {each.repeat} left out.boundaries"
            _expect(field, [b.repeat for b in other.boundaries], [each.repeat])
            without = _shown(other, each.repeat, each.load, slo).boundary_urps
        corrected.append(
            Corrected(
                repeat=each.repeat,
                measured_urps=each.boundary_urps,
                model_urps=own,
                left_out_urps=without,
                corrected_urps=each.boundary_urps * edges.boundary_urps // own,
            )
        )
    return LongRun(model, tuple(corrected), edges, _windows_95(fit, model, long_load, slo))


def outlook(found: LongRun, slo: Sequence[Objective], long_load: Load) -> Outlook:
    """Tell what the long run is like at its boundary and around it."""
    boundary, misses = found.edges.boundary_urps, []
    windows = hours = None
    for permille in CURVE_PERMILLE:
        rate_urps = max(boundary * permille // 1000, 1)
        played = play(found.model, long_load, rate_urps)
        told = counts(slo, played, long_load.n_out, long_load.scored)
        misses.append((rate_urps, tuple(100 * c.misses / c.n if c.n else 0.0 for c in told)))
        if rate_urps == boundary:
            windows = kept(played, long_load, slo, WINDOW_NS)
            hours = kept(played, long_load, slo, HOUR_NS)
    return Outlook(windows, hours, tuple(misses))


def kept(played: Played, load: Load, slo: Sequence[Objective], span_ns: int) -> Kept | None:
    """Count the spans of a length, one from every minute on, that keep the SLO.

    A span is of the scored requests that came due in it; one in which an objective is on none of
    them counts as kept by it. None: the long run is shorter than a span, or so long that it has
    more of them than anybody would ask about.
    """
    due = played.due_ns[load.scored]
    first, last = int(due[0]), int(due[-1])
    spans = (last - first - span_ns) // MINUTE_NS + 1
    if not 0 < spans <= MOST_WINDOWS:
        return None
    starts = first + MINUTE_NS * np.arange(spans, dtype=np.int64)
    begin, end = (np.searchsorted(due, at) + load.scored.start for at in (starts, starts + span_ns))
    keep = np.ones(spans, np.bool_)
    for objective in slo:
        misses, n = counted(objective, played, load.n_out, begin, end)
        sizes, which = np.unique(n, return_inverse=True)
        allowed = [int(size) - rank(objective.quantile, int(size)) for size in sizes]
        keep &= misses <= np.array(allowed, np.int64)[which]
    return Kept(int(np.count_nonzero(keep)), spans)


def find_windows_95(
    model: EngineModel, load: Load, slo: Sequence[Objective], near_urps: int
) -> Edges | None:
    """Find the rate at which 95% of 10-minute windows keep the SLO, for `ModelFit.windows_95`.

    None: there is no such rate, or the long run is too short to tell.
    """

    def is_95(rate_urps: int) -> bool:
        found = kept(play(model, load, rate_urps), load, slo, WINDOW_NS)
        return found is None or found.is_95

    edges = edges_of(is_95, near_urps)
    return edges if edges and _shows_95(edges, model, load, slo) else None


def _shows_95(edges: Edges, model: EngineModel, load: Load, slo: Sequence[Objective]) -> bool:
    if not edges.adjacent:
        return False
    at = [kept(play(model, load, rate_urps), load, slo, WINDOW_NS) for rate_urps in edges]
    return [found is not None and found.is_95 for found in at] == [True, False] and None not in at


def _windows_95(
    fit: ModelFit, model: EngineModel, load: Load, slo: Sequence[Objective]
) -> Edges | None:
    if fit.windows_95 is None:
        return None
    edges = Edges(*fit.windows_95)
    if not _shows_95(edges, model, load, slo):
        raise _not_shown("windows_95", edges, "95% of 10-minute windows of the long run keep")
    return edges


_FIELD = "evidence.engine-model"


def _model(fit: Fit) -> EngineModel:
    return EngineModel(fit.family, fit.prices)


def _shown(fit: Fit, repeat: int, load: Load, slo: Sequence[Objective]) -> Edges:
    told = next(b for b in fit.boundaries if b.repeat == repeat)
    edges = Edges(told.pass_urps, told.fail_urps)
    if not shows(edges, _model(fit), load, slo):
        where = f"repeat {repeat} keeps" if repeat else "the long run keeps"
        without = f" without repeat {fit.left_out}" if fit.left_out else ""
        raise _not_shown(f"the fit{without}", edges, where)
    return edges


def _not_shown(place: str, edges: Edges, what: str) -> InputError:
    return InputError(
        Problem(
            "states a boundary that the model does not show when it is replayed",
            field=f"{_FIELD}: {place}",
            found=f"{edges.pass_urps} and {edges.fail_urps} (1e-6 requests/s)",
            expected=f"adjacent rates; at the first {what} the SLO, at the second not",
        )
    )


def _expect(field: str, found: Sequence[int], expected: Sequence[int]) -> None:
    if list(found) != list(expected):
        raise InputError(
            Problem(
                "are not those of the repeats that have a boundary",
                field=f"{_FIELD}.{field}",
                found=str(list(found))[:200],
                expected=str(list(expected)),
            )
        )


def _root(value: int, k: int) -> int:
    """Return the k-th root of an integer, rounded down."""
    low, high = 0, 1 << (value.bit_length() // k + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if middle**k <= value:
            low = middle
        else:
            high = middle
    return low
