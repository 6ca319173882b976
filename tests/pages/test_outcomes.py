from __future__ import annotations

from tests.pages.conftest import number, told, with_metrics
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import outcomes
from tokenwatt_site.run import Claims, Outcome

WARN = Outcome(key="board_power", level="warn", text="drew 1.07 x its limit")
WITHHELD = Outcome(key="mbu", level="withheld", text="112% of bus × clock")
INVALID = Outcome(key="joules_per_token", level="INVALID", text="the counter ran backwards")


def claims_with(configuration: Configuration, *said: Outcome) -> Claims:
    return told(configuration, outcomes=said).claims


def test_the_gravest_is_listed_first_and_the_same_words_once(demo: Configuration) -> None:
    listed = outcomes.listed(claims_with(demo, WARN, WITHHELD, INVALID, INVALID))
    assert [level for level, _, _ in listed] == ["INVALID", "Withheld", "Warning"]
    assert listed[0] == ("INVALID", "Energy per output token", "the counter ran backwards")


def test_a_number_that_was_barred_says_what_barred_it(demo: Configuration) -> None:
    claims = claims_with(demo, WITHHELD)
    assert outcomes.why(claims, number("mbu", None, reason="x")) == "withheld: 112% of bus × clock"
    assert outcomes.why(claims, number("mbu_bus", None, reason="x")) == "not measured: x"


def test_a_reason_that_says_itself_how_grave_it_is_is_not_called_not_measured(
    demo: Configuration,
) -> None:
    for reason in ("withheld: over the roofline", "INVALID: impossible"):
        assert outcomes.why(demo.claims, number("mbu_bus", None, reason=reason)) == reason


def test_a_warning_bars_nothing(demo: Configuration) -> None:
    claims = claims_with(demo, WARN)
    assert outcomes.why(claims, number("board_power", None, reason="x")) == "not measured: x"
    assert outcomes.marks(claims, "board_power") == ("Warning",)
    assert outcomes.noted(claims, "board_power", "mbu") == "Warning: see Key figures."


def test_all_levels_are_named_once_where_the_words_are_not_repeated(demo: Configuration) -> None:
    claims = claims_with(demo, WARN, WITHHELD, INVALID)
    assert outcomes.noted(claims, "mbu", "board_power", "joules_per_token") == (
        "Warning, Withheld and INVALID: see Key figures."
    )
    assert outcomes.noted(claims, "goodput") == ""


def test_what_a_run_does_not_tell_of_is_no_error(demo: Configuration) -> None:
    found = outcomes.find(demo.claims, "host_power")
    assert (found.value, found.reason) == (None, "the run does not tell")
    changed = with_metrics(demo.claims, number("host_power", 3420.0))
    assert outcomes.find(told(demo, metrics=changed).claims, "host_power").value == 3420.0


def test_what_is_said_of_the_energy_holds_for_all_that_is_made_of_it(demo: Configuration) -> None:
    said = Outcome(key="tokens_per_joule", level="INVALID", text="GPU-1 ran backwards")
    claims = claims_with(demo, said)
    watts = number("board_power", None, reason="repeat 1: GPU-1 ran backwards")
    assert outcomes.why(claims, watts) == "INVALID: GPU-1 ran backwards"
    assert outcomes.marks(claims, "joules_per_slo_token") == ("INVALID",)
    assert outcomes.marks(claims, "idle_power") == ()
