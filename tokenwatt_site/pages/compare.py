"""What a comparison says: blocks of words and numbers, the same ones that the page's script makes.

A block is plain data: a template writes it into a page that is made once, and `compare-view.js`
makes and shows the same block for whatever a reader picks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tokenwatt_site import comparison, statistics
from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.comparison import Accuracy, Cards, Compared, Detail, Pair, Row, compare, letter
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import text
from tokenwatt_site.pages.detail import data
from tokenwatt_site.pages.page import Page, render_template
from tokenwatt_site.run import LONG_RUN_METRICS
from tokenwatt_site.statistics import Ratio

SCRIPTS = ("compare-core.js", "compare-view.js", "compare.js")
"""Scripts of the assets that the page needs, in this order, after DATA."""

DATA = "compare-data.js"
DETAILS = "details"
"""The folder of the site with a script for each result."""

MOST_SIDES = 6

Block: TypeAlias = dict[str, JsonValue]
Parts: TypeAlias = list[list[str]]
"""Words and how they are set: "", "b" or "code"."""

TITLE = "Compare"
_PAGE = "compare.html"

FIELD_WORDS: Mapping[str, str] = {
    "accelerator.model": "Accelerator",
    "accelerator.count": "Accelerators",
    "accelerator.memory_gib": "Memory of each (GiB)",
    "accelerator.rated_bandwidth_gb_s": "Rated bandwidth of each (GB/s)",
    "accelerator.power_limit_w": "Power limit of each (W)",
    "driver": "Driver / runtime",
    "host_kind": "Host",
    "engine.name": "Engine",
    "engine.version": "Engine version",
    "engine.build": "Engine build",
    "engine.image_digest": "Image digest",
    "engine.argv": "Command line",
    "kernel_libraries": "Kernel libraries",
    "model.name": "Model",
    "model.revision": "Model revision",
    "model.architecture": "Architecture",
    "model.digest": "Model digest",
    "quantization.weights": "Weights",
    "quantization.kv_cache": "KV cache",
    "parallelism.replicas": "Replicas",
    "parallelism.tensor": "Tensor parallel",
    "parallelism.pipeline": "Pipeline parallel",
    "parallelism.expert": "Expert parallel",
    "parallelism.data": "Data parallel",
    "parallelism.prefill_decode_split": "Prefill/decode split",
    "workload.name": "Workload",
    "workload.version": "Workload version",
    "workload.hash": "Workload hash",
    "arrival": "Arrival",
    "slo": "SLO",
    "power.sensor": "Power sensor",
    "power.scope": "Power scope",
    "power.rate_hz": "Power rate (Hz)",
}
"""Path of a setup field -> its name; the others have the words of their path."""

MARKS: Mapping[str, tuple[str, str, str]] = {
    "better": ("better", "check", "circle"),
    "worse": ("worse", "warn", "square"),
    "different": ("different", "unranked", "slot"),
    "same within 3%": ("same", "recomputed", "diamond"),
    "no difference shown": ("none", "unranked", "ring"),
}
"""Verdict -> class, icon and shape of its mark."""

_SEEN = frozenset({"better", "worse", "different"})
"""Verdicts with which the size of a change may be told."""

_SIDE = {"higher": "↑ higher is better", "lower": "↓ lower is better", "neither": ""}

_TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000)

_WIDTH = 240.0

_MINUS = "\u2212"

HOW_TO_READ = (
    "How to read: each mark is a ratio, its line the interval, the grey band within 3% of equal."
    " Line clear of 1: better or worse. Line inside the band: same within 3%. Otherwise no"
    " difference shown, which is not proof that there is none. A ratio without a line has too few"
    " launches for an interval."
)


def blocks(details: Sequence[Detail]) -> list[Block]:
    """Return what a comparison says, in the order of the page, below its heading."""
    found = compare(details)
    return [
        *_top(details, found),
        *_setup(details, found),
        *(
            block
            for i, pair in enumerate(found.pairs, start=1)
            for block in _pair(details, pair, i)
        ),
        _not_covered(details),
        *_cite(details, found),
    ]


def heading(details: Sequence[Detail]) -> str:
    others = text.joined(detail["title"] for detail in details[1:])
    return f"{others} against {details[0]['title']}"


# ---------- summary and sides


def _top(details: Sequence[Detail], found: Compared) -> Iterator[Block]:
    question = details[1]
    words = [question["workload"]["name"], question["slo_text"], _boundary(question)]
    yield {"kind": "p", "class": "tw-eyebrow", "parts": [[" · ".join(filter(None, words)), ""]]}
    for i, detail in enumerate(details):
        if lead := _notice(detail):
            yield {"kind": "notice", "lead": f"{letter(i)}: {lead}", "rest": _why(detail)}
    for i, pair in enumerate(found.pairs, start=1):
        yield {"kind": "p", "class": "tw-summary", "parts": _summary(details[0], pair, letter(i))}
        if pair.controlled:
            yield {"kind": "p", "class": "tw-controlled", "parts": _controlled(pair, letter(i))}
    yield {"kind": "sides", "items": [_side(detail, i) for i, detail in enumerate(details)]}


def _boundary(detail: Detail) -> str:
    words = detail["power_words"]
    return f"power: {words}" if words else "no power measured"


def _notice(detail: Detail) -> str:
    if detail["quoted"]:
        return "As published, not recomputed."
    return {
        "withdrawn": "Withdrawn.",
        "superseded": "Superseded.",
        "disputed": "Disputed.",
        "simulated": "Simulated: its numbers are about no product.",
        "interrupted": "Interrupted.",
    }.get(detail["status"], "")


def _why(detail: Detail) -> str:
    if detail["quoted"]:
        return (
            f"Every ratio divides by what was published on {detail['measured']}, and has no"
            " interval. That its workload is the same is its own word: it has no hash."
        )
    told = "; ".join(why["text"] for why in detail["exclusions"])
    return f"{told[:1].upper()}{told[1:]}."


def _side(detail: Detail, index: int) -> Block:
    words = [detail["under"]]
    if detail["quoted"]:
        words.append(f"published {detail['measured']}")
    else:
        n = detail["launches"]
        words.append(f"{detail['mode']} mode, n = {n}, {detail['measured']}")
        words.append(detail["status"])
    return {
        "letter": letter(index),
        "role": "compared" if index else "baseline",
        "title": detail["title"],
        "under": "; ".join(words),
        "id": detail["id"],
    }


def _summary(a: Detail, pair: Pair, name: str) -> Parts:
    if pair.refused is not None:
        return [[f"{name} is not compared with A: ", ""], [pair.refused, "b"], [".", ""]]
    divided = {row.key: row for row in pair.rows if row.ratio is not None}
    keys = [next((k for k in ("long_run_goodput", "goodput") if k in divided), "")]
    keys += ["tokens_per_joule", "board_power"]
    said = [_said(divided[key]) for key in keys if key in divided]
    if pair.accuracy.word is not None:
        said.append([["accuracy ", ""], [pair.accuracy.word, "b"]])
    if not said:
        return [[f"Nothing of {name} can be divided by A; the reasons stand below.", ""]]
    parts: Parts = [[f"{name} against A: ", ""]]
    for i, each in enumerate(said):
        parts += [*([["; ", ""]] if i else []), *each]
    published = ", as published and not recomputed" if a["quoted"] else ""
    return [*parts, [f"{published}.", ""]]


def _said(row: Row) -> Parts:
    ratio = row.ratio
    if ratio is None:
        return []
    label = METRICS[row.key].label
    name = label if label[:1].isupper() and label[1:2].isupper() else label[0].lower() + label[1:]
    if ratio.low is None or ratio.high is None:
        return [[f"{name} ", ""], [_change(ratio.value), "b"], [", without an interval", ""]]
    told = f" ({row.level}% interval {_percent(ratio.low)} to {_percent(ratio.high)})"
    words = _change(ratio.value) if row.word in _SEEN else str(row.word)
    return [[f"{name} ", ""], [words, "b"], [told, ""]]


def _change(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{abs(change):.1f}% {'more' if change >= 0 else 'less'}"


def _percent(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{_MINUS if change < 0 else '+'}{abs(change):.1f}%"


def _controlled(pair: Pair, name: str) -> Parts:
    field = field_words(pair.differing[0])
    parts: Parts = [
        ["Controlled pair", "b"],
        [f": {field} differs between A and {name}; no other recorded field differs.", ""],
    ]
    return [*parts, *_unknown(pair)]


def _unknown(pair: Pair) -> Parts:
    if not pair.unknown:
        return []
    fields = text.joined(field_words(path) for path in pair.unknown)
    return [[f" Recorded on neither side, so that it may differ: {fields}.", ""]]


# ---------- setup


def field_words(path: str) -> str:
    """Name a setup field."""
    words = path.replace(".", " ").replace("_", " ")
    return FIELD_WORDS.get(path) or f"{words[:1].upper()}{words[1:]}"


def _setup(details: Sequence[Detail], found: Compared) -> Iterator[Block]:
    yield {"kind": "h2", "id": "setup", "text": "What differs in the setup"}
    differ, all_ = len(found.fields), len(found.fields) + len(found.equal)
    if found.fields:
        heads = [_head("Field")] + [_head(letter(i)) for i in range(len(details))]
        yield {
            "kind": "table",
            "label": "Differing setup fields",
            "class": "tw-fields",
            "caption": f"{differ} of {all_} setup fields differ.",
            "heads": heads,
            "groups": [{"name": "", "rows": [_field_row(details, f) for f in found.fields]}],
        }
    elif all_:
        words = f"None of {all_} setup fields differs: these are runs of one setup."
        yield {"kind": "p", "class": "", "parts": [[words, ""]]}
    if any(detail["quoted"] for detail in details):
        words = "The publication tells its setup in its own words, which are not compared here."
        yield {"kind": "p", "class": "tw-small", "parts": [[words, ""]]}
    if found.equal and found.fields:
        summary = f"The {len(found.equal)} fields that are equal"
        items = [field_words(path) for path in found.equal]
        yield {"kind": "details", "summary": summary, "items": items}


def _head(words: str, cls: str = "", axis: Block | None = None) -> Block:
    return {"text": words, "class": cls, "axis": axis}


def _cell(parts: Parts, cls: str = "", small: str = "", **more: JsonValue) -> Block:
    """`key` links to a definition; a `bar` or a `verdict` stands behind the words."""
    empty = {"key": None, "verdict": None, "bar": None, "span": None}
    return {"parts": parts, "class": cls, "small": small, **empty, **more}


def _field_row(details: Sequence[Detail], field: comparison.Field) -> list[Block]:
    cells = [_cell([[field_words(field.path), ""]])]
    for detail, value in zip(details, field.values, strict=True):
        if detail["quoted"]:
            parts: Parts = [["in its own words", ""]]
        elif isinstance(value, list):
            others = [v for v in field.values if isinstance(v, list)]
            parts = [
                [value_words(each), "b" if any(each not in o for o in others) else ""]
                for each in value
            ]
            parts = _spaced(parts) or [["none", ""]]
        else:
            parts = [["absent" if value is None else value_words(value), ""]]
        cells.append(_cell(parts))
    return cells


def _spaced(parts: Parts) -> Parts:
    """Put a space between the words of a list."""
    return [part for i, each in enumerate(parts) for part in ([[" ", ""], each] if i else [each])]


def value_words(value: JsonValue) -> str:
    """Write a value of a setup: objects as "name value", whole numbers without a point."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {value_words(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "none" if value is None else str(value)


