from __future__ import annotations

import re
import shlex
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.pages.conftest import Make, board_spec
from tests.support.runs import RunBuilder, a_key, small_spec, spec_in_mode
from tokenwatt_site.canonical import load_yaml
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import report
from tokenwatt_site.pages.page import NO_LINKS, Links, fill
from tokenwatt_site.spec import parse_spec
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run

HOSTILE = "</title><img src=x onerror=alert(1)>{{7*7}} [x](javascript:alert(1)) $(rm -rf ~); `id`"


class Parsed(HTMLParser):
    """Tags, ids and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.tags if "id" in attrs]


def parsed(configuration: Configuration, links: Links = NO_LINKS) -> Parsed:
    return Parsed(report.render(configuration, links).html)


def test_the_sections_stand_in_the_order_of_the_design(demo: Configuration) -> None:
    page = report.render(demo, NO_LINKS)
    places = [page.html.index(f'id="{anchor}"') for anchor, _ in page.toc]
    assert places == sorted(places)


def test_no_id_is_used_twice_even_with_the_charts_in(boards: Configuration) -> None:
    page = report.render(boards, NO_LINKS)
    ids = Parsed(fill(page.html, page.charts, lambda c: f'<svg id="{c.id}-svg"></svg>')).ids
    assert len(ids) == len(set(ids))


def test_every_chart_has_its_hole(boards: Configuration) -> None:
    page = report.render(boards, NO_LINKS)
    holes = re.findall(r"<!--tw:([\w-]+)-->", page.html)
    assert sorted(holes) == sorted(c.id for c in page.charts)


def test_every_recomputed_number_is_on_the_page_with_its_unit(boards: Configuration) -> None:
    text = parsed(boards).text
    for claim in boards.claims.metrics:
        assert claim.label in text
        assert METRICS[claim.key].unit in text or claim.value is None
        if claim.value is None:
            assert f"not measured: {claim.reason}" in text


def test_h4_what_was_not_measured_is_a_frame_with_the_reason_and_no_bar(
    demo: Configuration,
) -> None:
    page = report.render(demo, NO_LINKS)
    assert "bar-board-power" not in {c.id for c in page.charts}
    assert "Not measured: the machine of this test has no power sensor" in Parsed(page.html).text


def test_a_demo_run_says_so_and_is_unranked(measured: Configuration) -> None:
    text = parsed(measured).text
    assert "Demo mode: validation only." in text
    assert "Unranked" in text
    assert "Simulated." not in text


def test_a_simulated_run_is_labelled(demo: Configuration) -> None:
    assert "Simulated. The engine was a simulator" in parsed(demo).text


def test_h8_one_repeat_shows_no_interval_two_their_range_three_an_interval(
    demo: Configuration, quick: Configuration, full: Configuration
) -> None:
    assert "n = 1, no interval" in parsed(demo).text
    assert "n = 2, range" in parsed(quick).text
    assert "±" not in parsed(quick).text
    assert "n = 3, 95% CI of the mean" in parsed(full).text


def test_two_repeats_are_a_median_and_promise_no_band(quick: Configuration) -> None:
    text = parsed(quick).text
    assert "Each value is the median of 2 runs." in text
    assert "with a chance of only 1 in 3" in text


def test_the_expected_range_of_three_repeats_is_that_of_a_new_launch(full: Configuration) -> None:
    assert "one new launch falls between" in report.expected(full.claims)


def test_f5_f6_f7_hostile_text_is_shown_as_text(make: Make) -> None:
    hostile = make(
        spec=small_spec(
            title=HOSTILE,
            note=HOSTILE,
            setup__host_kind=HOSTILE,
            setup__engine__argv=["--port={port}", HOSTILE],
            setup__model__name=HOSTILE,
        )
    )
    page = parsed(hostile)
    assert not [tag for tag, _ in page.tags if tag in {"img", "script"}]
    assert not [a for _, a in page.tags if (a.get("href") or "").startswith("javascript")]
    assert page.text.count(HOSTILE) >= 4


def test_f15_a_command_is_quoted_for_the_shell(make: Make) -> None:
    configuration = make(spec=small_spec(title=HOSTILE))
    for _, line in report.commands(configuration.headline.run.spec):
        assert shlex.join(shlex.split(line)) == line
    assert HOSTILE in shlex.split(report.commands(configuration.headline.run.spec)[2][1])


def test_the_spec_that_is_offered_reads_back_to_the_spec_that_was_measured() -> None:
    spec = board_spec(note="line one\nline two: # yes\n", label="no", title="true: 'x'")
    value, lines = load_yaml(report.spec_yaml(spec).encode(), source="written")
    assert parse_spec(value, source="written", lines=lines) == spec


def test_links_lead_to_the_run_its_evidence_and_the_glossary(demo: Configuration) -> None:
    run = demo.headline
    links = Links(
        home="../index.html",
        glossary="../glossary.html",
        method=None,
        runs={run.run_id: f"../runs/{run.run_id}"},
    )
    targets = {a.get("href") for _, a in parsed(demo, links).tags}
    assert f"../runs/{run.run_id}/run.json" in targets
    assert "../glossary.html#goodput" in targets
    for entry in run.run.evidence:
        assert f"../runs/{run.run_id}/{entry.path}" in targets


def test_a_page_without_neighbours_links_only_to_itself(demo: Configuration) -> None:
    targets = [a["href"] or "" for _, a in parsed(demo).tags if "href" in a]
    assert all(target.startswith("#") for target in targets)


def test_cards_for_equal_goodput_are_64_for_a_configuration_that_is_its_own_reference(
    boards: Configuration,
) -> None:
    assert "Cards for equal goodput" in parsed(boards).text
    assert re.search(
        r"Cards for equal goodput</th>\s*<td class=\"n tw-v\">64<",
        report.render(boards, NO_LINKS).html,
    )


def test_the_citation_carries_n_mode_and_the_run(quick: Configuration) -> None:
    text = report.citation(quick)
    assert "quick mode" in text
    assert "n = 2" in text
    assert quick.headline.run_id[:12] in text


def test_the_summary_is_made_from_the_numbers(measured: Configuration) -> None:
    words = " ".join(part for part, _ in report.summary_parts(measured))
    assert words.startswith("Within TTFT p90 ≤ 1.5 s and TPOT p90 ≤ 150 ms, toy-135m on CPU")
    assert "Power was not measured." in words


def with_numbers(configuration: Configuration, **values: float) -> Configuration:
    """The same configuration whose claims hold other values; no file could say this."""
    claims = configuration.claims
    metrics = tuple(
        m.model_copy(update={"value": values[m.key], "repeats": (values[m.key],)})
        if m.key in values
        else m
        for m in claims.metrics
    )
    headline = copy(configuration.headline)
    object.__setattr__(headline, "claims", claims.model_copy(update={"metrics": metrics}))
    return replace(configuration, headline=headline)


def test_the_summary_of_the_example_comes_out_of_the_template(boards: Configuration) -> None:
    example = with_numbers(
        boards,
        boundary_rate=5.09,
        goodput=2047.0,
        input_throughput=8180.0,
        board_power=2380.0,
        tokens_per_joule=0.86,
        accuracy=90.0,
    )
    words = " ".join(part for part, _ in report.summary_parts(example))
    assert (
        "served 5.09 requests/s: 2,047 output and about 8,180 input tokens per second."
        " The boards drew 2,380 W, 0.86 tokens per joule. 90.0% on the none check." in words
    )
    assert "Accuracy Δ vs. reference" in parsed(example).text


def test_without_goodput_the_summary_says_why(make: Make) -> None:
    never = make(rates_urps=(500_000,))
    text = parsed(never).text
    assert "has no goodput to report (no trial broke the SLO" in text
    assert "Nothing can be expected" in text
    assert "no goodput" in report.citation(never)


def test_without_goodput_the_highest_passing_rate_leads_the_summary(make: Make) -> None:
    held = " ".join(part for part, _ in report.summary_parts(make(rates_urps=(500_000,))))
    assert (
        "toy 1.0 held 0.50 requests/s as its highest passing rate and has no goodput to report"
        " (no trial broke the SLO" in held
    )
    wide = make(rates_urps=(500_000, 64_000_000))
    assert "held 0.50 requests/s as its highest passing rate and has no goodput to report (the" in (
        " ".join(part for part, _ in report.summary_parts(wide))
    )
    never = " ".join(part for part, _ in report.summary_parts(make(rates_urps=(64_000_000,))))
    assert "toy 1.0 has no goodput to report (no trial met the SLO" in never
    assert "highest passing rate" not in never


def test_a_rate_that_only_some_repeats_held_is_not_said_of_all(make: Make) -> None:
    mixed = make(spec=spec_in_mode("quick"), spread=(1.0, 3.0), rates_urps=(1_000_000,))
    words = " ".join(part for part, _ in report.summary_parts(mixed))
    assert "held 1.00 requests/s in 1 of 2 repeats as its highest passing rate" in words


def test_the_citation_of_a_run_without_goodput_counts_its_launches(make: Make) -> None:
    words = report.citation(make(rates_urps=(500_000,)))
    assert "no goodput, simulated, demo mode, n = 1." in words


def test_without_goodput_the_history_says_what_held_and_why_there_is_no_more(make: Make) -> None:
    html = report.render(make(rates_urps=(500_000,)), NO_LINKS).html
    history = Parsed(html[html.index('id="history"') :]).text
    assert "not measured: no trial broke the SLO, up to 0.5 requests/s" in history
    assert "0.50 requests/s held" in history


def test_an_interrupted_run_says_so(make: Make) -> None:
    html = report.render(make(status="interrupted"), NO_LINKS).html
    assert "Interrupted." in Parsed(html).text
    assert "demo, interrupted" in Parsed(html[html.index('id="history"') :]).text


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ("2026-01-01T01:00:00Z", "This run took 60 minutes, 240 board-minutes."),
        ("2026-01-01T00:02:00Z", "This run took 2.0 minutes, 8 board-minutes."),
        ("2026-01-01T00:01:59Z", "This run took 119 seconds, 476 board-seconds."),
        ("2026-01-01T00:00:01.250Z", "This run took 1.2 seconds, 5 board-seconds."),
    ],
)
def test_the_cost_is_the_time_the_run_took(boards: Configuration, ended: str, words: str) -> None:
    run = boards.headline.run
    times = {"started": "2026-01-01T00:00:00Z", "ended": ended}
    conditions = run.conditions.model_copy(update=times)
    headline = copy(boards.headline)
    object.__setattr__(headline, "run", run.model_copy(update={"conditions": conditions}))
    assert report.cost(headline) == words


def test_a_full_run_that_may_not_rank_says_why(full: Configuration) -> None:
    assert "Listed, unranked. No accuracy gate was asked for" in parsed(full).text


def test_a_run_under_another_key_stands_in_the_history(tmp_path: Path) -> None:
    ours = RunBuilder(day=1).write(tmp_path / "a")
    theirs = RunBuilder(day=2, key=a_key(2)).write(tmp_path / "b")
    runs = [verify_run(p, root=tmp_path, keyring=Keyring()) for p in (ours, theirs)]
    text = parsed(group(runs)[0]).text
    assert "Rerun under 1 other key(s)" in text
    assert all(run.run_id[:12] in text for run in runs)
