from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.measure.stream import EventSplitter, StreamParser, StreamSummary

Chunk = dict[str, Any]
MS = 1_000_000


def sse(*values: Chunk | str, end: str = "\n") -> list[bytes]:
    return [
        f"data: {v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}{end}{end}".encode()
        for v in values
    ]


def text(content: str, finish: str | None = None, **more: Any) -> Chunk:
    return {"choices": [{"index": 0, "text": content, "finish_reason": finish}], **more}


def delta(finish: str | None = None, /, usage: Any = None, **fields: Any) -> Chunk:
    return {
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
        "usage": usage,
    }


def usage(output: int, prompt: int = 3) -> Chunk:
    return {"completion_tokens": output, "prompt_tokens": prompt}


def total(output: int) -> Chunk:
    return {"choices": [], "usage": usage(output)}


def parse(*pieces: bytes, exact_ns: int = 1, merged_ns: int = 9) -> StreamSummary:
    """Feed one piece each millisecond, the first at 1 ms."""
    parser = StreamParser()
    for number, piece in enumerate(pieces, start=1):
        parser.feed(number * MS, exact_ns, merged_ns, piece)
    return parser.finish(len(pieces) * MS, exact_ns)


def times(summary: StreamSummary) -> tuple[object, ...]:
    def ms(value: int | None) -> float | None:
        return None if value is None else value / MS

    return ms(summary.first_ns), ms(summary.last_ns), summary.first_tokens, summary.events


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(p % (len(data) + 1) for p in places)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


# Splitting.


def split(*pieces: bytes) -> list[bytes]:
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events + splitter.finish()


def naive_split(data: bytes) -> list[bytes]:
    """The standard's algorithm, one line after the other."""
    events: list[bytes] = []
    held: list[bytes] = []
    lines = re.split(rb"\r\n|\r|\n", data.removeprefix(b"\xef\xbb\xbf"))
    for line in [*lines, b"", b""]:
        if line == b"":
            if held:
                events.append(b"\n".join(held))
            held = []
        elif line.startswith(b"data:"):
            value = line[5:]
            held.append(value[1:] if value.startswith(b" ") else value)
        elif line == b"data":
            held.append(b"")
    return events


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_each_line_ending_of_the_standard_ends_a_line(end: str) -> None:
    assert split(b"".join(sse("one", "two", end=end))) == [b"one", b"two"]


def test_a_line_separator_inside_the_text_is_text() -> None:
    line = "data: a\u2028b\u0085c\x0bd\n\n".encode()
    assert split(line) == ["a\u2028b\u0085c\x0bd".encode()]


def test_comments_and_other_fields_are_no_data() -> None:
    assert split(b": hello\nid: 7\nretry: 5\ndata: x\n: y\n\n:\n\n") == [b"x"]


def test_data_over_several_lines_is_one_event() -> None:
    assert split(b"data: {\ndata: }\ndata\n\n") == [b"{\n}\n"]


def test_only_one_space_after_the_colon_is_not_data() -> None:
    assert split(b"data:  x\n\ndata:y\n\n") == [b" x", b"y"]


def test_a_byte_order_mark_before_the_first_line_is_dropped() -> None:
    assert split(b"\xef\xbb", b"\xbfdata: x\n\n") == [b"x"]


def test_an_event_without_its_empty_line_is_given_at_the_end() -> None:
    assert split(b"data: x\n\ndata: [DONE]") == [b"x", b"[DONE]"]


_PIECES = st.lists(
    st.sampled_from(
        [
            b"\n",
            b"\r",
            b"\r\n",
            b"data: ",
            b"data:",
            b"data",
            b": c",
            b"x",
            b"\xe2\x80\xa8",
            b"id: 1",
        ]
    ),
    max_size=14,
)


@given(_PIECES, st.lists(st.integers(0, 1000), max_size=8))
def test_any_cutting_of_any_bytes_gives_the_events_of_the_standard(
    pieces: list[bytes], places: list[int]
) -> None:
    data = b"".join(pieces)
    assert split(*cut(data, places)) == naive_split(data)


# What is a token, and when.


