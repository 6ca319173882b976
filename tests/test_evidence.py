from __future__ import annotations

import gzip
import hashlib
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence import MAX_EVIDENCE_BYTES, EvidenceFile, fetch, store
from tokenwatt_site.power_log import Board, PowerLog, PowerSample, decode_power, encode_power
from tokenwatt_site.records import (
    RequestRecord,
    RequestWriter,
    Status,
    decode_requests,
    encode_requests,
)

times = st.integers(0, 2**50)
counts = st.integers(0, 10**6)


@st.composite
def request_records(draw: st.DrawFn) -> RequestRecord:
    dialled, first = draw(st.none() | times), draw(st.none() | times)
    return RequestRecord(
        repeat=draw(st.integers(1, 3)),
        trial=draw(st.integers(0, 3)),
        row=draw(counts),
        due_ns=draw(times),
        dialled_ns=dialled,
        connected_ns=None if dialled is None else draw(st.none() | times),
        sent_ns=draw(st.none() | times),
        first_ns=first,
        last_ns=None if first is None else draw(st.none() | times),
        end_ns=draw(times),
        prompt_asked=draw(counts),
        prompt_tokens=draw(st.none() | counts),
        cached_tokens=draw(st.none() | counts),
        output_asked=draw(counts),
        output_tokens=draw(st.none() | counts),
        first_tokens=draw(st.none() | counts),
        events=draw(counts),
        uncertainty_ns=draw(times),
        status=draw(st.sampled_from(Status)),
    )


power_logs = st.builds(
    PowerLog,
    sensor=st.just("nvml"),
    scope=st.just("gpu"),
    boards=st.just(tuple(Board(uuid=f"GPU-{i}", name="H200", limit_mw=700_000) for i in range(4))),
    samples=st.lists(
        st.builds(
            PowerSample,
            at_ns=times,
            board=st.integers(0, 3),
            power_mw=st.none() | st.integers(0, 10**7),
            energy_mj=st.none() | st.integers(0, 10**14),
        ),
        max_size=8,
    ).map(tuple),
)

ONE = RequestRecord(
    1, 0, 0, 5, None, None, 6, 7, 9, 10, 32, 32, 0, 3, 3, 1, 3, 100, Status.OK
)  # fmt: skip


@given(st.lists(request_records(), max_size=8))
def test_request_records_come_back_as_they_were(records: list[RequestRecord]) -> None:
    data = encode_requests(records)
    assert decode_requests(data, source="x") == tuple(records)
    assert data.count(b"\n") == len(records) + 1


@given(st.lists(request_records(), max_size=8), st.integers(0, 8))
def test_records_written_as_they_come_are_the_same_bytes(
    records: list[RequestRecord], cut: int
) -> None:
    writer = RequestWriter()
    parts = (writer.header(), writer.lines(records[:cut]), writer.lines(records[cut:]))
    assert b"".join(parts) == encode_requests(records)


@given(power_logs)
def test_power_logs_come_back_as_they_were(log: PowerLog) -> None:
    assert decode_power(encode_power(log), source="x") == log


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(1, 255))
def test_damaged_records_are_refused_or_read_never_a_crash(tail: bytes, at: int, flip: int) -> None:
    raw = bytearray(encode_requests([ONE]))
    raw[at % len(raw)] ^= flip
    for data in (bytes(raw), encode_requests([ONE]) + tail, tail):
        for decode in (decode_requests, decode_power):
            try:
                decode(data, source="x")
            except InputError:
                continue


def test_the_delta_of_the_due_time_starts_again_with_each_trial() -> None:
    second = RequestRecord(
        1, 1, 0, 4, 4, None, None, None, None, 9, 32, None, None, 3, None, None, 0, 0,
        Status.TIMED_OUT,
    )  # fmt: skip
    rows = [json.loads(line) for line in encode_requests([ONE, second]).splitlines()[1:]]
    assert [row[3] for row in rows] == [5, 4]


