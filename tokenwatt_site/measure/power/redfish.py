"""Power of a whole chassis, as its management controller (BMC) tells it over Redfish.

Three resources tell the power of a chassis as a whole, and one of them is read at each reading:

- EnvironmentMetrics: `PowerWatts.Reading`, and `EnergyJoules.Reading` where there is one;
- Power, its predecessor: `PowerControl[n].PowerConsumedWatts`;
- Sensor, of the physical context Chassis: `Reading` in W.

What is not taken:

- The sum of the power supplies. Supplies may be missing from the list, or tell their output.
- `EnergykWh`. Its steps are coarser than a window: a thousandth of a kWh is 3.6 kJ, and whole kWh
  are usual. The schema itself sets it apart as large-scale, and EnergyJoules for devices.
- Limits. A controller tells one that it does not enforce (a Dell at 429 W tells 348 W).

The averaging time decides whether a reading says anything about a window. A Sensor tells its
`SensingInterval`, the time between its readings. A PowerControl tells none of PowerConsumedWatts:
its `IntervalInMin` belongs to the average beside that. Some controllers put that average in both
places, so it is told as the longest time that the value can be averaged over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import EngineError, EnvironmentProblem, Problem, UsageError
from tokenwatt_site.evidence.power import Board, PowerSample
from tokenwatt_site.measure.control import Peer, request, require_address
from tokenwatt_site.measure.credential import Login
from tokenwatt_site.meters import PowerScope, PowerSensor
from tokenwatt_site.private import without_host

Resource = Mapping[str, object]

MOST_W = 200_000
"""A chassis that is said to draw more says nonsense: whole racks of 2025 draw 132 kW."""

_MOST_J = 1 << 43  # so that millijoules stay below 2^53
_MOST_MIN = 1 << 20
_FIELD = "instruments.url"
_BMC = Peer(
    "management controller", _FIELD, "Correct the address; https is what most of them want."
)
_DEADLINE_S = 10.0
_MAX_BYTES = 1 << 20
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_USE_HTTPS = "Use https."
_WRITE = "Write the address of a chassis, such as https://host/redfish/v1/Chassis/1."
_PATH = re.compile(r"/(?!/)[\x21-\x7e]{0,299}")
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


class RedfishUnavailable(EnvironmentProblem):
    """Redfish cannot be used here; its text is the reason that is published."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one resource tells of a chassis; None is not told, or impossible."""

    power_mw: int | None
    energy_mj: int | None
    averaging_ns: int | None


