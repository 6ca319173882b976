"""Makes statements about runs, and runs of two boards that reproduce each other or do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.runs import RunBuilder, gpu_spec, played_power
from tokenwatt_site.canonical import sha256_hex
from tokenwatt_site.run import signed_bytes
from tokenwatt_site.trust.beside import append, path_beside
from tokenwatt_site.trust.predicates import Kind
from tokenwatt_site.trust.statement import Signed, parse, sign

MADE = "2026-02-01T10:00:00Z"
"""Later than any run that a RunBuilder makes."""

SAID: dict[Kind, dict[str, Any]] = {
    "recomputed": {"level": "model", "numbers": 97, "tool_version": "0.1"},
    "reproduced": {"run": "b" * 64, "outcome": "reproduced"},
    "countersigned": {},
    "disputed": {"reason": "too fast for its clocks", "url": None},
    "settled": {"dispute": "c" * 64, "reason": "it was the cable"},
    "withdrawn": {"reason": "the driver was another one"},
    "superseded": {"by": "b" * 64, "reason": "more launches"},
    "seen": {"statement": "c" * 64},
}
"""A predicate of each kind, without key and time."""


def line(
    kind: Kind, run_id: str, key: Ed25519PrivateKey, *, made: str = MADE, **said: Any
) -> bytes:
    """Return the line of a statement; `said` changes its predicate."""
    return sign(kind, run_id, SAID[kind] | said, key, made)


def signed(kind: Kind, run_id: str, key: Ed25519PrivateKey, **said: Any) -> Signed:
    """Return such a statement as it is read."""
    return parse(line(kind, run_id, key, **said), "a statement")


def run_id_of(path: Path) -> str:
    """Return the id of a run file, whatever is in it."""
    return sha256_hex(signed_bytes(json.loads(path.read_bytes())))


def state(path: Path, kind: Kind, key: Ed25519PrivateKey, **said: Any) -> Path:
    """Append a statement about a run file to the file beside it, and return that."""
    append(path_beside(path), line(kind, run_id_of(path), key, **said))
    return path_beside(path)


def on_boards(
    uuids: Sequence[str], *, repeats: int = 3, builder: dict[str, Any] | None = None, **spec: Any
) -> RunBuilder:
    """Return a measured run on two boards with these UUIDs."""
    changes = {"simulated": False} | (builder or {})
    made = RunBuilder(spec=gpu_spec(protocol__repeats=repeats, **spec), **changes)
    power = played_power(made)
    boards = tuple(
        board.model_copy(update={"uuid": uuid})
        for board, uuid in zip(power.boards, uuids, strict=True)
    )
    return replace(made, power=replace(power, boards=boards))
