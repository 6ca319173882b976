from __future__ import annotations

import io
import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site import journal
from tokenwatt_site.canonical import canonical_bytes, load_json, sha256_hex
from tokenwatt_site.errors import EnvironmentProblem, InputError
from tokenwatt_site.journal import GENESIS, Journal, parse


def clock() -> str:
    return "2026-12-01T12:00:00.000000Z"


def written(path: Path, events: int = 4) -> bytes:
    """The bytes of a journal with an opening line and some trials."""
    log = Journal(path, clock)
    log.append("open", plan={"repeats": 1})
    for number in range(events - 1):
        log.append("trial_start", trial=number, rate_urps=1_000_000 + number)
    return path.read_bytes()


def sample() -> bytes:
    """Bytes of a journal of three lines, made without the module under test."""
    prev, lines = GENESIS, []
    for seq, event in enumerate(("open", "trial_start", "trial_end")):
        value = {"seq": seq, "at": clock(), "event": event, "prev": prev, "data": {"n": seq}}
        raw = canonical_bytes(value)
        lines.append(raw)
        prev = sha256_hex(raw)
    return b"\n".join(lines) + b"\n"


DATA = sample()


def test_a_line_holds_the_digest_of_the_line_before(tmp_path: Path) -> None:
    lines = written(tmp_path / "j").splitlines()
    values = [load_json(line, source="j") for line in lines]
    assert [value["seq"] for value in values] == [0, 1, 2, 3]
    assert values[0]["prev"] == "0" * 64
    for before, value in itertools.pairwise([*zip(lines, values, strict=True)]):
        assert value[1]["prev"] == sha256_hex(before[0])


def test_the_head_is_the_digest_of_the_last_line(tmp_path: Path) -> None:
    data = written(tmp_path / "j")
    assert journal.head(data) == sha256_hex(data.splitlines()[-1])
    assert journal.head(data) == Journal(tmp_path / "j", clock).head
    assert journal.head(b"") == GENESIS == Journal(tmp_path / "absent", clock).head


def test_what_was_appended_is_parsed(tmp_path: Path) -> None:
    log = Journal(tmp_path / "j", clock)
    line = log.append("open", plan="p", values=[1, 2.5, None, "é"])
    assert parse((tmp_path / "j").read_bytes(), "j") == (line,)
    assert parse(b"", "j") == ()


def test_an_existing_journal_is_continued(tmp_path: Path) -> None:
    written(tmp_path / "j")
    log = Journal(tmp_path / "j", clock)
    log.append("close")
    lines = parse((tmp_path / "j").read_bytes(), "j")
    assert [line.event for line in lines] == ["open", *["trial_start"] * 3, "close"]


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_any_flipped_byte_is_found_by_the_chain_or_by_the_head(at: int, flip: int) -> None:
    damaged = bytearray(DATA)
    damaged[at] ^= flip
    try:
        parse(bytes(damaged), "j")
    except InputError:
        return
    # Nothing chains to the last line but the head, which is signed.
    assert at > DATA[:-1].rfind(b"\n")
    assert journal.head(bytes(damaged)) != journal.head(DATA)


@given(st.permutations(range(3)), st.integers(0, 3))
def test_a_dropped_or_swapped_line_is_found(order: list[int], kept: int) -> None:
    lines = DATA.splitlines(keepends=True)
    data = b"".join(lines[i] for i in order[:kept])
    if order[:kept] == list(range(kept)):
        assert len(parse(data, "j")) == kept
        assert kept == 3 or journal.head(data) != journal.head(DATA)
    else:
        with pytest.raises(InputError) as caught:
            parse(data, "j")
        assert caught.value.problems[0].file is not None


