"""Which meters a spec asks for, opened, or the reason why one cannot be.

The instruments of `setup.power.sensor` carry the published energy; they are the primary ones. They
are read whole or not at all: where one of several nodes is missing, the sum would be too small.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from types import MappingProxyType

from tokenwatt_site.errors import EnvironmentProblem, Problem, ReadBackError, UsageError
from tokenwatt_site.evidence.power import Board, PowerSample, is_masked
from tokenwatt_site.measure.credential import Login
from tokenwatt_site.measure.power.amd import AmdMeter
from tokenwatt_site.measure.power.dcgm import DcgmMeter
from tokenwatt_site.measure.power.meter import PowerMeter
from tokenwatt_site.measure.power.nvml import open_meter
from tokenwatt_site.measure.power.rapl import RaplMeter
from tokenwatt_site.measure.power.redfish import RedfishMeter
from tokenwatt_site.meters import GPU_SCOPES, Instrument, PowerSensor
from tokenwatt_site.spec import Spec

OPENING_S = 60.0
"""How long an instrument may take to open: a driver may hang for good where a board is broken, and
a management controller may be asked four times, each for 10 s."""


@dataclass(frozen=True, slots=True)
class Boards:
    """By what the boards of an engine are told from others on the machine.

    Attributes:
        named: by the user, as UUIDs or beginnings of UUIDs.
        pids: processes of the engine; empty where they are not known.
        environment: variables of the engine, such as CUDA_VISIBLE_DEVICES.
        final: whether the engine runs. Before it does, its boards may not be told from others, and
            that is no fault yet.
    """

    named: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    final: bool = False


@dataclass(frozen=True, slots=True)
class OpenedMeters:
    """What was opened, and why the rest was not.

    Attributes:
        primary: of `setup.power.sensor`; empty where one of them could not be opened.
        reason: why `primary` is empty.
        beside: all others, by their place in `spec.instruments`, from 1.
        reasons: of `spec.instruments`, in order; None where one was opened.
    """

    primary: tuple[PowerMeter, ...]
    reason: str | None
    beside: tuple[tuple[int, PowerMeter], ...]
    reasons: tuple[str | None, ...]

    def as_begun(self, reason: str | None, reasons: Sequence[str | None]) -> OpenedMeters:
        """Return what was opened at the beginning of the run too; the rest is closed.

        A run says once what it covers, and that is of all its launches.

        Args:
            reason: why there was no power then.
            reasons: why each of `spec.instruments` was not opened then.

        Raises:
            EnvironmentProblem: what was opened then cannot be opened now; all is closed.
        """
        lost = [] if reason or not self.reason else [self.reason]
        lost += [now for then, now in zip(reasons, self.reasons, strict=True) if now and not then]
        if lost:
            self.close()
            raise EnvironmentProblem(
                *(
                    Problem(
                        "was read when this measurement was begun, and cannot be now",
                        field="instruments",
                        found=text,
                        remedy="Mend it, or start a new measurement.",
                    )
                    for text in dict.fromkeys(lost)
                )
            )
        kept = replace(
            self,
            primary=() if reason else self.primary,
            reason=reason,
            beside=tuple(item for item in self.beside if not reasons[item[0] - 1]),
            reasons=tuple(reasons),
        )
        for meter in self.meters:
            if meter not in kept.meters:
                meter.close()
        return kept

    @property
    def meters(self) -> tuple[PowerMeter, ...]:
        return (*self.primary, *(meter for _, meter in self.beside))

    def close(self) -> None:
        for meter in self.meters:
            meter.close()


def open_meters(spec: Spec, boards: Boards) -> OpenedMeters:
    """Open every meter that `spec` asks for.

    Raises:
        UsageError: the variable of a user or password is not set, or a named board is not there.
        ReadBackError: the boards of the engine cannot be told from others, or an exporter asks
            another sensor than the spec names.
    """
    sensor = spec.setup.power.sensor
    listed = dict(enumerate(spec.instruments, 1))
    own = {number: item for number, item in listed.items() if item.sensor == sensor}
    if sensor != "none" and not own:
        own = {0: Instrument.model_validate({"sensor": sensor})}
    with ExitStack() as closing:
        meters: dict[int, PowerMeter] = {}
        reasons: dict[int, str] = {}
        for number, instrument in (own | listed).items():
            opened = _opened(instrument, spec.setup.accelerator.count, boards)
            if isinstance(opened, str):
                reasons[number] = opened
            elif opened is not None:
                meters[number] = opened
                closing.callback(opened.close)
        primary = tuple(meters.pop(number) for number in own if number in meters)
        # NVML finds its own: it knows shares of boards and the engine's processes too.
        local = any(item.sensor == "nvml" and item.url is None for item in own.values())
        if boards.named and spec.setup.power.scope in GPU_SCOPES and not local:
            primary = _only_named(primary, boards.named)
        closing.pop_all()
    missing = [_told(own[number], reason) for number, reason in reasons.items() if number in own]
    if not missing and _told_twice(primary):
        missing = ["boards of several exporters cannot be told apart: their UUIDs are masked"]
    if missing:
        for meter in primary:
            meter.close()
    if sensor == "none":
        missing = ["the spec names no power sensor"]
    return OpenedMeters(
        primary=() if missing else primary,
        reason="; ".join(missing) or None,
        beside=tuple((n, _as_primary(meter, primary)) for n, meter in sorted(meters.items())),
        reasons=tuple(
            reasons.get(number, _WHOLE if missing and number in own else None) for number in listed
        ),
    )


_WHOLE = "another instrument of its sensor cannot be read, and a part is no sum"


def _told(instrument: Instrument, reason: str) -> str:
    return f"{instrument.url}: {reason}" if instrument.url else reason


def _exporter(instrument: Instrument) -> PowerMeter:
    """Open an exporter.

    Raises:
        ReadBackError: it asks another sensor than the spec names, which is identity.
    """
    meter = DcgmMeter(instrument.url or "")
    if meter.sensor != instrument.sensor:
        raise ReadBackError(
            Problem(
                f"is not what {meter.exporter} asks, which answers at {instrument.url}",
                field="instruments.sensor",
                found=f"{meter.sensor} (observed)",
                expected=f"{instrument.sensor} (declared)",
                remedy=f"Write sensor: {meter.sensor} beside its url, and in setup.power where it"
                " carries the published energy.",
            )
        )
    return meter


def _nvml(instrument: Instrument, count: int, boards: Boards) -> PowerMeter | str:
    if instrument.url is not None:
        return _exporter(instrument)
    return open_meter(
        "nvml",
        count,
        named=boards.named,
        pids=frozenset(boards.pids),
        environment=boards.environment,
    )


def _redfish(instrument: Instrument, _: int, __: Boards) -> PowerMeter:
    login = None
    if instrument.user_variable is not None and instrument.password_variable is not None:
        login = Login(instrument.user_variable, instrument.password_variable)
        login.header()  # raises before anything is begun
    return RedfishMeter(instrument.url or "", login)


_OPENERS: Mapping[str, Callable[[Instrument, int, Boards], PowerMeter | str]] = MappingProxyType(
    {
        "nvml": _nvml,
        "dcgm": lambda instrument, *_: _exporter(instrument),
        "amd": lambda instrument, *_: _exporter(instrument) if instrument.url else AmdMeter(),
        "rapl": lambda *_: RaplMeter(),
        "redfish": _redfish,
    }
)
"""By sensor, what gives a meter or the reason for none; it may also raise EnvironmentProblem."""


def _opened(instrument: Instrument, count: int, boards: Boards) -> PowerMeter | str | None:
    """Return the meter, the reason that is published, or None: it can be told later."""
    try:
        opener = partial(_OPENERS[instrument.sensor], instrument, count, boards)
        opened = _in_time(opener, instrument.sensor)
    except ReadBackError:
        if boards.final or boards.named:
            raise
        return None
    except EnvironmentProblem as error:
        opened = str(error)
    # It stands within sentences: a remedy ends with a point of its own.
    return opened.removesuffix(".") if isinstance(opened, str) else opened


def _in_time(opener: Callable[[], PowerMeter | str], sensor: PowerSensor) -> PowerMeter | str:
    """Return what `opener` gives, or the reason that it hangs; its thread is then left behind."""
    answers: SimpleQueue[PowerMeter | str | BaseException] = SimpleQueue()

    def answer() -> None:
        try:
            answers.put(opener())
        except BaseException as error:  # noqa: BLE001  # raised again below
            answers.put(error)

    threading.Thread(target=answer, name="opens an instrument", daemon=True).start()
    try:
        opened = answers.get(timeout=OPENING_S)
    except Empty:
        return f"{sensor} does not answer within {OPENING_S:g} s"
    if isinstance(opened, BaseException):
        raise opened
    return opened


class SomeBoards:
    """Some boards of a meter, as a meter of their own."""

    def __init__(self, meter: PowerMeter, chosen: Mapping[int, str]) -> None:
        """Leave the boards of `meter` at these places; `chosen` says how each came to be one."""
        self._meter = meter
        self._place = {old: new for new, old in enumerate(chosen)}
        every = meter.boards()
        self._boards = tuple(
            every[old].model_copy(update={"chosen": how}) for old, how in chosen.items()
        )
        self.sensor, self.scope = meter.sensor, meter.scope
        self.driver, self.averaging_ns = meter.driver, meter.averaging_ns

    def boards(self) -> tuple[Board, ...]:
        return self._boards

    @property
    def notes(self) -> tuple[str, ...]:
        return self._meter.notes

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        return tuple(
            replace(sample, board=self._place[sample.board])
            for sample in self._meter.read(now_ns)
            if sample.board in self._place
        )

    def close(self) -> None:
        self._meter.close()


def _only_named(meters: Sequence[PowerMeter], named: Sequence[str]) -> tuple[PowerMeter, ...]:
    """Leave the boards that are named by their UUID or its beginning; a meter without one closes.

    Raises:
        UsageError: a name fits no board, or several.
    """
    uuids = {board.uuid for meter in meters for board in meter.boards()}
    for name in named:
        fits = sorted(uuid for uuid in uuids if _is_named(uuid, (name,)))
        if meters and len(fits) != 1:
            what = "fits several boards" if fits else "names no board"
            raise UsageError(
                Problem(
                    f"{what} of the instruments",
                    field="--gpus",
                    found=name,
                    expected=f"one of {', '.join(fits or sorted(uuids))}",
                )
            )
    kept: list[PowerMeter] = []
    for meter in meters:
        uuids_here = [board.uuid for board in meter.boards()]
        places = [place for place, uuid in enumerate(uuids_here) if _is_named(uuid, named)]
        if not places:
            meter.close()
        else:
            kept.append(SomeBoards(meter, dict.fromkeys(places, "by name")))
    return tuple(kept)


def _told_twice(meters: Sequence[PowerMeter]) -> bool:
    """Tell whether two meters have boards of one masked UUID: the same ones, or others?"""
    masked = Counter(
        uuid for one in meters for uuid in {board.uuid for board in one.boards()} if is_masked(uuid)
    )
    return any(times > 1 for times in masked.values())


def _as_primary(meter: PowerMeter, primary: Sequence[PowerMeter]) -> PowerMeter:
    """Leave the boards of the primary meters, where another instrument tells of these too.

    So both are of the same boards, and their energies can be held against each other.
    """
    how = {board.uuid: board.chosen for one in primary for board in one.boards()}
    boards = meter.boards()
    chosen = {n: how[board.uuid] for n, board in enumerate(boards) if board.uuid in how}
    return SomeBoards(meter, chosen) if 0 < len(chosen) < len(boards) else meter


def _is_named(uuid: str, named: Sequence[str]) -> bool:
    return any(uuid.casefold().startswith(name.casefold()) for name in named)
