from __future__ import annotations

import pytest

from tests.pages.test_report import Parsed
from tokenwatt_site.pages import quoted as page
from tokenwatt_site.pages.page import NO_LINKS
from tokenwatt_site.run import ClaimsOnlyRecord

EXAMPLE = """\
DeepSeek-V4.1-Flash on 4× H200 with vLLM 0.32.0 (TP4, FP8 KV cache)
Within p99 TTFT ≤ 2 s and p99 TPOT ≤ 50 ms the node served 5.09 requests/s
2,047 output and about 8,180 input tokens per second, 90% on the GSM8K check
no prompt-cache hits
Each value is the median of 2 runs.
Axis runs to 100% of rated bandwidth.
GPU board power only — excludes CPUs, memory, NICs, fans and PSU losses.
Cards for equal goodput = 64 × reference goodput ÷ configuration goodput, rounded up.
vLLM 0.32.0 · KV FP8
61%
2.38 kW
2,047 tok/s
0.86
379 ms
45.3 ms
90.0
Accuracy Δ vs. reference
Any change to these fields makes it a different report.
4.8 TB/s per GPU
595.91.07
RunPod secure cloud pod,
--engram-config {"cpu_offload":true} --gpu-memory-utilization 0.95
median 1,024 · p90 4,096
Poisson, rate swept to SLO boundary
GPU board power sum (NVIDIA) · 1 Hz · 120 s steady state
2 (variance band ±1.7%)
gsm8k-5shot · max drop 1.0 pts
Whole-node power (no BMC access on this host)
Context lengths beyond the chat-mix-v1 trace
Quick mode: short windows, few repeats — validation only, not for publishing
Run on the same hardware and software versions. Results should fall within ±1.7%.
--label 'dsv41flash-h200x4-tp4dp1-tpot50' --role baseline
--out runs/dsv41flash-h200x4-tp4dp1-tpot50.json
"""


@pytest.mark.parametrize("words", EXAMPLE.splitlines())
def test_the_words_of_the_publication_are_on_the_page(quoted: ClaimsOnlyRecord, words: str) -> None:
    assert words in Parsed(page.render(quoted, NO_LINKS, None).html).text


def test_the_page_says_that_nothing_was_recomputed(quoted: ClaimsOnlyRecord) -> None:
    text = Parsed(page.render(quoted, NO_LINKS, None).html).text
    assert "As published, not recomputed." in text
    assert "Never ranked." in text


def test_our_notes_explain_the_half_range_and_the_unverified_workload(
    quoted: ClaimsOnlyRecord,
) -> None:
    html = page.render(quoted, NO_LINKS, None).html
    notes = html[html.index('id="our-notes"') :]
    assert "half the range of two runs, not an interval" in notes
    assert "1/3" in notes
    assert "unverified" in notes


def test_both_commands_can_be_copied(quoted: ClaimsOnlyRecord) -> None:
    html = page.render(quoted, NO_LINKS, None).html
    assert html.count("data-copy=") == 2


def test_the_bandwidth_axis_runs_to_100(quoted: ClaimsOnlyRecord) -> None:
    rendered = page.render(quoted, NO_LINKS, None)
    assert len(rendered.charts) == 4
    assert "[0, 100.0]" in str(rendered.charts[2].specs[0])


def test_hostile_words_in_a_record_stay_words(quoted: ClaimsOnlyRecord) -> None:
    evil = "<img src=x onerror=alert(1)>"
    record = quoted.model_copy(update={"title": evil, "summary": evil, "our_notes": (evil,)})
    parsed = Parsed(page.render(record, NO_LINKS, None).html)
    assert "img" not in {tag for tag, _ in parsed.tags}
    assert parsed.text.count(evil) == 3
