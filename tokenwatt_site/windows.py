"""Which rows a spec measures on: windows that were chosen and published, or draws of its own.

Misses come in clusters, so a short window has a boundary of its own. Chosen windows are those of
many on which a published panel of engines has the boundary that it has in the long run. They are
chosen for a band of rates, with a lead-in and a number of scored rows that fill engine and window
at every rate of the band. Other workloads, and traces, have one band for all rates, and the rows
that their spec asks for: nothing is known of how well those stand for the long run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenwatt_site.errors import Problem, SpecError
from tokenwatt_site.spec import HIGHEST_URPS, Spec
from tokenwatt_site.trace import Trace
from tokenwatt_site.workload import Realisation, Workload, workload_of

LONG_RUN_SCORED = 200_000
LONG_RUN_EDGE = 2_000
"""Rows before and after those: an engine fills in the first and is kept full by the last."""


@dataclass(frozen=True, slots=True)
class Band:
    """Rates from `low_urps` to below `high_urps`, in 1e-6 requests/s, and what is offered there.

    `first_rows` are where the windows begin in the workload's endless draw; empty where repeat r
    is draw r.
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


@dataclass(frozen=True)
class Windows:
    """All that a spec may measure on."""

    workload: Workload
    bands: tuple[Band, ...]
    chosen: bool
    _drawn: dict[tuple[int, int], Realisation] = field(default_factory=dict, compare=False)

    @property
    def most_rows(self) -> int:
        """Rows of the longest realisation."""
        return max(band.rows for band in self.bands)

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
        """Return what repeat `repeat` offers in a band, the same for every configuration."""
        key = (repeat, band.low_urps)
        if key not in self._drawn:
            self._drawn[key] = self.workload.realisation(
                repeat, lead_in=band.lead_in, scored=band.scored, tail=band.tail
            )
        return self._drawn[key]

    @property
    def long_run(self) -> Realisation | None:
        """What the long run is: one draw, once and for all; None: a trace has none."""
        if self.workload.trace is not None:
            return None
        key = (0, -1)
        if key not in self._drawn:
            self._drawn[key] = self.workload.realisation(
                0, lead_in=LONG_RUN_EDGE, scored=LONG_RUN_SCORED, tail=LONG_RUN_EDGE
            )
        return self._drawn[key]


def windows_of(spec: Spec, trace: Trace | None = None) -> Windows:
    """Return what a spec measures on.

    Raises:
        SpecError: the workload is not one (`workload.workload_of`), or has no chosen windows and
            the spec gives no rows.
    """
    workload, protocol = workload_of(spec.setup, trace), spec.protocol
    if protocol.lead_in is None or protocol.scored is None or protocol.tail is None:
        raise SpecError(
            Problem(
                f"{workload.name} has no chosen windows",
                field="protocol",
                expected="lead_in, scored and tail: how many rows are offered",
            )
        )
    band = Band(0, HIGHEST_URPS + 1, protocol.lead_in, protocol.scored, protocol.tail)
    return Windows(workload, (band,), chosen=False)
