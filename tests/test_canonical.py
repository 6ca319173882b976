from __future__ import annotations

import base64
import contextlib
import json
import os
import tracemalloc
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenwatt_site import canonical
from tokenwatt_site.canonical import (
    MAX_DEPTH,
    canonical_bytes,
    clean_text,
    digest,
    load_json,
    load_yaml,
    read_file,
    sha256_hex,
    text_fault,
)
from tokenwatt_site.errors import InputError

SAFE_INT = 2**53 - 1

clean = st.text(max_size=12).filter(lambda text: text_fault(text) is None)
integers = st.integers(-SAFE_INT, SAFE_INT)
floats = st.floats(-1e15, 1e15).filter(lambda x: x != 0 or str(x) == "0.0")
scalars = st.none() | st.booleans() | integers | clean
keys = clean.filter(lambda key: key != "__proto__")


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=20,
    )


# Texts that are JSON, nearly JSON, or not at all.
hostile = st.lists(
    st.sampled_from(
        [
            *'{}[],:"\\',
            *("0", "-0", "1", "-1", "0.5", "1e2", "1e400", "-1e-400", "01", "9007199254740992"),
            *("NaN", "Infinity", "true", "null", " ", "\n", "\t", "\ufeff", "\x00", "\u202e"),
            *('"a"', '"a":1', '"\\ud800"', '"\\u0000"', '"e\u0301"', '"__proto__":1', '"\u200b"'),
        ]
    ),
    max_size=14,
).map("".join) | st.text(max_size=30)


