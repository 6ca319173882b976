"""From a spec to a signed run file: what `tokenwatt-site measure` does."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tokenwatt_site.canonical import load_json, read_file
from tokenwatt_site.commands.committing import committer, publish_beside
from tokenwatt_site.commands.output import not_written, require_absent
from tokenwatt_site.commands.questions import Questions, plan_questions
from tokenwatt_site.commands.signing import run_text, signed_run
from tokenwatt_site.commands.verify import KEYS_FOLDER, verify
from tokenwatt_site.errors import (
    EnvironmentProblem,
    InputError,
    Interrupted,
    Problem,
    SpecError,
    TokenwattError,
    UsageError,
)
from tokenwatt_site.evidence.store import EvidenceFile, fetch
from tokenwatt_site.files import put, put_new
from tokenwatt_site.journal import Entry
from tokenwatt_site.journal import parse as parse_journal
from tokenwatt_site.measure.fleet.senders import ALONE, Workers
from tokenwatt_site.measure.session import Events, kept, measure
from tokenwatt_site.measure.tokenizer import prompts_by_file
from tokenwatt_site.measure.workfolder import SPEC_FILE
from tokenwatt_site.meters import GPU_SCOPES
from tokenwatt_site.model_shape.document import ModelDocument, decode_model
from tokenwatt_site.model_shape.folder import read_model
from tokenwatt_site.run import Run
from tokenwatt_site.schema import valid
from tokenwatt_site.spec import Role, Spec, load_spec, parse_spec
from tokenwatt_site.trace import MAX_TRACE_BYTES, Trace
from tokenwatt_site.trace import parse as parse_trace
from tokenwatt_site.trust.keyring import key_folder, own_id, own_key, signing_key
from tokenwatt_site.validity import require_playable
from tokenwatt_site.windows import windows_of

WORK_FOLDER = Path(".tokenwatt")
RUNS_FOLDER = Path("runs")
MAX_JOURNAL_BYTES = 64 << 20


def find_spec(name: Path) -> Path:
    """Find a spec by path, then in specs/, then among those that came with the package.

    Raises:
        UsageError: there is none of that name.
    """
    packaged = Path(str(resources.files("tokenwatt_site"))) / "specs"
    for candidate in (name, Path("specs") / name, packaged / name):
        if candidate.is_file():
            return candidate
    raise UsageError(
        Problem(
            "there is no such spec",
            file=str(name),
            expected="a file here or in specs/",
            remedy="`tokenwatt-site init --url URL` writes one for a running engine.",
        )
    )


def read_spec(name: Path, *, label: str | None = None, role: Role | None = None) -> Spec:
    """Load a spec, or that of a run file; put another label or role in it; check it for measuring.

    Raises:
        UsageError: not there, not valid, no such workload, or its tokenizer cannot be read.
        EnvironmentProblem: no exact prompts can be made with its tokenizer.
    """
    path = find_spec(name)
    spec = _spec_of_run(path) if path.suffix == ".json" else load_spec(path)
    changes = {"label": label, "role": role}
    if asked := {key: item for key, item in changes.items() if item is not None}:
        spec = parse_spec(spec.to_json() | asked, source=f"{path} with --label and --role")
    if spec.trace is None:  # else the trace decides; see `read_trace`
        with _in_file(path):
            windows_of(spec)
    if spec.endpoint.tokenizer is not None:
        prompts_by_file(spec.endpoint.tokenizer)  # before an engine is started for nothing
    return spec


def _spec_of_run(path: Path) -> Spec:
    """Return the spec of a run file, so that a run can be measured again by its file alone."""
    value = load_json(read_file(path), source=str(path))
    if not isinstance(value, dict) or "spec" not in value:
        raise UsageError(Problem("holds no spec", file=str(path), expected="a spec or a run file"))
    return parse_spec(value["spec"], source=str(path))


def read_trace(name: Path, spec: Spec) -> Trace | None:
    """Return the trace that goes with a spec: the file it names, or the evidence of a run file.

    Args:
        name: the spec or the run file, as given to `read_spec`.
        spec: what `read_spec` made of it.

    Raises:
        UsageError: it is not there, not valid, not the one that the spec's hash names, or too short
            for the repeats that are asked for.
    """
    path = find_spec(name)
    if spec.trace is None:
        return None
    if path.suffix == ".json":
        source = f"{path}: trace"
        data = fetch(path.parent, _entry(path, "trace", "the trace that it plays"))
    else:
        file = path.parent / spec.trace
        source, data = str(file), _read_trace_file(path, file)
    trace = parse_trace(data, source=source)
    with _in_file(path):
        require_playable(spec, windows_of(spec, trace))
    return trace


def _read_trace_file(spec_path: Path, file: Path) -> bytes:
    if not file.resolve().is_relative_to(spec_path.parent.resolve()):
        raise UsageError(
            Problem(
                "leads out of the spec's own folder",
                file=str(spec_path),
                field="trace",
                found=str(file),
                remedy="Put the trace beside the spec; symbolic links are not followed.",
            )
        )
    try:
        return read_file(file, limit=MAX_TRACE_BYTES)
    except InputError as error:
        raise UsageError(
            *(
                replace(p, what=f"{file}: {p.what}", file=str(spec_path), field="trace")
                for p in error.problems
            )
        ) from error


def read_model_files(name: Path, spec: Spec) -> ModelDocument | None:
    """Return the files of `endpoint.model_files`; None: the spec names none.

    A run file brings them as evidence, which counts where the folder is not here.

    Args:
        name: the spec or the run file, as given to `read_spec`.
        spec: what `read_spec` made of it.

    Raises:
        UsageError: they are not there, or not whole.
    """
    if spec.endpoint.model_files is None:
        return None
    folder, path = Path(spec.endpoint.model_files), find_spec(name)
    if path.suffix == ".json" and not folder.exists():
        return decode_model(
            fetch(path.parent, _entry(path, "model", "the files of its model")),
            source=f"{path}: model",
        )
    if not folder.exists():
        raise UsageError(
            Problem(
                "is not there",
                file=str(path),
                field=_MODEL_FILES,
                found=str(folder),
                expected="the folder of the model's config.json, from the folder of this command",
            )
        )
    try:
        return read_model(folder)
    except InputError as error:
        raise UsageError(
            *(
                replace(
                    p,
                    what=": ".join(part for part in (p.file, p.field, p.what) if part),
                    file=str(path),
                    field=_MODEL_FILES,
                )
                for p in error.problems
            )
        ) from error


_MODEL_FILES = "endpoint.model_files"


def board_names(text: str | None) -> tuple[str, ...]:
    """Return the boards that `--gpus` names: UUIDs, or as much of them as tells them apart.

    Raises:
        UsageError: an empty name, or one twice.
    """
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(_BOARD.fullmatch(name) for name in names) or len(set(names)) != len(names):
        raise UsageError(
            Problem(
                "is no list of boards",
                field="--gpus",
                found=repr(text)[:200],
                expected="UUIDs as the driver tells them, each once, with commas between",
            )
        )
    return names


def named_boards(text: str | None, spec: Spec) -> tuple[str, ...]:
    """Return `board_names` where the spec has something that reads boards.

    Raises:
        UsageError: see `board_names`, or nothing reads boards that could be named.
    """
    names = board_names(text)
    if not names:
        return ()
    if not GPU_SCOPES & {spec.setup.power.scope} and "nvml" not in {
        instrument.sensor for instrument in spec.instruments
    }:
        raise UsageError(
            Problem(
                "names boards, and no instrument of the spec reads boards",
                field="--gpus",
                found=f"setup.power.sensor: {spec.setup.power.sensor}",
                remedy="Set setup.power in the spec, or leave --gpus out.",
            )
        )
    return names


_BOARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9/_.:-]{2,99}")


def _entry(path: Path, role: str, what: str) -> EvidenceFile:
    """Return the entry of a run file's evidence that has this role."""
    entries = load_json(read_file(path), source=str(path)).get("evidence")
    listed = entries if isinstance(entries, list) else []
    found = [e for e in listed if isinstance(e, dict) and e.get("role") == role]
    if len(found) != 1:
        raise InputError(Problem(f"does not name {what}", file=str(path), field="evidence"))
    return valid(EvidenceFile, found[0], str(path))


