"""Draws are integers, the same for everyone, and have the distributions that they claim."""

import itertools
import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.runs import a_trace, small_spec, trace_spec
from tokenwatt_site import workload
from tokenwatt_site.draws import GAP_UNIT
from tokenwatt_site.errors import SpecError
from tokenwatt_site.lengths import Conversation, Fixed
from tokenwatt_site.prompts import Ids
from tokenwatt_site.trace import TraceLine, encode, parse
from tokenwatt_site.workload import NAMED, Workload

PUBLISHED_ROWS = [[2142327, 544, 339], [1874721, 165, 699], [607580, 387, 396], [467070, 4523, 366]]


def test_chat_mix_v1_draws_the_published_rows_for_ever():
    """A change here changes every configuration id: give the workload a new version instead."""
    drawn = NAMED["chat-mix-v1"].realisation(1, lead_in=2, scored=10, tail=0)
    assert (
        NAMED["chat-mix-v1"].hash
        == "10f0c79aa98d8a9c30f7febd09a90af0782a99d91ac41cdce41f532dde539e53"
    )
    assert [list(row[:3]) for row in drawn.rows[:4]] == PUBLISHED_ROWS


def test_demo_mix_v1_keeps_its_hash():
    assert (
        NAMED["demo-mix-v1"].hash
        == "b412d39b2a3f2c74cfb8bf0a3b65543e4e224cfbfc3303e0a9f2a05a3960b24e"
    )


def test_chat_mix_means_are_within_one_percent_of_those_of_the_example_report():
    drawn = NAMED["chat-mix-v1"].realisation(1, lead_in=0, scored=60_000, tail=0)
    assert drawn.mean_input_tokens == pytest.approx(8180 / 5.09, rel=0.01)
    assert drawn.mean_output_tokens == pytest.approx(2047 / 5.09, rel=0.01)


