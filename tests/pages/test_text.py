from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import small_spec
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.lengths import Conversation, Fixed, Traced
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import text
from tokenwatt_site.run import MetricClaim
from tokenwatt_site.spec import Accelerator, Objective


def claim(*repeats: float, **more: Any) -> MetricClaim:
    return MetricClaim(key="goodput", label="SLO goodput", value=2047.0, repeats=repeats, **more)


def test_one_repeat_has_no_interval() -> None:
    assert text.sureness(claim(1.0)) == "n = 1, no interval"


def test_two_repeats_show_their_range_and_no_plus_minus() -> None:
    words = text.sureness(claim(2012.0, 2082.0, low=2012.0, high=2082.0))
    assert words == "n = 2, range 2,012 to 2,082"
    assert "±" not in words


def test_three_repeats_show_the_interval_and_the_band_of_a_new_launch() -> None:
    words = text.sureness(
        claim(1.0, 2.0, 3.0, low=2399.0, high=2441.0, new_launch_low=2369.0, new_launch_high=2472.0)
    )
    assert words == "n = 3, 95% CI of the mean 2,399 to 2,441; a new launch 2,369 to 2,472"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2047.4, "2,047"), (0.4321, "0.43"), (4.26, "4.3"), (0.0, "0"), (62.4, "62")],
)
def test_a_small_value_keeps_two_significant_digits(value: float, shown: str) -> None:
    assert text.amount(value, METRICS["goodput"]) == shown


@pytest.mark.parametrize(
    ("ms", "shown"), [(50.0, "50 ms"), (2000.0, "2 s"), (1500.0, "1.5 s"), (0.5, "0.5 ms")]
)
def test_a_limit_is_written_in_the_unit_that_is_read(ms: float, shown: str) -> None:
    assert text.milliseconds(ms) == shown


def test_the_slo_is_written_as_a_sentence_part() -> None:
    objectives = (
        Objective(metric="ttft", quantile=0.99, limit_ms=2000.0),
        Objective(metric="tpot", quantile=0.99, limit_ms=50.0),
    )
    assert text.slo(objectives) == "TTFT p99 ≤ 2 s and TPOT p99 ≤ 50 ms"


def test_a_missing_number_gives_its_reason() -> None:
    missing = MetricClaim(key="mbu", label="MBU", value=None, repeats=(), reason="no GPU")
    assert text.reason(missing) == "not measured: no GPU"


def test_boards_are_counted_and_a_cpu_is_not() -> None:
    board = Accelerator(
        model="NVIDIA H200",
        count=4,
        memory_gib=141,
        rated_bandwidth_gb_s=4800.0,
        power_limit_w="not recorded",
    )
    assert text.boards(board) == "4× NVIDIA H200"
    assert text.boards(board.model_copy(update={"model": "CPU", "count": 1})) == "CPU"
    assert text.bandwidth(board.rated_bandwidth_gb_s) == "4.8 TB/s per GPU"
    assert text.quantity(board.power_limit_w, "W each") == "not recorded"


def test_what_was_not_recorded_is_said_in_words() -> None:
    absent = "not recorded"
    setup = small_spec(
        setup__engine__version=absent, setup__quantization={"weights": absent, "kv_cache": absent}
    ).setup
    assert text.boards(setup.accelerator.model_copy(update={"model": absent, "count": 0})) == (
        "hardware that was not recorded"
    )
    assert text.engine(setup.engine) == "toy (version not recorded)"
    assert text.engine(setup.engine.model_copy(update={"name": absent})) == (
        "an engine that was not recorded (version not recorded)"
    )
    assert text.quantization(setup.quantization) == (
        "weights not recorded",
        "KV cache not recorded",
    )


@pytest.mark.parametrize(
    ("n", "words"),
    [(0, "0 launches"), (1, "1 launch"), (2, "2 launches"), (1200, "1,200 launches")],
)
def test_a_count_agrees_with_its_noun(n: int, words: str) -> None:
    assert text.counted(n, "launch", "launches") == words
    assert text.counted(n, "run") == words.replace("launches", "runs").replace("launch", "run")


def test_lengths_of_a_trace_are_written_as_its_own() -> None:
    told = Traced(kind="trace", median=1020, p90=4000, min=5, max=7000)
    assert text.lengths(told) == "median 1,020 · p90 4,000 · as in the trace, 5 to 7,000"


@pytest.mark.parametrize(
    ("turns", "spread", "shared", "words"),
    [
        (4, 8, 512, "4 turns, 8 requests apart · shared prefix of 512 tokens"),
        (2, 1, 0, "2 turns, 1 request apart"),
        (1, 1, 1, "shared prefix of 1 token"),
    ],
)
def test_what_prompts_repeat_is_written(turns: int, spread: int, shared: int, words: str) -> None:
    said = Conversation(turns=turns, spread=spread, shared_prefix_tokens=shared)
    assert text.conversation(said) == words


def test_lengths_are_written_with_their_clip() -> None:
    assert text.lengths(Fixed(kind="fixed", tokens=1024)) == "1,024 for every request"


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, "none"),
        ({"http_error": 8, "disconnected": 2}, "8 HTTP errors, 2 disconnected"),
        ({"http_error": 1, "short_output": 1}, "1 HTTP error, 1 short output"),
        ({"http_error": 1200}, "1,200 HTTP errors"),
    ],
)
def test_a8_failures_are_counted_in_words(counts: dict[str, int], words: str) -> None:
    assert text.failures(counts) == words


def test_a8_every_way_to_fail_has_its_words() -> None:
    ways = {s.name.lower(): 2 for s in Status if s not in {Status.OK, Status.CENSORED}}
    assert "_" not in text.failures(ways)
    assert text.failures(ways).count("2 ") == len(ways)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b.json", "a b.json"),
        ("Größe 東.json", "Größe 東.json"),
        ("\x1b[31m.json", r"\x1b[31m.json"),
        ("a\nb.json", r"a\nb.json"),
        ("a\u202eb.json", r"a\u202eb.json"),
        ("a\udcffb.json", r"a\udcffb.json"),
    ],
)
def test_what_is_not_printable_is_shown_escaped(name: str, shown: str) -> None:
    assert text.printable(name) == shown


@given(st.text(st.characters()))
def test_escaped_text_is_printable_and_can_be_written(name: str) -> None:
    shown = text.printable(name)
    assert shown.isprintable()
    assert shown.encode().decode() == shown
    assert text.printable(shown) == shown
