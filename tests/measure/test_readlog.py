from __future__ import annotations

import errno
import tempfile
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure import readlog
from tokenwatt_site.measure.readlog import Read, ReadLog

times = st.integers(-(2**61), 2**61)
reads = st.tuples(st.integers(0, 2**32 - 1), times, times, times, st.binary(max_size=40))


@given(st.lists(reads | st.none()), st.integers(1, 4), st.integers(1, 200))
def test_reads_come_out_in_the_order_they_came(
    steps: list[Read | None], memory_reads: int, file_bytes: int
) -> None:
    """None takes one out."""
    with pytest.MonkeyPatch.context() as patch:
        # A whole read must fit.
        patch.setattr(readlog, "_FILE_BYTES", 72 + file_bytes)
        log, expected = ReadLog(memory_reads=memory_reads), deque[Read]()
        for read in [*steps, *([None] * len(steps))]:
            if read is not None:
                log.append(read)
                expected.append(read)
            elif expected:
                assert log.known_ns == expected[0][1] - expected[0][3]
                assert log.popleft() == expected.popleft()
            assert bool(log) == bool(expected)
        log.close()


def test_memory_is_bounded(tmp_path: Path) -> None:
    log = ReadLog(tmp_path, memory_reads=10)
    for number in range(5_000):
        log.append((number, number, 0, 0, b"x" * 1000))
    assert len(log._first) == 10
    assert len(log._last) < readlog._FILE_BYTES
    assert [log.popleft()[0] for _ in range(5_000)] == list(range(5_000))
    assert not log


def test_the_file_is_in_the_folder_given_and_has_no_name(tmp_path: Path) -> None:
    log = ReadLog(tmp_path, memory_reads=1)
    for _ in range(3):
        log.append((0, 0, 0, 0, b"x" * readlog._FILE_BYTES))
    assert list(tmp_path.iterdir()) == []
    log.close()


def test_without_its_folder_the_trial_ends_with_what_to_do(tmp_path: Path) -> None:
    log = ReadLog(tmp_path / "gone", memory_reads=1)
    log.append((0, 0, 0, 0, b""))
    with pytest.raises(EnvironmentProblem, match="not yet parsed cannot be kept"):
        log.append((0, 0, 0, 0, b""))


def test_a_full_disk_ends_the_trial_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def seek(self, _: int) -> int:
            return 0

        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    log = ReadLog(tmp_path, memory_reads=1)
    log.append((0, 0, 0, 0, b""))
    with pytest.raises(EnvironmentProblem, match="No space left on device"):
        log.append((0, 0, 0, 0, b"x" * readlog._FILE_BYTES))
