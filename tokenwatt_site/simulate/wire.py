"""Just enough HTTP/1.1 for the simulated server: whole requests in, heads and short bodies out."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_REQUEST_BYTES = 16 << 20
_REQUEST_LINE = re.compile(rb"(GET|POST) (/[^ ?\r\n]*)(?:\?[^ \r\n]*)? HTTP/1\.[01]\r\n")
_BEGINNINGS = (b"GET /", b"POST /")
_LENGTH = re.compile(rb"\r\nContent-Length:[ \t]*([^\r\n]*?)[ \t]*\r\n", re.IGNORECASE)
_DIGITS = re.compile(rb"[0-9]{1,12}")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    413: "Content Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpRequest(NamedTuple):
    method: str
    path: str
    body: bytes


def take_request(received: bytearray) -> HttpRequest | None:
    """Take the first request out of what was received; None while it is not whole.

    Raises:
        ValueError: it is no request, or too large.
    """
    end = received.find(b"\r\n\r\n")
    line = _REQUEST_LINE.match(received)
    if len(received) > MAX_REQUEST_BYTES:
        raise ValueError("the request is too large")
    begun = any(start.startswith(received[: len(start)]) for start in _BEGINNINGS)
    if not begun or (end >= 0 and line is None):  # a client that speaks TLS never ends a head
        raise ValueError("this is no request")
    if end < 0 or line is None:
        return None
    length = _LENGTH.search(received, 0, end + 2)
    if length and not _DIGITS.fullmatch(length.group(1)):
        raise ValueError("the request has no length")
    whole = end + 4 + (int(length.group(1)) if length else 0)
    if len(received) < whole:
        return None
    method, path = (part.decode("latin-1") for part in line.groups())
    request = HttpRequest(method, path, bytes(received[end + 4 : whole]))
    del received[:whole]
    return request


def stream_head(*, close: bool) -> bytes:
    """Return the head of a chunked stream of events."""
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        b"Transfer-Encoding: chunked\r\n" + (b"Connection: close\r\n\r\n" if close else b"\r\n")
    )


def response(
    status: int,
    body: bytes,
    content_type: str,
    *,
    close: bool = False,
    retry_after_s: int | None = None,
) -> bytes:
    """Return a whole response of known length."""
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        + (f"Retry-After: {retry_after_s}\r\n" if retry_after_s is not None else "")
        + ("Connection: close\r\n\r\n" if close else "\r\n")
    )
    return head.encode() + body
