"""All that is read beside the load during one launch: meters, and the engine's own counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from tokenwatt_site.energy.idle import MIN_IDLE_S
from tokenwatt_site.errors import EngineError
from tokenwatt_site.evidence.engine import COUNTERS, EngineLog, EngineSample
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.measure.clock import Clock
from tokenwatt_site.measure.control import request
from tokenwatt_site.measure.counters import Counters
from tokenwatt_site.measure.power import MAX_RATE_HZ, OpenedMeters, PowerMeter
from tokenwatt_site.measure.sampling import PowerSource, Sampler
from tokenwatt_site.spec import Spec

FIRST_READING_S = 15.0
"""How long a launch waits for the first reading of every instrument."""

LAST_READING_S = 25.0
"""How long it waits for the last ones; what hangs then has ended its log before. A management
controller may take 10 s for a reading, and one may be under way."""

SETTLE_S = 2
"""From the last request to the idle time: watts that are the mean of a second have forgotten it."""

IDLE_S = MIN_IDLE_S
"""How long an idle engine is read; longer where meters are read less than once in 5 s."""

OUTLAST_S = 1
"""From the end of the idle time to the next step, which may be the last reading: watts that are the
mean of a second count for its middle, so that a reading at the very end would not enclose it."""

REST_S = 30
"""How long the engine may work on what nobody waits for any more, before it counts as idle."""

_ASK_S = 5.0


class EngineSource:
    """The engine's /metrics as a source.

    Its text is kept as it comes and parsed between trials: parsing takes milliseconds of the
    interpreter, for which the client would have to wait. A counter that falls is an engine that
    started anew: the log of a launch ends before.

    Attributes:
        restarted: whether that was seen, in what was parsed so far.
    """

    def __init__(self, ask: Callable[[], bytes], counters: Counters) -> None:
        self._ask, self._counters = ask, counters
        self._unread: list[tuple[int, bytes | None]] = []
        self._samples: list[EngineSample] = []
        self._highest: dict[str, int] = {}
        self.restarted = False

    def read(self, now_ns: Callable[[], int]) -> None:
        asked_ns = now_ns()
        text = None
        with suppress(EngineError):  # the gap shows
            text = self._ask()
        self._unread.append(((asked_ns + now_ns()) // 2, text))

    def begin(self, now_ns: Callable[[], int]) -> None:
        """Do nothing: counters span any two readings."""

    def end(self, now_ns: Callable[[], int], *, keep: bool) -> None:
        """Do nothing, as `begin`."""

    def close(self) -> None:
        """Do nothing: every question has a connection of its own."""

    def log(self) -> EngineLog:
        """Return all that was read so far."""
        while self._unread:
            at_ns, text = self._unread.pop(0)
            sample = self._counters.read(text, at_ns)
            self.restarted = self.restarted or self._fell(sample)
            if not self.restarted:
                self._samples.append(sample)
        names = {str(column): name for column, name in self._counters.names.items()}
        return EngineLog(names, tuple(self._samples))

    def _fell(self, sample: EngineSample) -> bool:
        told = {name: getattr(sample, name) for name in COUNTERS}
        known = {name: value for name, value in told.items() if value is not None}
        fell = any(value < self._highest.get(name, 0) for name, value in known.items())
        self._highest |= known
        return fell


def engine_source(url: str, api_key_variable: str | None) -> EngineSource | None:
    """Return the counters of the engine at `url`; None where it exports none that are known."""

    def ask() -> bytes:
        answer = request(f"{url}/metrics", deadline_s=_ASK_S, api_key_variable=api_key_variable)
        if answer.status != 200:
            raise EngineError(f"/metrics answers {answer.status}")
        return answer.body

    try:
        counters = Counters.of(ask())
    except EngineError:
        return None
    return None if counters is None else EngineSource(ask, counters)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was read during a launch; `beside` by its place in `spec.instruments`, from 1."""

    power: PowerLog | None
    beside: tuple[tuple[int, PowerLog], ...]
    engine: EngineLog | None


