"""How registered keys follow each other, and who may revoke which.

A key names its successor, and that says which key it follows; only where both say so, each under
its own signature, the owner hands over to the next one, and to those that follow that. What one of
them says alone changes nothing: anybody may register a key that names another's.

A revocation is by the key itself or by one that follows it, and not by one before it, which may be
why there is a next one. One that is revoked itself revokes no other, but where its own revocation
says that it had: the dates in both are what their signers say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tokenwatt_site.errors import Problem
from tokenwatt_site.trust.registration import (
    Registration,
    file_name,
    is_revocation_of,
    revocation_name,
)


def successors(keys: Mapping[str, Registration], keyid: str) -> tuple[str, ...]:
    """Return the keys that follow a key, the next one first."""
    found: dict[str, None] = {}
    key = keys.get(keyid)
    while key is not None and (after := _next(keys, key)) is not None and after.keyid not in found:
        found[after.keyid] = None
        key = after
    return tuple(found)


def _next(keys: Mapping[str, Registration], key: Registration) -> Registration | None:
    after = keys.get(key.successor or "")
    return None if after is None or after.follows != key.keyid else after


def chain_problems(keys: Mapping[str, Registration], files: Collection[str]) -> Iterator[Problem]:
    """Yield what is wrong between keys that are each valid; `files` are there, if not all valid."""
    for key in keys.values():
        file = file_name(key.keyid)
        later = successors(keys, key.keyid)
        if key.successor is not None and file_name(key.successor) not in files:
            yield Problem(
                "is not registered",
                file=file,
                field="successor",
                found=key.successor,
                expected=f"{file_name(key.successor)} beside it",
            )
        if key.keyid in later:
            yield Problem(
                "leads back to this key",
                file=file,
                field="successor",
                found=" -> ".join((key.keyid, *later)),
            )
        yield from _revocation_problems(key, keys, later)


def _revocation_problems(
    key: Registration, keys: Mapping[str, Registration], later: Collection[str]
) -> Iterator[Problem]:
    revoked, file = key.revoked, revocation_name(key.keyid)
    last = keys[(key.keyid, *later)[-1]].successor
    if revoked is None or (last is not None and last not in keys):
        return  # the file of a key between is bad or not there, and in the list for that
    if revoked.by not in {key.keyid, *later}:
        yield Problem(
            "is neither this key nor one that follows it, so it cannot revoke it",
            file=file,
            field="by",
            found=revoked.by,
            expected=" or ".join((key.keyid, *later)),
        )
        return
    signer = keys[revoked.by]
    if not is_revocation_of(revoked, key.keyid, signer.public_key):
        yield Problem(
            "does not fit: the revocation was changed after signing, or signed with another key",
            file=file,
            field="sig",
            remedy="Fetch the file again from its owner.",
        )
        return
    if revoked.registration != key.digest:
        yield Problem(
            "was changed after its key was revoked",
            file=file_name(key.keyid),
            found=key.digest,
            expected=f"{revoked.registration}, as {file} says",
            remedy="Put it back as it was: what a revoked key signs counts for nothing.",
        )
    if (
        signer is not key
        and signer.revoked is not None
        and revoked.digest not in (signer.revoked.revocations or ())
    ):
        yield Problem(
            "was revoked itself, and that does not name this among what it had signed before",
            file=file,
            field="by",
            found=f"{revoked.by}, revoked at {signer.revoked.at}",
            expected=f"{revoked.digest} in revocations of {revocation_name(revoked.by)}",
            remedy="Take this file out, and have a key that follows both revoke it.",
        )
