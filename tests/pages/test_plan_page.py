"""What the plan page says without scripts."""

from __future__ import annotations

import json
import re
from html import unescape

from tests.support.catalogues import TTFT, a_catalogue, a_row, a_section, boundary
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.pages import plan_page
from tokenwatt_site.pages.catalogue import catalogue
from tokenwatt_site.pages.factors import NO_FACTORS, Factors


def page(*rows, sections=None, named=NO_FACTORS):
    listed = a_catalogue(*rows, sections=sections)
    return plan_page.render(listed, ["assets/plan.js"], ".", named).html


def told(html):
    return json.loads(unescape(re.search(r'data-plan="([^"]*)"', html).group(1)))


def body(html):
    rows = html.partition("<tbody>")[2].partition("</tbody>")[0]
    return [re.sub(r"<[^>]+>", "|", row) for row in rows.split("</tr>") if row.strip()]


def test_the_example_has_the_fewest_cards_first_and_what_is_less_sure_last():
    html = page(
        a_row("Many", cards=8, **boundary(4.0)),
        a_row("Few", cards=2, **boundary(40.0), board_power=800.0),
        a_row(
            "Short", cards=1, **boundary(90.0), excluded=[["mode", "demo mode", "not full mode"]]
        ),
    )
    rows = body(html)
    assert [name in row for name, row in zip(("Few", "Many", "Short"), rows, strict=True)]
    assert "2 cards" in rows[0]
    assert "800 (GPU boards only)" in rows[0]
    assert "not measured" in rows[1]
    assert "not full mode" in rows[2]
    assert "10 requests/s of chat-mix-v1 on average" in html


def test_the_example_asks_the_first_question_that_has_an_answer():
    simulated = [["simulated", "nothing was measured", "simulated"]]
    html = page(
        a_row("Made up", section=0, **boundary(4.0), excluded=simulated),
        a_row("Real", section=1, cards=None, **boundary(4.0)),
        sections=(a_section(), a_section(TTFT, workload="other", scope="none", cpu=True)),
    )
    (row,) = body(html)
    assert "Real" in row
    assert "machines" in row
    assert "another workload: 1" in html


def test_text_of_runs_is_only_text():
    evil = "<img src=x onerror=alert(1)>"
    html = page(a_row(evil, **boundary(4.0), kind=evil), a_row("b", **boundary(4.0)))
    assert "<img" not in html
    assert "&lt;img" in html


def test_nothing_measured_is_told():
    assert (
        "No measured configuration yet"
        in plan_page.render(a_catalogue() | {"sections": []}, [], ".", NO_FACTORS).html
    )
    assert "No measured configuration answers this" in page(a_row("None"))


def test_prices_are_the_readers_unless_the_site_names_its_own():
    html = page(a_row("One", **boundary(4.0)))
    assert re.search(r'id="plan-price"[^>]*value=""', html)
    assert re.search(r'id="plan-grid"[^>]*value=""', html)
    price = {"name": "Our tariff 2026", "per_kwh": 0.31, "currency": "EUR"}
    html = page(a_row("One", **boundary(4.0)), named=Factors(price=price))
    assert re.search(r'id="plan-price"[^>]*value="0.31"', html)
    assert "Our tariff 2026" in html
    assert 'value="EUR"' in html


def test_every_field_has_label_unit_and_limits():
    html = page(a_row("One", **boundary(4.0)))
    for field in re.findall(r'<input id="([\w-]+)" type="number"[^>]*>', html):
        assert f'<label for="{field}">' in html
        assert f'<small id="{field}-unit">' in html
        assert re.search(rf'id="{field}"[^>]*min="[\d.]+" max="\d+"', html)


def test_the_script_gets_the_rules_that_python_has():
    rules = told(page(a_row("One", **boundary(4.0))))
    assert rules["barred"] == sorted(plan_page.sizing.BARRED)
    assert rules["root"] == "."


def test_it_reads_the_catalogue_of_the_site(measured, full):
    both = {c.id: c for c in (measured, full)}
    listed = catalogue(rank(both.values()), both, {c: f"reports/{c}.html" for c in both})
    assert [o["metric"] for o in listed["sections"][0]["objectives"]] == ["ttft", "tpot"]
    html = plan_page.render(listed, [], ".", NO_FACTORS).html
    assert "requests/s of demo-mix-v1 on average" in html
