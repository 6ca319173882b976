"""Published numbers of memory traffic and of the distance to the boards' limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenwatt_site.bandwidth.decoding import decode_batch
from tokenwatt_site.bandwidth.dram import BusUse, bus_use, counts_traffic
from tokenwatt_site.bandwidth.limits import Limits, gpu_boards
from tokenwatt_site.bandwidth.step import NoFigure
from tokenwatt_site.bandwidth.work import increments
from tokenwatt_site.claims.modelled import (
    KEYS,
    BandwidthClaims,
    modelled,
    no_numbers,
    number,
)
from tokenwatt_site.claims.pooled import absent, pooled
from tokenwatt_site.energy.window import WindowEnergy
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.meters import GPU_SCOPES
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import MetricClaim, Outcome
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import Evidence, Trial

RECONCILED_WITHIN = 0.05

_MEASURED = ("mbu_measured", "mbu_measured_bus")
_KEYS = (*KEYS, *_MEASURED, "mbu_engine", "bus_bandwidth", "decode_batch")


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
        return no_numbers(_KEYS, "no trial met the SLO")
    limits = Limits(spec.setup, gpu_boards([log.boards for log in _logs(evidence)]))
    if spec.setup.power.scope not in GPU_SCOPES:
        energies = ()
    parts = (
        modelled(spec, evidence, tops, energies, limits),
        _measured(evidence, tops, limits),
        _by_engine(evidence, tops, limits),
        BandwidthClaims((number("bus_bandwidth", lambda: [_bus_gb_s(limits)]),), ()),
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


def _logs(evidence: Evidence) -> list[PowerLog]:
    logs = (evidence.power, *evidence.beside)
    return [log for log in logs if log is not None and log.scope in GPU_SCOPES]


def _bus_gb_s(limits: Limits) -> float:
    return limits.bus_bytes_s() / len(limits.boards) / 1e9


def _measured(evidence: Evidence, tops: Sequence[Trial], limits: Limits) -> BandwidthClaims:
    """Return the traffic that the boards themselves counted."""
    log = next((log for log in _logs(evidence) if counts_traffic(log)), None)
    if log is None:
        why = "the boards do not count their memory traffic (no GPM)"
        if not _logs(evidence):
            why = str(evidence.journal[0].data.get("power_reason") or "no board was read")
        return no_numbers(_MEASURED, why)
    if len(log.boards) != limits.setup.accelerator.count:
        return no_numbers(
            _MEASURED,
            f"memory traffic was read of {len(log.boards)} boards, the setup has"
            f" {limits.setup.accelerator.count}",
        )
    try:
        uses = [bus_use(log, *t.window_ns_of_run) for t in tops]
    except NoFigure as why:
        return no_numbers(_MEASURED, str(why))
    if (most := max(ppm for use in uses for ppm in use.ppm)) > 1_000_000:
        text = f"a board counted {most / 1e4:.1f}% of what its memory bus can carry"
        outcome = Outcome(key="mbu_measured", level="INVALID", text=text)
        return BandwidthClaims(no_numbers(_MEASURED, f"INVALID: {text}").metrics, (outcome,))
    carried = [board.bus_bytes_s for board in log.boards]
    chained = ", by samples" if any(use.chained for use in uses) else ""
    metrics = (
        number(
            "mbu_measured",
            lambda: [100 * _bytes_s(use, carried) / limits.rated_bytes_s() for use in uses],
            chained,
        ),
        number("mbu_measured_bus", lambda: [_of_bus(use, carried) for use in uses], chained),
    )
    return BandwidthClaims(metrics, ())


def _bytes_s(use: BusUse, carried: Sequence[int | None]) -> float:
    """Return the traffic of all boards; a share of a bus is bytes only where its width is known."""
    known = [bytes_s for bytes_s in carried if bytes_s is not None]
    if len(known) < len(carried):
        raise NoFigure("the driver does not tell width and clock of every board's memory bus")
    return math.fsum(ppm / 1e6 * bytes_s for ppm, bytes_s in zip(use.ppm, known, strict=True))


def _of_bus(use: BusUse, carried: Sequence[int | None]) -> float:
    known = [bytes_s for bytes_s in carried if bytes_s is not None]
    if len(known) < len(carried):  # then as if all were alike
        return math.fsum(use.ppm) / len(use.ppm) / 1e4
    return 100 * _bytes_s(use, carried) / sum(known)


def _by_engine(evidence: Evidence, tops: Sequence[Trial], limits: Limits) -> BandwidthClaims:
    """Return what the engine itself estimates to have read."""
    key, engine = "mbu_engine", evidence.engine
    if engine is None:
        return no_numbers((key,), "the engine's own counters were not read")
    if all(sample.read_mb is None for sample in engine.samples):
        return no_numbers((key,), "the engine does not estimate what it reads")

    def rates() -> list[float]:
        found = []
        for t in tops:
            rises = increments(engine, "read_mb", *t.window_ns_of_run)
            each_board = math.fsum(rise.count for rise in rises) * 1e6
            found.append(each_board * limits.setup.accelerator.count / (t.length_ns / 1e9))
        return found

    claim = number(key, lambda: [100 * rate / limits.rated_bytes_s() for rate in rates()])
    if claim.value is None or (above := limits.above_memory(max(rates()))) is None:
        return BandwidthClaims((claim,), ())
    text = f"the engine's own estimate is {above}: more than the memory can do"
    return BandwidthClaims(
        (absent(key, f"withheld: {text}"),), (Outcome(key=key, level="withheld", text=text),)
    )


def _reconciled(metrics: Sequence[MetricClaim]) -> tuple[Outcome, ...]:
    """Say where the model has more traffic than the boards counted, which it should explain."""
    of = {metric.key: metric.value for metric in metrics}
    for key, beside in (("mbu_bus", "mbu_measured_bus"), ("mbu", "mbu_measured")):
        ours, theirs = of[key], of[beside]
        if ours is not None and theirs is not None:
            if ours <= theirs * (1 + RECONCILED_WITHIN):
                return ()
            text = (
                f"modelled reads are {ours:.0f}{METRICS[key].unit} and the boards counted"
                f" {theirs:.0f}%: part was read from caches on the chip, experts were reached less"
                " evenly than modelled, or this is not the model that ran"
            )
            return (Outcome(key="mbu", level="not reconciled", text=text),)
    return ()


def _as_sold(limits: Limits) -> tuple[Outcome, ...]:
    text = limits.other_than_sold()
    return () if text is None else (Outcome(key="mbu", level="warn", text=text),)
