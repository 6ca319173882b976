"""The trust page says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from tokenwatt_site.pages.verification import CHECKS
from tokenwatt_site.trust import verify
from tokenwatt_site.trust.keyring import KeyState
from tokenwatt_site.trust.predicates import KINDS

TRUST = (Path(__file__).parents[1] / "site_src" / "trust.md").read_text(encoding="utf-8")
ROWS = {row.split("|")[1].strip() for row in TRUST.splitlines() if row.startswith("| ")}


def test_the_page_tells_every_state_of_a_key() -> None:
    assert set(get_args(KeyState)) <= ROWS


def test_the_page_tells_when_each_kind_of_statement_counts() -> None:
    told = {kind for row in ROWS for kind in row.split(", ")}
    assert set(KINDS.values()) <= told


def test_the_checks_on_the_site_have_the_numbers_of_the_code() -> None:
    numbers = re.findall(r"^ ?(\d+)\. ", verify.__doc__ or "", re.MULTILINE)
    assert [str(check.number) for check in CHECKS] == numbers
