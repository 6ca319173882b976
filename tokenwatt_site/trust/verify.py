"""The numbered checks between a file and a page. The only maker of a ValidatedRun.

 1. The file: a regular file inside the folder, reached by no symbolic link, of bounded size.
 2. Strict JSON: what two readers could read differently is refused; it is a run document.
 3. Canonical form: the document has RFC 8785 bytes; `run_id` is their SHA-256. The file itself may
    be indented.
 4. The signature: exactly one, by the key it carries, over those bytes and our payload type.
 5. The schema, the configuration id, the workload's hash: each recomputed. The plan is of a size
    that is drawn. No text looks like a secret or a path in somebody's home, nor does one of 6 or 7.
 6. Evidence: each piece has the digest, size and line count that were signed, and decodes, each
    role is there once, and none that the spec does not ask for. A trace is there where the setup
    plays one, is the one that the workload's hash names, and its parts stand for the whole of it.
    Headers of the model's files have the digest that the setup names. Answers, the run's own and
    the reference's, are to what the accuracy gate asks; no question without an answer is right; a
    text that is kept has the digest and the flags beside it.
 7. The journal: its chain is whole and ends at the signed head; it opens with this configuration,
    this plan and our seed rule, under the key of the signature; a trial that lacks its end was
    broken off, and nothing ends that did not start; no two repeats are of one engine process, where
    it tells its start, and each offers its own realisation; a complete run has them all; before
    each the client was tested, and told is what its prompts were drawn from, which is what the spec
    asks with; a span without load is before or after a launch's trials; of each instrument that the
    spec asks for is told whether it could be read; and what the run says of engine, stamps,
    read-back and that test stands there.
    What engine and driver said of themselves at each launch is what the spec declares.
    Answers were asked for after their repeat, sitting by sitting; where it says to the end, every
    question of the gate has one; a complete run asked so in each repeat that its spec says. The
    reference has the answers that the first line names, or there is none.
 8. Requests: each trial offered the rows that the workload draws, when due, none left out, none
    of a trial that the journal does not name. Answers under load are of the highest passing trial
    of a repeat, and of the rows that the nonce draws.
 9. Plausibility: no request that ends before it starts or is called complete and is not; no trial
    that begins before the one before it ended; power from the source and all the boards that are
    named, in order of time, within what can be read, and none a second time; other readings only of
    instruments that the spec asks for; no span without load that overlaps a trial; no engine's
    counter that runs backwards in one launch; dates that are those of the journal.
10. Recomputation: `claims.derive` comes to the file's numbers, |a - b| <= 5e-7 max(|a|, |b|), on
    two levels. Data: all of them but those of the engine model's replay, which are taken as the
    file has them. Model: those too. The replay is of fits that are of the repeats that have a
    boundary, and that show each boundary that they state; one that asks for more steps than it is
    given is refused.

Each refusal is a VerificationError that carries the number, also where what was signed makes our
own code fail. Not checked, because no file can show it: that the measurement took place. Whoever
makes up consistent evidence passes all ten.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tokenwatt_site.canonical import (
    JsonValue,
    canonical_bytes,
    clean_text,
    load_json,
    read_file,
    sha256_hex,
)
from tokenwatt_site.errors import InputError, Problem, TokenwattError, VerificationError
from tokenwatt_site.evidence.store import fetch
from tokenwatt_site.journal import head, parse
from tokenwatt_site.run import (
    RUN_SCHEMA,
    Claims,
    ClaimsOnlyRecord,
    Run,
    Signature,
    signed_bytes,
)
from tokenwatt_site.schema import valid
from tokenwatt_site.trace import parse as parse_trace
from tokenwatt_site.trials import Evidence, read_trials
from tokenwatt_site.trust import beside, commitment, signature
from tokenwatt_site.trust.accuracy import check_answers, check_asked, check_under_load
from tokenwatt_site.trust.checked import Checked
from tokenwatt_site.trust.consistency import check_journal
from tokenwatt_site.trust.difference import expect_equal
from tokenwatt_site.trust.folder import listing
from tokenwatt_site.trust.held import Held
from tokenwatt_site.trust.instruments import check_engine, check_idle, check_power
from tokenwatt_site.trust.keyring import Keyring, KeyState
from tokenwatt_site.trust.plausibility import check_dates, check_epochs, check_requests
from tokenwatt_site.trust.privacy import (
    refuse_private,
    refuse_private_evidence,
    refuse_private_lines,
)
from tokenwatt_site.trust.promises import NOTHING, Found, Promised, weigh
from tokenwatt_site.trust.recomputation import Level, recomputed
from tokenwatt_site.trust.roles import check_model, check_roles, decoded
from tokenwatt_site.trust.standing import RunStanding, stand, untold
from tokenwatt_site.validity import require_playable
from tokenwatt_site.windows import windows_of

MAX_RUN_EVIDENCE_BYTES = 128 << 20
"""Of all evidence of one run together, uncompressed; 45,000 requests take about 4 MB."""

_MADE_HERE: Final = object()


@dataclass(frozen=True, slots=True)
class ValidatedRun:
    """A run that passed every check; made in this module alone.

    `claims` are the numbers recomputed here from the evidence (equal to the file's own), and
    `run_id` is of the file's own bytes. `level` says how many of them: on "data" those of the
    engine model's replay are the file's own. `standing` is what its key and the statements about
    it make of it, `promised` what its key committed to before. `run`, `claims` and `evidence` are
    `held` packed: each time that they are asked for they may have to be read again.
    """

    path: Path
    run_id: str
    level: Level
    keyid: str
    held: Held
    standing: RunStanding
    promised: Promised = NOTHING
    made_by: InitVar[object] = None

    def __post_init__(self, made_by: object) -> None:
        if made_by is not _MADE_HERE:
            raise TypeError("a ValidatedRun is made by trust.verify alone")

    @property
    def run(self) -> Run:
        """The signed document."""
        return self.held.run

    @property
    def claims(self) -> Claims:
        """The numbers, recomputed."""
        return self.held.claims

    @property
    def evidence(self) -> Evidence:
        """What the numbers follow from.

        Raises:
            InputError: a file is no longer what was verified.
        """
        return self.held.evidence

    @property
    def ended(self) -> datetime:
        """When the run ended, by its own clock."""
        return self.held.ended

    @property
    def opening(self) -> str:
        """The digest of the first line of its journal, by which a commitment names it."""
        return self.held.opening

    @property
    def first_trial(self) -> datetime | None:
        """When its first trial began; None: none did."""
        return self.held.first_trial

    @property
    def key_state(self) -> KeyState:
        """How the key stands among the registered ones."""
        return self.standing.key.state

    @property
    def signer(self) -> str | None:
        """The name under which the key is registered; None: it is not."""
        return self.standing.key.name

    @property
    def numbers(self) -> int:
        """How many numbers were recomputed."""
        left = self.claims.replayed_numbers if self.level == "data" else 0
        return self.claims.numbers - left


@dataclass(frozen=True, slots=True)
class Tree:
    """What a folder of runs holds, each part in the order of the paths."""

    valid: tuple[ValidatedRun, ...]
    quoted: tuple[tuple[Path, ClaimsOnlyRecord], ...]
    refused: tuple[tuple[Path, TokenwattError], ...]


def verify_run(path: Path, *, root: Path, keyring: Keyring, level: Level = "model") -> ValidatedRun:
    """Check a run file and the evidence beside it, and recompute its numbers.

    A key that is not registered is no fault: the result says "unknown". Nor is a line of
    statements, or a commitment, that is not valid: `standing.unread` has it. Reproductions count
    only with the other run in sight, as in `settle`.

    Args:
        path: the run file; its evidence is in `evidence/` beside it.
        root: the folder that the file must lie in.
        keyring: the registered keys.
        level: "data" leaves out the replay of the engine model, which takes seconds.

    Raises:
        VerificationError: with the number of the first check that failed.
    """
    document = _document(path, _bytes(path, root))
    (run,) = settle([_verified(path, document, keyring, level=level)], keyring)
    promise = commitment.path_beside(path)
    if not os.path.lexists(promise):
        return _promised([run], [], keyring)[0][0]
    try:
        found, unread = _found(promise, _document(promise, _bytes(promise, root)), keyring)
    except TokenwattError as error:
        return _unread(run, (promise, error))
    (run,), lies = _promised([run], [found], keyring)
    return _unread(run, *unread, *lies)


def _unread(run: ValidatedRun, *files: tuple[Path, TokenwattError]) -> ValidatedRun:
    """Return a run with files beside it that are not valid; they change nothing else of it."""
    standing = replace(run.standing, unread=(*run.standing.unread, *files))
    return replace(run, standing=standing, made_by=_MADE_HERE)


def _found(
    path: Path, document: JsonValue, keyring: Keyring, only: Collection[Path] | None = None
) -> tuple[Found, tuple[tuple[Path, TokenwattError], ...]]:
    """Return a commitment with what is stated about it, and the files with what is not valid."""
    committed = commitment.parse(canonical_bytes(document), str(path))
    refuse_private(committed.commitment.opening, "opening", file=str(path))
    known = {*keyring.keys, committed.keyid}
    said = beside.gather(_beside([path], only), run_id=committed.digest, known=known)
    return Found(path, committed, said.signed), said.unread


def _promised(
    runs: Sequence[ValidatedRun], found: Sequence[Found], keyring: Keyring
) -> tuple[list[ValidatedRun], tuple[tuple[Path, InputError], ...]]:
    promises, lies = weigh(runs, found, keyring=keyring, now=datetime.now(UTC))
    pairs = zip(runs, promises, strict=True)
    return [replace(run, promised=told, made_by=_MADE_HERE) for run, told in pairs], lies


def _beside(paths: Iterable[Path], only: Collection[Path] | None) -> list[Path]:
    files = [beside.path_beside(path) for path in paths]
    return [file for file in files if only is None or file in only]


def settle(
    runs: Sequence[ValidatedRun], keyring: Keyring, only: Collection[Path] | None = None
) -> tuple[ValidatedRun, ...]:
    """Give each run the standing that the statements beside it make, with the others in sight.

    Statements beside one copy of a run are about every copy, so that none is lost by copying. What
    was found unread beside a run before stays named. Of the files beside them only those of `only`
    are read; None: all.
    """
    now = datetime.now(UTC)
    said = {
        run_id: beside.gather(
            _beside((run.path for run in copies), only),
            run_id=run_id,
            known={*keyring.keys, *(run.keyid for run in copies)},
        )
        for run_id, copies in _copies(runs).items()
    }

    def settled(among: Mapping[str, ValidatedRun]) -> Iterator[ValidatedRun]:
        for run in runs:
            told = said[run.run_id]
            standing = stand(run, told.signed, among=among, keyring=keyring, now=now)
            unread = {**dict(run.standing.unread), **dict(told.unread)}
            standing = replace(standing, unheard=told.unheard, unread=tuple(unread.items()))
            yield replace(run, standing=standing, made_by=_MADE_HERE)

    # A reproduction counts by how the other run stands, and no run stands otherwise for one.
    alone = {run_id: copies[0] for run_id, copies in _copies(settled({})).items()}
    return tuple(settled(alone))


def load_claims_only(path: Path) -> ClaimsOnlyRecord:
    """Read a record that is only quoted: strict load and schema, nothing is recomputed.

    Raises:
        InputError: every field that is wrong.
    """
    return _quoted(path, load_json(read_file(path), source=str(path)))


def read_tree(
    runs_folder: Path,
    keyring: Keyring,
    checked: Checked | None = None,
    only: Collection[Path] | None = None,
) -> Tree:
    """Read every `*.json` under a folder; its place and name carry no meaning.

    Of several copies of a run one counts: one signed with a known key, else the first path. (Where
    its journal tells no key, anyone can sign it again, and must not take its publisher's place by
    that.) Lines of statements and commitments that are not valid, and statements that belong to no
    file, are refused; the run beside them stays. Symbolic links are refused, not followed. A folder
    that is not there is empty.

    Args:
        runs_folder: where they are.
        keyring: the registered keys.
        checked: runs that passed in an earlier call; None verifies all of them.
        only: the files to read, as if there were no others; evidence is as the runs name it.
    """
    runs: list[ValidatedRun] = []
    quoted: list[tuple[Path, ClaimsOnlyRecord]] = []
    found: list[Found] = []
    refused: list[tuple[Path, TokenwattError]] = []
    listed = listing(runs_folder, only)
    for path in listed.documents:
        try:
            data = _bytes(path, runs_folder)
            if checked is not None and (known := checked.find(path, data)) is not None:
                run_id, keyid, held = known  # passed every check, with these bytes and this code
                runs.append(_made(run_id, "model", keyid, held, keyring))
                continue
            document = _document(path, data)
            if isinstance(document, dict) and "record_schema" in document:
                quoted.append((path, _quoted(path, document)))
            elif commitment.is_commitment(document):
                each, unread = _found(path, document, keyring, only)
                found.append(each)
                refused += unread
            else:
                run = _verified(path, document, keyring)
                runs.append(run)
                if checked is not None:
                    checked.keep(data, run.run_id, run.keyid, run.held, run.run.evidence)
        except TokenwattError as error:
            refused.append((path, error))
    runs, lies = _promised(settle(runs, keyring, only), found, keyring)
    refused += lies
    refused += {path: (path, why) for run in runs for path, why in run.standing.unread}.values()
    refused += listed.refused
    subjects = [*(run.path for run in runs), *(each.path for each in found)]
    refused += beside.strays(listed.statements, subjects)
    quoted, contested = _uncontested(quoted)
    refused += contested
    chosen: dict[str, Path] = {}
    for run in sorted(runs, key=_precedence):
        chosen.setdefault(f"run {run.run_id}", run.path)
    for path, record in quoted:
        chosen.setdefault(f"record {record.id}", path)
    named = [(run.path, f"run {run.run_id}") for run in runs]
    named += [(path, f"record {record.id}") for path, record in quoted]
    refused += [
        (path, InputError(Problem(f"is a copy of {name}", file=str(path), found=str(chosen[name]))))
        for path, name in named
        if chosen[name] != path
    ]
    kept = set(chosen.values())
    return Tree(
        tuple(run for run in runs if run.path in kept),
        tuple(item for item in quoted if item[0] in kept),
        tuple(sorted(refused, key=lambda item: item[0])),
    )


def _uncontested(
    quoted: Sequence[tuple[Path, ClaimsOnlyRecord]],
) -> tuple[list[tuple[Path, ClaimsOnlyRecord]], list[tuple[Path, InputError]]]:
    """Part from the records those that tell different things under one id; nobody is right."""
    told: dict[str, list[tuple[Path, ClaimsOnlyRecord]]] = {}
    for path, record in quoted:
        told.setdefault(record.id, []).append((path, record))
    refused = [
        (
            path,
            InputError(
                Problem(
                    "is also the id of another record",
                    file=str(path),
                    field="id",
                    found=name,
                    expected="its own",
                )
            ),
        )
        for name, each in told.items()
        if any(record != each[0][1] for _, record in each)
        for path, _ in each
    ]
    return [item for item in quoted if item[0] not in dict(refused)], refused


def _precedence(run: ValidatedRun) -> tuple[bool, Path]:
    return not run.standing.key.trusted, run.path


def _copies(runs: Iterable[ValidatedRun]) -> dict[str, list[ValidatedRun]]:
    found: dict[str, list[ValidatedRun]] = {}
    for run in sorted(runs, key=_precedence):
        found.setdefault(run.run_id, []).append(run)
    return found


def _quoted(path: Path, document: JsonValue) -> ClaimsOnlyRecord:
    record = valid(ClaimsOnlyRecord, document, str(path))
    refuse_private(document, file=str(path))
    return record


@contextmanager
def _check(number: int, path: Path) -> Iterator[None]:
    """Give what goes wrong inside the number of the check, and the file's name."""
    try:
        yield
    except TokenwattError as error:
        raise VerificationError(number, *(_in_file(p, path) for p in error.problems)) from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # Absurd values that somebody signed must cost one run, not the site.
        text = clean_text(f"{type(error).__name__}: {error}")
        raise VerificationError(
            number, Problem(f"holds values that cannot be used ({text})", file=str(path))
        ) from error


def _in_file(problem: Problem, path: Path) -> Problem:
    return Problem(
        what=problem.what,
        file=problem.file or str(path),
        line=problem.line,
        field=problem.field,
        found=problem.found,
        expected=problem.expected,
        remedy=problem.remedy,
    )


def _bytes(path: Path, root: Path) -> bytes:
    # (1) the file
    with _check(1, path):
        try:
            inside = path.absolute().relative_to(root.absolute())
            real = root.resolve() / inside == path.resolve()
        except (ValueError, OSError, RuntimeError):
            real = False
        if not real:
            raise InputError(
                Problem(
                    "is reached by a symbolic link or lies outside the folder",
                    expected=f"a regular file under {root}",
                )
            )
        return read_file(path)


def _document(path: Path, data: bytes) -> JsonValue:
    # (2) strict JSON
    with _check(2, path):
        return load_json(data, source=str(path))


@contextmanager
def _uncollected() -> Iterator[None]:
    """What is read stays: to look for garbage in it, again and again, takes a fifth of the time."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


@_uncollected()
def _verified(
    path: Path,
    document: JsonValue,
    keyring: Keyring,
    *,
    level: Level = "model",
) -> ValidatedRun:
    # (2) a run document
    with _check(2, path):
        _expect_run(document)
    # (3) canonical form
    with _check(3, path):
        body = signed_bytes(document)
    # (4) the signature, before any other part of the document is looked at
    with _check(4, path):
        signed = _one_signature(document.get("signatures"), str(path))
        signature.check(body, signed)
    # (5) schema, configuration id, workload
    with _check(5, path):
        refuse_private(document)
        run = _run(document, str(path))
    # (6) evidence
    with _check(6, path):
        raw = _fetched(path.parent, run)
        trace = parse_trace(raw["trace"], source=f"{path}: trace") if "trace" in raw else None
        windows = windows_of(run.spec, trace)
        require_playable(run.spec, windows)
        evidence = decoded(raw, trace, str(path))
        refuse_private_evidence(evidence)
        check_model(run.spec, evidence.model)
        check_answers(run.spec, evidence)
    # (7) the journal
    with _check(7, path):
        journal = parse(raw["journal"], f"{path}: journal")
        expect_equal("journal_head", run.journal_head, head(raw["journal"]))
        refuse_private_lines(journal)
        check_journal(run, journal, windows, signed.keyid)
        evidence = replace(evidence, journal=journal)
        told = check_asked(run, evidence)
    # (8) requests
    with _check(8, path):
        trials = read_trials(run.spec, evidence)
        check_under_load(run.spec, evidence, trials, told.compared)
    # (9) plausibility, before the work that the evidence asks for
    with _check(9, path):
        check_dates(run, journal, datetime.now(UTC))
        check_requests(evidence.requests)
        check_epochs(trials)
        check_idle(journal, trials)
        check_power(run, evidence)
        check_engine(journal, trials, evidence.engine)
    # (10) recomputation
    with _check(10, path):
        run_id = sha256_hex(body)
        claims, level = recomputed(run, evidence, trials, level=level)
    return _made(run_id, level, signed.keyid, Held.of(path, run, claims, evidence), keyring)


def _made(run_id: str, level: Level, keyid: str, held: Held, keyring: Keyring) -> ValidatedRun:
    standing = untold(keyid, held.ended, keyring=keyring, now=datetime.now(UTC))
    return ValidatedRun(
        path=held.path,
        run_id=run_id,
        level=level,
        keyid=keyid,
        held=held,
        standing=standing,
        made_by=_MADE_HERE,
    )


def _expect_run(document: JsonValue) -> None:
    if not isinstance(document, dict) or "run_schema" not in document:
        raise InputError(
            Problem("is no run file", expected=f'a JSON object with "run_schema": "{RUN_SCHEMA}"')
        )
    if (found := document["run_schema"]) != RUN_SCHEMA:
        raise InputError(
            Problem(
                "has a format that this version does not read",
                field="run_schema",
                found=repr(found)[:80],
                expected=repr(RUN_SCHEMA),
            )
        )


def _one_signature(signatures: JsonValue, source: str) -> Signature:
    if not isinstance(signatures, list) or len(signatures) != 1:
        count = len(signatures) if isinstance(signatures, list) else "none"
        raise InputError(
            Problem(
                "is another number than can be checked",
                field="signatures",
                found=str(count),
                expected="exactly 1",
            )
        )
    return valid(Signature, signatures[0], source)


def _run(document: JsonValue, source: str) -> Run:
    run = valid(Run, document, source)
    expect_equal("configuration", run.configuration, run.spec.configuration_id)
    if run.spec.setup.arrival != "trace":  # that of a trace is in the evidence
        windows_of(run.spec)
    return run


def _fetched(folder: Path, run: Run) -> dict[str, bytes]:
    """Return the evidence by role; `journal` and `requests` are there."""
    check_roles(run.spec, [entry.role for entry in run.evidence])
    if (total := sum(entry.bytes for entry in run.evidence)) > MAX_RUN_EVIDENCE_BYTES:
        raise InputError(
            Problem(
                "is more evidence than is read",
                field="evidence",
                found=f"{total:,} bytes",
                expected=f"at most {MAX_RUN_EVIDENCE_BYTES:,} bytes",
            )
        )
    return {entry.role: fetch(folder, entry) for entry in run.evidence}
