"""What AMD's tools print of the cards: `amd-smi metric --json` and `rocm-smi -a --json`.

Proven on outputs of ROCm 5.7 to 6.x; what a release does not print is None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import InputError, Problem

MOST_W = 10_000
"""More is no power of a board; 65,535 and the like are how drivers say that they do not know."""

_MOST = 1 << 43  # so that thousandths stay below 2^53


@dataclass(frozen=True, slots=True)
class Card:
    """What one of AMD's tools prints of a card; None is not printed, or no number.

    Attributes:
        index: its number in the output.
        uuid: unique id.
        name: series.
        pci: bus id.
        limit_mw: power cap.
        power_mw: of the package or socket.
        energy_mj: since the driver was loaded.
    """

    index: int
    uuid: str | None
    name: str | None
    pci: str | None
    limit_mw: int | None
    power_mw: int | None
    energy_mj: int | None


def read_amd_smi(text: str) -> tuple[Card, ...]:
    """Read what `amd-smi metric -p --json` prints, also with `-E`: values with their unit beside.

    Raises:
        InputError: no such output.
    """
    value = _parsed(text, "amd-smi")
    # ROCm 7 prints an object around the list.
    entries = value.get("gpu_data") if isinstance(value, dict) else value
    cards = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or (index := whole(entry.get("gpu"), 4096)) is None:
            continue
        watts = _with_unit(entry, "power", "socket_power", "W")
        joules = _with_unit(entry, "energy", "total_energy_consumption", "J")
        energy_mj = None if joules is None else round(joules * 1000)
        cards.append(Card(index, None, None, None, None, watts_mw(watts), energy_mj))
    if not cards:
        raise InputError(Problem("lists no GPU", file="amd-smi"))
    return tuple(cards)


_CARD = re.compile(r"card([0-9]{1,4})")
_POWER_KEYS = ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")
"""The first up to MI200, the second since MI300."""


def read_rocm_smi(text: str) -> tuple[Card, ...]:
    """Read what `rocm-smi -a --json` prints: numbers as text, units in the keys.

    Raises:
        InputError: no such output.
    """
    value = _parsed(text, "rocm-smi")
    cards = []
    for key, card in value.items() if isinstance(value, dict) else ():
        if (match := _CARD.fullmatch(key)) is None or not isinstance(card, dict):
            continue
        powers = [watts_mw(_number(card.get(power))) for power in _POWER_KEYS]
        uj = _number(card.get("Accumulated Energy (uJ)"))
        cards.append(
            Card(
                index=int(match[1]),
                uuid=told(card, "Unique ID"),
                name=told(card, "Card series") or told(card, "Card Series"),
                pci=told(card, "PCI Bus"),
                limit_mw=watts_mw(_number(card.get("Max Graphics Package Power (W)"))),
                power_mw=next((power for power in powers if power is not None), None),
                energy_mj=None if uj is None else round(uj / 1000),
            )
        )
    if not cards:
        raise InputError(Problem("lists no card", file="rocm-smi"))
    return tuple(cards)


def _parsed(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(Problem("is not valid JSON", file=source)) from error


def _with_unit(entry: Mapping[str, Any], group: str, name: str, unit: str) -> float | None:
    values = entry.get(group)
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, dict) or value.get("unit") != unit:
        return None
    return _number(value.get("value"))


def _number(value: object) -> float | None:
    """Return a number above 0, also of its text; None for "N/A" and anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < _MOST else None


def watts_mw(watts: object) -> int | None:
    """Return milliwatts; None for no number, 0 and what no board draws."""
    if isinstance(watts, bool) or not isinstance(watts, int | float):
        return None
    return round(watts * 1000) if 0 < watts <= MOST_W else None


def whole(value: object, most: int) -> int | None:
    """Return an integer from 0 to `most`; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= most else None


def told(values: Mapping[str, object] | None, key: str) -> str | None:
    """Return the text of a key; None where there is none, or none is meant by it."""
    text = clean_text(str((values or {}).get(key) or ""))
    return None if text in {"", "N/A", "0"} else text
