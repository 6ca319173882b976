"""What each way of answering is read as: streams on record, streams of our own, and served ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.simulate.test_engine import engine
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure.client import Offered, PlannedRequest, Target, offer
from tokenwatt_site.measure.exchange import Exchange
from tokenwatt_site.measure.stream import StreamParser
from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer

MS = 1_000_000
FIXTURES = Path(__file__).parent.parent / "fixtures" / "streams"


class Outcome(NamedTuple):
    """What a stream must be read as.

    `first` is what the first event with a token carries, `n_first` how many, of `events` such.
    """

    status: Status
    output: int | None
    first: str | None
    n_first: int | None
    finish: str | None
    events: int


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


def ended(asked: int, *reads: bytes) -> tuple[RequestRecord, str]:
    """Return the record after these reads, a millisecond apart, and what went wrong."""
    exchange = Exchange(0, PlannedRequest(0, 0, b"{}", 5, asked))
    for number, data in enumerate(reads):
        if body := exchange.framing.feed(data):
            exchange.parse(number * MS, 1, 9, body)
    exchange.framing.eof()
    exchange.fate, exchange.end_ns = Status.OK, len(reads) * MS
    message, record = exchange.conclude(1, 1)
    return record, message


def carried(piece: bytes) -> str | None:
    """Say what one event carries, read without the parser."""
    lines = piece.decode().splitlines()
    data = "".join(line.removeprefix("data:") for line in lines if line.startswith("data:"))
    for choice in json.loads(data)["choices"]:
        delta = choice.get("delta", {})
        if choice.get("text") or delta.get("content"):
            return "content"
        if any(value for key, value in delta.items() if key.startswith("reasoning")):
            return "reasoning"
        if delta.get("tool_calls"):
            return "tool call"
    return None


def outcome(pieces: Sequence[bytes], asked: int) -> tuple[Outcome, str]:
    """Feed one piece a millisecond; return what came of it, and what went wrong."""
    record, message = ended(asked, b"HTTP/1.1 200 OK\r\n\r\n", *pieces)
    parser = StreamParser()
    for piece in pieces:
        parser.feed(0, 1, 9, piece)
    first = None if record.first_ns is None else carried(pieces[record.first_ns // MS - 1])
    read = Outcome(
        record.status,
        record.output_tokens,
        first,
        record.first_tokens,
        parser.finish(0, 1).finish_reason,
        record.events,
    )
    return read, message


def by_event(body: bytes) -> list[bytes]:
    return [piece + b"\n\n" for piece in body.split(b"\n\n") if piece.strip()]


OK, BAD, UNTOLD = Status.OK, Status.STREAM_ERROR, Status.NO_USAGE
NOTHING = Outcome(BAD, None, None, None, None, 0)

# Streams of real servers, in the folder of test data. Its README says where each comes from. One
# that has no usage lost it in the recording, or was not asked for it.

RECORDED = {
    "alibaba-qwen3_chat_tool-call.chunks.txt": Outcome(OK, 22, "tool call", 1, "tool_calls", 3),
    "anthropic_messages_text.chunks.txt": NOTHING,
    "azure_responses_text.chunks.txt": NOTHING,
    "cassettes/azure_nonstream.yaml#0": NOTHING,
    "cassettes/deepseek_thinking_stream.yaml#0": Outcome(OK, 212, "reasoning", 1, "stop", 209),
    "cassettes/groq_error_mid_stream.yaml#0": Outcome(BAD, None, "reasoning", 1, None, 93),
    "cassettes/groq_error_mid_stream.yaml#1": Outcome(OK, 49, "reasoning", 1, "tool_calls", 23),
    "cassettes/groq_error_mid_stream.yaml#2": Outcome(OK, 58, "reasoning", 1, "stop", 48),
    "cassettes/ollama_local_nonstream.yaml#0": NOTHING,
    "cassettes/openai_stream.yaml#0": Outcome(OK, 15, "tool call", 1, "tool_calls", 6),
    "cassettes/openai_stream.yaml#1": Outcome(OK, 9, "content", 1, "stop", 8),
    "cassettes/openrouter_stream_error.yaml#0": Outcome(BAD, None, "reasoning", 1, "length", 2),
    "cassettes/openrouter_stream_with_reasoning.yaml#0": Outcome(OK, 104, "content", 1, "stop", 98),
    "deepseek_chat_reasoning.chunks.txt": Outcome(OK, 219, "reasoning", 1, "stop", 218),
    "deepseek_chat_tool-call.chunks.txt": Outcome(OK, 83, "reasoning", 1, "tool_calls", 50),
    "dynamo_stream_interval_1.jsonl": Outcome(OK, 206, "content", 1, "stop", 12),
    "dynamo_stream_interval_20.jsonl": Outcome(UNTOLD, None, "content", 1, "stop", 9),
    "groq_chat_reasoning.head.chunks.txt": Outcome(UNTOLD, None, "reasoning", 1, None, 39),
    "groq_chat_tool-call.chunks.txt": Outcome(OK, 15, "tool call", 15, "tool_calls", 1),
    "lmstudio_responses_tool-call.chunks.txt": NOTHING,
    "nim/edge_invalid-deserialize_error.sse": Outcome(BAD, None, "content", 1, None, 1),
    "nim/edge_valid-comments_per_response.sse": Outcome(UNTOLD, None, "content", 1, None, 2),
    "nim/edge_valid-multi-line-data.sse": Outcome(UNTOLD, None, "content", 1, None, 2),
    "nim/edge_valid.sse": Outcome(BAD, None, "content", 1, None, 2),  # ends in "[DATA]"
    "nim/llama-3.1-8b_chat.sse": Outcome(UNTOLD, None, "content", 1, "stop", 34),
    "nim/llama-3.1-8b_completions.sse": Outcome(UNTOLD, None, "content", 1, "length", 64),
    "nim/mixtral-8x22b_chat.sse": Outcome(UNTOLD, None, "content", 1, "stop", 42),
    "ollama_generate_docs_sample.ndjson": NOTHING,
    "openai_chat_text.chunks.txt": Outcome(OK, 300, "content", 1, "stop", 300),
    "openai_completions.chunks.txt": Outcome(OK, 16, "content", 1, "length", 16),
    "sglang/gpt-oss-20b_19c97899-tool.json": Outcome(UNTOLD, None, "content", 1, "stop", 63),
    "sglang/gpt-oss-20b_675195a8-no-tool.json": Outcome(UNTOLD, None, "content", 1, "stop", 125),
    "sglang/qwen3-0.6B_c42ba578-tool.json": Outcome(UNTOLD, None, "content", 1, "stop", 111),
    "tgi/chat_nonstream.json": NOTHING,
    "tgi/chat_openai_nousage.json": Outcome(UNTOLD, None, "content", 1, "stop", 2),
    "tgi/chat_openai_usage.json": Outcome(OK, 3, "content", 1, "stop", 2),
    "tgi/chat_tools_choice_stream.json": Outcome(UNTOLD, None, "tool call", 1, None, 17),
    "tgi/completion_many_prompts_stream.json": Outcome(BAD, 10, "content", 1, "length", 40),
    "tgi/completion_stream_usage.json": Outcome(OK, 10, "content", 1, "length", 10),
    "vllm/deepseek-r1-distill-llama-8b_chat.sse": Outcome(UNTOLD, None, "content", 1, "length", 32),
    "vllm/deepseek-v3.1_tool.json": Outcome(UNTOLD, None, "content", 1, "tool_calls", 13),
    "vllm/gpt-oss-20b_20a82297.json": Outcome(UNTOLD, None, "content", 1, "stop", 52),
    "vllm/gpt-oss-20b_f0c86d72.json": Outcome(UNTOLD, None, "content", 1, "stop", 45),
    "vllm/nemotron-49b_3d40f925-tool.json": Outcome(UNTOLD, None, "content", 1, "stop", 295),
    "vllm/qwen3-0.6B_8f33c28b-tool.json": Outcome(UNTOLD, None, "content", 1, "stop", 124),
    "vllm/qwen3-0.6B_finish_length.json": Outcome(UNTOLD, None, "content", 1, "length", 12),
}
WHY = {
    "anthropic_messages_text.chunks.txt": "another API",
    "azure_responses_text.chunks.txt": "another API",
    "cassettes/azure_nonstream.yaml#0": "no event stream",
    "cassettes/groq_error_mid_stream.yaml#0": "Tool call validation failed",
    "cassettes/ollama_local_nonstream.yaml#0": "no event stream",
    "cassettes/openrouter_stream_error.yaml#0": "Token limit reached",
    "lmstudio_responses_tool-call.chunks.txt": "another API",
    "nim/edge_invalid-deserialize_error.sse": "no JSON object: [DATA]",
    "nim/edge_valid.sse": "no JSON object: [DATA]",
    "ollama_generate_docs_sample.ndjson": "no event stream",
    "tgi/chat_nonstream.json": "no event stream",
    "tgi/completion_many_prompts_stream.json": "several choices",
}


def as_event(recorded: dict[str, Any]) -> bytes:
    """Write one recorded chunk; some are in a wrapper with the event's name and comments."""
    lines = [f": {comment}" for comment in recorded.get("comment", ())]
    if "event" in recorded:
        lines.append(f"event: {recorded['event']}")
    lines.append(f"data: {json.dumps(recorded.get('data', recorded), ensure_ascii=False)}")
    return "\n".join([*lines, "", ""]).encode()