class RedfishMeter:
    """Reads one chassis; the board is known by the address of the resource that tells its power."""

    sensor: PowerSensor = "redfish"
    scope: PowerScope = "host"
    driver: str | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, url: str, login: Login | None = None) -> None:
        """Find what tells the power of the chassis.

        Args:
            url: of a chassis, of its EnvironmentMetrics or Power, or of a Sensor. Where Power has
                several controls, a fragment names one: `.../Power#/PowerControl/0`.
            login: names of the variables with user and password; None asks without.

        Raises:
            RedfishUnavailable: nobody there, not trusted, not allowed, or no power of the whole.
        """
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._login = login
        self._member = parts.fragment
        try:
            require_address(self._origin)
        except UsageError as error:
            raise RedfishUnavailable(
                *(replace(problem, field=_FIELD) for problem in error.problems)
            ) from error
        if login and parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise self._unavailable(parts.path, "the password would not be encrypted", _USE_HTTPS)
        self._path, name, self.averaging_ns = self._find(parts.path or "/")
        place = f"#{self._member}" if self._member else ""
        # A board is known by where it is asked, and its name is published.
        host = without_host(self._origin).partition("://")[2]
        self._board = Board(uuid=f"{host}{self._path}{place}", name=name)

    def boards(self) -> tuple[Board, ...]:
        return (self._board,)

    def read(self, now_ns: Callable[[], int]) -> tuple[PowerSample, ...]:
        """Ask once. The sample is stamped midway: a controller may take seconds to answer.

        Raises:
            RedfishUnavailable: no answer, or one that does not tell the power any more.
        """
        asked_ns = now_ns()
        resource = self._get(self._path)
        at_ns = (asked_ns + now_ns()) // 2
        reading = tell(resource, self._member)
        if isinstance(reading, str):
            raise self._unavailable(self._path, reading)
        return (PowerSample(at_ns, 0, reading.power_mw, reading.energy_mj),)

    def close(self) -> None:
        """Do nothing: each reading has a connection of its own."""

    def _find(self, path: str) -> tuple[str, str, int | None]:
        """Return the path of what tells the power, the name of the board, the averaging time.

        At most four resources are asked: the given one, two that it links to, and a sensor.
        """
        given = self._get(path)
        if _kind(given) != "Chassis":
            fault = self._fault(given)
            if fault:
                raise self._unavailable(path, fault, _members(given))
            return path, _name(given), self._averaging_ns(given)
        reasons = []
        for link in ("EnvironmentMetrics", "Power"):
            linked = _path_of(_inside(given.get(link)).get("@odata.id"))
            if linked is None:
                continue
            try:
                resource = self._get(linked)
            except RedfishUnavailable as error:
                reasons.append(f"its {link}: {error}")
                continue
            if not (fault := self._fault(resource)):
                return linked, _name(given), self._averaging_ns(resource)
            reasons.append(f"its {link} {fault}")
        raise self._unavailable(
            path,
            "; ".join(reasons) or "links to no EnvironmentMetrics and no Power on this host",
            "The power of its supplies, where it tells that, is not added up.",
        )

    def _fault(self, resource: Resource) -> str | None:
        reading = tell(resource, self._member)
        if isinstance(reading, str):
            return reading
        told = f"tells no power above 0 and up to {MOST_W:,} W"
        return told if reading.power_mw is None else None

    def _averaging_ns(self, resource: Resource) -> int | None:
        reading = tell(resource, self._member)
        # EnvironmentMetrics copies the value of a sensor, and leaves out its times.
        source = _path_of(_inside(resource.get("PowerWatts")).get("DataSourceUri"))
        if isinstance(reading, str) or source is None:
            return None if isinstance(reading, str) else reading.averaging_ns
        with suppress(RedfishUnavailable):
            return _duration_ns(self._get(source).get("SensingInterval"))
        return None

    def _get(self, path: str) -> Resource:
        try:
            answer = request(
                self._origin + path,
                deadline_s=_DEADLINE_S,
                max_bytes=_MAX_BYTES,
                login=self._login,
                peer=_BMC,
            )
        except (EngineError, UsageError) as error:
            raise RedfishUnavailable(*error.problems) from error
        if answer.status in {401, 403}:
            raise self._unavailable(path, f"HTTP {answer.status}: not allowed", self._allow())
        if answer.status != 200:
            moved = ", which leads elsewhere and is not followed"
            what = f"HTTP {answer.status}" + (moved if 300 <= answer.status < 400 else "")
            raise self._unavailable(path, what, _WRITE)
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self._unavailable(path, "is no Redfish: no JSON object", _WRITE)
        return value

    def _allow(self) -> str:
        if self._login is None:
            return "Name the variables that hold them: user_variable and password_variable."
        return f"Check what {self._login.user_variable} and {self._login.password_variable} hold."

    def _unavailable(self, path: str, what: str, remedy: str | None = None) -> RedfishUnavailable:
        found = clean_text(self._origin + path)
        return RedfishUnavailable(Problem(what, field=_FIELD, found=found, remedy=remedy))


def tell(resource: Resource, member: str = "") -> Reading | str:
    """Return what a resource tells of its chassis, or why it tells nothing.

    Args:
        resource: the resource.
        member: `/PowerControl/<n>` of a Power that has several.
    """
    kind = _kind(resource)
    if kind == "EnvironmentMetrics":
        return _tell_environment(resource)
    if kind == "Power":
        return _tell_control(resource, member)
    if kind == "Sensor":
        return _tell_sensor(resource)
    if kind == "PowerSubsystem":
        return "tells the power of its supplies one by one, and not that of the chassis"
    return f"is a {kind}, which tells no power" if kind else "has no type of Redfish"


