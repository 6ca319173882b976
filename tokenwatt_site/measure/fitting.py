"""Fits an engine model to what the client saw. The only place that searches for prices.

What is compared is ln TTFT and ln TPOT, request by request, of all trials of all repeats. A
scheduler's family is chosen by how well its best prices tell that. Trials far from the boundary
weigh little: past saturation an error of 5% in capacity shows as a huge one in waiting, and far
below it nothing is scarce. Nothing is random: the same trials give the same model.

Prices are searched for as shares of a typical step, which the client has seen: with 1, each of the
four would alone make up all of it. So one grid of starts serves engines of any speed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from tokenwatt_site.engine_model.boundary import Edges, find_edges
from tokenwatt_site.engine_model.document import Boundary, Fit, ModelFit
from tokenwatt_site.engine_model.load import Load, play
from tokenwatt_site.engine_model.long_run import find_windows_95
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.engine_model.steps import NONE, Ints
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.goodput import tpot_ns
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Trial

Floats: TypeAlias = npt.NDArray[np.float64]

BUDGETS = (8192, 4096, 2048, 1024, 512)
"""Tokens of a step that schedulers of chunked prefill are offered as, the most usual first."""

NO_CAP = 1 << 20
"""More sequences than any engine decodes at once."""

WIDTH = 0.1
"""A trial this far from the boundary, in ln of the rate, weighs half."""

_DEAREST_PS = (10**13, 10**13, 10**12, 10**9)
"""What `Prices` allows."""

_MOST_SHARE = 100.0
_FINITE_STEP = 0.05
_TPOT_WEIGHT = 10.0
"""TTFT depends on where in a step a request arrives, TPOT is a mean over many steps: residuals of
ln TPOT are about a tenth of those of ln TTFT."""

_KNEE = 0.5
"""Weighted residuals beyond it count linearly: a few stalls do not decide."""

_FAR = 10.0

_REFINED_ON = 6

_TIE = 1.01
"""A later family must beat an earlier, simpler one by more than this factor of the loss."""

_CLOSE = 2.0
"""A family whose loss is so many times the least is not refined any more."""

_MOMENTS = 4096

_PLATEAU = 0.02
"""Share of a trial's time for which what is limited stays at its most."""


@dataclass(frozen=True)
class Seen:
    """What the client saw of a trial: first and last token of each row, in ns since its start.

    NONE (-1) where there was none: the request failed, or was censored. It was offered all the
    same. Where the first event brought several tokens, `last_ns` is as if the others had
    followed one by one, in the TPOT that was seen.
    """

    repeat: int
    trial: int
    load: Load
    rate_urps: int
    first_ns: Ints
    last_ns: Ints


def seen_of(trial: Trial) -> Seen:
    """Return what a trial tells a fit: the rows that were sent, and when their tokens came."""
    times = [_token_times(record) for record in trial.records]
    whole = Load.of(trial.realisation)
    n = len(times)
    load = replace(whole, elapsed=whole.elapsed[:n], n_in=whole.n_in[:n], n_out=whole.n_out[:n])
    columns = np.array(times, np.int64).reshape(-1, 2)
    return Seen(
        trial.repeat,
        trial.number,
        load,
        trial.rate_urps,
        np.ascontiguousarray(columns[:, 0]),
        np.ascontiguousarray(columns[:, 1]),
    )


def _token_times(record: RequestRecord) -> tuple[int, int]:
    if record.status is not Status.OK or record.first_ns is None:
        return NONE, NONE
    if (per_token := tpot_ns(record)) is None:
        return record.first_ns, NONE
    return record.first_ns, record.first_ns + per_token * (record.output_asked - 1)


def predict(spec: Spec, seen: Sequence[Seen], load: Load, near_urps: int) -> int | None:
    """Predict the boundary on a load from the trials so far, in 1e-6 requests/s.

    Returns None where there is nothing to fit, or the model fitted passes, or fails, everywhere.
    """
    best = _best(spec, seen, dict.fromkeys({s.repeat for s in seen}, near_urps))
    edges = best and find_edges(best, load, spec.setup.slo, near_urps)
    return edges.boundary_urps if edges else None


