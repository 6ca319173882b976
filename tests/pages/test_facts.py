from __future__ import annotations

from dataclasses import replace

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.eligibility import Exclusion
from tokenwatt_site.pages import facts


def labels(configuration: Configuration) -> dict[str, str]:
    return {f.id: f.label for f in facts.facts(configuration)}


def test_f19_a_known_and_an_unknown_key_are_told_apart(
    demo: Configuration, measured: Configuration
) -> None:
    assert labels(demo)["signed"] == "Signed, unknown key"
    assert labels(measured)["signed"] == "Signed by Lab 1"


def test_a_simulated_run_says_so_first(demo: Configuration) -> None:
    assert next(iter(labels(demo))) == "simulated"


def test_the_reasons_against_a_rank_are_in_the_fact(demo: Configuration) -> None:
    barred = replace(demo, exclusions=(Exclusion("mode", "demo mode"),))
    fact = next(f for f in facts.facts(barred) if f.id == "rank")
    assert "demo mode" in fact.does


def test_without_a_reason_it_may_rank(full: Configuration) -> None:
    assert (
        next(f for f in facts.facts(replace(full, exclusions=())) if f.id == "rank").label
        == "May rank"
    )


def test_every_fact_says_what_it_does_not_show(full: Configuration) -> None:
    assert all(f.does and f.does_not for f in facts.facts(full))


def test_the_page_counts_the_same_numbers_as_verify_prints(demo: Configuration) -> None:
    assert labels(demo)["recomputed"] == f"Recomputed, {demo.claims.numbers:,} numbers"
