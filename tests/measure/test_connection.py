from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from tokenwatt_site.errors import UsageError
from tokenwatt_site.measure import connection as connection_module
from tokenwatt_site.measure.connection import ClockPair, Connection, Target


@pytest.mark.parametrize(
    ("url", "api", "target"),
    [
        ("http://h:1", "completions", Target("h", 1, "/v1/completions")),
        ("http://h:1/", "chat", Target("h", 1, "/v1/chat/completions")),
        ("http://h/base", "chat", Target("h", 80, "/base/v1/chat/completions")),
        ("http://[::1]:8000", "completions", Target("::1", 8000, "/v1/completions")),
        ("https://h", "chat", Target("h", 443, "/v1/chat/completions", secure=True)),
        ("https://h:8443/b/", "completions", Target("h", 8443, "/b/v1/completions", secure=True)),
    ],
)
def test_a_target_is_read_from_a_base_url(url: str, api: Any, target: Target) -> None:
    assert Target.from_url(url, api) == target


@pytest.mark.parametrize("url", ["https://", "http://", "ftp://h", "http://h:0", "http://h:x"])
def test_what_is_no_http_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="no address that can be measured"):
        Target.from_url(url, "chat")


def test_the_head_names_host_and_path() -> None:
    head = Target("::1", 8000, "/v1/completions").head()
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: [::1]:8000\r\n")
    assert head.endswith(b"Content-Length: ")


def test_the_head_holds_the_key_and_the_target_only_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "k3y-0123456789")
    target = Target.from_url("https://h", "chat", "ENGINE_KEY")
    assert b"\r\nAuthorization: Bearer k3y-0123456789\r\n" in target.head()
    assert "k3y" not in repr(target)
    monkeypatch.delenv("ENGINE_KEY")
    with pytest.raises(UsageError, match="ENGINE_KEY"):
        target.head()


def test_the_clocks_differ_by_what_was_read_within_its_error() -> None:
    pair = ClockPair.read()
    before = time.monotonic_ns()
    real = time.time_ns()
    after = time.monotonic_ns()
    slack = pair.error_ns + 1_000_000  # the clock may be slewed meanwhile
    assert before - slack <= real - pair.offset_ns <= after + slack


def test_what_is_read_comes_with_the_kernels_stamp_where_there_is_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(socket.AF_INET, listener.getsockname())
        accepted, _ = listener.accept()
        with accepted, connection._socket:
            with pytest.raises(BlockingIOError):
                connection.receive()
            connection._socket.settimeout(10)
            while True:
                before = time.time_ns()
                accepted.sendall(b"x")
                data, stamp_ns = connection.receive()
                assert data == b"x"
                # The kernel starts to stamp a moment after it was asked to.
                if stamp_ns is not None or not connection_module._KERNEL_STAMPS:
                    break
    if stamp_ns is not None:
        assert before <= stamp_ns <= time.time_ns()


def test_a_read_that_was_full_may_not_have_been_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_READ_BYTES", 4)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(socket.AF_INET, listener.getsockname())
        accepted, _ = listener.accept()
        with accepted, connection._socket:
            connection._socket.settimeout(10)
            accepted.sendall(b"12345")
            assert connection.receive()[0] == b"1234"
            assert not connection.drained
            assert connection.receive()[0] == b"5"
            assert connection.drained


def test_of_several_addresses_the_one_that_listens_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        alive = listener.getsockname()
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", a) for a in (dead, alive)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert Target("localhost", 1, "/").resolve() == (socket.AF_INET, alive)
    assert Target("localhost", 1, "/").resolve() == (socket.AF_INET, dead)


def test_a_refused_connection_leaves_no_socket_behind() -> None:
    with pytest.raises(OSError, match=r"denied|unreachable|Invalid"):
        Connection(socket.AF_INET, ("255.255.255.255", 9))
