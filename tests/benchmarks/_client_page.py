"""Bring the client benchmark onto the site: `python -m tests.benchmarks._client_page`.

Copies build/bench/client.json to site_src/data/bench-client.json, and makes from it what stands
between the two marks of site_src/client.md, and its charts.
"""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Any

import altair

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "build" / "bench" / "client.json"
DATA = ROOT / "site_src" / "data" / "bench-client.json"
PAGE = ROOT / "site_src" / "client.md"
IMAGES = ROOT / "site_src" / "images"
CHARTS = {
    "client-error.svg": ("first_error_p99_us", "p99 error of the first token, µs"),
    "client-late.svg": ("dispatch_lag_p99_us", "p99 of how late requests were sent, µs"),
}
MARKS = ("<!-- figures -->", "<!-- end of figures -->")
CLIENTS = {
    "ours": "tokenwatt",
    "ours_without_kernel_stamps": "tokenwatt, user-space stamps",
    "aiohttp": "aiohttp",
    "httpx": "httpx2",
}


def trials(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row a trial: client, rate and what is known of it."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for key, value in figures.items():
        trial, _, name = key.partition(" ")
        client, at, rate = trial.partition("@")
        if at:
            row = rows.setdefault((client, int(rate)), {"client": client, "rate": int(rate)})
            row[name] = value
    order = list(CLIENTS)
    return sorted(rows.values(), key=lambda row: (order.index(row["client"]), row["rate"]))


def shown(value: float | str | None, digits: int = 0) -> str:
    """Return a number to so many digits after the point; None was not seen to end."""
    if isinstance(value, str):  # a bound
        return value
    return "no end" if value is None else f"{value:,.{digits}f}"


GOALS = (
    ("Events/s held on one processor", "events_per_s", operator.ge, 100_000, 0),
    ("Times what aiohttp holds", "ratio_to_aiohttp", operator.ge, 3, 1),
    ("Times what httpx2 holds", "ratio_to_httpx", operator.ge, 20, 1),
    ("Error of the first token at 80,000 events/s, p99, µs", "kernel_stamp_error_p99_us",
     operator.le, 50, 0),
    ("The same with user-space stamps at 40,000 events/s, µs", "user_stamp_error_p99_us",
     operator.le, 300, 0),
    ("Requests sent late at 80,000 events/s (625 requests/s), p99, µs", "dispatch_lag_p99_us",
     operator.le, 1_000, 0),
    ("Memory after 10 million events, evidence included, MB", "most_events_rss_mb",
     operator.le, 1_500, 0),
)  # fmt: skip
_SIGNS = {operator.ge: "at least", operator.le: "at most"}


def goals(figures: dict[str, Any]) -> str:
    """Return what the client is to reach, and whether it did."""
    rows = []
    for what, name, holds, goal, digits in GOALS:
        value = figures[name]
        number = float(value.lstrip("<> ").replace(",", "")) if isinstance(value, str) else value
        rows.append(
            [
                what,
                f"{_SIGNS[holds]} {goal:,}",
                shown(value, digits),
                "yes" if holds(number, goal) else "no",
            ]
        )
    return table(["Goal", "Wanted", "Measured", "Reached"], rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def tables(result: dict[str, Any]) -> str:
    figures = result["figures"]
    best = table(
        ["Client", "Held, events/s", "tokenwatt holds, times as much"],
        [
            ["tokenwatt", shown(figures["events_per_s"]), ""],
            *(
                [
                    CLIENTS[name],
                    shown(figures[f"{name}_events_per_s"]),
                    shown(figures[f"ratio_to_{name}"], 1),
                ]
                for name in ("aiohttp", "httpx")
            ),
        ],
    )
    each = table(
        [
            "Client",
            "Events/s",
            "Held",
            "First token, µs",
            "Last token, µs",
            "Sent late, µs",
            "CPU, µs/event",
            "Memory, MB",
            "Disturbed, %",
        ],
        [
            [
                CLIENTS[row["client"]],
                shown(row["rate"]),
                "yes" if row["held"] else "no",
                shown(row.get("first_error_p99_us")),
                shown(row.get("last_error_p99_us")),
                shown(row.get("dispatch_lag_p99_us")),
                shown(row["us_per_event"], 1),
                shown(row["rss_mb"]),
                shown(100 * row["waited_share"], 2),
            ]
            for row in trials(figures)
        ],
    )
    return (
        f"Measured on: {result['machine']}. Commit {result['commit']}.\n\n{best}\n\n"
        f"What the client is to reach, and what it did here:\n\n{goals(figures)}\n\n"
        "Every trial; errors and lateness are 99th percentiles. Disturbed is the share of the\n"
        "time in which somebody else had the client's processor or the server's: where it is\n"
        'more than 0.1 percent, a "no" says little.\n\n'
        f"{each}\n\n"
        "![The 99th percentile of the error of the first token, against the events per second,"
        " of each client](images/client-error.svg)\n\n"
        "![The 99th percentile of how late requests were sent, against the events per second,"
        " of each client](images/client-late.svg)\n\n"
        "All figures: [bench-client.json](data/bench-client.json)."
    )


def chart(figures: dict[str, Any], name: str, title: str) -> Any:
    values = [
        {"Client": CLIENTS[row["client"]], "Events/s": row["rate"], "µs": row[name]}
        for row in trials(figures)
        if name in row
    ]
    scale = altair.Scale(type="log")
    return (
        altair.Chart(altair.InlineData(values=values), background="white", width=560, height=320)
        .mark_line(point=True)
        .encode(
            altair.X("Events/s:Q", scale=scale),
            altair.Y("µs:Q", scale=scale, title=title),
            altair.Color("Client:N", legend=altair.Legend(orient="top", title=None)),
        )
    )


def publish(result: dict[str, Any], data: Path, marks: tuple[str, str], text: str) -> None:
    """Keep a result among the site's data, and put `text` between two marks of the page."""
    before, start, rest = PAGE.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    data.parent.mkdir(exist_ok=True)
    data.write_text(json.dumps(result, indent=2) + "\n")
    PAGE.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}")


def main() -> None:
    result = json.loads(RESULT.read_text())
    publish(result, DATA, MARKS, tables(result))
    for file, (name, title) in CHARTS.items():
        chart(result["figures"], name, title).save(IMAGES / file)


if __name__ == "__main__":
    main()
