"""Tests of engine_log: an engine's counters come back, and another form of them is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.engine import EngineLog, EngineSample, decode_engine, encode_engine

times = st.integers(0, 2**50)
counts = st.none() | st.integers(0, 2**50)

engine_logs = st.builds(
    EngineLog,
    names=st.dictionaries(
        st.sampled_from(["steps", "running"]), st.text("a:_z", min_size=1, max_size=20)
    ),
    samples=st.lists(
        st.builds(
            EngineSample,
            at_ns=times,
            steps=counts,
            prompt_tokens=counts,
            output_tokens=counts,
            running=counts,
            waiting=counts,
            kv_ppm=counts,
            read_mb=counts,
        ),
        max_size=8,
    ).map(tuple),
)

ONE = EngineLog({"steps": "vllm:iteration_tokens_total"}, (EngineSample(5, 1, 2, 3, 4, 5, 6, 7),))


@given(engine_logs)
def test_engine_logs_come_back_as_they_were(log: EngineLog) -> None:
    data = encode_engine(log)
    assert decode_engine(data, source="x") == log
    assert data.count(b"\n") == len(log.samples) + 1


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(1, 255))
def test_a_damaged_log_is_refused_or_read_never_a_crash(tail: bytes, at: int, flip: int) -> None:
    raw = bytearray(encode_engine(ONE))
    raw[at % len(raw)] ^= flip
    for data in (bytes(raw), encode_engine(ONE) + tail, tail):
        try:
            decode_engine(data, source="x")
        except InputError:
            continue


@pytest.mark.parametrize(
    "change",
    [
        {"format": "tokenwatt/engine/2"},
        {"columns": ["at_ns"]},
        {"names": ["steps"]},
        {"names": {"x": "y"}},
        {"more": 1},
    ],
)
def test_headers_of_another_form_are_refused(change: dict[str, Any]) -> None:
    header = json.loads(encode_engine(EngineLog({}, ())))
    with pytest.raises(InputError):
        decode_engine(json.dumps({**header, **change}).encode() + b"\n", source="x")


@pytest.mark.parametrize("row", [b"[5,1,2]\n", b"[null,1,2,3,4,5,6,7]\n", b"[5,1.5,2,3,4,5,6,7]\n"])
def test_samples_of_another_form_are_refused_with_their_line(row: bytes) -> None:
    with pytest.raises(InputError, match="x:2: "):
        decode_engine(encode_engine(EngineLog({}, ())) + row, source="x")
