from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.simulate.answer import Answer, Piece, steps
from tokenwatt_site.simulate.asked import Asked
from tokenwatt_site.simulate.script import Script, named

MS = 1_000_000
ASKED = Asked("completions", "simulated", (7, 8, 9), 4, include_usage=True, ignore_eos=True)


def timeline(script: Script, asked: Asked = ASKED) -> list[tuple[int, Piece]]:
    return list(steps(script, Answer(script, asked, 5)))


def run(script: Script, asked: Asked = ASKED) -> list[Piece]:
    return [piece for _, piece in timeline(script, asked)]


def chunks(made: list[Piece]) -> list[Any]:
    lines = b"".join(piece.data for piece in made).decode().splitlines()
    return [json.loads(line[5:]) for line in lines if line.startswith(("data: {", "data:{"))]


def test_tokens_come_at_fixed_intervals_after_the_first() -> None:
    made = timeline(Script(ttft_ms=20, interval_ms=5))
    assert [after_ns for after_ns, _ in made] == [20 * MS, 25 * MS, 30 * MS, 35 * MS]
    assert [piece.then for _, piece in made] == ["next", "next", "next", "end"]


def test_an_event_of_several_tokens_comes_after_as_many_intervals() -> None:
    made = timeline(named("multi:3", Script(ttft_ms=20, interval_ms=5)))
    assert [(after_ns, piece.tokens) for after_ns, piece in made] == [(20 * MS, 3), (35 * MS, 1)]


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 50) | st.none())
def test_exactly_the_tokens_asked_for_are_sent_unless_the_script_is_short(
    asked: int, at_once: int, short: int | None
) -> None:
    made = run(Script(tokens_per_event=at_once, short=short), replace(ASKED, output_tokens=asked))
    total = min(asked, short or asked)
    assert sum(piece.tokens for piece in made) == total
    assert chunks(made)[-1]["usage"]["completion_tokens"] == total


def test_usage_comes_in_its_own_chunk_only_when_asked() -> None:
    assert chunks(run(Script()))[-1]["choices"] == []
    assert all("usage" not in c for c in chunks(run(Script(), replace(ASKED, include_usage=False))))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("usage-last-chunk", [None, None, None, 4]),
        ("usage-every-chunk", [1, 2, 3, 4, 4]),
        ("finish-apart,usage-last-chunk", [None, None, None, None, 4]),
        ("finish-apart,usage-two-chunks", [None, None, None, None, 4, 4]),
        ("transformers", [None, None, None, None, 4]),
        ("llama.cpp", [None, None, 4]),
        ("tgi", [None, None, None, None, 4]),
        ("no-usage", [None] * 4),
    ],
)
def test_usage_is_where_the_dialect_puts_it(name: str, counts: list[int | None]) -> None:
    told = [c.get("usage", {}).get("completion_tokens") for c in chunks(run(named(name)))]
    assert told == counts


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm"])
def test_usage_is_in_every_chunk_where_that_is_asked_and_honoured(name: str) -> None:
    asked = replace(ASKED, continuous_usage=True)
    told = [c["usage"]["completion_tokens"] for c in chunks(run(named(name), asked))]
    assert sorted(set(told)) == [1, 2, 3, 4]
    assert [c.get("usage") is not None for c in chunks(run(named(name)))].count(True) == 1
    assert all("usage" in c for c in chunks(run(Script(continuous_usage=True), asked)))


def test_llama_cpp_tells_the_count_in_its_timings_when_asked() -> None:
    made = chunks(run(named("llama.cpp"), replace(ASKED, timings_per_token=True)))
    assert [c["timings"]["predicted_n"] for c in made] == [2, 3, 4]
    assert all("timings" not in c for c in chunks(run(named("llama.cpp"))))


