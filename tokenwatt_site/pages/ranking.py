"""The leaderboard as it reads without scripts; `assets/leaderboard.js` goes on from there.

The script writes every row by the same rules, from the same catalogue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenwatt_site.pages import packed_catalogue, text, tradeoff
from tokenwatt_site.pages.page import Page, render_template
from tokenwatt_site.pages.tradeoff import RowData
from tokenwatt_site.run import ClaimsOnlyRecord

SCRIPTS = ("leaderboard-rows.js", "tradeoff.js", "leaderboard.js")
"""Scripts of the assets that it needs, in this order, after those of the catalogue."""

STATIC_ROWS = 50
"""Rows of a section that stand in the page; its script, and the CSV file, have them all."""

_LEADERS = 3
"""Co-leaders that are named in sight; the others are folded."""

_BAR_WIDTH = 132.0


@dataclass(frozen=True, slots=True)
class CellView:
    """`under` are lines below the number: what it lacks, its interval, its n."""

    words: str
    missing: str | None
    under: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowView:
    """`failed`: the accuracy gate was failed, and the first of `tags` says so.

    `bar` and `cap` are of the long-run goodput, which ranks.
    """

    data: RowData
    rank: str
    cells: tuple[CellView, ...]
    bar: float
    cap: tuple[float, float] | None
    failed: bool
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TradeOffView:
    """The frontier as a table: (label, unit) of both columns, and the rows with both numbers."""

    x: tuple[str, str]
    y: tuple[str, str]
    rows: tuple[tuple[RowData, str, str], ...]


@dataclass(frozen=True, slots=True)
class SectionView:
    data: Mapping[str, Any]
    status: str
    leaders: tuple[tuple[RowData, str], ...]
    folded: int
    unranked: tuple[tuple[str, int], ...]
    heads: tuple[tuple[str, str, str], ...]
    absent: str
    rows: tuple[RowView, ...]
    missing: tuple[tuple[str, str], ...]
    trade_off: TradeOffView | None


def render(
    catalogue: Mapping[str, Any],
    quoted: Sequence[tuple[ClaimsOnlyRecord, str]],
    refused: Sequence[tuple[str, str]],
    assets: str = "assets",
) -> Page:
    """Make the page of the leaderboard.

    Args:
        catalogue: as of `catalogue.catalogue`; the page lies at the root of the site.
        quoted: claims-only records and their pages.
        refused: (file, reason) of what was left out of this site.
        assets: URL of the folder of its scripts.
    """
    columns = {column["key"]: column for column in catalogue["columns"]}
    members: list[list[RowData]] = [[] for _ in catalogue["sections"]]
    for row in catalogue["rows"]:
        members[row["section"]].append(row)
    sections = tuple(
        _section(section, rows, columns)
        for section, rows in zip(catalogue["sections"], members, strict=True)
    )
    listed = len(catalogue["rows"])
    toc = [(s.data["id"], s.data["heading"]) for s in sections]
    toc += [("quoted", "As published, not recomputed")] if quoted else []
    toc += [("left-out", "Left out")] if refused else []
    names = (packed_catalogue.DATA, packed_catalogue.READER, *SCRIPTS)
    html = render_template(
        "ranking.html.j2",
        sections=sections,
        listed=listed,
        quoted=quoted,
        refused=refused,
        scripts=[f"{assets}/{name}" for name in names] if listed else [],
        leaders_shown=_LEADERS,
    )
    return Page(
        title="Ranking",
        description=f"Measured configurations: {listed}. Every number recomputed.",
        toc=tuple(toc) or (("ranking", "Ranking"),),
        html=html,
        charts=(),
    )


def _section(
    section: Mapping[str, Any], rows: Sequence[RowData], columns: Mapping[str, Mapping[str, Any]]
) -> SectionView:
    shown = section["shown"]
    first = shown[0]
    top = max((value for row in rows if (value := row["cells"][first]["value"])), default=1.0)
    absent = [section["labels"][key] for key in section["labels"] if _nowhere(rows, key)]
    tags = Counter(tag for row in rows for _, _, tag in row["excluded"])
    static = rows[:STATIC_ROWS]
    left = len(rows) - section["ranked"]
    status = f"{section['ranked']:,} ranked, {left:,} listed unranked. Nothing is hidden."
    if len(static) < len(rows):
        status = (
            f"{section['ranked']:,} ranked, {left:,} listed unranked. The first {len(static)} are"
            " here; all are in ranking.csv."
        )
    leaders = [row for row in rows if row["rank"] and row["rank"][0] == 1]
    return SectionView(
        data=section,
        status=status,
        leaders=tuple((row, _leads(row, columns[first])) for row in leaders),
        folded=max(0, len(leaders) - _LEADERS),
        unranked=tuple(tags.most_common()),
        heads=tuple(
            (key, columns[key]["short"] if key not in _QUANTILES else section["labels"][key], unit)
            for key in shown
            for unit in (columns[key]["unit"],)
        ),
        absent=", ".join(absent),
        rows=tuple(_row(row, shown, columns, top) for row in static),
        missing=tuple(_missing(section, rows)),
        trade_off=_trade_off(section, rows, columns),
    )


_QUANTILES = frozenset({"ttft", "tpot", "e2e"})
"""Columns whose label tells a quantile."""


def _nowhere(rows: Sequence[RowData], key: str) -> bool:
    return all(row["cells"][key]["value"] is None for row in rows)


def _row(
    row: RowData, shown: Sequence[str], columns: Mapping[str, Mapping[str, Any]], top: float
) -> RowView:
    goodput = row["cells"][shown[0]]
    cap = None
    if goodput["low"] is not None and goodput["high"] is not None:
        start = _BAR_WIDTH * goodput["low"] / top
        cap = (start, max(2.0, _BAR_WIDTH * goodput["high"] / top - start))
    tags = tuple((tag, why) for _, why, tag in row["excluded"])
    return RowView(
        data=row,
        rank=ranks(row),
        cells=tuple(_cell(row, key, columns[key]) for key in shown),
        bar=_BAR_WIDTH * (goodput["value"] or 0.0) / top,
        cap=cap,
        failed=bool(tags) and tags[0][0] == tradeoff.FAILED,
        tags=tags,
    )


def ranks(row: RowData) -> str:
    """Such as "1–3"."""
    if row["rank"] is None:
        return "–"
    best, worst = row["rank"]
    return str(best) if best == worst else f"{best}–{worst}"


def _leads(row: RowData, column: Mapping[str, Any]) -> str:
    cell, digits = row["cells"][column["key"]], column["digits"]
    rank = f"rank{'s' if '–' in ranks(row) else ''} {ranks(row)}, n = {row['n']}"
    if cell["value"] is None:
        return rank
    interval = _interval(cell, digits)
    sure = f" ({interval})" if interval else ""
    return f"{text.rounded(cell['value'], digits)} {column['unit']}{sure}, {rank}"


def _cell(row: RowData, key: str, column: Mapping[str, Any]) -> CellView:
    cell = row["cells"][key]
    if cell["value"] is None:
        return CellView(cell["reason"].partition(":")[0], cell["reason"])
    under = []
    if key == "goodput" and row["cells"]["long_run_goodput"]["value"] is None:
        under.append(text.NOT_CORRECTED)
    if interval := _interval(cell, column["digits"]):
        under.append(interval)
    if key == "accuracy":
        under.append(f"n = {cell['n']:,} questions")
    return CellView(text.rounded(cell["value"], column["digits"]), None, tuple(under))


def _interval(cell: Mapping[str, Any], digits: int) -> str:
    if cell["low"] is None or cell["high"] is None:
        return ""
    return f"{text.rounded(cell['low'], digits)} to {text.rounded(cell['high'], digits)}"


def _missing(section: Mapping[str, Any], rows: Sequence[RowData]) -> Iterator[tuple[str, str]]:
    """Yield (metric, reason), once for each reason, with how many rows it is about."""
    counted = Counter(
        (label, row["cells"][key]["reason"])
        for row in rows
        for key, label in section["labels"].items()
        if row["cells"][key]["value"] is None
    )
    for (label, reason), n in counted.items():
        yield label, f"{reason} ({n} of {len(rows)} configurations)"


def _trade_off(
    section: Mapping[str, Any], rows: Sequence[RowData], columns: Mapping[str, Mapping[str, Any]]
) -> TradeOffView | None:
    if (found := tradeoff.axes(rows)) is None:
        return None
    better = {key: column["better"] for key, column in columns.items()}
    x, y = ((section["labels"][key], columns[key]["unit"]) for key in found)

    def words(row: RowData, key: str) -> str:
        return _cell(row, key, columns[key]).words

    return TradeOffView(
        x,
        y,
        tuple(
            (row, words(row, found[0]), words(row, found[1]))
            for row in tradeoff.frontier(rows, *found, better)
        ),
    )
