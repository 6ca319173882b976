"""One request and its answer: from stamped reads to a record. No input or output here."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure.answer_text import TextParser
from tokenwatt_site.measure.framing import ResponseFraming
from tokenwatt_site.measure.stream import StreamParser, StreamSummary, error_text

_MAX_PLAIN_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request to send `due_ns` after the start of the trial; `body` is finished JSON.

    `keep_text` keeps what is answered, which costs time with each of its events.
    """

    row: int
    due_ns: int
    body: bytes
    prompt_asked: int
    output_asked: int
    keep_text: bool = False


class Exchange:
    """What is known of one request. Framed with each read, parsed when there is time.

    Attributes:
        number: its place in the trial, in order of `due_ns`.
        dialled_ns: when a connection was opened for it; None where an open one was there.
        connected_ns: when that was ready. Both are later than `sent_ns` where a kept connection
            turned out to be closed.
        sent_ns: just before its first byte was sent.
        fate: how the transport ended; None while it has not, OK when the response is whole.
        end_ns: when it ended.
        message: what the transport has to say to its end.
        record: final, once it ended and everything is parsed.
        text: of a whole answer, where it was to be kept; see `TextParser.text`.
    """

    __slots__ = (
        "_parser",
        "_plain",
        "answered",
        "connected_ns",
        "dialled_ns",
        "end_ns",
        "fate",
        "framing",
        "message",
        "number",
        "planned",
        "record",
        "redialled",
        "sent_ns",
        "text",
    )

    def __init__(self, number: int, planned: PlannedRequest) -> None:
        self.number = number
        self.planned = planned
        self.framing = ResponseFraming()
        self.dialled_ns: int | None = None
        self.connected_ns: int | None = None
        self.sent_ns: int | None = None
        self.answered = False
        self.redialled = False
        self.fate: Status | None = None
        self.end_ns = planned.due_ns
        self.message = ""
        self.record: RequestRecord | None = None
        self.text: str | None = None
        self._parser = TextParser() if planned.keep_text else StreamParser()
        self._plain = b""

    def parse(self, stamp_ns: int, exact_ns: int, merged_ns: int, body: bytes) -> None:
        """Take a piece of the body, in order, with its times; see `StreamParser.feed`."""
        if self.framing.status == 200:
            self._parser.feed(stamp_ns, exact_ns, merged_ns, body)
        else:
            self._plain = (self._plain + body)[:_MAX_PLAIN_BYTES]

    def conclude(self, repeat: int, trial: int) -> tuple[str, RequestRecord]:
        """Once it ended and everything is parsed: return what went wrong, and the record."""
        summary = self._parser.summary()
        # A connection that breaks after [DONE] takes nothing away.
        whole = self.fate is Status.OK or (self.fate is Status.DISCONNECTED and summary.ended)
        if whole and self.framing.status == 200:
            summary = self._parser.finish(self.end_ns, 0)
        status, message = self._judge(summary, whole=whole)
        self.record = self._make(repeat, trial, summary, status, self.end_ns)
        if status is Status.OK and isinstance(self._parser, TextParser):
            self.text = self._parser.text()
        return message, self.record

    def snapshot(self, repeat: int, trial: int, known_ns: int) -> RequestRecord:
        """Return what is known until `known_ns` of one that has no record yet, as CENSORED."""
        return self._make(repeat, trial, self._parser.summary(), Status.CENSORED, known_ns)

    def _judge(self, summary: StreamSummary, *, whole: bool) -> tuple[Status, str]:
        if whole and self.framing.status != 200:
            return Status.HTTP_ERROR, self._http_error()
        if summary.error is not None:
            return Status.STREAM_ERROR, summary.error
        if not whole:
            assert self.fate is not None  # noqa: S101 - called once it ended
            return self.fate, self.message
        return self._judge_count(summary)

    def _judge_count(self, summary: StreamSummary) -> tuple[Status, str]:
        asked, got = self.planned.output_asked, summary.output_tokens
        if got is None:
            return Status.NO_USAGE, "the engine told no usage"
        if got < asked or summary.first_ns is None:
            why = f" (finish reason {summary.finish_reason})" if summary.finish_reason else ""
            return Status.SHORT_OUTPUT, f"the output is shorter than asked{why}"
        # A8: usage is trusted. But if it leaves some out, the time per token is too long.
        doubt = f"the engine counts {got} tokens in {summary.events} events with tokens"
        return Status.OK, doubt if summary.events > got else ""

    def _http_error(self) -> str:
        """Say the status, what the body tells, and how long an engine that is busy says to wait."""
        told = error_text(self._plain)
        wait = self.framing.headers.get("retry-after")
        if wait is not None:
            wait = f"retry after {wait}" + (" s" if wait.isdecimal() else "")
        return ": ".join(filter(None, (f"HTTP {self.framing.status}", told, wait)))

    def _make(
        self, repeat: int, trial: int, summary: StreamSummary, status: Status, end_ns: int
    ) -> RequestRecord:
        planned = self.planned
        return RequestRecord(
            repeat=repeat,
            trial=trial,
            row=planned.row,
            due_ns=planned.due_ns,
            dialled_ns=self.dialled_ns,
            connected_ns=self.connected_ns,
            sent_ns=self.sent_ns,
            first_ns=summary.first_ns,
            last_ns=summary.last_ns,
            # Nothing is answered before it was sent, so that much is known in any case.
            end_ns=max(end_ns, planned.due_ns, self.sent_ns or 0, summary.last_ns or 0),
            prompt_asked=planned.prompt_asked,
            prompt_tokens=summary.prompt_tokens,
            cached_tokens=summary.cached_tokens,
            output_asked=planned.output_asked,
            output_tokens=summary.output_tokens,
            first_tokens=summary.first_tokens,
            events=summary.events,
            uncertainty_ns=summary.uncertainty_ns,
            status=status,
        )
