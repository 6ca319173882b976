"""What NVIDIA boards tell of themselves, judged for a measurement. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tokenwatt_site.claims.boards import HELD_BACK
from tokenwatt_site.commands.checks import Check
from tokenwatt_site.measure.power.survey import Silent, Survey, Surveyed


def board_checks(survey: Survey, engine: Collection[int]) -> Iterator[Check]:
    """Judge all boards; lines that say the same of several are one.

    Args:
        survey: what they tell.
        engine: processes of the engine; empty where they are not known.
    """
    yield Check("ok", "driver", f"NVIDIA {survey.driver or 'of a version that is not told'}")
    lines: dict[Check, list[int]] = {}
    for place, board in enumerate(survey.boards):
        about = f"GPU {place}"
        if isinstance(board, Silent):
            yield Check(
                "warn",
                about,
                f"{board.uuid}: its power is not covered: {board.reason}",
                "Whole boards of a bare machine, or passed through whole, tell it.",
            )
            continue
        memory = f", {board.memory_gib} GiB" if board.memory_gib is not None else ""
        yield Check("ok", about, f"{board.board.name}, {board.board.uuid}{memory}")
        for line in _of_board(board, engine):
            lines.setdefault(line, []).append(place)
    readable = sum(isinstance(board, Surveyed) for board in survey.boards)
    for line in sorted(lines, key=lambda line: _ORDER.index(line.about)):
        places = lines[line]
        which = f"GPU {', '.join(map(str, places))}: " if len(places) < readable else ""
        yield replace(line, about=f"GPU {line.about}", found=which + line.found)


_ORDER = (
    "shares",
    "power",
    "energy",
    "memory traffic",
    "limit",
    "processes",
    "clocks",
    "persistence",
    "ECC",
)


def _of_board(board: Surveyed, engine: Collection[int]) -> Iterator[Check]:
    if board.mig:
        yield Check(
            "warn",
            "shares",
            "split by MIG: watts are those of the whole board, whoever uses its other shares",
            "Turn it off (sudo nvidia-smi -mig 0), or name the whole board: --gpus UUID.",
        )
    yield _power(board)
    yield _energy(board)
    yield _traffic(board)
    yield _limit(board)
    yield _processes(board, engine)
    yield _clocks(board)
    if board.board.persistence is False:
        yield Check(
            "warn",
            "persistence",
            "off: the driver leaves with its last client, and the energy counter starts anew",
            "Run: sudo nvidia-smi -pm 1",
        )
    else:
        yield Check("ok", "persistence", "on" if board.board.persistence else "not told")
    if board.board.ecc is False:
        yield Check(
            "warn",
            "ECC",
            "off, which most who publish have on; a report says so",
            "Run: sudo nvidia-smi -e 1, and restart the machine.",
        )
    else:
        yield Check("ok", "ECC", "on" if board.board.ecc else "not told")


def _power(board: Surveyed) -> Check:
    sample = board.sample
    if sample.power_mw is None and sample.instant_mw is None:
        return Check(
            "warn",
            "power",
            "no watts are told: energy has no second reading to be held against",
            "A newer driver may tell them.",
        )
    kinds = []
    if sample.power_mw is not None:
        over = "over a time that is not known"
        if board.averaging_ns:
            over = f"over {board.averaging_ns / 1e9:g} s"
        elif board.averaging_ns == 0:
            over = "over no time, as they come"
        kinds.append(f"averaged {over}")
    if sample.instant_mw is not None:
        kinds.append("momentary")
    text = f"watts of scope {board.scope}: {' and '.join(kinds)}"
    if board.scope == "module":
        return Check(
            "warn",
            "power",
            f"{text}; the processor beside the GPU is in them",
            "Write setup.power.scope: module; it is never ranked beside boards alone.",
        )
    return Check("ok", "power", text)


def _energy(board: Surveyed) -> Check:
    if board.sample.energy_mj is None:
        return Check(
            "warn",
            "energy",
            "no counter: energy is summed from watts, once a second",
            "Boards from Volta on have a counter; a newer driver may tell it.",
        )
    if board.refresh_ns is None:
        return Check(
            "warn",
            "energy",
            "a counter that hardly changed while it was read",
            "Read it again under load; a counter that stands still gives no energy.",
        )
    return Check(
        "ok",
        "energy",
        f"a counter, refreshed every {board.refresh_ns / 1e6:.0f} ms; a measurement reads it"
        " once a second",
    )


def _traffic(board: Surveyed) -> Check:
    if board.bus_ppm is not None:
        return Check("ok", "memory traffic", "counted by GPM")
    return Check(
        "warn",
        "memory traffic",
        "not counted (no GPM): its modelled share of the bandwidth is shown alone",
        "GPM needs Hopper or later, a recent driver, and MIG off.",
    )


def _limit(board: Surveyed) -> Check:
    enforced, default = board.board.limit_mw, board.board.default_limit_mw
    if enforced is None:
        return Check(
            "warn",
            "limit",
            "not told: watts cannot be held against it",
            "Write setup.accelerator.power_limit_w from the data sheet.",
        )
    text = f"{enforced / 1e3:g} W enforced"
    if default is None or default == enforced:
        return Check("ok", "limit", text)
    return Check(
        "warn",
        "limit",
        f"{text}, {default / 1e3:g} W as it comes",
        f"Write setup.accelerator.power_limit_w: {enforced / 1e3:g}, or run: sudo nvidia-smi"
        f" -pl {default // 1000}",
    )


def _processes(board: Surveyed, engine: Collection[int]) -> Check:
    if board.pids is None:
        return Check(
            "warn",
            "processes",
            "cannot be listed: whose the boards are is not seen",
            "Name the engine's boards: --gpus UUID,...",
        )
    seen = len(board.pids)
    if not engine:
        return Check("ok", "processes", f"{seen or 'none'}; the engine's are not known")
    others = len(board.pids.difference(engine))
    if others == 0:
        return Check("ok", "processes", "the engine's alone" if seen else "none")
    text = f"{others} beside the engine's" if others < seen else f"{seen}, none the engine's"
    return Check(
        "warn",
        "processes",
        f"{text}; what they draw counts where the board does",
        "End them, or name the engine's boards: --gpus UUID,...",
    )


def _clocks(board: Surveyed) -> Check:
    reasons = board.sample.reasons
    if reasons is None:
        return Check("ok", "clocks", "what holds them back is not told")
    held = [words for bit, words in HELD_BACK if reasons & bit]
    if not held:
        return Check("ok", "clocks", "held back by nothing")
    return Check(
        "warn",
        "clocks",
        f"held back now: {', '.join(held)}",
        "See cooling and power supply; nvidia-smi -rgc and -rac take back clocks that were set.",
    )
