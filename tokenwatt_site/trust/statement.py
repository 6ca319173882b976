"""Statements: what is signed about a run later, one a line in a file beside it.

A line is a DSSE envelope, as canonical JSON, around an in-toto Statement; its subject is the run,
by the digest of its signed bytes (`run_id`). Any DSSE library verifies it. The predicate carries
the public key, so that a line can be checked by itself; the key is not trusted for that. Lines are
appended, and none is ever changed or taken away.

Not checked here: whose key it is (`trust.keyring`), and what a statement changes
(`trust.standing`). Nor when it was made: `made` is what its signer says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, ValidationError

from tokenwatt_site.canonical import JsonValue, canonical_bytes, load_json, read_file
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.files import locked, put
from tokenwatt_site.schema import Line, Model, Sha256, validation_problems
from tokenwatt_site.trust.predicates import (
    KINDS,
    PREDICATES,
    Disputed,
    Kind,
    Predicate,
    Said,
    Superseded,
    Withdrawn,
)
from tokenwatt_site.trust.registration import KeyId, moment
from tokenwatt_site.trust.signature import decoded, envelope, fits, is_small_order, key_id

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

ENDING = ".att.jsonl"
MAX_BYTES = 2 << 20
MAX_LINE_BYTES = 8 << 10
MAX_STATEMENTS = 1000


class _Digest(Model):
    sha256: Sha256


class _Subject(Model):
    name: Line
    digest: _Digest


class Statement(Model):
    """An in-toto Statement about one run, its predicate not looked at yet."""

    statement_type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: Annotated[tuple[_Subject, ...], Field(min_length=1, max_length=1)]
    predicate_type: str = Field(alias="predicateType")
    predicate: dict[str, JsonValue]


class _Sig(Model):
    keyid: KeyId
    sig: str


class _Envelope(Model):
    payload: str
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: Annotated[tuple[_Sig, ...], Field(min_length=1, max_length=1)]


@dataclass(frozen=True, slots=True)
class Signed:
    """A statement whose signature fits; `line` is its line, without the end of it."""

    kind: Kind
    run_id: str
    said: Predicate
    keyid: str
    line: bytes

    @property
    def made(self) -> datetime:
        return moment(self.said.made)

    @property
    def reason(self) -> str | None:
        """Why it is disputed, withdrawn or superseded; None: it is of another kind."""
        said = self.said
        return said.reason if isinstance(said, Disputed | Withdrawn | Superseded) else None

    @property
    def gist(self) -> bytes:
        """What it says and who says it, whenever: the same for two that say the same."""
        said = self.said.to_json()
        del said["made"]
        return canonical_bytes([self.kind, self.run_id, said])


def path_beside(run_path: Path) -> Path:
    """Return where the statements about a run are: beside its file, under the same stem."""
    return run_path.with_name(f"{run_path.stem}{ENDING}")


def sign(
    kind: Kind,
    run_id: str,
    said: Mapping[str, JsonValue],
    private_key: Ed25519PrivateKey,
    made: str,
) -> bytes:
    """Return the line of a statement, with its end.

    Args:
        kind: what is stated.
        run_id: of the run that it is about.
        said: the fields of the predicate, without `public_key` and `made`.
        private_key: who states it.
        made: when, RFC 3339 in UTC with Z.

    Raises:
        InputError: a field is missing, not one of this kind, or not fit to be published.
    """
    public_key = private_key.public_key().public_bytes_raw()
    payload = canonical_bytes(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": f"run {run_id[:12]}", "digest": {"sha256": run_id}}],
            "predicateType": f"urn:tokenwatt:{kind}:1",
            "predicate": {**said, "public_key": public_key.hex(), "made": made},
        }
    )
    line = envelope(PAYLOAD_TYPE, payload, private_key)
    parse(line + b"\n", f"statement that it is {kind}")  # what is refused is never written
    return line + b"\n"


def parse(data: bytes, source: str) -> tuple[Signed, ...]:
    """Read a file of statements, all about one run, and check every signature.

    Raises:
        InputError: naming the first line that is cut, too long, not canonical, no statement of
            ours, signed under a key of small order or not by its key, about another run than the
            first, or the same as one before it but for its date.
    """
    if data and not data.endswith(b"\n"):
        raise InputError(Problem("the last line is cut", file=source))
    lines = data.split(b"\n")[:-1]
    if len(lines) > MAX_STATEMENTS:
        raise InputError(
            Problem(
                "has more lines than are read",
                file=source,
                found=f"{len(lines):,}",
                expected=f"at most {MAX_STATEMENTS:,}",
            )
        )
    found: list[Signed] = []
    seen: dict[bytes, int] = {}
    for number, line in enumerate(lines, start=1):
        try:
            signed = _signed(line, source)
        except InputError as error:
            raise InputError(*(replace(p, line=number) for p in error.problems)) from error
        _expect_run(signed, found[0].run_id if found else signed.run_id, source, number)
        if (first := seen.setdefault(signed.gist, number)) != number:
            raise InputError(
                Problem(
                    "says what the same key has said before",
                    file=source,
                    line=number,
                    found=f"{signed.kind} by {signed.keyid}, as in line {first}",
                )
            )
        found.append(signed)
    return tuple(found)


def read(path: Path, run_id: str) -> tuple[Signed, ...]:
    """Return the statements about a run in a file; none where there is no file.

    Raises:
        InputError: the file cannot be read, is not what `parse` reads, or is about another run.
    """
    if not os.path.lexists(path):
        return ()
    found = parse(read_file(path, limit=MAX_BYTES), str(path))
    if found:
        _expect_run(found[0], run_id, str(path), 1)
    return found


def gather(
    paths: Iterable[Path], run_id: str
) -> tuple[tuple[Signed, ...], tuple[tuple[Path, InputError], ...]]:
    """Return what files state about a run, each statement once, and the files that are not valid.

    Nothing of a file counts that is not valid as a whole.
    """
    found: dict[bytes, Signed] = {}
    unread: dict[Path, InputError] = {}
    for path in dict.fromkeys(paths):
        try:
            for signed in read(path, run_id):
                found.setdefault(signed.gist, signed)
        except InputError as error:
            unread[path] = error
    return tuple(found.values()), tuple(unread.items())


def strays(folder: Path) -> Iterator[tuple[Path, InputError]]:
    """Yield files of statements beside no file: whoever renames a run does not get rid of them."""
    for where, _, files in os.walk(folder, followlinks=False):
        beside = {path_beside(Path(name)).name for name in files if name.endswith(".json")}
        for name in files:
            if name.endswith(ENDING) and name not in beside:
                path = Path(where, name)
                wanted = f"{name.removesuffix(ENDING)}.json beside it"
                what = "has statements about a run that is not there"
                yield path, InputError(Problem(what, file=str(path), expected=wanted))


def append(path: Path, line: bytes) -> None:
    """Add the line of a statement to a file, which is made where there is none.

    The file is as it was or has the whole line, whatever ends the process; of two processes that
    append at once, both lines are in it.

    Raises:
        InputError: the file is not what `parse` reads, or would not be with the line.
        OSError: it cannot be written.
    """
    with locked(path.parent):
        there = read_file(path, limit=MAX_BYTES) if os.path.lexists(path) else b""
        parse(there + line, str(path))
        put(path, there + line)


def _signed(line: bytes, source: str) -> Signed:
    value = load_json(line, source=source, limit=MAX_LINE_BYTES)
    sealed = _valid(_Envelope, value, source)
    _expect_canonical(value, line, source, "the line")
    payload = decoded(sealed.payload, field="payload", source=source)
    document = load_json(payload, source=source, limit=MAX_LINE_BYTES)
    statement = _valid(Statement, document, source)
    _expect_canonical(document, payload, source, "the payload")
    kind = KINDS.get(statement.predicate_type)
    if kind is None:
        raise InputError(
            Problem(
                "is no statement that this version reads",
                file=source,
                field="predicateType",
                found=repr(statement.predicate_type)[:80],
                expected=" or ".join(KINDS),
            )
        )
    said = _valid(PREDICATES[kind], statement.predicate, source)
    (signature,) = sealed.signatures
    _check_key(signature, said, source)
    sig = decoded(signature.sig, field="signatures.0.sig", source=source)
    if not fits(sig, PAYLOAD_TYPE, payload, bytes.fromhex(said.public_key)):
        raise InputError(
            Problem(
                "does not fit the statement: it was changed after signing, or signed as something"
                " else or with another key",
                file=source,
                field="signatures.0.sig",
                remedy="Ask its signer for the line as it was.",
            )
        )
    run_id = statement.subject[0].digest.sha256
    return Signed(kind=kind, run_id=run_id, said=said, keyid=signature.keyid, line=line)


def _check_key(signature: _Sig, said: Said, source: str) -> None:
    public_key = bytes.fromhex(said.public_key)
    if (expected := key_id(public_key)) != signature.keyid:
        raise InputError(
            Problem(
                "is not the id of the key in the statement",
                file=source,
                field="signatures.0.keyid",
                found=signature.keyid,
                expected=expected,
            )
        )
    if is_small_order(public_key):
        raise InputError(
            Problem(
                "is a key of small order, under which anyone can sign",
                file=source,
                field="predicate.public_key",
                found=said.public_key,
            )
        )


_M = TypeVar("_M", bound=Model)


def _valid(model: type[_M], value: JsonValue, source: str) -> _M:
    try:
        return model.model_validate_json(canonical_bytes(value))
    except ValidationError as error:
        raise InputError(*validation_problems(error, source=source)) from error


def _expect_canonical(value: JsonValue, data: bytes, source: str, what: str) -> None:
    if canonical_bytes(value) != data:
        raise InputError(Problem(f"{what} is not canonical JSON (RFC 8785)", file=source))


def _expect_run(signed: Signed, run_id: str, source: str, line: int) -> None:
    if signed.run_id != run_id:
        raise InputError(
            Problem(
                "is about another run",
                file=source,
                line=line,
                field="subject.0.digest.sha256",
                found=signed.run_id,
                expected=run_id,
            )
        )
