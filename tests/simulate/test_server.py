from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer

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
