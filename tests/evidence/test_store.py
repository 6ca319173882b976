"""Tests of evidence: files under their digests, and files that are not what they are called."""

from __future__ import annotations

import gzip
import hashlib
import os
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.store import MAX_EVIDENCE_BYTES, EvidenceFile, fetch, store

LINES = b"one\ntwo\nthree\n4\n"


def test_stored_evidence_is_found_under_its_digest(tmp_path: Path) -> None:
    data = LINES
    entry = store(tmp_path / "evidence", "requests", data)
    assert entry.sha256 == hashlib.sha256(data).hexdigest()
    assert (entry.bytes, entry.lines) == (len(data), 4)
    assert fetch(tmp_path, entry) == data
    assert gzip.decompress((tmp_path / entry.path).read_bytes()) == data
    assert [p.name for p in (tmp_path / "evidence").iterdir()] == [Path(entry.path).name]


def test_c27_evidence_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = LINES
    seen: list[tuple[str, bytes]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((path.suffix, gzip.decompress(path.read_bytes())))

    monkeypatch.setattr(os, "fsync", watched)
    store(tmp_path, "requests", data)
    assert seen == [(".partial", data)]


def test_c27_evidence_that_cannot_be_synced_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store(tmp_path, "requests", GOOD)
    assert not list(tmp_path.glob("*.jsonl.gz"))


@pytest.mark.parametrize("changes", [{"path": "../evidence/x.jsonl.gz"}, {"lines": 3}])
def test_an_entry_that_is_refused_is_named_with_what_to_do(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    entry = planted(tmp_path, gzip.compress(GOOD), GOOD, **changes)
    with pytest.raises(InputError) as caught:
        fetch(tmp_path, entry)
    problem = caught.value.problems[0]
    assert problem.field == f"evidence.requests.{next(iter(changes))}"
    assert None not in (problem.found, problem.expected, problem.remedy)


def planted(folder: Path, packed: bytes, data: bytes, **changes: Any) -> EvidenceFile:
    """Put `packed` where the evidence `data` belongs; return the entry that points there."""
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / "evidence" / f"{sha256}.jsonl.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(packed)
    entry: dict[str, Any] = {
        "role": "requests",
        "path": f"evidence/{path.name}",
        "sha256": sha256,
        "bytes": len(data),
        "lines": data.count(b"\n"),
    }
    return EvidenceFile(**(entry | changes))


GOOD = b"one\ntwo\n"


def named(data: bytes) -> bytes:
    """Pack as gzip with the name of a file, which nothing inflates."""
    packed = gzip.compress(data)
    return packed[:3] + b"\x08" + packed[4:10] + b"/home/somebody/secret\0" + packed[10:]


def stuffed(data: bytes) -> bytes:
    """Pack as gzip that is much longer than what is in it: stored blocks of nothing."""
    packed = zlib.compressobj(0, zlib.DEFLATED, 31)
    parts = [packed.compress(data)]
    parts += [packed.flush(zlib.Z_FULL_FLUSH) + packed.compress(b"") for _ in range(300)]
    parts += [b"\0\0\0\xff\xff" * 300, packed.flush()]
    return b"".join(parts)


BAD_FILES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "f11_trailing_member": (gzip.compress(GOOD) + gzip.compress(b"more\n"), {}),
    "f11_trailing_bytes": (gzip.compress(GOOD) + b"\0", {}),
    "a_name_in_its_header": (named(GOOD), {}),
    "stuffed": (stuffed(GOOD), {}),
    "cut": (gzip.compress(GOOD)[:-4], {}),
    "no_gzip": (GOOD, {}),
    "zlib_without_gzip": (b"x\x9c\x03\x00\x00\x00\x00\x01", {}),
    "empty": (b"", {}),
    "f25_other_content": (gzip.compress(b"one\ntwi\n"), {}),
    "f25_size_above": (gzip.compress(GOOD), {"bytes": 9}),
    "f25_size_below": (gzip.compress(GOOD), {"bytes": 7}),
    "f25_size_zero": (gzip.compress(GOOD), {"bytes": 0}),
    "f25_lines": (gzip.compress(GOOD), {"lines": 3}),
    "f10_path_outside": (gzip.compress(GOOD), {"path": "../evidence/x.jsonl.gz"}),
    "f10_path_absolute": (gzip.compress(GOOD), {"path": "/etc/passwd"}),
}


@pytest.mark.parametrize(("packed", "changes"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_not_what_its_entry_says_is_refused(
    tmp_path: Path, packed: bytes, changes: dict[str, Any]
) -> None:
    entry = planted(tmp_path, packed, GOOD, **changes)
    with pytest.raises(InputError):
        fetch(tmp_path, entry)


@pytest.mark.parametrize(
    "changes",
    [
        {"bytes": -1},
        {"bytes": MAX_EVIDENCE_BYTES + 1},
        {"lines": -1},
        {"sha256": "../../../etc/passwd"},
        {"sha256": "A" * 64},
        {"bytes": 8.0},
    ],
)
def test_an_entry_that_could_mislead_the_reader_does_not_exist(changes: dict[str, Any]) -> None:
    entry: dict[str, Any] = {"role": "r", "path": "p", "sha256": "0" * 64, "bytes": 1, "lines": 1}
    with pytest.raises(ValidationError):
        EvidenceFile(**(entry | changes))


def test_f11_a_gzip_bomb_is_stopped_at_the_stated_size(tmp_path: Path) -> None:
    much = GOOD * 15_000
    bomb = gzip.compress(b"\0" * 100_000_000)
    assert len(bomb) < len(much)
    entry = planted(tmp_path, bomb, much)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="stated size"):
            fetch(tmp_path, entry)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_f10_links_and_fifos_are_no_evidence(tmp_path: Path) -> None:
    entry = planted(tmp_path, gzip.compress(GOOD), GOOD)
    path, elsewhere = tmp_path / entry.path, tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(InputError):
        fetch(tmp_path, entry)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError):
        fetch(tmp_path, entry)
    path.unlink()
    with pytest.raises(InputError):
        fetch(tmp_path, entry)


def test_f10_a_linked_evidence_folder_is_refused(tmp_path: Path) -> None:
    entry = planted(tmp_path, gzip.compress(GOOD), GOOD)
    (tmp_path / "evidence").rename(tmp_path / "elsewhere")
    (tmp_path / "evidence").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="symbolic link"):
        fetch(tmp_path, entry)
