from __future__ import annotations

import http.client
import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.measure.framing import MAX_HEAD_BYTES, MAX_LINE_BYTES, ResponseFraming

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def read(*pieces: bytes, closed: bool = False) -> tuple[ResponseFraming, bytes]:
    framing = ResponseFraming()
    body = b"".join([framing.feed(piece) for piece in pieces])
    if closed:
        framing.eof()
    return framing, body


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(p % (len(data) + 1) for p in places)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def seen(framing: ResponseFraming, body: bytes) -> tuple[object, ...]:
    return (
        body,
        framing.status,
        framing.headers,
        framing.done,
        framing.error,
        framing.keep_alive,
    )


def chunked(parts: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in parts if p)
    return CHUNKED + chunks + b"0\r\n" + trailer + b"\r\n"


def test_a_body_with_a_length_ends_at_its_length() -> None:
    framing, body = read(OK + b"Content-Length: 5\r\n\r\nhe", b"llo")
    assert (body, framing.done, framing.keep_alive) == (b"hello", True, True)


def test_a_chunked_body_ends_with_the_empty_chunk_and_its_trailer() -> None:
    framing, body = read(chunked([b"ab", b"0\r\n\r\n"], b";x=1", b"Digest: y\r\n"))
    assert (body, framing.done, framing.keep_alive) == (b"ab0\r\n\r\n", True, True)


def test_a_chunk_that_ends_like_a_body_does_not_end_it() -> None:
    framing, body = read(CHUNKED, b"5\r\n0\r\n\r\n\r\n")
    assert body == b"0\r\n\r\n"
    assert not framing.over


def test_a_body_without_length_ends_when_the_server_closes() -> None:
    framing, body = read(OK + b"\r\nabc", b"def")
    assert not framing.done
    framing.eof()
    assert (body, framing.done, framing.keep_alive) == (b"abcdef", True, False)


def test_closing_inside_a_chunked_body_does_not_end_it() -> None:
    framing, _ = read(CHUNKED, b"5\r\nab", closed=True)
    assert not framing.done


def test_interim_responses_are_passed_over() -> None:
    framing, _ = read(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        + OK
        + b"Content-Length: 0\r\n\r\n"
    )
    assert (framing.status, framing.done, framing.headers) == (200, True, {"content-length": "0"})


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: foo, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_a_connection_is_kept_as_the_version_and_the_header_say(head: bytes, kept: bool) -> None:
    framing, _ = read(head + b"Content-Length: 0\r\n\r\n")
    assert framing.keep_alive is kept


def test_bytes_after_the_end_forbid_reuse() -> None:
    framing, body = read(OK + b"Content-Length: 2\r\n\r\nokHTTP")
    assert (body, framing.done, framing.keep_alive) == (b"ok", True, False)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"SSH-2.0-x\r\n", "no HTTP/1 response"),
        (b"HTTP/2 200\r\n\r\n", "no HTTP/1 response"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "no HTTP/1 response"),
        (OK + b"Bad Name: x\r\n\r\n", "header line"),
        (OK + b"A: x\r\n folded\r\n\r\n", "header line"),
        (OK + b"Content-Length: -1\r\n\r\n", "content length"),
        (OK + b"Content-Length: 1_0\r\n\r\n", "content length"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "content length"),
        (OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "length and is chunked"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "transfer encoding"),
        (OK + b"Content-Encoding: gzip\r\n\r\n", "compressed"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "switched protocols"),
        (CHUNKED + b"xyz\r\n", "chunk size"),
        (CHUNKED + b"0x5\r\nhello\r\n", "chunk size"),
        (CHUNKED + b"-1\r\n", "chunk size"),
        (CHUNKED + b"fffffffff\r\n", "chunk size"),
        (CHUNKED + b"2\r\nabc\r\n", "longer than its size"),
        (CHUNKED + b"1" * (MAX_LINE_BYTES + 2), "no end"),
        (OK + b"A: " + b"x" * (MAX_HEAD_BYTES + 4), "head is larger"),
    ],
)
def test_what_is_malformed_is_an_error_and_nothing_after_it_is_read(
    data: bytes, error: str
) -> None:
    framing, _ = read(data)
    assert error in str(framing.error)
    assert framing.over
    assert not framing.done
    assert not framing.keep_alive
    assert framing.feed(OK) == b""


def test_equal_repeated_lengths_are_one_length() -> None:
    framing, body = read(OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok")
    assert (body, framing.done) == (b"ok", True)


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 10_000), max_size=9))
def test_any_cutting_of_a_chunked_response_gives_the_same_result(
    parts: list[bytes], places: list[int]
) -> None:
    data = chunked(parts, b" ; q", b"T: 1\r\n")
    framing, body = read(*cut(data, places))
    assert body == b"".join(parts)
    assert seen(framing, body) == seen(*read(data))


@given(st.binary(max_size=80), st.lists(st.integers(0, 10_000), max_size=9))
def test_the_standard_library_reads_the_same_body_of_a_response_with_a_length(
    content: bytes, places: list[int]
) -> None:
    data = OK + b"Content-Length: %d\r\nX: y\r\n\r\n" % len(content) + content
    _, body = read(*cut(data, places))
    assert body == standard_library(data)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_the_standard_library_reads_the_same_chunked_body(parts: list[bytes]) -> None:
    data = chunked(parts)
    assert read(data)[1] == standard_library(data)


_FRAGMENTS = st.lists(
    st.sampled_from(
        [
            OK,
            b"Transfer-Encoding: chunked\r\n",
            b"Content-Length: 3\r\n",
            b"\r\n",
            b"\r",
            b"\n",
            b"3\r\nabc\r\n",
            b"0\r\n\r\n",
            b"HTTP/1.1 100 C\r\n\r\n",
            b"x",
            b"5",
        ]
    ),
    max_size=9,
)


@given(_FRAGMENTS, st.lists(st.integers(0, 10_000), max_size=9))
def test_any_cutting_of_any_bytes_gives_the_same_result(
    pieces: list[bytes], places: list[int]
) -> None:
    data = b"".join(pieces)
    assert seen(*read(*cut(data, places), closed=True)) == seen(*read(data, closed=True))


def standard_library(data: bytes) -> bytes:
    class Connection:
        def makefile(self, *_: object) -> io.BytesIO:
            return io.BytesIO(data)

    response = http.client.HTTPResponse(Connection())  # type: ignore[arg-type]  # all it uses
    response.begin()
    return response.read()
