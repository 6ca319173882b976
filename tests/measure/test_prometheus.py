from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate.test_engine import engine, request
from tests.simulate.test_exposition import exposed
from tokenwatt_site.errors import InputError
from tokenwatt_site.measure.prometheus import MAX_BYTES, Metrics, Sample, parse


def read(text: str) -> Metrics:
    return parse(text.encode(), source="test")


def only(text: str) -> Sample:
    told = read(text)
    (name,) = told.names()
    (sample,) = told.samples(name)
    return sample


@pytest.mark.parametrize(
    ("text", "sample"),
    [
        ("a 1", Sample("a", {}, 1.0)),
        ("  a\t 1.5e3 \r\n", Sample("a", {}, 1500.0)),
        ("a{} -.5", Sample("a", {}, -0.5)),
        ('a{b="c"}1', Sample("a", {"b": "c"}, 1.0)),
        ('a { b = "c" , d="" , } 1', Sample("a", {"b": "c", "d": ""}, 1.0)),
        (r'a{b="x\\y\"z\nw\q"} 2', Sample("a", {"b": 'x\\y"z\nw\\q'}, 2.0)),
        ('a{b="}, {= #"} 3', Sample("a", {"b": "}, {= #"}, 3.0)),
        ('a{b="one\u2028line\u0085"} 3', Sample("a", {"b": "one\u2028line\u0085"}, 3.0)),
        ("a 1 1764600000000", Sample("a", {}, 1.0)),
        ("a 1 1764600000.125", Sample("a", {}, 1.0)),
        ('a_bucket{le="+Inf"} 7 # {trace_id="x"} 0.5', Sample("a_bucket", {"le": "+Inf"}, 7.0)),
        ("vllm:a_total 1e400", Sample("vllm:a_total", {}, math.inf)),
        ("a -Inf", Sample("a", {}, -math.inf)),
    ],
)
def test_a_line_is_a_name_labels_and_a_value(text: str, sample: Sample) -> None:
    assert only(text) == sample


@pytest.mark.parametrize("text", ["nan", "NaN", "NAN"])
def test_a_value_may_be_no_number(text: str) -> None:
    assert math.isnan(only(f"a {text}").value)


@pytest.mark.parametrize(
    "line",
    [
        "...",
        "----------------",
        "Active 2*1g.5gb + 2g.10gb",
        "$ curl http://0.0.0.0:8000/metrics",
        'a{b="c",...} 1',
        'a{b="c"',
        'a{b="c" 1',
        "a{b=c} 1",
        'a{b="c" d="e"} 1',
        "a",
        "a1",
        "a 1_000",
        "a 0x10",
        "a 1 yesterday",
        '1a{b="c"} 1',
        "ä 1",
    ],
)
def test_a_line_that_is_no_sample_is_counted_and_costs_no_other(line: str) -> None:
    told = read(f"before 1\n{line}\n\n# TYPE after gauge\nafter 2")
    assert told.foreign == 1
    assert told.names() == ("before", "after")


def test_series_keep_the_order_of_the_text_and_may_come_twice() -> None:
    told = read('b{n="1"} 1\na 2\nb{n="0"} 3\nb{n="1"} 1\n')
    assert told.names() == ("b", "a")
    assert [(s.labels["n"], s.value) for s in told.samples("b")] == [("1", 1), ("0", 3), ("1", 1)]
    assert "b" in told
    assert "c" not in told
    assert list(told.samples("c")) == []


@pytest.mark.parametrize(
    ("data", "what"), [(b"a 1\n\xff", "is no UTF-8"), (b" " * (MAX_BYTES + 1), "is larger than")]
)
def test_what_is_no_text_or_too_much_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(InputError, match=f"^test: {what}"):
        parse(data, source="test")


NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
KEYS = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SAMPLES = st.builds(
    Sample, NAMES, st.dictionaries(KEYS, TEXTS, max_size=4), st.floats(allow_nan=False)
)


def written(sample: Sample) -> str:
    """Write one sample, as an exporter would."""
    labels = []
    for key, text in sample.labels.items():
        escaped = ""
        for character in text:
            escaped += {"\\": "\\\\", '"': '\\"', "\n": "\\n"}.get(character, character)
        labels.append(f'{key}="{escaped}"')
    value = repr(sample.value).replace("inf", "Inf")
    return f"{sample.name}{{{','.join(labels)}}} {value}" if labels else f"{sample.name} {value}"


@given(st.lists(SAMPLES, max_size=8))
def test_what_an_exporter_writes_is_read_back(samples: list[Sample]) -> None:
    told = read("\n".join(map(written, samples)))
    assert told.foreign == 0
    for name in {sample.name for sample in samples}:
        assert list(told.samples(name)) == [s for s in samples if s.name == name]


@given(st.one_of(st.binary(), st.text(alphabet='a{}="\\,# \n\t1.e+-Inf').map(str.encode)))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        told = parse(data, source="test")
    except InputError:
        return
    for name in told.names():
        assert all(sample.name == name for sample in told.samples(name))


def test_what_the_simulated_engine_exports_is_understood_whole() -> None:
    told = read(exposed(engine(), request(0, 100, 3)).text())
    assert told.foreign == 0
    (tokens,) = told.samples("vllm:generation_tokens_total")
    assert tokens == Sample(
        "vllm:generation_tokens_total", {"engine": "0", "model_name": "a model"}, 3.0
    )


# Lines that are no samples, series, and names, counted by eye or with grep.
@given(st.text(alphabet='ab{}="# 1\n\t', max_size=60), st.sets(st.sampled_from(["a", "b", "ab"])))
def test_series_that_are_wanted_are_the_same_as_when_all_are_read(
    text: str, names: set[str]
) -> None:
    told, some = Metrics(text), Metrics(text, names)
    assert some.names() == tuple(name for name in told.names() if name in names)
    assert [list(some.samples(n)) for n in names] == [list(told.samples(n)) for n in names]


CAPTURES = {
    "amd_device_metrics_exporter_mini": (0, 5, 5),
    "dcgm_a100_mig-disabled": (3, 46, 23),  # a title and two rulers; the same scrape twice
    "dcgm_a100_mig_active": (1, 42, 14),  # a title; three instances
    "nvidia_gpu_exporter_h100-mig_load": (0, 128, 124),
    "nvidia_gpu_exporter_h200_load": (0, 139, 135),
    "sglang_metrics_docs_sample": (0, 91, 20),
    "vllm_aibrix_runtime_docs_sample": (0, 29, 15),
    "vllm_docs_design_sample": (5, 14, 5),  # a prompt, three "...", and labels cut by "..."
    "vllm_metrics_datadog_fixture.trimmed": (0, 49, 26),
}


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_real_capture_is_read(capture: str, test_data: Path) -> None:
    data = (test_data / "prometheus" / f"{capture}.prom").read_bytes()
    told = parse(data, source=capture)
    series = sum(len(list(told.samples(name))) for name in told.names())
    assert (told.foreign, series, len(told.names())) == CAPTURES[capture]
