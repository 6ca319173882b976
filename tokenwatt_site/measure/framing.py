"""Where one HTTP/1.1 response ends, told while it arrives (RFC 9112). No input or output here.

The client must know with each read whether the response is over, for about a microsecond; h11 costs
tens. So this knows responses only, to requests that were not pipelined, and refuses what it cannot
read with certainty. Every way of cutting the bytes into reads gives the same result.
"""

from __future__ import annotations

import re
from enum import IntEnum, auto

MAX_HEAD_BYTES = 64 << 10
MAX_LINE_BYTES = 4 << 10
MAX_BODY_BYTES = 256 << 20

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_LENGTH = re.compile(r"[0-9]{1,15}")
_USUAL_DIGITS = 3
_USUAL_SIZES = {b"%x" % size: size for size in range(1, 16**_USUAL_DIGITS)}


class _State(IntEnum):
    HEAD = auto()
    LENGTH = auto()
    CHUNK_LINE = auto()
    CHUNK_DATA = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()
    FAILED = auto()


class _MalformedError(Exception):
    """The bytes are no HTTP/1 response that can be read with certainty."""


class ResponseFraming:
    """The framing of one response.

    Attributes:
        status: the status code; 0 until the head of the final (not 1xx) response is complete.
        headers: names in lower case; of repeated ones all values, joined by ", ".
        error: what is malformed, or None. Nothing is read after an error.
        keep_alive: whether the connection may carry another request once `done`.
    """

    __slots__ = ("_buffer", "_left", "_seen", "_state", "error", "headers", "keep_alive", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.error: str | None = None
        self.keep_alive = False
        self._state = _State.HEAD
        self._buffer = b""
        self._left = 0
        self._seen = 0

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    @property
    def over(self) -> bool:
        """True once `done` or once there is an `error`."""
        return self._state in (_State.DONE, _State.FAILED)

    def feed(self, data: bytes) -> bytes:
        """Take what was read from the connection; return the bytes of the body in it."""
        if self._state is _State.CHUNK_LINE and not self._buffer:
            # The usual read of a stream: one whole chunk and nothing else.
            line = data.find(b"\r\n", 0, _USUAL_DIGITS + 2)
            size = _USUAL_SIZES.get(data[:line])
            if size is not None and line + size + 4 == len(data) and data.endswith(b"\r\n"):
                self._seen += size
                if self._seen <= MAX_BODY_BYTES:
                    return data[line + 2 : -2]
                self._seen -= size
        parts: list[bytes] = []
        self._buffer = self._buffer + data if self._buffer else data
        try:
            while not self.over and _STEPS[self._state](self, parts):
                pass
        except _MalformedError as error:
            self.error = str(error)
            self.keep_alive = False
            self._state = _State.FAILED
        if self._buffer and self.over:
            # Bytes nobody asked for: what would follow cannot be trusted.
            self._buffer = b""
            self.keep_alive = False
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def eof(self) -> None:
        """Say that the server closed the connection; ends a body that has no other end."""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.DONE
        self.keep_alive = False

    # A step does what the buffered bytes allow, and returns False when it needs more of them.

    def _head(self, _: list[bytes]) -> bool:
        # A server may send an empty line before the head (RFC 9112, 2.2).
        while self._buffer.startswith(b"\r\n"):
            self._buffer = self._buffer[2:]
        if self._buffer != b"\r" and not b"HTTP/1.".startswith(self._buffer[:7]):
            raise _MalformedError("this is no HTTP/1 response")
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HEAD_BYTES + 3):
            raise _MalformedError(f"the head is larger than {MAX_HEAD_BYTES:,} bytes")
        if end < 0:
            return False
        status, http_1_1, headers = _parse_head(self._buffer[:end])
        self._buffer = self._buffer[end + 4 :]
        if status >= 200:
            self.status = status
            self.headers = headers
            self._begin_body(http_1_1=http_1_1)
        return True

    def _begin_body(self, *, http_1_1: bool) -> None:
        """Choose how the body ends (RFC 9112, 6.3)."""
        headers = self.headers
        connection = {t.strip().lower() for t in headers.get("connection", "").split(",")}
        self.keep_alive = "close" not in connection if http_1_1 else "keep-alive" in connection
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise _MalformedError("the body is compressed, which was not asked for")
        coding = headers.get("transfer-encoding")
        if self.status in (204, 304):
            self._state = _State.DONE
        elif coding is not None:
            if coding.lower() != "chunked":
                raise _MalformedError("the transfer encoding is not chunked")
            if "content-length" in headers:
                raise _MalformedError("the response has a length and is chunked")
            self._state = _State.CHUNK_LINE
        elif "content-length" in headers:
            lengths = {part.strip() for part in headers["content-length"].split(",")}
            length = lengths.pop()
            if lengths or not _LENGTH.fullmatch(length):
                raise _MalformedError("the content length is malformed")
            self._left = int(length)
            self._state = _State.LENGTH if self._left else _State.DONE
        else:
            self.keep_alive = False
            self._state = _State.UNTIL_CLOSE

    def _length(self, parts: list[bytes]) -> bool:
        self._take(self._left, parts)
        if self._left == 0:
            self._state = _State.DONE
        return False

    def _until_close(self, parts: list[bytes]) -> bool:
        self._take(len(self._buffer), parts)
        return False

    def _chunk_line(self, _: list[bytes]) -> bool:
        line = self._line()
        if line is None:
            return False
        match = _CHUNK_LINE.fullmatch(line)
        if match is None:
            raise _MalformedError("a chunk size is not hexadecimal")
        self._left = int(match.group(1), 16)
        self._state = _State.CHUNK_DATA if self._left else _State.TRAILER
        return True

    def _chunk_data(self, parts: list[bytes]) -> bool:
        self._take(self._left, parts)
        if self._left:
            return False
        self._state = _State.CHUNK_END
        return True

    def _chunk_end(self, _: list[bytes]) -> bool:
        if not b"\r\n".startswith(self._buffer[:2]):
            raise _MalformedError("a chunk is longer than its size says")
        if len(self._buffer) < 2:
            return False
        self._buffer = self._buffer[2:]
        self._state = _State.CHUNK_LINE
        return True

    def _trailer(self, _: list[bytes]) -> bool:
        line = self._line()
        if line == b"\r\n":
            self._state = _State.DONE
        return line is not None

    def _take(self, most: int, parts: list[bytes]) -> None:
        part = self._buffer[:most]
        if part:
            parts.append(part)
            self._buffer = self._buffer[len(part) :]
            self._left -= len(part)
            self._seen += len(part)
            if self._seen > MAX_BODY_BYTES:
                raise _MalformedError(f"the body is larger than {MAX_BODY_BYTES:,} bytes")

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end > MAX_LINE_BYTES or (end < 0 and len(self._buffer) > MAX_LINE_BYTES + 1):
            raise _MalformedError("a chunk or trailer line has no end")
        if end < 0:
            return None
        line, self._buffer = self._buffer[: end + 2], self._buffer[end + 2 :]
        return line


_STEPS = {
    _State.HEAD: ResponseFraming._head,
    _State.LENGTH: ResponseFraming._length,
    _State.CHUNK_LINE: ResponseFraming._chunk_line,
    _State.CHUNK_DATA: ResponseFraming._chunk_data,
    _State.CHUNK_END: ResponseFraming._chunk_end,
    _State.TRAILER: ResponseFraming._trailer,
    _State.UNTIL_CLOSE: ResponseFraming._until_close,
}


def _parse_head(head: bytes) -> tuple[int, bool, dict[str, str]]:
    """Return the status, whether this is HTTP/1.1, and the headers."""
    first, *lines = head.split(b"\r\n")
    status_line = _STATUS_LINE.fullmatch(first)
    if status_line is None:
        raise _MalformedError("this is no HTTP/1 response")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise _MalformedError("a header line is malformed")
        name, value = header.group(1).decode().lower(), header.group(2).decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    status = int(status_line.group(2))
    if status == 101:
        raise _MalformedError("the server switched protocols")
    return status, status_line.group(1) == b"1", headers
