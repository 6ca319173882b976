from __future__ import annotations

import ast
import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenwatt_site
from tests.measure.stub_engine import (
    HEAD,
    Raw,
    StubEngine,
    as_json,
    dropped,
    endless,
    hanging,
    serving,
    trickling,
)
from tests.support.tls import Authority, tls_before
from tokenwatt_site.errors import EngineError, Problem, UsageError
from tokenwatt_site.measure.control import MAX_BYTES, Answer, request, require_address
from tokenwatt_site.measure.engine import free_port


def problem_of(raw: Raw, *, deadline_s: float = 30.0) -> Problem:
    with serving(StubEngine(raw={"/x": raw})) as url, pytest.raises(EngineError) as caught:
        request(f"{url}/x", deadline_s=deadline_s)
    (problem,) = caught.value.problems
    assert (problem.field, problem.found) == ("endpoint.url", f"{url}/x")
    return problem


def test_an_answer_is_its_status_type_server_and_body() -> None:
    get = {"/x": as_json({"a": 1}, **{"Content-Type": "application/json", "Server": "s"})}
    with serving(StubEngine(get=get)) as url:
        answer = request(f"{url}/x", deadline_s=30)

    assert answer == Answer(200, "application/json", "s", b'{"a": 1}')


def test_a_redirect_is_answered_as_it_is_and_not_followed() -> None:
    get = {"/x": (302, {"Location": "/login"}, b""), "/login": as_json({})}
    with serving(StubEngine(get=get)) as url:
        assert request(f"{url}/x", deadline_s=30).status == 302


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with serving(StubEngine(get={"/x": as_json({})})) as url:
        assert request(f"{url}/x", deadline_s=30).status == 200


def test_nobody_there_is_said_with_what_to_do() -> None:
    with pytest.raises(EngineError, match=r"no engine answers: .*Start the engine"):
        request(f"http://127.0.0.1:{free_port()}/x", deadline_s=30)


def nothing_at_all(over: threading.Event) -> Iterator[bytes]:
    over.wait(60)
    yield b""


@pytest.mark.parametrize(
    "raw",
    [
        nothing_at_all,
        hanging,
        trickling(b"HTTP/1.1 200 OK\r\nX-Slow: "),
        trickling(HEAD + b"\r\n"),
        trickling(HEAD + b"Content-Length: 1000000\r\n\r\n"),
    ],
    ids=["silent", "hanging", "trickling head", "trickling body", "trickling counted body"],
)
def test_an_answer_that_does_not_end_is_cut_off_at_the_deadline(raw: Raw) -> None:
    assert problem_of(raw, deadline_s=0.2).what == "the answer did not end within 0.2 s"


def test_an_answer_without_an_end_is_cut_off_at_the_size() -> None:
    assert problem_of(endless).what == "the answer is larger than 4 MiB"


@pytest.mark.parametrize(("size", "fits"), [(MAX_BYTES, True), (MAX_BYTES + 1, False)])
def test_an_answer_may_have_the_size_of_the_cap(size: int, fits: bool) -> None:
    with serving(StubEngine(get={"/x": (200, {}, b" " * size)})) as url:
        if fits:
            assert len(request(f"{url}/x", deadline_s=30).body) == size
            return
        with pytest.raises(EngineError, match="larger than 4 MiB"):
            request(f"{url}/x", deadline_s=30)


def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)

    assert "compressed" in problem_of(lambda _: iter([head + bomb])).what


def test_identity_is_asked_for_and_may_be_said() -> None:
    head = HEAD + b"Content-Encoding: Identity\r\nContent-Length: 2\r\n\r\n{}"
    with serving(StubEngine(raw={"/x": lambda _: iter([head])})) as url:
        assert request(f"{url}/x", deadline_s=30).body == b"{}"


@pytest.mark.parametrize(
    "raw",
    [dropped, lambda _: iter([]), lambda _: iter([b"SSH-2.0-x\r\n\r\n"])],
    ids=["cut", "empty", "no HTTP"],
)
def test_an_answer_that_breaks_off_is_not_called_nobody_there(raw: Raw) -> None:
    assert problem_of(raw).what.startswith("the answer broke off, or is no HTTP: ")


