"""Tests of power_log: what instruments read comes back, and another form of it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.power import (
    Board,
    DramSpan,
    PowerLog,
    PowerSample,
    decode_power,
    encode_power,
)

times = st.integers(0, 2**50)
words = st.text("abcXYZ 0123-_:", min_size=1, max_size=30)


def seen(highest: int) -> st.SearchStrategy[int | None]:
    """A value that was read, or was not."""
    return st.none() | st.integers(0, highest)


boards = st.builds(
    Board,
    uuid=words,
    name=words,
    chosen=st.sampled_from(["by process", "by name", "all there are"]),
    pci=st.none() | words,
    limit_mw=seen(10**7),
    default_limit_mw=seen(10**7),
    bus_bits=seen(10**4),
    memory_mhz=seen(10**4),
    ecc=st.none() | st.booleans(),
    persistence=st.none() | st.booleans(),
    others=seen(100),
)

samples = st.builds(
    PowerSample,
    at_ns=times,
    board=st.integers(0, 3),
    power_mw=seen(10**7),
    energy_mj=seen(2**52),
    instant_mw=seen(10**7),
    dram_ppm=seen(2 * 10**6),
    sm_mhz=seen(10**4),
    memory_mhz=seen(10**4),
    reasons=seen(2**16),
    celsius=st.none() | st.integers(-50, 150),
)

spans = st.builds(
    DramSpan, board=st.integers(0, 3), start_ns=times, end_ns=times, ppm=st.integers(0, 2 * 10**6)
)

power_logs = st.builds(
    PowerLog,
    sensor=st.sampled_from(["nvml", "dcgm", "amd", "rapl", "redfish"]),
    scope=st.sampled_from(["gpu", "module", "cpu", "host"]),
    period_ns=times,
    averaging_ns=st.none() | times,
    boards=st.lists(boards, min_size=4, max_size=4).map(tuple),
    samples=st.lists(samples, max_size=8).map(tuple),
    spans=st.lists(spans, max_size=3).map(tuple),
)

EMPTY = PowerLog("nvml", "gpu", 10**9, None, (), ())
ONE = PowerLog(
    "nvml", "gpu", 10**9, 10**9, (Board(uuid="GPU-0", name="H200"),), (PowerSample(5, 0, 300, 7),)
)


@given(power_logs)
def test_power_logs_come_back_as_they_were(log: PowerLog) -> None:
    data = encode_power(log)
    assert decode_power(data, source="x") == log
    assert data.count(b"\n") == len(log.samples) + 1


@given(power_logs)
def test_the_samples_of_a_board_are_those_that_name_it(log: PowerLog) -> None:
    parts = [log.of_board(board) for board in range(4)]
    assert sum(map(len, parts)) == len(log.samples)
    assert all(s.board == board for board, part in enumerate(parts) for s in part)


@given(st.binary(max_size=60), st.integers(0, 600), st.integers(1, 255))
def test_a_damaged_log_is_refused_or_read_never_a_crash(tail: bytes, at: int, flip: int) -> None:
    raw = bytearray(encode_power(ONE))
    raw[at % len(raw)] ^= flip
    for data in (bytes(raw), encode_power(ONE) + tail, tail):
        try:
            decode_power(data, source="x")
        except InputError:
            continue


def test_b7_what_a_column_holds_is_in_its_name_with_its_unit() -> None:
    header = json.loads(encode_power(ONE).splitlines()[0])
    assert header["columns"][2:4] == ["power_mw", "energy_mj"]


BAD_HEADERS: dict[str, dict[str, Any]] = {
    "a_younger_format": {"format": "tokenwatt/power/3"},
    "b21_a_format_of_other_meaning": {"format": "tokenwatt/power/1"},
    "sensor_is_a_number": {"sensor": 5},
    "unknown_sensor": {"sensor": "meter"},
    "unknown_scope": {"scope": "rack"},
    "columns": {"columns": ["at_ns"]},
    "board_without_uuid": {"boards": [{"name": "H200", "limit_mw": None}]},
    "board_with_more": {"boards": [{"uuid": "GPU-0", "name": "H200", "more": 1}]},
    "negative_period": {"period_ns": -1},
    "negative_limit": {"boards": [{"uuid": "GPU-0", "name": "H200", "limit_mw": -1}]},
    "more": {"more": 1},
}


@pytest.mark.parametrize("change", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_headers_of_another_form_are_refused(change: dict[str, Any]) -> None:
    header = json.loads(encode_power(EMPTY))
    data = json.dumps({**header, **change}).encode()
    with pytest.raises(InputError):
        decode_power(data + b"\n", source="x")


@pytest.mark.parametrize("name", ["tokenwatt/power/1", "tokenwatt/power/3"])
def test_a_log_of_another_format_is_refused_with_what_to_do(name: str) -> None:
    data = encode_power(ONE).replace(b"tokenwatt/power/2", name.encode())
    with pytest.raises(InputError, match=f"found '{name}'.* Read it with the version that wrote"):
        decode_power(data, source="x")


def test_a_header_that_is_wrong_names_the_field() -> None:
    data = encode_power(ONE).replace(b'"limit_mw":null', b'"limit_mw":1.5')
    with pytest.raises(InputError, match=r"x:1: boards\.0\.limit_mw"):
        decode_power(data, source="x")


def test_more_boards_than_any_run_has_are_refused() -> None:
    log = PowerLog("nvml", "gpu", 10**9, None, (Board(uuid="GPU-0", name="H200"),) * 513, ())
    with pytest.raises(InputError, match="x:1: boards"):
        decode_power(encode_power(log), source="x")


def row(**changes: Any) -> bytes:
    values = dict(enumerate(json.loads(encode_power(ONE).splitlines()[1])))
    values |= {int(key.removeprefix("c")): value for key, value in changes.items()}
    return json.dumps(list(values.values())).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (row(c1=1), "board 1 is not in the header"),
        (row(c1=-1), "board -1 is not in the header"),
        (row(c1=None), "column 1 is no integer"),
        (row(c0=None), "column 0 is no integer"),
        (row(c2=300.5), "column 2 is no integer"),
        (row(c3="7"), "column 3 is no integer"),
        (b"[5,0,300,7]\n", "is no array of 10 values"),
    ],
)
def test_samples_of_another_form_are_refused_with_their_line(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=f"x:2: {words}"):
        decode_power(encode_power(ONE).splitlines()[0] + b"\n" + data, source="x")


def test_a_span_of_an_unknown_board_is_refused() -> None:
    data = encode_power(
        PowerLog("nvml", "gpu", 1, None, (), (), (DramSpan(board=0, start_ns=0, end_ns=1, ppm=1),))
    )
    with pytest.raises(InputError, match="x:1: board 0"):
        decode_power(data, source="x")


@pytest.mark.parametrize(
    ("bus_bits", "memory_mhz", "bytes_s"),
    [
        (6144, 3201, 4_916_736_000_000),
        (7680, 3996, 7_672_320_000_000),
        (None, 3201, None),
        (6144, 0, None),
    ],
)
def test_bus_x_clock_counts_both_edges_of_the_clock(
    bus_bits: int | None, memory_mhz: int | None, bytes_s: int | None
) -> None:
    board = Board(uuid="GPU-0", name="x", bus_bits=bus_bits, memory_mhz=memory_mhz)
    assert board.bus_bytes_s == bytes_s
