"""From evidence to published numbers of memory traffic, and the reasons where there are none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

from tests.support.decodes import a_record
from tests.support.runs import HELD, small_spec
from tokenwatt_site.claims.bandwidth import BandwidthClaims, bandwidth_claims
from tokenwatt_site.energy.window import WindowEnergy
from tokenwatt_site.evidence.engine import EngineLog, EngineSample
from tokenwatt_site.evidence.power import Board, DramSpan, PowerLog, PowerSample
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.lengths import Conversation
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.run import MetricClaim
from tokenwatt_site.spec import HIGHEST_URPS, Spec
from tokenwatt_site.trials import Evidence, Trial
from tokenwatt_site.windows import Band
from tokenwatt_site.workload import Realisation, workload_of

S = 10**9
EPOCH_NS = 5000 * S
LLAMA_8B = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": False,
}
QWEN3_30B = {
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
}
H200 = Board(uuid="GPU-1", name="NVIDIA H200", bus_bits=6144, memory_mhz=3201)
BUS_OF_RATED = 4.916736 / 4.8
KEYS = {
    "mbu",
    "mbu_bus",
    "mbu_measured",
    "mbu_measured_bus",
    "mbu_engine",
    "bus_bandwidth",
    "decode_batch",
    "step_rate",
    "step_read",
    "bandwidth_limit_rate",
    "compute_share",
    "dram_energy_share",
}
OF_BYTES = ("mbu", "mbu_bus", "step_read", "bandwidth_limit_rate", "dram_energy_share")


def a_spec(
    *, model_files: bool = True, parallel: dict[str, Any] | None = None, **board: Any
) -> Spec:
    accelerator = {
        "model": "NVIDIA H200",
        "count": 1,
        "memory_gib": 141,
        "rated_bandwidth_gb_s": 4800.0,
        "power_limit_w": 700.0,
        **board,
    }
    changes: dict[str, Any] = {
        f"setup__parallelism__{key}": value for key, value in (parallel or {}).items()
    }
    if model_files:
        changes["endpoint__model_files"] = "models/it"
    return small_spec(
        setup__accelerator=accelerator,
        setup__quantization={"weights": "bf16", "kv_cache": "bf16"},
        setup__power={"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0},
        **changes,
    )


@cache
def _drawn() -> Realisation:
    return workload_of(small_spec().setup).realisation(1, lead_in=5, scored=20, tail=60)


@dataclass
class Case:
    """64 answers on one H200 that all get a token every 15 ms, 4,096 tokens long in mid-window."""

    spec: Spec = field(default_factory=a_spec)
    config: dict[str, Any] | None = field(default_factory=lambda: LLAMA_8B)
    sequences: int = 64
    step_ms: int = 15
    per_event: int = 1
    repeats: int = 1
    engine: EngineLog | None = None
    power: PowerLog | None = None
    joules: float | None = None

    @property
    def window_ns(self) -> tuple[int, int]:
        return self.trial(1).window_ns

    def trial(self, repeat: int) -> Trial:
        drawn = _drawn()
        rows = drawn.scored_rows
        due_ns = drawn.due_ns(1_000_000)
        middle_ns = (due_ns[rows.start] + due_ns[rows.stop - 1]) // 2
        events = 300_000 // self.step_ms
        prompt = 4096 - round(middle_ns / (self.step_ms * 1e6)) * self.per_event
        record = a_record(
            0,
            events * self.step_ms * 10**6,
            prompt=prompt,
            output=1 + events * self.per_event,
            events=1 + events,
        )
        return Trial(
            repeat=repeat,
            number=repeat,
            rate_urps=1_000_000,
            started="2026-01-01T00:00:00Z",
            epoch_ns=EPOCH_NS,
            engine_alive=True,
            abandoned=False,
            chat_overhead=0,
            stamps="kernel",
            client_cpu_ppm=0,
            clock_step_ns=0,
            self_test=HELD,
            band=Band(0, HIGHEST_URPS, 5, 20, 60),
            realisation=drawn,
            due_ns=due_ns,
            records=(record,) * self.sequences,
        )

    def claims(self) -> BandwidthClaims:
        opening = Entry(
            seq=0,
            at="2026-01-01T00:00:00Z",
            event="open",
            prev=GENESIS,
            data={"power_reason": "no board can be read here"},
        )
        evidence = Evidence(
            (opening,),
            (),
            self.power,
            engine=self.engine,
            model=None if self.config is None else ModelDocument(self.config),
        )
        tops = [self.trial(repeat) for repeat in range(1, self.repeats + 1)]
        energies = [WindowEnergy(self.joules * 1e3, None, ()) for _ in tops if self.joules]
        return bandwidth_claims(self.spec, evidence, tops, energies)


def metric(claims: BandwidthClaims, key: str) -> MetricClaim:
    (found,) = (each for each in claims.metrics if each.key == key)
    return found


def value(claims: BandwidthClaims, key: str) -> float:
    found = metric(claims, key)
    assert found.value is not None, found.reason
    return found.value


def reason(claims: BandwidthClaims, key: str) -> str:
    found = metric(claims, key)
    assert found.value is None
    assert found.reason is not None
    return found.reason


def a_log(
    *boards: Board,
    pairs: tuple[int, ...] = (),
    chain: int | None = None,
    window_ns: tuple[int, int] = (0, 1),
) -> PowerLog:
    """Return a log of `boards`: `pairs` are in ppm over the window, `chain` that of each sample."""
    start_ns, end_ns = (EPOCH_NS + edge for edge in window_ns)
    return PowerLog(
        sensor="nvml",
        scope="gpu",
        period_ns=S,
        averaging_ns=S,
        boards=boards,
        samples=tuple(
            PowerSample(EPOCH_NS + second * S, board, 500_000, None, dram_ppm=chain)
            for second in range(200)
            for board in range(len(boards))
        ),
        spans=tuple(
            DramSpan(board=board, start_ns=start_ns, end_ns=end_ns, ppm=ppm)
            for board, ppm in enumerate(pairs)
        ),
    )


def counters(**per_second: int) -> EngineLog:
    return EngineLog(
        {name: f"engine:{name}" for name in per_second},
        tuple(
            EngineSample(EPOCH_NS + s * S, **{name: s * n for name, n in per_second.items()})
            for s in range(200)
        ),
    )


def measured(case: Case, *boards: Board, **told: Any) -> BandwidthClaims:
    return replace(case, power=a_log(*boards, window_ns=case.window_ns, **told)).claims()


def test_the_case_of_the_reference_comes_out_as_there() -> None:
    claims = measured(Case(joules=8000.0), H200)
    seconds = (Case().window_ns[1] - Case().window_ns[0]) / 1e9

    assert value(claims, "decode_batch") == pytest.approx(64)
    assert value(claims, "step_rate") == pytest.approx(1e3 / 15)
    assert value(claims, "step_read") == pytest.approx(49.3696, rel=1e-3)
    assert value(claims, "mbu") == pytest.approx(68.57, rel=1e-3)
    assert value(claims, "mbu_bus") == pytest.approx(68.57 / BUS_OF_RATED, rel=1e-3)
    assert value(claims, "bandwidth_limit_rate") == pytest.approx(6222, rel=1e-3)
    assert value(claims, "bus_bandwidth") == pytest.approx(4916.736)
    per_token = 8000 / (seconds * 64 / 0.015)
    assert value(claims, "dram_energy_share") == pytest.approx(2.41 / per_token, rel=2e-3)
    flops = 64 * (2 * 7_504_924_672 + 32 * 4 * 4096 * 4096)
    assert value(claims, "compute_share") == pytest.approx(100 * flops / 0.015 / 989e12, rel=1e-3)
    assert claims.outcomes == ()


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(config=None),
        Case(config=None, spec=small_spec()),
        Case(repeats=0),
        Case(step_ms=2),
        Case(spec=a_spec(parallel={"tensor": 3})),
    ],
    ids=["dense", "no model", "processor", "nothing passed", "impossible", "odd ranks"],
)
def test_every_number_is_there_once_with_a_value_or_a_reason(case: Case) -> None:
    claims = case.claims()

    assert sorted(each.key for each in claims.metrics) == sorted(KEYS)
    assert all((each.value is None) == bool(each.reason) for each in claims.metrics)
    assert all(each.label.startswith(METRICS[each.key].label) for each in claims.metrics)


@pytest.mark.parametrize(
    ("case", "key", "why"),
    [
        (Case(repeats=0), "mbu", "no trial met the SLO"),
        (
            Case(config=None, spec=a_spec(model_files=False)),
            "mbu",
            r"the spec names no model files \(endpoint.model_files\)",
        ),
        (Case(config=None), "step_read", "not among the evidence"),
        (Case(config={**LLAMA_8B, "model_type": "whatnot"}), "mbu", "whatnot"),
        (
            Case(spec=a_spec(parallel={"prefill_decode_split": "2P2D"})),
            "mbu",
            "prefill_decode_split: 2P2D",
        ),
        (Case(spec=a_spec(parallel={"tensor": 4})), "step_rate", "how 1 boards hold"),
        (Case(), "mbu_bus", "no driver told width and clock"),
        (Case(), "mbu_measured", "no board can be read here"),
        (Case(), "mbu_engine", "the engine's own counters were not read"),
        (Case(), "dram_energy_share", "no board's energy was read"),
        (Case(engine=counters(steps=67)), "mbu_engine", "does not estimate what it reads"),
        (Case(power=a_log(H200)), "mbu_measured", r"do not count their memory traffic \(no GPM\)"),
    ],
)
def test_b14_what_is_not_there_says_why(case: Case, key: str, why: str) -> None:
    found = metric(case.claims(), key)

    assert found.value is None
    assert found.reason is not None
    assert re.search(why, found.reason), found.reason


def test_a_kv_cache_of_an_unknown_type_is_not_guessed() -> None:
    spec = small_spec(
        setup__accelerator=a_spec().setup.accelerator.to_json(),
        setup__quantization={"weights": "bf16", "kv_cache": "not recorded"},
    )

    assert "quantization.kv_cache: not recorded" in reason(Case(spec=spec).claims(), "mbu")


def test_a_processor_has_bytes_and_steps_but_no_percentage() -> None:
    spec = small_spec(setup__quantization={"weights": "bf16", "kv_cache": "bf16"})
    claims = Case(spec=spec, joules=900_000.0).claims()

    assert value(claims, "step_read") == pytest.approx(49.37, rel=1e-3)
    assert reason(claims, "dram_energy_share") == "no board's energy was read"
    for key in ("mbu", "mbu_bus", "bandwidth_limit_rate", "compute_share", "bus_bandwidth"):
        assert "no accelerator" in reason(claims, key)


def test_b17_an_unknown_device_gets_no_percentage() -> None:
    spec = a_spec(model="NVIDIA H900", rated_bandwidth_gb_s="not recorded")
    claims = Case(spec=spec).claims()

    for key in ("mbu", "bandwidth_limit_rate", "compute_share"):
        assert "NVIDIA H900" in reason(claims, key)
    assert value(claims, "step_read") > 0


@pytest.mark.parametrize(
    ("boards", "step_ms", "words"),
    [((H200,), 10, "100.4% of bus × clock"), ((), 9, "114.3% of the rated bandwidth")],
)
def test_b16_modelled_reads_beyond_the_memory_are_withheld_with_the_reason(
    boards: tuple[Board, ...], step_ms: int, words: str
) -> None:
    case = Case(step_ms=step_ms, joules=8000.0)
    claims = measured(case, *boards) if boards else case.claims()

    for key in OF_BYTES:
        assert words in reason(claims, key)
        assert reason(claims, key).startswith("withheld: ")
    (outcome,) = claims.outcomes
    assert (outcome.key, outcome.level) == ("mbu", "withheld")
    assert words in outcome.text
    assert value(claims, "step_rate") == pytest.approx(1e3 / step_ms)


@pytest.mark.parametrize(("config", "uneven"), [(QWEN3_30B, True), (LLAMA_8B, False)])
def test_b16_experts_that_are_reached_unevenly_may_explain_reads_beyond_the_memory(
    config: dict[str, Any], uneven: bool
) -> None:
    words = reason(Case(config=config, step_ms=5).claims(), "mbu")

    assert words.startswith("withheld: ")
    assert ("experts are reached less evenly" in words) == uneven


def test_b16_a_little_over_the_rating_is_shown_as_it_is_and_never_clipped() -> None:
    claims = measured(Case(step_ms=10), H200.model_copy(update={"memory_mhz": 3300}))

    assert value(claims, "mbu") == pytest.approx(102.85, abs=0.05)
    assert value(claims, "mbu_bus") < 100


def test_b16_experts_make_an_upper_figure_and_the_label_says_so() -> None:
    claims = Case(config=QWEN3_30B, step_ms=25).claims()

    assert metric(claims, "mbu").label == METRICS["mbu"].label + ", modelled, upper"
    assert metric(Case().claims(), "mbu").label == METRICS["mbu"].label
    # From fewer bytes more tokens.
    limit = METRICS["bandwidth_limit_rate"].label
    assert metric(claims, "bandwidth_limit_rate").label == limit + ", modelled, lower"
    assert metric(Case().claims(), "bandwidth_limit_rate").label == limit
    # Weights of the reference at 64 tokens, and the KV of 64 answers of 4,096 tokens.
    read = 59_509_830_820 + 64 * 4096 * 98_304
    assert value(claims, "mbu") == pytest.approx(100 * read / 0.025 / 4.8e12, rel=1e-3)


def test_measured_traffic_is_told_of_rated_and_of_bus_x_clock() -> None:
    claims = measured(Case(), H200, pairs=(700_000,), chain=500_000)

    assert value(claims, "mbu_measured_bus") == pytest.approx(70)
    assert value(claims, "mbu_measured") == pytest.approx(70 * BUS_OF_RATED)
    assert metric(claims, "mbu_measured").label == METRICS["mbu_measured"].label


def test_without_a_pair_the_samples_tell_and_the_label_says_so() -> None:
    claims = measured(Case(), H200, chain=690_000)

    assert value(claims, "mbu_measured_bus") == pytest.approx(69)
    assert metric(claims, "mbu_measured").label == METRICS["mbu_measured"].label + ", by samples"


def test_b15_b16_measured_traffic_beyond_the_bus_is_invalid_on_any_board() -> None:
    spec = a_spec(count=2)
    case = Case(spec=replace_parallel(spec, tensor=2))
    claims = measured(case, H200, H200, pairs=(400_000, 1_010_000))

    for key in ("mbu_measured", "mbu_measured_bus"):
        assert reason(claims, key).startswith("INVALID: a board counted 101.0%")
    assert [(o.key, o.level) for o in claims.outcomes] == [("mbu_measured", "INVALID")]


def replace_parallel(spec: Spec, **changes: int) -> Spec:
    parallelism = spec.setup.parallelism.model_copy(update=changes)
    return spec.model_copy(
        update={"setup": spec.setup.model_copy(update={"parallelism": parallelism})}
    )


def test_b11_boards_are_weighed_by_what_their_buses_carry() -> None:
    half = H200.model_copy(update={"bus_bits": 3072})
    case = Case(spec=replace_parallel(a_spec(count=2), tensor=2))
    claims = measured(case, H200, half, pairs=(900_000, 300_000))

    assert value(claims, "mbu_measured_bus") == pytest.approx(70)
    assert value(claims, "mbu_measured") == pytest.approx(100 * (0.9 + 0.15) / 2 * BUS_OF_RATED)


def test_b14_a_board_that_was_not_read_leaves_no_measured_number() -> None:
    case = Case(spec=replace_parallel(a_spec(count=2), tensor=2))

    assert "1 boards, the setup has 2" in reason(
        measured(case, H200, pairs=(500_000,)), "mbu_measured"
    )
    one_pair = measured(case, H200, H200, pairs=(500_000,))
    assert "do not enclose the window" in reason(one_pair, "mbu_measured")


def test_without_bus_and_clock_a_share_of_the_bus_is_all_that_is_measured() -> None:
    silent = Board(uuid="GPU-1", name="NVIDIA H200")
    claims = measured(Case(), silent, pairs=(700_000,))

    assert value(claims, "mbu_measured_bus") == pytest.approx(70)
    assert "width and clock" in reason(claims, "mbu_measured")


@pytest.mark.parametrize(("ppm", "told"), [(680_000, False), (600_000, True)])
def test_a_model_that_reads_more_than_the_boards_counted_is_not_reconciled(
    ppm: int, told: bool
) -> None:
    claims = measured(Case(), H200, pairs=(ppm,))

    assert value(claims, "mbu_bus") == pytest.approx(66.9, abs=0.1)
    assert [(o.key, o.level) for o in claims.outcomes] == [("mbu", "not reconciled")] * told


def test_steps_are_the_engines_own_where_it_counts_them() -> None:
    claims = Case(engine=counters(steps=80)).claims()

    label = METRICS["step_rate"].label
    assert metric(claims, "step_rate").label == f"{label}, by the engine's own counter"
    assert value(claims, "step_rate") == pytest.approx(80)
    by_records = Case().claims()
    assert metric(by_records, "step_rate").label == f"{label}, by the client's records"
    # 13.33 more steps a second, each reading the weights and no KV that the records do not show.
    more = (80 - 1e3 / 15) * 15_009_849_344
    assert value(claims, "mbu") - value(by_records, "mbu") == pytest.approx(100 * more / 4.8e12)


def test_a_counter_that_cannot_be_used_is_told_of_and_the_records_stand_in() -> None:
    log = counters(steps=80)
    claims = Case(engine=replace(log, samples=log.samples[:12])).claims()

    assert value(claims, "step_rate") == pytest.approx(1e3 / 15)
    assert [(o.key, o.level) for o in claims.outcomes] == [("step_rate", "warn")]
    assert "were not read around the window's edges" in claims.outcomes[0].text


def test_events_of_several_tokens_are_told_of_where_no_counter_explains_them() -> None:
    claims = Case(per_event=3, step_ms=30).claims()

    assert [(o.key, o.level) for o in claims.outcomes] == [("step_rate", "warn")]
    assert "3.00 tokens" in claims.outcomes[0].text
    assert Case(per_event=3, step_ms=30, engine=counters(steps=34)).claims().outcomes == ()


def test_the_engines_own_estimate_stands_beside_ours() -> None:
    claims = Case(engine=counters(steps=67, read_mb=3_300_000)).claims()
    four = Case(
        spec=replace_parallel(a_spec(count=4), tensor=4),
        engine=counters(steps=67, read_mb=825_000),
    ).claims()

    assert value(claims, "mbu_engine") == pytest.approx(68.75)
    assert value(claims, "mbu") == pytest.approx(68.57, rel=6e-3)
    assert value(four, "mbu_engine") == pytest.approx(68.75 / 4)


def test_b16_an_estimate_of_the_engine_beyond_the_memory_is_withheld_too() -> None:
    claims = Case(engine=counters(steps=67, read_mb=5_100_000)).claims()

    assert reason(claims, "mbu_engine").startswith("withheld: ")
    assert [(o.key, o.level) for o in claims.outcomes] == [("mbu_engine", "withheld")]
    assert value(claims, "mbu") > 0


def test_tokens_that_the_boards_cannot_have_computed_are_invalid() -> None:
    # A prompt of 10 million tokens in the window: more than the dense peak can do in it.
    case = Case(sequences=1, step_ms=15)
    trial = case.trial(1)
    start_ns, end_ns = trial.window_ns
    middle_ns = (start_ns + end_ns) // 2
    huge = a_record(middle_ns, middle_ns, prompt=10_000_000, output=1, events=1)
    claims = claims_of(case, (*trial.records, huge))

    assert reason(claims, "compute_share").startswith("INVALID: ")
    assert [(o.key, o.level) for o in claims.outcomes] == [("compute_share", "INVALID")]


def claims_of(case: Case, records: tuple[RequestRecord, ...]) -> BandwidthClaims:
    opening = Entry(seq=0, at="2026-01-01T00:00:00Z", event="open", prev=GENESIS, data={})
    evidence = Evidence((opening,), (), None, model=ModelDocument(case.config))
    return bandwidth_claims(case.spec, evidence, [replace(case.trial(1), records=records)], [])


def test_energy_below_the_dram_reference_warns() -> None:
    seconds = (Case().window_ns[1] - Case().window_ns[0]) / 1e9
    claims = Case(joules=90.0 * seconds).claims()

    assert value(claims, "dram_energy_share") == pytest.approx(114, abs=1)
    assert [(o.key, o.level) for o in claims.outcomes] == [("dram_energy_share", "warn")]


def test_a_rated_bandwidth_that_is_not_the_data_sheets_is_told_of() -> None:
    claims = Case(spec=a_spec(rated_bandwidth_gb_s=9600.0)).claims()

    assert value(claims, "mbu") == pytest.approx(68.57 / 2, rel=1e-3)
    assert [(o.key, o.level) for o in claims.outcomes] == [("mbu", "warn")]
    assert "9,600 GB/s" in claims.outcomes[0].text


def test_repeats_are_pooled_and_replicas_split_the_batch() -> None:
    pooled = Case(repeats=3).claims()
    assert len(metric(pooled, "mbu").repeats) == 3
    assert metric(pooled, "mbu").low is not None

    # Two replicas read the weights twice as often, and the same KV.
    two = Case(spec=replace_parallel(a_spec(count=2), replicas=2), step_ms=30).claims()
    one = Case(step_ms=30).claims()
    more = 100 * 15_009_849_344 / 0.030 / 9.6e12
    assert value(two, "mbu") == pytest.approx(value(one, "mbu") / 2 + more, rel=1e-3)


def test_what_a_model_has_beside_its_decoder_is_not_covered_and_said() -> None:
    drafts = {**LLAMA_8B, "num_nextn_predict_layers": 1}
    told = {each.what: each.why for each in Case(config=drafts).claims().not_covered}

    assert "1 draft layers" in told["In modelled reads, parts of the model"]
    assert "config.json" in told["Bytes of the weights as they are stored"]
    assert Case(config=None).claims().not_covered == ()


def test_b14_prompts_of_an_unknown_share_of_cache_have_no_share_of_compute() -> None:
    case = Case(sequences=1)
    trial = case.trial(1)
    turns = replace(case, spec=with_conversation(case.spec))
    untold = tuple(replace(r, cached_tokens=None) for r in trial.records)

    assert value(claims_of(turns, trial.records), "compute_share") > 0
    assert value(claims_of(case, untold), "compute_share") > 0
    why = "the engine does not tell which prompt tokens came from its cache"
    assert reason(claims_of(turns, untold), "compute_share") == why
    one_told = (trial.records[0], *untold[1:])
    assert value(claims_of(turns, one_told), "compute_share") > 0


def with_conversation(spec: Spec) -> Spec:
    turns = Conversation(turns=2, spread=1, shared_prefix_tokens=64)
    setup = spec.setup.model_copy(update={"conversation": turns})
    return spec.model_copy(update={"setup": setup})