def cassette(path: Path) -> list[list[bytes]]:
    """Return the pieces of each response in a cassette."""
    replies = [i["response"] for i in yaml.safe_load(path.read_text())["interactions"]]
    return [
        by_event(reply["body"]["string"].encode())
        if "body" in reply
        else [json.dumps(reply["parsed_body"]).encode()]
        for reply in replies
    ]


def recording(folder: Path, name: str) -> list[bytes]:
    """Return the pieces of a recording: an event each."""
    file, _, number = name.partition("#")
    path = folder / file
    if number:
        return cassette(path)[int(number)]
    if path.suffix == ".sse":
        return by_event(path.read_bytes())
    if path.suffix == ".json":
        loaded = json.loads(path.read_text())
        if isinstance(loaded, dict) and "id" in loaded:
            return [path.read_bytes()]
        wrapped = loaded.get("input_stream", loaded.get("data")) if isinstance(loaded, dict) else ()
        return [as_event(chunk) for chunk in wrapped or loaded]
    if path.suffix == ".ndjson":
        return path.read_bytes().splitlines(keepends=True)
    return [f"data: {line}\n\n".encode() for line in path.read_text().split("\n") if line]


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_is_read_as_it_was_meant(test_data: Path, name: str) -> None:
    read, message = outcome(recording(test_data / "streams", name), asked=1)
    assert read == RECORDED[name]
    assert WHY.get(name, "the engine told no usage" if read.status is UNTOLD else "") in message
    assert bool(message) == (read.status is not OK)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_says_the_same_however_it_is_cut(test_data: Path, name: str) -> None:
    pieces = recording(test_data / "streams", name)
    whole, parts = StreamParser(), StreamParser()
    body = b"".join(pieces)
    whole.feed(0, 0, 0, body)
    for start in range(0, len(body), 97):
        parts.feed(0, 0, 0, body[start : start + 97])
    assert parts.finish(0, 0) == whole.finish(0, 0)


