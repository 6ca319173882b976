from __future__ import annotations

import pytest

from tokenwatt_site.evidence.power import Board, DramSpan
from tokenwatt_site.measure.power import DramMeter, ScriptedDramMeter, ScriptedMeter

BOARDS = (Board(uuid="GPU-a", name="Toy"), Board(uuid="GPU-b", name="Toy"))


def test_a_script_by_call_gives_its_readings_in_order_and_then_does_not_answer() -> None:
    meter = ScriptedMeter(BOARDS, [[(1, 2), (3, None)], None])

    assert [(s.board, s.power_mw, s.energy_mj) for s in meter.read(lambda: 7)] == [
        (0, 1, 2),
        (1, 3, None),
    ]
    for _ in range(2):
        with pytest.raises(OSError, match="does not answer"):
            meter.read(lambda: 8)


def test_a_script_by_time_answers_for_the_moment_it_is_asked() -> None:
    meter = ScriptedMeter(BOARDS[:1], lambda at_ns: [(100, at_ns)])

    assert [s.energy_mj for s in meter.read(lambda: 42)] == [42]


def test_only_a_meter_that_counts_memory_traffic_is_asked_for_spans() -> None:
    meter = ScriptedDramMeter(BOARDS[:1], [])

    assert not isinstance(ScriptedMeter(BOARDS, []), DramMeter)
    assert isinstance(meter, DramMeter)
    begun = meter.begin(lambda: 5)
    assert meter.end(begun, lambda: 9) == (DramSpan(board=0, start_ns=5, end_ns=9, ppm=500_000),)
