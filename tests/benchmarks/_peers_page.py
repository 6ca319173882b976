"""Bring the benchmark of the peers onto the site: `python -m tests.benchmarks._peers_page`.

Copies build/bench/peers.json to site_src/data/peers-bench.json, and makes from it what stands
between two marks of site_src/client.md.
"""

from __future__ import annotations

import json
from typing import Any

from tests.benchmarks._client_page import DATA, ROOT, publish, table
from tests.benchmarks._peers_tools import PEERS

RESULT = ROOT / "build" / "bench" / "peers.json"
PUBLISHED = DATA.with_name("peers-bench.json")
MARKS = ("<!-- peers -->", "<!-- end of peers -->")

Trial = dict[str, Any]


def trials(figures: dict[str, Any], kind: str) -> dict[tuple[str, str], Trial]:
    """Return the trials at load ("@") or on traps ("!"), each by its tool and its rate or trap."""
    found: dict[tuple[str, str], Trial] = {}
    for key, value in figures.items():
        trial, _, name = key.rpartition(" ")
        tool, at, which = trial.partition(kind)
        if at:
            found.setdefault((tool, which), {})[name] = value
    return found


def number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def error(trial: Trial, name: str, digits: int) -> str:
    """Return what a tool told minus what was true; "-" where it told nothing."""
    told, true = trial.get(f"told_{name}"), trial.get(f"true_{name}")
    if told is None or true is None:
        return "-"
    return f"{told - true:+,.{digits}f}"


def beside(trial: Trial, name: str, digits: int) -> str:
    """Return what a tool told, and in brackets what was true."""
    told, true = (number(trial.get(f"{who}_{name}"), digits) for who in ("told", "true"))
    return f"{told} ({true})"


def said(trial: Trial) -> str:
    told = trial.get("failed") or trial.get("warning") or "nothing"
    return str(told).replace("|", "\\|")


def tools(figures: dict[str, Any]) -> str:
    lines = []
    for name, peer in PEERS.items():
        if reason := figures.get(f"{name} not_run"):
            lines.append(f"- {peer.name} was not run: {reason}")
        elif version := figures.get(f"{name} version"):
            lines.append(f"- {peer.name}, {version}: `{figures[f'{name} command']}`")
    return "\n".join(lines)


def at_load(figures: dict[str, Any]) -> str:
    head = [
        "Tool",
        "Tokens/s",
        "TTFT p50, ms off",
        "TTFT p99, ms off",
        "TPOT p50, ms off",
        "TPOT p99, ms off",
        "CPU, µs/event",
        "Memory, MB",
        "Asked and sent, %",
        "Sent late p99, ms",
        "Says",
    ]
    rows = [
        [
            PEERS[tool].name,
            f"{int(rate):,}",
            error(trial, "ttft_p50_ms", 2),
            error(trial, "ttft_p99_ms", 2),
            error(trial, "tpot_p50_ms", 3),
            error(trial, "tpot_p99_ms", 3),
            number(trial.get("us_per_event"), 0),
            number(trial.get("pss_mb"), 0),
            number(100 * trial["lengths_share"], 1),
            number(trial.get("late_p99_ms"), 1),
            said(trial),
        ]
        for (tool, rate), trial in trials(figures, "@").items()
    ]
    return table(head, rows)


def on_traps(figures: dict[str, Any]) -> str:
    head = ["Trap", "Tool", "Good answers", "Tokens", "TTFT p50, ms", "TPOT p50, ms", "Says"]
    found = trials(figures, "!")
    order = list(dict.fromkeys(trap for _, trap in found))
    rows = [
        [
            trap,
            PEERS[tool].name,
            beside(trial, "good", 0),
            beside(trial, "output_tokens", 0),
            beside(trial, "ttft_p50_ms", 1),
            beside(trial, "tpot_p50_ms", 2),
            said(trial),
        ]
        for (tool, trap), trial in sorted(found.items(), key=lambda item: order.index(item[0][1]))
    ]
    return table(head, rows)


def text(result: dict[str, Any]) -> str:
    figures = result["figures"]
    return (
        f"Measured on: {result['machine']}. Commit {result['commit']}. One machine, one run of"
        " each trial, and settings of ours.\n\n"
        f"{tools(figures)}\n\n"
        "At rising load; off is what the tool reports minus what the engine did:\n\n"
        f"{at_load(figures)}\n\n"
        "On the traps, what the tool reports and in brackets what was so:\n\n"
        f"{on_traps(figures)}\n\n"
        f"All figures: [{PUBLISHED.name}](data/{PUBLISHED.name})."
    )


def main() -> None:
    result = json.loads(RESULT.read_text())
    publish(result, PUBLISHED, MARKS, text(result))


if __name__ == "__main__":
    main()