def model_fit(
    spec: Spec,
    seen: Sequence[Seen],
    realisations: Mapping[int, Load],
    long_run: Load | None,
    boundaries: Mapping[int, int],
) -> ModelFit | None:
    """Fit to all trials, and to those of all repeats but each in turn, family and prices anew.

    A family that only the repeat left out would have chosen is so not taken for granted: the errors
    are those of the whole procedure. Where the search begins is the same for all of them.

    Args:
        spec: its SLO, and over how many replicas it spreads.
        seen: all trials.
        realisations: by repeat, of the band in which it ended.
        long_run: what the long run is; None: nothing stands for it.
        boundaries: by repeat, in 1e-6 requests/s; only of those that have one.

    Returns:
        None where no trial has requests to fit to.
    """
    told = _told(seen, boundaries)
    if not told:
        return None
    units, candidates = _screened(spec, told)
    full = _settled(units, candidates, told)
    slo = spec.setup.slo
    found = []
    for repeat, load in sorted(realisations.items()):
        if repeat in boundaries:
            found.append((repeat, find_edges(full, load, slo, boundaries[repeat])))
    windows_95 = None
    if long_run is not None:
        edges = find_edges(full, long_run, slo, min(boundaries.values()))
        found.insert(0, (0, edges))
        if edges is not None:
            windows_95 = find_windows_95(full, long_run, slo, edges.boundary_urps * 96 // 100)
    fits = [_fit_of(0, full, found)]
    for repeat in sorted(boundaries) if len(boundaries) > 1 else ():
        without = [trial for trial in told if trial.seen.repeat != repeat]
        if without and repeat in realisations:
            model = _settled(units, candidates, without)
            edges = find_edges(model, realisations[repeat], slo, boundaries[repeat])
            fits.append(_fit_of(repeat, model, [(repeat, edges)]))
    return ModelFit(format="tokenwatt/engine-model/1", fits=tuple(fits), windows_95=windows_95)


def _fit_of(left_out: int, model: EngineModel, found: Sequence[tuple[int, Edges | None]]) -> Fit:
    return Fit(
        left_out=left_out,
        family=model.family,
        prices=model.prices,
        boundaries=tuple(
            Boundary(repeat=repeat, pass_urps=edges.pass_urps, fail_urps=edges.fail_urps)
            for repeat, edges in found
            if edges is not None
        ),
    )


# How well a model tells a trial.


@dataclass(frozen=True)
class _Told:
    """A trial made ready for many comparisons; `weight` is its own among all."""

    seen: Seen
    weight: float

    @cached_property
    def due_ns(self) -> Ints:
        return self.seen.load.due_ns(self.seen.rate_urps)

    @cached_property
    def began(self) -> npt.NDArray[np.bool_]:
        return self.seen.first_ns > self.due_ns

    @cached_property
    def ended(self) -> npt.NDArray[np.bool_]:
        seen = self.seen
        return self.began & (seen.load.n_out > 1) & (seen.last_ns > seen.first_ns)

    @cached_property
    def logs(self) -> tuple[Floats, Floats]:
        return self._logs(self.seen.first_ns, self.seen.last_ns)

    def _logs(self, first_ns: Ints, last_ns: Ints) -> tuple[Floats, Floats]:
        began, ended = self.began, self.ended
        return (
            np.log(first_ns[began] - self.due_ns[began]),
            np.log(np.maximum(last_ns[ended] - first_ns[ended], 1)),
        )

    def residuals(self, model: EngineModel) -> Floats:
        """Return weighted ln(model / seen); their squares add up to the loss of the trial."""
        try:
            played = play(model, self.seen.load, self.seen.rate_urps)
        except InputError:  # so much too small an engine that it comes to no end
            found = tuple(told + _FAR for told in self.logs)
        else:
            found = self._logs(played.first_ns, played.last_ns)
        parts = []
        for mine, theirs, weight in zip(found, self.logs, (1.0, _TPOT_WEIGHT), strict=True):
            bent = _bent(weight * (mine - theirs))
            parts.append(bent * math.sqrt(self.weight / max(len(bent), 1)))
        return np.concatenate(parts)


def _bent(residuals: Floats) -> Floats:
    """Return what squares to a pseudo-Huber loss: as they are while small, then growing slower."""
    squares = (residuals / _KNEE) ** 2
    bent: Floats = np.sign(residuals) * _KNEE * np.sqrt(2 * (np.sqrt(1 + squares) - 1))
    return bent


def _told(seen: Sequence[Seen], boundaries: Mapping[int, int]) -> list[_Told]:
    """Weigh trials by how far they are from their repeat's boundary; the weightiest first."""
    if not boundaries:
        return []
    middle = sorted(boundaries.values())[len(boundaries) // 2]
    told = []
    for s in seen:
        distance = math.log(s.rate_urps / boundaries.get(s.repeat, middle)) / WIDTH
        trial = _Told(s, 1 / (1 + distance * distance))
        if trial.ended.any():
            told.append(trial)
    return sorted(told, key=lambda trial: -trial.weight)


def _loss(model: EngineModel, told: Sequence[_Told]) -> float:
    squares = [float(np.sum(trial.residuals(model) ** 2)) for trial in told]
    return math.fsum(squares) / math.fsum(trial.weight for trial in told)


# Prices as shares of a typical step.


@dataclass(frozen=True)
class _Units:
    """What each price would be if it alone made up a typical step, in ps."""

    prices: tuple[float, float, float, float]

    @classmethod
    def of(cls, told: _Told, replicas: int) -> _Units:
        """Read them off a trial: the median TPOT is a step; Little's law says what is in it."""
        seen, ended = told.seen, told.ended
        n_in, n_out = seen.load.n_in[ended], seen.load.n_out[ended]
        spans = (seen.last_ns - seen.first_ns)[ended]
        step_ns = float(np.median(spans / (n_out - 1)))
        arrivals = seen.rate_urps / 1e15 / replicas  # per ns
        batch = max(1.0, arrivals * float(np.mean(spans)))
        context = max(1.0, arrivals * float(np.mean(spans * (n_in + n_out / 2))))
        prompt = max(1.0, arrivals * step_ns * float(np.mean(n_in)))
        step_ps = step_ns * 1000
        return cls((step_ps, step_ps / batch, step_ps / prompt, step_ps / context))

    def model(self, family: Family, shares: Floats) -> EngineModel:
        base, sequence, prompt, context = (
            min(round(unit * share), most)
            for unit, share, most in zip(self.prices, shares.tolist(), _DEAREST_PS, strict=True)
        )
        return EngineModel(
            family,
            Prices(
                base_ps=max(base, 1),
                sequence_ps=sequence,
                prompt_token_ps=prompt,
                context_token_ps=context,
            ),
        )


_MIXTURES = (
    (0.4, 0.3, 0.3, 0.01),
    (0.8, 0.1, 0.1, 0.01),
    (0.3, 0.05, 0.3, 0.3),
    (0.2, 0.1, 0.7, 0.01),
    (0.1, 0.8, 0.1, 0.01),
)
_SCALES = (0.03, 0.1, 0.3, 0.55, 1.0, 1.7, 3.0, 10.0, 30.0)
_STARTS = tuple(np.array(m) * scale for scale, m in product(_SCALES, _MIXTURES))
"""Three decades around what the client saw."""


def _refine(
    family: Family, units: _Units, start: Floats, told: Sequence[_Told], most: int
) -> Floats:
    """Return the shares at the least loss near a start; at most `most` steps of the optimiser."""

    def residuals(shares: Floats) -> Floats:
        model = units.model(family, shares)
        return np.concatenate([trial.residuals(model) for trial in told])

    last: dict[bytes, Floats] = {}

    def known(shares: Floats) -> Floats:
        # The optimiser asks for the slopes where it has just asked for the residuals.
        key = shares.tobytes()
        if key not in last:
            last.clear()
            last[key] = residuals(shares)
        return last[key]

    def slopes(shares: Floats) -> Floats:
        # A modelled engine goes in steps: differences must be wide enough to see beyond one.
        here = known(shares)
        columns = []
        for i in range(len(shares)):
            beside = shares.copy()
            beside[i] += _FINITE_STEP
            columns.append((residuals(beside) - here) / _FINITE_STEP)
        slope: Floats = np.column_stack(columns)
        return slope

    found = least_squares(
        known, start, slopes, bounds=(0.0, _MOST_SHARE), max_nfev=most, xtol=1e-3, ftol=1e-3
    )
    shares: Floats = found.x
    return shares


@dataclass(frozen=True)
class _Candidate:
    """A family with its best prices so far; `loss` is over all trials."""

    loss: float
    complexity: int
    family: Family
    shares: Floats


def _best(spec: Spec, seen: Sequence[Seen], boundaries: Mapping[int, int]) -> EngineModel | None:
    """Return the family and the prices that tell the trials best; None: nothing is told."""
    told = _told(seen, boundaries)
    if not told:
        return None
    units, candidates = _screened(spec, told)
    return _settled(units, candidates, told)


def _screened(spec: Spec, told: Sequence[_Told]) -> tuple[_Units, list[_Candidate]]:
    """Return all families with prices that are about the best.

    The first family finds where to start, on the trial nearest the boundary, for all of them.
    """
    parallelism = spec.setup.parallelism
    replicas = parallelism.replicas * parallelism.data
    units = _Units.of(told[0], replicas)
    families = _plain_families(replicas)

    def nearest(family: Family, starts: Sequence[Floats]) -> Floats:
        def loss(shares: Floats) -> float:
            return _loss(units.model(family, shares), told[:1])

        return min((_refine(family, units, start, told[:1], 8) for start in starts), key=loss)

    starts = sorted(_STARTS, key=lambda start: _loss(units.model(families[0], start), told[:1]))
    first = nearest(families[0], starts[:2])
    candidates = [
        _candidate(family, index, units, nearest(family, [first]), told)
        for index, family in enumerate(families)
    ]
    candidates.sort(key=_order)
    candidates[:3] = [_refined(c, units, told, told[:3], 6) for c in candidates[:3]]
    candidates.sort(key=_order)
    for limit in _limits(told, replicas):
        for plain in candidates[:2]:
            family = plain.family.model_copy(update=limit)
            limited = _candidate(
                family, plain.complexity + len(families), units, nearest(family, [first]), told
            )
            candidates.append(_refined(limited, units, told, told[:3], 6))
    return units, candidates


def _settled(units: _Units, candidates: Sequence[_Candidate], told: Sequence[_Told]) -> EngineModel:
    """Return the best of all families, the best two refined on more trials."""
    here = sorted(
        (_candidate(c.family, c.complexity, units, c.shares, told) for c in candidates), key=_order
    )
    close = [c for c in here[:2] if c.loss <= here[0].loss * _CLOSE]
    finals = [_refined(c, units, told, told[:_REFINED_ON], 10) for c in close]
    least = min(c.loss for c in finals)
    best = min((c for c in finals if c.loss <= least * _TIE), key=lambda c: c.complexity)
    return units.model(best.family, best.shares)


def _order(candidate: _Candidate) -> tuple[float, int]:
    return candidate.loss, candidate.complexity


def _candidate(
    family: Family, complexity: int, units: _Units, shares: Floats, told: Sequence[_Told]
) -> _Candidate:
    return _Candidate(_loss(units.model(family, shares), told), complexity, family, shares)


def _refined(
    c: _Candidate, units: _Units, told: Sequence[_Told], on: Sequence[_Told], most: int
) -> _Candidate:
    shares = _refine(c.family, units, c.shares, on, most)
    found = _candidate(c.family, c.complexity, units, shares, told)
    return min(c, found, key=_order)


# Which families there are.


def _plain_families(replicas: int) -> list[Family]:
    """Return the families to try that nothing but tokens of a step limits."""
    chunked = [
        Family(prefill="chunked", token_budget=b, max_batch=NO_CAP, replicas=replicas)
        for b in BUDGETS
    ]
    first = Family(prefill="first", token_budget=BUDGETS[0], max_batch=NO_CAP, replicas=replicas)
    return [*chunked, first]


def _limits(told: Sequence[_Told], replicas: int) -> list[dict[str, int]]:
    """Return what else may limit the engine, from where what it holds stays at its most."""
    limits: list[dict[str, int]] = []
    if (cap := _plateau([_decoding(t) for t in told], 1.0)) is not None:
        limits.append({"max_batch": max(1, round(cap / replicas))})
    if (held := _plateau([_tokens_held(t) for t in told], 0.03)) is not None:
        # What waits with its prompt half computed holds some too, and is not seen.
        limits += [{"kv_tokens": math.ceil(held / replicas * more)} for more in (1.0, 1.04)]
    return limits


def _decoding(told: _Told) -> Floats:
    """Return how many requests were being answered, over the course of a trial."""
    n = int(np.count_nonzero(told.ended))
    return _course(told, np.ones(n), np.zeros(n))


def _tokens_held(told: _Told) -> Floats:
    """Return how many tokens those had, prompts and what was made of the answers."""
    seen, ended = told.seen, told.ended
    spans = (seen.last_ns - seen.first_ns)[ended]
    n_in, n_out = seen.load.n_in[ended], seen.load.n_out[ended]
    return _course(told, n_in.astype(np.float64), n_out / spans)


def _course(told: _Told, at_first: Floats, per_ns: Floats) -> Floats:
    """Add up, at _MOMENTS of a trial, what its requests hold from first to last token."""
    seen, ended = told.seen, told.ended
    first, last = seen.first_ns[ended], seen.last_ns[ended]
    moments = np.linspace(told.due_ns[0], told.due_ns[-1], _MOMENTS)
    total = np.zeros(_MOMENTS)
    for sign, edge in ((1.0, first), (-1.0, last)):
        order = np.argsort(edge, kind="stable")
        before = np.searchsorted(edge[order], moments, side="right")
        held = np.concatenate([[0.0], np.cumsum((at_first - per_ns * first)[order])])
        growth = np.concatenate([[0.0], np.cumsum(per_ns[order])])
        total += sign * (held[before] + growth[before] * moments)
    return total


def _plateau(courses: Sequence[Floats], slack: float) -> float | None:
    """Return the most that is held, where it is held for long at about that; None: nowhere is.

    `slack`: how far below the most is about that: a number from 1, below it a share.
    """
    most = max(float(course.max()) for course in courses)
    least = most - slack if slack >= 1 else most * (1 - slack)
    longest = max(float(np.mean(course >= least - 1e-6)) for course in courses)
    return most if longest >= _PLATEAU else None
