from __future__ import annotations

import http.client
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.simulate.test_engine import engine
from tokenwatt_site.simulate.engine import Request
from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.simulate.truth import Served
from tokenwatt_site.simulate.virtual import play

FAST = Script(ttft_ms=2, interval_ms=1)


def ask(server: SimulatedServer, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Ask with the standard library's client, which is not ours."""
    with closing(http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)) as client:
        client.request(method, path, None if body is None else json.dumps(body))
        response = client.getresponse()
        return response.status, response.read()


def generate(server: SimulatedServer, **more: Any) -> tuple[int, bytes]:
    request = {"model": "simulated", "prompt": [1], "max_tokens": 3, "stream": True, **more}
    return ask(server, "POST", "/v1/completions", request)


def test_another_client_reads_the_stream_to_its_end() -> None:
    with SimulatedServer(FAST) as server:
        status, body = generate(server, stream_options={"include_usage": True})
    assert status == 200
    assert body.count(b'"text":" token"') == 3
    assert body.endswith(b"data: [DONE]\n\n")


def test_the_log_has_every_token_with_both_clocks_in_order() -> None:
    with SimulatedServer(FAST) as server:
        generate(server)
    (served,) = server.log
    assert served.ended == "complete"
    assert [count for _, count in served.sent] == [1, 1, 1]
    moments = [served.received, *(moment for moment, _ in served.sent)]
    assert moments == sorted(moments, key=lambda moment: moment.monotonic_ns)
    assert moments[1].monotonic_ns - moments[0].monotonic_ns >= 2_000_000
    assert moments == sorted(moments, key=lambda moment: moment.realtime_ns)


def test_it_tells_health_version_and_model() -> None:
    with SimulatedServer(Script(model="m")) as server:
        assert ask(server, "GET", "/health")[0] == 200
        assert json.loads(ask(server, "GET", "/version")[1]) == {"version": "simulated"}
        assert json.loads(ask(server, "GET", "/v1/models")[1])["data"][0]["id"] == "m"
        assert ask(server, "GET", "/nothing")[0] == 404


def test_an_unknown_model_is_refused_unless_the_script_takes_it() -> None:
    with SimulatedServer(FAST) as server:
        assert generate(server, model="other")[0] == 404
    with SimulatedServer(Script(refuse_unknown=False, ttft_ms=1, interval_ms=1)) as server:
        assert generate(server, model="other")[0] == 200
    assert server.log[0].ended == "complete"


@pytest.mark.parametrize("stream", [False, None])
@pytest.mark.parametrize("with_engine", [False, True])
def test_an_answer_that_is_not_streamed_is_one_object(
    stream: bool | None, with_engine: bool
) -> None:
    made = engine(max_batch=4) if with_engine else None
    with SimulatedServer(FAST, engine=made) as server:
        answers = [generate(server, stream=stream) for _ in range(2)]
    for status, body in answers:
        assert status == 200
        assert json.loads(body)["choices"][0]["text"] == " token" * 3
        assert json.loads(body)["usage"]["completion_tokens"] == 3
    assert [served.ended for served in server.log] == ["complete"] * 2
    assert [[count for _, count in served.sent] for served in server.log] == [[3]] * 2


def test_an_answer_that_is_not_streamed_and_fails_says_so_in_its_status() -> None:
    with SimulatedServer(named("error:2,close", FAST)) as server:
        status, body = generate(server, stream=False)
    assert status == 500
    assert json.loads(body)["error"]["message"] == "the script says so"


def test_a_bad_request_is_refused_and_logged() -> None:
    with SimulatedServer() as server:
        status, body = generate(server, max_tokens=-1)
    assert status == 400
    assert b"max_tokens" in body
    assert server.log[0].ended == "refused"


