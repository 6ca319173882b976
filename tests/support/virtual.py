"""Whole measurements in virtual time, against engines that are known and no family of the model.

An engine here is written on its own, in floats and with luck: steps of noisy length, a batch whose
cost is not linear, rare stalls, periodic pauses, a drift with the clock, launches that differ,
sequences that are put back where the cache is full, replicas that take turns. What is measured
goes the way of a real run: `RepeatSearch` says what to offer, `fitting` fits, and the claims of
the long run are those of the package.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numba
import numpy as np

from tests.support.runs import answered_whole, times_of
from tokenwatt_site.claims.long_run import LongRunClaims, long_run_claims
from tokenwatt_site.engine_model.boundary import edges_of
from tokenwatt_site.engine_model.load import Load, Played, counts
from tokenwatt_site.engine_model.long_run import long_load
from tokenwatt_site.engine_model.steps import Ints
from tokenwatt_site.goodput import decide
from tokenwatt_site.measure import fitting
from tokenwatt_site.measure.search import Done, Offer, RepeatSearch
from tokenwatt_site.run import RepeatClaim, SelfTest
from tokenwatt_site.spec import Objective, Spec
from tokenwatt_site.trials import Evidence, Trial
from tokenwatt_site.windows import Band, Windows

BETWEEN_TRIALS_S = 20.0
"""For the engine to run empty, and what is around a trial."""

BETWEEN_REPEATS_S = 600.0
"""A launch, warm-up and the steady windows."""

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Engine:
    """A virtual engine; times in s, of one step unless they say otherwise.

    A step takes (base + sequence x batch^power + prompt x tokens + context x tokens) times
    exp(noise x normal). With probability `stall` it takes `stall_s` more. Every `pause_every_s` of
    the clock it takes `pause_s` more. `drift` is by how much steps are longer after an hour of the
    run's clock.
    """

    base: float
    sequence: float
    prompt: float
    context: float = 0.0
    power: float = 1.0
    noise: float = 0.05
    stall: float = 0.0
    stall_s: float = 0.15
    pause_every_s: float = 0.0
    pause_s: float = 0.0
    drift: float = 0.0
    budget: int = 8192
    cap: int = 1 << 20
    kv: int = 0
    prefill_first: bool = False
    shortest_first: bool = False
    replicas: int = 1

    def play(
        self, load: Load, rate_urps: int, seed: int, *, pace: float = 1.0, clock_s: float = 0.0
    ) -> Played:
        """Answer a load; `pace` is the launch's own, which all its steps are longer by."""
        due = load.due_ns(rate_urps)
        first, last = np.empty_like(due), np.empty_like(due)
        put_back = 0
        for r in range(self.replicas):
            mine = slice(r, None, self.replicas)
            first[mine], last[mine], back = _serve(
                np.ascontiguousarray(due[mine]),
                np.ascontiguousarray(load.n_in[mine]),
                np.ascontiguousarray(load.n_out[mine]),
                np.array(
                    [
                        *(self.base, self.sequence, self.prompt, self.context, self.power),
                        *(self.noise, self.stall, self.stall_s, self.pause_every_s, self.pause_s),
                        *(self.drift, pace, clock_s),
                    ]
                ),
                np.array(
                    [self.budget, self.cap, self.kv, self.prefill_first, self.shortest_first],
                    np.int64,
                ),
                np.random.default_rng(seed * 64 + r),
            )
            put_back += back
        return Played(due, first, last, put_back)

    def holds(
        self,
        load: Load,
        rate_urps: int,
        slo: Sequence[Objective],
        seed: int,
        *,
        pace: float = 1.0,
    ) -> bool:
        found = counts(slo, self.play(load, rate_urps, seed, pace=pace), load.n_out, load.scored)
        return all(count.passes(o) for count, o in zip(found, slo, strict=True))

    def boundary_urps(
        self,
        load: Load,
        slo: Sequence[Objective],
        seed: int,
        near_urps: int,
        *,
        pace: float = 1.0,
    ) -> int:
        """Find where it no longer holds; with the same luck at every rate."""
        edges = edges_of(
            lambda rate_urps: self.holds(load, rate_urps, slo, seed, pace=pace), near_urps
        )
        assert edges is not None
        return edges.boundary_urps


