"""Published energy against a naive recomputation, straight from the definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.claims.test_derive import evidence_of
from tests.support.runs import (
    RunBuilder,
    gpu_spec,
    host_power,
    played_power,
    processor_power,
    split_spec,
)
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.claims.energy import ENERGY_KEY, ENERGY_KEYS
from tokenwatt_site.evidence.power import PowerLog, PowerSample
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.run import Claims

HOST = {"sensor": "redfish", "url": "https://bmc.example/redfish/v1/Chassis/1"}
LOAD_W, IDLE_W = 300, 100


def builder_of(
    *,
    repeats: int = 1,
    idle_s: int = 12,
    instruments: Sequence[dict[str, Any]] = (),
    **changes: Any,
) -> RunBuilder:
    spec = gpu_spec(protocol__repeats=repeats, instruments=list(instruments))
    return RunBuilder(spec=spec, idle_s=idle_s, **changes)


def claims_of(
    builder: RunBuilder, power: PowerLog | None = None, beside: Sequence[PowerLog] = ()
) -> Claims:
    read = replace(builder, power=power or played_power(builder), beside=tuple(beside))
    return derive(builder.spec, evidence_of(read))


def tops_of(builder: RunBuilder) -> list[list[RequestRecord]]:
    """The records of each repeat's highest passing trial, the second of three."""
    records = builder.requests()
    return [
        [r for r in records if r.trial == 3 * n + 2] for n in range(builder.spec.protocol.repeats)
    ]


def window(records: Sequence[RequestRecord]) -> tuple[int, int]:
    return records[5].due_ns, records[24].due_ns


def arrivals(r: RequestRecord) -> list[float]:
    """When each of its tokens came."""
    assert r.first_ns is not None
    assert r.last_ns is not None
    assert r.output_tokens is not None
    step = (r.last_ns - r.first_ns) / max(r.output_tokens - 1, 1)
    return [r.first_ns + n * step for n in range(r.output_tokens)]


def naive(
    records: Sequence[RequestRecord], counts: Callable[[RequestRecord], bool] = lambda _: True
) -> int:
    """Output tokens that came in the window, of the requests that count."""
    start, end = window(records)
    return sum(start <= at <= end for r in records if counts(r) for at in arrivals(r))


def texts(claims: Claims, key: str = ENERGY_KEY) -> list[tuple[str, str]]:
    return [(o.level, o.text) for o in claims.outcomes if o.key == key]


@pytest.fixture(scope="module")
def three() -> tuple[RunBuilder, Claims]:
    builder = builder_of(repeats=3)
    return builder, claims_of(builder)


def test_every_number_per_token_follows_from_records_and_watts(
    three: tuple[RunBuilder, Claims],
) -> None:
    builder, claims = three
    for n, records in enumerate(tops_of(builder)):
        start, end = window(records)
        seconds = (end - start) / 1e9
        joules, tokens = 2 * LOAD_W * seconds, naive(records)
        prompts = sum(
            r.prompt_tokens or 0 for r in records if r.first_ns and start <= r.first_ns <= end
        )

        def met(r: RequestRecord) -> bool:
            first = r.first_ns or 0
            pace = ((r.last_ns or 0) - first) / ((r.output_tokens or 0) - 1)
            return first - r.due_ns <= 1500e6 and pace <= 150e6

        expected = {
            "tokens_per_joule": tokens / joules,
            "joules_per_token": joules / tokens,
            "joules_per_token_above_idle": 2 * (LOAD_W - IDLE_W) * seconds / tokens,
            "joules_per_any_token": joules / (tokens + prompts),
            "joules_per_slo_token": joules / naive(records, met),
        }
        for key, value in expected.items():
            assert claims.metric(key).repeats[n] == pytest.approx(value, rel=0.02), key
        assert claims.metric("board_power").repeats[n] == pytest.approx(2 * LOAD_W, rel=1e-6)
        assert claims.metric("idle_power").repeats[n] == pytest.approx(2 * IDLE_W, rel=1e-6)
        assert claims.metric("power_limit_share").repeats[n] == pytest.approx(75, rel=1e-6)
    assert claims.outcomes == ()


