"""What four load generators and ours report of an engine that knows the truth.

Each tool, in an environment of its own (`make bench B=peers` makes them), replays one trace against
the simulated engine, which answers by a script: the first token after 200 ms, one each 40 ms. The
engine has one processor, the tool with all its processes another. Requests come at random (Poisson)
and ask for 64 to 192 tokens each; `_peers_tools` has the settings.

Two kinds of trials. At rising load, every tool goes up the rates until one at which its 99th
percentile of TTFT is a tenth too high, or a tenth of the requests did not come. On the traps the
load is low, and the engine writes its stream in a way that real ones do; what is right there is
told by the engine too.

Figures, flat: `TOOL@RATE NAME` of a trial at so many tokens/s, `TOOL!TRAP NAME` of one on a trap,
`TOOL NAME` of the tool. `true_` is the engine's, `told_` the tool's own; what a tool does not
report, or did not reach, is not there. lengths_share is of completions: the engine cannot count
the words of a chat that comes in parts. us_per_event is the processor time of all its processes
from the first request to its end, with the parsing and the report, for each event with tokens;
pss_mb is the most memory they had together. `late_` is how much later than its earliest a request
came, against the trace. `warning` is what the tool said, `not_run` why it was not run.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks._peers_rig import (
    ROOT,
    Ran,
    Row,
    Truth,
    busy_s,
    cpu_s,
    engine,
    lateness_ms,
    lengths_share,
    quantiles,
    rate_share,
    run_program,
    trace,
    truths,
)
from tests.benchmarks._peers_tools import HUB, PEERS, Api, Asked, Peer, Told, write_tokenizer

FOLDER = ROOT / "build" / "bench" / "peers"
MEAN_TOKENS = 128
TOKENS = (64, 192)
RATES = (500, 2_000, 5_000, 10_000, 20_000)
SECONDS = 15.0
LIMIT_S = 150.0
"""For one trial; the longest answer takes 8 s."""

WORST_SHARE = 0.1

TRAP_TOKENS = (16, 48)
TRAP_REQUESTS_PER_S = 10.0
TRAP_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Trap:
    """A way in which an engine writes its stream, by the names of its script."""

    api: Api
    script: str


TRAPS = {
    "four tokens an event": Trap("completions", "vllm,multi:4"),
    "usage in the last chunk": Trap("completions", "usage-last-chunk"),
    "role chunk early": Trap("chat", "vllm,role-early"),
    "reasoning first": Trap("chat", "vllm,think:16"),
    "tokens without text": Trap("chat", "silent"),
    "no usage": Trap("completions", "no-usage"),
    "error in the stream": Trap("completions", "vllm,error:8"),
    "connection dropped": Trap("completions", "vllm,drop:8"),
}

Figures = dict[str, float | str]


def run() -> Figures:
    write_tokenizer()
    figures: Figures = {}
    for name, peer in PEERS.items():
        if reason := why_not(peer):
            figures[f"{name} not_run"] = reason
            continue
        figures[f"{name} version"] = f"{peer.package} {version(peer)}"
        for rate in RATES:
            found = at_load(peer, rate)
            figures |= {f"{name}@{rate} {key}": value for key, value in found.items()}
            if is_beyond(found):
                break
        for trap, how in TRAPS.items():
            rows = trace(TRAP_REQUESTS_PER_S, TRAP_SECONDS, TRAP_TOKENS)
            found = trial(peer, rows, how.api, how.script)
            figures |= {f"{name}!{trap} {key}": value for key, value in found.items()}
        figures[f"{name} command"] = shown_command(peer)
    return figures


def shown_command(peer: Peer) -> str:
    """Return how a tool was called at load, as one would write it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = trace(1, SECONDS, TOKENS)
    program, *arguments = peer.command(Asked("http://127.0.0.1:8000", "completions", rows, FOLDER))
    command = shlex.join([Path(program).name, *arguments])
    return command.replace(str(ROOT) + "/", "")


def why_not(peer: Peer) -> str | None:
    """Say why a tool cannot be run here: what installing it ended with."""
    if peer.environment is None or version(peer):
        return None
    log = ROOT / "build" / "peers" / f"{peer.environment}.log"
    if not log.is_file():
        return "not installed: `make bench B=peers` installs it"
    lines = [line for line in log.read_text("utf-8").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["not installed"])[-1].replace(str(ROOT), ".")


