from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate.test_engine import engine, request
from tokenwatt_site.evidence.engine import EngineSample
from tokenwatt_site.measure.counters import _ENGINES, Counters
from tokenwatt_site.simulate.exposition import Exposition

AT_NS = 7_000_000_000


def look(text: str) -> EngineSample:
    counters = Counters.of(text.encode())
    assert counters is not None
    return counters.read(text.encode(), AT_NS)


def capture(test_data: Path, name: str) -> str:
    return (test_data / "prometheus" / name).read_text("utf-8")


def test_steps_and_tokens_are_those_of_the_simulated_engine() -> None:
    running = engine(max_batch=3, token_budget=40, kv_tokens=256, max_model_len=128)
    exposition = Exposition(running, "a model", 0.0)
    chance = random.Random(4)
    asked = [request(n, chance.randint(1, 90), chance.randint(1, 20), n * 10**6) for n in range(9)]
    for one in asked:
        running.submit(one)
    counters = Counters.of(exposition.text().encode())
    assert counters is not None
    free_ns = steps = tokens = prompts = 0
    while (start_ns := running.next_start_ns(free_ns)) is not None:
        step = running.begin(start_ns)
        busy = running.running
        in_batch = counters.read(exposition.text().encode(), start_ns)
        assert (in_batch.running, in_batch.waiting) == (busy, running.waiting)
        assert in_batch.kv_ppm == round(running.kv_usage * 1e6)
        made = running.end()
        exposition.step(step)
        for generation in made:
            prompts += len(generation.request.prompt) * (generation.previous_ns is None)
            exposition.token(generation)
        free_ns, steps, tokens = step.end_ns, steps + 1, tokens + len(made)
        seen = counters.read(exposition.text().encode(), free_ns)
        assert (seen.at_ns, seen.steps) == (free_ns, steps)
        assert (seen.output_tokens, seen.prompt_tokens) == (tokens, prompts)
    assert tokens == sum(one.output_tokens for one in asked)
    assert prompts == sum(len(one.prompt) for one in asked)
    assert steps > tokens / 3


def test_every_name_of_vllm_is_one_of_its_families(test_data: Path) -> None:
    text = capture(test_data, "vllm_metric_families_v0.26.0.txt")
    known = {line.split()[0]: line.split()[1] for line in text.splitlines() if line[:5] == "vllm:"}
    names = {names[0] for names in _ENGINES[0].values()}
    assert len(names) == 7
    assert {name.removesuffix("_count") for name in names} <= known.keys()
    assert known["vllm:iteration_tokens_total"] == "histogram"
    older = {name for names in _ENGINES[0].values() for name in names[1:]}
    assert older == {"vllm:gpu_cache_usage_perc"}


def test_vllm_with_old_and_new_names_is_read_by_the_new(test_data: Path) -> None:
    text = capture(test_data, "vllm_metrics_datadog_fixture.trimmed.prom")
    counters = Counters.of(text.encode())
    assert counters is not None
    assert counters.names["kv_ppm"] == "vllm:kv_cache_usage_perc"
    assert "steps" not in counters.names
    assert look(text) == EngineSample(
        AT_NS, prompt_tokens=5, output_tokens=7, running=0, waiting=0, kv_ppm=0
    )


def test_vllm_of_an_older_release_is_read_by_the_old_names(test_data: Path) -> None:
    text = capture(test_data, "vllm_aibrix_runtime_docs_sample.prom")
    counters = Counters.of(text.encode())
    assert counters is not None
    assert counters.names["kv_ppm"] == "vllm:gpu_cache_usage_perc"
    # The capture breaks off before the count of the histogram.
    assert look(text) == EngineSample(
        AT_NS, prompt_tokens=148, output_tokens=955, running=0, waiting=0, kv_ppm=0
    )


def test_an_excerpt_gives_what_it_holds(test_data: Path) -> None:
    text = capture(test_data, "vllm_docs_design_sample.prom")
    assert look(text) == EngineSample(AT_NS, output_tokens=27453, running=8)


def test_sglang_is_read(test_data: Path) -> None:
    assert look(capture(test_data, "sglang_metrics_docs_sample.prom")) == EngineSample(
        AT_NS,
        prompt_tokens=8_128_902,
        output_tokens=7_557_572,
        running=162,
        waiting=2826,
        kv_ppm=280_000,
    )


