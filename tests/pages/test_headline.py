from __future__ import annotations

from tests.pages.conftest import told, with_metrics
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import headline
from tokenwatt_site.run import Claims, MetricClaim


def pooled(key: str, value: float) -> MetricClaim:
    return MetricClaim(key=key, label=key, value=value, repeats=(value,) * 3)


def with_rates(configuration: Configuration, measured: float, long_run: float) -> Claims:
    metrics = with_metrics(
        configuration.claims,
        pooled("boundary_rate", measured),
        pooled("long_run_rate", long_run),
        pooled("long_run_goodput", 400 * long_run),
    )
    return told(configuration, metrics=metrics).claims


def test_the_headline_is_the_long_run_where_there_is_one(measured: Configuration) -> None:
    claims = with_rates(measured, 4.92, 4.86)
    assert headline.goodput(claims).key == "long_run_goodput"
    assert headline.rate(claims).key == "long_run_rate"


def test_else_it_is_the_measured_one_and_the_sentence_says_why(measured: Configuration) -> None:
    claims = measured.claims
    assert headline.goodput(claims).key == "goodput"
    assert headline.rate(claims).key == "boundary_rate"
    assert "not corrected to the long run: no engine model was fitted." in headline.difference(
        claims
    )


def test_one_sentence_tells_how_far_the_two_are_apart(measured: Configuration) -> None:
    assert headline.difference(with_rates(measured, 4.92, 4.86)) == (
        "In the long run it keeps 4.86 requests/s; on the measured windows it kept 4.92, 1.2% more."
    )
    assert headline.difference(with_rates(measured, 4.8, 4.86)).endswith("1.2% less.")
    assert headline.difference(with_rates(measured, 4.86, 4.86)).endswith(
        "4.86 requests/s, as on the measured windows."
    )


def test_without_any_boundary_nothing_is_said(measured: Configuration) -> None:
    none = MetricClaim(key="boundary_rate", label="", value=None, repeats=(), reason="none")
    claims = told(measured, metrics=with_metrics(measured.claims, none)).claims
    assert headline.difference(claims) == ""
