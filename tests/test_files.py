"""A file is there whole or not at all, and nothing else is left."""

import os
import stat
import threading

import pytest

from tokenwatt_site.files import locked, put, put_new, whole_lines

WRITERS = [put, put_new]
NAMES = ["put", "put_new"]


@pytest.mark.parametrize("write", WRITERS, ids=NAMES)
def test_a_file_holds_what_was_written_and_stands_alone(tmp_path, write):
    write(tmp_path / "a.json", b"text")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.json": b"text"}


def test_what_is_there_is_replaced(tmp_path):
    put(tmp_path / "a", b"old")
    put(tmp_path / "a", b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]


@pytest.mark.parametrize("link", [False, True])
def test_what_is_there_is_not_replaced_by_a_new_file(tmp_path, link):
    there = tmp_path / "a"
    if link:
        there.symlink_to("nowhere")
    else:
        there.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        put_new(there, b"new")
    assert list(tmp_path.iterdir()) == [there]
    assert there.is_symlink() == link
    assert link or there.read_bytes() == b"old"


@pytest.mark.parametrize("write", WRITERS, ids=NAMES)
def test_the_bytes_are_on_disk_before_the_file_has_its_name(tmp_path, monkeypatch, write):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append([p.name for p in tmp_path.iterdir()]))
    write(tmp_path / "a", b"text")
    (before,) = seen
    assert len(before) == 1
    assert before[0].startswith(".a.")
    assert before[0].endswith(".partial")


@pytest.mark.parametrize("write", WRITERS, ids=NAMES)
def test_what_cannot_be_written_in_full_leaves_nothing(tmp_path, monkeypatch, write):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "a", b"text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", WRITERS, ids=NAMES)
def test_a_folder_that_is_not_there_is_told(tmp_path, write):
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "no" / "a", b"text")


def test_a_new_file_is_never_readable_by_more_than_its_mode_says(tmp_path, monkeypatch):
    modes = []
    fsync = os.fsync

    def watched(descriptor):
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    put_new(tmp_path / "key", b"secret", mode=0o600)
    modes.append(stat.S_IMODE((tmp_path / "key").stat().st_mode))
    assert modes == [0o600, 0o600]


def test_a_last_line_that_a_crash_cut_is_removed_and_whole_ones_stay(tmp_path):
    path = tmp_path / "lines"
    assert whole_lines(path) == b""
    assert not path.exists()
    path.write_bytes(b"one\ntwo\nthr")
    assert whole_lines(path) == path.read_bytes() == b"one\ntwo\n"
    assert whole_lines(path) == b"one\ntwo\n"


def test_a_folder_is_for_one_at_a_time(tmp_path):
    order = []
    waits = threading.Event()

    def other():
        waits.set()
        with locked(tmp_path):
            order.append("other")

    thread = threading.Thread(target=other)
    with locked(tmp_path):
        thread.start()
        assert waits.wait(10)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_cannot_be_locked(tmp_path):
    with pytest.raises(FileNotFoundError), locked(tmp_path / "none"):
        pass
