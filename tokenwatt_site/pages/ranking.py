"""The ranking: every configuration listed, ranked only where eligible; quoted records apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import COLUMNS, Cell, Leaderboard, Row, Section
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import headline, outcomes, text
from tokenwatt_site.pages.page import Page, render_template
from tokenwatt_site.run import Claims, ClaimsOnlyRecord, GateOutcome
from tokenwatt_site.trust.keyring import KeyState

CODE_WORDS = {
    "withdrawn": "withdrawn",
    "superseded": "superseded",
    "disputed": "disputed",
    "simulated": "simulated",
    "interrupted": "interrupted",
    "mode": "not full mode",
    "physics": "a number that physics forbids",
    "slo": "SLO not met",
    "launches": "too few launches",
    "long-run": "not corrected to the long run",
    "setup": "setup not fully recorded",
}
"""Code of an exclusion -> the words of its tag. Those of "accuracy" are GATE_WORDS, those of "key"
KEY_WORDS."""

KEY_WORDS: Mapping[KeyState, str] = MappingProxyType(
    {"unknown": "key not registered", "expired": "key expired", "revoked": "key revoked"}
)
"""State of a key that is not trusted -> the words of its tag."""

GATE_WORDS: Mapping[GateOutcome, str] = MappingProxyType(
    {
        "failed": "accuracy gate failed",
        "inconclusive": "accuracy gate inconclusive",
        "no reference": "no reference for accuracy",
        "not run": "accuracy gate not run",
        "none": "no accuracy gate",
        "passed": "accuracy reference not valid here",
    }
)
"""What the gate of a configuration that it keeps from ranking came to -> the words of its tag."""

_BAR_WIDTH = 132.0


@dataclass(frozen=True, slots=True)
class CellView:
    """`sort` is the number to sort by, empty where there is none."""

    sort: str
    words: str
    missing: str | None
    under: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowView:
    """`failed`: the accuracy gate was failed, and the first of `tags` says so.

    `struck`: the run was taken back by its publisher.
    `interval`, `bar` and `cap` are of the long-run goodput, which ranks.
    """

    url: str
    title: str
    under: str
    rank: str
    rank_sort: str
    tied: bool
    simulated: bool
    struck: bool
    cells: tuple[CellView, ...]
    interval: str
    interval_sort: str
    bar: float
    cap: tuple[float, float] | None
    n: int
    measured: str
    failed: bool
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SectionView:
    id: str
    heading: str
    under: str
    scope: str
    status: str
    unranked: tuple[tuple[str, int], ...]
    heads: tuple[tuple[str, str, str, str], ...]
    absent: str
    rows: tuple[RowView, ...]
    missing: tuple[tuple[str, str], ...]


def render(
    leaderboard: Leaderboard,
    configurations: Mapping[str, Configuration],
    urls: Mapping[str, str],
    quoted: Sequence[tuple[ClaimsOnlyRecord, str]],
    refused: Sequence[tuple[str, str]],
) -> Page:
    """Make the ranking page.

    Args:
        leaderboard: the sections, their rows in order.
        configurations: by id, for what stands under a title.
        urls: configuration id -> its page.
        quoted: claims-only records and their pages.
        refused: (file, reason) of what was left out of this site.
    """
    sections = tuple(
        _section(section, index, configurations, urls)
        for index, section in enumerate(leaderboard.sections, start=1)
    )
    listed = sum(len(section.rows) for section in sections)
    toc = [(section.id, section.heading) for section in sections]
    toc += [("quoted", "As published, not recomputed")] if quoted else []
    toc += [("left-out", "Left out")] if refused else []
    html = render_template(
        "ranking.html.j2", sections=sections, listed=listed, quoted=quoted, refused=refused
    )
    return Page(
        title="Ranking",
        description=f"Measured configurations: {listed}. Every number recomputed.",
        toc=tuple(toc) or (("ranking", "Ranking"),),
        html=html,
        charts=(),
    )


def _section(
    section: Section,
    index: int,
    configurations: Mapping[str, Configuration],
    urls: Mapping[str, str],
) -> SectionView:
    top = max(
        (c.value for r in section.rows for c in r.cells[:1] if c.value is not None), default=1.0
    )
    shown = [
        i
        for i in range(len(COLUMNS))
        if i == 0 or any(r.cells[i].value is not None for r in section.rows)
    ]
    absent = [METRICS[COLUMNS[i]].label for i in range(len(COLUMNS)) if i not in shown]
    tags = Counter(
        word for row in section.rows for word, _ in _tags(row, configurations[row.configuration])
    )
    unranked = len(section.rows) - section.ranked
    return SectionView(
        id=f"section-{index}",
        heading=f"{section.workload}{', on CPUs' if section.cpu else ''}",
        under=text.slo(configurations[section.rows[0].configuration].setup.slo),
        scope=section.power_scope,
        status=f"{section.ranked} ranked, {unranked} listed unranked. Nothing is hidden.",
        unranked=tuple(tags.most_common()),
        heads=tuple(_heads(section, shown)),
        absent=", ".join(absent),
        rows=tuple(
            _row(row, configurations[row.configuration], urls[row.configuration], top, shown)
            for row in section.rows
        ),
        missing=tuple(_missing(section, configurations)),
    )


def _heads(section: Section, shown: Sequence[int]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (key, label, unit, direction of the first click)."""
    for position in shown:
        key = COLUMNS[position]
        metric = METRICS[key]
        label = section.rows[0].cells[position].label
        first = "ascending" if metric.better == "lower" else "descending"
        yield key, _SHORT.get(key, label), metric.unit, first