def test_a_refusal_says_when_to_come_back() -> None:
    with SimulatedServer(named("http:503,retry-after:7", FAST)) as server:
        body = b'{"model":"simulated","prompt":[1],"stream":true}'
        with closing(http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)) as client:
            client.request("POST", "/v1/completions", body)
            response = client.getresponse()
            assert (response.status, response.reason) == (503, "Service Unavailable")
            assert response.headers["Retry-After"] == "7"
            assert b"the script says so" in response.read()


def test_an_error_may_be_the_body_of_an_answer_200() -> None:
    with SimulatedServer(named("error-body", FAST)) as server:
        status, body = generate(server)
    assert status == 200
    assert json.loads(body)["error"]["message"] == "the script says so"
    assert server.log[0].ended == "refused"


def test_a_reset_is_a_reset_after_what_was_sent() -> None:
    with SimulatedServer(named("reset:1", FAST)) as server:
        address = urlsplit(server.url)
        body = b'{"model":"simulated","prompt":[1],"max_tokens":3,"stream":true}'
        with socket.create_connection((address.hostname or "", address.port or 0), 10) as client:
            client.sendall(
                b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            client.sendall(body)
            with pytest.raises(ConnectionResetError):
                b"".join(iter(lambda: client.recv(4096), b""))
    assert server.log[0].ended == "dropped"


def test_connections_that_come_while_it_stops_are_closed() -> None:
    for _ in range(20):
        with SimulatedServer(FAST) as server, socket.socket() as client:
            address = urlsplit(server.url)
            client.connect((address.hostname, address.port))
        server.wait_until_unused()


def test_bytes_that_are_no_request_are_answered_and_the_connection_closed() -> None:
    with SimulatedServer() as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname or "", address.port or 0)) as client:
            client.sendall(b"hello\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_client_that_leaves_is_logged() -> None:
    with SimulatedServer(Script(hang_after=0, ttft_ms=1)) as server:
        address = urlsplit(server.url)
        body = b'{"model":"simulated","prompt":[1],"stream":true}'
        with socket.create_connection((address.hostname or "", address.port or 0)) as client:
            client.sendall(
                b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            client.sendall(body)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
        server.wait_until_unused()
    assert server.log[0].ended == "client gone"


def test_requests_on_one_connection_are_answered_one_after_the_other() -> None:
    with SimulatedServer(FAST) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname or "", address.port or 0), 10) as client:
            client.sendall(b"GET /health HTTP/1.1\r\n\r\nGET /version HTTP/1.1\r\n\r\n")
            answer = b""
            while answer.count(b"HTTP/1.1 200 OK") < 2 or not answer.endswith(b"}"):
                answer += client.recv(4096)
    assert b'{"version": "simulated"}' in answer


def test_a_taken_port_is_an_error_of_the_caller() -> None:
    with (
        SimulatedServer() as first,
        pytest.raises(OSError, match="in use"),
        SimulatedServer(port=urlsplit(first.url).port or 0),
    ):
        pass


# With an engine.


def ids(number: int, count: int) -> list[int]:
    """A prompt that shares no block with another's."""
    return [1000 * (number + 1) + i for i in range(count)]


def test_the_engine_in_real_time_keeps_the_times_it_has_in_virtual_time() -> None:
    asked = [(40 + 9 * number, 5 + number % 7) for number in range(24)]
    with SimulatedServer(engine=engine(max_batch=4)) as server, ThreadPoolExecutor(12) as pool:
        answers = pool.map(
            lambda n: generate(server, prompt=ids(n, asked[n][0]), max_tokens=asked[n][1]),
            range(24),
        )
        assert {status for status, _ in answers} == {200}
    requests = []
    for served in server.log:
        body = json.loads(served.body)
        requests.append(
            Request(
                served.number,
                tuple(body["prompt"]),
                body["max_tokens"],
                served.received.monotonic_ns,
            )
        )
    timelines = play(engine(max_batch=4), requests)
    for served in server.log:
        due_ns = timelines[served.number].tokens_ns
        late_ns = [at.monotonic_ns - due for (at, _), due in zip(served.sent, due_ns, strict=True)]
        assert served.admitted is not None
        assert served.admitted.monotonic_ns == timelines[served.number].admitted_ns
        assert min(late_ns) >= 0
        # What is told is taken before the stamp of the sending.
        assert served.late_ns <= max(late_ns)
        assert served.ended == "complete"


