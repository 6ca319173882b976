"""What simulated boards draw, so that the joules of what they served are known.

A board draws its idle power, and of what is left up to its limit one share for as long as memory
moves at full rate and another for as long as arithmetic runs at full rate, never more than the
limit; a step takes no longer for it. The shares are our assumption, none of a data sheet: those of
`H200` give an 8B model's decoding in full batches some 260 W of 700, and its prefill some 640 W.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tokenwatt_site.simulate.engine import Step

_PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class PowerModel:
    """One board: milliwatts without work, its limit, and the shares in 1e-6 of what is between."""

    idle_mw: int
    limit_mw: int
    memory_ppm: int = 300_000
    compute_ppm: int = 900_000

    def step_mw(self, step: Step) -> int:
        """Return what the board draws all through a step."""
        busy = self.memory_ppm * step.moving_ns + self.compute_ppm * step.computing_ns
        above_mw = (self.limit_mw - self.idle_mw) * busy // (_PPM * (step.end_ns - step.start_ns))
        return min(self.limit_mw, self.idle_mw + above_mw)


H200 = PowerModel(idle_mw=115_000, limit_mw=700_000)
"""Idle: an H200 in P0 without a process, as NVIDIA/cuda-samples#311 tells."""


class Draw:
    """What one board drew from time 0 on, idle between steps, and how long its memory was busy."""

    def __init__(self, model: PowerModel) -> None:
        self._model = model
        # From each time on until the next: total so far, and how it grows.
        self._times_ns = [0]
        self._energies = [0]
        self._powers_mw = [model.idle_mw]
        self._busy_ns = [0]
        self._busy_in = [(0, 1)]

    def add(self, step: Step) -> None:
        """Take the next step; steps come in order of time."""
        self._begin(step.start_ns, self._model.step_mw(step))
        self._busy_in[-1] = (step.moving_ns, step.end_ns - step.start_ns)
        self._begin(step.end_ns, self._model.idle_mw)

    def energy_mw_ns(self, at_ns: int) -> int:
        """Return the energy from time 0 to `at_ns`, exactly: 1 mW ns is 1e-12 J."""
        n = self._before(at_ns)
        return self._energies[n] + self._powers_mw[n] * (at_ns - self._times_ns[n])

    def busy_ns(self, at_ns: int) -> int:
        """Return for how long the memory was in use at full rate from time 0 to `at_ns`."""
        n = self._before(at_ns)
        moving_ns, length_ns = self._busy_in[n]
        return self._busy_ns[n] + moving_ns * (at_ns - self._times_ns[n]) // length_ns

    def joules(self, start_ns: int, end_ns: int) -> float:
        return (self.energy_mw_ns(end_ns) - self.energy_mw_ns(start_ns)) / 1e12

    def _begin(self, at_ns: int, power_mw: int) -> None:
        energy, busy_ns = self.energy_mw_ns(at_ns), self.busy_ns(at_ns)
        self._times_ns.append(at_ns)
        self._energies.append(energy)
        self._powers_mw.append(power_mw)
        self._busy_ns.append(busy_ns)
        self._busy_in.append((0, 1))

    def _before(self, at_ns: int) -> int:
        return bisect_right(self._times_ns, at_ns) - 1
