"""Which boards of a machine are the server's. Pure: what was seen comes in, places come out.

A board counts where the engine's processes are seen on it. Containers often hide processes; then
the boards that the user or the engine's environment names are taken, and the page says that they
were named. A number names nothing by itself: CUDA numbers the fastest board first, NVML by bus,
and the two differ on machines with unlike boards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.errors import Problem, ReadBackError

How: TypeAlias = Literal["by process", "by name", "all there are"]

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True, slots=True)
class Present:
    """A board of this machine.

    Attributes:
        uuid: its own id.
        pci: bus id, by which CUDA numbers boards when told so.
        mig: whether it is split.
        instances: ids of its shares, where it is.
        pids: processes seen on it; None where they cannot be listed.
    """

    uuid: str
    pci: str | None = None
    mig: bool = False
    instances: tuple[str, ...] = ()
    pids: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A board that is the server's: its place among those present, and how it was found.

    `part`: it is split and was not named by its own id, so the server may have a share only.
    `others`: processes on it that are not the engine's; None: not known, as when the engine's own
    are not seen.
    """

    place: int
    how: How
    part: bool
    others: int | None


def choose(
    present: Sequence[Present],
    declared_count: int | None,
    *,
    named: Sequence[str] = (),
    pids: AbstractSet[int] = frozenset(),
    environment: Mapping[str, str] | None = None,
) -> tuple[Chosen, ...]:
    """Return the server's boards, each once, in the order of `present`.

    Args:
        present: every board of the machine.
        declared_count: `setup.accelerator.count` of the spec; None: however many there are.
        named: by the user: UUIDs, beginnings of them ("GPU-5a1c"), or ids of MIG instances, each of
            which stands for its board.
        pids: the engine's processes.
        environment: the engine's; its CUDA_VISIBLE_DEVICES counts where nothing is named.

    Raises:
        ReadBackError: a name that fits no board or several; the engine runs on a board that was not
            named; or another number of boards than declared.
    """
    seen = {n for n, board in enumerate(present) if board.pids and board.pids & pids}
    by_name = {_place(name, present, "--gpus") for name in named}
    how: How = "by name"
    if by_name:
        if strays := seen - by_name:
            raise ReadBackError(
                Problem(
                    "leaves out boards that the engine runs on",
                    field="--gpus",
                    found=_list(present, strays),
                    expected=f"boards among {', '.join(named)}",
                    remedy="Name every board of the server, and no other.",
                )
            )
        places = by_name
    elif seen:
        places = seen
    elif (visible := _visible(environment or {}, present)) is not None:
        places = visible
    else:
        places, how = set(range(len(present))), "all there are"
    if seen == places:
        how = "by process"
    own_ids = tuple(name.strip().lower() for name in named)
    chosen = tuple(
        Chosen(
            place,
            how,
            part=board.mig and not any(board.uuid.lower().startswith(name) for name in own_ids),
            others=len(board.pids - pids) if board.pids and place in seen else None,
        )
        for place, board in enumerate(present)
        if place in places
    )
    # How many shares were declared is no number of boards; what reads whole boards refuses them.
    shares = how != "all there are" and any(one.part for one in chosen)
    if declared_count is not None and len(chosen) != declared_count and not shares:
        raise ReadBackError(_another_number(present, places, how, declared_count))
    return chosen


def _place(name: str, present: Sequence[Present], field: str) -> int:
    """Return the one board that a name stands for.

    Raises:
        ReadBackError: it fits none, or several.
    """
    wanted = name.strip().lower()
    if wanted.startswith("mig-gpu-"):  # as before driver 470: MIG-<UUID of the board>/<instance>
        wanted = wanted.removeprefix("mig-").split("/")[0]
    fits = {
        place
        for place, board in enumerate(present)
        for known in (board.uuid, *board.instances)
        if wanted.startswith(("gpu-", "mig-")) and known.lower().startswith(wanted)
    }
    if len(fits) == 1:
        return fits.pop()
    what = "fits several boards" if fits else "names no board here"
    if wanted.isdigit():
        what = "is a number, and CUDA and NVML number boards differently"
    raise ReadBackError(
        Problem(
            what,
            field=field,
            found=name,
            expected=f"one of {_list(present, fits or range(len(present)))}",
            remedy=f"Name boards by UUID: --gpus {present[0].uuid}" if present else None,
        )
    )


def _visible(environment: Mapping[str, str], present: Sequence[Present]) -> set[int] | None:
    """Return the boards that CUDA_VISIBLE_DEVICES names; None where it does not tell.

    Raises:
        ReadBackError: it hides every board, or names one that is not here.
    """
    text = environment.get(VISIBLE)
    if text is None or text.strip().lower() in {"all", "void"}:  # a container tool's words
        return None
    entries = [entry.strip() for entry in text.split(",")]
    if not entries[0] or entries[0] == "-1":
        raise ReadBackError(
            Problem("hides every board from the engine", field=VISIBLE, found=repr(text))
        )
    if not entries[0].isdigit():
        return {_place(entry, present, VISIBLE) for entry in entries}
    numbered = all(board.pci is not None and not board.mig for board in present)
    if environment.get(ORDER) != "PCI_BUS_ID" or not numbered:
        return None
    by_bus = sorted(range(len(present)), key=lambda place: str(present[place].pci).lower())
    places = set()
    for entry in entries:
        if not entry.isdigit() or int(entry) >= len(by_bus):
            break  # CUDA too ignores the first that is no board, and all after it
        places.add(by_bus[int(entry)])
    return places or None


def _another_number(
    present: Sequence[Present], places: AbstractSet[int], how: How, declared_count: int
) -> Problem:
    remedy = "Measure on a machine with these boards, or correct the spec."
    if how == "all there are" and len(present) > declared_count:
        remedy = (
            f"Name the server's boards with --gpus, from {_list(present, range(len(present)))}"
            f" ({VISIBLE} counts where it holds UUIDs, or numbers with {ORDER}=PCI_BUS_ID)."
        )
    elif how != "all there are":
        remedy = "Correct the spec, or name with --gpus every board of the server."
    return Problem(
        f"is not the number of boards, {how}",
        field="setup.accelerator.count",
        found=f"{len(places)} (observed)",
        expected=f"{declared_count} (declared)",
        remedy=remedy,
    )


def _list(present: Sequence[Present], places: AbstractSet[int] | range) -> str:
    return ", ".join(present[place].uuid for place in sorted(places))
