"""What a run does not cover is said, with the reason, and nothing else is."""

from types import SimpleNamespace

import pytest

from tests.claims.test_derive import evidence_of
from tests.support.runs import (
    HELD,
    RunBuilder,
    a_trace,
    conversation_spec,
    small_spec,
    spec_in_mode,
    trace_spec,
)
from tokenwatt_site.claims.caveats import caveats, circumstances, not_recorded, of_long_run
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.journal import GENESIS, Entry
from tokenwatt_site.prompts import COMMON_WORDS, Ids, Words, common_words
from tokenwatt_site.run import LongRunClaim, MetricClaim, RepeatClaim
from tokenwatt_site.trials import read_trials
from tokenwatt_site.windows import windows_of
from tokenwatt_site.workload import NAMED, workload_of


def repeat(number=1, window_s=130.0, scored=20):
    return RepeatClaim(
        repeat=number,
        band_urps=0,
        scored=scored,
        highest_pass_urps=1,
        lowest_fail_urps=2,
        boundary_urps=1,
        window_s=window_s,
    )


ONE = (repeat(),)


def said(spec, repeats=ONE, metrics=()):
    return {item.what: item.why for item in caveats(spec, repeats, metrics)}


def test_demo_and_quick_modes_say_what_they_are():
    assert "Anything but a demonstration" in said(small_spec())
    quick = said(spec_in_mode("quick"), (repeat(1), repeat(2)))
    assert any("validation only, not for publishing" in what for what in quick)
    full = said(spec_in_mode("full"), tuple(repeat(i) for i in (1, 2, 3)))
    assert not any("mode" in what or "demonstration" in what for what in full)


def test_a_metric_without_a_value_is_named_once_with_its_reason():
    absent = MetricClaim(key="mbu", label="MBU", value=None, repeats=(), reason="no model")
    found = said(small_spec(), metrics=(absent, absent))
    assert found["Decode bandwidth utilization (MBU)"] == "Not measured: no model."


def test_a_number_that_a_check_refused_says_so_and_not_that_it_was_not_measured():
    for reason, words in (("withheld: so", "Withheld: so."), ("INVALID: so", "INVALID: so.")):
        absent = MetricClaim(key="mbu", label="MBU", value=None, repeats=(), reason=reason)
        found = said(small_spec(), metrics=(absent,))
        assert found["Decode bandwidth utilization (MBU)"] == words


def test_a_measured_metric_is_no_caveat():
    there = MetricClaim(key="mbu", label="MBU", value=61.0, repeats=(61.0,))
    assert "Decode bandwidth utilization (MBU)" not in said(small_spec(), metrics=(there,))


@pytest.mark.parametrize(("window_s", "scored", "short"), [(119.0, 600, True), (130.0, 600, False)])
def test_short_windows_are_said_with_their_length(window_s, scored, short):
    ran = repeat(window_s=window_s, scored=scored)
    assert ("Long windows" in said(small_spec(), (ran,))) == short


def of_the_node(sensor, scope, metrics=()):
    source = small_spec(setup__power={"sensor": sensor, "scope": scope, "rate_hz": 1})
    return said(source, metrics=metrics).get("Whole-node power")


@pytest.mark.parametrize(
    ("sensor", "scope", "words"),
    [
        ("nvml", "gpu", "Board power only"),
        ("nvml", "module", "Module power only"),
        ("rapl", "cpu", "Processor packages only"),
    ],
)
def test_b9_what_the_source_of_power_leaves_out_is_said_by_its_scope(sensor, scope, words):
    why = of_the_node(sensor, scope)
    assert why.startswith(words)
    assert why.endswith("No instrument of the host was asked for.")


def test_a_run_without_power_says_nothing_of_the_node():
    assert "Whole-node power" not in said(small_spec())


def test_a_host_that_was_read_stands_beside_and_one_that_was_not_has_its_own_reason():
    read = MetricClaim(key="host_power", label="Host power", value=1500.0, repeats=(1500.0,))
    assert of_the_node("nvml", "gpu", (read,)).endswith(
        "Host power stands beside it, and in no number per token."
    )
    failed = MetricClaim(
        key="host_power", label="Host power", value=None, repeats=(), reason="it answers 401"
    )
    assert of_the_node("nvml", "gpu", (failed,)).endswith("fans or PSU losses.")