def test_a1_a_chunk_with_only_a_role_starts_no_clock() -> None:
    summary = parse(
        *sse(
            delta(role="assistant", content=""),
            delta(role="assistant", content=None, tool_calls=[], reasoning_content=""),
            delta(),
            delta(content="a"),
            delta("length"),
            total(1),
            "[DONE]",
        )
    )
    assert times(summary) == (4, 4, 1, 1)
    assert (summary.finish_reason, summary.ended, summary.error) == ("length", True, None)


def test_a1_a_comment_starts_no_clock() -> None:
    summary = parse(b": OPENROUTER PROCESSING\n\n", *sse(text("a"), total(1)))
    assert times(summary) == (2, 2, 1, 1)


def test_a2_a_stream_without_tokens_has_no_first_token() -> None:
    summary = parse(*sse(delta(role="assistant"), delta("stop"), total(0), "[DONE]"))
    assert times(summary) == (None, None, None, 0)
    assert summary.output_tokens == 0


def test_a4_several_tokens_in_each_chunk_are_weighed_by_usage_growth() -> None:
    summary = parse(
        *sse(
            text("abcd", usage=usage(4)),
            text("efgh", usage=usage(8)),
            text("ij", "length", usage=usage(10)),
            total(10),
        )
    )
    assert times(summary) == (1, 3, 4, 3)
    assert summary.output_tokens == 10


def test_a4_llama_cpp_tells_the_count_in_its_timings() -> None:
    summary = parse(
        *sse(
            text("ab", timings={"predicted_n": 2, "cache_n": 0}),
            text("c", timings={"predicted_n": 3, "cache_n": 0}),
            text("", "length", usage=usage(3), timings={"predicted_n": 3, "cache_n": 0}),
        )
    )
    assert times(summary) == (1, 2, 2, 2)
    assert (summary.output_tokens, summary.cached_tokens) == (3, 0)


def test_a5_usage_growth_without_text_is_arrival() -> None:
    summary = parse(
        *sse(
            delta(role="assistant", content="", usage=usage(0)),
            delta(usage=usage(1)),
            delta(usage=usage(2)),
            delta(tool_calls=[{"function": {"arguments": "{}"}}], usage=usage(3)),
            delta("tool_calls", usage=usage(4)),
            total(4),
        )
    )
    assert times(summary) == (2, 5, 1, 4)


def test_a5_a_total_that_comes_once_is_no_arrival_of_a_token() -> None:
    summary = parse(*sse(text("a"), text("b"), text("", "length", usage=usage(2)), "[DONE]"))
    assert times(summary) == (1, 2, 1, 2)


def test_a5_zeros_in_each_chunk_do_not_make_the_total_an_arrival() -> None:
    summary = parse(*sse(text("a", usage=usage(0)), text("b", usage=usage(0)), total(2)))
    assert times(summary) == (1, 2, 1, 2)


def test_a5_a_total_after_the_finish_reason_is_no_arrival_of_a_token() -> None:
    after = delta(role="assistant", content="", usage=usage(2))
    summary = parse(*sse(delta(content="a"), delta(content="b"), delta("stop"), after))
    assert times(summary) == (1, 2, 1, 2)
    assert summary.output_tokens == 2


def test_tokens_that_only_the_total_tells_of_arrived_with_it() -> None:
    summary = parse(*sse(text(""), text("", "length", usage=usage(5)), "[DONE]"))
    assert times(summary) == (2, 2, 5, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"arguments": "{"}},
        {"refusal": "no"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
    ],
)
def test_a6_reasoning_and_tool_calls_are_tokens(fields: Chunk) -> None:
    summary = parse(*sse(delta(role="assistant", content=""), delta(**fields), total(1)))
    assert times(summary) == (2, 2, 1, 1)


@pytest.mark.parametrize(
    "details", [[], None, "x", [None], [{"type": "reasoning.text", "signature": "c2ln"}]]
)
def test_reasoning_details_without_text_start_no_clock(details: Any) -> None:
    summary = parse(*sse(delta(content="", reasoning_details=details), delta(content="a")))
    assert times(summary) == (2, 2, 1, 1)


