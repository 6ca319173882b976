"""Which rows a spec measures on: windows that were chosen and published, or draws of its own.

Misses come in clusters, so a short window has a boundary of its own. Chosen windows are those of
many on which a published panel of engines has the boundary that it has in the long run
(`choosing`). They are chosen for a band of rates, with a lead-in and a number of scored rows that
fill engine and window at every rate of the band. Other workloads, and traces, have one band for all
rates, and the rows that their spec asks for: nothing is known of how well those stand for the long
run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources

from tokenwatt_site.errors import Problem, SpecError
from tokenwatt_site.spec import HIGHEST_URPS, Objective, Protocol, Spec
from tokenwatt_site.trace import Trace
from tokenwatt_site.workload import Realisation, Workload, workload_of

LONG_RUN_SCORED = 200_000
LONG_RUN_EDGE = 2_000
"""Rows before and after those: an engine fills in the first and is kept full by the last."""

WINDOW_DRAW = 1
"""Of which draw chosen windows are pieces; the long run is draw 0."""


@dataclass(frozen=True, slots=True)
class Band:
    """Rates from `low_urps` to below `high_urps`, in 1e-6 requests/s, and what is offered there.

    `first_rows` are where the windows begin in draw WINDOW_DRAW, that of repeat r at r - 1; empty
    where repeat r is draw r.
    """

    low_urps: int
    high_urps: int
    lead_in: int
    scored: int
    tail: int
    first_rows: tuple[int, ...] = ()

    @property
    def highest_urps(self) -> int:
        """The highest rate at which its rows are offered: a bracket may straddle its end."""
        return min(self.high_urps + self.high_urps // 10, HIGHEST_URPS)

    @property
    def rows(self) -> int:
        return self.lead_in + self.scored + self.tail


def window(workload: Workload, repeat: int, band: Band, first_row: int) -> Realisation:
    """Draw the window of a band that begins at a row of draw WINDOW_DRAW."""
    return Realisation(
        repeat,
        band.lead_in,
        band.scored,
        tuple(workload.rows(WINDOW_DRAW, range(first_row, first_row + band.rows))),
        highest_urps=band.highest_urps,
    )


@dataclass(frozen=True)
class Windows:
    """All that a spec may measure on. `panel_slo` is what chosen windows were chosen for."""

    workload: Workload
    bands: tuple[Band, ...]
    chosen: bool
    panel_slo: tuple[Objective, ...] | None = None
    _drawn: dict[tuple[int, int], Realisation] = field(default_factory=dict, compare=False)

    def chosen_for(self, slo: Sequence[Objective]) -> bool:
        """Tell whether the windows were chosen, and by a panel that was held to this SLO."""
        return self.panel_slo == tuple(slo)

    def band_at(self, rate_urps: int) -> Band:
        """Return the band of a rate; beyond all of them the nearest."""
        for band in self.bands:
            if rate_urps < band.high_urps:
                return band
        return self.bands[-1]

    def band_from(self, low_urps: int) -> Band | None:
        """Return the band that begins there; None: none does."""
        return next((band for band in self.bands if band.low_urps == low_urps), None)

    def realisation(self, repeat: int, band: Band) -> Realisation:
        """Return what repeat `repeat` offers in a band, the same for every configuration.

        Raises:
            SpecError: the band has fewer windows, or the trace fewer rows.
        """
        key = (repeat, band.low_urps)
        if key not in self._drawn:
            self._drawn[key] = self._draw(repeat, band)
        return self._drawn[key]

    def _draw(self, repeat: int, band: Band) -> Realisation:
        if not band.first_rows:
            return self.workload.realisation(
                repeat, lead_in=band.lead_in, scored=band.scored, tail=band.tail
            )
        if repeat > (held := len(band.first_rows)):
            raise _too_few(self.workload.name, held, repeat)
        return window(self.workload, repeat, band, band.first_rows[repeat - 1])


def long_run(workload: Workload) -> Realisation:
    """Draw what stands for the long run of a workload that is drawn."""
    return workload.realisation(
        0, lead_in=LONG_RUN_EDGE, scored=LONG_RUN_SCORED, tail=LONG_RUN_EDGE
    )


def windows_of(spec: Spec, trace: Trace | None = None) -> Windows:
    """Return what a spec measures on: the rows that it gives, or the chosen windows.

    Raises:
        SpecError: the workload is not one (`workload.workload_of`), or the spec gives no rows and
            there are no chosen windows for its workload, its SLO or its repeats.
    """
    workload, protocol = workload_of(spec.setup, trace), spec.protocol
    if protocol.lead_in is None or protocol.scored is None or protocol.tail is None:
        return _chosen(workload, spec.setup.slo, protocol)
    band = Band(0, HIGHEST_URPS + 1, protocol.lead_in, protocol.scored, protocol.tail)
    return Windows(workload, (band,), chosen=False)


def _chosen(workload: Workload, slo: Sequence[Objective], protocol: Protocol) -> Windows:
    path = resources.files("tokenwatt_site").joinpath("chosen", f"{workload.name}.json")
    value = json.loads(path.read_text("utf-8")) if path.is_file() else None
    if value is None or value["workload_hash"] != workload.hash:
        raise _no_windows(f"{workload.name} has no chosen windows")
    panel_slo = tuple(Objective.model_validate(objective) for objective in value["slo"])
    # An engine fills in twice the longest answer at the TPOT limit, which lead-ins were made for.
    limit_ms = min(o.limit_ms for o in panel_slo if o.metric == "tpot")
    if not any(o.metric == "tpot" and o.limit_ms <= limit_ms for o in slo):
        raise _no_windows(
            f"the chosen windows of {workload.name} fill an engine that is held to"
            f" {limit_ms:g} ms TPOT or less, which setup.slo does not ask for"
        )
    bands = tuple(
        Band(
            band["low_urps"],
            band["high_urps"],
            band["lead_in"],
            band["scored"],
            band["tail"],
            tuple(window["first_row"] for window in band["windows"]),
        )
        for band in value["bands"]
    )
    if protocol.repeats > (held := min(len(band.first_rows) for band in bands)):
        raise _too_few(workload.name, held, protocol.repeats)
    if protocol.start_rate * 1e6 > (highest_urps := bands[-1].highest_urps):
        raise SpecError(
            Problem(
                f"is above the rates that windows of {workload.name} were chosen for",
                field="protocol.start_rate",
                found=f"{protocol.start_rate:g}",
                expected=f"at most {highest_urps / 1e6:g} requests/s",
                remedy="Lower it, or give lead_in, scored and tail for rows of your own.",
            )
        )
    return Windows(workload, bands, chosen=True, panel_slo=panel_slo)


def _no_windows(what: str) -> SpecError:
    return SpecError(
        Problem(
            what,
            field="protocol",
            expected="lead_in, scored and tail: how many rows are offered",
        )
    )


def _too_few(name: str, held: int, repeats: int) -> SpecError:
    return SpecError(
        Problem(
            f"{name} has fewer chosen windows than repeats",
            field="protocol.repeats",
            found=str(repeats),
            expected=f"at most {held}",
            remedy="Lower it, or give lead_in, scored and tail for rows of your own.",
        )
    )