def test_every_recorded_stream_has_a_stated_outcome(test_data: Path) -> None:
    folder = test_data / "streams"
    found = set()
    for path in folder.rglob("*.*"):
        name = path.relative_to(folder).as_posix()
        replies = len(cassette(path)) if path.suffix == ".yaml" else 0
        found |= {f"{name}#{number}" for number in range(replies)} or {name}
    assert found == set(RECORDED)


# Streams of our own: a row says how many tokens were asked for, and what the answer is read as.

OWN = {
    # Engines.
    "vllm_chat.sse": (3, Outcome(OK, 3, "content", 1, "length", 3)),
    "vllm_completions.sse": (3, Outcome(OK, 3, "content", 1, "length", 3)),
    "sglang_chat.sse": (3, Outcome(OK, 3, "content", 1, "length", 2)),
    "llama_cpp_chat.sse": (2, Outcome(OK, 2, "content", 1, "length", 2)),
    "llama_cpp_completions.sse": (4, Outcome(OK, 4, "content", 1, "length", 3)),
    # Text was held back and nothing told of it: the first event's tokens are taken as 1.
    "llama_cpp_completions_total_only.sse": (4, Outcome(OK, 4, "content", 1, "length", 2)),
    "tgi_chat.sse": (2, Outcome(OK, 2, "content", 1, "length", 2)),
    "tgi_completions.sse": (2, Outcome(OK, 2, "content", 1, "length", 2)),
    "tensorrt_llm_chat.sse": (2, Outcome(OK, 2, "content", 1, "length", 2)),
    "transformers_chat.sse": (2, Outcome(OK, 2, "content", 1, "stop", 2)),
    # What carries a token.
    "reasoning.sse": (3, Outcome(OK, 3, "reasoning", 1, "stop", 3)),
    "reasoning_content.sse": (2, Outcome(OK, 2, "reasoning", 1, "stop", 2)),
    "reasoning_details.sse": (3, Outcome(OK, 3, "reasoning", 1, "stop", 3)),
    "reasoning_markers.sse": (4, Outcome(OK, 4, "content", 1, "stop", 4)),
    "tool_calls.sse": (6, Outcome(OK, 6, "tool call", 1, "tool_calls", 3)),
    "bursts.sse": (6, Outcome(OK, 6, "content", 1, "length", 3)),
    # Where usage is, and what it counts.
    "usage_two_places.sse": (2, Outcome(OK, 2, "content", 1, "stop", 2)),
    "usage_after_finish.sse": (2, Outcome(OK, 2, "content", 1, "stop", 2)),
    "usage_never.sse": (2, Outcome(UNTOLD, None, "content", 1, "length", 2)),
    "counts_with_reasoning.sse": (3, Outcome(OK, 3, "reasoning", 1, "stop", 3)),
    "counts_without_reasoning.sse": (3, Outcome(OK, 3, "reasoning", 1, "stop", 3)),
    # How it is written.
    "empty_choices_first.sse": (2, Outcome(OK, 2, "content", 1, "stop", 2)),
    "data_over_lines.sse": (2, Outcome(OK, 2, "content", 1, "length", 2)),
    "keep_alive_comments.sse": (2, Outcome(OK, 2, "content", 1, "length", 2)),
    # What is wrong.
    "error_midway.sse": (3, Outcome(BAD, None, "content", 1, None, 1)),
    "error_event.sse": (3, Outcome(BAD, None, "content", 1, None, 1)),
    "error_choice.sse": (2, Outcome(BAD, 2, "content", 2, "error", 1)),
    "several_choices.sse": (2, Outcome(BAD, 2, "content", 1, "length", 3)),
    "other_api.sse": (2, NOTHING),
    "error_body.json": (2, NOTHING),
    "error_object.json": (2, NOTHING),
    "error_detail.json": (2, NOTHING),
    "not_streamed.json": (2, NOTHING),
}
OWN_WHY = {
    "usage_never.sse": "the engine told no usage",
    "error_midway.sse": "out of memory",
    "error_event.sse": "out of memory",
    "error_choice.sse": "out of memory",
    "several_choices.sse": "the answer has several choices: one was asked for",
    "other_api.sse": "another API, no event has choices",
    "error_body.json": "the model is asleep",
    "error_object.json": "the model is asleep",
    "error_detail.json": "the model is asleep",
    "not_streamed.json": "the answer is no event stream",
}


