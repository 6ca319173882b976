"""Tests of trust.beside."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import a_key
from tests.support.statements import line as any_line
from tokenwatt_site.errors import InputError
from tokenwatt_site.trust import beside
from tokenwatt_site.trust.beside import (
    MAX_BYTES,
    MAX_LINES,
    MAX_UNKNOWN,
    Lines,
    append,
    gather,
    path_beside,
    read,
    strays,
)
from tokenwatt_site.trust.keyring import own_id
from tokenwatt_site.trust.predicates import Kind

RUN, OTHER = "a" * 64, "b" * 64
KNOWN = {own_id(a_key(seed)) for seed in (1, 2)}


def line(
    kind: Kind = "disputed",
    *,
    seed: int = 1,
    run_id: str = RUN,
    made: str | None = None,
    **said: str,
) -> bytes:
    when = {} if made is None else {"made": made}
    return any_line(kind, run_id, a_key(seed), **when, **said)


def lines(data: bytes) -> Lines:
    return read(data, "x.att.jsonl", run_id=RUN, known=KNOWN)


def told(found: Lines) -> list[tuple[str, str | None]]:
    return [(signed.kind, signed.reason) for signed in found.signed]


DISPUTE, WITHDRAWAL = line(), line("withdrawn")
GOOD = [("disputed", "too fast for its clocks"), ("withdrawn", "the driver was another one")]

BAD = {
    "garbage": (b"garbage\n", "is no statement, or was cut"),
    "an empty line": (b"\n", "is no statement, or was cut"),
    "a conflict of a merge": (b"<<<<<<< HEAD\n", "is no statement, or was cut"),
    "a cut line": (line(reason="cut")[:-9] + b"\n", "is no statement, or was cut"),
    "a changed line": (line(reason="x").replace(b'"sig":"', b'"sig":"A'), "is not base64"),
    "a long line": (b'{"payload":"' + b"A" * 9000 + b'"}]}\n', "is too large"),
    "about another run": (line(run_id=OTHER), "is about another run; found b"),
    "said before": (DISPUTE, "has said before; found disputed by ed25519:"),
    "said before at another time": (line(made="2026-03-01T10:00:00Z"), "as in line 1"),
}


# --- what is read


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_is_named_and_costs_none_of_the_others(bad: str) -> None:
    data, words = BAD[bad]
    found = lines(DISPUTE + data + WITHDRAWAL)
    assert told(found) == GOOD
    (problem,) = found.problems
    assert str(problem).startswith("x.att.jsonl:2: ")
    assert words in str(problem)
    assert found.unheard == frozenset()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_lines_that_say_the_same_the_one_of_the_earlier_date_counts(
    order: tuple[int, int], tmp_path: Path
) -> None:
    both = [DISPUTE, line(made="2026-03-01T10:00:00Z")]
    ones = [both[at] for at in order]
    found = lines(b"".join(ones) + line(seed=2))
    assert [f"{signed.made:%m}" for signed in found.signed] == ["02", "02"]
    assert [problem.line for problem in found.problems] == [2]
    paths = [tmp_path / f"{number}.att.jsonl" for number in range(2)]
    for path, each in zip(paths, ones, strict=True):
        path.write_bytes(each)
    (stated,) = gather(paths, run_id=RUN, known=KNOWN).signed
    assert f"{stated.made:%m}" == "02"


def test_a_last_line_that_was_cut_is_one_bad_line() -> None:
    for end in (1, 2, 3, 200):
        found = lines(DISPUTE + WITHDRAWAL[:-1][:-end])
        assert told(found) == GOOD[:1]
        assert [problem.line for problem in found.problems] == [2]


def test_a_whole_last_line_without_its_end_counts() -> None:
    assert told(lines(DISPUTE + WITHDRAWAL[:-1])) == GOOD
    assert lines(DISPUTE + WITHDRAWAL[:-1]).problems == ()


def test_a_file_without_a_line_states_nothing() -> None:
    assert lines(b"") == Lines((), frozenset(), ())


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=300).map(lambda b: b.replace(b"\n", b"")), max_size=4), st.data()
)
def test_whatever_stands_between_good_lines_they_count(
    bad: list[bytes], data: st.DataObject
) -> None:
    pieces = [(True, DISPUTE), (True, WITHDRAWAL)]
    for each in bad:
        pieces.insert(data.draw(st.integers(0, len(pieces))), (False, each + b"\n"))
    found = lines(b"".join(piece for _, piece in pieces))
    assert sorted(told(found)) == GOOD
    bad_lines = [number for number, (good, _) in enumerate(pieces, 1) if not good]
    assert [problem.line for problem in found.problems] == bad_lines


@settings(max_examples=60)
@given(st.binary(max_size=1500), st.integers(0, 1499))
def test_whatever_is_appended_nothing_that_counted_is_lost(junk: bytes, cut: int) -> None:
    there = DISPUTE + WITHDRAWAL
    assert told(lines(there + junk))[:2] == GOOD
    assert told(lines(there + there[:cut])) == GOOD


# --- too much of it


@pytest.fixture(scope="module")
def strangers() -> list[bytes]:
    """Lines of a key that nobody knows, more than are kept."""
    return [line(seed=9, reason=f"reason {n}") for n in range(MAX_UNKNOWN + 5)]


def test_strangers_do_not_silence_a_known_key_however_much_they_write(
    strangers: list[bytes],
) -> None:
    mixed = [*strangers, DISPUTE, WITHDRAWAL]
    random.Random(1).shuffle(mixed)
    for order in ([*strangers, DISPUTE, WITHDRAWAL], mixed):
        found = lines(b"".join(order))
        assert (
            sorted(t for s, t in zip(found.signed, told(found), strict=True) if s.keyid in KNOWN)
            == GOOD
        )
        assert len(found.signed) == MAX_UNKNOWN + 2
        assert len(found.unheard) == 5
        assert found.problems == ()


def test_a_known_key_that_writes_too_much_silences_itself_alone() -> None:
    many = [line(reason=f"reason {n}") for n in range(MAX_LINES + 1)]
    found = lines(b"".join([*many, line(seed=2), WITHDRAWAL]))
    assert len(found.signed) == MAX_LINES + 1
    assert found.signed[-1].keyid == own_id(a_key(2))
    assert [problem.line for problem in found.problems] == [MAX_LINES + 1, MAX_LINES + 3]
    assert f"is one more line of {own_id(a_key(1))} than is read" in str(found.problems[0])


def test_f23_what_is_behind_the_cap_is_told_and_what_is_before_it_counts() -> None:
    junk = b"x" * 1000 + b"\n"
    head = DISPUTE + junk * ((MAX_BYTES - len(DISPUTE)) // len(junk))
    found = lines(head + junk + WITHDRAWAL)
    assert told(found) == GOOD[:1]
    *_, more, last = found.problems
    assert "has more bad lines; found 2,0" in str(more)
    assert last.line == head.count(b"\n") + 1
    assert "is behind what is read; expected at most 2,097,152 bytes in the file" in str(last)


def test_f23_a_line_that_the_cap_cuts_is_behind_it() -> None:
    start = (b"x" * 1000 + b"\n") * (MAX_BYTES // 1001)
    data = start + DISPUTE
    assert len(start) < MAX_BYTES < len(data)
    assert lines(data).problems[-1].line == start.count(b"\n") + 1
    assert told(lines(data)) == []


def test_f23_of_a_million_bad_lines_some_are_named_and_the_others_counted() -> None:
    found = lines(DISPUTE + b"\n" * 1_000_000)
    assert told(found) == GOOD[:1]
    assert len(found.problems) == 21
    assert str(found.problems[-1]) == "x.att.jsonl: has more bad lines; found 999,980"


# --- files


def test_statements_stand_beside_the_run_under_its_stem() -> None:
    assert path_beside(Path("runs/a/notes.v2.json")) == Path("runs/a/notes.v2.att.jsonl")


def test_where_there_is_no_file_nothing_is_stated(tmp_path: Path) -> None:
    stated = gather([tmp_path / "x.att.jsonl"], run_id=RUN, known=KNOWN)
    assert (stated.signed, stated.unheard, stated.unread) == ((), 0, ())


def test_lines_are_appended_and_what_is_there_is_kept_byte_by_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.att.jsonl"
    append(path, DISPUTE)
    append(path, WITHDRAWAL)
    assert path.read_bytes() == DISPUTE + WITHDRAWAL
    assert [p.name for p in tmp_path.iterdir()] == ["x.att.jsonl"]


@pytest.mark.parametrize(
    ("there", "end"),
    [
        (b"garbage\n", b""),
        (line(run_id=OTHER), b""),
        (line(seed=2)[:-9], b"\n"),
        (line(seed=2)[:-1], b"\n"),
        (b"\r\n\n", b""),
    ],
    ids=["garbage", "another run", "a cut line", "a line without its end", "empty lines"],
)
def test_a_bad_line_of_others_blocks_nobody_and_stays(
    tmp_path: Path, there: bytes, end: bytes
) -> None:
    path = tmp_path / "x.att.jsonl"
    path.write_bytes(there)
    append(path, DISPUTE)
    assert path.read_bytes() == there + end + DISPUTE
    assert told(lines(path.read_bytes()))[-1] == GOOD[0]


def test_a_line_that_would_be_a_bad_one_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.att.jsonl"
    full = b"".join(line(reason=f"reason {n}") for n in range(MAX_LINES))
    for there, words in (
        (DISPUTE, r"x\.att\.jsonl:2: says what the same key has said before"),
        (b"garbage\n" + DISPUTE[:-1], r"x\.att\.jsonl:3: .* as in line 2"),
        (full, rf"x\.att\.jsonl:{MAX_LINES + 1}: is one more line of"),
        (b"x" * (MAX_BYTES - len(DISPUTE)), "has no room for one more line"),
        (b"\n" * (MAX_BYTES + 1), "has no room for one more line"),
    ):
        path.write_bytes(there)
        with pytest.raises(InputError, match=words):
            append(path, DISPUTE)
        assert path.read_bytes() == there


def test_a_file_is_filled_to_the_last_byte_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.att.jsonl"
    path.write_bytes(b"x" * (MAX_BYTES - len(DISPUTE) - 1))
    append(path, DISPUTE)
    assert path.stat().st_size == MAX_BYTES
    assert told(lines(path.read_bytes())) == GOOD[:1]


def test_strangers_who_fill_what_is_kept_of_them_block_nobody(
    tmp_path: Path, strangers: list[bytes]
) -> None:
    path = tmp_path / "x.att.jsonl"
    path.write_bytes(b"".join(strangers))
    append(path, DISPUTE)
    stated = gather([path], run_id=RUN, known=KNOWN)
    assert (stated.signed[-1].reason, stated.unheard) == (GOOD[0][1], 5)


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.att.jsonl"
    append(path, DISPUTE)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        append(path, WITHDRAWAL)
    assert path.read_bytes() == DISPUTE
    assert [p.name for p in tmp_path.iterdir()] == ["x.att.jsonl"]


def test_two_that_append_at_once_both_have_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.att.jsonl"
    inside, second = threading.Event(), threading.Event()
    put = beside.put

    def slowly(target: Path, data: bytes) -> None:
        if not inside.is_set():
            inside.set()
            second.wait(10)  # the other is on its way, and must wait for the lock
        put(target, data)

    monkeypatch.setattr(beside, "put", slowly)
    first = threading.Thread(target=append, args=(path, DISPUTE))
    other = threading.Thread(target=append, args=(path, WITHDRAWAL))
    first.start()
    assert inside.wait(10)
    other.start()
    second.set()
    first.join()
    other.join()
    assert sorted(told(lines(path.read_bytes()))) == GOOD


def test_f10_statements_behind_a_link_or_in_a_fifo_are_refused(tmp_path: Path) -> None:
    append(tmp_path / "real.att.jsonl", DISPUTE)
    (tmp_path / "x.att.jsonl").symlink_to(tmp_path / "real.att.jsonl")
    os.mkfifo(tmp_path / "y.att.jsonl")
    paths = [tmp_path / "x.att.jsonl", tmp_path / "y.att.jsonl"]
    stated = gather(paths, run_id=RUN, known=KNOWN)
    assert (stated.signed, [path for path, _ in stated.unread]) == ((), paths)
    for path in paths:
        with pytest.raises(InputError, match=path.name):
            append(path, WITHDRAWAL)


def test_what_several_files_state_is_gathered_once_and_bad_lines_are_named(
    tmp_path: Path, strangers: list[bytes]
) -> None:
    paths = [tmp_path / f"{name}.att.jsonl" for name in "abcd"]
    paths[0].write_bytes(DISPUTE)
    paths[1].write_bytes(DISPUTE + WITHDRAWAL + b"".join(strangers))
    paths[2].write_bytes(line("superseded") + b"garbage\n" + b"".join(strangers[::-1]))
    stated = gather(paths, run_id=RUN, known=KNOWN)
    kinds = [signed.kind for signed in stated.signed if signed.keyid in KNOWN]
    assert kinds == ["disputed", "withdrawn", "superseded"]
    ((path, why),) = stated.unread
    assert path == paths[2]
    assert "c.att.jsonl:2: is no statement" in str(why)
    # What one file leaves out the other has.
    assert (len(stated.signed), stated.unheard) == (3 + MAX_UNKNOWN + 5, 0)


def test_statements_beside_nothing_that_was_read_are_named(tmp_path: Path) -> None:
    files = [tmp_path / "x" / name for name in ("a.att.jsonl", "b.att.jsonl")]
    found = dict(strays(files, [tmp_path / "x" / "a.json", tmp_path / "b.json"]))
    assert list(found) == [files[1]]
    assert "b.json beside it" in str(found[files[1]])
