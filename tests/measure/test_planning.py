"""What a measurement would take: trials of the real search, and what surrounds them."""

import pytest

from tests.measure.test_protocol_time import EXAMPLE
from tests.support.runs import gated_spec, gpu_spec, small_spec, spec_in_mode
from tokenwatt_site.measure.planning import plan
from tokenwatt_site.measure.rehearsal import Span
from tokenwatt_site.spec import load_spec
from tokenwatt_site.windows import windows_of

ATTACHED = {"endpoint__start": "attach", "endpoint__url": "http://127.0.0.1:9"}


def planned(spec, **more):
    return plan(spec, windows_of(spec), **more)


def parts_of(spec, number=1, **more):
    return {part.what: part for part in planned(spec, **more).repeats[number - 1].parts}


def test_the_trials_go_around_the_rate_that_is_given():
    spec = spec_in_mode("quick", protocol__start_rate=2.0)
    for repeat in planned(spec, rate_urps=3_000_000).repeats:
        passing = [t.rate_urps for t in repeat.trials if t.passes]
        failing = [t.rate_urps for t in repeat.trials if not t.passes]
        assert max(passing) <= 3_000_000 < min(failing)
        assert min(failing) <= max(passing) * spec.protocol.bracket_ratio
    assert planned(spec).rate_urps == 2_000_000


@pytest.mark.parametrize("mode", ["demo", "quick", "full"])
def test_a_prediction_that_is_off_costs_trials_and_none_is_saved(mode):
    spec = spec_in_mode(mode)
    for number, repeat in enumerate(planned(spec, rate_urps=3_000_000).repeats, 1):
        found = parts_of(spec, number, rate_urps=3_000_000)["trials"]
        assert found.times.low <= len(repeat.trials) <= found.times.high
        assert found.seconds.low <= sum(t.seconds.high for t in repeat.trials)
        assert found.seconds.high >= sum(t.seconds.high for t in repeat.trials)


def test_everything_adds_up_and_boards_are_paid_for_the_whole_time():
    made = planned(gpu_spec(protocol__repeats=2))
    low = sum(part.seconds.low for repeat in made.repeats for part in repeat.parts)
    high = sum(part.seconds.high for repeat in made.repeats for part in repeat.parts)
    assert made.seconds == pytest.approx(Span(low + made.fit.low, high + made.fit.high))
    assert made.gpu_hours == pytest.approx(made.seconds.times(2 / 3600))
    assert planned(small_spec()).gpu_hours is None


def test_every_way_to_a_launch_is_told_as_what_it_is():
    assert "launch of the engine" in parts_of(small_spec())
    attached = small_spec(**ATTACHED, protocol__repeats=2)
    assert parts_of(attached)["the engine runs already"].seconds == Span(0, 0)
    assert parts_of(attached, 2)["restart by hand, then --resume"].seconds == Span(2.5, 10)
    command = small_spec(**ATTACHED, protocol__repeats=2, endpoint__restart=["x"])
    assert parts_of(command, 2)["restart"].seconds == Span(2.5, 10)
    boards = gpu_spec(**ATTACHED, protocol__repeats=2)
    assert parts_of(boards, 2)["restart by hand, then --resume"].seconds == Span(60, 240)


def test_only_what_the_spec_asks_is_planned():
    assert "power of the idle engine" not in parts_of(small_spec())
    assert parts_of(gpu_spec())["power of the idle engine"].times == Span(2, 2)
    gated = gated_spec(20, protocol__repeats=2)
    assert parts_of(gated)["questions of sums-0shot"].times == Span(20, 20)
    assert "questions of sums-0shot" not in parts_of(gated, 2)
    assert not any(what.startswith("questions") for what in parts_of(small_spec()))


def test_questions_whose_number_is_not_recorded_are_said_not_to_be_counted():
    made = planned(load_spec(EXAMPLE))
    assert "questions of gsm8k-5shot are not counted: their number is not recorded" in made.assumed
    assert not any(part.what.startswith("questions") for part in made.repeats[0].parts)


def test_a_repeat_that_is_done_takes_nothing_more():
    spec = spec_in_mode("quick")
    whole, left = planned(spec), planned(spec, done=(1,))
    assert left.repeats[0].parts == ()
    assert left.repeats[0].seconds == Span(0, 0)
    assert left.repeats[1] == whole.repeats[1]
    assert left.work_bytes < whole.work_bytes
    assert planned(spec, done=(1, 2)).seconds == Span(0, 0)


def test_a_budget_leaves_out_the_repeats_that_it_does_not_reach():
    made = planned(spec_in_mode("full"))
    ends, low, high = [], 0.0, 0.0
    for repeat in made.repeats:
        low, high = low + repeat.seconds.low, high + repeat.seconds.high
        ends.append((low, high))
    assert made.beyond(ends[2][1]) == ()
    assert made.beyond(ends[0][0] - 1) == ((1, True), (2, True), (3, True))
    assert made.beyond(ends[0][1]) == tuple(
        (number, ends[number - 1][0] > ends[0][1]) for number in (2, 3)
    )
