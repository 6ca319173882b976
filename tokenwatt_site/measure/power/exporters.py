"""What exporters of GPU metrics say of power and energy. Pure; their words are in `families`.

One board, one reading: a board in MIG mode repeats its watts on the row of every instance, and a
sum would count them as often. Boards are told apart by UUID; the first row of each speaks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.measure.power.families import DIALECTS, Dialect, Names, Quantity
from tokenwatt_site.measure.prometheus import Metrics, Sample
from tokenwatt_site.meters import PowerScope, PowerSensor


@dataclass(frozen=True, slots=True)
class Reading:
    """One board in one scrape, as in `evidence.power.PowerSample`; None: no reading."""

    power_mw: int | None
    energy_mj: int | None
    instant_mw: int | None
    dram_ppm: int | None
    sm_mhz: int | None
    memory_mhz: int | None
    reasons: int | None
    celsius: int | None


@dataclass(frozen=True, slots=True)
class Exported:
    """All boards of one scrape.

    Attributes:
        exporter: whose dialect it is.
        sensor: what the exporter itself asks, as in `spec.PowerSource`.
        scope: what a reading covers.
        driver: version of the boards' driver.
        boards: what is said of each, in the order of the text.
        readings: of each of them.
        shared: those of them that are in MIG mode: their watts are of all instances together.
        ambiguous: UUIDs that name several of its boards.
        faults: families that hold a value which is no reading.
    """

    exporter: str
    sensor: PowerSensor
    scope: PowerScope
    driver: str | None
    boards: tuple[Board, ...]
    readings: tuple[Reading, ...]
    shared: frozenset[str]
    ambiguous: frozenset[str]
    faults: frozenset[str]


def exported(metrics: Metrics) -> Exported | None:
    """Return the boards that an exporter tells of; None: none with power or energy."""
    for dialect in DIALECTS:
        if any(name in metrics for name in dialect.measured):
            told = _read(dialect, metrics)
            return told if told.boards else None
    return None


class _Rows:
    """The rows of one board: of each family the first, and labels by lower-case name."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.labels: dict[str, str] = {}
        self.places: set[str] = set()

    def add(self, sample: Sample, labels: dict[str, str], place: str) -> None:
        self.values.setdefault(sample.name, sample.value)
        self.labels |= {key: text for key, text in labels.items() if text}
        self.places |= {labels[place]} if place in labels else set()

    def first(self, quantity: Quantity | None, faults: set[str]) -> int | None:
        """Return the first reading among families that mean the same."""
        if quantity is None:
            return None
        for name in quantity.names:
            if (value := self.values.get(name)) is not None:
                if (reading := quantity.unit(value)) is not None:
                    return reading
                faults.add(name)
        return None

    def label(self, names: Names) -> str | None:
        texts = (clean_text(self.labels.get(name, ""), limit=100) for name in names)
        return next((text for text in texts if text), None)


def _read(dialect: Dialect, metrics: Metrics) -> Exported:
    found: dict[str, _Rows] = {}
    for family in dialect.families:
        for sample in metrics.samples(family):
            labels = {key.lower(): text for key, text in sample.labels.items()}
            uuid = next((labels[key] for key in dialect.uuid if labels.get(key)), None)
            first_part = all(labels.get(key, "") in {"", "0"} for key in dialect.part)
            if uuid is not None and first_part:
                rows = found.setdefault(_canonical(uuid, dialect), _Rows())
                rows.add(sample, labels, dialect.place)
    measured = set(dialect.measured)
    boards = {uuid: rows for uuid, rows in found.items() if measured & rows.values.keys()}
    shared = frozenset(uuid for uuid, rows in boards.items() if _is_shared(dialect, rows))
    faults: set[str] = set()
    readings = tuple(
        _reading(dialect, rows, faults, shared=uuid in shared) for uuid, rows in boards.items()
    )
    drivers = (rows.label(dialect.driver) for rows in boards.values())
    return Exported(
        exporter=dialect.exporter,
        sensor=dialect.sensor,
        scope=_scope(dialect, boards),
        driver=next((driver for driver in drivers if driver), None),
        boards=tuple(_board(dialect, uuid, rows, faults) for uuid, rows in boards.items()),
        readings=readings,
        shared=shared,
        ambiguous=frozenset(uuid for uuid, rows in boards.items() if len(rows.places) > 1),
        faults=frozenset(faults),
    )


def _reading(dialect: Dialect, rows: _Rows, faults: set[str], *, shared: bool) -> Reading:
    def first(key: str) -> int | None:
        return rows.first(dialect.readings.get(key), faults)

    return Reading(
        power_mw=first("power_mw"),
        energy_mj=first("energy_mj"),
        instant_mw=first("instant_mw"),
        # Of an instance, where the board has instances.
        dram_ppm=None if shared else first("dram_ppm"),
        sm_mhz=first("sm_mhz"),
        memory_mhz=first("memory_mhz"),
        reasons=first("reasons"),
        celsius=first("celsius"),
    )


def _board(dialect: Dialect, uuid: str, rows: _Rows, faults: set[str]) -> Board:
    def first(key: str) -> int | None:
        return rows.first(dialect.limits.get(key), faults)

    def switch(key: str) -> bool | None:
        names = dialect.switches.get(key, ())
        value = next((rows.values[name] for name in names if name in rows.values), None)
        return bool(value) if value in {0, 1} else None

    return Board(
        uuid=uuid,
        name=rows.label(dialect.name) or f"{dialect.sensor} board",
        pci=rows.label(dialect.pci),
        limit_mw=first("limit_mw"),
        default_limit_mw=first("default_limit_mw"),
        memory_mhz=first("memory_mhz"),
        ecc=switch("ecc"),
        persistence=switch("persistence"),
    )


def _scope(dialect: Dialect, boards: dict[str, _Rows]) -> PowerScope:
    """Grace Hopper has no power of its GPU alone: its readings are of the whole module."""
    names = (rows.label(dialect.name) or "" for rows in boards.values())
    return "module" if any("GH200" in name for name in names) else "gpu"


def _canonical(uuid: str, dialect: Dialect) -> str:
    """Return a UUID as its driver writes it, so that two exporters name a board alike."""
    text = clean_text(uuid, limit=100) or "no UUID"
    nvidia = dialect.sensor != "amd"
    return f"GPU-{text}" if nvidia and not text.startswith(("GPU-", "MIG-")) else text


def _is_shared(dialect: Dialect, rows: _Rows) -> bool:
    by_label = dialect.mig_label is not None and dialect.mig_label in rows.labels
    return by_label or rows.values.get(dialect.mig_family or "") == 1