@numba.njit(cache=True)
def _serve(  # noqa: C901, PLR0912, PLR0917 - one loop, as the model's
    due: Ints, n_in: Ints, n_out: Ints, cost: Any, limits: Ints, luck: np.random.Generator
) -> tuple[Ints, Ints, int]:
    base, sequence, prompt_s, context_s, power = cost[0], cost[1], cost[2], cost[3], cost[4]
    noise, stall, stall_s, every, pause = cost[5], cost[6], cost[7], cost[8], cost[9]
    drift, pace, clock = cost[10], cost[11], cost[12]
    budget, cap, kv = limits[0], limits[1], limits[2]
    first_only, shortest = limits[3] == 1, limits[4] == 1
    n = len(due)
    first = np.full(n, -1, np.int64)
    last = np.full(n, -1, np.int64)
    made = np.zeros(n, np.int64)
    todo = n_in.copy()
    queue = np.empty(4 * n + 16, np.int64)  # what waits, from head to tail; put back: at the head
    head = tail = 2 * n
    begun = np.zeros(n, np.int64)  # steps of decoding, when it began to
    end_at = np.full(n, -1, np.int64)
    ends = [(np.int64(0), np.int64(0))]  # a heap, of those put back since too
    ends.pop()
    admitted = [np.int64(0)]  # the newest last, of those ended since too
    admitted.pop()
    decoded = np.int64(0)
    batch = arrived = ended = put_back = 0
    held = 0
    t = 0.0
    pauses = math.floor(clock / every) if every > 0 else 0
    while ended < n:
        while arrived < n and due[arrived] <= round(t * 1e9):
            queue[tail] = arrived
            tail += 1
            if shortest and tail - head > 1:
                # Behind the one whose prompt is begun, shorter prompts overtake longer ones.
                k = tail - 1
                while k > head + 1 and n_in[queue[k - 1]] > n_in[queue[k]]:
                    queue[k - 1], queue[k] = queue[k], queue[k - 1]
                    k -= 1
            arrived += 1
        if batch == 0 and head == tail:
            t = due[arrived] / 1e9
            continue
        fits = True
        while kv > 0 and batch > 1 and held + batch > kv:
            batch -= 1
            j = admitted.pop()
            while last[j] >= 0:
                j = admitted.pop()
            made[j] += decoded - begun[j]
            end_at[j] = -1
            held -= n_in[j] + made[j]
            todo[j] = n_in[j] + made[j]
            head -= 1
            queue[head] = j
            put_back += 1
            fits = False
        prompt = began = 0
        room = budget if first_only else budget - batch
        h = head
        taken_in = 0
        while fits and h < tail and room > 0 and batch + began < cap:
            j = queue[h]
            need = n_in[j] + made[j]
            if kv > 0 and batch + began > 0 and held + taken_in + need + batch > kv:
                break
            x = min(room, todo[j])
            todo[j] -= x
            room -= x
            prompt += x
            if todo[j] > 0:
                break
            taken_in += need
            began += 1
            h += 1
        decodes = batch > 0 and not (first_only and prompt > 0)
        dt = base + prompt_s * prompt
        if decodes:
            dt += sequence * batch**power + context_s * held
        dt *= pace * (1 + drift * (clock + t) / 3600)
        if noise > 0:
            dt *= math.exp(noise * luck.standard_normal())
        if stall > 0 and luck.random() < stall:
            dt += stall_s
        if every > 0 and math.floor((clock + t) / every) > pauses:
            pauses = math.floor((clock + t) / every)
            dt += pause
        t += dt
        now = round(t * 1e9)
        if decodes:
            decoded += 1
            held += batch
            while len(ends) > 0 and ends[0][0] == decoded:
                j = heapq.heappop(ends)[1]
                if end_at[j] == decoded and last[j] < 0:
                    last[j] = now
                    ended += 1
                    batch -= 1
                    held -= n_in[j] + n_out[j]
        while began > 0:
            began -= 1
            j = queue[head]
            head += 1
            made[j] += 1
            if first[j] < 0:
                first[j] = now
            if made[j] == n_out[j]:
                last[j] = now
                ended += 1
            else:
                held += n_in[j] + made[j]
                begun[j] = decoded
                end_at[j] = decoded + n_out[j] - made[j]
                heapq.heappush(ends, (end_at[j], j))
                admitted.append(j)
                batch += 1
    return first, last, put_back