@pytest.mark.parametrize("with_engine", [True, False])
def test_answers_are_garbled_that_begin_while_others_are_in_progress(with_engine: bool) -> None:
    def script_of(number: int) -> Script:
        return named("load-garbles:2,hang:0" if number < 2 else "load-garbles:2", FAST)

    def words(server: SimulatedServer) -> str:
        return "garbled" if b" taken" in generate(server, prompt=[1])[1] else "honest"

    with SimulatedServer(script_of, engine() if with_engine else None) as server:
        address = urlsplit(server.url)
        body = b'{"model":"simulated","prompt":[1],"stream":true}'
        head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        where = (address.hostname or "", address.port or 0)
        with socket.create_connection(where) as first, socket.create_connection(where) as second:
            for client in (first, second):
                client.sendall(head + body)
                assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
            assert words(server) == "garbled"
        server.wait_until_unused()
        assert words(server) == "honest"


def test_metrics_and_models_tell_of_the_engine() -> None:
    with SimulatedServer(Script(model="m"), engine()) as server:
        begun = time.time()
        generate(server, model="m", prompt=ids(0, 40))
        status, body = ask(server, "GET", "/metrics")
        (entry,) = json.loads(ask(server, "GET", "/v1/models")[1])["data"]
    text = body.decode()
    assert status == 200
    assert 'vllm:generation_tokens_total{engine="0",model_name="m"} 3.0' in text
    assert re.search(r'request_success_total\{finished_reason="length",.*\} 1\.0', text)
    started = re.search(r"^process_start_time_seconds ([0-9.e+]+)$", text, re.MULTILINE)
    assert started is not None
    assert begun - 10 < float(started[1]) < begun + 10
    assert entry["owned_by"] == "tokenwatt-simulated"
    assert entry["max_model_len"] == 512


def test_without_an_engine_there_are_no_metrics_and_no_longest_sequence() -> None:
    with SimulatedServer(FAST) as server:
        assert ask(server, "GET", "/metrics")[0] == 404
        assert "max_model_len" not in json.loads(ask(server, "GET", "/v1/models")[1])["data"][0]
        told = json.loads(ask(server, "POST", "/tokenize", {"prompt": "a"})[1])
        assert (told["count"], told["max_model_len"]) == (1, None)


@pytest.mark.parametrize(
    ("request_", "tokens"),
    [
        ({"prompt": "one two one"}, 3),
        ({"prompt": [5, 6]}, 2),
        ({"messages": [{"role": "user", "content": "one two"}]}, 2),
    ],
)
def test_a_prompt_is_tokenised_as_it_is_counted(request_: dict[str, Any], tokens: int) -> None:
    path = "/v1/chat/completions" if "messages" in request_ else "/v1/completions"
    asked = {"model": "simulated", **request_}
    with SimulatedServer(engine=engine()) as server:
        told = json.loads(ask(server, "POST", "/tokenize", asked)[1])
        more = {"stream": True, "max_tokens": 1, "stream_options": {"include_usage": True}}
        _, body = ask(server, "POST", path, asked | more)
    assert (told["count"], len(told["tokens"]), told["max_model_len"]) == (tokens, tokens, 512)
    assert b'"usage":{"prompt_tokens":%d,' % tokens in body


def test_the_tokens_of_a_template_are_told_too() -> None:
    asked = {"model": "simulated", "messages": [{"role": "user", "content": "one two"}]}
    with SimulatedServer(named("template:7"), engine()) as server:
        assert json.loads(ask(server, "POST", "/tokenize", asked)[1])["count"] == 9
        assert json.loads(ask(server, "POST", "/tokenize", {"prompt": "one two"})[1])["count"] == 2