@pytest.mark.parametrize("name", OWN)
def test_a_stream_of_our_own_is_read_as_it_was_meant(name: str) -> None:
    asked, expected = OWN[name]
    body = (FIXTURES / name).read_bytes()
    read, message = outcome(by_event(body) if name.endswith(".sse") else [body], asked)
    assert read == expected
    assert OWN_WHY.get(name, "") in message
    assert bool(message) == (read.status is not OK)


def test_every_stream_of_our_own_has_a_stated_outcome() -> None:
    assert {path.name for path in FIXTURES.iterdir()} - {"README.md"} == set(OWN)


def test_a4_the_count_in_each_event_tells_the_tokens_of_the_first() -> None:
    body = (FIXTURES / "bursts.sse").read_bytes()
    read, _ = outcome(by_event(body)[1:], asked=6)  # as if the first burst came first
    assert (read.n_first, read.events) == (5, 2)


# The same from our own server, over a real connection.


class Seen(NamedTuple):
    """What the client made of an answer, and when each event with tokens left, and how many."""

    record: RequestRecord
    errors: tuple[str, ...]
    sent: list[tuple[int, int]]


def serve(script: str, api: Any, timeout_ms: int = 5_000, asked: int = 6) -> Seen:
    """Ask once, for 6 tokens where nothing else is said."""
    body = {
        "model": "simulated",
        "prompt": [1, 2, 3],
        "messages": [{"role": "user", "content": "one two three"}],
        "max_tokens": asked,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "timings_per_token": True,
        "ignore_eos": True,
    }
    plan = [PlannedRequest(0, 0, json.dumps(body).encode(), 3, asked)]
    with SimulatedServer(named(script, Script(ttft_ms=3, interval_ms=1))) as server:
        offered = offered_to(server, plan, api, timeout_ms)
        sent = [(at.monotonic_ns - offered.epoch_ns, tokens) for at, tokens in server.log[0].sent]
    return Seen(offered.records[0], offered.errors, sent)


