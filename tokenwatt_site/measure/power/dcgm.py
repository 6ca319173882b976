"""GPU boards through an exporter's metrics: DCGM's, and the others whose dialect `exporters` knows.

An exporter asks its boards in its own rhythm (dcgm-exporter: every 30 s, unless told otherwise) and
gives the same text until then. A reading is therefore kept only when it changed since the scrape
before: then it is younger than the time between two scrapes, and its stamp is late by no more. What
was first seen at the start has no known age and is not kept. So the gaps between samples are those
of the exporter, and energy is withheld where they are too wide. An energy counter changes at every
refresh; where there is none, any change shows one.

MBU is not measured here: DCGM's activity of the memory is of its own interval, not of a window, so
it stands in the samples and gives no `DramSpan`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pydantic import ValidationError

from tokenwatt_site.errors import EngineError, EnvironmentProblem, InputError, Problem
from tokenwatt_site.evidence.power import Board, PowerSample
from tokenwatt_site.measure.control import Peer, request
from tokenwatt_site.measure.power.exporters import Exported, Reading, exported
from tokenwatt_site.measure.power.families import FAMILIES
from tokenwatt_site.measure.prometheus import MAX_BYTES, parse
from tokenwatt_site.meters import PowerScope, PowerSensor

_DEADLINE_S = 2.5
"""Longer than an exporter that starts nvidia-smi for each scrape takes; shorter than what two
samples may be apart."""

_EXPORTER = Peer("exporter", "instruments.url", "Start the exporter, or correct its address.")


class ExporterUnavailable(EnvironmentProblem):
    """An exporter cannot be used; its text is the reason that is published."""


class DcgmMeter:
    """Reads the boards of one exporter, in the order of its text; each is known by its UUID.

    Attributes:
        sensor: what the exporter itself asks: `dcgm`; `nvml`, through nvidia-smi; or `amd`.
        scope: what a reading covers; Grace Hopper has readings of its modules alone.
        driver: version of the boards' driver, where it is exported.
        averaging_ns: not known: 1 s on most NVIDIA boards, less on GA100 and older.
        exporter: whose dialect it speaks.
    """

    sensor: PowerSensor
    scope: PowerScope
    driver: str | None
    averaging_ns: int | None = None

    def __init__(self, url: str, *, get: Callable[[str], bytes] | None = None) -> None:
        """Scrape once.

        Args:
            url: of the metrics, such as http://127.0.0.1:9400/metrics.
            get: answers a URL with the body of the answer; the default asks over HTTP.

        Raises:
            ExporterUnavailable: no answer, no board in it, boards that cannot be told apart, or
                a board in MIG mode.
        """
        self._url = url
        self._get = get or _get
        try:
            told = self._scrape()
        except (InputError, ValidationError) as error:
            raise ExporterUnavailable(
                f"what the exporter answers is no metrics: {error}"
            ) from error
        _require_usable(told)
        self.exporter = told.exporter
        self.sensor, self.scope, self.driver = told.sensor, told.scope, told.driver
        self._boards = told.boards
        self._last = _by_uuid(told)
        self._faults = set(told.faults)

    def boards(self) -> tuple[Board, ...]:
        return self._boards

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._faults:
            return ()
        families = ", ".join(sorted(self._faults))
        return (f"{self.exporter} gave values that are no reading, such as 0 W, in {families}",)

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        """Scrape, and return the boards with a new reading; a board that is gone has None.

        A stamp is the middle of the scrape.

        Raises:
            ExporterUnavailable: no answer, or none with boards.
            InputError: the answer is no text, or has no end.
        """
        last, self._last = self._last, {}  # after a scrape that fails nothing has a known age
        asked_ns = now_ns()
        told = self._scrape()
        at_ns = (asked_ns + now_ns()) // 2
        self._faults |= told.faults
        found = _by_uuid(told)
        samples = []
        for place, board in enumerate(self._boards):
            reading = found.get(board.uuid)
            if reading is None:
                samples.append(PowerSample(at_ns, place, None, None))
            elif new := _new(reading, last.get(board.uuid)):
                samples.append(_sample(at_ns, place, new))
        self._last = found
        return tuple(samples)

    def close(self) -> None:
        """Do nothing: every scrape has a connection of its own."""

    def _scrape(self) -> Exported:
        # Under load: what is not read costs the client's thread as much as what is.
        body = self._get(self._url)
        told = exported(parse(body, source="the exporter", names=FAMILIES))
        if told is None:
            raise ExporterUnavailable(
                Problem(
                    "what the exporter answers holds no power of a board",
                    expected="metrics of dcgm-exporter, nvidia_gpu_exporter or"
                    " device-metrics-exporter",
                    remedy="Give the address of the metrics, such as http://host:9400/metrics.",
                )
            )
        return told


def _require_usable(told: Exported) -> None:
    if told.ambiguous:
        raise ExporterUnavailable(
            Problem(
                "several boards have one UUID and cannot be told apart",
                found=", ".join(sorted(told.ambiguous)),
                remedy="Let the exporter tell their UUIDs.",
            )
        )
    if told.shared:
        raise ExporterUnavailable(
            Problem(
                "a board is in MIG mode, and power and energy are of whole boards only: a share of"
                " a board has no watts of its own",
                found=", ".join(sorted(told.shared)),
            )
        )


def _get(url: str) -> bytes:
    try:
        answer = request(url, deadline_s=_DEADLINE_S, max_bytes=MAX_BYTES, peer=_EXPORTER)
    except EngineError as error:
        # It names the address, which a run would publish.
        what = error.problems[0].what.removeprefix("no exporter answers: ")
        raise ExporterUnavailable(f"the exporter does not answer: {what}") from error
    if answer.status != 200:
        raise ExporterUnavailable(f"the exporter answers HTTP {answer.status}")
    return answer.body


def _by_uuid(told: Exported) -> dict[str, Reading]:
    return {board.uuid: reading for board, reading in zip(told.boards, told.readings, strict=True)}


def _new(reading: Reading, last: Reading | None) -> Reading | None:
    """Return what is new in a reading; None: nothing. A counter that stands is not new."""
    if last is None:  # a board that was gone: nobody knows for how long this was there
        return None
    if reading.energy_mj is None:
        return None if reading == last else reading
    if reading.energy_mj != last.energy_mj:
        return reading
    was_mw, is_mw = ((r.power_mw, r.instant_mw) for r in (last, reading))
    return None if was_mw == is_mw else replace(reading, energy_mj=None)


def _sample(at_ns: int, place: int, reading: Reading) -> PowerSample:
    return PowerSample(
        at_ns,
        place,
        reading.power_mw,
        reading.energy_mj,
        instant_mw=reading.instant_mw,
        dram_ppm=reading.dram_ppm,
        sm_mhz=reading.sm_mhz,
        memory_mhz=reading.memory_mhz,
        reasons=reading.reasons,
        celsius=reading.celsius,
    )
