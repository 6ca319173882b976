from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.simulate.wire import (
    MAX_REQUEST_BYTES,
    HttpRequest,
    response,
    stream_head,
    take_request,
)

TWO = (
    b"POST /a?x=1 HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello"
    b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n"
)


@given(st.lists(st.integers(1, 30), max_size=20))
def test_requests_are_whole_however_they_come_in(sizes: list[int]) -> None:
    received, taken, start = bytearray(), [], 0
    for size in (*sizes, len(TWO)):
        received += TWO[start : start + size]
        start += size
        while request := take_request(received):
            taken.append(request)
    assert taken == [HttpRequest("POST", "/a", b"hello"), HttpRequest("GET", "/b", b"")]
    assert not received


@given(st.binary(max_size=200))
def test_other_bytes_are_no_request_or_wait_for_more(data: bytes) -> None:
    received = bytearray(data)
    try:
        request = take_request(received)
    except ValueError:
        return
    assert request is None
    assert received == data


def test_a_request_without_end_is_refused_when_it_is_too_large() -> None:
    with pytest.raises(ValueError, match="too large"):
        take_request(bytearray(MAX_REQUEST_BYTES + 1))


@pytest.mark.parametrize("data", [b"\x16\x03\x01", b"PUT /", b"GEX", b"\r\n"])
def test_what_begins_like_no_request_is_not_waited_for(data: bytes) -> None:
    with pytest.raises(ValueError, match="no request"):
        take_request(bytearray(data))


@pytest.mark.parametrize("length", [b"-5", b"", b"1e3", b"9999999999999"])
def test_a_length_that_is_none_is_refused_and_not_taken_for_0(length: bytes) -> None:
    with pytest.raises(ValueError, match="no length"):
        take_request(bytearray(b"POST /a HTTP/1.1\r\nContent-Length: %s\r\n\r\n{}" % length))


def test_heads_say_length_kind_and_whether_the_connection_stays() -> None:
    told = response(503, b"{}", "application/json", close=True, retry_after_s=7)
    assert told == (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\nRetry-After: 7\r\nConnection: close\r\n\r\n{}"
    )
    assert response(200, b"", "text/plain").endswith(b"Content-Length: 0\r\n\r\n")
    assert (b"Connection: close" in stream_head(close=True)) is True
    assert (b"Connection: close" in stream_head(close=False)) is False
