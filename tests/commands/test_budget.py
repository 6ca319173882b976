"""How a budget is written."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.commands.budget import budget_s
from tokenwatt_site.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45m", 2700), ("2h", 7200), ("1h30m", 5400), ("90m", 5400), (" 60m ", 3600), ("0h5m", 300)],
)
def test_a_budget_is_minutes_or_hours_or_both(text, seconds):
    assert budget_s(text) == seconds


@given(st.integers(0, 999), st.integers(0, 59))
def test_hours_and_minutes_add_up(hours, minutes):
    text = f"{hours}h{minutes}m"
    if hours == minutes == 0:
        with pytest.raises(UsageError):
            budget_s(text)
    else:
        assert budget_s(text) == 3600 * hours + 60 * minutes


@pytest.mark.parametrize(
    "text",
    ["", "60", "0m", "0h", "1.5h", "-5m", "m", "1h 30m", "30m1h", "1001h", "٣m", "5s", "1h\n2m"],
)
def test_what_is_no_budget_is_refused_with_how_it_is_written(text):
    with pytest.raises(UsageError) as caught:
        budget_s(text)
    (problem,) = caught.value.problems
    assert problem.field == "--budget"
    assert problem.found == repr(text)
    assert "1h30m" in problem.expected


@given(st.text(max_size=12))
def test_any_text_is_a_budget_or_an_error(text):
    with suppress(UsageError):
        assert 0 < budget_s(text) <= 3_600_000
