"""What a comparison says, in the order of its page: the same blocks as the page's script makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.comparison.compare import compare
from tokenwatt_site.comparison.result import Compared, Detail, Field, Pair, Row, letter
from tokenwatt_site.field_words import field_words
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import text
from tokenwatt_site.pages.comparison_results import pair_blocks
from tokenwatt_site.pages.comparison_words import (
    Block,
    Parts,
    cell,
    change,
    head,
    interval,
    percent,
)

PAGE = "compare.html"
"""The page on which a reader picks what to compare."""

_SEEN = frozenset({"better", "worse", "different"})
"""Verdicts with which the size of a change may be told."""


def blocks(details: Sequence[Detail]) -> list[Block]:
    """Return what a comparison says, in the order of the page, below its heading."""
    found = compare(details)
    return [
        *_top(details, found),
        *_setup(details, found),
        *(
            block
            for i, pair in enumerate(found.pairs, start=1)
            for block in pair_blocks(details, pair, i)
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
        if detail["gate"]["outcome"] == "failed":
            lead = f"{letter(i)}: accuracy gate failed."
            yield {"kind": "notice", "lead": lead, "rest": _sentence(detail["gate"]["text"])}
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
        "not published": "Not published.",
        "interrupted": "Interrupted.",
    }.get(detail["status"], "")


def _why(detail: Detail) -> str:
    if detail["quoted"]:
        return (
            f"Every ratio divides by what was published on {detail['measured']}, and has no"
            " interval. That its workload is the same is its own word: it has no hash."
        )
    return _sentence("; ".join(why["text"] for why in detail["exclusions"]))


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _side(detail: Detail, index: int) -> Block:
    words = [detail["under"]]
    if detail["quoted"]:
        words.append(f"published {detail['measured']}")
    else:
        n = detail["launches"]
        signer = detail["signer"] or "a key that is not registered"
        words.append(f"{detail['mode']} mode, n = {n}, {detail['measured']}, signed by {signer}")
        words.append(_status(detail))
    return {
        "letter": letter(index),
        "role": "compared" if index else "baseline",
        "title": detail["title"],
        "under": "; ".join(words),
        "id": detail["id"],
    }


def _status(detail: Detail) -> str:
    told = [why["text"] for why in detail["exclusions"]]
    if detail["status"] != "unranked" or not told:
        return str(detail["status"])
    more = f", and {text.counted(len(told) - 1, 'more reason')}" if told[1:] else ""
    return f"unranked: {told[0]}{more}"


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
    if row.key == "goodput":
        label += ", not corrected to the long run,"
    name = label if label[:1].isupper() and label[1:2].isupper() else label[0].lower() + label[1:]
    if ratio.low is None or ratio.high is None:
        told = f" (ratio {ratio.value:.3f}, without an interval)"
        return [[f"{name} ", ""], [str(row.word), "b"], [told, ""]]
    told = f" ({row.level}% interval {percent(ratio.low)} to {percent(ratio.high)})"
    words = change(ratio.value) if row.word in _SEEN else str(row.word)
    return [[f"{name} ", ""], [words, "b"], [told, ""]]


def _controlled(pair: Pair, name: str) -> Parts:
    field = field_words(pair.differing[0])
    parts: Parts = [
        ["Controlled pair", "b"],
        [f": {field} differs between A and {name}; no other recorded setup field differs.", ""],
    ]
    return [*parts, *_unknown(pair)]


def _unknown(pair: Pair) -> Parts:
    if not pair.unknown:
        return []
    fields = text.joined(field_words(path) for path in pair.unknown)
    return [[f" Recorded on neither side, so that it may differ: {fields}.", ""]]


# ---------- setup


def _setup(details: Sequence[Detail], found: Compared) -> Iterator[Block]:
    yield {"kind": "h2", "id": "setup", "text": "What differs in the setup"}
    differ, all_ = len(found.fields), len(found.fields) + len(found.equal)
    if found.fields:
        heads = [head("Field")] + [head(letter(i)) for i in range(len(details))]
        yield {
            "kind": "table",
            "label": "Differing setup fields",
            "class": "tw-fields",
            "caption": f"{differ} of {all_} setup fields differ.",
            "heads": heads,
            "groups": [{"name": "", "rows": [_field_row(details, f) for f in found.fields]}],
        }
    elif sum(not detail["quoted"] for detail in details) > 1:
        words = f"None of {all_} setup fields differs: these are runs of one setup."
        yield {"kind": "p", "class": "", "parts": [[words, ""]]}
    if any(detail["quoted"] for detail in details):
        words = "The publication tells its setup in its own words, which are not compared here."
        yield {"kind": "p", "class": "tw-small", "parts": [[words, ""]]}
    if found.equal and found.fields:
        summary = f"The {len(found.equal)} fields that are equal"
        setup = next(detail["setup"] for detail in details if not detail["quoted"])
        items = [f"{field_words(path)}: {value_words(setup[path])}" for path in found.equal]
        yield {"kind": "details", "summary": summary, "items": items}


def _field_row(details: Sequence[Detail], field: Field) -> list[Block]:
    cells = [cell([[field_words(field.path), ""]])]
    for detail, value in zip(details, field.values, strict=True):
        if detail["quoted"]:
            parts: Parts = [["in its own words", ""]]
        elif field.path == "slo":
            parts = [[detail["slo_text"], ""]]
        elif isinstance(value, list):
            others = [v for v in field.values if isinstance(v, list)]
            parts = [
                [value_words(each), "b" if any(each not in o for o in others) else ""]
                for each in value
            ]
            parts = _spaced(parts) or [["none", ""]]
        else:
            parts = [["absent" if value is None else value_words(value), ""]]
        cells.append(cell(parts))
    return cells


def _spaced(parts: Parts) -> Parts:
    """Put a space between the words of a list."""
    return [part for i, each in enumerate(parts) for part in ([[" ", ""], each] if i else [each])]


def value_words(value: JsonValue) -> str:
    """Write a value of a setup: objects as "name value", whole numbers without a point."""
    if isinstance(value, list):
        return " ".join(map(value_words, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {value_words(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "none" if value is None else str(value)


# ---------- the end of the page

_OTHER_BOARDS = (
    "Each side ran on the boards that its report names; two of one model may differ, and their"
    " power readings by up to 5%."
)


def _not_covered(details: Sequence[Detail]) -> Block:
    dates = ", ".join(
        f"{letter(i)} {'was published on' if d['quoted'] else 'is of'} {d['measured']}"
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
    tools = [detail["tool_version"] for detail in details]
    if len({tool for tool in tools if tool is not None}) > 1:
        told = ", ".join(f"{letter(i)} with {tool}" for i, tool in enumerate(tools) if tool)
        items.append(["Versions of the tool", f"{told}."])
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
        n = n if ones else f"n = {others}"
        level = f"{row.level}% interval {interval(row.ratio)}" if row.level else "no interval"
        published = ", A as published" if details[0]["quoted"] else ""
        told.append(
            f"{detail['title']}, {METRICS[row.key].label} {row.ratio.value:.3f} of the baseline's,"
            f" {level}, {n}, {detail['mode']} mode, {detail['measured']}{published}:"
            f" {row.word} ({letter(i)})."
        )
    a = details[0]
    where = address(d["id"] for d in details)
    words = f"Baseline: {a['title']}, {a['measured']}. {' '.join(told)} {where}"
    yield {"kind": "cmd", "label": "Plain text, with ratio, interval and n", "text": words}


def address(ids: Iterable[str]) -> str:
    """Return where the page compares these, relative to the site."""
    sides = "&".join(f"{letter(i).lower()}={side}" for i, side in enumerate(ids))
    return f"{PAGE}#{sides}"
