"""What a load takes, held against exact arithmetic, and who may answer."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.catalogues import TPOT, TTFT, a_row, a_section, boundary
from tokenwatt_site.pages.sizing import BARRED, OUT, Ask, Number, Offer, size, why_out

ROW = a_row("One", cards=4, **boundary(5.0), board_power=(2400.0, 2300.0, 2500.0), idle_power=400.0)
QUESTION = a_section()


def value(answer, key):
    number = answer.figures[key]
    return None if number is None else number.value


def test_a_load_takes_whole_setups_with_its_peak_and_headroom():
    # 10 x 2 x 1.2 = 24 requests/s; a setup holds 4.5 in the long run.
    answer = size(Ask(load=10, peak=2, headroom=20), Offer.of(ROW))
    assert value(answer, "setups") == 6
    assert answer.figures["cards"] == Number(24, 24, 24)
    assert answer.utilisation.value == pytest.approx(10 / 27)


def test_an_interval_of_the_boundary_gives_a_range_of_cards():
    offer = Offer.of(a_row("One", cards=8, **boundary(10.0, 0.1, long_run=0)))
    # 30 requests/s: 27.3 to 33.3 tenths of a setup on either side of three.
    answer = size(Ask(load=30), offer)
    assert answer.figures["setups"] == Number(3, 3, 4)
    assert answer.figures["cards"] == Number(24, 24, 32)


def test_tokens_a_day_and_requests_that_make_as_many_take_the_same():
    by_rate = size(Ask(load=10, hours=8, peak=1.5), Offer.of(ROW))
    assert by_rate.tokens_day == pytest.approx(10 * 400 * 8 * 3600)
    ask = Ask(load=by_rate.tokens_day, per_day=True, hours=8, peak=1.5)
    by_tokens = size(ask, Offer.of(ROW))
    for key in by_rate.figures:
        assert value(by_tokens, key) == pytest.approx(value(by_rate, key))


def test_watts_lie_on_a_line_between_idle_and_boundary():
    # Two of five requests/s in each of five setups: 400 + (2400 - 400) x 0.4.
    answer = size(Ask(load=10, peak=2, headroom=12.5), Offer.of(ROW))
    assert value(answer, "setups") == 5
    assert value(answer, "watts") == pytest.approx(5 * 1200)
    assert value(answer, "full_watts") == 5 * 2400
    assert answer.linear


def test_without_idle_every_setup_draws_what_it_draws_at_the_boundary():
    row = a_row("One", **boundary(5.0), board_power=(2400.0, 2300.0, 2500.0))
    answer = size(Ask(load=1), Offer.of(row))
    assert answer.figures["watts"] == Number(2400, 2300, 2500)
    assert not answer.linear


def test_money_and_carbon_are_energy_with_the_pue_and_cards_by_the_hour():
    row = a_row("One", cards=2, **boundary(5.0, long_run=0), board_power=1000.0)
    ask = Ask(load=5, hours=10, pue=1.5, per_kwh=0.2, per_card_hour=3, g_per_kwh=400)
    answer = size(ask, Offer.of(row))
    assert value(answer, "kwh_day") == pytest.approx(15)
    assert value(answer, "electricity_day") == pytest.approx(3)
    assert value(answer, "cards_day") == pytest.approx(60)
    assert value(answer, "money_month") == pytest.approx(63 * 365 / 12)
    assert value(answer, "per_million") == pytest.approx(63 / (5 * 400 * 36000 / 1e6))
    assert value(answer, "co2_day") == pytest.approx(6)


def test_power_that_was_not_measured_leaves_cards_and_no_half_of_the_money():
    offer = Offer.of(a_row("One", **boundary(5.0)))
    answer = size(Ask(load=5, per_kwh=0.2, per_card_hour=3), offer)
    assert value(answer, "cards") == 8
    assert value(answer, "cards_day") == pytest.approx(8 * 24 * 3)
    assert [value(answer, k) for k in ("watts", "kwh_day", "money_day", "per_million")] == [
        None
    ] * 4
    assert value(size(Ask(load=5, per_card_hour=3), offer), "money_day") == 8 * 24 * 3


def test_without_prices_there_is_no_money_and_without_a_boundary_no_answer():
    answer = size(Ask(load=5), Offer.of(ROW))
    assert value(answer, "money_day") is None
    assert value(answer, "co2_day") is None
    assert size(Ask(load=5), Offer.of(a_row("None"))) is None


SOME = st.floats(0.01, 1000)


@settings(max_examples=100)
@given(load=SOME, peak=st.floats(1, 10), headroom=st.floats(0, 100), rate=SOME)
def test_setups_are_the_fewest_that_hold_the_peak(load, peak, headroom, rate):
    answer = size(
        Ask(load=load, peak=peak, headroom=headroom),
        Offer.of(a_row("One", boundary_rate=rate, goodput=rate * 400)),
    )
    setups = int(value(answer, "setups"))
    need = Fraction(load) * Fraction(peak) * (1 + Fraction(headroom) / 100) / Fraction(rate)
    assert setups * (1 + Fraction(1, 10**11)) >= need
    assert setups == 1 or setups - 1 < need * (1 + Fraction(1, 10**11))


@settings(max_examples=60)
@given(
    load=SOME,
    rate=SOME,
    spreads=st.tuples(st.floats(0, 0.3), st.floats(0, 0.2)),
    power=st.floats(100, 5000),
    idle=st.floats(0, 6000),
)
def test_no_corner_of_the_intervals_lies_outside_the_range(load, rate, spreads, power, idle):
    spread, share = spreads

    def around(number, by):
        return number, number * (1 - by), number * (1 + by)

    cells = {**boundary(rate, spread), "board_power": around(power, share)}
    cells["idle_power"] = around(idle, share)
    ask = Ask(load=load, peak=2, per_kwh=0.3, per_card_hour=2, g_per_kwh=300)
    whole = size(ask, Offer.of(a_row("One", **cells)))
    keys = tuple(cells)
    rates, powers = keys[:-2], keys[-2:]
    for end, *ends in product((0, 1, 2), repeat=3):
        corner = {key: cells[key][end] for key in rates}
        corner |= {key: cells[key][each] for key, each in zip(powers, ends, strict=True)}
        found = size(ask, Offer.of(a_row("One", **corner)))
        for key in ("setups", "cards", "watts", "kwh_day", "money_day", "co2_day"):
            number = whole.figures[key]
            slack = 1e-9 * abs(number.high)
            assert number.low - slack <= value(found, key) <= number.high + slack


def out(row, section=QUESTION, asked=QUESTION):
    question = asked["workload"], asked["workload_hash"]
    why = why_out(row, section, question, asked["objectives"])
    return why and why[0]


@pytest.mark.parametrize(
    ("measured", "asked", "why"),
    [
        ((TTFT, TPOT), (TTFT, TPOT), None),
        ((TTFT, TPOT), (TTFT | {"limit_ms": 3000.0}, TPOT), None),
        ((TTFT, TPOT), (TPOT,), None),
        ((TTFT, TPOT), (TTFT | {"limit_ms": 1000.0}, TPOT), "looser"),
        ((TTFT,), (TTFT, TPOT), "objectives"),
        ((TTFT | {"quantile": 0.9}, TPOT), (TTFT, TPOT), "objectives"),
    ],
)
def test_an_slo_is_answered_by_the_same_or_a_tighter_one(measured, asked, why):
    assert out(ROW, a_section(*measured), a_section(*asked)) == why


@pytest.mark.parametrize("code", sorted(BARRED))
def test_what_is_in_doubt_as_a_whole_does_not_answer(code):
    assert out(a_row("One", **boundary(5.0), excluded=[[code, "why", "tag"]])) == code
    assert code in OUT


@pytest.mark.parametrize("code", ["mode", "launches", "long-run", "setup"])
def test_what_is_only_less_sure_answers(code):
    assert out(a_row("One", **boundary(5.0), excluded=[[code, "why", "tag"]])) is None


def test_a_failed_gate_bars_and_none_at_all_does_not():
    def gated(*why):
        return out(a_row("One", **boundary(5.0), excluded=[["accuracy", *why]]))

    assert gated("why", "accuracy gate failed") == "accuracy"
    assert gated("why", "no accuracy gate") is None
    assert gated("of which kind nobody tells") == "accuracy"


def test_another_workload_and_no_boundary_are_told():
    assert out(ROW, a_section(workload="other")) == "workload"
    assert out(a_row("One")) == "boundary"
