"""What each board did in a window: watts, clocks, temperature, and what held its clocks back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from tokenwatt_site.energy.window import WindowEnergy
from tokenwatt_site.evidence.power import PowerLog, PowerSample
from tokenwatt_site.meters import BoardRole, BoardRoles
from tokenwatt_site.run import BoardClaim, RoleClaim

HELD_BACK = (
    (0x004, "power limit"),
    (0x008, "hardware slowdown"),
    (0x020, "thermal limit, by the driver"),
    (0x040, "thermal limit, by the hardware"),
    (0x080, "external power brake"),
    (0x010, "sync with other boards"),
    (0x002, "clocks set by the user"),
    (0x100, "display clocks"),
    (0x200, "board limit"),
    (0x400, "voltage reliability"),
)
"""NVML's clocks event reasons (once: throttle reasons) that keep clocks below what they could be.

Bit 1, idle, is none of them: a board without work needs no clocks.
"""


def board_claims(
    log: PowerLog,
    repeat: int,
    energy: WindowEnergy,
    start_ns: int,
    end_ns: int,
    *,
    roles: BoardRoles | None = None,
) -> tuple[BoardClaim, ...]:
    """Return one claim for each board of `log` over a window and its energy."""
    claims = []
    for number, (board, found) in enumerate(zip(log.boards, energy.by_board, strict=True)):
        inside = [s for s in log.of_board(number) if start_ns <= s.at_ns <= end_ns]
        joules = None if found.energy_mj is None else found.energy_mj / 1e3
        claims.append(
            BoardClaim(
                repeat=repeat,
                uuid=board.uuid,
                name=board.name,
                energy_j=joules,
                mean_power_w=None if joules is None else joules * 1e9 / (end_ns - start_ns),
                limit_w=None if board.limit_mw is None else board.limit_mw / 1e3,
                sm_mhz=_mean([s.sm_mhz for s in inside]),
                memory_mhz=_mean([s.memory_mhz for s in inside]),
                celsius=_mean([s.celsius for s in inside]),
                held_back=tuple(_held_back(inside)),
                node=board.node,
                role=None if roles is None else roles.of(board.uuid),
            )
        )
    return tuple(claims)


def role_claims(boards: Sequence[BoardClaim], tokens: Mapping[int, float]) -> Iterator[RoleClaim]:
    """Yield what the boards of each role drew in each repeat's window.

    Args:
        boards: of all repeats.
        tokens: output tokens of each repeat's window.
    """
    for repeat, made in tokens.items():
        own = [board for board in boards if board.repeat == repeat]
        total = _sum([board.energy_j for board in own])
        for role in get_args(BoardRole):
            of_role = [board for board in own if board.role == role]
            joules = _sum([board.energy_j for board in of_role])
            yield RoleClaim(
                repeat=repeat,
                role=role,
                boards=len(of_role),
                energy_j=joules,
                mean_power_w=_sum([board.mean_power_w for board in of_role]),
                percent=100 * joules / total if joules is not None and total else None,
                joules_per_token=joules / made if joules is not None and made > 0 else None,
            )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _held_back(samples: Sequence[PowerSample]) -> Iterator[tuple[str, float]]:
    told = [s.reasons for s in samples if s.reasons is not None]
    for bit, words in HELD_BACK:
        count = sum(bool(reasons & bit) for reasons in told)
        if count:
            yield words, count / len(told)