@contextmanager
def _in_file(path: Path) -> Iterator[None]:
    """Name the file whose spec is at fault."""
    try:
        yield
    except SpecError as error:
        raise SpecError(*(replace(p, file=str(path)) for p in error.problems)) from error


def new_folder(spec: Spec) -> Path:
    """Return a folder for the work in progress of a new measurement."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return WORK_FOLDER / f"{spec.label}-{stamp}"


def resumed_spec(folder: Path) -> Spec:
    """Return the spec with which the measurement in `folder` was begun.

    Raises:
        UsageError: there is no measurement in that folder.
    """
    path = folder / "journal.jsonl"
    if not path.is_file():
        raise UsageError(Problem("holds no measurement", file=str(folder)))
    given = folder / SPEC_FILE
    if given.is_file():  # the journal has what is published of it
        return parse_spec(load_json(read_file(given), source=str(given)), source=str(given))
    first = read_file(path, limit=MAX_JOURNAL_BYTES).split(b"\n", 1)[0]
    value = load_json(first, source=str(path))
    try:
        spec = value["data"]["spec"]
    except (KeyError, TypeError) as error:
        raise UsageError(Problem("does not begin with a spec", file=str(path), line=1)) from error
    return parse_spec(spec, source=str(path))


def measure_and_sign(
    spec: Spec,
    folder: Path,
    events: Events,
    *,
    trace: Trace | None = None,
    model: ModelDocument | None = None,
    gpus: Sequence[str] = (),
    beside: Path | None = None,
    out: Path | None = None,
    budget_s: float | None = None,
    commit_to: Path | None = None,
    nonce: str | None = None,
    workers: Workers = ALONE,
) -> tuple[Path, Run]:
    """Measure, derive, sign, and write the run file with its evidence beside it.

    Args:
        spec: what to measure.
        folder: work in progress; reopened when it holds the same measurement.
        events: where progress goes.
        trace: what `read_trace` gave; None where the folder is reopened.
        model: what `read_model_files` gave; as `trace`.
        gpus: boards of the engine, by UUID; as `trace`.
        beside: the folder of the spec's file, from which the data of its task are; as `trace`.
        out: the run file; default runs/<configuration>/<12 hex of run_id>.json.
        budget_s: see `session.measure`.
        commit_to: where the commitment goes before anything is begun; as `trace`.
        nonce: what `publisher_nonce` gave; as `trace`.
        workers: see `session.measure`.

    Raises:
        UsageError: `out` or `commit_to` is there already, or see `plan_questions`.
        EnvironmentProblem: the place of the run file is not writable, or see `session.measure`.
    """
    target = out.parent if out else RUNS_FOLDER / spec.configuration_id
    if out is not None and out.suffix != ".json":
        raise UsageError(
            Problem("is not a name for a run file", file=str(out), expected="a name in .json")
        )
    if out is not None:
        require_absent(out)
    if commit_to is not None:
        require_absent(commit_to)
        _require_writable(commit_to.parent, "--commit-to")
    _require_writable(target)
    signer = _signer(folder)
    try:
        asked = _questions(spec, folder, beside, events)
        measured = measure(
            spec,
            folder,
            events,
            trace,
            keyid=own_id(signer),
            model=model,
            gpus=gpus,
            task=asked.task if asked else None,
            scorer=asked.scorer if asked else None,
            reference=asked.reference if asked else None,
            budget_s=budget_s,
            publisher_nonce=nonce,
            opened=committer(commit_to, folder, signer, events.say) if commit_to else None,
            workers=workers,
        )
    except (EnvironmentProblem, Interrupted, UsageError) as error:
        raise type(error)(*error.problems, *_kept(spec, folder, signer, out)) from error
    try:
        run = signed_run(measured, target, signer)
        path = out or target / f"{run.run_id[:12]}.json"
        publish_beside(folder, path, _go_on(folder, out))
        put_new(path, run_text(run))
    except FileExistsError as error:
        if out is not None:
            raise not_written(target, error, _go_on(folder, out)) from error
        # Its name is its content's: a measurement that was finished before, resumed once more.
        events.say(f"{folder} is finished, and its run was written before")
    except OSError as error:
        raise not_written(target, error, _go_on(folder, out)) from error
    events.say(f"signed {path}")
    verify(path)
    events.say("verified: signature, evidence, journal and every number recomputed")
    return path, run


def _signer(folder: Path) -> Ed25519PrivateKey:
    """Return the own key or, where a measurement is gone on with, the one that it began under."""
    keys, journal = key_folder(os.environ), _journal(folder)
    began = journal[0].data.get("keyid") if journal else None
    return own_key(keys) if began is None else signing_key(keys, str(began))


def _questions(spec: Spec, folder: Path, beside: Path | None, events: Events) -> Questions | None:
    return plan_questions(
        spec,
        folder,
        _journal(folder),
        beside=beside,
        runs=RUNS_FOLDER,
        keys=KEYS_FOLDER,
        say=events.say,
    )


def _journal(folder: Path) -> tuple[Entry, ...]:
    """Return the journal of a measurement as far as it was written; empty: there is none."""
    path = folder / "journal.jsonl"
    if not path.is_file():
        return ()
    data = read_file(path, limit=MAX_JOURNAL_BYTES)
    return parse_journal(data[: data.rfind(b"\n") + 1], str(path))


def _kept(
    spec: Spec, folder: Path, signer: Ed25519PrivateKey, out: Path | None
) -> tuple[Problem, ...]:
    """Sign what a measurement that was broken off left, and say how to go on; or nothing.

    It stays in the work folder, so it is valid and verifiable as far as it goes, and not published.
    """
    if not (folder / "journal.jsonl").is_file():
        return ()
    try:
        partial = kept(spec, folder)
        if not partial.evidence.requests:
            return ()
        if partial.interrupted:
            put(folder / "run.json", run_text(signed_run(partial, folder, signer)))
    except (TokenwattError, OSError):  # the disk may be full; the first error is the one to tell
        return ()
    return (Problem("what was measured is kept", file=str(folder), remedy=_go_on(folder, out)),)


def _go_on(folder: Path, out: Path | None) -> str:
    words = ["tokenwatt-site", "measure", "--resume", str(folder)]
    return f"Go on with: {shlex.join(words + (['--out', str(out)] if out else []))}"


def _require_writable(folder: Path, option: str = "--out") -> None:
    """Fail before hours of measuring rather than after."""
    probe = folder / f".writable-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise EnvironmentProblem(
            Problem(
                f"is not writable ({error.strerror})",
                file=str(folder),
                remedy=f"Give another place with {option}.",
            )
        ) from error