def _tell_environment(resource: Resource) -> Reading | str:
    if "PowerWatts" not in resource:
        return "tells no PowerWatts"
    power_mw = _thousandths(_inside(resource["PowerWatts"]).get("Reading"), MOST_W)
    energy_mj = _thousandths(_inside(resource.get("EnergyJoules")).get("Reading"), _MOST_J)
    return Reading(power_mw, energy_mj, None)


def _tell_sensor(resource: Resource) -> Reading | str:
    if (resource.get("ReadingType"), resource.get("ReadingUnits")) != ("Power", "W"):
        return "is no sensor of power in W"
    if (context := resource.get("PhysicalContext")) != "Chassis":
        return f"is the power of {clean_text(str(context), limit=60)}, not of the whole chassis"
    averaging_ns = _duration_ns(resource.get("SensingInterval"))
    return Reading(_thousandths(resource.get("Reading"), MOST_W), None, averaging_ns)


def _tell_control(resource: Resource, member: str) -> Reading | str:
    entries = resource.get("PowerControl")
    controls = [_inside(c) for c in entries] if isinstance(entries, list) else []
    if member:
        chosen = [c for n, c in enumerate(controls) if member == f"/PowerControl/{n}"]
        if not chosen:
            return f"has no {clean_text(member)}"
    else:
        chosen = [control for control in controls if "PowerConsumedWatts" in control]
    if not chosen:
        return "has no PowerControl with PowerConsumedWatts, only what its supplies tell"
    if len(chosen) > 1:
        # Of Lenovo's, the second and third are processors and memory, which the first contains.
        names = ", ".join(clean_text(str(c.get("Name")), limit=60) for c in chosen[:8])
        return f"has {len(chosen)} power controls ({names}); name one as #/PowerControl/0"
    (control,) = chosen
    minutes = _inside(control.get("PowerMetrics")).get("IntervalInMin")
    # Thousandths, so that a bool, a text or a negative number is no interval.
    interval = _thousandths(minutes, _MOST_MIN)
    averaging_ns = None if interval is None else interval * 60_000_000
    return Reading(_thousandths(control.get("PowerConsumedWatts"), MOST_W), None, averaging_ns)


def _thousandths(value: object, most: int) -> int | None:
    """Return thousandths of a number above 0 and up to `most`; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value * 1000) if 0 < value <= most else None


def _duration_ns(value: object) -> int | None:
    """Return nanoseconds of a duration such as PT0.25S; None where there is none above 0."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) and len(value) < 40 else None
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    whole_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return round(whole_s * 1e9) or None


def _kind(resource: Resource) -> str:
    """Return such as "Power" of "#Power.v1_7_1.Power"."""
    told = str(resource.get("@odata.type", ""))
    return clean_text(told.rpartition(".")[2].removeprefix("#"), limit=60)


def _inside(value: object) -> Resource:
    return value if isinstance(value, dict) else {}


def _path_of(value: object) -> str | None:
    """Return a link that stays on this host; None for any other."""
    return value if isinstance(value, str) and _PATH.fullmatch(value) else None


def _name(resource: Resource) -> str:
    words = [_text(resource.get(key)) for key in ("Manufacturer", "Model")]
    return " ".join(filter(None, words)) or _text(resource.get("Name")) or "host"


def _text(value: object) -> str:
    return clean_text(value, limit=100) if isinstance(value, str) else ""


def _members(resource: Resource) -> str:
    listed = resource.get("Members")
    members = listed if isinstance(listed, list) else []
    paths = [_path_of(_inside(member).get("@odata.id")) for member in members]
    links = ", ".join([path for path in paths if path][:8])
    return f"Write the address of one: {links}." if links else _WRITE