def offered_to(
    server: SimulatedServer, plan: Sequence[PlannedRequest], api: Any, timeout_ms: int = 5_000
) -> Offered:
    return offer(
        plan,
        Target.from_url(server.url, api),
        repeat=1,
        trial=1,
        request_timeout_ns=timeout_ms * MS,
        watch=lambda *_: False,
    )


def assert_read_as_sent(seen: Seen) -> None:
    record = seen.record
    assert (record.status, seen.errors) == (OK, ())
    assert (record.prompt_tokens, record.output_tokens) == (3, 6)
    (first_ns, first_tokens), (last_ns, _) = seen.sent[0], seen.sent[-1]
    assert (record.first_tokens, record.events) == (first_tokens, len(seen.sent))
    assert (record.first_ns or 0) >= first_ns - 1000
    assert (record.last_ns or 0) >= last_ns - 1000


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize(
    ("script", "n_first"),
    [
        ("vllm", 1),
        ("vllm,multi:4", 4),
        ("sglang", 1),
        ("sglang,multi:4,first:1", 1),
        ("llama.cpp", 2),
        ("llama.cpp,fragment:3", 2),
        ("llama.cpp,markers:3", 1),
        ("vllm,markers:4", 1),
        ("vllm,bursts:4", 4),
        ("usage-every-chunk,held-text", 2),
        ("tgi", 1),
        ("tensorrt-llm", 1),
        ("transformers", 1),
        ("finish-apart,usage-two-chunks", 1),
        ("usage-every-chunk,multi:3", 3),
        ("empty-first,role-early", 1),
        ("data-lines,crlf,fragment:5", 1),
        ("comments,close", 1),
    ],
)
def test_a_served_dialect_is_read_as_it_was_sent(api: str, script: str, n_first: int) -> None:
    seen = serve(script, api)
    assert_read_as_sent(seen)
    assert seen.sent[0][1] == n_first


