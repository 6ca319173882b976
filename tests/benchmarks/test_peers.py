from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.benchmarks import _peers_page as page
from tests.benchmarks import _peers_tools as tools
from tests.benchmarks import peers as bench
from tests.benchmarks._peers_rig import (
    Row,
    Truth,
    lateness_ms,
    lengths_share,
    rate_share,
    run_program,
    trace,
)
from tests.benchmarks._peers_tools import PEERS, Asked

MS = 1_000_000
two_processors = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="engine and tool want a processor each"
)


def truth(received_ms: int = 0, *, tokens: int = 4, per_event: int = 1, prompt: int = 3) -> Truth:
    sent = tuple(
        ((received_ms + 200 + 40 * done) * MS, min(per_event, tokens - done))
        for done in range(0, tokens, per_event)
    )
    ended_ns = sent[-1][0]
    return Truth(received_ms * MS, ended_ns, whole=True, prompt_tokens=prompt,
                 output_tokens=tokens, sent=sent)  # fmt: skip


def test_a_trace_is_the_same_again_and_has_the_rate_that_was_asked() -> None:
    rows = trace(50, 40, (64, 192))
    assert rows == trace(50, 40, (64, 192))
    assert rows[0].due_ms == 0
    assert len(rows) / 40 == pytest.approx(50, rel=0.1)
    assert sum(row.output_tokens for row in rows) / len(rows) == pytest.approx(128, rel=0.05)


def test_the_time_per_token_leaves_out_the_first_event_and_all_its_tokens() -> None:
    assert truth(tokens=8, per_event=4).tpot_ms == 40.0
    assert truth(tokens=8).tpot_ms == 40.0
    assert truth(tokens=4, per_event=4).tpot_ms is None


def test_an_engine_that_keeps_its_schedule_is_never_late() -> None:
    assert truth(5, tokens=8, per_event=4).late_ms == [0.0, 0.0]


def test_requests_are_late_against_the_earliest_of_them() -> None:
    rows = [Row(0, 3, 4), Row(100, 3, 4), Row(200, 3, 4)]
    assert lateness_ms(rows, [truth(1007), truth(1105), truth(1235)]) == [2.0, 0.0, 30.0]


def test_what_was_asked_and_came_is_counted_by_both_lengths() -> None:
    rows = [Row(0, 3, 4), Row(100, 3, 5), Row(200, 9, 4)]
    seen = [truth(tokens=4), truth(tokens=5), truth(tokens=5)]
    assert lengths_share(rows, seen) == pytest.approx(2 / 3)
    assert rate_share(rows, [truth(0), truth(200), truth(400)]) == pytest.approx(0.5)


@two_processors
def test_what_a_program_prints_and_uses_is_that_of_all_its_processes(tmp_path: Path) -> None:
    child = [sys.executable, "-c", "print('child', sum(range(10**6)))"]
    code = f"import subprocess; subprocess.run({child})"
    ran = run_program([sys.executable, "-c", code], tmp_path, environment={}, limit_s=60)
    assert ran.code == 0
    assert ran.output.startswith("child")
    assert ran.cpu_since(0) > 0


@two_processors
def test_a_program_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    code = "import os, time; os.fork(); print(os.getpid(), flush=True); time.sleep(600)"
    ran = run_program([sys.executable, "-c", code], tmp_path, environment={}, limit_s=0.5)
    assert ran.code is None
    for process in map(int, ran.output.split()):
        state = Path(f"/proc/{process}/stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@two_processors
def test_our_client_tells_what_the_engine_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    rows = [Row(row * 20, 16 + row, 5) for row in range(8)]
    found = bench.trial(PEERS["ours"], rows, "chat", "vllm,role-early,multi:2")
    assert found["told_good"] == found["true_good"] == found["asked_requests"] == 8
    assert found["came_requests"] == 8
    assert found["told_output_tokens"] == found["true_output_tokens"] == 40
    assert float(found["told_ttft_p50_ms"]) >= float(found["true_ttft_p50_ms"]) - 0.1


def test_what_a_tool_says_first_of_being_late_is_its_warning_and_noise_is_not() -> None:
    said = "12:00 \x1b[33mWARNING  GPU Telemetry: none\x1b[0m\n12:01 WARNING  schedule degraded\n"
    assert tools._said(said, tools.AIPERF_WARNS) == "12:01 WARNING schedule degraded"
    said = (
        "a - WARNING - Prometheus Metrics Client is not configured\n"
        "b - WARNING - Validation: negative minimum\nc - WARNING - dropped 3 request(s)\n"
    )
    found = tools._said(said, tools.INFERENCE_PERF_WARNS)
    assert found == "c - WARNING - dropped 3 request(s)"
    assert tools._said("Failed requests:       0\n", tools.VLLM_WARNS) is None


def test_what_a_tool_ended_with_is_told_where_it_wrote_no_report(tmp_path: Path) -> None:
    ran = bench.Ran(2, "usage\nno such option\n\n", (), 1.0, 1)
    assert bench.heard(PEERS["vllm"], tmp_path, ran) == {
        "failed": "exit status 2, no report (FileNotFoundError): no such option"
    }


def test_every_tool_is_given_the_same_trace(tmp_path: Path) -> None:
    rows = trace(5, 2, (64, 192))
    due = {}
    for name, peer in PEERS.items():
        folder = tmp_path / name
        folder.mkdir()
        peer.arguments(Asked("http://127.0.0.1:1", "completions", rows, folder))
        (file,) = folder.glob("trace.*")
        due[name] = file.read_text().splitlines()
    assert [json.loads(line)["due_ms"] for line in due["ours"]] == [row.due_ms for row in rows]
    for name in ("vllm", "aiperf"):
        assert [json.loads(line)["timestamp"] for line in due[name]] == [r.due_ms for r in rows]
    assert [json.loads(line)["timestamp"] for line in due["guidellm"]] == [
        row.due_ms / 1000 for row in rows
    ]
    assert len(due["inference-perf"]) == 1 + len(rows)


FIGURES = {
    "ours version": "tokenwatt-site 0.1.0",
    "ours command": "python -m x",
    "ours@500 told_ttft_p99_ms": 200.5,
    "ours@500 true_ttft_p99_ms": 200.25,
    "ours@500 lengths_share": 1.0,
    "ours@500 us_per_event": 25.0,
    "ours!no usage told_good": 0,
    "ours!no usage true_good": 9,
    "ours!no usage warning": "a|b",
    "vllm not_run": "ERROR: no such version",
}


def test_the_page_says_what_is_off_and_what_was_not_run() -> None:
    text = page.text({"figures": FIGURES, "machine": "m", "commit": "c"})
    assert "| tokenwatt | 500 | - | +0.25 | - | - | 25 | - | 100.0 | - | nothing |" in text
    assert "| no usage | tokenwatt | 0 (9) | - (-) | - (-) | - (-) | a\\|b |" in text
    assert "- vLLM bench serve was not run: ERROR: no such version" in text
    assert "- tokenwatt, tokenwatt-site 0.1.0: `python -m x`" in text
