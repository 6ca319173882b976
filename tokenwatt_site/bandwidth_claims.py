"""Published numbers of memory traffic and of the distance to the boards' limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tokenwatt_site.bandwidth import HBM2_J_PER_BIT, Layout, NoFigure, layout_of
from tokenwatt_site.decoding import decode_batch
from tokenwatt_site.dram import BusUse, bus_use, counts_traffic
from tokenwatt_site.energy import WindowEnergy
from tokenwatt_site.errors import TokenwattError
from tokenwatt_site.limits import Limits, gpu_boards, peak_multiple
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.model_shape import describe, kv_value_bytes
from tokenwatt_site.model_shape.shape import ModelShape, StoredBytes
from tokenwatt_site.pooled import absent, pooled
from tokenwatt_site.power_log import PowerLog
from tokenwatt_site.run import MetricClaim, NotCovered, Outcome
from tokenwatt_site.spec import PowerScope, Spec
from tokenwatt_site.traffic import traffic_bytes, traffic_flops
from tokenwatt_site.trials import Evidence, Trial
from tokenwatt_site.work import BUNDLED_ABOVE, Work, increments, work_of

RECONCILED_WITHIN = 0.05

_BOARDS: frozenset[PowerScope] = frozenset({"gpu", "module"})
"""Scopes of what is an accelerator, whose energy and memory these numbers are of."""

_OF_BYTES = ("mbu", "mbu_bus", "step_read", "bandwidth_limit_rate", "dram_energy_share")
_OF_MODEL = (*_OF_BYTES, "compute_share")
_OF_STEPS = ("step_rate", *_OF_MODEL)
_MEASURED = ("mbu_measured", "mbu_measured_bus")
_KEYS = (*_OF_STEPS, *_MEASURED, "mbu_engine", "bus_bandwidth", "decode_batch")


@dataclass(frozen=True, slots=True)
class BandwidthClaims:
    """What model, engine counters and boards carry."""

    metrics: tuple[MetricClaim, ...]
    outcomes: tuple[Outcome, ...]
    not_covered: tuple[NotCovered, ...] = ()


def bandwidth_claims(
    spec: Spec, evidence: Evidence, tops: Sequence[Trial], energies: Sequence[WindowEnergy]
) -> BandwidthClaims:
    """Return memory traffic over the windows of `tops`, one trial for each repeat that passed.

    Args:
        spec: says boards, parallelism and quantization.
        evidence: model files, engine counters, boards.
        tops: the trials.
        energies: of each of their windows, in order; empty where no board was read.
    """
    if not tops:
        return _none(_KEYS, "no trial met the SLO")
    limits = Limits(spec.setup, gpu_boards([log.boards for log in _logs(evidence)]))
    if spec.setup.power.scope not in _BOARDS:
        energies = ()
    parts = (
        _of_steps(spec, evidence, tops, energies, limits),
        _measured(evidence, tops, limits),
        _by_engine(evidence, tops, limits),
        BandwidthClaims((_claim("bus_bandwidth", lambda: [_bus_gb_s(limits)]),), ()),
        BandwidthClaims(
            (pooled("decode_batch", [decode_batch(t.records, *t.window_ns) for t in tops]),), ()
        ),
    )
    metrics = tuple(metric for part in parts for metric in part.metrics)
    outcomes = tuple(outcome for part in parts for outcome in part.outcomes)
    return BandwidthClaims(
        metrics,
        (*outcomes, *_reconciled(metrics), *_as_sold(limits)),
        tuple(caveat for part in parts for caveat in part.not_covered),
    )


def _none(keys: Sequence[str], why: str) -> BandwidthClaims:
    return BandwidthClaims(tuple(absent(key, why) for key in keys), ())


def _claim(key: str, values: Callable[[], list[float]], qualifier: str = "") -> MetricClaim:
    """Return the number, or why it has none; what is particular to it stands after its label."""
    label = METRICS[key].label + qualifier
    try:
        return pooled(key, values(), label)
    except NoFigure as why:
        return absent(key, str(why), label)


def _logs(evidence: Evidence) -> list[PowerLog]:
    logs = (evidence.power, *evidence.beside)
    return [log for log in logs if log is not None and log.scope in _BOARDS]


def _seconds(trial: Trial) -> float:
    start_ns, end_ns = trial.window_ns
    return (end_ns - start_ns) / 1e9


def _bus_gb_s(limits: Limits) -> float:
    return limits.bus_bytes_s() / len(limits.boards) / 1e9


def _of_steps(
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
        return _none(_OF_STEPS, str(why))
    works, outcomes = _works(evidence, tops, layout)
    rate = _claim(
        "step_rate",
        lambda: [w.steps / _seconds(t) for w, t in zip(works, tops, strict=True)],
        f", by {works[0].counted}",
    )
    try:
        model = _model_of(spec, evidence)
    except NoFigure as why:
        return BandwidthClaims((rate, *_none(_OF_MODEL, str(why)).metrics), outcomes)
    read = [traffic_bytes(work, model.shape, model.stored, model.kv, layout) for work in works]
    by_bytes = _of_bytes(model, works, read, energies, limits)
    compute = _compute(model, works, limits)
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
        text = (
            f"modelled reads are {above}: more than the memory can do, so that model files,"
            " parallelism or steps are not those of this engine"
        )
        outcome = Outcome(key="mbu", level="withheld", text=text)
        return BandwidthClaims(_none(_OF_BYTES, f"withheld: {text}").metrics, (outcome,))
    upper = ", modelled, upper" if model.shape.experts else ""
    metrics = (
        _claim("mbu", lambda: [100 * r / limits.rated_bytes_s() for r in rates], upper),
        _claim("mbu_bus", lambda: [100 * r / limits.bus_bytes_s() for r in rates], upper),
        _claim("step_read", lambda: _step_reads(works, read), upper),
        _claim(
            "bandwidth_limit_rate",
            lambda: [
                w.delivered / r * limits.rated_bytes_s() for w, r in zip(works, read, strict=True)
            ],
        ),
        _claim("dram_energy_share", lambda: _dram_shares(read, energies), upper),
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


def _compute(model: _Model, works: Sequence[Work], limits: Limits) -> BandwidthClaims:
    """Return the share of the dense peak; more than the units can do is no number."""
    key = "compute_share"
    claim = _claim(
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


def _measured(evidence: Evidence, tops: Sequence[Trial], limits: Limits) -> BandwidthClaims:
    """Return the traffic that the boards themselves counted."""
    log = next((log for log in _logs(evidence) if counts_traffic(log)), None)
    if log is None:
        why = "the boards do not count their memory traffic (no GPM)"
        if not _logs(evidence):
            why = str(evidence.journal[0].data.get("power_reason") or "no board was read")
        return _none(_MEASURED, why)
    if len(log.boards) != limits.setup.accelerator.count:
        return _none(
            _MEASURED,
            f"memory traffic was read of {len(log.boards)} boards, the setup has"
            f" {limits.setup.accelerator.count}",
        )
    try:
        uses = [bus_use(log, *(t.epoch_ns + edge for edge in t.window_ns)) for t in tops]
    except NoFigure as why:
        return _none(_MEASURED, str(why))
    if (most := max(ppm for use in uses for ppm in use.ppm)) > 1_000_000:
        text = f"a board counted {most / 1e4:.1f}% of what its memory bus can carry"
        outcome = Outcome(key="mbu_measured", level="INVALID", text=text)
        return BandwidthClaims(_none(_MEASURED, f"INVALID: {text}").metrics, (outcome,))
    carried = [board.bus_bytes_s for board in log.boards]
    chained = ", by samples" if any(use.chained for use in uses) else ""
    metrics = (
        _claim(
            "mbu_measured",
            lambda: [100 * _bytes_s(use, carried) / limits.rated_bytes_s() for use in uses],
            chained,
        ),
        _claim("mbu_measured_bus", lambda: [_of_bus(use, carried) for use in uses], chained),
    )
    return BandwidthClaims(metrics, ())


def _bytes_s(use: BusUse, carried: Sequence[int | None]) -> float:
    """Return the traffic of all boards; a share of a bus is bytes only where its width is known."""
    total = 0.0
    for ppm, bytes_s in zip(use.ppm, carried, strict=True):
        if bytes_s is None:
            raise NoFigure("the driver does not tell width and clock of every board's memory bus")
        total += ppm / 1e6 * bytes_s
    return total


def _of_bus(use: BusUse, carried: Sequence[int | None]) -> float:
    known = [bytes_s for bytes_s in carried if bytes_s is not None]
    if len(known) < len(carried):  # then as if all were alike
        return sum(use.ppm) / len(use.ppm) / 1e4
    return 100 * _bytes_s(use, carried) / sum(known)


def _by_engine(evidence: Evidence, tops: Sequence[Trial], limits: Limits) -> BandwidthClaims:
    """Return what the engine itself estimates to have read."""
    key, engine = "mbu_engine", evidence.engine
    if engine is None:
        return _none((key,), "the engine's own counters were not read")
    if all(sample.read_mb is None for sample in engine.samples):
        return _none((key,), "the engine does not estimate what it reads")

    def rates() -> list[float]:
        found = []
        for t in tops:
            start_ns, end_ns = (t.epoch_ns + edge for edge in t.window_ns)
            rises = increments(engine, "read_mb", start_ns, end_ns)
            each_board = sum(rise.count for rise in rises) * 1e6
            found.append(each_board * limits.setup.accelerator.count / _seconds(t))
        return found

    claim = _claim(key, lambda: [100 * rate / limits.rated_bytes_s() for rate in rates()])
    if claim.value is None or (above := limits.above_memory(max(rates()))) is None:
        return BandwidthClaims((claim,), ())
    text = f"the engine's own estimate is {above}: more than the memory can do"
    return BandwidthClaims(
        (absent(key, f"withheld: {text}"),), (Outcome(key=key, level="withheld", text=text),)
    )


def _reconciled(metrics: Sequence[MetricClaim]) -> tuple[Outcome, ...]:
    """Say where the model has more traffic than the boards counted, which it should explain."""
    of = {metric.key: metric.value for metric in metrics}
    for modelled, measured in (("mbu_bus", "mbu_measured_bus"), ("mbu", "mbu_measured")):
        ours, theirs = of[modelled], of[measured]
        if ours is not None and theirs is not None:
            if ours <= theirs * (1 + RECONCILED_WITHIN):
                return ()
            text = (
                f"modelled reads are {ours:.0f}% and the boards counted {theirs:.0f}%: part was"
                " read from caches on the chip, experts were reached less evenly than modelled,"
                " or this is not the model that ran"
            )
            return (Outcome(key="mbu", level="not reconciled", text=text),)
    return ()


def _as_sold(limits: Limits) -> tuple[Outcome, ...]:
    text = limits.other_than_sold()
    return () if text is None else (Outcome(key="mbu", level="warn", text=text),)