def version(peer: Peer) -> str:
    """Return the version of a tool as it is installed; empty where it is not."""
    code = f"import importlib.metadata as m; print(m.version({peer.package!r}))"
    try:
        asked = subprocess.run(
            [peer.python(), "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return asked.stdout.strip()


def at_load(peer: Peer, rate: int) -> Figures:
    """Return the figures of a trial at so many tokens/s."""
    return trial(peer, trace(rate / MEAN_TOKENS, SECONDS, TOKENS), "completions", "vllm")


def is_beyond(found: Figures) -> bool:
    """Tell whether a tool is beyond what it can do: then no higher rate is tried."""
    told, true = found.get("told_ttft_p99_ms"), found.get("true_ttft_p99_ms")
    if not isinstance(told, float) or not isinstance(true, float):
        return True
    return told > (1 + WORST_SHARE) * true or float(found["lengths_share"]) < 1 - WORST_SHARE


def trial(peer: Peer, rows: Sequence[Row], api: Api, script: str) -> Figures:
    """Let a tool replay a trace against the engine, and hold what it tells against the truth."""
    folder = FOLDER / "trial"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "truth.jsonl"
    began_s, busy_before_s, own_before_s = time.monotonic(), busy_s(), time.process_time()
    with engine(script, log) as (url, server):
        command = peer.command(Asked(url, api, rows, folder))
        ran = run_program(command, folder, environment=environment(peer), limit_s=LIMIT_S)
        used_s = ran.samples[-1].cpu_s + cpu_s(server) + time.process_time() - own_before_s
        others_s = busy_s() - busy_before_s - used_s
    seen = truths(log)[-len(rows) :]  # a tool may ask once before it begins
    figures = {
        **sent(rows, seen),
        **({"lengths_share": lengths_share(rows, seen)} if api == "completions" else {}),
        **cost(ran, seen),
        **heard(peer, folder, ran),
        "others_share": max(0.0, others_s) / (time.monotonic() - began_s),
    }
    return {name: value for name, value in figures.items() if known(value)}


def environment(peer: Peer) -> dict[str, str]:
    """Return the environment variables of a tool: nothing of ours, and no hub."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    offline = {**dict.fromkeys(names, "1"), "HF_HUB_CACHE": str(HUB)}
    ours = {"PYTHONPATH": str(ROOT)} if peer.environment is None else {}
    return {**kept, **offline, **ours, "NO_COLOR": "1", "COLUMNS": "200"}


def sent(rows: Sequence[Row], seen: Sequence[Truth]) -> Figures:
    """Return what was sent of what was asked, and the engine's times of it."""
    whole = [truth for truth in seen if truth.whole]
    answered = [truth for truth in seen if truth.sent]
    figures: Figures = {
        "asked_requests": len(rows),
        "came_requests": len(seen),
        "true_good": len([truth for truth in whole if truth.sent]),
        "rate_share": rate_share(rows, seen),
        "true_output_tokens": sum(tokens for truth in whole for _, tokens in truth.sent),
        "asked_requests_per_s": 1000 * (len(rows) - 1) / rows[-1].due_ms,
    }
    times = {
        "late": lateness_ms(rows, seen),
        "true_ttft": [truth.ttft_ms for truth in answered],
        "true_tpot": [tpot for truth in answered if (tpot := truth.tpot_ms) is not None],
        "true_itl": [gap for truth in answered for gap in truth.gaps_ms],
        "engine_late": [late for truth in answered for late in truth.late_ms],
    }
    for name, values in times.items():
        figures |= both(name, quantiles(values))
    return figures


def cost(ran: Ran, seen: Sequence[Truth]) -> Figures:
    events = sum(len(truth.sent) for truth in seen)
    figures: Figures = {"pss_mb": ran.peak_mb, "processes": ran.processes}
    if events:
        figures["us_per_event"] = 1e6 * ran.cpu_since(seen[0].received_ns / 1e9) / events
    return figures


def heard(peer: Peer, folder: Path, ran: Ran) -> Figures:
    """Return what a tool told, or what it ended with instead."""
    if ran.code is None:
        return {"failed": f"did not end within {LIMIT_S:.0f} s"}
    try:
        told = peer.told(folder, ran.output)
    except (OSError, LookupError, TypeError, ValueError) as error:
        lines = [line.strip() for line in ran.output.splitlines() if re.search("[A-Za-z]", line)]
        said = "".join(lines[-1:]).replace(str(ROOT), ".")
        return {"failed": f"exit status {ran.code}, no report ({type(error).__name__}): {said}"}
    return {"exit_status": ran.code, **figures_of(told)}


def figures_of(told: Told) -> Figures:
    figures: Figures = {}
    for name in ("good", "requests_per_s", "output_tokens"):
        if (value := getattr(told, name)) is not None:
            figures[f"told_{name}"] = value
    for name in ("ttft", "tpot", "itl"):
        if (pair := getattr(told, f"{name}_ms")) is not None:
            figures |= both(f"told_{name}", pair)
    return figures | ({"warning": told.warning} if told.warning else {})


def both(name: str, pair: Sequence[float]) -> Figures:
    return {f"{name}_p50_ms": pair[0], f"{name}_p99_ms": pair[1]}


def known(value: float | str) -> bool:
    return isinstance(value, str) or math.isfinite(value)
