"""One HTTP request outside the trials, bounded in time and size. The only user of the HTTP library.

What answers may be no engine at all. A total deadline holds also against single bytes that trickle
in, head or body; a cap on the size holds against answers without an end. Answers are asked for
uncompressed and never unpacked, so the cap holds for them too.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import httpx2

from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import EngineError, Problem, UsageError
from tokenwatt_site.measure.credential import Login, authorisation, hide
from tokenwatt_site.measure.tls import failure_text, trusted_context

MAX_BYTES = 4 << 20

_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever the status; redirects are not followed.

    `retry_after` is what the header of that name says: seconds, or a date.
    """

    status: int
    content_type: str
    server: str
    body: bytes
    retry_after: str = ""


class Unanswered(EngineError):
    """No whole answer came: nobody there, a connection that broke, or the time was over."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a request goes to, in the words of its errors.

    Attributes:
        name: what it is.
        field: where its address is written.
        remedy: what to do where nobody answers.
    """

    name: str
    field: str
    remedy: str


ENGINE = Peer("engine", "endpoint.url", "Start the engine, or correct the address (without /v1).")


def request(
    url: str,
    *,
    deadline_s: float,
    content: bytes | None = None,
    max_bytes: int = MAX_BYTES,
    api_key_variable: str | None = None,
    login: Login | None = None,
    peer: Peer = ENGINE,
) -> Answer:
    """Send one request on a connection of its own: GET, or POST of JSON where there is content.

    Args:
        url: where to; its base has passed `require_address`.
        deadline_s: when the whole answer must be there, counted from now.
        content: the JSON to send.
        max_bytes: how large the answer may be.
        api_key_variable: the environment variable with the key to send; None sends none. Where
            the answer repeats the key, it is blotted out.
        login: user and password to send; blotted out as well.
        peer: who is asked.

    Raises:
        UsageError: a variable is not set.
        Unanswered: nobody there, no whole answer in time, or no HTTP.
        EngineError: none whose certificate is trusted, or an answer that is too large or
            compressed.
    """
    headers = {"accept-encoding": "identity", "content-type": "application/json"}
    if key := authorisation(api_key_variable):
        headers["authorization"] = key
    elif login is not None:
        headers["authorization"] = login.header()
    secrets = (api_key_variable, *((login.user_variable, login.password_variable) if login else ()))
    cutter = _Cutter(deadline_s)
    try:
        with cutter:
            answer = _exchange(
                url,
                content,
                headers,
                max_bytes=max_bytes,
                timeout_s=deadline_s,
                cutter=cutter,
                peer=peer,
            )
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        if not cutter.over and (fault := _tls_fault(error)):
            raise _peer_error(
                peer,
                url,
                fault,
                "Trusted are the authorities of the system, or of the file that the environment"
                " variable SSL_CERT_FILE names.",
            ) from error
        raise Unanswered(
            _problem(peer, url, f"no {peer.name} answers: {_text(error)}", peer.remedy)
        ) from error
    except httpx2.HTTPError as error:
        if not cutter.over and not isinstance(error, httpx2.TimeoutException):
            raise Unanswered(
                _problem(
                    peer, url, f"the answer broke off, or is no HTTP: {_text(error)}", _SEE_LOG
                )
            ) from error
    else:
        # An answer that ends with its connection looks whole where it was cut.
        if not cutter.over:
            return _without_secrets(answer, secrets)
    raise Unanswered(
        _problem(peer, url, f"the answer did not end within {deadline_s:g} s", _SEE_LOG)
    )


_SEE_LOG = "Something runs there; its log may say why."


def _tls_fault(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return failure_text(error)
        error = error.__cause__ or error.__context__
    return None


def _without_secrets(answer: Answer, variables: Sequence[str | None]) -> Answer:
    def clean(text: str) -> str:
        for variable in variables:
            text = hide(text, variable)
        return text

    # Latin-1 gives every byte back as it was.
    return Answer(
        answer.status,
        clean(answer.content_type),
        clean(answer.server),
        clean(answer.body.decode("latin-1")).encode("latin-1"),
        clean(answer.retry_after),
    )


def require_address(url: str) -> None:
    """Refuse a base URL that cannot be asked or may not be kept.

    Raises:
        UsageError: naming the address, without what may be a secret in it.
    """
    if fault := _fault(url):
        raise UsageError(
            Problem(
                fault,
                field="endpoint.url",
                found=clean_text(url.rpartition("@")[2]),
                expected="http://host:port or https://host:port",
            )
        )


def _fault(url: str) -> str | None:
    if "@" in url:
        return (
            "holds credentials, which a spec would publish;"
            " endpoint.api_key_variable names an environment variable with the key"
        )
    try:
        parts = httpx2.URL(url)
        parts.host.encode("idna")  # as the resolver does, which then fails with no OSError
    except (httpx2.InvalidURL, UnicodeError):
        return "is no address"
    if parts.scheme not in {"http", "https"}:
        return "is neither http nor https"
    if not parts.host:
        return "has no host"
    if parts.port is not None and not 0 < parts.port < 65536:
        return "has a port out of range"
    return "has a query or a fragment" if parts.query or parts.fragment else None


class _Cutter:
    """Shuts the connection of a request when its time is over, wherever the request then waits.

    The library's own limits are for each read, so they begin anew with every byte.

    Attributes:
        over: the time was over before the request was.
    """

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for sock in self._sockets:
            sock.close()

    def watch(self, event: str, info: dict[str, Any]) -> None:
        """Take the events of the request extension `trace`."""
        if event == "connection.connect_tcp.complete":
            # A duplicate: TLS takes the socket itself away, and shutting one shuts both.
            self._sockets.append(info["return_value"].get_extra_info("socket").dup())
            if self.over:
                self._cut()

    def _cut(self) -> None:
        self.over = True
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _exchange(
    url: str,
    content: bytes | None,
    asked: dict[str, str],
    *,
    max_bytes: int,
    timeout_s: float,
    cutter: _Cutter,
    peer: Peer,
) -> Answer:
    # Where certificates are not needed, loading them takes longer than most requests.
    # A proxy of the environment must not stand between us and the engine.
    with (
        httpx2.Client(
            verify=trusted_context() if url.startswith("https:") else False,
            trust_env=False,
            timeout=httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
        ) as client,
        client.stream(
            "GET" if content is None else "POST",
            url,
            content=content,
            headers=asked,
            extensions={"trace": cutter.watch},
        ) as response,
    ):
        headers = response.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise _peer_error(
                peer,
                url,
                "the answer is compressed, though that was not asked for",
                f"Turn off compression between here and the {peer.name}.",
            )
        body = bytearray()
        for piece in response.iter_raw():
            body += piece
            if len(body) > max_bytes:
                raise _peer_error(
                    peer,
                    url,
                    f"the answer is larger than {max_bytes / (1 << 20):.3g} MiB",
                    f"Is this the {peer.name}?",
                )
        kind = clean_text(headers.get("content-type", ""))
        return Answer(
            response.status_code,
            kind,
            clean_text(headers.get("server", "")),
            bytes(body),
            clean_text(headers.get("retry-after", "")),
        )


def _peer_error(peer: Peer, url: str, what: str, remedy: str) -> EngineError:
    return EngineError(_problem(peer, url, what, remedy))


def _problem(peer: Peer, url: str, what: str, remedy: str) -> Problem:
    return Problem(what, field=peer.field, found=url, remedy=remedy)


def _text(error: Exception) -> str:
    return clean_text(str(error)) or type(error).__name__
