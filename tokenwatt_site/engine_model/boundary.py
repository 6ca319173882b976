"""Where a modelled engine passes an SLO, and where it no longer does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokenwatt_site.engine_model.load import Load, holds
from tokenwatt_site.engine_model.model import EngineModel
from tokenwatt_site.spec import HIGHEST_URPS, Objective

EDGE_PPM = 500
"""How far apart the rates on both sides of a boundary may be, in 1e-6 of the lower one."""

_FIRST_STEP = 1.01


class Edges(NamedTuple):
    """A rate that passes and one just above it that fails, in 1e-6 requests/s."""

    pass_urps: int
    fail_urps: int

    @property
    def boundary_urps(self) -> int:
        """The geometric mean of both."""
        return math.isqrt(self.pass_urps * self.fail_urps)

    @property
    def adjacent(self) -> bool:
        """Whether no rate worth telling apart lies between them."""
        distance = self.fail_urps - self.pass_urps
        return 0 < distance <= max(1, self.pass_urps * EDGE_PPM // 1_000_000)


def find_edges(
    model: EngineModel, load: Load, slo: Sequence[Objective], near_urps: int
) -> Edges | None:
    """Find the boundary of a modelled engine nearest to a rate.

    Returns None where it passes at every rate, or at none.
    """
    return edges_of(lambda rate_urps: holds(model, load, rate_urps, slo), near_urps)


def edges_of(passes: Callable[[int], bool], near_urps: int) -> Edges | None:
    """Find where something no longer passes.

    Steps out from `near_urps`, each step the square of the one before, then bisects on log rate.
    Returns None where it passes at every rate, or at none.
    """
    low = high = min(max(near_urps, 1), HIGHEST_URPS)
    step = _FIRST_STEP
    if passes(low):
        while passes(high):
            if high == HIGHEST_URPS:
                return None
            low, high, step = high, min(math.ceil(high * step), HIGHEST_URPS), min(step * step, 2.0)
    else:
        while not passes(low):
            if low == 1:
                return None
            low, high, step = max(math.floor(low / step), 1), low, min(step * step, 2.0)
    while not (edges := Edges(low, high)).adjacent:
        middle = min(max(edges.boundary_urps, low + 1), high - 1)
        if passes(middle):
            low = middle
        else:
            high = middle
    return edges


def shows(edges: Edges, model: EngineModel, load: Load, slo: Sequence[Objective]) -> bool:
    """Tell whether stated edges are a boundary of a modelled engine: adjacent, pass, fail."""
    return (
        edges.adjacent
        and holds(model, load, edges.pass_urps, slo)
        and not holds(model, load, edges.fail_urps, slo)
    )
