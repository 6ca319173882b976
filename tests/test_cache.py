"""Tests of cache: an entry counts under its own key, whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tokenwatt_site.cache import Cache, code_digest

KEY, OTHER = "1" * 64, "2" * 64


def kept(folder: Path, key: str = KEY, data: bytes = b"bytes") -> Path:
    Cache(folder, "kind").keep(key, data)
    return folder / f"{key}.kind"


def test_what_was_kept_is_found_by_whoever_asks_with_its_key(tmp_path: Path) -> None:
    kept(tmp_path / "made" / "when needed", data=b"\x00\n")
    assert Cache(tmp_path / "made" / "when needed", "kind").find(KEY) == b"\x00\n"
    assert Cache(tmp_path / "made" / "when needed", "kind").find(OTHER) is None


def test_kinds_do_not_meet(tmp_path: Path) -> None:
    kept(tmp_path)
    assert Cache(tmp_path, "other").find(KEY) is None


SPOILT: dict[str, Callable[[Path], object]] = {
    "cut": lambda entry: entry.write_bytes(entry.read_bytes()[:-1]),
    "cut in its seal": lambda entry: entry.write_bytes(entry.read_bytes()[:10]),
    "longer": lambda entry: entry.write_bytes(entry.read_bytes() + b"x"),
    "empty": lambda entry: entry.write_bytes(b""),
    "another's": lambda entry: kept(entry.parent, OTHER).rename(entry),
    "a link": lambda entry: entry.symlink_to(entry.rename(entry.with_suffix(".moved"))),
    "a folder": lambda entry: (entry.unlink(), entry.mkdir()),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_what_is_not_as_it_was_kept_is_not_found_and_can_be_kept_again(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    entry = kept(tmp_path)
    spoil(entry)
    assert Cache(tmp_path, "kind").find(KEY) is None
    if not entry.is_dir():
        kept(tmp_path, data=b"again")
        assert Cache(tmp_path, "kind").find(KEY) == b"again"


def test_a_folder_that_cannot_be_written_keeps_nothing_and_is_no_error(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    cache = Cache(taken, "kind")
    cache.keep(KEY, b"bytes")
    cache.drop_unused()
    assert cache.find(KEY) is None
    assert taken.read_text() == "a file"


def test_what_was_neither_found_nor_kept_is_dropped(tmp_path: Path) -> None:
    for key in (KEY, OTHER):
        kept(tmp_path, key)
    Cache(tmp_path, "other").keep(KEY, b"of another kind")
    cache = Cache(tmp_path, "kind")
    cache.find(KEY)
    cache.keep("3" * 64, b"new")
    cache.drop_unused()
    assert {entry.name for entry in tmp_path.iterdir()} == {
        f"{KEY}.kind",
        f"{'3' * 64}.kind",
        f"{KEY}.other",
    }


def test_the_digest_of_the_code_tells_its_parts_apart() -> None:
    assert code_digest() == code_digest()
    assert code_digest() != code_digest(frozenset({".py"}))
    assert code_digest() != code_digest(distributions=("jinja2",))
