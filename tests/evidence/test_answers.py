"""Tests of accuracy_log: answers come back as they were, whatever an engine wrote in them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.accuracy_spec import AskedTask
from tokenwatt_site.canonical import canonical_bytes, load_json, text_fault
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence import answers as accuracy_log
from tokenwatt_site.evidence.answers import (
    FORMAT,
    MAX_ANSWER_CHARS,
    AccuracyLog,
    Answer,
    Header,
    decode_accuracy,
    digest_of_digests,
    encode_accuracy,
    kept_text,
    original_text,
    text_digest,
)

SHA = st.integers(0, 2**256 - 1).map(lambda n: f"{n:064x}")
ANYTHING = st.text(st.characters(exclude_categories=()), max_size=40)

ASKED = AskedTask(
    harness="lm-eval 0.4.9",
    task_version="3.0",
    api="completions",
    metric="exact_match",
    filter="strict-match",
    max_tokens=256,
    stop=("Question:", "</s>"),
    data="a" * 64,
    prompts="b" * 64,
)
HEADER = Header(format=FORMAT, task="gsm8k", shots=5, asked=ASKED, texts=True)
ONE = Answer(
    repeat=1,
    question=0,
    data="1" * 64,
    prompt="2" * 64,
    answer=text_digest("#### 18"),
    text="#### 18",
    extracted="18",
    correct=True,
    prompt_tokens=900,
    tokens=7,
    finish="stop",
    failure=None,
    flags=(),
    part=1,
)
FAILED: dict[str, Any] = {
    "answer": None,
    "text": None,
    "extracted": None,
    "correct": False,
    "failure": "the engine answered 400",
}


@st.composite
def answers(draw: st.DrawFn, repeat: int, question: int) -> Answer:
    """An answer as a session makes it of what an engine sent."""
    text = draw(ANYTHING)
    common: dict[str, Any] = {
        "repeat": repeat,
        "question": question,
        "data": draw(SHA),
        "prompt": draw(SHA),
        "prompt_tokens": draw(st.none() | st.integers(0, 2**50)),
        "tokens": draw(st.none() | st.integers(0, 2**50)),
        "finish": draw(st.none() | ANYTHING),
        "part": draw(st.integers(1, 9)),
    }
    if draw(st.booleans()):
        return Answer(**common | FAILED, flags=())
    return Answer(
        **common,
        answer=text_digest(text),
        text=draw(st.sampled_from([None, kept_text(text)])),
        extracted=draw(st.none() | ANYTHING),
        correct=draw(st.booleans()),
        failure=None,
        flags=draw(st.sampled_from([(), ("empty",), ("repetitive", "markers")])),
    )


@st.composite
def logs(draw: st.DrawFn) -> AccuracyLog:
    places = draw(st.sets(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=4))
    return AccuracyLog(HEADER, tuple(draw(answers(*place)) for place in sorted(places)))


@given(logs())
def test_logs_come_back_as_they_were(log: AccuracyLog) -> None:
    data = encode_accuracy(log)
    assert decode_accuracy(data, "x") == log
    assert data.count(b"\n") == len(log.answers) + 1
    for line in data.split(b"\n")[:-1]:
        assert canonical_bytes(load_json(line, source="x")) == line


def test_the_answers_of_a_repeat_are_told_by_its_number() -> None:
    of_two = tuple(ONE.model_copy(update={"repeat": 2, "question": n}) for n in range(3))
    log = AccuracyLog(HEADER, (ONE, *of_two))
    assert log.of_repeat(2) == of_two
    assert log.of_repeat(3) == ()


# --- text as it came, and as it is kept


@given(ANYTHING)
def test_any_text_is_kept_in_a_form_that_a_file_may_hold_and_comes_back(text: str) -> None:
    kept = kept_text(text)
    assert kept is not None
    assert text_fault(kept) is None
    assert original_text(kept) == text
    assert Answer.model_validate(ONE.model_dump() | {"text": kept}).text == kept


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters="\\")))
def test_text_that_a_file_may_hold_stands_as_it_came(text: str) -> None:
    if text_fault(text) is None:
        assert kept_text(text) == text


KEPT = {
    "plain": ("2 + 2 = 4\n", "2 + 2 = 4\n"),
    "a backslash": (r"\frac{1}{2}", r"\\frac{1}{2}"),
    "a tab": ("a\tb", r"a\{9}b"),
    "what looks spelt": (r"\{9}", r"\\{9}"),
    "a zero": ("\0", r"\{0}"),
    "bidi": ("a\u202eb", r"a\{202e}b"),
    "half a pair": ("\ud83d", r"\{d83d}"),
    "an emoji of several": ("\U0001f469\u200d\U0001f4bb", "\U0001f469\\{200d}\U0001f4bb"),
    "not in normal form": ("é e\u0301", r"\{e9} e\{301}"),
    "the last character there is": ("\U0010ffff", r"\{10ffff}"),
}


@pytest.mark.parametrize(("text", "kept"), KEPT.values(), ids=KEPT)
def test_what_a_file_cannot_hold_is_spelt_by_its_number(text: str, kept: str) -> None:
    assert kept_text(text) == kept
    assert original_text(kept) == text


def test_a_text_that_is_too_long_is_not_kept() -> None:
    assert kept_text("x" * MAX_ANSWER_CHARS) == "x" * MAX_ANSWER_CHARS
    assert kept_text("x" * (MAX_ANSWER_CHARS + 1)) is None
    assert kept_text("\\" * (MAX_ANSWER_CHARS // 2 + 1)) is None


def test_the_longest_text_is_read_again_in_one_line() -> None:
    answer = ONE.model_copy(update={"text": kept_text("\U0001f600" * MAX_ANSWER_CHARS)})
    log = AccuracyLog(HEADER, (answer,))
    assert decode_accuracy(encode_accuracy(log), "x") == log


@given(ANYTHING)
def test_a_digest_is_of_the_utf_8_of_the_text_as_it_came(text: str) -> None:
    expected = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    assert text_digest(text) == expected


def test_the_digest_of_digests_is_that_of_a_file_with_a_line_for_each() -> None:
    digests = ["1" * 64, "2" * 64]
    expected = hashlib.sha256(f"{digests[0]}\n{digests[1]}\n".encode()).hexdigest()
    assert digest_of_digests(digests) == expected
    assert digest_of_digests([]) == hashlib.sha256().hexdigest()
    assert digest_of_digests(digests[::-1]) != expected


# --- what is refused


def line_of(**changes: Any) -> bytes:
    return canonical_bytes(ONE.to_json() | changes) + b"\n"


HEAD = encode_accuracy(AccuracyLog(HEADER, ()))

WRONG_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"more": 1}, "more"),
    "a number as text": ({"question": "0"}, "question"),
    "a question below 0": ({"question": -1}, "question"),
    "a part 0": ({"part": 0}, "part"),
    "no digest": ({"data": "x"}, "data"),
    "correct as a number": ({"correct": 1}, "correct"),
    "an unknown flag": ({"flags": ["odd"]}, "flags.0"),
    "a flag twice": ({"flags": ["empty", "empty"]}, "document"),
    "flags in another order": ({"flags": ["markers", "empty"]}, "document"),
    "text with a lone backslash": ({"text": "\\frac"}, "text"),
    "text with a number that is no character": ({"text": "\\{110000}"}, "text"),
    "an answer and a failure": ({"failure": "gone"}, "document"),
    "neither": (FAILED | {"failure": None}, "document"),
    "no answer, yet right": (FAILED | {"correct": True}, "document"),
    "no answer, yet text": (FAILED | {"text": "18"}, "document"),
    "no answer, yet extracted": (FAILED | {"extracted": "18"}, "document"),
    "no answer, yet flags": (FAILED | {"flags": ["empty"]}, "document"),
}


@pytest.mark.parametrize(("changes", "field"), WRONG_FIELDS.values(), ids=WRONG_FIELDS)
def test_an_answer_of_another_form_is_refused_with_its_line_and_field(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InputError) as caught:
        decode_accuracy(HEAD + line_of(**changes), "x")
    assert caught.value.problems[0].file == "x:2"
    assert field in {problem.field for problem in caught.value.problems}


def swapped(old: bytes, new: bytes) -> bytes:
    line = line_of()
    assert old in line
    return line.replace(old, new)


HOSTILE = {
    "a key twice": swapped(b'"part":1', b'"part":1,"part":2'),
    "NaN": swapped(b'"part":1', b'"part":NaN'),
    "-0": swapped(b'"question":0', b'"question":-0'),
    "a large integer": swapped(b'"tokens":7', b'"tokens":9007199254740992'),
    "a blank": swapped(b'"part":1', b'"part": 1'),
    "fields in another order": swapped(b'"part":1,"prompt":"', b'"prompt":"').replace(
        b'"tokens":7', b'"tokens":7,"part":1'
    ),
    "a field left out": swapped(b'"text":"#### 18",', b""),
    "a letter by its number": swapped(b"#### 18", b"\\u0023### 18"),
    "a list with a comma at its end": swapped(b'"flags":[]', b'"flags":["empty",]'),
    "not NFC": line_of(extracted="e\u0301"),
    "a control character": line_of(extracted="\t"),
    "bidi": line_of(finish="\u202e"),
    "half a pair": swapped(b"#### 18", b"\\ud83d"),
    "an array": b"[]\n",
    "nothing": b"\n",
    "not UTF-8": b'{"text":"\xff"}\n',
    "deep": b"[" * 100_000 + b"\n",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_line_with_two_readings_is_refused(line: bytes) -> None:
    with pytest.raises(InputError, match=r"^x:2:"):
        decode_accuracy(HEAD + line, "x")


WRITTEN: dict[str, tuple[str, str]] = {
    "clean": ("18", "18"),
    "of several lines": ("18\n\nQ: 2", "18 Q: 2"),
    "with controls": ("a\tb\0", "a b"),
    "half a pair": ("\ud83d!", "!"),
    "nothing but blanks": (" \n", ""),
    "too long": ("x " * 5000, ("x " * 5000)[:3999]),
}


@pytest.mark.parametrize(("written", "kept"), WRITTEN.values(), ids=WRITTEN)
def test_the_short_texts_are_one_clean_line_each(written: str, kept: str) -> None:
    answer = Answer.model_validate(ONE.model_dump() | {"extracted": written, "finish": written})
    assert answer.extracted == kept
    assert answer.finish == kept[:100].rstrip()
    log = AccuracyLog(HEADER, (answer,))
    assert decode_accuracy(encode_accuracy(log), "x") == log


@pytest.mark.parametrize("text", ["a\tb", "\\frac", "e\u0301", "\u202e"])
def test_text_as_it_came_is_no_text_as_it_is_kept(text: str) -> None:
    with pytest.raises(ValueError, match="text as kept_text keeps it"):
        Answer.model_validate(ONE.model_dump() | {"text": text})


@pytest.mark.parametrize("second", [{}, {"repeat": 1, "question": 0}, {"repeat": 2}])
def test_answers_are_in_the_order_of_repeats_and_questions(second: dict[str, Any]) -> None:
    first = line_of(repeat=2, question=1)
    with pytest.raises(InputError, match=r"^x:3: question: is not in the order .* of repeat 2"):
        decode_accuracy(HEAD + first + line_of(**second), "x")


@pytest.mark.parametrize(
    "change",
    [{"format": "tokenwatt/accuracy/2"}, {"asked": None}, {"texts": 1}, {"more": 1}],
)
def test_headers_of_another_form_are_refused(change: dict[str, Any]) -> None:
    header = canonical_bytes(HEADER.to_json() | change) + b"\n"
    with pytest.raises(InputError, match=r"^x:1: "):
        decode_accuracy(header + line_of(), "x")


def test_a_log_that_is_cut_or_empty_is_refused() -> None:
    for data in (b"", HEAD[:-1], HEAD + line_of()[:-1]):
        with pytest.raises(InputError, match="x: the last line is cut"):
            decode_accuracy(data, "x")


def test_more_answers_than_are_read_are_refused_before_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accuracy_log, "MAX_ANSWERS", 2)
    with pytest.raises(InputError, match="more lines than are read; found 3; expected at most 2"):
        decode_accuracy(HEAD + b"[]\n" * 3, "x")


def test_a_line_longer_than_any_answer_is_refused() -> None:
    with pytest.raises(InputError, match="x:2: is too large"):
        decode_accuracy(HEAD + line_of(text="x" * (6 << 20)), "x")


@given(st.binary(max_size=60), st.integers(0, 2000), st.integers(1, 255))
def test_a_damaged_log_is_refused_or_read_never_a_crash(tail: bytes, at: int, flip: int) -> None:
    whole = encode_accuracy(AccuracyLog(HEADER, (ONE,)))
    raw = bytearray(whole)
    raw[at % len(raw)] ^= flip
    for data in (bytes(raw), whole + tail, tail):
        try:
            decode_accuracy(data, "x")
        except InputError:
            continue


PLAIN = st.text(st.characters(codec="ascii"))


@given(PLAIN, PLAIN, st.integers(0, 700), st.sampled_from(b'",{}[]:\\ 01nu\n\xff'))
def test_a_line_that_is_spared_the_strict_load_would_have_passed_it(
    a: str, b: str, at: int, other: int
) -> None:
    line = bytearray(line_of(text=a, extracted=b)[:-1])
    for _ in range(2):
        if accuracy_log._PLAIN.fullmatch(line):
            try:
                Answer.model_validate_json(line)
            except ValueError:
                continue
            assert canonical_bytes(load_json(bytes(line), source="x")) == line
        line[at % len(line)] = other


def test_answers_as_we_write_them_are_spared_the_strict_load() -> None:
    lines = encode_accuracy(AccuracyLog(HEADER, (ONE,))).split(b"\n")
    assert accuracy_log._PLAIN.fullmatch(lines[1])