# ---------- results of a pair


def _pair(details: Sequence[Detail], pair: Pair, index: int) -> Iterator[Block]:
    a, b, name = details[0], details[index], letter(index)
    yield {"kind": "h2", "id": f"results-{name}", "text": f"Results, {name} relative to A"}
    if pair.refused is not None:
        words = f"Not compared: {pair.refused}."
        yield {"kind": "p", "class": "tw-missing", "parts": [[words, ""]]}
    else:
        yield _results(a, b, pair, name)
        yield {"kind": "p", "class": "tw-fig-note", "parts": [[HOW_TO_READ, ""]]}
        if pair.absent:
            items = [f"{label}: {reason}" for label, reason in pair.absent]
            yield {"kind": "details", "summary": "Numbers that neither side has", "items": items}
    yield from _cards(pair.cards, name)
    yield from _accuracy(pair.accuracy, name)


def _results(a: Detail, b: Detail, pair: Pair, name: str) -> Block:
    scale = _scale(pair.rows)
    published = ", A as published and not recomputed" if a["quoted"] else ""
    return {
        "kind": "table",
        "label": f"Results, {name} relative to A",
        "class": "tw-cmp",
        "caption": f"{name} divided by A{published}. {_how(pair.rows)}",
        "heads": [
            _head("Metric"),
            _head(f"Verdict on {name}", "tw-wide-cell"),
            _head(f"Ratio {name} / A, interval", "n"),
            _head("Smaller than A, or larger", "tw-ratio", _axis(scale)),
            _head("A", "n"),
            _head(name, "n"),
        ],
        "groups": [
            {
                "name": _group(group, b),
                "rows": [_row(row, scale, a) for row in pair.rows if row.group == group],
            }
            for group in dict.fromkeys(row.group for row in pair.rows)
        ],
    }


