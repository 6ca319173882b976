from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.pages.conftest import number
from tokenwatt_site.pages import factors
from tokenwatt_site.pages.factors import NO_FACTORS, Factors

ALL = Factors.model_validate(
    {
        "price": {"name": "Tariff 2026", "per_kwh": 0.2, "currency": "EUR"},
        "grid": {"name": "Grid, mean of 2025", "g_per_kwh": 400},
        "pue": {"name": "Hall 2025", "factor": 1.25},
    }
)
ONE_KWH = number("joules_per_token", 3.6)
"""3.6 J for each of a million tokens are one kWh."""


def test_nothing_but_kwh_is_shown_where_the_site_names_no_factor() -> None:
    assert list(factors.rows(ONE_KWH, NO_FACTORS)) == [
        (
            "Energy per million output tokens",
            "1.00",
            "kWh/M output tok",
            "energy per output token ÷ 3.6",
        )
    ]


def test_money_and_co2_are_the_energy_of_the_building_times_what_is_named() -> None:
    _, price, carbon = factors.rows(ONE_KWH, ALL)
    assert price[1:3] == ("0.250", "EUR/M output tok")
    assert price[3] == "kWh × PUE 1.25 (Hall 2025) × 0.2 EUR/kWh (Tariff 2026)"
    assert carbon[1:3] == ("500", "gCO2/M output tok")
    assert carbon[3] == "kWh × PUE 1.25 (Hall 2025) × 400 g/kWh (Grid, mean of 2025)"


def test_without_a_pue_the_formula_says_so() -> None:
    _, carbon = factors.rows(ONE_KWH, ALL.model_copy(update={"pue": None, "price": None}))
    assert carbon[1] == "400"
    assert "no PUE" in carbon[3]


def test_energy_that_was_not_measured_costs_nothing_that_is_known() -> None:
    assert list(factors.rows(number("joules_per_token", None, reason="x"), ALL)) == []


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_three_digits_are_kept_of_any_amount(joules: float) -> None:
    (row,) = factors.rows(number("joules_per_token", joules), NO_FACTORS)
    assert float(row[1].replace(",", "")) == pytest.approx(joules / 3.6, rel=6e-3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"price": {"per_kwh": 0.2, "currency": "EUR"}},
        {"pue": {"name": "x", "factor": 0.9}},
        {"grid": {"name": "x", "g_per_kwh": -1}},
        {"price": {"name": "x", "per_kwh": 1e300, "currency": "EUR"}},
        {"carbon": {}},
    ],
    ids=["no name", "PUE below 1", "negative", "absurd", "unknown"],
)
def test_a_factor_without_a_name_or_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Factors.model_validate(wrong)
