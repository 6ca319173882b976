"""Runs that somebody tampered with, by chance, and signed again: what a verifier must bear.

A mutant is drawn from a number, the same for the same number. What the digest, the chain and the
signature of a file would give away at once is made good again, so that the checks behind it are
reached; of some mutants it is not, and of others the bytes themselves are broken.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.runs import a_key, write_signed
from tokenwatt_site.canonical import canonical_bytes, sha256_hex
from tokenwatt_site.errors import TokenwattError
from tokenwatt_site.journal import GENESIS, head
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run

STRANGE: Sequence[Any] = (
    *(None, True, False, "", "x", "é", "\u202e", "a\nb", "0", "=1+1", "<img src=x onerror=x()>"),
    *(0, 1, -1, 2, 7, 2**31, 2**53 - 1, -(2**53) + 1, 2**53, 1e308, -1e308, 5e-324, 0.1, -0.0),
    *([], {}, [[]], {"a": 1}, [0] * 100, "a" * 5000, {"__proto__": {}}, "not recorded", "../../x"),
)


def outcome(number: int, pristine: Path, folder: Path) -> str:
    """Make mutant `number` of a run in `folder`, and have it verified.

    Returns:
        "valid", "unsigned" where no file could be made of it, or the number of the check that
        refused it.

    Raises:
        Exception: whatever a verifier raises that is no error of ours.
    """
    rng = random.Random(number)
    path = folder / "run.json"
    try:
        _write(rng, pristine, path)
    except (TokenwattError, ValueError, RecursionError):
        return "unsigned"  # what has no canonical form cannot be signed
    try:
        verify_run(path, root=folder, keyring=Keyring())
    except TokenwattError as error:
        return f"check {getattr(error, 'check', '?')}"
    return "valid"


def _write(rng: random.Random, pristine: Path, path: Path) -> None:
    document = json.loads(pristine.read_bytes())
    pieces = {entry["role"]: _unpacked(pristine, entry) for entry in document["evidence"]}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.4:
            _change_value(rng, document)
        else:
            role = rng.choice(sorted(pieces))
            pieces[role] = _changed_lines(rng, pieces[role])
    if rng.random() < 0.8:
        pieces["journal"] = _chained(pieces["journal"])
        document["journal_head"] = head(pieces["journal"])
    (path.parent / "evidence").mkdir(parents=True, exist_ok=True)
    for entry in document["evidence"] if isinstance(document.get("evidence"), list) else ():
        _store(rng, path.parent, entry, pieces)
    write_signed(path, document, a_key())  # that of the pristine run, with which its journal opens
    if rng.random() < 0.1:
        path.write_bytes(_broken(rng, path.read_bytes()))


def _unpacked(pristine: Path, entry: dict[str, Any]) -> bytes:
    return zlib.decompress((pristine.parent / entry["path"]).read_bytes(), 31)


def _store(rng: random.Random, folder: Path, entry: Any, pieces: dict[str, bytes]) -> None:
    """Keep a piece under the digest that it now has, as somebody would who hides a change."""
    role = entry.get("role") if isinstance(entry, dict) else None
    if not isinstance(role, str) or role not in pieces:
        return
    data = pieces[role]
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    packed = compressor.compress(data) + compressor.flush()
    if rng.random() < 0.05:
        packed = _broken(rng, packed)
    name = f"evidence/{sha256_hex(data)}.jsonl.gz"
    (folder / name).write_bytes(packed)
    told = {"path": name, "sha256": sha256_hex(data), "bytes": len(data)}
    entry |= told | {"lines": data.count(b"\n")}


def _chained(data: bytes) -> bytes:
    """Give each line the digest of the one before, and its number, where it is a line at all."""
    lines, prev = [], GENESIS
    for number, line in enumerate(data.split(b"\n")[:-1]):
        chained = line
        with suppress(ValueError, TypeError, TokenwattError):
            chained = canonical_bytes({**json.loads(line), "seq": number, "prev": prev})
        lines.append(chained)
        prev = sha256_hex(chained)
    return b"".join(line + b"\n" for line in lines)


def _changed_lines(rng: random.Random, data: bytes) -> bytes:
    """Change one line, drop it, write it twice or elsewhere; or break a byte."""
    if rng.random() < 0.1:
        return _broken(rng, data)
    lines = data.split(b"\n")[:-1]
    at = rng.randrange(len(lines))
    change = rng.choice(("value", "value", "value", "drop", "twice", "swap"))
    if change == "drop":
        del lines[at]
    elif change == "twice":
        lines.insert(at, lines[at])
    elif change == "swap":
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        value = json.loads(lines[at])
        _change_value(rng, value)
        lines[at] = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    return b"".join(line + b"\n" for line in lines)


def _change_value(rng: random.Random, value: Any) -> None:
    """Change something at a random place: another value, a near one, none, or one of its kin."""
    place = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.1:
            break
        place = inner
    changes: list[Callable[[], None]] = [
        lambda: place.__setitem__(key, rng.choice(STRANGE)),
        lambda: place.__setitem__(key, _near(rng, inner)),
        lambda: place.__setitem__(key, _near(rng, inner)),
        lambda: place.__delitem__(key),
        lambda: place.__setitem__(key, place[rng.choice(keys)]),
    ]
    rng.choice(changes)()


def _near(rng: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1, 1000, -1000, value, -2 * value))
    if isinstance(value, float):
        return value * rng.choice((1 + 1e-9, 1 + 1e-5, 2, -1))
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        return value[:at] + rng.choice(("", "0", "a", "é", "\u200b")) + value[at + 1 :]
    return rng.choice(STRANGE)


def _broken(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return rng.choice(
        (
            data[:at],
            data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :],
            data[:at] + data[at : at + 50] + data[at:],
            data + data[:at],
        )
    )