def _group(group: str, b: Detail) -> str:
    words = b["power_words"]
    return f"{group}: {words}" if group == comparison.ENERGY and words else group


def _how(rows: Iterable[Row]) -> str:
    """Say how the intervals were made, each way once."""
    found = dict.fromkeys((row.paired, row.launches, row.level) for row in rows if row.ratio)
    told = []
    for is_paired, (ones, others), level in found:
        if ones == 0:
            words = f"n = {others} on the other side"
        elif is_paired:
            words = f"paired by realisation, n = {text.counted(others, 'pair')}"
        else:
            words = f"Welch on logarithms, n = {ones} and {others} launches"
        told.append(f"{words}, {f'{level}% interval' if level else 'too few for an interval'}")
    sentences = "; ".join(told)
    return f"{sentences[:1].upper()}{sentences[1:]}." if told else ""


def _row(row: Row, scale: float, a: Detail) -> list[Block]:
    metric = METRICS[row.key]
    side = _SIDE[metric.better]
    small = f"{metric.unit}; {side}" if side else metric.unit
    values = [_cell([[_amount(v, row.key), ""]], "n") for v in (row.baseline, row.other)]
    if row.ratio is None or row.word is None:
        why = _cell([[f"not compared: {row.reason}", ""]], "tw-none tw-reason", span=3)
        return [_cell([[row.label, ""]], "", small, key=row.key), why, *values]
    verdict = _verdict(row.word)
    sure = "as published, not recomputed" if a["quoted"] else _interval(row.ratio)
    return [
        _cell([[row.label, ""]], "", small, key=row.key, verdict=verdict),
        _cell([], "tw-wide-cell", verdict=verdict),
        _cell([[f"{row.ratio.value:.3f}", "b"]], "n", sure),
        _cell([], "tw-ratio", bar=_bar(row.ratio, row.word, scale)),
        *values,
    ]