def naive_jcs(value: Any) -> str:
    """RFC 8785 for all but floats, by its text alone: section 3.2.2.2 and 3.2.3."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
        return (
            '"'
            + "".join(
                short.get(ord(c), f"\\u{ord(c):04x}") if ord(c) < 32 or c in '"\\' else c
                for c in value
            )
            + '"'
        )
    if isinstance(value, list):
        return "[" + ",".join(map(naive_jcs, value)) + "]"
    units = sorted(value, key=lambda key: [ord(c) for c in as_utf16(key)])
    return "{" + ",".join(f"{naive_jcs(key)}:{naive_jcs(value[key])}" for key in units) + "}"


def as_utf16(text: str) -> str:
    """Each UTF-16 code unit as one character."""
    raw = text.encode("utf-16-be")
    return "".join(chr(raw[i] << 8 | raw[i + 1]) for i in range(0, len(raw), 2))


@given(nested(scalars))
@example({"\U0001f600": 1, "\ufb33": 2, "\r": 3, "1": 4})
def test_canonical_bytes_are_those_of_a_naive_writer(value: Any) -> None:
    assert canonical_bytes(value) == naive_jcs(value).encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
        (333333333.33333329, "333333333.3333333"),
        (5e-324, "5e-324"),
        (4.35, "4.35"),
        (-1.5e-9, "-1.5e-9"),
    ],
)
def test_numbers_are_written_as_ecmascript_writes_them(value: float, text: str) -> None:
    assert canonical_bytes(value) == text.encode()


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, -(2**53), "\ud800", {1: 2}, b"bytes", {"a": {1}}]
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(InputError):
        canonical_bytes(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(InputError):
        canonical_bytes(ring)


def test_the_digest_ignores_the_order_of_keys_and_sees_every_value() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) == sha256_hex(b'{"a":1,"b":2}')
    assert digest({"a": 1, "b": 2}) != digest({"a": 1, "b": 3})


@given(nested(scalars | floats))
def test_what_we_write_we_load_and_write_again_the_same(value: Any) -> None:
    raw = canonical_bytes(value)
    loaded = load_json(raw, source="x")
    assert loaded == value
    assert canonical_bytes(loaded) == raw


@given(hostile)
def test_f2_a_text_is_refused_or_read_as_every_reader_does(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    try:
        value = load_json(data, source="x")
    except InputError:
        return
    assert value == json.loads(text)
    raw = canonical_bytes(value)
    assert canonical_bytes(load_json(raw, source="x")) == raw


@given(st.binary(max_size=40))
def test_bytes_of_any_kind_load_or_are_refused(data: bytes) -> None:
    for load in (load_json, load_yaml):
        with contextlib.suppress(InputError):
            load(data, source="x")


BAD_JSON = {
    "f1_duplicate_key": b'{"a":1,"a":1}',
    "f1_duplicate_key_escaped": b'{"a":1,"\\u0061":2}',
    "f1_duplicate_key_nested": b'[{"b":{"a":1,"a":2}}]',
    "prototype": b'{"__proto__":1}',
    "f2_nan": b"NaN",
    "f2_infinity": b"[Infinity]",
    "f2_minus_infinity": b"-Infinity",
    "f2_1e400": b"1e400",
    "f2_minus_zero": b"-0",
    "f2_minus_zero_float": b"-0.0",
    "f2_minus_zero_exponent": b"-0e9",
    "f2_underflow_to_minus_zero": b"-1e-999",
    "f2_integer_of_2_53": b"9007199254740992",
    "f2_integer_of_minus_2_53": b"-9007199254740992",
    "f2_integer_of_17_digits": b"12345678901234567",
    "f2_integer_of_a_million_digits": b"1" * 1_000_000,
    "f2_float_of_2_53": b"9007199254740992.0",
    "leading_zero": b"0123",
    "plus": b"+1",
    "byte_order_mark": b"\xef\xbb\xbf{}",
    "byte_order_mark_inside": b'"\xef\xbb\xbf"',
    "utf16": '{"a":1}'.encode("utf-16"),
    "latin1": b'"\xe9"',
    "utf8_surrogate": b'"\xed\xa0\x80"',
    "f4_lone_surrogate": b'"\\ud800"',
    "f4_not_nfc": b'"e\\u0301"',
    "f4_not_nfc_key": b'{"e\\u0301":1}',
    "f4_bidi": b'"\\u202e"',
    "f4_bidi_isolate": b'{"a":["\\u2066"]}',
    "f4_zero_width": b'"a\\u200bb"',
    "f4_zero_width_key": b'{"a\\u200b":1}',
    "f4_control_escaped": b'"\\u0000"',
    "f4_control_raw": b'"\x01"',
    "f4_tab_escaped": b'"\\t"',
    "f4_next_line": b'"\\u0085"',
    "f4_line_separator": b'"\\u2028"',
    "f4_delete": b'"\x7f"',
    "f4_private_use": b'"\\ue000"',
    "f4_noncharacter": b'"\\uffff"',
    "cut": b'{"a":1',
    "cut_in_string": b'{"a":"b',
    "two_documents": b"{} {}",
    "trailing_comma": b"[1,]",
    "comment": b"[1] // one",
    "empty": b"",
    "blank": b"  \n",
    "too_large": b" " * ((2 << 20) + 1),
}


@pytest.mark.parametrize("data", BAD_JSON.values(), ids=BAD_JSON)
def test_json_that_two_readers_could_see_differently_is_refused(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        load_json(data, source="runs/x.json")
    assert caught.value.problems[0].file == "runs/x.json"
    assert len(str(caught.value)) < 400


def test_json_errors_name_the_line() -> None:
    with pytest.raises(InputError) as caught:
        load_json(b'{\n"a": 1,\n"b": }', source="x")
    assert caught.value.problems[0].line == 3


def test_the_largest_and_smallest_integers_pass() -> None:
    assert load_json(b"[9007199254740991,-9007199254740991]", source="x") == [SAFE_INT, -SAFE_INT]


@pytest.mark.parametrize("bracket", ["[", '{"a":', '[{"a":'])
def test_f3_depth_of_200000_is_refused_in_little_memory(bracket: str) -> None:
    data = (bracket * 200_000).encode()
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="nested too deeply"):
            load_json(data, source="x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(data) + 1_000_000


def test_f3_depth_is_allowed_up_to_the_limit_and_not_beyond() -> None:
    assert load_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, source="x") is not None
    with pytest.raises(InputError):
        load_json(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), source="x")


def test_f3_brackets_in_strings_are_no_depth() -> None:
    value = ["[" * 100 + '\\"' + "{" * 100]
    assert load_json(json.dumps(value).encode(), source="x") == value


@pytest.mark.parametrize(
    "data",
    [b'\\"' * 1_000_000, b'"' + b"a" * 2_000_000, b'"' + b"\\" * 2_000_000, b'"' * 2_000_000],
    ids=["escaped quotes", "open string", "backslashes", "quotes"],
)
def test_f3_quotes_are_read_in_linear_time(data: bytes) -> None:
    # Quadratic, this would not end within the hour.
    with pytest.raises(InputError):
        load_json(data, source="x")


STAYS_TEXT = [
    *("no", "NO", "yes", "on", "off", "True", "TRUE", "null", "Null", "~"),
    *("0123", "0o17", "0x1F", "0b1", "1_000", "12:30:45", "1e3", "1.5e3", ".5", "5.", "+1"),
    *(".inf", "-.inf", ".nan", "2026-12-01", "2026-12-01T00:00:00Z", "=", "<<"),
]


@pytest.mark.parametrize("text", STAYS_TEXT)
def test_f12_yaml_scalars_that_readers_retype_stay_text(text: str) -> None:
    value, _ = load_yaml(f"a: {text}\n".encode(), source="x")
    assert value == {"a": text}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("false", False),
        ("0", 0),
        ("-12", -12),
        ("0.50", 0.5),
        ("-1.25", -1.25),
        ("'1'", "1"),
        ('"true"', "true"),
        ("", ""),
        ("a # comment", "a"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_yaml_knows_true_false_decimals_and_text(text: str, expected: Any) -> None:
    value, _ = load_yaml(f"a: {text}".encode(), source="x")
    assert value == {"a": expected}
    assert type(value["a"]) is type(expected)


ALIAS_BOMB = b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 9)
)

BAD_YAML = {
    "f12_alias_bomb": (ALIAS_BOMB, 1),
    "f12_alias": (b"a: 1\nb: *a\n", 2),
    "f12_anchor": (b"a: 1\nb: &b 2\n", 2),
    "f12_anchor_on_a_key": (b"&a a: 1\n", 1),
    "f12_merge": (b"a: &a {b: 1}\nc:\n  <<: *a\n", 1),
    "f12_tag": (b"a: !!python/object/apply:os.system ['true']\n", 1),
    "f12_tag_on_text": (b"a: !!str 1\n", 1),
    "f12_tag_own": (b"a: !x 1\n", 1),
    "f12_tag_not_specific": (b"a: ! 1\n", 1),
    "f12_binary": (b"a: !!binary aGk=\n", 1),
    "f12_duplicate_key": (b"a: 1\nb: 2\na: 3\n", 3),
    "f12_duplicate_key_flow": (b"a: {b: 1, b: 2}\n", 1),
    "f12_duplicate_key_quoted": (b"a: 1\n'a': 2\n", 2),
    "prototype": (b"__proto__: 1\n", 1),
    "complex_key": (b"? [a, b]\n: 1\n", 1),
    "two_documents": (b"a: 1\n---\nb: 2\n", 2),
    "tab": (b"a:\n\t- 1\n", 2),
    "control": (b"a: 1\nb: \x07\n", 2),
    "control_escaped": (b'a: "\\0"\n', 1),
    "f4_bidi": ("a: 1\nb: '\u202e'\n".encode(), 2),
    "f4_not_nfc": ("a: 1\nb:\n  - e\u0301\n".encode(), 3),
    "f2_minus_zero": (b"a: -0\n", 1),
    "f2_2_53": (b"a: 9007199254740992\n", 1),
    "byte_order_mark": (b"\xef\xbb\xbfa: 1\n", None),
    "f3_flow_depth": (b"[" * 200_000, 1),
    "f3_block_depth": (b"- " * 50_000, 1),
    "f3_mapping_depth": (b"{a: " * 50_000, 1),
    "unclosed": (b"a: [1, 2\n", 2),
    "quote_unclosed": (b"a: 'b\n", 2),
    "too_large": (b"#" * (3 << 20), None),
}


@pytest.mark.parametrize(("data", "line"), BAD_YAML.values(), ids=BAD_YAML)
def test_yaml_outside_the_subset_is_refused_with_its_line(data: bytes, line: int | None) -> None:
    with pytest.raises(InputError) as caught:
        load_yaml(data, source="s.yaml")
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == ("s.yaml", line)


def test_yaml_tells_the_line_of_every_value() -> None:
    value, lines = load_yaml(b"# c\na:\n  b: 1\n  c:\n    - x\n    - y\n", source="x")
    assert value == {"a": {"b": 1, "c": ["x", "y"]}}
    assert (lines[("a", "b")], lines[("a", "c", 0)], lines[("a", "c", 1)]) == (3, 5, 6)


@given(nested(st.booleans() | integers | clean))
def test_json_without_null_is_yaml_that_means_the_same(value: Any) -> None:
    # YAML knows no pairs of surrogate escapes.
    raw = json.dumps(value, ensure_ascii=False).encode()
    assert load_yaml(raw, source="x")[0] == value


@given(st.text())
def test_cleaned_text_is_one_short_line_that_the_loader_takes(text: str) -> None:
    cleaned = clean_text(text, limit=20)
    assert text_fault(cleaned) is None
    assert len(cleaned) <= 20
    assert "\n" not in cleaned


@given(st.text())
def test_a_fault_is_found_exactly_where_a_loader_refuses(text: str) -> None:
    hidden = any(unicodedata.category(c) in "Cc Cf Zl Zp Cs Co Cn" for c in text if c != "\n")
    fault = hidden or not unicodedata.is_normalized("NFC", text)
    assert (text_fault(text) is not None) == fault


def test_f10_only_regular_files_are_read(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"x")
    link, fifo = tmp_path / "link", tmp_path / "fifo"
    link.symlink_to(target)
    os.mkfifo(fifo)
    assert read_file(target) == b"x"
    for path in (link, fifo, tmp_path, tmp_path / "absent", Path("/dev/zero")):
        with pytest.raises(InputError) as caught:
            read_file(path)
        assert caught.value.problems[0].file == str(path)


def test_a_refused_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    # The lowest free number is given to the next file.
    with (tmp_path / "a").open("w") as handle:
        lowest = handle.fileno()
    with pytest.raises(InputError):
        read_file(tmp_path)
    with (tmp_path / "a").open() as handle:
        assert handle.fileno() == lowest


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, limit=5) == b"12345"
    with pytest.raises(InputError, match="too large"):
        read_file(path, limit=4)


def test_what_json_lacks_is_put_as_asked_in_a_file_that_others_wrote() -> None:
    assert load_json(b"[NaN, -Infinity, 1]", source="x", constant=str) == ["NaN", "-Infinity", 1]


def test_what_python_calls_printable_is_what_is_allowed_but_for_the_blanks() -> None:
    for character in map(chr, range(0x110000)):
        unfit = unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}
        shown = character.isprintable() or character in canonical._BLANKS
        assert shown != unfit or character == "\n", f"{ord(character):x}"


@pytest.mark.parametrize("blank", ["\n", "\u00a0", "\u2003", "\u3000"])
def test_blanks_hide_no_character_that_is_unfit(blank: str) -> None:
    assert text_fault(f"a{blank}é") is None
    assert text_fault(f"a{blank}\u202e{blank}\t") == (
        "holds the character U+202E, which is invisible or a control"
    )


def test_the_vectors_that_python_and_javascript_share_hold_here() -> None:
    path = Path(__file__).parent / "fixtures" / "strict-json.vectors.json"
    vectors = json.loads(path.read_text(encoding="utf-8"))
    for name, data in vectors["refused"].items():
        with pytest.raises(InputError):
            pytest.fail(f"{name}: {load_json(base64.b64decode(data), source='x')}")
    for one in vectors["read"]:
        value = load_json(base64.b64decode(one["data"]), source="x")
        assert canonical_bytes(value).decode() == one["canonical"]


def test_each_bad_text_that_is_short_is_among_those_vectors() -> None:
    path = Path(__file__).parent / "fixtures" / "strict-json.vectors.json"
    shared = set(json.loads(path.read_text(encoding="utf-8"))["refused"])
    assert {name for name, data in BAD_JSON.items() if len(data) < 5000} <= shared
