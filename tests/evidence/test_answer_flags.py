"""Tests of answer_flags: broken answers are seen, and ordinary ones are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.evidence.answer_flags import (
    MARKERS,
    MAX_PIECE_CHARS,
    MIN_LOOP_CHARS,
    MIN_PIECES,
    flags_of,
)

REASONED = (
    "Janet's ducks lay 16 eggs a day. She eats 3 and bakes with 4, so 16 - 3 - 4 = 9 are left.\n"
    "She sells 9 eggs at $2 each, which makes 9 * 2 = $18 a day.\n#### 18"
)

ORDINARY = {
    "reasoning": REASONED,
    "a number": "18",
    "laughter": "ha ha ha ha ha ha",
    "three dots": "Well...",
    "a rule": "Title\n" + "-" * 80,
    "a full screen of a rule": "=" * 200,
    "leaders of a table of contents": "Chapter 1 " + "." * 120 + " 7",
    "a table of numbers": "\n".join(f"{n}\t{n * n}\t{n**3}" for n in range(60)),
    "rows of zeros": "0 0 0 0\n0 0 0 0\n0 0 0 0\n0 0 0 0\n",
    "a list of similar lines": "\n".join(f"{n}. Take one away from {n}." for n in range(40, 0, -1)),
    "indented code": "def f(x):\n" + "\n".join(" " * 4 * n + "if x:" for n in range(20)),
    "closing braces": "fn main() {" * 8 + "\n}" * 8,
    "the same line four times": "The answer is somewhere below, and here it comes.\n" * 4,
    "a loop that it left": "and then " * 100 + "it stopped. The answer is 7, as was to be shown.",
    "an expansion": "1/7 = 0." + "142857" * 30,
    "HTML that strikes out": "<p>It costs <s>$20</s> $15, <b>today</b>.</p>",
    "lists in code": "x = [[1, 2], [INSTANCE], [/path]]",
    "pipes of F#": "let y = x |> f <| g",
    "no letters": "😀 ∑ 12 日本語です。",
}


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_answers_have_no_flag(text: str) -> None:
    assert flags_of(text) == ()


@pytest.mark.parametrize("text", ["", " ", "\n\n\t", "\u3000\u00a0"])
def test_nothing_but_white_space_is_empty(text: str) -> None:
    assert flags_of(text) == ("empty",)


LOOPS = {
    "one letter": "0" * 300,
    "a word": REASONED + " the" * 80,
    "a sentence": "So 18. " + "The answer is 18 dollars a day, which is what she makes.\n" * 5,
    "questions to itself": REASONED + "\n\nQuestion: What is 2 + 2?\nAnswer: 4" * 9,
    "cut in the middle": "I think that the answer is this: " * 12 + "I think that",
    "begun in the middle": "swer is this. " + "I think that the answer is this. " * 9,
    "the longest piece": ("".join(map(chr, range(200, 400)))) * MIN_PIECES,
    "letters that are not ASCII": "なのでこれは正しいです。" * 25,
    "after a million letters": "".join(map(str, range(200_000))) + "I do not know. " * 40,
}


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_one_piece_over_and_over_at_the_end_is_repetitive(text: str) -> None:
    assert flags_of(text) == ("repetitive",)


def test_blank_lines_to_the_end_are_repetitive_and_nothing_but_them_is_empty_too() -> None:
    assert flags_of("18" + "\n" * 300) == ("repetitive",)
    assert flags_of("\n" * 300) == ("empty", "repetitive")


@pytest.mark.parametrize("marker", MARKERS)
def test_each_marker_is_seen_wherever_it_stands(marker: str) -> None:
    for text in (marker, f"{marker}user\n18", f"18{marker}", f"a{marker}b"):
        assert flags_of(text) == ("markers",)


@pytest.mark.parametrize("text", ["18</s>", "<s>18", "<s> 18 </s></s>"])
def test_the_ends_of_a_text_are_seen_where_they_are_no_pair(text: str) -> None:
    assert flags_of(text) == ("markers",)


def test_flags_come_together_and_in_order() -> None:
    assert flags_of("<|im_start|>assistant\n" * 60) == ("repetitive", "markers")


def naive_loop(text: str) -> bool:
    """Whether any piece, come together as often as it must, stands at the end of `text`."""
    for size in range(1, MAX_PIECE_CHARS + 1):
        letters = max(MIN_LOOP_CHARS, MIN_PIECES * size)
        piece = text[-size:]
        times = -(-letters // size)
        if len(text) >= letters and text.endswith((piece * times)[-letters:]):
            return True
    return False


@given(
    st.text("ab", max_size=30), st.text("abc", min_size=1, max_size=220), st.integers(1, 300),
    st.integers(0, 8),
)  # fmt: skip
def test_a_loop_is_found_exactly_where_a_slow_search_finds_one(
    before: str, piece: str, times: int, cut: int
) -> None:
    text = before + piece * min(times, 2000 // len(piece)) + piece[:cut]
    assert ("repetitive" in flags_of(text)) == naive_loop(text)


class Counted(str):
    """Counts the letters that are copied out of it."""

    __slots__ = ("copied",)
    copied: int

    def __getitem__(self, key: object) -> str:
        part = super().__getitem__(key)  # type: ignore[index]
        self.copied += len(part)
        return part


@pytest.mark.parametrize("piece", ["a", "ab" * 99 + "c", "x" * 199 + "y", "\n"])
def test_however_long_a_text_is_only_its_end_is_searched_for_a_loop(piece: str) -> None:
    copied = []
    for times in (10_000, 1_000_000):
        text = Counted((piece * (times // len(piece)))[:-1] + "#")
        text.copied = 0
        flags_of(text)
        copied.append(text.copied)
    assert copied[0] == copied[1] <= 1000


@given(st.text(st.characters(exclude_categories=()), max_size=400))
def test_any_text_has_flags_in_their_order(text: str) -> None:
    found = flags_of(text)
    assert [flag for flag in ("empty", "repetitive", "markers") if flag in found] == list(found)