def _verdict(word: str) -> Block:
    cls, icon, _ = MARKS[word]
    return {"word": word, "class": cls, "icon": icon}


def _amount(value: float | None, key: str) -> str:
    return "–" if value is None else text.amount(value, METRICS[key])


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return "no interval"
    return f"{ratio.low:.3f} to {ratio.high:.3f}"


def _scale(rows: Iterable[Row]) -> float:
    """Return how far the axis goes on either side of 1, on logs."""
    ends = [end for row in rows if row.ratio for end in (row.ratio.low, row.ratio.high)]
    ends += [row.ratio.value for row in rows if row.ratio]
    furthest = max((abs(math.log(end)) for end in ends if end is not None), default=0.0)
    return 1.1 * max(furthest, math.log(1.05))


def _at(value: float, scale: float) -> float:
    return round(_WIDTH / 2 * (1 + math.log(value) / scale), 1)


def _axis(scale: float) -> Block:
    tick = max(tick for tick in _TICKS if math.log(tick) <= 0.95 * scale)
    ends = [[_at(1 / tick, scale), f"÷ {tick:g}"], [_at(1, scale), "1"]]
    return {"ticks": [*ends, [_at(tick, scale), f"× {tick:g}"]]}


def _bar(ratio: Ratio, word: str, scale: float) -> Block:
    band = [max(0.0, _at(1 / statistics.SAME, scale)), min(_WIDTH, _at(statistics.SAME, scale))]
    line = None
    if ratio.low is not None and ratio.high is not None:
        line = [_at(ratio.low, scale), _at(ratio.high, scale)]
    words = f"{word}: ratio {ratio.value:.3f}, {_interval(ratio)}"
    at, shape = _at(ratio.value, scale), MARKS[word][2]
    return {"at": at, "line": line, "band": band, "shape": shape, "words": words}


def _cards(found: Cards, name: str) -> Iterator[Block]:
    yield {"kind": "h3", "id": f"cards-{name}", "text": "Cards for equal goodput"}
    if found.value is None or found.per_card is None or found.of is None:
        words = f"Not told: {found.reason}."
        yield {"kind": "p", "class": "tw-small", "parts": [[words, ""]]}
        return
    reference = comparison.REFERENCE_CARDS
    parts: Parts = [
        [f"{found.value:,} cards of {name}", "b"],
        [f" do the work of {reference} of A", ""],
    ]
    if found.low is not None and found.high is not None:
        parts.append([f" (by the interval {found.low:,} to {found.high:,})", ""])
    label = METRICS[found.of].label
    per_card = f"{found.per_card.value:.3f}"
    words = (
        f". {reference} ÷ the ratio of {label} per card, {per_card}, rounded up; all cards count."
    )
    parts.append([words, ""])
    yield {"kind": "p", "class": "", "parts": parts}


