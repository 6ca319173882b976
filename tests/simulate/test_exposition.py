from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate.test_engine import engine, request
from tokenwatt_site.simulate.engine import Engine, Request
from tokenwatt_site.simulate.exposition import Exposition, Histogram

MS = 1_000_000
STARTED_S = 1_764_600_000.25


def exposed(running: Engine, *asked: Request) -> Exposition:
    """Answer requests in virtual time as the server does, and count."""
    exposition = Exposition(running, "a model", STARTED_S)
    for one in asked:
        running.submit(one)
    free_ns = 0
    while (start_ns := running.next_start_ns(free_ns)) is not None:
        step = running.begin(start_ns)
        made = running.end()
        exposition.step(step)
        for generation in made:
            exposition.token(generation)
            if generation.done:
                exposition.ended(generation, "length")
        free_ns = step.end_ns
    return exposition


def series(text: str) -> dict[str, float]:
    """Read `name{labels} value` lines; labels without the two that all have."""
    told = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([a-z:0-9_]+)(?:\{(.*)\})? (\S+)", line)
            assert match is not None, line
            name, labels, value = match.groups()
            if labels is not None:
                assert 'engine="0",model_name="a model"' in labels
                labels = re.sub(r',?engine="0",model_name="a model",?', "", labels)
            told[f"{name}[{labels}]" if labels else name] = float(value)
    return told


def test_a_request_alone_is_counted_with_its_times() -> None:
    text = exposed(engine(), request(0, 100, 3, 5 * MS)).text()
    told = series(text)
    assert told["vllm:prompt_tokens_total"] == 100
    assert told["vllm:generation_tokens_total"] == 3
    assert told["vllm:prefix_cache_queries_total"] == 100
    assert told["vllm:prefix_cache_hits_total"] == 0
    assert told['vllm:request_success_total[finished_reason="length"]'] == 1
    assert told['vllm:request_success_total[finished_reason="abort"]'] == 0
    assert told["vllm:iteration_tokens_total_sum"] == 64 + 36 + 1 + 1
    assert told["vllm:iteration_tokens_total_count"] == 4
    assert told['vllm:iteration_tokens_total_bucket[le="1.0"]'] == 2
    assert told['vllm:iteration_tokens_total_bucket[le="64.0"]'] == 4
    assert told["vllm:time_to_first_token_seconds_count"] == 1
    assert told["vllm:inter_token_latency_seconds_count"] == 2
    assert told["vllm:request_queue_time_seconds_sum"] == 0
    whole = told["vllm:e2e_request_latency_seconds_sum"]
    parts = ("time_to_first_token", "inter_token_latency")
    assert whole == pytest.approx(sum(told[f"vllm:{part}_seconds_sum"] for part in parts))
    assert told["process_start_time_seconds"] == STARTED_S


def test_gauges_tell_of_now_and_counters_of_what_was_found_and_put_back() -> None:
    running = engine(max_batch=2, kv_tokens=64, max_model_len=64)
    exposition = exposed(running, request(0, 16, 40), request(1, 16, 40), request(1, 17, 1, 1))
    told = series(exposition.text())
    assert told["vllm:num_preemptions_total"] == running.preemptions > 0
    assert told["vllm:prefix_cache_hits_total"] == running.prefix_hits == 16
    assert told["vllm:request_queue_time_seconds_sum"] > 0
    for number in range(3):
        running.submit(request(number, 16, 4))
    running.begin(0)
    told = series(exposition.text())
    assert told["vllm:num_requests_running"] == 2
    assert told["vllm:num_requests_waiting"] == 1
    assert told["vllm:kv_cache_usage_perc"] == 0.5


def test_a_request_that_was_broken_off_has_no_latency() -> None:
    running = engine()
    exposition = exposed(running)
    exposition.ended(running.submit(request(0, 16, 4)), "abort")
    told = series(exposition.text())
    assert told['vllm:request_success_total[finished_reason="abort"]'] == 1
    assert told["vllm:e2e_request_latency_seconds_count"] == 0


def test_names_and_kinds_are_those_of_vllm(test_data: Path) -> None:
    file = test_data / "prometheus" / "vllm_metric_families_v0.26.0.txt"
    known = {line for line in file.read_text("utf-8").splitlines() if line.startswith("vllm:")}
    text = exposed(engine(), request(0, 16, 2)).text()
    ours = re.findall(r"^# TYPE (vllm:.*)$", text, re.MULTILINE)
    assert len(ours) == 14
    assert set(ours) <= known
    assert "vllm:time_per_output_token_seconds histogram" not in known  # an older vLLM's


@given(st.lists(st.integers(0, 6000)))
def test_a_bucket_holds_all_values_up_to_its_bound(values: list[int]) -> None:
    histogram = Histogram((0.5, 1.0, 5.0), 1000)
    for value in values:
        histogram.observe(value)
    told = [float(line.rpartition(" ")[2]) for line in histogram.lines("h", 'a="b"')]
    bounds = (500, 1000, 5000, 10**9)
    assert told[:4] == [sum(value <= bound for value in values) for bound in bounds]
    assert told[4:] == [len(values), sum(values) / 1000]


def test_a_models_name_is_escaped() -> None:
    text = Exposition(engine(), 'a"b\\c\nd', STARTED_S).text()
    assert 'model_name="a\\"b\\\\c\\nd"' in text
