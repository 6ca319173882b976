"""No text of a run or record is private by its shape: of checks 5, 6 and 7 of `trust.verify`. Pure.

What is published stays published, so a file with somebody's key in it must not get that far. What a
model wrote in answer to a question is not looked at: it knows nothing of the machine, it may well
make up a path, and its digest is beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.answers import AccuracyLog
from tokenwatt_site.evidence.power import PowerLog
from tokenwatt_site.journal import Entry
from tokenwatt_site.private import faults
from tokenwatt_site.trials import Evidence

_TOLD = 20
"""How many places are named; the others are likely alike."""


def refuse_private(value: JsonValue, path: str = "", *, file: str | None = None) -> None:
    """See that no text in a value looks private; what it says is not repeated.

    Args:
        value: as it was read.
        path: where it stands itself.
        file: what it was read from.

    Raises:
        InputError: naming each place.
    """
    problems = [
        Problem(
            found,
            file=file,
            field=place,
            expected="nothing private: all of this is published",
            remedy="Take it out where it comes from; what is signed has to be measured again.",
        )
        for _, (place, found) in zip(range(_TOLD), faults(value, path), strict=False)
    ]
    if problems:
        raise InputError(*problems)


def refuse_private_lines(journal: Sequence[Entry]) -> None:
    """See that no line of a journal tells anything private; as `refuse_private`."""
    refuse_private({f"line {line.seq} ({line.event})": line.data for line in journal}, "journal")


def refuse_private_evidence(evidence: Evidence) -> None:
    """See that none of the texts among the readings looks private; as `refuse_private`."""
    texts: dict[str, JsonValue] = {}
    logs = [evidence.power, *evidence.beside]
    texts["power"] = [list(_boards(log)) for log in logs if log is not None]
    if evidence.engine is not None:
        texts["engine"] = evidence.engine.names
    if evidence.model is not None:
        texts["model"] = [evidence.model.config, evidence.model.quantization]
    for name, answers in (("accuracy", evidence.accuracy), ("reference", evidence.reference)):
        if answers is not None:
            texts[name] = dict(_told(answers))
    refuse_private(texts, "evidence")


def _boards(log: PowerLog) -> Iterator[JsonValue]:
    for board in log.boards:
        yield {"uuid": board.uuid, "name": board.name}


def _told(log: AccuracyLog) -> Iterator[tuple[str, JsonValue]]:
    yield "header", log.header.to_json()
    for answer in log.answers:
        if answer.failure is not None or answer.finish is not None:
            place = f"question {answer.question} of repeat {answer.repeat}"
            yield place, {"failure": answer.failure, "finish": answer.finish}
