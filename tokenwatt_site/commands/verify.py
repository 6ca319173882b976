"""Check run files and recompute every number in them."""

from __future__ import annotations

from pathlib import Path

from tokenwatt_site.canonical import JsonValue, load_json, read_file
from tokenwatt_site.errors import InputError
from tokenwatt_site.pages import statements
from tokenwatt_site.run import ClaimsOnlyRecord
from tokenwatt_site.trust.commitment import MAX_COMMITMENT_BYTES, Committed, is_commitment
from tokenwatt_site.trust.commitment import parse as parse_commitment
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.recomputation import Level
from tokenwatt_site.trust.verify import ValidatedRun, load_claims_only, verify_run

KEYS_FOLDER = Path("site_src/keys")


def verify(path: Path, keys: Path = KEYS_FOLDER, level: Level = "model") -> ValidatedRun:
    """Run all checks of `trust.verify` on one file; its evidence lies beside it.

    Args:
        path: the run file.
        keys: folder of registered keys; absent means that no key is known.
        level: how deep to recompute; "data" leaves out the replay of the engine model.

    Raises:
        VerificationError: with the number of the check that failed.
    """
    return verify_run(path, root=path.parent, keyring=Keyring.load(keys), level=level)


def numbers(run: ValidatedRun) -> str:
    """Say how many numbers were recomputed, and how many only a replay would make."""
    told = f"{run.numbers} numbers recomputed"
    if left := run.claims.numbers - run.numbers:
        told += f", {left} of the engine model's replay taken as they are"
    return told


def committed_to(run: ValidatedRun) -> list[str]:
    """Return a line for the commitment to a run, and who saw it when; none where there is none."""
    promised = run.promised
    if promised.commitment is None:
        return []
    told = f"committed to at {promised.commitment.committed.commitment.at}, by its key's own word"
    if promised.witness is None:
        return [f"{told}; nobody else saw it"]
    order = "before" if promised.before else "after"
    seen = f"{promised.witness.name} saw it at {promised.witness.at:%Y-%m-%d %H:%M}"
    return [f"{told}; {seen}, {order} the first trial began"]


def stated(run: ValidatedRun) -> list[str]:
    """Return a line for each statement about a run, and whether it counts.

    That of a reproduction cannot without the other run, so it does not.
    """
    lines = [
        f"{statements.minute(told)} {told.signed.kind} by {statements.signer(told)}:"
        f" {statements.says(told)}"
        + (f" (changes nothing: {told.why_not})" if told.why_not else "")
        for told in run.standing.told
    ]
    if run.standing.unheard:
        lines.append(f"{run.standing.unheard:,} more by keys that are not registered (not shown)")
    return lines


def quoted(path: Path) -> ClaimsOnlyRecord | None:
    """Return the record where the file quotes an earlier publication, None for anything else.

    Raises:
        VerificationError: it says that it is such a record, and is not valid.
    """
    value = _document(path)
    is_record = isinstance(value, dict) and "record_schema" in value
    return load_claims_only(path) if is_record else None


def committed(path: Path) -> Committed | None:
    """Return the commitment in a file, None for anything else.

    Raises:
        InputError: it says that it is one, and is not valid.
    """
    if not is_commitment(_document(path)):
        return None
    return parse_commitment(read_file(path, limit=MAX_COMMITMENT_BYTES), str(path))


def _document(path: Path) -> JsonValue:
    try:
        return load_json(read_file(path), source=str(path))
    except InputError:
        return None  # the checks of a run say what is wrong, with their number
