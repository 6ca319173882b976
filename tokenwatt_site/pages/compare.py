"""The pages of comparisons: of one that is made once, and the one on which a reader picks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenwatt_site import statistics
from tokenwatt_site.comparison.result import KINDS, OF_BOARDS, WHOLE, Detail
from tokenwatt_site.field_words import FIELD_WORDS
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages.comparison_blocks import PAGE, address, blocks, heading
from tokenwatt_site.pages.comparison_results import HOW_TO_READ, TICKS
from tokenwatt_site.pages.comparison_words import MARKS, Block
from tokenwatt_site.pages.detail import data
from tokenwatt_site.pages.page import Page, render_template
from tokenwatt_site.run import LONG_RUN_METRICS

SCRIPTS = ("compare-core.js", "compare-view.js", "compare.js")
"""Scripts of the assets that the page needs, in this order, after DATA."""

DATA = "compare-data.js"
DETAILS = "details"
"""The folder of the site with a script for each result."""

MOST_SIDES = 6

TITLE = "Compare"


def toc(found: Sequence[Block]) -> tuple[tuple[str, str], ...]:
    listed = [(str(b["id"]), str(b["text"])) for b in found if b["kind"] == "h2"]
    return (*listed[:-1], ("not-covered", "Not covered"), listed[-1])


def render(
    details: Sequence[Detail],
    urls: Mapping[str, str],
    *,
    title: str | None = None,
    why: str = "",
    glossary: str | None = None,
    live: str | None = None,
) -> Page:
    """Make the page of one comparison.

    Args:
        details: two or more, the baseline first.
        urls: id -> its report, where there is one.
        title: heading; what is compared when None.
        why: what its author says of it.
        glossary: URL of the page that says what the numbers mean.
        live: URL of the page on which a reader may change the sides.
    """
    found = blocks(details)
    named = title or heading(details)
    html = render_template(
        "comparison.html.j2",
        title=named,
        why=why,
        blocks=found,
        urls=urls,
        glossary=glossary,
        live=live and f"{live}{address(d['id'] for d in details).removeprefix(PAGE)}",
    )
    summary = next(b for b in found if b.get("class") == "tw-summary")
    description = "".join(words for words, _ in summary["parts"])
    return Page(named, description[:300], toc(found), html, ())


def picker(
    root: str,
    catalogue: Sequence[str],
    named: Sequence[tuple[str, str, str]],
    home: str,
    glossary: str,
) -> Page:
    """Make the page on which a reader picks what to compare.

    Args:
        root: URL of the site's root with a slash, relative to the page; empty: it is there.
        catalogue: scripts in `assets/` that tell what there is to pick, in their order.
        named: (title, why, URL) of the comparisons that the site names.
        home: URL of the ranking.
        glossary: URL of the page that says what the numbers mean.
    """
    html = render_template(
        "compare.html.j2",
        title=TITLE,
        root=root,
        scripts=[f"{root}assets/{name}" for name in (*catalogue, DATA, *SCRIPTS)],
        named=named,
        home=home,
        glossary=glossary,
    )
    return Page(
        title=TITLE,
        description="Two or more measured configurations side by side: what differs, by how much.",
        toc=(
            ("compare-result", "Result"),
            ("pick", "What to compare"),
            ("named", "Comparisons of this site"),
        ),
        html=html,
        charts=(),
    )


def script_data(quoted: Sequence[tuple[str, str]]) -> str:
    """Return the script with the tables and words that both makers of blocks share.

    Args:
        quoted: (id, title) of publications that may be the baseline.
    """
    value = {
        "kinds": {group: list(keys) for group, keys in KINDS.items()},
        "whole": sorted(WHOLE),
        "ofBoards": list(OF_BOARDS),
        "longRun": list(LONG_RUN_METRICS),
        "systematic": statistics.SYSTEMATIC,
        "same": statistics.SAME,
        "t975": statistics.T_975,
        "t95": statistics.T_95,
        "metrics": {
            key: {"label": m.label, "unit": m.unit, "better": m.better, "decimals": m.decimals}
            for key, m in METRICS.items()
        },
        "fieldWords": dict(FIELD_WORDS),
        "marks": {word: list(mark) for word, mark in MARKS.items()},
        "ticks": list(TICKS),
        "howToRead": HOW_TO_READ,
        "most": MOST_SIDES,
        "quoted": [list(each) for each in quoted],
    }
    return f"globalThis.TokenwattCompareData = {data(value)};\n"
