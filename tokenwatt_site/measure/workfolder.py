"""The folder of a measurement in progress.

Journal, trace, model files, the fitted engine model and the reference's answers; requests by trial;
power and the engine's counters by launch; answers to a task, and under load, by repeat.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tokenwatt_site import __version__
from tokenwatt_site.canonical import JsonValue, canonical_bytes, read_file
from tokenwatt_site.engine_model.document import (
    MAX_MODEL_BYTES,
    ModelFit,
    decode_model_fit,
    encode_model_fit,
)
from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.evidence.answers import (
    AccuracyLog,
    Answer,
    decode_accuracy,
    encode_accuracy,
)
from tokenwatt_site.evidence.engine import EngineLog, decode_engine, encode_engine
from tokenwatt_site.evidence.power import Board, PowerLog, decode_power, encode_power
from tokenwatt_site.evidence.records import (
    RequestRecord,
    RequestWriter,
    decode_requests,
    encode_requests,
)
from tokenwatt_site.evidence.store import MAX_EVIDENCE_BYTES
from tokenwatt_site.evidence.under_load import (
    Compared,
    UnderLoadLog,
    decode_under_load,
    encode_under_load,
)
from tokenwatt_site.journal import Event, Journal
from tokenwatt_site.measure.instruments import Recorded
from tokenwatt_site.model_shape.document import ModelDocument, decode_model, encode_model
from tokenwatt_site.private import SHAPES_ALONE, Private
from tokenwatt_site.run import Conditions, ReadBack
from tokenwatt_site.spec import Spec
from tokenwatt_site.trace import MAX_TRACE_BYTES, Trace
from tokenwatt_site.trace import parse as parse_trace
from tokenwatt_site.trials import Evidence, Told

MIN_FREE_BYTES = 64 << 20
TRACE_FILE = "trace.jsonl"
MODEL_FILE = "model.jsonl"
REFERENCE_FILE = "reference.jsonl"
MODEL_FIT_FILE = "fitted-model.jsonl"
SPEC_FILE = "spec.json"

_OURS = frozenset(
    {
        "configuration",
        "spec",
        "workload",
        "keyid",
        "seed_rule",
        "nonce",
        "publisher_nonce",
        "gpus",
        "reference",
        "tool",
        "engine_started",
        "prompts",
        "realisation_hash",
    }
)
"""What lines tell in words of our own, which a name of a machine may occur in by chance."""

_POWER = "power-[0-9][0-9][0-9][0-9]"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a finished session leaves to be derived from and signed.

    `simulated`: the engine was our simulated one, in any of its launches. `interrupted`: the last
    thing the journal tells is an interruption.
    """

    spec: Spec
    simulated: bool
    interrupted: bool
    evidence: Evidence
    conditions: Conditions
    journal_bytes: bytes