@pytest.mark.parametrize(
    ("completion", "reasoning", "total", "output"),
    [
        (4, 6, 13, 10),  # left out, as the total tells
        (10, 6, 13, 10),
        (10, 11, 13, 10),  # more reasoning than there was output: the total decides
        (4, 6, 99, 4),
        (4, 6, None, 4),
        (4, None, 13, 4),
        (4, 0, 7, 4),
        (None, 6, 13, None),
    ],
)
def test_a8_reasoning_left_out_of_the_count_is_added_where_the_total_says_so(
    completion: int | None, reasoning: int | None, total: int | None, output: int | None
) -> None:
    told = {
        "prompt_tokens": 3,
        "completion_tokens": completion,
        "total_tokens": total,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    assert parse(*sse(text("a"), {"choices": [], "usage": told})).output_tokens == output


def test_a8_tokens_come_from_usage_and_not_from_chunks() -> None:
    summary = parse(*sse(text("many words in one chunk"), text("x", "length"), total(7)))
    assert (summary.output_tokens, summary.events, summary.first_tokens) == (7, 2, 1)


def test_a8_usage_in_the_last_text_chunk_is_read() -> None:
    summary = parse(*sse(text("a"), text("b", "length", usage=usage(2)), "[DONE]"))
    assert times(summary) == (1, 2, 1, 2)
    assert (summary.output_tokens, summary.prompt_tokens) == (2, 3)


def test_an_answer_in_one_event_carries_all_its_tokens_in_it() -> None:
    summary = parse(*sse(text("abc", "length", usage=usage(3))))
    assert times(summary) == (1, 1, 3, 1)


@pytest.mark.parametrize(
    ("told", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 63}}, 63),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_tokens_details": None, "prompt_cache_hit_tokens": 5}, 5),
        ({}, None),
        ({"prompt_tokens_details": {"cached_tokens": -1}}, None),
        ({"prompt_tokens_details": {"cached_tokens": True}}, None),
    ],
)
def test_cached_tokens_are_read_where_they_are_told(told: Chunk, cached: int | None) -> None:
    summary = parse(*sse(text("a"), {"choices": [], "usage": {**usage(1), **told}}))
    assert summary.cached_tokens == cached


def test_a_token_cut_over_reads_arrived_when_it_was_complete() -> None:
    data = b"".join(sse(text("\u00e9"), total(1)))
    middle = data.index("\u00e9".encode()) + 1
    assert times(parse(data[:middle], data[middle:])) == (2, 2, 1, 1)


# How sure the first token's time is.


def test_a_token_alone_in_its_read_has_the_error_of_the_stamp() -> None:
    first, second, end = sse(text("a"), text("b"), total(2))
    assert parse(first, second, end).uncertainty_ns == 1


def test_several_tokens_in_the_first_read_have_come_at_any_time_since_the_last_poll() -> None:
    first, second, end = sse(text("a"), text("b"), total(2))
    assert parse(first + second, end).uncertainty_ns == 9


def test_several_tokens_in_a_later_read_leave_the_first_time_exact() -> None:
    first, second, third, end = sse(text("a"), text("b"), text("c"), total(3))
    assert parse(first, second + third + end).uncertainty_ns == 1


def test_a_role_or_the_end_beside_the_token_does_not_make_it_several() -> None:
    role, first, end = sse(delta(role="assistant"), delta(content="a"), total(1))
    assert parse(role + first + end).uncertainty_ns == 1