def test_fewer_than_three_launches_leave_their_spread_uncovered():
    assert "1 launch measured" in said(small_spec())["Spread between launches"]
    three = tuple(repeat(i) for i in (1, 2, 3))
    assert "Spread between launches" not in said(spec_in_mode("full"), three)


def not_covered(builder):
    claims = derive(builder.spec, evidence_of(builder))
    return {item.what: item.why for item in claims.not_covered}


def test_conversations_say_what_they_leave_out_and_how_much_a_cache_could_hold():
    builder = RunBuilder(spec=conversation_spec(3, 4, 24))
    found = not_covered(builder)
    assert "nothing but what the conversations repeat can be cached" in found["Natural text"]
    assert "random tokens in place of" in found["Conversations that wait for their answers"]
    drawn = workload_of(builder.spec.setup).realisation(1, lead_in=5, scored=20, tail=60)
    known = sum(drawn.sent_before()[i] for i in drawn.scored_rows)
    asked = sum(drawn.rows[i].input_tokens for i in drawn.scored_rows)
    told = found["An engine without a prompt cache"]
    assert f"Up to {100 * known / asked:.1f}% of the scored" in told
    longest = found["Context lengths beyond the toy-chat workload"]
    assert longest == "Longest prompt 408 tokens, longest answer 48."


def test_two_turns_are_a_conversation():
    found = not_covered(RunBuilder(spec=conversation_spec(2, 4, 24)))
    assert "Conversations that wait for their answers" in found


def test_a_shared_prefix_alone_is_no_conversation():
    found = not_covered(RunBuilder(spec=conversation_spec(1, 1, 24)))
    assert "Conversations that wait for their answers" not in found
    assert "An engine without a prompt cache" in found


def test_a_trace_says_at_what_rates_its_parts_came():
    trace = a_trace(400)
    found = not_covered(RunBuilder(spec=trace_spec(trace, protocol__repeats=2), trace=trace))
    assert "fresh random tokens" in found["What the prompts of the trace had in common"]
    told = found["The trace at its own rate"]
    assert f"400 requests at {trace.mean_rate:.3f} requests/s" in told
    for repeat, first in ((1, 5), (2, 90)):
        span_s = (trace.requests[first + 19].arrival_ns - trace.requests[first].arrival_ns) / 1e9
        assert f"{19 / span_s / trace.mean_rate:.2f} in repeat {repeat}" in told


def test_a_plain_workload_says_nothing_of_conversations_or_traces():
    found = not_covered(RunBuilder(spec=small_spec()))
    assert not any("trace" in what or "cache" in what or "onversation" in what for what in found)
    assert "so that nothing can be cached" in found["Natural text"]


def test_fields_not_recorded_are_found_at_any_depth():
    setup = {"a": "not recorded", "b": [1, {"c": "not recorded"}], "d": {"e": "recorded"}}
    assert not_recorded(setup) == ("a", "b.1.c")
    found = said(small_spec())["Setup fields that were not recorded"]
    assert "accelerator.power_limit_w" in found


def of_the_client(builder=RunBuilder()):  # noqa: B008 - frozen
    evidence = evidence_of(builder)
    told = circumstances(builder.spec, evidence.journal, read_trials(builder.spec, evidence))
    return {item.what: item.why for item in told if "client" in item.what}


def test_a_client_that_was_tested_and_held_is_no_caveat():
    assert of_the_client() == {}


def test_a_self_test_that_its_server_ended_says_at_least():
    found = of_the_client(RunBuilder(self_test=HELD.model_copy(update={"limited_by": "emitter"})))
    assert "at least" in found["The most that the client could have held"]


def test_a_self_test_does_not_cover_tls():
    secure = small_spec(endpoint__start="attach", endpoint__url="https://engine.example")
    assert (
        "TLS" in of_the_client(RunBuilder(spec=secure))["What the client could have held over TLS"]
    )


LAUNCH = {
    "repeat": 1,
    "engine_started": "now",
    "self_test": HELD.to_json(),
    "prompts": Ids(32000).to_json(),
}