BURSTS = [4, 2]
"""What `bursts:4` makes of the 6 tokens of request 0."""


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize(
    ("script", "asked", "sent", "read"),
    [
        # Nothing tells the count of an event: that of the first is taken as 1.
        ("bursts:4", 6, BURSTS, (1, 2)),
        ("held-text", 6, [2, 1, 3], (1, 3)),
        # Each token is an event, though several come in one read.
        ("bursts:4,together", 6, [1] * 6, (1, 6)),
        ("vllm,bursts:4,together", 6, [1] * 6, (1, 6)),
        # The end cuts a character: its tokens have no text, and are told by the counts or not.
        ("llama.cpp", 5, [2, 1, 2], (2, 3)),
        ("held-text", 5, [2, 1, 2], (1, 2)),
        # The first character alone, never whole: that it was made is known from usage.
        ("llama.cpp", 1, [1], (1, 1)),
    ],
)
def test_a4_served_bursts_and_held_text_are_read_as_far_as_the_engine_tells(
    api: str, script: str, asked: int, sent: list[int], read: tuple[int, int]
) -> None:
    seen = serve(script, api, asked=asked)
    record = seen.record
    assert [tokens for _, tokens in seen.sent] == sent
    assert (record.status, record.output_tokens, seen.errors) == (OK, asked, ())
    assert (record.first_tokens, record.events) == read
    assert (record.first_ns or 0) >= seen.sent[0][0] - 1000


def test_a_served_template_is_counted_in_the_prompt_and_found_in_the_cache() -> None:
    messages = [[{"role": "user", "content": f"{n} b c"}] for n in range(3)]
    bodies = [
        {"model": "simulated", "messages": m, "max_tokens": 2, "stream": True}
        | {"stream_options": {"include_usage": True}}
        for m in messages
    ]
    plan = [
        PlannedRequest(n, n * 20 * MS, json.dumps(body).encode(), 43, 2)
        for n, body in enumerate(bodies)
    ]
    with SimulatedServer(named("template:40"), engine()) as server:
        records = offered_to(server, plan, "chat").records
    assert [record.status for record in records] == [OK] * 3
    assert [record.prompt_tokens for record in records] == [43] * 3
    # Whole blocks of 16 tokens.
    assert [record.cached_tokens for record in records] == [0, 32, 32]


@pytest.mark.parametrize(
    "script",
    [
        "reasoning",
        "reasoning-content",
        "reasoning-details",
        "tool-calls",
        "think:2",
        "think:4,reasoning-not-counted",
        "think:6,multi:4,vllm",
    ],
)
def test_a6_served_reasoning_and_tool_calls_start_the_clock(script: str) -> None:
    assert_read_as_sent(serve(script, "chat"))


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize(
    ("script", "status", "events", "message"),
    [
        ("no-usage", Status.NO_USAGE, 6, "1 x the engine told no usage"),
        ("short:4", Status.SHORT_OUTPUT, 4, "shorter than asked (finish reason stop)"),
        ("error:2", Status.STREAM_ERROR, 2, "1 x the script says so"),
        ("error-body", Status.STREAM_ERROR, 0, "1 x the script says so"),
        ("http:503", Status.HTTP_ERROR, 0, "1 x HTTP 503: the script says so"),
        ("http:429,retry-after:7", Status.HTTP_ERROR, 0, "says so: retry after 7 s"),
        ("drop:2", Status.DISCONNECTED, 2, "closed the connection before the end"),
        ("reset:2", Status.DISCONNECTED, 2, "reset by peer"),
    ],
)
def test_a_served_fault_is_named_and_keeps_what_came_before(
    api: str, script: str, status: Status, events: int, message: str
) -> None:
    record, errors, _ = serve(script, api)
    assert (record.status, record.events) == (status, events)
    assert message in errors[0]
    assert (record.first_ns is None) == (events == 0)


@pytest.mark.parametrize(("script", "events"), [("hang:2", 2), ("hang:-1", 0)])
def test_a15_a_half_open_stream_ends_and_keeps_what_came_before(script: str, events: int) -> None:
    record, errors, _ = serve(script, "chat", timeout_ms=800)
    assert (record.status, record.events) == (Status.TIMED_OUT, events)
    assert len(errors) == 1