def changed(line: int, change: Any) -> bytes:
    """Encoded records with one line replaced by `change(old value)`."""
    lines = encode_requests([ONE, ONE]).split(b"\n")
    lines[line] = json.dumps(change(json.loads(lines[line]))).encode()
    return b"\n".join(lines)


BAD_RECORDS = {
    "empty": b"",
    "no_header": b"[1]\n",
    "cut": encode_requests([ONE])[:-1],
    "blank_line": encode_requests([ONE]) + b"\n",
    "power": encode_power(PowerLog("nvml", "gpu", 10**9, None, (), ())),
    "other_format": changed(0, lambda h: {**h, "format": "tokenwatt/requests/3"}),
    "other_columns": changed(0, lambda h: {**h, "columns": h["columns"][::-1]}),
    "more_in_the_header": changed(0, lambda h: {**h, "more": 1}),
    "column_missing": changed(1, lambda r: r[:-1]),
    "column_more": changed(1, lambda r: [*r, 0]),
    "float": changed(1, lambda r: [*r[:3], 5.5, *r[4:]]),
    "bool": changed(1, lambda r: [True, *r[1:]]),
    "text": changed(1, lambda r: ["1", *r[1:]]),
    "null_where_none_may_be": changed(1, lambda r: [None, *r[1:]]),
    "object": changed(1, lambda r: {"row": r}),
    "unknown_status": changed(2, lambda r: [*r[:-1], 9]),
    "last_without_first": changed(2, lambda r: [*r[:7], None, 2, *r[9:]]),
    "connected_without_dialled": changed(2, lambda r: [*r[:4], None, 2, *r[6:]]),
    "huge": changed(1, lambda r: [*r[:3], 2**53, *r[4:]]),
}


@pytest.mark.parametrize("data", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_records_of_another_form_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        decode_requests(data, source="x")


BAD_POWER = {
    "no_boards": {"format": "tokenwatt/power/1"},
    "other_format": {"format": "tokenwatt/power/2"},
    "sensor_is_a_number": {"sensor": 5},
    "columns": {"columns": ["at_ns"]},
    "board_without_uuid": {"boards": [{"name": "H200", "limit_mw": None}]},
}


@pytest.mark.parametrize("change", BAD_POWER.values(), ids=BAD_POWER)
def test_power_headers_of_another_form_are_refused(change: dict[str, Any]) -> None:
    header = json.loads(encode_power(PowerLog("nvml", "gpu", 10**9, None, (), ())))
    data = json.dumps({**header, **change} if change.keys() - {"format"} else change).encode()
    with pytest.raises(InputError):
        decode_power(data + b"\n", source="x")


def test_a_sample_of_an_unknown_board_is_refused() -> None:
    data = encode_power(PowerLog("nvml", "gpu", 10**9, None, (), ())) + b"[1,0,2,3]\n"
    with pytest.raises(InputError, match="board 0"):
        decode_power(data, source="x")


def test_stored_evidence_is_found_under_its_digest(tmp_path: Path) -> None:
    data = encode_requests([ONE] * 3)
    entry = store(tmp_path / "evidence", "requests", data)
    assert entry.sha256 == hashlib.sha256(data).hexdigest()
    assert (entry.bytes, entry.lines) == (len(data), 4)
    assert fetch(tmp_path, entry) == data
    assert gzip.decompress((tmp_path / entry.path).read_bytes()) == data
    assert [p.name for p in (tmp_path / "evidence").iterdir()] == [Path(entry.path).name]


def test_c27_evidence_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode_requests([ONE] * 3)
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

BAD_FILES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "f11_trailing_member": (gzip.compress(GOOD) + gzip.compress(b"more\n"), {}),
    "f11_trailing_bytes": (gzip.compress(GOOD) + b"\0", {}),
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
    bomb = gzip.compress(b"\0" * 100_000_000)
    entry = planted(tmp_path, bomb, GOOD)
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
