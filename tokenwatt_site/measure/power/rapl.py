"""Processor packages and their memory through RAPL, as Linux's powercap shows it in sysfs.

Every top zone `intel-rapl:N` is asked, whatever the number of sockets; AMD's processors have the
same name there. What contains what decides what may be added up:

- a package holds its subzones `core` and `uncore`: these are left out;
- `dram` is listed below a package, and is not part of its count: it is a board of its own;
- `psys` is the whole platform, packages included: it is left out, since boards are added up;
- `intel-rapl-mmio:N` counts the packages a second time: it is left out.

So the sum of the boards is packages plus memory: no GPU, no disk, no fan, no loss of the supply.
There are no watts, only a counter in microjoules that begins anew at `max_energy_range_uj`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.evidence.power import Board, PowerSample
from tokenwatt_site.meters import PowerScope, PowerSensor

MOST_W = 2000
"""No package and no package's memory draws more; those sold in 2025 are rated at 500 W or less."""

_LATE_NS = 1_000_000_000
"""A counter is renewed about once a millisecond, and a read may wait: this much is forgiven."""


class RaplUnavailable(EnvironmentProblem):
    """RAPL cannot be used here; its text is the reason that is published."""


class WrappingCounter:
    """Makes of readings in [0, range) that begin anew at the range one count that never falls.

    What is drawn between two readings is known only where it must be less than one range: a gap
    in which `MOST_W` could fill it hides how often the counter began anew, and a rise that
    `MOST_W` cannot explain is a counter that was reset. In both cases there is no count any more.
    """

    def __init__(self, range_uj: int) -> None:
        self._range_uj = range_uj
        self._total_uj = 0
        self._last: tuple[int, int] | None = None
        self._lost = False

    def add(self, at_ns: int, reading_uj: int) -> int | None:
        """Take a reading and return the microjoules since some start; None: not known any more."""
        if self._lost or not 0 <= reading_uj <= self._range_uj:
            return None
        if self._last is None:
            self._total_uj = reading_uj
        else:
            last_ns, last_uj = self._last
            drawn_uj = (reading_uj - last_uj) % self._range_uj
            # W ns = 1e-3 uJ
            most_uj = MOST_W * (at_ns - last_ns + _LATE_NS) // 1000
            self._lost = not drawn_uj <= most_uj < self._range_uj
            self._total_uj += drawn_uj
        self._last = at_ns, reading_uj
        return None if self._lost else self._total_uj


class _Zone:
    """One zone that is read: its files, its board, its count."""

    def __init__(self, folder: Path, name: str) -> None:
        self._energy = folder / "energy_uj"
        self._count = WrappingCounter(_number(folder / "max_energy_range_uj", least=1))
        self.board = Board(uuid=folder.name, name=name, limit_mw=_limit_mw(folder))
        _number(self._energy)

    def read(self, now_ns: Callable[[], int]) -> tuple[int, int | None]:
        """Return when it was read, and the millijoules since some start."""
        try:
            reading_uj = int(_text(self._energy))
        except (OSError, ValueError):
            return now_ns(), None
        at_ns = now_ns()
        total_uj = self._count.add(at_ns, reading_uj)
        return at_ns, None if total_uj is None else total_uj // 1000


class RaplMeter:
    """Reads all packages and their memory; boards are known by the name of their zone.

    It has to be read often enough that no count is lost (`WrappingCounter`): the smallest ranges
    in use, 65 kJ, allow 31 s between readings. A board whose count is lost has no energy from
    then on: what a sum over the gap lacks could not be told afterwards.
    """

    sensor: PowerSensor = "rapl"
    scope: PowerScope = "cpu"
    driver: str | None = None
    averaging_ns: int | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        """Find the zones below `root` and read each once.

        Raises:
            RaplUnavailable: no zone, one that cannot be read by this user, or one listed twice.
        """
        self._zones = [
            _Zone(folder, name)
            for package, package_name in _packages(root)
            for folder, name in ((package, package_name), *_memory(package, package_name))
        ]
        # A window's edge may be read while the sampler reads; counts must go on in order.
        self._lock = threading.Lock()

    def boards(self) -> tuple[Board, ...]:
        return tuple(zone.board for zone in self._zones)

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        samples = []
        with self._lock:
            for board, zone in enumerate(self._zones):
                at_ns, energy_mj = zone.read(now_ns)
                samples.append(PowerSample(at_ns, board, None, energy_mj))
        return tuple(samples)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def _packages(root: Path) -> list[tuple[Path, str]]:
    zones = [(zone, _name(zone)) for zone in _sorted(root.glob("intel-rapl:*"), colons=1)]
    packages = [(zone, name) for zone, name in zones if name.startswith("package-")]
    if not packages:
        raise RaplUnavailable(
            Problem(
                "RAPL has no processor package here",
                file=str(root),
                found=", ".join(name for _, name in zones) or "no zone intel-rapl:N",
                remedy="Load the kernel module intel_rapl_msr; virtual machines mostly have none.",
            )
        )
    twice = sorted(name for name, n in Counter(name for _, name in packages).items() if n > 1)
    if twice:
        raise RaplUnavailable(
            Problem(
                f"RAPL lists {twice[0]} more than once, and its energy would be added up twice",
                file=str(root),
            )
        )
    return packages


def _memory(package: Path, package_name: str) -> list[tuple[Path, str]]:
    # The class folder lists every zone side by side, subzones too.
    subzones = _sorted(package.parent.glob(f"{package.name}:*"), colons=2)
    return [(zone, f"{package_name} dram") for zone in subzones if _name(zone) == "dram"]


def _sorted(zones: Iterable[Path], *, colons: int) -> list[Path]:
    found = [zone for zone in zones if zone.name.count(":") == colons]
    return sorted(found, key=lambda zone: (len(zone.name), zone.name))


def _limit_mw(folder: Path) -> int | None:
    """Return the long-term limit; None where none is enforced, or it is no limit (4090 W)."""
    try:
        limit_uw = int(_text(folder / "constraint_0_power_limit_uw"))
        enforced = _text(folder / "enabled").strip() == "1"
    except (OSError, ValueError):
        return None
    return limit_uw // 1000 if enforced and 0 < limit_uw <= MOST_W * 1_000_000 else None


def _name(zone: Path) -> str:
    try:
        return clean_text(_text(zone / "name"))
    except OSError as error:
        raise _unreadable(zone / "name", error) from error


def _number(file: Path, *, least: int = 0) -> int:
    try:
        text = _text(file)
    except OSError as error:
        raise _unreadable(file, error) from error
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < least:
        raise RaplUnavailable(
            Problem("is no count", file=str(file), found=repr(clean_text(text)[:40]))
        )
    return number


def _unreadable(file: Path, error: OSError) -> RaplUnavailable:
    if not isinstance(error, PermissionError):
        return RaplUnavailable(
            Problem(f"cannot be read: {error.strerror or type(error).__name__}", file=str(file))
        )
    return RaplUnavailable(
        Problem(
            "no permission: Linux lets only root read the energy of processors (CVE-2020-8694)",
            file=str(file),
            remedy="Measure as root, or once after each boot: "
            "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj",
        )
    )


def _text(file: Path) -> str:
    return file.read_text("ascii")
