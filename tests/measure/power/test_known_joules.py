"""Energy through every part: a simulated engine, scripted boards, the real binding, our formula.

The engine serves a realisation in virtual time and tells what each board drew. From that the
scripted machine has what a driver would show: a counter that is refreshed every 100 ms, the average
of the last second, the momentary power, the use of the memory bus. The meter reads them once a
second and at the window's edges. No time passes but the machine's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from tests.support.nvml import (
    NOT_SUPPORTED,
    TICK_NS,
    ScriptedBoard,
    ScriptedMachine,
    Tick,
    eight_boards,
)
from tests.support.nvml.fixtures import Scripted
from tokenwatt_site.commands.simulate import Asked, plan
from tokenwatt_site.energy.window import window_energy
from tokenwatt_site.evidence.power import DramSpan, PowerLog, PowerSample
from tokenwatt_site.measure.power.nvml import NvmlMeter
from tokenwatt_site.simulate.engine import Engine, Request
from tokenwatt_site.simulate.power import Draw, PowerModel
from tokenwatt_site.simulate.virtual import play
from tokenwatt_site.workload import NAMED

SECOND = 1_000_000_000
TOLERANCE = 0.005
MOMENT_NS = 25_000_000
"""What momentary power averages over, as an H100's does (arXiv 2312.02741)."""


@dataclass(frozen=True)
class Served:
    """What each board drew while the engine served, and the window that is scored."""

    draws: tuple[Draw, ...]
    start_ns: int
    end_ns: int
    last_ns: int

    def joules(self, board: int) -> float:
        return self.draws[board].joules(self.start_ns, self.end_ns)


def served(model: str, count: int, rate_urps: int, scored: int) -> Served:
    """Serve chat-mix-v1 on `count` boards, no two of which draw the same."""
    realisation = NAMED["chat-mix-v1"].realisation(1, lead_in=20, scored=scored, tail=20)
    due_ns = realisation.due_ns(rate_urps)
    requests = [
        Request(n, (n + 1,) * row.input_tokens, row.output_tokens, at)
        for n, (row, at) in enumerate(zip(realisation.rows, due_ns, strict=True))
    ]
    draws = tuple(
        Draw(PowerModel(idle_mw=100_000 + 8_000 * n, limit_mw=700_000)) for n in range(count)
    )
    rest = dict.fromkeys(("served_name", "kv_tokens", "memory_gib", "max_model_len", "seed"))
    asked = Asked("NVIDIA H200", model, count, max_batch=64, token_budget=4096, script="", **rest)
    simulation = plan(asked)
    engine = Engine(simulation.roofline, simulation.limits)
    ended = play(engine, requests, lambda step: [draw.add(step) for draw in draws])
    first, last = realisation.scored_rows[0], realisation.scored_rows[-1]
    return Served(
        draws, due_ns[first], due_ns[last], max(one.tokens_ns[-1] for one in ended.values())
    )


@pytest.fixture(scope="module")
def one_board() -> Served:
    return served("llama-3.1-8b", 1, 2_000_000, 270)


@pytest.fixture(scope="module")
def node() -> Served:
    return served("llama-3.1-70b", 8, 2_000_000, 270)


def tape(draw: Draw, last_ns: int) -> list[Tick]:
    """Return what a board with this draw shows, refresh by refresh."""

    def mean_mw(end_ns: int, length_ns: int) -> int:
        start_ns, end_ns = max(0, end_ns - length_ns), max(end_ns, TICK_NS)
        drawn = draw.energy_mw_ns(end_ns) - draw.energy_mw_ns(start_ns)
        return drawn // (end_ns - start_ns)

    return [
        Tick(
            energy_mj=123_456_789 + draw.energy_mw_ns(at) // SECOND,
            traffic_ns=draw.busy_ns(at),
            average_mw=mean_mw(at, SECOND),
            instant_mw=mean_mw(at, MOMENT_NS),
        )
        for at in range(0, last_ns + 5 * SECOND, TICK_NS)
    ]


def measured(truth: Served, machine: ScriptedMachine) -> PowerLog:
    """Read once a second from a second after the start on, and at the window's edges."""
    meter = NvmlMeter()
    samples: list[PowerSample] = []
    spans: tuple[DramSpan, ...] = ()
    begun: object = None
    for at in readings(truth):
        machine.pass_(max(0, at - machine.now_ns()))
        samples += meter.read(machine.now_ns)
        if at == truth.start_ns:
            begun = meter.begin(machine.now_ns)
        if at == truth.end_ns:
            spans = meter.end(begun, machine.now_ns)
    meter.close()
    return PowerLog(
        meter.sensor,
        meter.scope,
        SECOND,
        meter.averaging_ns,
        meter.boards(),
        tuple(sorted(samples, key=lambda sample: sample.at_ns)),
        spans,
    )