SELF_TEST = SelfTest(
    events_per_s=100_000,
    requests_urps=10**9,
    first_token_error_p99_ns=1_000,
    dispatch_lag_p99_ns=1_000,
    stamps="kernel",
    limited_by="asked",
)


@dataclass
class Measurement:
    """A run in virtual time; `clock_s` is how long it has taken, `engine_s` under load."""

    spec: Spec
    windows: Windows
    engine: Engine
    paces: Sequence[float]
    seed: int
    trials: list[Trial] = field(default_factory=list)
    seen: list[fitting.Seen] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    clock_s: float = 0.0
    engine_s: float = 0.0

    def run(self) -> LongRunClaims:
        """Measure all repeats, fit, and derive what is claimed of the long run."""
        for repeat in range(1, self.spec.protocol.repeats + 1):
            self._repeat(repeat)
        return self._claims()

    def _repeat(self, repeat: int) -> None:
        search = RepeatSearch(
            self.spec.protocol,
            self.windows,
            repeat,
            earlier=self.done,
            ceiling_urps=lambda band: band.highest_urps,
            predict=partial(self._predicted, repeat),
        )
        while (offer := search.next()) is not None:
            trial = self._offered(repeat, offer)
            outcome = decide(trial.judgements(self.spec.setup.slo))
            search.saw(offer, "PASS" if outcome == "PASS" else "FAIL")
        self.done.append(search.done())
        self.clock_s += BETWEEN_REPEATS_S

    def _predicted(self, repeat: int, band: Band, near_urps: int) -> int | None:
        load = Load.of(self.windows.realisation(repeat, band))
        return fitting.predict(self.spec, self.seen, load, near_urps)

    def _offered(self, repeat: int, offer: Offer) -> Trial:
        realisation = self.windows.realisation(repeat, offer.band)
        number = 1 + len(self.trials)
        played = self.engine.play(
            Load.of(realisation),
            offer.rate_urps,
            self.seed * 1000 + number,
            pace=self.paces[repeat - 1],
            clock_s=self.clock_s,
        )
        times = zip(realisation.rows, *times_of(played), strict=True)
        records = tuple(
            answered_whole((repeat, number), index, row, due_ns=due, first_ns=first, last_ns=last)
            for index, (row, due, first, last) in enumerate(times)
        )
        trial = Trial(
            repeat=repeat,
            number=number,
            rate_urps=offer.rate_urps,
            started=(START + timedelta(seconds=self.clock_s)).isoformat(),
            epoch_ns=round(self.clock_s * 1e9),
            engine_alive=True,
            abandoned=False,
            chat_overhead=0,
            stamps="kernel",
            client_cpu_ppm=0,
            clock_step_ns=0,
            self_test=SELF_TEST,
            band=offer.band,
            realisation=realisation,
            due_ns=tuple(played.due_ns.tolist()),
            records=records,
        )
        self.trials.append(trial)
        self.seen.append(fitting.seen_of(trial))
        taken_s = trial.scored_end_ns / 1e9
        self.engine_s += taken_s
        self.clock_s += taken_s + BETWEEN_TRIALS_S
        return trial

    def _claims(self) -> LongRunClaims:
        boundaries = {d.repeat: d.boundary_urps for d in self.done if d.boundary_urps}
        realisations = {
            d.repeat: Load.of(self.windows.realisation(d.repeat, d.band))
            for d in self.done
            if d.band is not None
        }
        fit = fitting.model_fit(
            self.spec,
            self.seen,
            realisations,
            long_load(self.windows),
            boundaries,
        )
        repeats = [
            RepeatClaim(
                repeat=d.repeat,
                band_urps=d.band.low_urps if d.band else 0,
                scored=d.band.scored if d.band else 0,
                highest_pass_urps=d.pass_urps,
                lowest_fail_urps=None,
                boundary_urps=d.boundary_urps,
                window_s=None,
            )
            for d in self.done
        ]
        tops = [
            next(t for t in self.trials if (t.repeat, t.rate_urps) == (d.repeat, d.pass_urps))
            for d in self.done
            if d.boundary_urps is not None
        ]
        evidence = Evidence(journal=(), requests=(), power=None, model_fit=fit)
        return long_run_claims(self.spec, evidence, self.trials, repeats, tops)