def test_energy_per_token_and_tokens_per_energy_are_inverse_in_each_repeat(
    three: tuple[RunBuilder, Claims],
) -> None:
    _, claims = three
    pairs = zip(
        claims.metric("tokens_per_joule").repeats,
        claims.metric("joules_per_token").repeats,
        strict=True,
    )
    assert all(a * b == pytest.approx(1, rel=1e-12) for a, b in pairs)


def test_every_trial_that_was_not_stopped_has_its_own_joules(
    three: tuple[RunBuilder, Claims],
) -> None:
    builder, claims = three
    for trial in claims.trials:
        records = [r for r in builder.requests() if r.trial == trial.trial]
        start, end = window(records)
        assert trial.energy_j == pytest.approx(2 * LOAD_W * (end - start) / 1e9, rel=1e-3)


def test_each_board_of_each_repeat_is_claimed(three: tuple[RunBuilder, Claims]) -> None:
    _, claims = three
    assert [(b.repeat, b.uuid) for b in claims.boards] == [
        (repeat, f"GPU-{n}") for repeat in (1, 2, 3) for n in (0, 1)
    ]
    assert all(b.mean_power_w == pytest.approx(LOAD_W, rel=1e-3) for b in claims.boards)


def test_b4_idle_before_and_load_after_change_no_energy(three: tuple[RunBuilder, Claims]) -> None:
    builder, claims = three
    lower = claims_of(builder, played_power(builder, idle_mw=20_000))
    assert lower.metric("tokens_per_joule").value == pytest.approx(
        claims.metric("tokens_per_joule").value
    )


def test_no_power_is_no_number_and_the_reason_that_the_journal_tells() -> None:
    builder = RunBuilder()
    claims = derive(builder.spec, evidence_of(builder))
    for key in (*ENERGY_KEYS, "idle_power"):
        assert claims.metric(key).reason == "the machine of this test has no power sensor"
    assert (claims.boards, claims.outcomes) == ((), ())
    assert {"cpu_power", "host_power"}.isdisjoint(m.key for m in claims.metrics)


def test_no_trial_that_passed_leaves_no_window_and_says_so() -> None:
    builder = builder_of(rates_urps=(90_000_000,))
    assert claims_of(builder).metric("tokens_per_joule").reason == "no trial met the SLO"


def test_no_idle_span_leaves_gross_energy_alone() -> None:
    claims = claims_of(builder_of(idle_s=0))
    assert claims.metric("joules_per_token").value is not None
    why = "repeat 1: the boards were not read while the engine had no request"
    assert claims.metric("idle_power").reason == why
    assert claims.metric("joules_per_token_above_idle").reason == why


def test_load_that_draws_no_more_than_idle_has_no_energy_above_it() -> None:
    builder = builder_of()
    claims = claims_of(builder, played_power(builder, load_mw=297_000, idle_mw=300_000))
    assert claims.metric("joules_per_token").value is not None
    why = "the boards drew no more in the window than without a request"
    assert claims.metric("joules_per_token_above_idle").reason == why


def test_less_power_under_load_than_without_is_invalid_everywhere() -> None:
    builder = builder_of()
    claims = claims_of(builder, played_power(builder, load_mw=270_000, idle_mw=300_000))
    assert [level for level, _ in texts(claims)] == ["INVALID", "INVALID"]
    assert "drew 0.90 x what it draws without a request" in texts(claims)[0][1]
    assert all(claims.metric(key).value is None for key in ENERGY_KEYS)
    assert claims.metric("idle_power").value == pytest.approx(600, rel=1e-6)
    assert {trial.energy_j for trial in claims.trials} == {None}
    assert {board.energy_j for board in claims.boards} == {None}


def changed(log: PowerLog, change: Callable[[PowerSample], PowerSample]) -> PowerLog:
    return replace(log, samples=tuple(map(change, log.samples)))


