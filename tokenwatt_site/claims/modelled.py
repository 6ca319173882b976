"""Numbers of what a model says that an engine's steps read and compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tokenwatt_site.bandwidth.limits import Limits, peak_multiple
from tokenwatt_site.bandwidth.step import HBM2_J_PER_BIT, Layout, NoFigure, layout_of
from tokenwatt_site.bandwidth.traffic import traffic_bytes, traffic_flops
from tokenwatt_site.bandwidth.work import BUNDLED_ABOVE, Work, work_of
from tokenwatt_site.claims.pooled import absent, pooled
from tokenwatt_site.energy.window import WindowEnergy
from tokenwatt_site.errors import TokenwattError
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.model_shape import describe, kv_value_bytes, require_width
from tokenwatt_site.model_shape.shape import ModelShape, StoredBytes
from tokenwatt_site.run import MetricClaim, NotCovered, Outcome
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence, Trial

_OF_BYTES = ("mbu", "mbu_bus", "step_read", "bandwidth_limit_rate", "dram_energy_share")
_OF_MODEL = (*_OF_BYTES, "compute_share")
KEYS = ("step_rate", *_OF_MODEL)


@dataclass(frozen=True, slots=True)
class BandwidthClaims:
    """What model, engine counters and boards carry."""

    metrics: tuple[MetricClaim, ...]
    outcomes: tuple[Outcome, ...]
    not_covered: tuple[NotCovered, ...] = ()


def no_numbers(keys: Sequence[str], why: str) -> BandwidthClaims:
    return BandwidthClaims(tuple(absent(key, why) for key in keys), ())


def number(key: str, values: Callable[[], list[float]], qualifier: str = "") -> MetricClaim:
    """Return the number, or why it has none; what is particular to it stands after its label."""
    label = METRICS[key].label + qualifier
    try:
        return pooled(key, values(), label)
    except NoFigure as why:
        return absent(key, str(why), label)


def modelled(
    spec: Spec,
    evidence: Evidence,
    tops: Sequence[Trial],
    energies: Sequence[WindowEnergy],
    limits: Limits,
) -> BandwidthClaims:
    """Return the rate of steps, and what follows from it by the model."""
    try:
        layout = layout_of(spec.setup.parallelism, spec.setup.accelerator.count)
    except NoFigure as why:
        return no_numbers(KEYS, str(why))
    works, outcomes = _works(evidence, tops, layout)
    rate = number(
        "step_rate",
        lambda: [w.steps / (t.length_ns / 1e9) for w, t in zip(works, tops, strict=True)],
        f", by {works[0].counted}",
    )
    try:
        model = _model_of(spec, evidence)
    except NoFigure as why:
        return BandwidthClaims((rate, *no_numbers(_OF_MODEL, str(why)).metrics), outcomes)
    read = [traffic_bytes(work, model.shape, model.stored, model.kv, layout) for work in works]
    by_bytes = _of_bytes(model, works, read, energies, limits)
    compute = _compute(model, works, limits, cache_is_told=_cache_is_told(spec, tops))
    return BandwidthClaims(
        (rate, *by_bytes.metrics, *compute.metrics),
        (*outcomes, *by_bytes.outcomes, *compute.outcomes),
        tuple(NotCovered(what=what, why=why) for what, why in _left_out(model)),
    )


def _works(
    evidence: Evidence, tops: Sequence[Trial], layout: Layout
) -> tuple[list[Work], tuple[Outcome, ...]]:
    """Return the work of each window, all counted in the same way, and what is to be said of it."""
    told = []
    if evidence.engine is not None and any(s.steps is not None for s in evidence.engine.samples):
        try:
            return [
                work_of(
                    t.records, *t.window_ns, layout, engine=evidence.engine, epoch_ns=t.epoch_ns
                )
                for t in tops
            ], ()
        except NoFigure as why:
            told.append(f"the engine counts its steps, but {why}")
    works = [work_of(t.records, *t.window_ns, layout) for t in tops]
    most = max(work.tokens_per_event for work in works)
    if most > BUNDLED_ABOVE:
        told.append(
            f"an event carried {most:.2f} tokens on average and is taken as one step, as in"
            " speculative decoding; where the server bundles the tokens of several steps, there"
            " were more steps and reads than these"
        )
    return works, tuple(Outcome(key="step_rate", level="warn", text=text) for text in told)


@dataclass(frozen=True, slots=True)
class _Model:
    shape: ModelShape
    stored: StoredBytes
    kv: float


def _model_of(spec: Spec, evidence: Evidence) -> _Model:
    if evidence.model is None:
        if spec.endpoint.model_files is None:
            raise NoFigure("the spec names no model files (endpoint.model_files)")
        raise NoFigure("the model's files are not among the evidence")
    declared = spec.setup.quantization.kv_cache
    try:
        shape, stored = describe(evidence.model)
        require_width(spec.setup.quantization.weights, evidence.model)
        kv = kv_value_bytes(declared, evidence.model)
    except TokenwattError as error:
        raise NoFigure(str(error)) from error
    if kv is None:
        raise NoFigure(f"no size of a KV value is known (quantization.kv_cache: {declared})")
    return _Model(shape, stored, kv)


def _left_out(model: _Model) -> Iterator[tuple[str, str]]:
    if model.shape.left_out:
        yield "In modelled reads, parts of the model", f"{'; '.join(model.shape.left_out)}."
    if model.stored.source == "config":
        yield (
            "Bytes of the weights as they are stored",
            "No headers of the model's files were at hand: they follow from its config.json.",
        )
    if model.stored.offloaded > 0:
        yield (
            "Reads from host memory",
            f"{model.stored.offloaded / 1e9:.1f} GB of tables are kept there, in no figure of HBM.",
        )


def _of_bytes(
    model: _Model,
    works: Sequence[Work],
    read: Sequence[float],
    energies: Sequence[WindowEnergy],
    limits: Limits,
) -> BandwidthClaims:
    """Return what the modelled bytes of each window are worth."""
    rates = [r / w.length_ns * 1e9 for r, w in zip(read, works, strict=True)]
    if (above := limits.above_memory(max(rates))) is not None:
        uneven = ", or its experts are reached less evenly" if model.shape.experts else ""
        text = (
            f"modelled reads are {above}: more than the memory can do, so that model files,"
            f" parallelism or steps are not those of this engine{uneven}"
        )
        outcome = Outcome(key="mbu", level="withheld", text=text)
        return BandwidthClaims(no_numbers(_OF_BYTES, f"withheld: {text}").metrics, (outcome,))
    upper, lower = (", modelled, upper", ", modelled, lower") if model.shape.experts else ("", "")
    metrics = (
        number("mbu", lambda: [100 * r / limits.rated_bytes_s() for r in rates], upper),
        number("mbu_bus", lambda: [100 * r / limits.bus_bytes_s() for r in rates], upper),
        number("step_read", lambda: _step_reads(works, read), upper),
        number(
            "bandwidth_limit_rate",
            lambda: [
                w.delivered / r * limits.rated_bytes_s() for w, r in zip(works, read, strict=True)
            ],
            lower,
        ),
        number("dram_energy_share", lambda: _dram_shares(read, energies), upper),
    )
    share = metrics[-1].value
    if share is None or share <= 100:
        return BandwidthClaims(metrics, ())
    text = (
        f"reading the modelled bytes from HBM2 would take {share:.0f}% of the energy that the"
        " boards took for everything"
    )
    return BandwidthClaims(metrics, (Outcome(key="dram_energy_share", level="warn", text=text),))


def _step_reads(works: Sequence[Work], read: Sequence[float]) -> list[float]:
    if any(work.steps <= 0 for work in works):
        raise NoFigure("no step was counted")
    return [r / w.steps / 1e9 for r, w in zip(read, works, strict=True)]


def _dram_shares(read: Sequence[float], energies: Sequence[WindowEnergy]) -> list[float]:
    if len(energies) < len(read):
        raise NoFigure("no board's energy was read")
    shares = []
    for bytes_read, energy in zip(read, energies, strict=True):
        if energy.energy_mj is None or energy.energy_mj <= 0:
            raise NoFigure(energy.reason or "the boards reported no energy")
        shares.append(100 * bytes_read * 8 * HBM2_J_PER_BIT / (energy.energy_mj / 1e3))
    return shares


def _cache_is_told(spec: Spec, tops: Sequence[Trial]) -> bool:
    """Whether it is known which prompt tokens were computed; an engine may leave a count of 0 out.

    Without conversations every prompt is new.
    """
    if spec.setup.conversation is None:
        return True
    return all(any(r.cached_tokens is not None for r in trial.records) for trial in tops)


def _compute(
    model: _Model, works: Sequence[Work], limits: Limits, *, cache_is_told: bool
) -> BandwidthClaims:
    """Return the share of the dense peak; more than the units can do is no number."""
    key = "compute_share"
    if not cache_is_told:
        why = "the engine does not tell which prompt tokens came from its cache"
        return no_numbers((key,), why)
    claim = number(
        key,
        lambda: [
            100 * traffic_flops(w, model.shape) / (w.length_ns / 1e9) / limits.peak_flop_s()
            for w in works
        ],
    )
    most = 100 * peak_multiple(model.shape, model.stored)
    if (found := max(claim.repeats, default=0.0)) <= most:
        return BandwidthClaims((claim,), ())
    text = (
        f"the tokens computed take {found:.0f}% of the dense bf16 peak, and weights of this width"
        f" at most {most}%: these tokens were not computed on these boards in this time"
    )
    return BandwidthClaims(
        (absent(key, f"INVALID: {text}"),), (Outcome(key=key, level="INVALID", text=text),)
    )