def test_a_reset_connection_is_an_answer_that_broke_off() -> None:
    with _resetting() as url, pytest.raises(EngineError, match="broke off"):
        request(url, deadline_s=30)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def test_over_tls_an_engine_answers_where_its_authority_is_trusted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with (
        serving(StubEngine(get={"/x": as_json({"a": 1})})) as plain,
        tls_before(plain, authority.server_context()) as url,
    ):
        assert request(f"{url}/x", deadline_s=30).body == b'{"a": 1}'


def test_a_certificate_of_a_stranger_or_for_another_host_is_not_accepted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(StubEngine(get={"/x": as_json({})})) as plain:
        with (
            tls_before(plain, authority.server_context()) as url,
            pytest.raises(EngineError, match=r"certificate is not accepted.*SSL_CERT_FILE"),
        ):
            request(f"{url}/x", deadline_s=30)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        with (
            tls_before(plain, authority.server_context("other.example")) as url,
            pytest.raises(EngineError, match="certificate is not accepted: IP address mismatch"),
        ):
            request(f"{url}/x", deadline_s=30)


def test_tls_asked_of_a_server_without_it_is_said() -> None:
    with serving(StubEngine()) as url, pytest.raises(EngineError, match="TLS failed: "):
        request(url.replace("http:", "https:") + "/x", deadline_s=30)


def test_over_tls_an_answer_that_does_not_end_is_cut_off_too(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with (
        serving(StubEngine(raw={"/x": trickling(HEAD + b"\r\n")})) as plain,
        tls_before(plain, authority.server_context()) as url,
        pytest.raises(EngineError, match=r"did not end within 0\.3 s"),
    ):
        request(f"{url}/x", deadline_s=0.3)


@contextmanager
def _resetting() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            connection, _ = server.accept()
            connection.recv(1)
            # Closing with unread bytes sends a reset.
            connection.close()

        thread = threading.Thread(target=reset)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x"
        thread.join()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://engine:99999", "port"),
        ("http://engine:0", "port"),
        ("http://engine:-1", "port"),
        ("ftp://engine", "neither http nor https"),
        ("engine:8000", "neither http nor https"),
        ("http:///x", "no host"),
        ("http://engine?x=1", "query"),
        ("http://engine#x", "query"),
        ("http://engine:port", "no address"),
        ("http://a..b", "no address"),
        ("http://" + "a" * 64, "no address"),
        ("http://[::1", "no address"),
        ("", "neither http nor https"),
    ],
)
def test_an_address_that_cannot_be_asked_is_a_mistake_of_the_user(url: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        require_address(url)

    (problem,) = caught.value.problems
    assert (problem.field, problem.found) == ("endpoint.url", url)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@engine:1",
        "http://hunter2@engine:1",
        "http://me:hun/ter2@engine:1",
        "http://me:hun@ter2@engine:1",
        "me:hunter2@engine:1",
    ],
)
def test_d6_credentials_in_an_address_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        require_address(url)

    text = str(caught.value)
    assert "engine:1" in text
    assert "credentials" in text
    assert not any(part in text for part in ("hun", "ter2", "me:"))


@pytest.mark.parametrize(
    "url",
    ["http://engine", "http://127.0.0.1:65535", "http://[::1]:8000", "http://e/base", "https://e"],
)
def test_an_address_of_http_or_https_is_accepted(url: str) -> None:
    require_address(url)


@given(st.text(max_size=30) | st.text("htp:/@.[]?#1a%é", max_size=20).map("http://".__add__))
def test_any_other_address_is_accepted_or_a_usage_error(url: str) -> None:
    try:
        require_address(url)
    except UsageError:
        return


def test_no_other_module_uses_the_http_library() -> None:
    users = set()
    for path in Path(tokenwatt_site.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            users |= {path.name for name in names if name.split(".")[0] == "httpx2"}

    assert users == {"control.py"}
