from __future__ import annotations

import gzip
import re

from tests.pages.conftest import told
from tests.pages.test_report import Parsed
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import report, standalone
from tokenwatt_site.pages.page import NO_LINKS
from tokenwatt_site.pages.policy import script_hash


def test_one_file_holds_everything_and_fetches_nothing(boards: Configuration) -> None:
    html = standalone.document(report.render(boards, NO_LINKS))
    assert not re.search(r'(?:src|href)="(?!#)', html)
    assert "@import" not in html
    assert "<!--tw:" not in html


def test_the_policy_allows_exactly_the_scripts_in_the_file(boards: Configuration) -> None:
    html = standalone.document(report.render(boards, NO_LINKS))
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    policy = next(
        a["content"] or ""
        for tag, a in Parsed(html).tags
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert len(scripts) == 2
    assert re.findall(r"'sha256-[^']+'", policy) == [script_hash(s) for s in scripts]


def test_a_report_with_every_instrument_and_many_trials_keeps_to_the_size_of_a_page(
    energetic: Configuration,
) -> None:
    known = energetic.claims.trials
    more = tuple(
        known[0].model_copy(update={"trial": n, "rate_urps": known[0].rate_urps + 7919 * n})
        for n in range(10, 20)
    )
    page = report.render(told(energetic, trials=(*known, *more)), NO_LINKS)
    html = standalone.document(page).encode()
    assert html.count(b"<svg viewBox") >= 20
    assert len(html) < 160_000
    assert len(gzip.compress(html)) < 40_000