def test_the_finish_reason_comes_once_and_before_it_is_null_or_empty() -> None:
    def reasons(name: str, api: Literal["completions", "chat"] = "completions") -> list[Any]:
        made = chunks(run(named(name), replace(ASKED, api=api)))
        return [c["choices"][0]["finish_reason"] for c in made if c["choices"]]

    assert reasons("vllm") == [None, None, None, "length"]
    assert reasons("sglang") == [None, None, None, None, "length"]
    assert reasons("tgi") == ["", "", "", "length"]
    assert reasons("tgi", "chat") == [None, None, None, None, "length"]


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [("tgi", b"data:{", b"}\n\n"), ("tensorrt-llm", b"data: {", b"} \n\n")],
)
def test_a_line_is_written_as_the_engine_writes_it(name: str, start: bytes, end: bytes) -> None:
    first = run(named(name))[0].data
    assert first.startswith(start)
    assert first.endswith(end)


def test_data_over_several_lines_is_the_same_json() -> None:
    data = run(named("data-lines"))[0].data.decode()
    lines = data.splitlines()
    assert len(lines) > 5
    joined = "".join(line.removeprefix("data: ") for line in lines)
    assert json.loads(joined) == chunks(run(Script()))[0]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("reasoning", "reasoning"),
        ("reasoning-content", "reasoning_content"),
        ("reasoning-details", "reasoning_details"),
        ("tool-calls", "tool_calls"),
    ],
)
def test_the_carrier_holds_the_text(name: str, field: str) -> None:
    made = chunks(run(named(name), replace(ASKED, api="chat")))
    assert [bool(c["choices"][0]["delta"].get(field)) for c in made[1:-1]] == [True] * 4
    assert not any(c["choices"][0]["delta"].get("content") for c in made[1:-1])


@pytest.mark.parametrize(("name", "output"), [("", 4), (",reasoning-not-counted", 1)])
def test_reasoning_comes_first_and_is_counted_or_not(name: str, output: int) -> None:
    made = run(named("think:3,multi:2" + name), replace(ASKED, api="chat"))
    assert [piece.tokens for piece in made] == [2, 1, 1]
    deltas = [c["choices"][0]["delta"] for c in chunks(made)[1:-1]]
    assert [list(delta)[-1] for delta in deltas] == ["reasoning_content"] * 2 + ["content"]
    usage = chunks(made)[-1]["usage"]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (output, 7)
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 3}


def test_the_first_event_may_differ_in_size_from_the_others() -> None:
    assert [piece.tokens for piece in run(named("multi:2,first:1"))] == [1, 2, 1]


def said(made: list[Piece]) -> list[str]:
    return [c["choices"][0]["text"] for c in chunks(made) if c["choices"]]


@given(st.integers(1, 60), st.integers(1, 6), st.integers(0, 50))
def test_bursts_vary_within_their_bound_and_are_the_same_each_time(
    asked: int, most: int, number: int
) -> None:
    def sizes() -> list[int]:
        request = replace(ASKED, output_tokens=asked)
        answer = Answer(named(f"bursts:{most}"), request, number)
        return [piece.tokens for _, piece in steps(named(f"bursts:{most}"), answer)]

    assert sizes() == sizes()
    assert sum(sizes()) == asked
    assert set(sizes()) <= set(range(1, most + 1))
    assert most == 1 or asked < 60 or len(set(sizes())) > 1


def test_tokens_of_a_burst_may_be_an_event_each_written_together() -> None:
    made = run(named("multi:3,together"))
    assert [piece.events for piece in made] == [(1, 1, 1), (1,)]
    assert said(made) == [" token"] * 4
    assert chunks(made)[3]["choices"][0]["finish_reason"] == "length"


def test_text_waits_until_its_characters_are_whole() -> None:
    made = run(named("held-text"), replace(ASKED, output_tokens=9))
    assert [piece.tokens for piece in made] == [2, 1, 3, 2, 1]
    assert said(made) == ["\U0001f600", " token", "\u3042", "\U0001f600", " token"]
    assert "\U0001f600".encode() in made[0].data  # as UTF-8, not escaped


