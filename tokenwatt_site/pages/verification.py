"""Verification in the reader's browser: its page, its control on reports, what its scripts know.

Nothing here is trusted by who checks: the tables that are shipped must give the hash that a setup
names, and the register of keys is this site's word and is called so.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from tokenwatt_site.draws import normal_quantiles
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages.page import Page, render_template
from tokenwatt_site.prompts import PUBLISHED_SEED_RULE, SEED_RULE
from tokenwatt_site.statistics import T_975
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.workload import NAMED

SCRIPTS = (
    "strict-json.js",
    "engine-model.js",
    "verify-files.js",
    "verify-workload.js",
    "verify-trials.js",
    "verify-energy.js",
    "verify-claims.js",
    "verify-model.js",
    "verify-run.js",
    "verify.js",
)
"""Scripts of the assets that it needs, in this order, after DATA."""

DATA = "verify-data.js"


@dataclass(frozen=True, slots=True)
class Check:
    """One of the numbered checks of `trust.verify`, as the browser does it.

    `here` is what is checked in the browser; `builder` what only the builder and `tokenwatt-site
    verify` check, empty where that is nothing.
    """

    number: int
    name: str
    here: str
    shows: str
    does_not: str
    builder: str = ""


CHECKS = (
    Check(
        1,
        "File",
        "At most 2 MiB.",
        "Reading it ends.",
        "Where it came from.",
        "It is a regular file inside the folder, reached by no link.",
    ),
    Check(
        2,
        "Strict JSON",
        "No key twice, no number that readers round, no hidden character, depth at most 32; a run"
        " document of a known format.",
        "Every reader sees the same values.",
        "That the values are right.",
    ),
    Check(
        3,
        "Canonical form",
        "The document without its signatures, in RFC 8785 form; its SHA-256 is the run id.",
        "The run id names exactly this document.",
        "Who wrote it.",
    ),
    Check(
        4,
        "Signature",
        "Exactly one, Ed25519 over the canonical form and our payload type, by the key it carries;"
        " no key of small order.",
        "Who holds that key signed these bytes, and nobody changed them since.",
        "Whose key it is: that is the word of the site's register. That what was signed is true.",
    ),
    Check(
        5,
        "Configuration and workload",
        "The configuration id is that of the setup. The tables of the workload are made again, and"
        " their hash is the setup's.",
        "Runs with one id have one setup, and one workload.",
        "That the setup is what ran.",
        "Every field is of the schema. No text looks private: a secret, a path in somebody's home.",
    ),
    Check(
        6,
        "Evidence",
        "Each file is unpacked up to its stated size; digest, size and line count are those that"
        " were signed. Requests, journal and power are decoded.",
        "The evidence is what the publisher signed.",
        "That it is true.",
        "Answers, headers of the model, counters and the other instruments are decoded too. No text"
        " in them looks private.",
    ),
    Check(
        7,
        "Journal",
        "Its hash chain is whole and ends at the signed head. It opens with this configuration,"
        " this spec and our seed rule. Each trial has its start and its end, none is missing or"
        " added, and each offered the draw of its repeat. Engine, stamps, read-back and self-test"
        " of the run are those that it tells, and each launch and trial tells of every replica.",
        "No trial was dropped from what was committed to.",
        "That no other journal was thrown away.",
        "What it tells of prompts, instruments, idle spans and sittings. What engine and driver"
        " said of themselves (read-back) is what the spec declares. No text looks private.",
    ),
    Check(
        8,
        "Requests",
        "The rows of the workload are drawn again; each trial offered them, when due, in order,"
        " with these lengths, and none was left out.",
        "No slow request was dropped, and nobody got easier rows.",
        "That the client's times are true.",
        "Traces, whose rows are not made here.",
    ),
    Check(
        9,
        "Plausibility",
        "No request ends before it starts or is called complete and is not; no trial begins before"
        " the one before it ended; power is in order of time.",
        "Nothing here is impossible on its face.",
        "Lies that stay within bounds.",
        "Dates, sources of power, counters of the engine, spans without load.",
    ),
    Check(
        10,
        "Recomputation",
        "Every trial is judged again, and boundaries, goodput, latencies, attainment, energy and"
        " what each replica did are made again: |a - b| ≤ 5e-7 max(|a|, |b|), counts exactly. The"
        " engine model on request.",
        "The numbers follow from the evidence.",
        "That the evidence is true. Only a rerun by others can show that.",
        "Memory bandwidth, answers, boards and their roles, caveats and the reasons in words.",
    ),
)

_TITLE = "Verify"


def render(assets: str) -> Page:
    """Make the page on which a reader drops a run.

    Args:
        assets: URL of the folder of its scripts, relative to the page.
    """
    return Page(
        title=_TITLE,
        description="Check a run in your browser: signature, evidence, numbers; without a server.",
        toc=(("checker", "Check a run"), ("checks", "What is checked")),
        html=render_template(
            "verification.html.j2", scripts=_sources(assets), checks=CHECKS, title=_TITLE
        ),
        charts=(),
    )


@dataclass(frozen=True, slots=True)
class Control:
    """What a report's own control needs: its scripts, and where the run is."""

    scripts: tuple[str, ...]
    run_id: str
    folder: str


def control(assets: str | None, run_id: str, folder: str | None) -> Control | None:
    """Return the control of a report; None where scripts or run are not beside it.

    Args:
        assets: URL of the folder of the scripts, relative to the report.
        run_id: of the run that the report is about.
        folder: URL of the folder of its run file and evidence.
    """
    if assets is None or folder is None:
        return None
    return Control(_sources(assets), run_id, folder)


def data(keyring: Keyring) -> str:
    """Return the script that holds what cannot be worked out from a run: tables, words, keys.

    A script, because a page opened from disk may fetch nothing.
    """
    keys = {keyid: key.to_json() for keyid, key in keyring.keys.items()}
    value = {**_constants(), "keys": keys}
    return f"globalThis.TokenwattVerifyData = {json.dumps(value)};\n"


def _sources(assets: str) -> tuple[str, ...]:
    return tuple(f"{assets}/{name}" for name in (DATA, *SCRIPTS))


@cache
def _constants() -> dict[str, Any]:
    return {
        "normalQuantiles": normal_quantiles(),
        "workloads": {workload.name: workload.hash for workload in NAMED.values()},
        "chosen": {name: windows for name in NAMED if (windows := _chosen(name))},
        "t975": T_975,
        "seedRule": SEED_RULE,
        "publishedSeedRule": PUBLISHED_SEED_RULE,
        "metrics": {key: asdict(metric) for key, metric in METRICS.items()},
        "checks": [{"number": check.number, "name": check.name} for check in CHECKS],
    }


def _chosen(name: str) -> dict[str, Any] | None:
    """Return where the chosen windows of a workload begin; None: it has none."""
    path = resources.files("tokenwatt_site").joinpath("chosen", f"{name}.json")
    if not path.is_file():
        return None
    value = json.loads(path.read_text("utf-8"))
    rows = ("low_urps", "high_urps", "lead_in", "scored", "tail")
    return {
        "workload_hash": value["workload_hash"],
        "slo": value["slo"],
        "bands": [
            {name: band[name] for name in rows}
            | {"first_rows": [window["first_row"] for window in band["windows"]]}
            for band in value["bands"]
        ],
    }
