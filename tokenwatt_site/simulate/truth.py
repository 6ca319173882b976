"""The truth about each request, on both clocks, and its line in a log file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from tokenwatt_site.simulate.asked import Api

Ended: TypeAlias = Literal["complete", "refused", "dropped", "client gone"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on both clocks: `time.monotonic_ns` and `time.time_ns`."""

    monotonic_ns: int
    realtime_ns: int

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic_ns(), time.time_ns())

    def moved(self, monotonic_ns: int) -> Moment:
        """Return another instant near this one, by its monotonic time."""
        return Moment(monotonic_ns, self.realtime_ns + monotonic_ns - self.monotonic_ns)


@dataclass(slots=True)
class Served:
    """The truth about one request.

    Attributes:
        number: from 0, in order of receipt.
        api: which path it came to.
        body: the request body as received.
        received: when its last byte was read.
        prompt_tokens: of its prompt; None where it is no request.
        output_tokens: that the answer has when it is whole.
        admitted: when an engine's first step for it began; None without an engine.
        cached_tokens: of its prompt, that the engine had in memory.
        preemptions: how often the engine put it back.
        sent: for each event with tokens, just before it was handed to the kernel, and how many.
        late_ns: the most that one of them left after the engine had it; 0 without an engine.
        ended: how the response ended; None while it has not.
        ended_at: when.
    """

    number: int
    api: Api
    body: bytes
    received: Moment
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    admitted: Moment | None = None
    cached_tokens: int | None = None
    preemptions: int = 0
    sent: list[tuple[Moment, int]] = field(default_factory=list)
    late_ns: int = 0
    ended: Ended | None = None
    ended_at: Moment | None = None

    def line(self) -> str:
        """Return the request as one line of JSON, without its body.

        An instant is [monotonic ns, realtime ns]; the latter is text, as it is beyond 2^53. An
        event is an instant and its tokens.
        """
        value = {
            "number": self.number,
            "api": self.api,
            "ended": self.ended,
            "received": _pair(self.received),
            "admitted": _pair(self.admitted),
            "ended_at": _pair(self.ended_at),
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "preemptions": self.preemptions,
            "late_ns": self.late_ns,
            "sent": [[at.monotonic_ns, str(at.realtime_ns), tokens] for at, tokens in self.sent],
        }
        return json.dumps(value, separators=(",", ":")) + "\n"


def _pair(moment: Moment | None) -> list[int | str] | None:
    return None if moment is None else [moment.monotonic_ns, str(moment.realtime_ns)]


Keep: TypeAlias = Callable[[Served], None]
"""Takes a request once it has ended."""


class TruthFile:
    """A new file with a line for each request that ended.

    Raises:
        FileExistsError: there is such a file: another server may be writing it.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        mode = "w" if path.is_char_device() else "x"  # such as /dev/stdout
        self._file = path.open(mode, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # each line was flushed: only what `keep` failed with is left
            self._file.close()

    def keep(self, served: Served) -> None:
        self._file.write(served.line())
        self._file.flush()
