from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.pages.conftest import HOSTILE, told, with_metrics
from tests.support.runs import small_spec
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.lineage import NO_KIN, kin
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import related, report
from tokenwatt_site.pages.page import NO_LINKS, Links
from tokenwatt_site.run import MetricClaim
from tokenwatt_site.statistics import paired

ONES = (100.0, 101.0, 99.5)
LINKS = replace(NO_LINKS, compare="../compare.html", reports={"a": "a.html", "b": "b.html"})


def a_side(
    full: Configuration, id_: str, repeats: tuple[float, ...] = ONES, **changes: Any
) -> Configuration:
    """A full run of three launches with this goodput, whose engine differs as `changes` say."""
    engine = small_spec().setup.engine.to_json() | changes
    goodput = MetricClaim(
        key="goodput",
        label=METRICS["goodput"].label,
        value=sum(repeats) / len(repeats),
        repeats=repeats,
    )
    made = told(full, metrics=with_metrics(full.claims, goodput))
    setup = small_spec(setup__engine=engine).setup
    return replace(made, id=id_, title=f"Toy {id_}", setup=setup)


def section(*sides: Configuration, links: Links = LINKS) -> related.Related:
    """What the report of the last one says of those before it."""
    all_kin = kin(rank(sides), {each.id: each for each in sides})
    found = related.section(sides[-1], all_kin[sides[-1].id], links)
    assert found is not None
    return found


def slots(n: int) -> list[str]:
    return ["{python}", "-m", "toy", "--port", "{port}", "--slots", f"{n}", "--fast"]


def test_one_that_differs_in_one_option_is_told_by_that_option(full: Configuration) -> None:
    other = a_side(full, "b", tuple(1.1 * each for each in ONES), argv=slots(8))
    found = section(other, a_side(full, "a", argv=slots(4)))
    [group] = found.alike
    assert (group.field, group.here, group.left) == ("Command line", "--slots 4", 0)
    [row] = group.rows
    assert (row.there, row.title, row.url) == ("--slots 8", "Toy b", "b.html")
    assert row.compare == "../compare.html#a=a&b=b"
    assert (row.verdict.ratio, row.verdict.word) == ("1.100", "better")
    assert found.versions == ()


def test_the_ratio_is_the_one_that_a_comparison_makes(full: Configuration) -> None:
    others = (99.0, 103.0, 98.0)
    found = section(a_side(full, "b", others, build="fast"), a_side(full, "a"))
    verdict, ratio = found.alike[0].rows[0].verdict, paired(others, ONES)
    assert ratio.low is not None
    assert ratio.high is not None
    assert verdict.ratio == f"{ratio.value:.3f}"
    assert verdict.sure == f"95% {ratio.low:.3f} to {ratio.high:.3f}"
    assert verdict.word == "no difference shown"


def test_h10_each_step_between_versions_is_told_against_the_one_before(
    full: Configuration,
) -> None:
    faster = tuple(1.1 * each for each in ONES)
    wide = (104.0, 118.0, 109.0)
    found = section(
        a_side(full, "c", wide, version="1.10"),
        a_side(full, "b", faster, version="1.9", build="new"),
        a_side(full, "a"),
    )
    assert [(row.version, row.own, row.changed) for row in found.versions] == [
        ("1.0", True, ""),
        ("1.9", False, "Engine build, Engine version"),
        ("1.10", False, "Engine build, Engine version"),
    ]
    first, second, third = found.versions
    assert first.step is first.compare is None
    assert second.step is not None
    assert (second.step.word, second.compare) == ("better", "../compare.html#a=a&b=b")
    assert third.step is not None
    assert (third.step.word, third.compare) == (
        "no difference shown",
        "../compare.html#a=b&b=c",
    )
    assert found.alike == ()


def test_what_has_no_goodput_is_not_divided_and_says_why(full: Configuration) -> None:
    lacking = MetricClaim(
        key="goodput", label="x", value=None, repeats=(), reason="no trial passed"
    )
    other = a_side(full, "b", build="fast")
    other = told(other, metrics=with_metrics(other.claims, lacking))
    verdict = section(other, a_side(full, "a")).alike[0].rows[0].verdict
    assert verdict.ratio is None
    assert verdict.sure.startswith("not compared: B: ")


def test_the_section_stands_in_the_report_and_in_its_contents_where_there_is_kin(
    full: Configuration,
) -> None:
    sides = (a_side(full, "b", version="1.1"), a_side(full, "a"))
    all_kin = kin(rank(sides), {each.id: each for each in sides})
    page = report.render(sides[1], LINKS, kin=all_kin["a"])
    assert dict(page.toc)["related"] == "Related configurations"
    assert '<a href="../compare.html#a=a&amp;b=b" aria-label="Compare 1.1 and' in page.html
    assert page.html.index('id="history"') < page.html.index('id="related"')
    alone = report.render(sides[1], LINKS, kin=NO_KIN)
    assert "related" not in dict(alone.toc)
    assert 'id="related"' not in alone.html


def test_words_of_another_run_stay_words(full: Configuration) -> None:
    other = replace(a_side(full, "b", build=HOSTILE), title=HOSTILE)
    sides = (other, a_side(full, "a"))
    all_kin = kin(rank(sides), {each.id: each for each in sides})
    html = report.render(sides[1], LINKS, kin=all_kin["a"]).html
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html
