"""Replies in their file: there as soon as they came, and whole after any crash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import EnvironmentProblem, InputError
from tokenwatt_site.measure.accuracy.replies import KeptReplies
from tokenwatt_site.measure.accuracy.task import Reply


def reply(question: int, text: str | None = "four", part: int = 1) -> Reply:
    failure = None if text is not None else "HTTP 400"
    return Reply(question, text, 12, 3, "stop", failure, part)


@given(
    texts=st.lists(st.none() | st.text(st.characters(codec=None)), max_size=6),
    cut=st.integers(0, 2000),
)
def test_whatever_a_crash_cuts_off_what_was_kept_before_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], cut: int
) -> None:
    path = tmp_path_factory.mktemp("replies") / "replies.jsonl"
    kept, ends = KeptReplies(path), []
    for number, text in enumerate(texts):
        kept.keep(reply(number, text))
        ends.append(path.stat().st_size)
    size = min(cut, ends[-1] if ends else 0)
    if ends:
        os.truncate(path, size)
    again = KeptReplies(path)
    whole = [number for number, end in enumerate(ends) if end <= size]
    assert again.replies == {number: reply(number, texts[number]) for number in whole}
    again.keep(reply(7, "new"))
    assert KeptReplies(path).replies.keys() == {*whole, 7}


def test_a_later_reply_takes_the_place_of_one_that_failed(tmp_path: Path) -> None:
    kept = KeptReplies(tmp_path / "replies.jsonl")
    kept.keep(reply(3, None))
    kept.keep(reply(3, "nine", part=2))
    assert kept.replies == {3: reply(3, "nine", part=2)}
    assert KeptReplies(tmp_path / "replies.jsonl").replies == kept.replies


@pytest.mark.parametrize("line", [b"{}", b"[1]", b"nonsense", b'{"question": 1}'])
def test_a_line_that_is_no_reply_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "replies.jsonl"
    KeptReplies(path).keep(reply(0))
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(InputError, match=r"replies\.jsonl:2: is no reply.*asked again"):
        KeptReplies(path)


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "replies.jsonl"
    kept = KeptReplies(path)
    kept.keep(reply(0))
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentProblem, match=r"cannot be written \(No space left"):
        kept.keep(reply(1))
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert kept.replies == {0: reply(0)}
    kept.keep(reply(1, "after"))
    assert KeptReplies(path).replies == {0: reply(0), 1: reply(1, "after")}


def test_a_folder_that_is_gone_is_an_error_of_the_environment(tmp_path: Path) -> None:
    kept = KeptReplies(tmp_path / "replies.jsonl")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        KeptReplies(tmp_path / "gone" / "replies.jsonl").keep(reply(0))
    assert kept.replies == {}
