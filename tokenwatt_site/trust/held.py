"""What a verified run holds: packed, so that thousands of runs fit, and unpacked when asked for.

Decoded, a run takes some 150 kB, and its evidence up to a hundred times that. Packed, run and
numbers take a twentieth, which an earlier build may have kept in a file; and the evidence stays in
its files: whoever asks for it reads it again, against the digests that were signed. What was asked
for last is kept for a while.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from tokenwatt_site.canonical import canonical_bytes, digest
from tokenwatt_site.evidence.store import fetch
from tokenwatt_site.journal import Entry, parse
from tokenwatt_site.run import Claims, Run
from tokenwatt_site.trace import parse as parse_trace
from tokenwatt_site.trials import Evidence
from tokenwatt_site.trust.commitment import opening_digest
from tokenwatt_site.trust.registration import moment
from tokenwatt_site.trust.roles import decoded

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A run, the numbers recomputed for it, and where its evidence is.

    Attributes:
        path: the run file; its evidence is in `evidence/` beside it.
        files: the paths of its evidence, from the folder of the run file.
        packed: gives run and numbers, as `pack` makes them.
        configuration: the id of its setup.
        setup: the whole digest of that.
        simulated: whether its engine was simulated.
        ended: when it ended, by its own clock.
        opening: the digest of the first line of its journal.
        given_nonce: whether somebody gave a nonce for it, by that line.
        first_trial: when its first trial began; None: none did.
    """

    path: Path
    files: tuple[str, ...]
    packed: Callable[[], bytes]
    configuration: str
    setup: str
    simulated: bool
    ended: datetime
    opening: str
    given_nonce: bool
    first_trial: datetime | None

    @staticmethod
    def of(path: Path, run: Run, claims: Claims, evidence: Evidence) -> Held:
        """Pack a run that was just verified."""
        packed = pack(run, claims)
        held = Held(
            path=path,
            files=tuple(entry.path for entry in run.evidence),
            packed=lambda: packed,
            configuration=run.configuration,
            setup=digest(run.spec.setup.to_json()),
            simulated=run.simulated,
            ended=moment(run.conditions.ended),
            opening=opening_digest(evidence.journal[0]),
            given_nonce=evidence.journal[0].data.get("publisher_nonce") is not None,
            first_trial=first_trial_of(evidence.journal),
        )
        _numbers.put(held, (run, claims))
        _evidence.put(held, evidence)
        return held

    @property
    def run(self) -> Run:
        """The signed document."""
        return _numbers.get(self)[0]

    @property
    def claims(self) -> Claims:
        """The numbers that were recomputed."""
        return _numbers.get(self)[1]

    @property
    def evidence(self) -> Evidence:
        """What the numbers follow from.

        Raises:
            InputError: a file is no longer there, or no longer what was verified.
        """
        return _evidence.get(self)


def pack(run: Run, claims: Claims) -> bytes:
    """Return the bytes of a run and its numbers, where they are not the run's own to the bit."""
    own = b"" if claims == run.claims else canonical_bytes(claims.to_json())
    return zlib.compress(canonical_bytes(run.to_json()) + b"\n" + own)


def _unpacked(held: Held) -> tuple[Run, Claims]:
    document, numbers = zlib.decompress(held.packed()).split(b"\n")
    run = Run.model_validate_json(document)
    return run, Claims.model_validate_json(numbers) if numbers else run.claims


def _read(held: Held) -> Evidence:
    run, name = held.run, str(held.path)
    raw = {entry.role: fetch(held.path.parent, entry) for entry in run.evidence}
    trace = parse_trace(raw["trace"], source=f"{name}: trace") if "trace" in raw else None
    journal = parse(raw["journal"], f"{name}: journal")
    return replace(decoded(raw, trace, name), journal=journal)


def first_trial_of(journal: Sequence[Entry]) -> datetime | None:
    """Return when the first trial began; None: none did."""
    return next((moment(line.at) for line in journal if line.event == "trial_start"), None)


class _Latest(Generic[T]):
    """What was asked for last of so many runs."""

    def __init__(self, count: int, make: Callable[[Held], T]) -> None:
        self._count, self._make = count, make
        self._kept: OrderedDict[Held, T] = OrderedDict()

    def get(self, held: Held) -> T:
        if held not in self._kept:
            self.put(held, self._make(held))
        self._kept.move_to_end(held)
        return self._kept[held]

    def put(self, held: Held, made: T) -> None:
        self._kept[held] = made
        if len(self._kept) > self._count:
            self._kept.popitem(last=False)


_numbers = _Latest(32, _unpacked)
_evidence = _Latest(2, _read)