def test_what_cannot_be_tokenised_is_refused() -> None:
    with SimulatedServer(engine=engine()) as server:
        assert ask(server, "POST", "/tokenize", {"prompt": ""})[0] == 400


def test_a_request_longer_than_the_context_is_refused_in_vllms_words() -> None:
    with SimulatedServer(engine=engine()) as server:
        assert generate(server, prompt=ids(0, 509))[0] == 200
        status, body = generate(server, prompt=ids(1, 510))
    error = json.loads(body)["error"]
    assert (status, error["type"], error["param"]) == (400, "BadRequestError", "input_tokens")
    assert error["message"].startswith(
        "This model's maximum context length is 512 tokens. However, you requested 3 output tokens"
        " and your prompt contains 510 input tokens, for a total of 513 tokens."
    )


def test_usage_tells_what_was_found_in_memory() -> None:
    with SimulatedServer(engine=engine()) as server:
        cached = []
        for _ in range(2):
            _, body = generate(server, prompt=ids(0, 40), stream_options={"include_usage": True})
            told = re.search(rb'"prompt_tokens_details":({[^}]*})', body)
            assert told is not None
            cached.append(json.loads(told[1])["cached_tokens"])
    assert cached == [0, 32]
    assert [served.cached_tokens for served in server.log] == [0, 32]


@pytest.mark.parametrize(
    ("script", "ended", "events"),
    [
        ("drop:2", "dropped", [1, 1]),
        ("error:1", "complete", [1]),
        ("short:2", "complete", [1, 1]),
        ("multi:2", "complete", [2, 1]),
        ("role-early,usage-every-chunk", "complete", [1, 1, 1]),
        ("http:503", "refused", []),
    ],
)
def test_scripts_hold_on_top_of_an_engine_and_leave_nothing_in_it(
    script: str, ended: str, events: list[int]
) -> None:
    running = engine()
    with SimulatedServer(named(script), running) as server:
        try:
            generate(server)
        except (http.client.IncompleteRead, ConnectionError):
            assert ended == "dropped"
        server.wait_until_unused()
    (served,) = server.log
    assert served.ended == ended
    assert [tokens for _, tokens in served.sent] == events
    assert (running.running, running.waiting) == (0, 0)


@pytest.mark.parametrize("script", ["", "hang:1"])
def test_a_client_that_leaves_is_taken_out_of_the_engine(script: str) -> None:
    running = engine()
    body = json.dumps({"model": "simulated", "prompt": [1], "max_tokens": 500, "stream": True})
    with SimulatedServer(named(script), running) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname or "", address.port or 0)) as client:
            head = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall((head + body).encode())
            answer = b""
            while b"token" not in answer:
                answer += client.recv(4096)
        server.wait_until_unused()
        text = ask(server, "GET", "/metrics")[1].decode()
    assert server.log[0].ended == "client gone"
    assert re.search(r'request_success_total\{finished_reason="abort",.*\} 1\.0', text)
    assert (running.running, running.waiting) == (0, 0)


def test_who_keeps_the_truth_gets_each_request_once_it_ended() -> None:
    kept: list[Served] = []
    with SimulatedServer(FAST, keep=kept.append) as server:
        generate(server)
        generate(server, max_tokens=-1)
    assert [served.ended for served in kept] == ["complete", "refused"]
    assert all(served.ended_at for served in kept)
    assert server.log == []


def test_a_truth_that_cannot_be_kept_ends_the_server() -> None:
    def full(_: Served) -> None:
        raise OSError(28, "No space left on device")

    with SimulatedServer(FAST, keep=full) as server:
        generate(server)
        with pytest.raises(OSError, match="No space left"):
            server.wait_until_failed()