def test_a_character_that_the_end_cuts_is_never_said() -> None:
    made = run(named("llama.cpp"), replace(ASKED, output_tokens=5, timings_per_token=True))
    assert [piece.tokens for piece in made] == [2, 1, 2]
    assert said(made) == ["\U0001f600", " token", ""]
    assert [c["timings"]["predicted_n"] for c in chunks(made)] == [2, 3, 5]
    assert said(run(named("held-text"), replace(ASKED, output_tokens=1))) == [""]


@given(st.integers(1, 30), st.integers(1, 5), st.sampled_from(["multi", "bursts"]))
def test_held_text_together_is_cut_at_whole_characters(asked: int, at_once: int, how: str) -> None:
    request = replace(ASKED, output_tokens=asked)
    once = run(named(f"held-text,{how}:{at_once}"), request)
    apart = run(named(f"held-text,together,{how}:{at_once}"), request)
    one_by_one = run(named("held-text"), request)
    assert [piece.tokens for piece in apart] == [piece.tokens for piece in once]
    assert [n for piece in apart for n in piece.events] == [piece.tokens for piece in one_by_one]
    assert "".join(said(apart)) == "".join(said(once)) == "".join(said(one_by_one))


def test_reasoning_between_markers_is_text_like_any_other() -> None:
    made = run(named("markers:3"))
    assert said(made) == ["<think>", " token", "</think>", " token"]
    held = run(named("markers:2,held-text"), replace(ASKED, output_tokens=5))
    assert said(held) == ["<think>", "</think>", "\U0001f600", " token"]


@pytest.mark.parametrize("names", ["", "multi:3", "held-text", "markers:3", "together,bursts:4"])
def test_an_answer_that_begins_beside_enough_others_says_other_words(names: str) -> None:
    script = named(f"load-garbles:2,{names}")

    def words(others: int) -> str:
        answer = Answer(script, replace(ASKED, output_tokens=9), 5, others=others)
        return "".join(said([piece for _, piece in steps(script, answer)]))

    honest = "".join(said(run(named(names), replace(ASKED, output_tokens=9))))
    assert words(0) == words(1) == honest
    assert words(2) == words(7) == honest.replace(" token", " taken") != honest


@given(
    st.sampled_from(["", "held-text", "think:2", "markers:3"]),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.integers(0, 50),
    st.integers(1, 20),
)
def test_what_an_answer_says_depends_on_no_other(
    names: str, prompt: list[int], number: int, others: int
) -> None:
    asked = replace(ASKED, prompt=tuple(prompt), output_tokens=12)

    def words(number: int, others: int, how: str) -> str:
        script = named(f"{names},{how}")
        answer = Answer(script, asked, number, others=others)
        return "".join(said([piece for _, piece in steps(script, answer)]))

    assert words(number, others, "bursts:4") == words(0, 0, "")


def test_a_chunk_without_choices_may_come_before_everything() -> None:
    after_ns, first = timeline(named("empty-first"))[0]
    assert (after_ns, first.tokens, chunks([first])[0]["choices"]) == (0, 0, [])


def test_the_models_own_end_is_overridden_where_ignore_eos_is_honoured() -> None:
    ends = Script(end_of_sequence=2)
    assert sum(s.tokens for s in run(ends)) == 4
    assert sum(s.tokens for s in run(ends, replace(ASKED, ignore_eos=False))) == 2
    assert sum(s.tokens for s in run(named("ignores-ignore-eos"))) == 3