def told_of(*prompts):
    journal = [
        Entry(seq=n, at="now", event="launch", prev=GENESIS, data=data)
        for n, data in enumerate(prompts)
    ]
    told = circumstances(small_spec(), journal, ())
    return {item.what: item.why for item in told if "client" not in item.what}


def launch(prompts):
    return LAUNCH | {"prompts": prompts.to_json()}


def test_prompts_of_words_are_said_with_the_length_of_their_list():
    checked = Words(COMMON_WORDS[:60], "tokenizer file", tokenizer_sha256="0" * 64)
    assert told_of(launch(checked)) == {
        "All tokens of the vocabulary": "Prompts are random words, out of a list of 60."
    }
    both = told_of(launch(checked), launch(common_words()))
    assert "a list of 60 or 199." in both["All tokens of the vocabulary"]


def test_words_that_no_tokenizer_counted_are_said():
    found = told_of(launch(common_words()))
    assert "No tokenizer was at hand" in found["Prompts of exact length"]
    assert "out of a list of 199" in found["All tokens of the vocabulary"]


def test_prompts_of_ids_are_random_tokens_and_that_is_all():
    assert told_of(launch(Ids(32000))) == {}
    assert "random tokens" in said(small_spec())["Natural text"]


@pytest.mark.parametrize(("api", "drawn"), [("completions", "tokens"), ("chat", "words")])
def test_what_is_said_of_prompts_calls_them_what_they_are(api, drawn):
    trace = a_trace(400)
    builders = [
        RunBuilder(spec=conversation_spec(3, 4, 24, endpoint__api=api)),
        RunBuilder(spec=trace_spec(trace, endpoint__api=api), trace=trace),
    ]
    talked, played = (not_covered(builder) for builder in builders)
    for why in (
        talked["Natural text"],
        talked["Conversations that wait for their answers"],
        played["Natural text"],
        played["What the prompts of the trace had in common"],
    ):
        assert f"random {drawn}" in why


@pytest.mark.parametrize(
    ("api", "overhead", "what"),
    [
        ("chat", 30, "Prompts shorter than the chat template"),
        ("completions", 1, "Prompts shorter than what begins them"),
        ("completions", 0, None),
    ],
)
def test_prompts_that_what_is_added_to_them_outweighs_are_counted(api, overhead, what):
    record = SimpleNamespace(status=Status.HTTP_ERROR, prompt_asked=1)
    trial = SimpleNamespace(
        scored=(record, record),
        chat_overhead=overhead,
        window_ns=(10**12, 0),
        realisation=SimpleNamespace(number=1),
    )
    launched = Entry(seq=1, at="now", event="launch", prev=GENESIS, data=LAUNCH)
    told = circumstances(small_spec(endpoint__api=api), (launched,), (trial,))
    found = [item for item in told if "client" not in item.what]
    assert [item.what for item in found] == ([] if what is None else [what])
    assert all(item.why.startswith("2 requests") for item in found)


@pytest.mark.parametrize(("rate_urps", "said_so"), [(300_000, True), (900_000_000, False)])
def test_a_rate_below_all_chosen_windows_is_said_to_be_offered_any_rows(rate_urps, said_so):
    chat = NAMED["chat-mix-v1"]
    spec = spec_in_mode(
        "quick",
        setup__workload={"name": chat.name, "version": chat.version, "hash": chat.hash},
        setup__input_tokens=chat.input_tokens.to_json(),
        setup__output_tokens=chat.output_tokens.to_json(),
        setup__slo=[
            {"metric": "ttft", "quantile": 0.99, "limit_ms": 2000.0},
            {"metric": "tpot", "quantile": 0.99, "limit_ms": 50.0},
        ],
    )
    protocol = spec.protocol.model_copy(update=dict.fromkeys(("lead_in", "scored", "tail")))
    spec = spec.model_copy(update={"protocol": protocol})
    ran = repeat().model_copy(update={"highest_pass_urps": rate_urps})
    none = LongRunClaim(outcome="none", text="no model")
    told = of_long_run(spec, windows_of(spec), none, (ran,))
    assert ("Windows chosen for this rate" in {item.what for item in told}) == said_so