def readings(truth: Served) -> Iterable[int]:
    regular = range(SECOND, truth.end_ns + 3 * SECOND, SECOND)
    return sorted({*regular, truth.start_ns, truth.end_ns})


def alone(log: PowerLog, board: int) -> PowerLog:
    samples = tuple(replace(sample, board=0) for sample in log.of_board(board))
    return replace(log, boards=(log.boards[board],), samples=samples, spans=())


def energy_j(log: PowerLog, truth: Served) -> float:
    found = window_energy(log, truth.start_ns, truth.end_ns, max_gap_ns=3 * SECOND)
    assert found.energy_mj is not None, found.reason
    assert found.findings == ()  # counter and power agree
    return found.energy_mj / 1000


def require_known_joules(log: PowerLog, truth: Served) -> None:
    """Hold every board and their sum against the truth; pytest -s shows the figures."""
    for board, _ in enumerate(log.boards):
        derived, true = energy_j(alone(log, board), truth), truth.joules(board)
        show(f"board {board}", derived, true)
        assert derived == pytest.approx(true, rel=TOLERANCE)
    derived, true = energy_j(log, truth), sum(map(truth.joules, range(len(truth.draws))))
    show("together", derived, true)
    assert derived == pytest.approx(true, rel=TOLERANCE)


def show(what: str, derived: float, true: float) -> None:
    gap = derived / true - 1
    print(f"{what}: derived {derived:.1f} J, true {true:.1f} J, {gap:+.4%}")  # noqa: T201


def machine_of(scripted: Scripted, truth: Served) -> ScriptedMachine:
    scripts = eight_boards() if len(truth.draws) == 8 else [ScriptedBoard()]
    for script, draw in zip(scripts, truth.draws, strict=True):
        script.tape = tape(draw, truth.last_ns)
    return scripted(*scripts)


def test_the_windows_are_long_and_their_load_changes(one_board: Served, node: Served) -> None:
    for truth in (one_board, node):
        assert truth.end_ns - truth.start_ns >= 120 * SECOND
        watts = [
            truth.draws[0].joules(at, at + SECOND)
            for at in range(truth.start_ns, truth.end_ns - SECOND, SECOND)
        ]
        assert max(watts) > 1.3 * min(watts)


def test_the_joules_of_one_board_are_known(one_board: Served, scripted: Scripted) -> None:
    require_known_joules(measured(one_board, machine_of(scripted, one_board)), one_board)


def test_the_joules_of_eight_boards_are_known(node: Served, scripted: Scripted) -> None:
    require_known_joules(measured(node, machine_of(scripted, node)), node)


def test_a_slow_board_costs_no_board_its_joules(node: Served, scripted: Scripted) -> None:
    machine = machine_of(scripted, node)
    machine.rule("nvmlDeviceGetTotalEnergyConsumption", board=3, delay_ns=300_000_000)

    log = measured(node, machine)

    require_known_joules(log, node)


def test_a_board_without_a_counter_is_integrated_from_its_power(
    node: Served, scripted: Scripted
) -> None:
    machine = machine_of(scripted, node)
    machine.rule("nvmlDeviceGetTotalEnergyConsumption", board=5, code=NOT_SUPPORTED)

    log = measured(node, machine)

    assert {sample.energy_mj for sample in log.of_board(5)} == {None}
    require_known_joules(log, node)


def test_the_use_of_the_bus_over_the_window_is_known(node: Served, scripted: Scripted) -> None:
    log = measured(node, machine_of(scripted, node))

    assert len(log.spans) == 8
    for span in log.spans:
        draw = node.draws[span.board]
        busy_ns = draw.busy_ns(node.end_ns) - draw.busy_ns(node.start_ns)
        true_ppm = 1_000_000 * busy_ns / (node.end_ns - node.start_ns)
        assert span.ppm == pytest.approx(true_ppm, rel=TOLERANCE)
        chain = [s.dram_ppm for s in log.of_board(span.board) if node.start_ns < s.at_ns]
        assert sum(ppm is not None for ppm in chain) > 120