def _accuracy(found: Accuracy, name: str) -> Iterator[Block]:
    yield {"kind": "h3", "id": f"accuracy-{name}", "text": "Accuracy"}
    if found.points is None or found.low is None or found.high is None:
        words = f"Not compared: {found.reason}."
        yield {"kind": "p", "class": "tw-small", "parts": [[words, ""]]}
        return
    told = f"{_points(found.points)} points, 95% interval {_points(found.low)} to"
    scores = f"{found.other:.1f}% against {found.baseline:.1f}%"
    words = (
        f": {name} is at {scores} on the same {found.questions:,} questions of {found.task}:"
        f" {told} {_points(found.high)}. {found.worse:,} were right on A alone,"
        f" {found.better:,} on {name} alone."
    )
    parts: Parts = [[str(found.word), "b"], [words, ""]]
    cls = f"tw-verdict--{MARKS[str(found.word)][0]}"
    yield {"kind": "p", "class": cls, "parts": parts}


def _points(value: float) -> str:
    shown = f"{abs(value):.2f}"
    return shown if float(shown) == 0 else f"{_MINUS if value < 0 else '+'}{shown}"


# ---------- the end of the page

_OTHER_BOARDS = (
    "Each side ran on the boards that its report names; two of one model may differ, and their"
    " power readings by up to 5%."
)


def _not_covered(details: Sequence[Detail]) -> Block:
    dates = ", ".join(
        f"{letter(i)} {'was published' if d['quoted'] else 'is'} of {d['measured']}"
        for i, d in enumerate(details)
    )
    other = details[1]
    items = [
        ["Causes", "That a field differs does not show that it is the cause."],
        ["Other boards", _OTHER_BOARDS],
        [
            "Other workloads and limits",
            f"{other['workload']['name']} within {other['slo_text']}. Others can turn the order.",
        ],
        ["Time between the runs", f"{dates}."],
    ]
    return {"kind": "not", "items": items}


def _cite(details: Sequence[Detail], found: Compared) -> Iterator[Block]:
    yield {"kind": "h2", "id": "cite", "text": "Link and cite"}
    told = []
    for i, (detail, pair) in enumerate(zip(details[1:], found.pairs, strict=True), start=1):
        rows = {row.key: row for row in pair.rows if row.ratio is not None}
        row = rows.get("long_run_goodput") or rows.get("goodput")
        if row is None or row.ratio is None:
            told.append(f"{detail['title']}: not compared.")
            continue
        ones, others = row.launches
        n = f"n = {text.counted(others, 'pair')}" if row.paired else f"n = {ones} and {others}"
        level = f"{row.level}% interval {_interval(row.ratio)}" if row.level else "no interval"
        published = ", A as published" if details[0]["quoted"] else ""
        told.append(
            f"{detail['title']}, {METRICS[row.key].label} {row.ratio.value:.3f} of the baseline's,"
            f" {level}, {n}, {detail['mode']} mode, {detail['measured']}{published}:"
            f" {row.word} ({letter(i)})."
        )
    a = details[0]
    words = f"Baseline: {a['title']}, {a['measured']}. {' '.join(told)} {address(details)}"
    yield {"kind": "cmd", "label": "Plain text, with ratio, interval and n", "text": words}


def address(details: Sequence[Detail]) -> str:
    """Return where the page compares these, relative to the site."""
    sides = "&".join(f"{letter(i).lower()}={d['id']}" for i, d in enumerate(details))
    return f"{_PAGE}#{sides}"


# ---------- pages


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
        live=live and f"{live}{address(details).removeprefix(_PAGE)}",
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
        toc=(("pick", "What to compare"), ("named", "Comparisons of this site")),
        html=html,
        charts=(),
    )


def script_data(quoted: Sequence[tuple[str, str]]) -> str:
    """Return the script with the tables and words that both makers of blocks share.

    Args:
        quoted: (id, title) of publications that may be the baseline.
    """
    value = {
        "kinds": {group: list(keys) for group, keys in comparison.KINDS.items()},
        "whole": sorted(comparison.WHOLE),
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
        "ticks": list(_TICKS),
        "howToRead": HOW_TO_READ,
        "most": MOST_SIDES,
        "quoted": [list(each) for each in quoted],
    }
    return f"globalThis.TokenwattCompareData = {data(value)};\n"
