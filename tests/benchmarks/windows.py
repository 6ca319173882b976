"""How far boundaries on the chosen windows are from the long run, of engines outside the panel.

In the band of 4 to 8 requests/s. Outside are the shapes of the panel at other places of the band,
and engines that none of its families are: noise on each step, stalls, pauses, drift, and a cost of
the batch that is not linear. Beside the chosen windows as many that are merely long enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numba
import numpy as np

from tokenwatt_site.choosing import (
    PANEL,
    SLO,
    WORKLOAD,
    Needs,
    beginning_of,
    edges_of,
    scaled,
)
from tokenwatt_site.engine_model.load import Load, Played, counts
from tokenwatt_site.windows import Band, Windows, long_run, window, windows_of

LOW_URPS, HIGH_URPS = 4_000_000, 8_000_000
UNCHOSEN = 48
PLACES = (Fraction(1, 6), Fraction(1, 2), Fraction(5, 6))

Boundary = Callable[[Load, float], float]
"""Load and a rate near the boundary, in requests/s -> the boundary."""


@dataclass(frozen=True)
class Rich:
    """A server with chunked prefill and more than the engine model knows of. Times in ms."""

    name: str
    base: float = 8.0
    sequence: float = 0.28
    prompt: float = 0.012
    power: float = 1.0
    noise: float = 0.05
    stalls: float = 0.0
    pause_every: float = 0.0
    pause: float = 0.0
    drift: float = 0.0

    def holds(self, load: Load, rate: float) -> bool:
        due = load.due_ns(round(rate * 1e6))
        prices = np.array(
            [
                self.base,
                self.sequence,
                self.prompt,
                self.power,
                self.noise,
                self.stalls,
                self.pause_every,
                self.pause,
                self.drift,
            ]
        )
        first, last = _served(due / 1e6, load.n_in, load.n_out, prices)
        as_ns = [np.round(times * 1e6).astype(np.int64) for times in (first, last)]
        found = counts(SLO, Played(due, *as_ns, 0), load.n_out, load.scored)
        return all(count.passes(o) for count, o in zip(found, SLO, strict=True))

    def boundary(self, load: Load, near: float) -> float:
        low = high = near
        while not self.holds(load, low):
            low /= 1.04
        while self.holds(load, high):
            high *= 1.04
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.holds(load, middle) else (low, middle)
        return math.sqrt(low * high)


RICH = (
    Rich("noise"),
    Rich("stalls", stalls=0.005),
    Rich("pauses", pause_every=60_000, pause=1500),
    Rich("drift", drift=0.08),
    Rich("batch_cost_to_1.3", base=10, sequence=0.08, power=1.3),
)


@numba.njit(cache=True)
def _served(due, n_in, n_out, prices):  # noqa: C901 - a step, from admission to its end
    """Return when first and last tokens come, in ms; budget 8,192, batches of up to 1,024."""
    base, sequence, prompt, power, noise, stalls, every, pause, drift = prices
    np.random.seed(1)
    n = len(due)
    first, last = np.zeros(n), np.zeros(n)
    running = np.zeros(1024, np.int64)
    left = np.zeros(1024, np.int64)
    batch = head = 0
    todo = n_in[0]
    now, next_pause = due[0], due[0] + every
    while head < n or batch > 0:
        if batch == 0 and due[head] > now:
            now = due[head]
        decoding, room, taken, joined = batch, 8192 - batch, 0, 0
        while head + joined < n and due[head + joined] <= now and room > 0:
            if batch + joined == 1024:
                break
            part = min(room, todo)
            taken, room, todo = taken + part, room - part, todo - part
            if todo > 0:
                break
            joined += 1
            todo = n_in[head + joined] if head + joined < n else 0
        time = base + prompt * taken + sequence * decoding**power
        time *= math.exp(noise * np.random.randn()) * (1 + drift * math.sin(now / 900_000 * 6.2832))
        if np.random.random() < stalls:
            time += 150
        if every > 0 and now > next_pause:
            time, next_pause = time + pause, now + every
        now += time
        kept = 0
        for k in range(decoding):
            if left[k] == 1:
                last[running[k]] = now
            else:
                running[kept], left[kept] = running[k], left[k] - 1
                kept += 1
        batch = kept
        for _ in range(joined):
            first[head] = last[head] = now
            if n_out[head] > 1:
                running[batch], left[batch] = head, n_out[head] - 1
                batch += 1
            head += 1
    return first, last


def outside(band: Band, run: Load) -> Iterator[tuple[str, Boundary, float]]:
    """Yield name, boundary on a load, and boundary in the long run of engines."""
    for shape in PANEL:
        for place in PLACES:
            if place != shape.place:
                engine = scaled(replace(shape, place=place), band, run)

                def found(load: Load, near: float, model=engine.model) -> float:
                    return edges_of(model, load, round(near * 1e6)).boundary_urps / 1e6

                yield "other_places", found, engine.boundary_urps / 1e6
    for rich in RICH:
        near = rich.boundary(beginning_of(run), 5.6)
        yield rich.name, rich.boundary, rich.boundary(run, near)


def unchosen(band: Band) -> list[Load]:
    """Return windows that are long enough, from rows beyond those of the choice."""
    needs, found, first_row = Needs.of(WORKLOAD), [], 50_000_000
    while len(found) < UNCHOSEN:
        load = Load.of(window(WORKLOAD, 1, band, first_row))
        first_row += band.rows
        if needs.met_by(load, band):
            found.append(load)
    return found


def run(windows: Windows | None = None) -> dict[str, float]:
    """Return mean and spread of ln(boundary on a window / in the long run), in percent."""
    band = (windows or _chosen()).band_from(LOW_URPS)
    assert band is not None
    long_load = Load.of(long_run(WORKLOAD))
    loads = {
        "chosen": [
            Load.of(window(WORKLOAD, repeat, band, first_row))
            for repeat, first_row in enumerate(band.first_rows, 1)
        ],
        "unchosen": unchosen(band),
    }
    offs: dict[tuple[str, str], list[Sequence[float]]] = {}
    for name, boundary, truth in outside(band, long_load):
        for kind, some in loads.items():
            off = [100 * math.log(boundary(load, truth) / truth) for load in some]
            offs.setdefault((kind, name), []).append(off)
    figures = {}
    for (kind, name), found in offs.items():
        biases = [float(np.mean(off)) for off in found]
        figures[f"{kind}_abs_bias_pct_{name}"] = round(float(np.mean(np.abs(biases))), 2)
        figures[f"{kind}_worst_bias_pct_{name}"] = round(max(biases, key=abs), 2)
        figures[f"{kind}_spread_pct_{name}"] = round(
            math.sqrt(np.mean([np.var(off, ddof=1) for off in found])), 2
        )
    return figures


def _chosen() -> Windows:
    from tests.test_windows import without_rows

    return windows_of(without_rows())
