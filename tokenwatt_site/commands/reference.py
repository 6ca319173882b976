"""Which run's answers a new run's are compared with: found and verified before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenwatt_site.accuracy_spec import AccuracyGate
from tokenwatt_site.canonical import JsonValue, load_json, read_file, sha256_hex
from tokenwatt_site.configuration import group
from tokenwatt_site.errors import InputError, Problem, SpecError, UsageError, VerificationError
from tokenwatt_site.measure.accuracy.reference_run import Reference
from tokenwatt_site.run import SIMULATED_ENGINE, signed_bytes
from tokenwatt_site.spec import Spec, parse_spec
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import ValidatedRun, verify_run

FIELD = "accuracy.reference"


def find_reference(spec: Spec, runs_folder: Path, keyring: Keyring) -> Reference | None:
    """Return the run that `spec` is compared with; None: there is none, and its score stands alone.

    The one that `accuracy.reference` names. Else, of the runs with `role: baseline` that were asked
    the same, preferably of the same model: the newest of their one configuration. Only what may be
    chosen is verified, so that a large folder costs no time.

    Args:
        spec: whose gate says what is asked, word for word.
        runs_folder: all run files under it are looked at; their places and names carry no meaning.
        keyring: the registered keys.

    Raises:
        UsageError: there is no run of that name, or it was asked something else, is not whole or
            not verified; several configurations may be meant; or a baseline names a reference.
    """
    gate, named = spec.setup.accuracy_gate, spec.accuracy.reference
    if spec.role == "baseline":
        if named is not None:
            raise UsageError(
                Problem(
                    "a baseline is what others are compared with",
                    field=FIELD,
                    found=named,
                    remedy="Remove it, or measure with role: candidate.",
                )
            )
        return None
    if gate.asked is None:
        return None
    if named is None:
        return _only_baseline(spec, runs_folder, keyring)
    return _fit(spec, _of_name(named, runs_folder, keyring))


@dataclass(frozen=True, slots=True)
class _Unverified:
    """What a file under the folder says of itself; nothing of it is believed yet."""

    path: Path
    document: JsonValue


def _files(folder: Path, *holding: bytes) -> Iterator[_Unverified]:
    """Yield every run file under `folder` in the order of the paths that has all these bytes."""
    for path in sorted(folder.rglob("*.json")):
        try:
            data = read_file(path)
            wanted = all(part in data for part in holding)
            document = load_json(data, source=str(path)) if wanted else None
        except InputError:
            continue  # the build of the site names it
        if isinstance(document, dict) and "run_schema" in document:
            yield _Unverified(path, document)


def _of_name(named: str, folder: Path, keyring: Keyring) -> ValidatedRun:
    """Return the run whose id begins so, or the headline of the configuration of that id."""
    if re.fullmatch(r"[0-9a-f]{8,64}", named):
        found = [f for f in _files(folder) if _run_id(f.document).startswith(named)]
        ids = sorted({_run_id(f.document) for f in found})
        if len(ids) > 1:
            raise UsageError(
                Problem(
                    "is how several runs begin",
                    field=FIELD,
                    found=named,
                    expected=" or ".join(ids),
                )
            )
        if found:
            return _verified(found[0], folder, keyring)
    digest = named.rpartition("-")[2]
    found = [f for f in _files(folder) if str(f.document.get("configuration")).endswith(digest)]
    for configuration in group([_verified(f, folder, keyring) for f in found]):
        if configuration.id == named:
            return configuration.headline
    raise UsageError(
        Problem(
            f"names no run under {folder}",
            field=FIELD,
            found=named,
            expected="the id of a run, its first 8 digits or more, or the id of a configuration",
            remedy=f"Put the run file and its evidence under {folder}.",
        )
    )


def _run_id(document: JsonValue) -> str:
    return sha256_hex(signed_bytes(document))


def _only_baseline(spec: Spec, folder: Path, keyring: Keyring) -> Reference | None:
    found = list(_baselines(spec, folder))
    model = spec.setup.model.name
    found = [f for f in found if f[1].setup.model.name == model] or found
    configurations = sorted({baseline.configuration_id for _, baseline in found})
    if len(configurations) > 1:
        raise UsageError(
            Problem(
                f"several configurations under {folder} are baselines with this gate",
                field=FIELD,
                found=", ".join(configurations),
                remedy="Name one of them there.",
            )
        )
    if not found:
        return None
    newest, _ = max(found, key=lambda item: (_started(item[0].document), item[0].path))
    return _fit(spec, _verified(newest, folder, keyring))


def _baselines(spec: Spec, folder: Path) -> Iterator[tuple[_Unverified, Spec]]:
    """Yield the files that say of themselves that they are a baseline of the same gate."""
    asked = spec.setup.accuracy_gate.asked
    if asked is None:
        return
    for file in _files(folder, asked.prompts.encode(), b'"baseline"'):
        try:
            told = parse_spec(file.document.get("spec"), source=str(file.path))
        except SpecError:
            continue
        if (
            told.role == "baseline"
            and file.document.get("status") == "complete"
            and file.document.get("simulated") is _is_simulated(spec)
            and not list(_differences(spec.setup.accuracy_gate, told.setup.accuracy_gate, ""))
        ):
            yield file, told


def _started(document: JsonValue) -> str:
    conditions = document.get("conditions")
    return str(conditions.get("started")) if isinstance(conditions, dict) else ""


def _is_simulated(spec: Spec) -> bool:
    return spec.setup.engine.name == SIMULATED_ENGINE


def _verified(file: _Unverified, folder: Path, keyring: Keyring) -> ValidatedRun:
    try:
        return verify_run(file.path, root=folder, keyring=keyring)
    except VerificationError as error:
        raise UsageError(
            Problem(
                "is not verified, so nothing is compared with it",
                file=str(file.path),
                field=FIELD,
                remedy="Mend it or take it away, or name another run.",
            ),
            *(f"check {error.check}: {problem}" for problem in error.problems),
        ) from error


def _fit(spec: Spec, run: ValidatedRun) -> Reference:
    """Return a verified run as the reference of `spec`; UsageError tells all that is in the way."""
    file, log = str(run.path), run.evidence.accuracy
    theirs = run.run.spec.setup.accuracy_gate
    problems = list(_differences(spec.setup.accuracy_gate, theirs, file))
    if run.run.simulated is not _is_simulated(spec):
        words = {True: "simulated", False: "measured"}
        problems.append(
            Problem(
                "is of another kind than what is measured now",
                file=file,
                field="simulated",
                found=words[run.run.simulated],
                expected=words[_is_simulated(spec)],
            )
        )
    if run.run.status != "complete":
        problems.append(Problem("is not whole", file=file, field="status", found=run.run.status))
    answered = [] if log is None else [a.question for a in log.of_repeat(1)]
    if not answered or answered != list(range(_count(theirs.questions))):
        problems.append(
            Problem(
                "does not hold an answer to each question",
                file=file,
                field="evidence.accuracy",
                found=f"{len(answered):,} answers of repeat 1",
                expected=f"{theirs.questions} answers",
            )
        )
    if problems or log is None:
        raise UsageError(*problems)
    entry = next(entry for entry in run.run.evidence if entry.role == "accuracy")
    return Reference(run.run_id, run.run.configuration, entry.sha256, log)


def _count(questions: int | str) -> int:
    return questions if isinstance(questions, int) else 0


def _differences(gate: AccuracyGate, theirs: AccuracyGate, file: str) -> Iterator[Problem]:
    """Yield each field in which a reference was asked something else than `gate` asks."""
    ours, others = _flat(gate), _flat(theirs)
    for name in sorted(ours.keys() | others.keys()):
        if (wanted := ours.get(name)) != (found := others.get(name)):
            yield Problem(
                "is another in the reference, so its answers are to something else",
                file=file,
                field=f"setup.accuracy_gate.{name}",
                found=repr(found),
                expected=repr(wanted),
            )


def _flat(gate: AccuracyGate) -> dict[str, JsonValue]:
    """Return all that makes two gates ask the same; what they allow may differ."""
    value: dict[str, JsonValue] = gate.to_json()
    asked = value.pop("asked", None) or {}
    del value["max_drop_points"]
    return value | {f"asked.{name}": item for name, item in asked.items()}


def score_of(reference: Reference) -> int:
    """Return how many of a reference's answers in repeat 1, which count, are right."""
    return sum(answer.correct for answer in reference.log.of_repeat(1))