class WorkFolder:
    """Keeps what was measured from the moment it was; held by one process at a time.

    A context manager: leaving it lets another process in.
    """

    def __init__(self, path: Path, now: Callable[[], str], private: Private = SHAPES_ALONE) -> None:
        """Make or reopen the folder; `now` gives the time of a journal line.

        What others say and is kept to be published stands there without what is `private`.

        Raises:
            EnvironmentProblem: it cannot be made, another process has it, or the disk is nearly
                full.
            InputError: its journal's chain is broken.
        """
        _require_space(path)
        self.path = path
        self._lock = (path / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise EnvironmentProblem(
                Problem("is in use by another measurement", file=str(path))
            ) from error
        self._private = private
        self.journal = Journal(path / "journal.jsonl", now, self._cleaned)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def begin_requests(self, trial: int) -> Callable[[Sequence[RequestRecord]], None]:
        """Return what keeps records of a trial while it runs.

        They are in a file of their own, in the order in which they ended, for whoever wants to know
        what was seen of a trial that was broken off; evidence is what `keep_requests` gets.
        """
        path, writer = self._running(trial), RequestWriter()
        self._write(path.name, writer.header())

        def keep(records: Sequence[RequestRecord]) -> None:
            with self._named_errors(path), path.open("ab") as handle:
                handle.write(writer.lines(records))

        return keep

    def keep_requests(self, trial: int, records: tuple[RequestRecord, ...]) -> None:
        """Keep all records of a trial that ended, in their order."""
        self._write(f"requests-{trial:04d}.jsonl", encode_requests(records))
        self._running(trial).unlink(missing_ok=True)

    def _running(self, trial: int) -> Path:
        return self.path / f"requests-{trial:04d}.running.jsonl"

    def keep_recorded(self, recorded: Recorded) -> None:
        """Keep what was read beside the load of the last launch in the journal."""
        launch = f"{sum(line.event == 'launch' for line in self.journal.lines):04d}"
        if recorded.power is not None:
            self._write(f"power-{launch}.jsonl", encode_power(recorded.power))
        for number, log in recorded.beside:
            self._write(f"power-{launch}-beside-{number}.jsonl", encode_power(log))
        if recorded.engine is not None:
            self._write(f"engine-{launch}.jsonl", encode_engine(recorded.engine))

    def boards(self) -> tuple[Board, ...] | None:
        """Return the boards of the launches so far; None: none was read.

        Raises:
            EnvironmentProblem: they are not the same in all of them.
        """
        log = self._power(_POWER)
        return None if log is None else log.boards

    def keep_spec(self, spec: Spec) -> None:
        """Keep the spec as it was given: the journal has what is published of it."""
        self._write(SPEC_FILE, canonical_bytes(spec.to_json()))

    def keep_model(self, model: ModelDocument) -> None:
        """Keep the model's own files, so that the folder alone is enough to go on.

        Raises:
            EnvironmentProblem: those of another model are kept already.
        """
        # A config.json tells where its owner had the model.
        config, quantization = map(SHAPES_ALONE.scrubbed, (model.config, model.quantization))
        model = replace(model, config=config, quantization=quantization)
        kept = self.model()
        if kept is None:
            self._write(MODEL_FILE, encode_model(model))
        elif kept != model:
            raise EnvironmentProblem(
                Problem("holds the measurement of other model files", file=str(self.path))
            )

    def model(self) -> ModelDocument | None:
        """Return the model's files as they are kept; None: there are none."""
        path = self.path / MODEL_FILE
        if not path.exists():
            return None
        return decode_model(read_file(path, limit=MAX_EVIDENCE_BYTES), source=str(path))

    def keep_model_fit(self, fit: ModelFit) -> None:
        """Keep the engine model that was fitted to the trials of all repeats."""
        self._write(MODEL_FIT_FILE, encode_model_fit(fit))

    def model_fit(self) -> ModelFit | None:
        """Return the engine model as it is kept; None: none was fitted."""
        path = self.path / MODEL_FIT_FILE
        if not path.exists():
            return None
        return decode_model_fit(read_file(path, limit=MAX_MODEL_BYTES), source=str(path))

    def keep_trace(self, trace: Trace) -> None:
        """Keep what is played, so that the folder alone is enough to go on.

        Raises:
            EnvironmentProblem: another trace is kept already.
        """
        kept = self.trace()
        if kept is None:
            self._write(TRACE_FILE, trace.data)
        elif kept.data != trace.data:
            raise EnvironmentProblem(
                Problem("holds the measurement of another trace", file=str(self.path))
            )

    def trace(self) -> Trace | None:
        """Return the trace that is kept; None: there is none."""
        path = self.path / TRACE_FILE
        if not path.exists():
            return None
        return parse_trace(read_file(path, limit=MAX_TRACE_BYTES), source=str(path))

    def keep_reference(self, log: AccuracyLog) -> None:
        """Keep the answers that those of this run are compared with."""
        self._write(REFERENCE_FILE, encode_accuracy(log))

    def keep_answers(self, repeat: int, log: AccuracyLog) -> None:
        """Keep all answers of a repeat, scored; they count from their line in the journal on."""
        answers = tuple(self._without_private(answer) for answer in log.answers)
        self._write(f"accuracy-{repeat:04d}.jsonl", encode_accuracy(replace(log, answers=answers)))

    def keep_under_load(self, repeat: int, compared: Sequence[Compared]) -> None:
        """Keep what load does to answers in a repeat; it counts as `keep_answers` says."""
        log = UnderLoadLog(tuple(compared))
        self._write(f"under-load-{repeat:04d}.jsonl", encode_under_load(log))

    def evidence(self) -> Evidence:
        """Return everything kept so far; a trial without an end line does not count."""
        ended = {line.data["trial"] for line in self.journal.lines if line.event == "trial_end"}
        records: list[RequestRecord] = []
        for number in sorted(ended):
            path = self.path / f"requests-{number:04d}.jsonl"
            records += decode_requests(path.read_bytes(), source=str(path))
        lines = tuple(self.journal.lines)
        beside = {
            int(path.stem.rpartition("-")[2]) for path in self.path.glob("power-*-beside-*.jsonl")
        }
        logs = (self._power(f"{_POWER}-beside-{number}") for number in sorted(beside))
        return Evidence(
            journal=lines,
            requests=tuple(records),
            power=self._power(_POWER),
            trace=self.trace(),
            beside=tuple(log for log in logs if log is not None),
            engine=self._engine(),
            model=self.model(),
            accuracy=self._accuracy(),
            reference=self._reference(),
            under_load=self._under_load(),
            model_fit=self.model_fit(),
        )

    def measured(self, spec: Spec) -> Measured:
        """Return all evidence of a session that ended and the conditions it ran under."""
        evidence = self.evidence()
        told = Told.by(evidence.journal)
        conditions = Conditions(
            started=evidence.journal[0].at,
            ended=evidence.journal[-1].at,
            platform=f"{platform.system()} {platform.machine()}",
            processors=os.cpu_count() or 0,
            python=platform.python_version(),
            tool_version=__version__,
            board_uuids=tuple(b.uuid for b in evidence.power.boards) if evidence.power else (),
            read_back=tuple(
                ReadBack.model_validate_json(canonical_bytes(item)) for item in told.read_back
            ),
            stamps=told.stamps,
            self_test=told.self_test,
            workers=told.workers,
        )
        return Measured(
            spec=spec.published(),
            simulated=told.simulated,
            interrupted=evidence.journal[-1].event == "interrupted",
            evidence=evidence,
            conditions=conditions,
            journal_bytes=(self.path / "journal.jsonl").read_bytes(),
        )

    def _power(self, name: str) -> PowerLog | None:
        """Join the logs of one instrument over all launches."""
        logs = [
            decode_power(path.read_bytes(), source=str(path))
            for path in sorted(self.path.glob(f"{name}.jsonl"))
        ]
        if not logs:
            return None
        for log in logs:
            require_same_boards(logs[0].boards, log.boards)
        samples = tuple(sample for log in logs for sample in log.samples)
        return replace(logs[0], samples=samples, spans=tuple(s for log in logs for s in log.spans))

    def _engine(self) -> EngineLog | None:
        logs = [
            decode_engine(path.read_bytes(), source=str(path))
            for path in sorted(self.path.glob("engine-*.jsonl"))
        ]
        if not logs:
            return None
        names = {column: name for log in logs for column, name in log.names.items()}
        return EngineLog(names, tuple(sample for log in logs for sample in log.samples))

    def _accuracy(self) -> AccuracyLog | None:
        """Join the answers of all repeats that have them."""
        logs = [
            decode_accuracy(read_file(path, limit=MAX_EVIDENCE_BYTES), source=str(path))
            for path in self._told("accuracy_end", "accuracy")
        ]
        if not logs:
            return None
        return AccuracyLog(logs[0].header, tuple(row for log in logs for row in log.answers))

    def _reference(self) -> AccuracyLog | None:
        path = self.path / REFERENCE_FILE
        if not self.journal.lines or self.journal.lines[0].data.get("reference") is None:
            return None
        return decode_accuracy(read_file(path, limit=MAX_EVIDENCE_BYTES), source=str(path))

    def _under_load(self) -> UnderLoadLog | None:
        logs = [
            decode_under_load(read_file(path, limit=MAX_EVIDENCE_BYTES), source=str(path))
            for path in self._told("under_load", "under-load")
        ]
        return UnderLoadLog(tuple(row for log in logs for row in log.compared)) if logs else None

    def _told(self, event: Event, name: str) -> list[Path]:
        """Return the files of the repeats that have such a line in the journal, in order."""
        told = {line.data["repeat"] for line in self.journal.lines if line.event == event}
        return [self.path / f"{name}-{repeat:04d}.jsonl" for repeat in sorted(told)]

    def _cleaned(self, data: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return what a line of the journal tells, without what is private."""
        scrubbed = self._private.scrubbed
        return {key: item if key in _OURS else scrubbed(item) for key, item in data.items()}

    def _without_private(self, answer: Answer) -> Answer:
        """Return an answer whose failure, in the engine's own words, tells nothing private.

        What the model wrote stays: it knows nothing of the machine, and has its digest.
        """
        told = {"failure": (answer.failure, 1000), "finish": (answer.finish, 100)}
        return answer.model_copy(
            update={
                name: self._private.text(words)[:limit].rstrip()
                for name, (words, limit) in told.items()
                if words is not None
            }
        )

    def _write(self, name: str, data: bytes) -> None:
        path = self.path / name
        with self._named_errors(path):
            path.write_bytes(data)

    @contextmanager
    def _named_errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EnvironmentProblem(
                Problem(f"cannot be written ({error.strerror})", file=str(path))
            ) from error


def require_same_boards(before: Sequence[Board], now: Sequence[Board]) -> None:
    """See that two launches were of the same boards.

    Raises:
        EnvironmentProblem: naming both.
    """
    known, found = ([(board.uuid, board.name) for board in boards] for boards in (before, now))
    if known != found:
        raise EnvironmentProblem(
            Problem(
                "the boards changed between launches",
                found=", ".join(uuid for uuid, _ in found) or "none",
                expected=", ".join(uuid for uuid, _ in known) or "none",
                remedy="All repeats of a run are of the same boards: name them with --gpus.",
            )
        )


def _require_space(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise EnvironmentProblem(
            Problem(f"cannot be made ({error.strerror})", file=str(folder))
        ) from error
    if free < MIN_FREE_BYTES:
        raise EnvironmentProblem(
            Problem(
                "is on a full disk",
                file=str(folder),
                found=f"{free >> 20} MiB free",
                expected=f"at least {MIN_FREE_BYTES >> 20} MiB",
            )
        )