BAD = {
    "cut": DATA[:-1],
    "blank_line": DATA + b"\n",
    "carriage_returns": DATA.replace(b"\n", b"\r\n"),
    "space": DATA.replace(b":", b": ", 1),
    "repeated": DATA + DATA,
    "no_object": b"[]\n",
    "unknown_event": DATA.replace(b"trial_end", b"trial_fin"),
    "unknown_field": DATA.replace(b'{"at"', b'{"an":1,"at"'),
    "not_json": b"x\n",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_journal_of_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        parse(data, "j")


def test_a_broken_chain_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(DATA.replace(b'"n":1', b'"n":7'))
    with pytest.raises(InputError) as caught:
        Journal(path, clock)
    assert caught.value.problems[0].line == 3


def test_a_last_line_that_a_crash_cut_is_removed_on_opening(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(DATA[:-20])
    log = Journal(path, clock)
    assert len(log.lines) == 2
    log.append("interrupted")
    assert [line.event for line in parse(path.read_bytes(), "j")] == [
        *("open", "trial_start", "interrupted")
    ]


def test_a_full_disk_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    data = written(path)
    log = Journal(path, clock)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(EnvironmentProblem, match="No space left"):
            log.append("close")
    assert path.read_bytes() == data
    log.append("close")
    assert len(parse(path.read_bytes(), "j")) == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("when", ["before the disk has it", "after"])
def test_c22_an_interrupt_while_a_line_is_written_leaves_a_chain_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], when: str
) -> None:
    path = tmp_path / "j"
    data = written(path)
    log = Journal(path, clock)
    fsync = os.fsync

    def interrupted(descriptor: int) -> None:
        if when == "after":
            fsync(descriptor)
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted)
        with pytest.raises(error):
            log.append("trial_end", trial=3)
    assert path.read_bytes() == data
    assert len(log.lines) == 4
    assert log.head == journal.head(data)
    log.append("interrupted")
    assert parse(path.read_bytes(), "j") == tuple(log.lines)
    assert [line.event for line in log.lines] == ["open", *["trial_start"] * 3, "interrupted"]


def test_c22_an_interrupt_when_the_line_is_on_disk_leaves_a_chain_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    data = written(path)
    log = Journal(path, clock)

    def interrupted(raw: bytes) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(journal, "sha256_hex", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append("trial_end", trial=3)
    assert path.read_bytes() == data
    log.append("interrupted")
    assert parse(path.read_bytes(), "j") == tuple(log.lines)


def test_a_line_that_only_closing_would_write_is_cut_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A buffered file writes what is left when it is closed, after the first failure.
    path = tmp_path / "j"
    data = written(path)
    log = Journal(path, clock)

    class Reluctant(io.BufferedWriter):
        fails = True

        def flush(self) -> None:
            if self.fails:
                self.fails = False
                raise KeyboardInterrupt
            super().flush()

    def reluctant(at: Path, mode: str) -> Reluctant:
        return Reluctant(io.FileIO(at, mode))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", reluctant)
        with pytest.raises(KeyboardInterrupt):
            log.append("trial_end", trial=3)
    assert path.read_bytes() == data


def test_a_journal_that_cannot_be_written_is_a_problem_of_the_environment(tmp_path: Path) -> None:
    log = Journal(tmp_path / "absent" / "j", clock)
    with pytest.raises(EnvironmentProblem) as caught:
        log.append("open")
    assert caught.value.problems[0].file == str(tmp_path / "absent" / "j")


def test_a_journal_that_cannot_be_read_is_a_problem_of_the_environment(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        Journal(tmp_path, clock)


@pytest.mark.parametrize(
    "value", ["tab\there", "\u202e", float("nan"), 2**53, {"__proto__": 1}, "x" * (1 << 20)]
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, value: object) -> None:
    log = Journal(tmp_path / "j", clock)
    log.append("open")
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(InputError):
        log.append("close", value=value)
    assert (tmp_path / "j").read_bytes() == before
    assert len(log.lines) == 1


def test_more_lines_than_are_read_are_refused_before_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_LINES", 2)
    with pytest.raises(InputError, match="has more lines than are read; found 3"):
        parse(b"\n" * 3, "x")
