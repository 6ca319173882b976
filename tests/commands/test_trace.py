"""Traces from elsewhere become ours, to the nanosecond and the token; real ones too."""

import json

import pytest
import yaml

from tests.support.runs import a_trace, small_spec_dict
from tokenwatt_site.commands import measure as measure_command
from tokenwatt_site.commands import trace as command
from tokenwatt_site.errors import EnvironmentProblem, InputError, UsageError
from tokenwatt_site.trace import TraceLine, encode, parse

AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 23:59:59.9799600,4808,10\r\n"
    b"2023-11-17 00:00:00.0319600,3180,8\r\n"
    b"2023-11-17 00:00:02,110,27\r\n"
)
MOONCAKE = (
    b'{"timestamp": 500, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 500, "input_length": 7322, "output_length": 490, "hash_ids": [0, 2]}\n'
    b'{"timestamp": 3500, "input_length": 10, "output_length": 1, "hash_ids": []}\n'
)
OURS = encode([TraceLine(0, 5, 6), TraceLine(250_000_000, 7, 8)])
LATER = OURS.replace(b'"arrival_s":0,', b'"arrival_s":0.125,')


def converted(folder, data, name="t.jsonl"):
    source = folder / "source"
    source.write_bytes(data)
    return command.convert(source, folder / name)


FORMATS = {
    "azure": (AZURE, [(0, 4808, 10), (52_000_000, 3180, 8), (2_020_040_000, 110, 27)]),
    "azure with a zone": (
        AZURE.replace(b"00,3180", b"00+00:00,3180").replace(b"\r\n", b"\n"),
        [(0, 4808, 10), (52_000_000, 3180, 8), (2_020_040_000, 110, 27)],
    ),
    "mooncake": (MOONCAKE, [(0, 6758, 500), (0, 7322, 490), (3_000_000_000, 10, 1)]),
    "ours": (OURS, [(0, 5, 6), (250_000_000, 7, 8)]),
    "a later part of ours": (LATER, [(0, 5, 6), (125_000_000, 7, 8)]),
}


@pytest.mark.parametrize("case", FORMATS)
def test_a_trace_of_each_format_is_read_exactly(tmp_path, case):
    data, expected = FORMATS[case]
    written = converted(tmp_path, data)
    assert [tuple(request) for request in written.trace.requests] == expected
    assert parse((tmp_path / "t.jsonl").read_bytes(), source="t") == written.trace


def test_what_is_printed_is_what_a_spec_needs(tmp_path):
    written = converted(tmp_path, a_trace(120).data, "office.jsonl")
    lines = yaml.safe_load(written.spec_lines)
    value = small_spec_dict(trace=lines["trace"])
    value["setup"] |= lines["setup"]
    spec = tmp_path / "a.spec.yaml"
    spec.write_text(json.dumps(value), encoding="utf-8")
    read = measure_command.read_spec(spec)
    assert measure_command.read_trace(spec, read) == written.trace
    assert read.setup.workload.name == "office"


def test_the_summary_tells_rows_duration_rate_and_lengths(tmp_path):
    told = " ".join(converted(tmp_path, AZURE).summary)
    assert "3 rows, 2.0 s, 0.990 requests/s" in told
    assert "input tokens: median 3,180, p90 4,808, 110 to 4,808" in told
    assert "output tokens: median 10, p90 27, 8 to 27" in told


REFUSED = {
    "azure without time": (AZURE.replace(b"2023-11-17 00:00:02", b"soon"), "source:4: TIMESTAMP"),
    "azure without a day": (AZURE.replace(b"2023-11-17 00:00:02", b"2023-02-31 00:00:02"), ":4:"),
    "azure with a column more": (AZURE.replace(b"110,27", b"110,27,1"), "source:4: TIMESTAMP"),
    "azure with half a token": (AZURE.replace(b"110,27", b"1.5,27"), "source:4: ContextTokens"),
    "azure without answer": (AZURE.replace(b"110,27", b"110,0"), "source:4: GeneratedTokens"),
    "azure without a column": (AZURE.replace(b"110,27", b"110"), "source:4: TIMESTAMP"),
    "azure that goes back": (AZURE.replace(b"17 00:00:02", b"16 00:00:02"), "source:4: arrival_s"),
    "mooncake without length": (MOONCAKE.replace(b'"input_length": 10, ', b""), "source:3: keys"),
    "mooncake with a fraction": (MOONCAKE.replace(b"3500", b"3500.5"), "source:3: timestamp"),
    "mooncake without answer": (MOONCAKE.replace(b": 1,", b": 0,"), "source:3: output_length"),
    "mooncake that goes back": (MOONCAKE.replace(b"3500", b"5"), "source:3: arrival_s"),
    "something else": (b"a,b,c\n1,2,3\n", "source:1: is not valid JSON"),
    "nothing": (b"", "does not end with a line feed"),
    "only a head": (AZURE[:41], "no two arrivals apart"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_line_that_is_not_as_its_format_has_it_is_named(tmp_path, case):
    data, words = REFUSED[case]
    with pytest.raises(InputError) as caught:
        converted(tmp_path, data)
    assert words in str(caught.value)
    assert not (tmp_path / "t.jsonl").exists()


def test_a_source_with_more_lines_than_a_trace_may_have_says_how_to_cut_it(tmp_path):
    with pytest.raises(InputError, match="head -n 50000"):
        converted(tmp_path, AZURE[:41] + AZURE[41:78] * 60_000)


@pytest.mark.parametrize("name", ["t.json", "t", ".jsonl", "a b.jsonl"])
def test_a_name_that_a_spec_could_not_give_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="is not a name for a trace"):
        converted(tmp_path, OURS, name)


def test_an_existing_trace_is_never_overwritten(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b"precious")
    with pytest.raises(UsageError, match="is there already"):
        converted(tmp_path, OURS)
    assert (tmp_path / "t.jsonl").read_bytes() == b"precious"


def test_a_folder_that_is_not_there_is_an_environment_problem(tmp_path):
    (tmp_path / "source").write_bytes(OURS)
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        command.convert(tmp_path / "source", tmp_path / "no" / "t.jsonl")


REAL = {
    "AzureLLMInferenceTrace_code.head.csv": (499, 232.7),
    "AzureLLMInferenceTrace_conv.head.csv": (499, 128.9),
    "inference-perf_trace.csv": (20, 13.0),
    "mooncake_conversation_trace.head.jsonl": (100, 33.0),
    "mooncake_synthetic_trace.head.jsonl": (100, 28.0),
}


@pytest.mark.parametrize("name", REAL)
def test_the_head_of_a_real_trace_is_read(tmp_path, test_data, name):
    source = test_data / "traces" / name
    rows, seconds = REAL[name]
    written = command.convert(source, tmp_path / "t.jsonl")
    assert len(written.trace.requests) == rows
    assert written.trace.duration_ns / 1e9 == pytest.approx(seconds, abs=0.06)
    # A naive reading of the same file.
    text = source.read_text(encoding="utf-8")
    if name.endswith("csv"):
        lengths = [tuple(map(int, line.split(",")[1:])) for line in text.splitlines()[1:]]
    else:
        values = map(json.loads, text.splitlines())
        lengths = [(value["input_length"], value["output_length"]) for value in values]
    assert [request[1:] for request in written.trace.requests] == lengths