class Instruments:
    """The samplers of one launch, each in a thread of its own.

    Attributes:
        primary: the meters of `setup.power.sensor`.
        boards: of these, each once.
        period_ns: from one reading of a meter to the next.
    """

    def __init__(
        self, spec: Spec, meters: OpenedMeters, engine: EngineSource | None, clock: Clock
    ) -> None:
        rate_hz = min(spec.setup.power.rate_hz or MAX_RATE_HZ, MAX_RATE_HZ)
        self.period_ns = round(1e9 / rate_hz)
        self.primary = meters.primary
        self.boards = merged_boards(meters.primary)
        self._own = tuple(PowerSource(meter) for meter in meters.primary)
        self._beside = tuple((n, PowerSource(meter)) for n, meter in meters.beside)
        self._engine, self._clock = engine, clock
        self._meters, self._started = meters, False
        self._named: list[tuple[str, PowerSource]] = [
            (s.meter.sensor if n == 1 else f"{s.meter.sensor}, node {n}", s)
            for n, s in enumerate(self._own, 1)
        ]
        self._named += [(f"instrument {n}, {s.meter.sensor}", s) for n, s in self._beside]
        self._samplers = [
            Sampler(source, self.period_ns, clock, name) for name, source in self._named
        ]
        if engine is not None:
            period_ns = round(1e9 / MAX_RATE_HZ)
            self._samplers.append(Sampler(engine, period_ns, clock, "the engine's counters"))

    @property
    def notes(self) -> list[str]:
        """What the meters did not take so far, and why."""
        return [f"{name}: {note}" for name, source in self._named for note in source.meter.notes]

    @property
    def read_within_ns(self) -> list[int]:
        """How long asking for a reading took at most, of each of several nodes; empty: of one."""
        return [source.longest_ns for source in self._own] if len(self._own) > 1 else []

    @property
    def has_power(self) -> bool:
        return bool(self._own or self._beside)

    @contextmanager
    def running(self, lost: Callable[[list[str]], None]) -> Iterator[None]:
        """Read from here to the end; `lost` is told which of them hang and cannot end."""
        self._started = True
        for sampler in self._samplers:
            sampler.start()
        try:
            self._within(FIRST_READING_S, Sampler.await_first)
            yield
        finally:
            for sampler in self._samplers:
                sampler.ask_to_stop()
            if hung := self._within(LAST_READING_S, Sampler.join):
                lost(hung)

    def close(self) -> None:
        """Release the meters, where `running` did not: it does so itself."""
        if not self._started:
            self._meters.close()

    def _within(self, limit_s: float, done: Callable[[Sampler, float], bool]) -> list[str]:
        """Wait for all samplers together; return the names of those that are not done."""
        end_ns = self._clock.now_ns() + round(limit_s * 1e9)
        return [
            sampler.name
            for sampler in self._samplers
            if not done(sampler, max(0, end_ns - self._clock.now_ns()) / 1e9)
        ]

    def window(self, start_ns: int, end_ns: int) -> None:
        """Read at both edges of a scored window too."""
        for sampler in self._samplers:
            sampler.window(start_ns, end_ns)

    def no_window(self) -> None:
        """Let the trial be over, also where its window is not."""
        for sampler in self._samplers:
            sampler.no_window()
        if self._engine is not None:
            self._engine.log()  # no load runs: the time to parse

    def busy(self) -> bool:
        """Tell whether the engine's counters said at last that it has requests."""
        samples = self._engine.log().samples if self._engine is not None else ()
        return bool(samples and (samples[-1].running or samples[-1].waiting))

    def restarted(self) -> bool:
        """Tell whether the engine's counters showed that it was started again in this launch."""
        if self._engine is None:
            return False
        self._engine.log()
        return self._engine.restarted

    def idle(self) -> tuple[int, int] | None:
        """Wait for the engine to rest, then read it so; return when it did, None: it does not."""
        for _ in range(REST_S):
            if not self.busy():
                break
            self._clock.pause(1)
        else:
            return None
        self._clock.pause(SETTLE_S)
        start_ns = self._clock.now_ns()
        self._clock.pause(max(IDLE_S, 2 * self.period_ns / 1e9))
        end_ns = self._clock.now_ns()
        self._clock.pause(OUTLAST_S)
        return start_ns, end_ns

    def recorded(self) -> Recorded:
        """Return what was read so far."""
        return Recorded(
            power=_log(self._own, self.period_ns) if self._own else None,
            beside=tuple((n, _log((source,), self.period_ns)) for n, source in self._beside),
            engine=self._engine.log() if self._engine is not None else None,
        )


def merged_boards(meters: Sequence[PowerMeter]) -> tuple[Board, ...]:
    """Return the boards of several meters in order; one that two of them tell of counts once."""
    boards: dict[str, Board] = {}
    for node, meter in enumerate(meters, 1):
        told = {"node": node} if len(meters) > 1 else {}
        for board in meter.boards():
            boards.setdefault(board.uuid, board.model_copy(update=told))
    return tuple(boards.values())


def _log(sources: Sequence[PowerSource], period_ns: int) -> PowerLog:
    """Join meters of one sensor and scope; what a second meter says of a board is left out."""
    boards = merged_boards([source.meter for source in sources])
    place = {board.uuid: number for number, board in enumerate(boards)}
    told: set[str] = set()
    samples, spans = [], []
    for source in sources:
        uuids = [board.uuid for board in source.meter.boards()]
        own = {old: place[uuid] for old, uuid in enumerate(uuids) if uuid not in told}
        told.update(uuids)
        # Copies: a source that hangs may still add to its own.
        samples += [replace(s, board=own[s.board]) for s in tuple(source.samples) if s.board in own]
        spans += [
            span.model_copy(update={"board": own[span.board]})
            for span in tuple(source.spans)
            if span.board in own
        ]
    first = sources[0].meter
    averaging = {source.meter.averaging_ns for source in sources}
    return PowerLog(
        sensor=first.sensor,
        scope=first.scope,
        period_ns=period_ns,
        averaging_ns=averaging.pop() if len(averaging) == 1 else None,
        boards=boards,
        samples=tuple(sorted(samples, key=_by_time)),
        spans=tuple(spans),
    )


def _by_time(sample: PowerSample) -> int:
    return sample.at_ns
