"""The trust page says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from tokenwatt_site.pages.verification import CHECKS
from tokenwatt_site.trust import verify
from tokenwatt_site.trust.beside import MAX_BYTES, MAX_LINES, MAX_UNKNOWN
from tokenwatt_site.trust.keyring import KeyState
from tokenwatt_site.trust.predicates import KINDS

TRUST = (Path(__file__).parents[1] / "site_src" / "trust.md").read_text(encoding="utf-8")
ROWS = {row.split("|")[1].strip() for row in TRUST.splitlines() if row.startswith("| ")}


def test_the_page_tells_every_state_of_a_key() -> None:
    assert set(get_args(KeyState)) <= ROWS


def test_the_page_tells_when_each_kind_of_statement_counts() -> None:
    told = {kind for row in ROWS for kind in row.split(", ")}
    assert set(KINDS.values()) <= told


def test_the_page_tells_the_caps_on_statements() -> None:
    told = " ".join(TRUST.split())
    assert f"has {MAX_LINES} lines of a file for itself" in told
    assert f"All other keys have {MAX_UNKNOWN} lines of a file together" in told
    assert f"The first {MAX_BYTES >> 20} MiB of a file are read" in told


def test_the_checks_on_the_site_have_the_numbers_of_the_code() -> None:
    numbers = re.findall(r"^ ?(\d+)\. ", verify.__doc__ or "", re.MULTILINE)
    assert [str(check.number) for check in CHECKS] == numbers