# What is wrong.


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (sse({"error": {"message": "out of memory", "code": 500}})[0], "out of memory"),
        (sse({"error": "bad"})[0], "bad"),
        (sse({"error": {"type": "server_error"}})[0], "server_error"),
        (sse({"object": "error", "message": "bad prompt", "code": 400})[0], "bad prompt"),
        (sse({"choices": [{"index": 0, "error": {"message": "gone"}}]})[0], "gone"),
        (sse(text("a"), {"choices": [{"index": 1, "text": "b"}]})[1], "several choices"),
        (sse({"type": "message_start"}, {"type": "ping"})[0], "another API"),
        (b"event: error\ndata: {}\n\n", "an event named error"),
        (b'event: error\ndata: {"message": "gone"}\n\n', "gone"),
        (b'{"detail": "Not here"}', "Not here"),
        (b'{"object": "error", "message": "bad prompt"}', "bad prompt"),
        (b'{"error": {"message": "no such model"}}', "no such model"),
        (b'{\n "error": {"message": "pretty"}\n}\n', "pretty"),
        (b"<html>busy</html>", "no event stream: <html>busy</html>"),
        (b'{"choices": [{"text": "x"}]}', "no event stream"),
        (b"data: [DATA]\n\n", "no JSON object: [DATA]"),
        (b"data: \xff\n\n", "no JSON object"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "no JSON object"),
        (b"data: " + b"9" * 5_000 + b"\n\n", "no JSON object"),
    ],
)
def test_errors_and_what_is_no_stream_are_told(data: bytes, error: str) -> None:
    assert error in str(parse(data).error)
    assert error in str(parse(*[data[i : i + 997] for i in range(0, len(data), 997)]).error)


def test_an_error_after_tokens_keeps_their_times() -> None:
    summary = parse(*sse(text("a"), {"error": {"message": "gone"}}))
    assert times(summary) == (1, 1, 1, 1)
    assert summary.error == "gone"


def test_an_engines_message_is_made_fit_for_a_file() -> None:
    assert parse(*sse({"error": "a\u202eb\n\x00c" + "d" * 999})).error == "a b c" + "d" * 295


def test_an_event_of_another_shape_among_the_chunks_is_no_error() -> None:
    assert parse(*sse({"type": "ping"}, text("a"), {"type": "ping"}, total(1))).error is None


def test_a_last_event_without_its_empty_line_counts() -> None:
    first, last = sse(text("a"), text("b", "length", usage=usage(2)))
    summary = parse(first, last.rstrip())
    assert times(summary) == (1, 2, 1, 2)
    assert (summary.output_tokens, summary.error) == (2, None)


def test_the_end_mark_may_have_spaces_around_it() -> None:
    assert parse(*sse(text("a"), "[DONE] ")).ended


def test_a_null_error_field_is_no_error() -> None:
    assert parse(*sse(text("a", error=None), total(1))).error is None


_KEYS = (
    *("choices", "delta", "text", "content", "usage", "completion_tokens", "timings"),
    *("predicted_n", "error", "tool_calls", "function", "arguments", "finish_reason"),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(_JSON, max_size=4))
def test_no_shape_of_json_crashes_the_parser(values: list[Any]) -> None:
    summary = parse(*[b"data: " + json.dumps(v).encode() + b"\n\n" for v in values])
    assert (summary.first_ns is None) == (summary.events == 0)


@given(st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=5))
def test_no_bytes_crash_the_parser_and_no_cutting_changes_what_they_say(
    data: bytes, places: list[int]
) -> None:
    def facts(summary: StreamSummary) -> tuple[object, ...]:
        return summary.events, summary.output_tokens, summary.error, summary.ended

    assert facts(parse(*cut(data, places))) == facts(parse(data))


_CHUNKS = st.lists(
    st.sampled_from(
        [
            delta(role="assistant", content=""),
            delta(content="\u00fc\u2028"),
            delta(reasoning_content="r"),
            delta(content="x", usage=usage(3)),
            delta(usage=usage(5)),
            delta("stop"),
            total(9),
        ]
    ),
    max_size=8,
)


@given(_CHUNKS, st.lists(st.integers(0, 10_000), max_size=9), st.sampled_from(["\n", "\r\n"]))
def test_any_cutting_of_a_stream_counts_the_same(
    chunks: list[Chunk], places: list[int], end: str
) -> None:
    def facts(summary: StreamSummary) -> tuple[object, ...]:
        return (
            summary.events,
            summary.first_tokens,
            summary.output_tokens,
            summary.finish_reason,
            summary.error,
        )

    data = b"".join(sse(*chunks, end=end))
    assert facts(parse(*cut(data, places))) == facts(parse(data))


def test_a_whole_answer_in_one_event_leaves_no_time_between_tokens() -> None:
    summary = parse(*sse(text("all of it", "length"), total(12), "[DONE]"))
    assert times(summary) == (1, 1, 12, 1)
