"""The simulator of the method page: what it says without scripts, and what its script plays.

Engines, rows and boundaries come from the model itself whenever a site is built, so they are never
those of an older one. The data is a script, because a page opened from disk may fetch nothing.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from functools import cache

import numpy as np

from tokenwatt_site.engine_model.boundary import Edges, find_edges
from tokenwatt_site.engine_model.load import Load, Played, holds, missed, play
from tokenwatt_site.engine_model.model import EngineModel, Family, Prices
from tokenwatt_site.engine_model.sliding import windows_kept
from tokenwatt_site.pages.page import render_template
from tokenwatt_site.spec import Objective
from tokenwatt_site.workload import NAMED, Realisation

SCRIPTS = ("engine-model.js", "simulator.js")
"""Scripts of the assets that it needs, in this order, after DATA."""

DATA = "simulator-data.js"

WORKLOAD = "chat-mix-v1"
EDGE, SCORED = 2_000, 20_000
"""Rows that fill the engine, and keep it full at the end; and those that are shown."""

SLO = (
    Objective(metric="ttft", quantile=0.99, limit_ms=2000),
    Objective(metric="tpot", quantile=0.99, limit_ms=50),
)
MINUTES = (2, 10, 30)
_DEFAULT_MINUTES = 10
STEP_S = 10
"""Seconds between the begins of sliding windows."""

_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine to choose, and a rate near its boundary, where the search for it begins."""

    name: str
    model: EngineModel
    near_urps: int


def _prices(base_us: int, sequence_ns: int, prompt_ns: int, context_ps: int) -> Prices:
    return Prices(
        base_ps=base_us * 10**6,
        sequence_ps=sequence_ns * 1000,
        prompt_token_ps=prompt_ns * 1000,
        context_token_ps=context_ps,
    )


ENGINES = (
    Engine(
        "Chunked prefill",
        EngineModel(
            Family(prefill="chunked", token_budget=512, max_batch=256),
            _prices(8_000, 60_000, 30_000, 60_000),
        ),
        5_650_000,
    ),
    Engine(
        "Prefill first",
        EngineModel(
            Family(prefill="first", token_budget=4096, max_batch=256),
            _prices(8_000, 60_000, 15_000, 40_000),
        ),
        8_650_000,
    ),
    Engine(
        "Two replicas, small cache",
        EngineModel(
            Family(
                prefill="chunked", token_budget=1024, max_batch=64, kv_tokens=90_000, replicas=2
            ),
            _prices(10_000, 80_000, 25_000, 60_000),
        ),
        7_750_000,
    ),
)


@cache
def drawn() -> Realisation:
    return NAMED[WORKLOAD].realisation(0, lead_in=EDGE, scored=SCORED, tail=EDGE)


@cache
def load() -> Load:
    return Load.of(drawn())


@cache
def edges_of(engine: Engine) -> Edges:
    """Return the boundary of an engine on all the rows that are shown."""
    edges = find_edges(engine.model, load(), SLO, engine.near_urps)
    if edges is None:
        raise ValueError(f"{engine.name} has no boundary on {WORKLOAD}")
    return edges


def shown_urps(engine: Engine) -> int:
    """Return the rate to begin with: the highest that passes, down to 0.01 requests/s.

    Raises:
        ValueError: it does not pass there, and what the page says of it would be wrong.
    """
    rate = edges_of(engine).pass_urps // 10_000 * 10_000
    if not holds(engine.model, load(), rate, SLO):
        raise ValueError(f"{engine.name} does not keep the SLO at {rate / 1e6} requests/s")
    return rate


def kept_per_mille(engine: Engine, rate_urps: int, minutes: int) -> int:
    """Return how many of 1000 sliding windows keep the SLO."""
    kept = windows_kept(
        SLO,
        play(engine.model, load(), rate_urps),
        load().n_out,
        load().scored,
        length_ns=minutes * 60 * 10**9,
        step_ns=STEP_S * 10**9,
    )
    return round(1000 * sum(kept) / len(kept))


@cache
def html(assets: str) -> str:
    """Return the simulator as it stands without scripts: a picture, its sentence, a table.

    Args:
        assets: URL of the folder of its scripts, relative to the page.
    """
    first = ENGINES[0]
    rate = shown_urps(first)
    played = play(first.model, load(), rate)
    lines = _lines(played, _DEFAULT_MINUTES)
    return render_template(
        "simulator.html.j2",
        scripts=[f"{assets}/{name}" for name in (DATA, *SCRIPTS)],
        engines=[
            (
                engine,
                f"{edges_of(engine).boundary_urps / 1e6:.2f}",
                f"{shown_urps(engine) / 1e6:.2f}",
                kept_per_mille(engine, shown_urps(engine), _DEFAULT_MINUTES) / 10,
            )
            for engine in ENGINES
        ],
        workload=WORKLOAD,
        scored=SCORED,
        slo=SLO,
        minutes=MINUTES,
        default=_DEFAULT_MINUTES,
        rate=f"{rate / 1e6:.2f}",
        lines=lines,
        width=_WIDTH,
    )


@cache
def data() -> str:
    """Return the script that holds rows, engines and SLO as data."""
    packed = b"".join(struct.pack("<IHH", *row[:3]) for row in drawn().rows)
    value = {
        "scored": [EDGE, EDGE + SCORED],
        "stepNs": STEP_S * 10**9,
        "slo": [{"metric": o.metric, "quantile": o.quantile, "limitNs": o.limit_ns} for o in SLO],
        "engines": [
            {
                "prices": engine.model.prices.in_order,
                "limits": engine.model.family.limits,
                "shownUrps": shown_urps(engine),
                "boundaryUrps": edges_of(engine).boundary_urps,
            }
            for engine in ENGINES
        ],
        "rows": base64.b64encode(packed).decode(),
    }
    return f"globalThis.TokenwattSimulatorData = {json.dumps(value)};\n"


def _lines(played: Played, minutes: int) -> list[tuple[int, int, str]]:
    """Return of each whole window, one after the other: requests, misses, marks of the misses."""
    scored, length_ns = load().scored, minutes * 60 * 10**9
    due = played.due_ns[scored] - played.due_ns[scored][0]
    miss = np.any([missed(o, played, load().n_out)[scored] for o in SLO], axis=0)
    lines = []
    for begin in range(0, int(due[-1]) - length_ns + 1, length_ns):
        inside = (due >= begin) & (due < begin + length_ns)
        at = (due[inside & miss] - begin) * _WIDTH // length_ns
        # Of several in the same thousandth of a line one mark is seen.
        marks = "".join(f"M{x} 0v12" for x in sorted(set(at.tolist())))
        lines.append((int(inside.sum()), int((inside & miss).sum()), marks))
    return lines