def test_an_early_role_is_sent_on_receipt_and_has_no_tokens() -> None:
    after_ns, first = timeline(named("role-early"), replace(ASKED, api="chat"))[0]
    assert (after_ns, first.tokens) == (0, 0)
    assert chunks([first])[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize(
    ("name", "then", "tokens"),
    [("drop:2", "drop", 2), ("reset:3", "reset", 3), ("hang:0", "hang", 0), ("error:1", "end", 1)],
)
def test_a_fault_comes_after_as_many_tokens_as_it_says(name: str, then: str, tokens: int) -> None:
    made = run(named(name))
    assert made[-1].then == then
    assert sum(piece.tokens for piece in made) == tokens


@given(
    st.sampled_from(
        [
            "",
            "multi:3",
            "first:2,multi:4",
            "think:3",
            "short:5",
            "drop:2",
            "error:1",
            "bursts:3",
            "llama.cpp",
        ]
    ),
    st.integers(1, 12),
)
def test_an_answer_taken_token_by_token_has_the_pieces_of_its_timeline(
    names: str, asked: int
) -> None:
    request = replace(ASKED, output_tokens=asked)
    answer = Answer(named(names), request, 5)
    taken = [piece for _ in range(answer.total) if (piece := answer.token(0))]
    made = run(named(f"{names},cached:0"), request)
    end = next((i for i, piece in enumerate(taken) if piece.then != "next"), len(taken) - 1)
    assert taken[: end + 1] == made


def test_what_an_engine_found_in_its_cache_stands_in_usage_unless_the_script_says_it() -> None:
    for names, told in (("", 48), ("cached:2", 2)):
        answer = Answer(named(names), replace(ASKED, output_tokens=1), 5)
        piece = answer.token(48)
        assert piece is not None
        details = chunks([piece])[-1]["usage"]["prompt_tokens_details"]
        assert details == {"cached_tokens": told}


# Not streamed.

PLAIN = replace(ASKED, streamed=False)


def plain(script: Script, asked: Asked = PLAIN) -> Any:
    *before, last = run(script, asked)
    assert all(piece == Piece(b"") for piece in before)
    return json.loads(last.data)


def test_a_plain_answer_comes_whole_when_a_stream_would_have_ended() -> None:
    script = Script(ttft_ms=20, interval_ms=5)
    made = timeline(script, PLAIN)

    assert made[-1][0] == timeline(script)[-1][0] == 35 * MS
    assert (made[-1][1].events, made[-1][1].then) == ((4,), "end")
    assert plain(script) == {
        "id": "cmpl-00000005",
        "object": "text_completion",
        "created": 0,
        "model": "simulated",
        "choices": [{"index": 0, "finish_reason": "length", "text": " token" * 4}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }


def test_a_plain_chat_is_a_message_with_its_reasoning_apart() -> None:
    answer = plain(named("think:3,role-early,empty-first"), replace(PLAIN, api="chat"))
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "reasoning_content": " token" * 3,
        "content": " token",
    }


@given(st.sampled_from(["vllm", "sglang", "llama.cpp", "tgi", "bursts:3", "together,multi:3"]))
def test_a_plain_answer_says_what_the_stream_says(name: str) -> None:
    asked = replace(ASKED, output_tokens=9)
    streamed = "".join(
        choice["text"] for c in chunks(run(named(name), asked)) for choice in c["choices"]
    )
    assert plain(named(name), replace(asked, streamed=False))["choices"][0]["text"] == streamed


@pytest.mark.parametrize(
    ("stop", "text", "tokens", "finish"),
    [
        (("n t",), " toke", 2, "stop"),
        (("never", "token"), " ", 1, "stop"),
        (("never",), " token" * 4, 4, "length"),
        ((" token" * 4,), "", 4, "stop"),
    ],
)
def test_a_plain_answer_ends_before_what_stops_it(
    stop: tuple[str, ...], text: str, tokens: int, finish: str
) -> None:
    answer = plain(Script(), replace(PLAIN, stop=stop))
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text, finish)
    assert answer["usage"]["completion_tokens"] == tokens


def test_a_script_may_leave_out_usage_or_end_early() -> None:
    assert "usage" not in plain(named("no-usage"))
    assert plain(named("short:2"))["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(("name", "then"), [("drop:2", "drop"), ("hang:2", "hang")])
def test_a_plain_answer_that_goes_wrong_has_sent_nothing(name: str, then: str) -> None:
    made = run(named(name), PLAIN)
    assert [piece.data for piece in made] == [b""] * 3
    assert made[-1].then == then


def test_a_plain_answer_may_be_an_error() -> None:
    assert plain(named("error:2")) == {
        "error": {"message": "the script says so", "type": "ServerError"}
    }