def test_sglang_counts_passes_by_kind_and_each_rank_once() -> None:
    def passes(tensor: int, data: int, kind: str, count: int) -> str:
        labels = f'tp_rank="{tensor}",pp_rank="0",moe_ep_rank="{tensor}",dp_rank="{data}"'
        return f'sglang:cuda_graph_passes_total{{{labels},mode="{kind}"}} {count}'

    text = "\n".join(
        [
            passes(0, 0, "decode_cuda_graph", 900),
            passes(0, 0, "prefill_none", 100),
            passes(1, 0, "decode_cuda_graph", 899),  # a copy that lags
            passes(1, 0, "prefill_none", 100),
            passes(2, 1, "decode_cuda_graph", 850),
            passes(2, 1, "decode_none", 40),
            'sglang:num_running_reqs{tp_rank="0",dp_rank="0"} 5',
            'sglang:num_running_reqs{tp_rank="1",dp_rank="0"} 5',
            'sglang:num_running_reqs{tp_rank="2",dp_rank="1"} 4',
        ]
    )
    assert look(text) == EngineSample(AT_NS, steps=(1000 + 890) // 2, running=9)


def test_data_parallel_ranks_of_vllm_are_one_engine() -> None:
    rows = []
    for rank, (steps, tokens, running, kv, read) in enumerate(
        [(1000, 7000, 8, 0.5, 3e12), (1002, 7010, 7, 0.25, 5e12)]
    ):
        label = f'{{engine="{rank}",model_name="m"}}'
        rows += [
            f"vllm:iteration_tokens_total_count{label} {steps}",
            f"vllm:generation_tokens_total{label} {tokens}",
            f"vllm:num_requests_running{label} {running}",
            f"vllm:kv_cache_usage_perc{label} {kv}",
            f"vllm:estimated_read_bytes_per_gpu_total{label} {read}",
        ]
    assert look("\n".join(rows)) == EngineSample(
        AT_NS, steps=1001, output_tokens=14010, running=15, kv_ppm=375_000, read_mb=4_000_000
    )


def test_traffic_that_is_exported_but_not_estimated_is_missing() -> None:
    text = "vllm:iteration_tokens_total_count 5\nvllm:estimated_read_bytes_per_gpu_total 0.0\n"
    assert look(text) == EngineSample(AT_NS, steps=5)


def test_llama_cpp_is_read() -> None:
    # As llama.cpp b11549 answers after one request of 4 and 20 tokens, in part.
    text = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 4
llamacpp:tokens_predicted_total 20
llamacpp:n_decode_total 20
llamacpp:requests_processing 0
llamacpp:requests_deferred 0
llamacpp:n_busy_slots_per_decode 1
"""
    assert look(text) == EngineSample(
        AT_NS, steps=20, prompt_tokens=4, output_tokens=20, running=0, waiting=0
    )


def test_tgi_counts_forward_passes_of_prompts_and_of_tokens() -> None:
    text = """tgi_batch_inference_count{method="prefill"} 3
tgi_batch_inference_count{method="next_token"} 40
tgi_batch_current_size 2
tgi_queue_size 1
tgi_request_generated_tokens_sum 43
"""
    assert look(text) == EngineSample(AT_NS, steps=43, output_tokens=43, running=2, waiting=1)


@pytest.mark.parametrize(
    "text", [b"", b"a 1\n", b"\xff", b"trtllm_request_success_total 3\n", b"<html></html>"]
)
def test_what_holds_no_known_counter_has_none(text: bytes) -> None:
    assert Counters.of(text) is None


@pytest.mark.parametrize("text", [None, b"", b"\xff", b"a 1"])
def test_a_look_that_shows_nothing_is_missing_not_zero(text: bytes | None) -> None:
    counters = Counters({"steps": "vllm:iteration_tokens_total_count"})
    assert counters.read(text, AT_NS) == EngineSample(AT_NS)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e17"])
def test_what_is_no_count_is_missing(value: str) -> None:
    assert look(f"vllm:generation_tokens_total {value}") == EngineSample(AT_NS)


@pytest.mark.parametrize("value", ["-1.0", "1.01", "NaN"])
def test_what_is_no_share_is_missing(value: str) -> None:
    assert look(f"vllm:kv_cache_usage_perc {value}") == EngineSample(AT_NS)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 10**6))))
def test_copies_of_a_rank_change_nothing(rows: list[tuple[int, int, int]]) -> None:
    by_rank: dict[int, dict[int, int]] = {}
    text = "sglang:num_queue_reqs 0"
    for rank, kind, count in rows:
        by_rank.setdefault(rank, {}).setdefault(kind, count)
    for rank, kinds in by_rank.items():
        for kind, count in kinds.items():
            for copy in range(3):
                labels = f'dp_rank="{rank}",tp_rank="{copy}",mode="{kind}"'
                text += f"\nsglang:cuda_graph_passes_total{{{labels}}} {count}"
    total = sum(sum(kinds.values()) for kinds in by_rank.values())
    expected = round(total / len(by_rank)) if by_rank else None
    assert look(text).steps == expected
