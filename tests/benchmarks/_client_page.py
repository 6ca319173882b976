"""Bring the client benchmark onto the site: `python -m tests.benchmarks._client_page`.

Copies build/bench/client.json to site_src/data/bench-client.json, and makes from it what stands
between the two marks of site_src/client.md, and its chart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "build" / "bench" / "client.json"
DATA = ROOT / "site_src" / "data" / "bench-client.json"
PAGE = ROOT / "site_src" / "client.md"
CHART = ROOT / "site_src" / "images" / "client-error.svg"
MARKS = ("<!-- figures -->", "<!-- end of figures -->")
CLIENTS = {
    "ours": "tokenwatt",
    "ours_without_kernel_stamps": "tokenwatt, user-space stamps",
    "aiohttp": "aiohttp",
    "httpx": "httpx2",
}


def trials(figures: dict[str, float]) -> list[dict[str, Any]]:
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


def shown(value: float | None, digits: int = 0) -> str:
    """Return a number to so many digits after the point; None was not seen to end."""
    return "no end" if value is None else f"{value:,.{digits}f}"


def held(figures: dict[str, float], client: str) -> str:
    rate = figures[f"{client}_events_per_s"]
    if rate:
        return shown(rate)
    return f"< {shown(min(row['rate'] for row in trials(figures) if row['client'] == client))}"


def ratio(figures: dict[str, float], client: str) -> str:
    bound = "" if figures[f"{client}_events_per_s"] else "> "
    return f"{bound}{figures[f'ratio_to_{client}']:.1f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def tables(result: dict[str, Any]) -> str:
    figures = result["figures"]
    best = table(
        ["Client", "Held, events/s", "tokenwatt holds, times as much"],
        [
            ["tokenwatt", shown(figures["events_per_s"]), ""],
            ["aiohttp", held(figures, "aiohttp"), ratio(figures, "aiohttp")],
            ["httpx2", held(figures, "httpx"), ratio(figures, "httpx")],
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
        "Every trial; errors and lateness are 99th percentiles. Disturbed is the share of the\n"
        "time in which somebody else had the client's processor or the server's: where it is\n"
        'more than 0.1 percent, a "no" says little.\n\n'
        f"{each}\n\n"
        f"With {figures['most_events']:,.0f} events in one trial, and the evidence made from them,"
        f" tokenwatt had {shown(figures['most_events_rss_mb'])} MB.\n\n"
        "![The 99th percentile of the error of the first token, against the events per second,"
        " of each client](images/client-error.svg)\n\n"
        "All figures: [bench-client.json](data/bench-client.json)."
    )


def chart(figures: dict[str, float]) -> Any:
    values = [
        {
            "Client": CLIENTS[row["client"]],
            "Events/s": row["rate"],
            "Error, µs": row["first_error_p99_us"],
        }
        for row in trials(figures)
        if "first_error_p99_us" in row
    ]
    scale = altair.Scale(type="log")
    return (
        altair.Chart(altair.InlineData(values=values), background="white", width=560, height=320)
        .mark_line(point=True)
        .encode(
            altair.X("Events/s:Q", scale=scale),
            altair.Y("Error, µs:Q", scale=scale, title="p99 error of the first token, µs"),
            altair.Color("Client:N", legend=altair.Legend(orient="top", title=None)),
        )
    )


def main() -> None:
    result = json.loads(RESULT.read_text())
    before, start, rest = PAGE.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps(result, indent=2) + "\n")
    PAGE.write_text(f"{before}{start}\n\n{tables(result)}\n\n{end}{after}")
    chart(result["figures"]).save(CHART)


if __name__ == "__main__":
    main()