_SHORT = {
    "long_run_goodput": "Goodput, long run",
    "goodput": "Goodput, measured",
    "boundary_rate": "Boundary, measured",
    "mbu": "MBU",
    "board_power": "Power",
    "tokens_per_joule": "Energy",
}


def _row(
    row: Row, configuration: Configuration, url: str, top: float, shown: Sequence[int]
) -> RowView:
    config, goodput = configuration.setup, row.cells[0]
    launches = len(configuration.claims.repeats)
    metric = METRICS[goodput.key]
    cap, interval = None, ""
    if goodput.low is not None and goodput.high is not None:
        low, high = (text.amount(v, metric) for v in (goodput.low, goodput.high))
        interval = f"{low} to {high}"
        start = _BAR_WIDTH * goodput.low / top
        cap = (start, max(2.0, _BAR_WIDTH * goodput.high / top - start))
    rank = "–"
    if row.rank is not None:
        best, worst = row.rank.best, row.rank.worst
        rank = str(best) if best == worst else f"{best}–{worst}"
    words = [
        text.boards(config.accelerator),
        text.engine(config.engine),
        f"TP{config.parallelism.tensor}",
        *text.quantization(config.quantization),
        f"{configuration.headline.run.spec.protocol.mode} mode",
    ]
    return RowView(
        url=url,
        title=row.title,
        under=" · ".join(words),
        rank=rank,
        rank_sort="" if row.rank is None else str(row.rank.best),
        tied=row.rank is not None and row.rank.tied,
        simulated=row.simulated,
        struck=configuration.headline.standing.retracted,
        cells=tuple(_cell(configuration.claims, row.cells[i]) for i in shown),
        interval=interval or f"n = {launches}: none",
        interval_sort="" if goodput.low is None else repr(goodput.low),
        bar=0.0 if goodput.value is None else _BAR_WIDTH * goodput.value / top,
        cap=cap,
        n=launches,
        measured=configuration.headline.run.conditions.started[:10],
        failed=configuration.claims.gate.outcome == "failed",
        tags=tuple(_tags(row, configuration)),
    )


def _tags(row: Row, configuration: Configuration) -> list[tuple[str, str]]:
    """Return (words of the tag, the reason in full), a gate that was failed first."""
    words = {
        **CODE_WORDS,
        "accuracy": GATE_WORDS.get(configuration.claims.gate.outcome, ""),
        "key": KEY_WORDS.get(configuration.headline.key_state, ""),
    }
    tags = [(words[why.code], why.text) for why in row.excluded]
    return sorted(tags, key=lambda tag: tag[0] != GATE_WORDS["failed"])


def _cell(claims: Claims, cell: Cell) -> CellView:
    if cell.value is None:
        why = outcomes.why(claims, claims.metric(cell.key))
        return CellView("", why.partition(":")[0], why)
    words = text.amount(cell.value, METRICS[cell.key])
    under = (*_uncorrected(claims, cell), *_of_questions(claims, cell))
    return CellView(repr(cell.value), words, None, under)


def _uncorrected(claims: Claims, cell: Cell) -> tuple[str, ...]:
    """Mark a measured goodput with none of the long run beside it, and say how sure it is."""
    if cell.key != "goodput" or claims.metric(headline.LONG_RUN).value is not None:
        return ()
    if cell.low is None or cell.high is None:
        return (text.NOT_CORRECTED,)
    low, high = (text.amount(v, METRICS[cell.key]) for v in (cell.low, cell.high))
    return text.NOT_CORRECTED, f"{low} to {high}"


def _of_questions(claims: Claims, cell: Cell) -> tuple[str, ...]:
    """Say how sure a score is: its n is questions, where the table's is launches."""
    if cell.key != "accuracy" or cell.low is None or cell.high is None:
        return ()
    low, high = (text.amount(v, METRICS[cell.key]) for v in (cell.low, cell.high))
    return f"{low} to {high}", f"n = {claims.accuracy[0].questions:,} questions"


def _missing(
    section: Section, configurations: Mapping[str, Configuration]
) -> Iterator[tuple[str, str]]:
    """Yield (metric, reason), once for each reason, with how many rows it is about."""
    counted: Counter[tuple[str, str]] = Counter()
    for row in section.rows:
        claims = configurations[row.configuration].claims
        counted.update(
            (cell.label, outcomes.why(claims, claims.metric(cell.key)))
            for cell in row.cells
            if cell.value is None
        )
    for (label, reason), n in counted.items():
        yield label, f"{reason} ({n} of {len(section.rows)} configurations)"