def test_medians_and_90th_percentiles_are_those_asked_for():
    rows = NAMED["chat-mix-v1"].realisation(2, lead_in=0, scored=40_000, tail=0).rows
    for values, median, p90 in (
        (sorted(r.input_tokens for r in rows), 1024, 4096),
        (sorted(r.output_tokens for r in rows), 256, 1024),
    ):
        assert values[len(values) // 2] == pytest.approx(median, rel=0.03)
        assert values[9 * len(values) // 10] == pytest.approx(p90, rel=0.05)


def test_gaps_are_exponential_with_the_unit_as_mean():
    gaps = sorted(
        row.gap
        for row in NAMED["chat-mix-v1"].realisation(3, lead_in=0, scored=40_000, tail=0).rows
    )
    assert statistics.fmean(gaps) == pytest.approx(GAP_UNIT, rel=0.02)
    # Kolmogorov-Smirnov against 1 - exp(-x), 1.63 / sqrt(n) at 1%
    worst = max(
        abs((i + 1) / len(gaps) - (1 - math.exp(-gap / GAP_UNIT))) for i, gap in enumerate(gaps)
    )
    assert worst < 1.63 / math.sqrt(len(gaps))


@given(st.integers(1, 10_000_000), st.integers(1, 40))
def test_due_times_are_the_exact_sums_of_gaps_at_any_rate(rate_urps, n):
    drawn = NAMED["demo-mix-v1"].realisation(5, lead_in=0, scored=n, tail=0)
    elapsed = 0
    for row, due in zip(drawn.rows, drawn.due_ns(rate_urps), strict=True):
        elapsed += row.gap
        assert due == math.floor(elapsed * 10**9 * 10**6 / rate_urps / GAP_UNIT) or abs(
            due - elapsed * 10**15 / rate_urps / GAP_UNIT
        ) < max(1, due * 1e-12)


def test_realisations_differ_and_prefixes_agree():
    one = NAMED["demo-mix-v1"].realisation(1, lead_in=1, scored=10, tail=1)
    longer = NAMED["demo-mix-v1"].realisation(1, lead_in=1, scored=10, tail=50)
    other = NAMED["demo-mix-v1"].realisation(2, lead_in=1, scored=10, tail=1)
    assert longer.rows[:12] == one.rows
    assert other.rows != one.rows
    assert len({one.hash, longer.hash, other.hash}) == 3


def test_fixed_lengths_are_fixed():
    fixed = Workload("fixed", 1, Fixed(kind="fixed", tokens=77), Fixed(kind="fixed", tokens=9))
    rows = fixed.realisation(1, lead_in=0, scored=50, tail=0).rows
    assert {row[1:3] for row in rows} == {(77, 9)}


def test_lengths_stay_within_their_clip():
    rows = NAMED["chat-mix-v1"].realisation(4, lead_in=0, scored=20_000, tail=0).rows
    assert min(r.input_tokens for r in rows) >= 1
    assert max(r.input_tokens for r in rows) == 6144
    assert min(r.output_tokens for r in rows) >= 2
    assert max(r.output_tokens for r in rows) == 1536


def chats(turns, spread, shared, name="chats"):
    said = Conversation(turns=turns, spread=spread, shared_prefix_tokens=shared)
    plain = NAMED["demo-mix-v1"]
    return Workload(name, 1, plain.input_tokens, plain.output_tokens, said)


conversations = st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(0, 40)).map(
    lambda c: (c[0], c[1] if c[0] > 1 else 1, c[2] if c[0] > 1 else c[2] + 1)
)


@given(conversations, st.integers(10, 90))
def test_rows_of_conversations_are_laid_out_block_by_block_and_turn_by_turn(shape, n):
    turns, spread, shared = shape
    drawn = chats(*shape).realisation(3, lead_in=0, scored=n, tail=0)
    new = replace(chats(*shape), conversation=None).realisation(3, lead_in=0, scored=n, tail=0).rows
    # The naive way: first who speaks when, then what each has said by then, as a list.
    speaker = {
        block * spread * turns + turn * spread + j: (block * spread + j, turn)
        for block in range(n)
        for turn in range(turns)
        for j in range(spread)
    }
    said = {}
    for index, row in enumerate(drawn.rows):
        conversation, turn = speaker[index]
        history = said.setdefault(conversation, [])
        assert len(history) == turn
        before = shared + sum(given + answer for given, answer in history)
        asked = (new[index].gap, before + new[index].input_tokens, new[index].output_tokens)
        assert row == (*asked, conversation)
        history.append(new[index][1:3])


@given(conversations, st.integers(10, 60))
def test_what_was_sent_before_is_the_longest_beginning_that_an_earlier_prompt_had(shape, n):
    drawn = chats(*shape).realisation(2, lead_in=0, scored=n, tail=0)
    prompts = [
        Ids(10**7).prompt(b"k" * 32, r.stream, r.input_tokens, drawn.shared_prefix)
        for r in drawn.rows
    ]
    for index, (prompt, told) in enumerate(zip(prompts, drawn.sent_before(), strict=True)):
        longest = 0
        for earlier in prompts[:index]:
            same = 0
            while same < min(len(prompt), len(earlier)) and prompt[same] == earlier[same]:
                same += 1
            longest = max(longest, same)
        # Two random ids may be equal by chance.
        assert told <= longest <= told + 1


@given(conversations)
def test_no_prompt_is_longer_than_the_setup_says(shape):
    made = chats(*shape)
    drawn = made.realisation(1, lead_in=0, scored=200, tail=0)
    longest = made.conversation.longest_prompt(96, 48)
    assert max(row.input_tokens for row in drawn.rows) <= longest
    assert max(row.input_tokens + row.output_tokens for row in drawn.rows) <= longest + 48


def test_a_plain_workload_repeats_nothing():
    drawn = NAMED["demo-mix-v1"].realisation(1, lead_in=0, scored=30, tail=0)
    assert set(drawn.sent_before()) == {0}
    assert [row.stream for row in drawn.rows] == list(range(30))


def test_the_hash_of_a_realisation_tells_streams_and_shared_prefix():
    rows = chats(2, 3, 5).realisation(1, lead_in=0, scored=12, tail=0)
    others = [
        replace(rows, shared_prefix=6),
        replace(rows, rows=tuple(row._replace(stream=i) for i, row in enumerate(rows.rows))),
    ]
    assert len({rows.hash, *(other.hash for other in others)}) == 3


def test_conversations_and_traces_keep_their_hashes():
    """A change here changes the id of every configuration with a conversation or a trace."""
    assert chats(4, 8, 32).hash == (
        "b9225fe1bf7718e48fb2e48fb306d3f69d589e763016f9c6f030ef25a468fb73"
    )
    assert of_trace(a_trace(40)).hash == (
        "03af987650137de33beb77db0084bb9a6287377a1cd66688d202091f64ef870e"
    )


def test_every_field_of_a_conversation_makes_another_workload():
    shapes = [(2, 3, 5), (3, 3, 5), (2, 4, 5), (2, 3, 6)]
    assert len({chats(*shape).hash for shape in shapes} | {NAMED["demo-mix-v1"].hash}) == 5


def of_trace(trace):
    lengths = trace.lengths("input_tokens"), trace.lengths("output_tokens")
    return Workload("toy-trace", 1, *lengths, trace=trace)


def test_repeats_of_a_trace_are_its_parts_one_after_the_other():
    trace = a_trace(50)
    made = of_trace(trace)
    parts = [made.realisation(r, lead_in=2, scored=10, tail=3) for r in (1, 2, 3)]
    rows = [row for part in parts for row in part.rows]
    assert [row[1:3] for row in rows] == [request[1:] for request in trace.requests[:45]]
    for part, start in zip(parts, (0, 15, 30), strict=True):
        assert part.scored_lines == range(start + 2, start + 12)
        gaps = trace.gaps(GAP_UNIT, range(start, start + 15), part.scored_lines)
        assert [row.gap for row in part.rows] == list(gaps)
    assert [row.stream for row in parts[2].rows] == list(range(15))


@given(
    st.lists(st.integers(0, 100_000_000_000), min_size=13, max_size=40), st.integers(1, 10_000_000)
)
def test_scored_rows_of_a_trace_come_at_the_rate_that_is_offered(gaps_ns, rate_urps):
    arrivals = [0, *itertools.accumulate(gaps_ns)]
    assume(arrivals[11] > arrivals[2])
    made = of_trace(parse(encode([TraceLine(at, 5, 5) for at in arrivals]), source="t"))
    drawn = made.realisation(1, lead_in=2, scored=10, tail=2)
    due = drawn.due_ns(rate_urps)
    window_s = (due[11] - due[2]) / 1e9
    assert window_s == pytest.approx(9 / (rate_urps / 1e6), rel=1e-6, abs=2e-9)
    lead_s = due[2] / 1e9
    if drawn.lead_in_pace is not None:
        assert float(drawn.lead_in_pace) * rate_urps / 1e6 == pytest.approx(
            2 / lead_s, rel=1e-3, abs=1e-3
        )


def test_a_trace_at_its_own_rate_comes_when_it_came():
    trace = parse(encode([TraceLine(i * 10**9, 5, 5) for i in range(21)]), source="t")
    drawn = of_trace(trace).realisation(1, lead_in=0, scored=21, tail=0)
    assert list(drawn.due_ns(1_000_000)) == [request.arrival_ns for request in trace.requests]
    assert list(drawn.due_ns(4_000_000)) == [r.arrival_ns // 4 for r in trace.requests]


def test_a_trace_that_is_too_short_says_how_many_repeats_it_holds():
    made = of_trace(a_trace(50))
    with pytest.raises(
        SpecError, match=r"50 rows, enough for 2 of the repeats, 20 rows each; expected 60 rows"
    ):
        made.realisation(3, lead_in=2, scored=10, tail=8)


def test_a_setup_names_its_trace_by_hash():
    trace, other = a_trace(50), a_trace(51)
    spec = trace_spec(trace)
    assert workload.workload_of(spec.setup, trace) == of_trace(trace)
    with pytest.raises(SpecError, match=rf"setup\.workload\.hash.*sha256 {other.sha256}"):
        workload.workload_of(spec.setup, other)
    with pytest.raises(SpecError, match="the trace is missing"):
        workload.workload_of(spec.setup)
    with pytest.raises(SpecError, match="has a trace that nothing plays"):
        workload.workload_of(small_spec().setup, trace)


def test_lengths_that_are_not_those_of_the_trace_are_refused():
    trace = a_trace(50)
    told = trace.lengths("input_tokens").model_copy(update={"max": 60})
    lying = Workload("toy-trace", 1, told, trace.lengths("output_tokens"), trace=trace)
    identity = {"name": "toy-trace", "version": 1, "hash": lying.hash}
    spec = trace_spec(trace, setup__input_tokens=told.to_json(), setup__workload=identity)
    with pytest.raises(SpecError, match=r"setup\.input_tokens: are not the lengths.*max: 60"):
        workload.workload_of(spec.setup, trace)


def test_scored_rows_that_all_come_at_once_are_no_realisation():
    slow = [TraceLine(i * 2 * 10**9, 5, 5) for i in range(20)]
    made = of_trace(parse(encode([slow[0]] * 20 + slow[1:]), source="t"))
    with pytest.raises(SpecError, match="trace: the scored rows of repeat 1 all come at once"):
        made.realisation(1, lead_in=0, scored=20, tail=0)


def test_a_known_name_with_a_conversation_is_another_workload():
    said = {"turns": 2, "spread": 4, "shared_prefix_tokens": 0}
    spec = small_spec(setup__conversation=said)
    with pytest.raises(SpecError, match=r"conversation \{turns: 2, spread: 4"):
        workload.workload_of(spec.setup)


def test_a_known_name_with_other_distributions_is_refused():
    spec = small_spec(setup__output_tokens={"kind": "fixed", "tokens": 16})
    with pytest.raises(SpecError, match=r"setup\.workload\.name") as caught:
        workload.workload_of(spec.setup)
    remedy = str(caught.value)
    told = {"name": "my-mix", "version": 1, "hash": remedy.rpartition("hash: ")[2]}
    mended = small_spec(setup__output_tokens={"kind": "fixed", "tokens": 16}, setup__workload=told)
    assert workload.workload_of(mended.setup).name == "my-mix"


def test_a_wrong_workload_hash_is_refused_and_the_right_one_named():
    spec = small_spec(setup__workload={"name": "demo-mix-v1", "version": 1, "hash": "0" * 64})
    with pytest.raises(SpecError, match=NAMED["demo-mix-v1"].hash):
        workload.workload_of(spec.setup)
