"""A fuzz target: whatever is done to a run, a verifier refuses it by number or finds it valid.

`make proof B=fuzz` goes on where this ends.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.proofs.fuzz import KINDS
from tests.support.mutants import outcome

LIMIT_S = 4
"""How long all mutants may take; the first of each kind are the same on every machine."""

FEWEST, MOST = 20, 400


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_mutant_is_refused_by_a_numbered_check_or_valid(kind: str, tmp_path: Path) -> None:
    pristine = KINDS[kind]().write(tmp_path / "pristine")
    begin, found = time.monotonic(), Counter[str]()
    for number in range(MOST):
        found[outcome(number, pristine, tmp_path / str(number))] += 1
        if number >= FEWEST and time.monotonic() - begin > LIMIT_S / len(KINDS):
            break
    assert "check ?" not in found
    # They get behind the journal, or nothing would be tried of what reads the evidence.
    assert {"check 8", "check 9", "check 10", "valid"} & set(found)