def test_b1_counter_and_watts_that_disagree_are_marked_and_the_counter_is_published() -> None:
    builder = builder_of()
    half = changed(played_power(builder), lambda s: replace(s, energy_mj=(s.energy_mj or 0) // 2))
    claims = claims_of(builder, half)
    assert claims.metric("board_power").value == pytest.approx(LOAD_W, rel=1e-4)
    words = "energy counter and watts differ by -50.0%"
    assert texts(claims) == [
        ("not reconciled", f"repeat 1: board {n} (Toy GPU): {words}") for n in (0, 1)
    ]
    assert {level for level, _ in texts(claims, "idle_power")} == {"not reconciled"}


def test_b5_a_log_that_ends_within_the_window_is_withheld_with_the_reason() -> None:
    builder = builder_of()
    (records,) = tops_of(builder)
    end_ns = 2 * 10**12 + window(records)[1] - 2 * 10**9
    power = played_power(builder)
    cut = replace(power, samples=tuple(s for s in power.samples if s.at_ns < end_ns))
    claims = claims_of(builder, cut)
    assert [level for level, _ in texts(claims)] == ["withheld", "withheld"]
    assert claims.metric("tokens_per_joule").reason == (
        "withheld: repeat 1: board 0 (Toy GPU): samples do not enclose the window closely enough"
    )


def test_b8_a_counter_that_runs_backwards_bars_every_number_of_energy() -> None:
    builder = builder_of()
    (records,) = tops_of(builder)
    middle_ns = 2 * 10**12 + sum(window(records)) // 2

    def reset(s: PowerSample) -> PowerSample:
        late = s.board == 1 and s.at_ns > middle_ns
        return replace(s, energy_mj=(s.energy_mj or 0) - 10**8) if late else s

    power = played_power(builder)
    shifted = changed(power, lambda s: replace(s, energy_mj=(s.energy_mj or 0) + 2 * 10**8))
    claims = claims_of(builder, changed(shifted, reset))
    words = "repeat 1: board 1 (Toy GPU): the energy counter ran backwards"
    assert texts(claims) == [("INVALID", words)]
    assert claims.metric("tokens_per_joule").reason == f"INVALID: {words}"
    assert claims.boards[0].energy_j is not None
    assert claims.boards[1].energy_j is None


def test_b21_the_share_of_the_power_limit_needs_the_limit_of_every_board() -> None:
    builder = builder_of()
    power = played_power(builder)
    first = power.boards[0].model_copy(update={"limit_mw": None})
    claims = claims_of(builder, replace(power, boards=(first, power.boards[1])))
    assert claims.metric("board_power").value is not None
    why = "the driver does not tell the limit of every board"
    assert claims.metric("power_limit_share").reason == why
    assert [board.limit_w for board in claims.boards] == [None, 400]


@pytest.mark.parametrize(
    ("scope", "label"), [("gpu", "GPU board power"), ("module", "Module power")]
)
def test_b9_a_module_s_power_is_not_called_a_board_s(scope: Any, label: str) -> None:
    builder = builder_of()
    claims = claims_of(builder, played_power(builder, scope=scope))
    assert claims.metric("board_power").label == label
    share = claims.metric("power_limit_share")
    assert (share.value is None) == (scope == "module")
    if scope == "module":
        assert share.reason == (
            "the driver enforces the limit of the GPU, and these watts are of the whole module"
        )


def test_host_and_processors_stand_beside_where_they_were_asked_for() -> None:
    builder = builder_of(repeats=2, instruments=[HOST, {"sensor": "rapl"}])
    claims = claims_of(builder, beside=[host_power(builder), processor_power(builder)])
    assert claims.metric("host_power").repeats == pytest.approx((1500, 1500), rel=1e-3)
    assert claims.metric("cpu_power").repeats == pytest.approx((400, 400), rel=1e-3)
    assert claims.metric("board_power").value == pytest.approx(600, rel=1e-4)


def test_two_hosts_are_summed() -> None:
    other = HOST | {"url": "https://bmc.example/redfish/v1/Chassis/2"}
    builder = builder_of(instruments=[HOST, other])
    beside = [host_power(builder), host_power(builder, power_mw=500_000)]
    assert claims_of(builder, beside=beside).metric("host_power").value == pytest.approx(2000)


def test_a_host_of_a_run_that_never_passed_has_no_window() -> None:
    builder = builder_of(instruments=[HOST], rates_urps=(90_000_000,))
    claims = claims_of(builder, beside=[host_power(builder)])
    assert claims.metric("host_power").reason == "no trial met the SLO"


def test_b14_a_host_that_could_not_be_read_is_a_reason_and_no_zero() -> None:
    why = "https://bmc.example answers 401"
    builder = builder_of(instruments=[HOST], unread={"redfish": why})
    assert claims_of(builder).metric("host_power").reason == why
    silent = builder_of(instruments=[HOST])
    assert claims_of(silent).metric("host_power").reason == "it left no reading"


def test_b12_a_host_that_averages_over_a_minute_is_withheld() -> None:
    builder = builder_of(instruments=[HOST])
    beside = [host_power(builder, averaging_ns=60 * 10**9)]
    claims = claims_of(builder, beside=beside)
    assert "means over 60 s, too slow" in str(claims.metric("host_power").reason)
    assert [level for level, _ in texts(claims, "host_power")] == ["withheld"]
    assert texts(claims) == []


@pytest.mark.parametrize(("factor", "said"), [(1.04, False), (1.06, True), (0.9, True)])
def test_a_second_instrument_of_the_same_boards_is_held_against_the_first(
    factor: float, said: bool
) -> None:
    builder = builder_of(instruments=[{"sensor": "dcgm", "url": "http://node.example/metrics"}])
    power = played_power(builder)
    other = changed(
        replace(power, sensor="dcgm"),
        lambda s: replace(s, power_mw=None, energy_mj=round((s.energy_mj or 0) * factor)),
    )
    words = f"repeat 1: dcgm and nvml differ by {factor - 1:+.1%} over the same boards"
    assert texts(claims_of(builder, beside=[other])) == (
        [("not reconciled", words)] if said else []
    )


def test_a_second_instrument_of_other_boards_is_not_held_against_the_first() -> None:
    builder = builder_of(instruments=[{"sensor": "dcgm", "url": "http://node.example/metrics"}])
    power = played_power(builder)
    boards = tuple(b.model_copy(update={"uuid": f"{b.uuid}-other"}) for b in power.boards)
    other = changed(
        replace(power, sensor="dcgm", boards=boards),
        lambda s: replace(s, power_mw=None, energy_mj=2 * (s.energy_mj or 0)),
    )
    assert texts(claims_of(builder, beside=[other])) == []


def test_power_that_rises_over_a_long_window_is_told() -> None:
    builder = builder_of(rates_urps=(200_000,))
    power = played_power(builder)

    def rising(s: PowerSample) -> PowerSample:
        second = s.at_ns // 10**9 - 1000
        drawn_mj = 300_000 * second + 500 * second**2
        return replace(s, energy_mj=10**9 + drawn_mj, power_mw=None)

    claims = claims_of(replace(builder, idle_s=0), changed(power, rising))
    (level, text), *_ = texts(claims)
    assert level == "warn"
    assert text.startswith("repeat 1: power was not steady: it changed by +")


def test_the_joules_of_both_roles_of_a_split_add_up_to_those_of_the_run() -> None:
    builder = replace(builder_of(repeats=2), spec=split_spec(protocol__repeats=2))
    played = played_power(builder)
    # The second board draws twice as much.
    uneven = changed(
        played,
        lambda s: replace(
            s,
            power_mw=(s.power_mw or 0) * (1 + s.board) // 2,
            energy_mj=(s.energy_mj or 0) * (1 + s.board) // 2,
        ),
    )
    claims = claims_of(builder, uneven)
    roles = claims.roles or ()
    assert [(r.repeat, r.role, r.boards) for r in roles] == [
        (1, "prefill", 1),
        (1, "decode", 1),
        (2, "prefill", 1),
        (2, "decode", 1),
    ]
    assert [r.percent for r in roles[:2]] == pytest.approx([100 / 3, 200 / 3], rel=1e-4)
    for repeat, whole in enumerate(claims.metric("joules_per_token").repeats, 1):
        own = [r.joules_per_token or 0.0 for r in roles if r.repeat == repeat]
        assert sum(own) == pytest.approx(whole)
    assert [board.role for board in claims.boards] == ["prefill", "decode"] * 2
    assert claims_of(builder_of()).roles is None


def test_a_role_of_which_one_board_was_not_read_has_no_joules() -> None:
    builder = replace(builder_of(), spec=split_spec())
    gone = changed(
        played_power(builder),
        lambda s: replace(s, power_mw=None, energy_mj=None) if s.board else s,
    )
    prefill, decode = claims_of(builder, gone).roles or ()
    assert prefill.energy_j is not None
    assert (prefill.percent, decode.energy_j, decode.joules_per_token) == (None, None, None)
