"""The table of boards: what each drew in each repeat's window, and what held it back."""

from __future__ import annotations

from tokenwatt_site.pages import text
from tokenwatt_site.pages.figure import Table
from tokenwatt_site.run import BoardClaim, Claims

UNTOLD = "not told"


def table(claims: Claims) -> Table | None:
    """Return a row per board and repeat; None where no board was read.

    Node and role are columns where there are several nodes, or a prefill/decode split.
    """
    if not claims.boards:
        return None
    several = any(board.node is not None for board in claims.boards)
    split = any(board.role is not None for board in claims.boards)
    head = (
        "Board",
        *(("Node",) if several else ()),
        *(("Role",) if split else ()),
        "Repeat",
        "Name",
        "Energy, J",
        "Mean, W",
        "Enforced limit, W",
        "Of the limit, %",
        "SM clock, MHz",
        "Memory clock, MHz",
        "Chip, °C",
        "Held back by",
    )
    return head, tuple(_row(board, several=several, split=split) for board in claims.boards)


def _row(board: BoardClaim, *, several: bool, split: bool) -> tuple[str, ...]:
    watts, limit = board.mean_power_w, board.limit_w
    return (
        board.uuid,
        *((str(board.node),) if several else ()),
        *((board.role or UNTOLD,) if split else ()),
        str(board.repeat),
        board.name,
        _told(board.energy_j),
        _told(watts, 1),
        _told(limit),
        UNTOLD if watts is None or not limit else text.number(100 * watts / limit, 0),
        _told(board.sm_mhz),
        _told(board.memory_mhz),
        _told(board.celsius),
        held_back(board),
    )


def roles(claims: Claims) -> Table | None:
    """Return a row per role and repeat; None where boards have none."""
    if not claims.roles:
        return None
    head = (
        "Role",
        "Repeat",
        "Boards",
        "Energy of the window, J",
        "Of all boards, %",
        "Mean, W",
        "J per output token",
    )
    return head, tuple(
        (
            role.role,
            str(role.repeat),
            str(role.boards),
            _told(role.energy_j),
            _told(role.percent, 1),
            _told(role.mean_power_w, 1),
            _told(role.joules_per_token, 3),
        )
        for role in claims.roles
    )


def held_back(board: BoardClaim) -> str:
    """Such as "power cap in 83% of readings"; clocks that are not told about say nothing."""
    if not board.held_back:
        return UNTOLD if board.sm_mhz is None else "nothing"
    return ", ".join(
        f"{words} in {100 * share:.0f}% of readings" for words, share in board.held_back
    )


def _told(value: float | None, decimals: int = 0) -> str:
    return UNTOLD if value is None else text.number(value, decimals)
