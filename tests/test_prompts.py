"""A prompt is the beginning of a stream of tokens, has the asked length, and can be made again."""

import hashlib
import re
import zlib
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tokenwatt_site import prompts
from tokenwatt_site.canonical import canonical_bytes
from tokenwatt_site.errors import EnvironmentProblem, InputError
from tokenwatt_site.journal import Entry
from tokenwatt_site.prompts import (
    COMMON_WORDS,
    ENOUGH_WORDS,
    MIN_WORDS,
    SHARED_STREAM,
    WORD,
    Ids,
    Words,
    choose,
    common_words,
    prompts_of,
    trial_key,
)

KEY = b"k" * 32
KINDS = [Ids(49152), common_words()]
NAMES = ["ids", "text"]


def tokens_of(prompt):
    return prompt.split() if isinstance(prompt, str) else prompt


@dataclass
class ToyTokenizer:
    """Counts by rules: words of several tokens, at the start or anywhere; pairs that are one token.

    `begins` is what it counts at the start of every text; `unknown` words are all the same token.
    """

    anywhere: dict[str, int] = field(default_factory=dict)
    at_start: dict[str, int] = field(default_factory=dict)
    merged: set[tuple[str, str]] = field(default_factory=set)
    unknown: frozenset[str] = frozenset()
    begins: int = 0
    asked: int = 0
    source = "tokenizer file"
    name = "toy.json"
    sha256 = "0" * 64

    def tokenize(self, text):
        self.asked += 1
        words = text.split(" ")
        ids = [1] * (self.begins + self.at_start.get(words[0], 0))
        for before, word in pairwise(["", *words]):
            if (before, word) not in self.merged:
                own = 0 if word in self.unknown else zlib.crc32(word.encode())
                ids += [own] * self.anywhere.get(word, 1)
        return ids


def numbered(count, first="w"):
    return tuple(f"{first}{n}" for n in range(count))


def test_a10_prompts_differ_between_trials_repeats_and_nonces():
    keys = {
        trial_key(nonce * 64, "c", repeat, trial)
        for nonce in "12"
        for repeat in (1, 2)
        for trial in (1, 2)
    }
    made = {tuple(Ids(49152).prompt(key, 0, 20)) for key in keys}
    assert len(keys) == len(made) == 8


@given(st.integers(0, 300), st.integers(1000, 200_000), st.integers(0, 300))
def test_prompt_ids_have_the_asked_count_and_stay_in_the_vocabulary(count, vocabulary, shared):
    ids = Ids(vocabulary).prompt(KEY, 7, count, shared)
    assert len(ids) == count
    assert all(prompts.FIRST_TOKEN_ID <= i < vocabulary for i in ids)


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_text_has_as_many_words_as_were_asked_for(count, shared):
    words = common_words().prompt(KEY, 7, count, shared).split()
    assert len(words) == count
    assert set(words) <= set(COMMON_WORDS)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200), st.integers(0, 5))
def test_a_longer_prompt_of_a_stream_begins_with_each_shorter_one(kind, one, two, shared, stream):
    short, long = sorted((one, two))
    longer = kind.prompt(KEY, stream, long, shared)
    shorter = kind.prompt(KEY, stream, short, shared)
    assert tokens_of(longer)[:short] == tokens_of(shorter)
    if isinstance(longer, str):
        assert f"{longer} ".startswith(f"{shorter} " if short else "")


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
@given(st.integers(0, 100), st.integers(0, 10), st.integers(11, 20))
def test_streams_share_the_declared_prefix_and_no_more(kind, shared, one, two):
    a, b = (tokens_of(kind.prompt(KEY, stream, 140, shared)) for stream in (one, two))
    assert a[:shared] == b[:shared]
    assert a[shared:] != b[shared:]
    assert a[shared:] == tokens_of(kind.prompt(KEY, one, 140 - shared))


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_the_shared_prefix_is_of_its_own_trial_alone(kind):
    assert kind.prompt(b"1" * 32, 0, 30, 30) != kind.prompt(b"2" * 32, 0, 30, 30)


@given(st.binary(min_size=32, max_size=32), st.integers(0, SHARED_STREAM - 1), st.integers(0, 40))
def test_a_stream_is_the_sha256_of_key_number_and_block_four_bytes_a_token(key, stream, shared):
    def naive(number, index):
        block, place = divmod(index, 8)
        digest = hashlib.sha256(key + number.to_bytes(8, "big") + block.to_bytes(8, "big")).digest()
        return int.from_bytes(digest[4 * place : 4 * place + 4], "big")

    expected = [naive(SHARED_STREAM, i) for i in range(min(shared, 25))]
    expected += [naive(stream, i) for i in range(25 - len(expected))]
    assert Ids(32000).prompt(key, stream, 25, shared) == [512 + n % 31488 for n in expected]
    assert common_words().prompt(key, stream, 25, shared).split() == [
        COMMON_WORDS[n % len(COMMON_WORDS)] for n in expected
    ]


def test_the_same_key_gives_the_same_prompts_for_ever():
    """A change here changes what a published nonce stands for: then change `SEED_RULE` too."""
    key = trial_key("ab" * 32, "c", 1, 2)
    assert Ids(49152).prompt(key, 3, 4) == [22299, 19926, 10532, 39400]
    assert common_words().prompt(key, 3, 4, 2) == "year effect table eye"


def test_all_words_are_chosen_where_each_is_one_token():
    chosen = choose(ToyTokenizer(), numbered(120), count_all=True)
    assert chosen.words == numbered(120)
    assert (chosen.source, chosen.tokenizer, chosen.added) == ("tokenizer file", "toy.json", 0)


def test_no_more_words_are_asked_for_than_are_enough():
    tokenizer = ToyTokenizer()
    chosen = choose(tokenizer, numbered(5000), count_all=False)
    assert chosen.words == numbered(ENOUGH_WORDS)
    assert tokenizer.asked < ENOUGH_WORDS + 10


MANY = numbered(300)


@given(
    st.dictionaries(st.sampled_from(MANY), st.sampled_from([0, 2, 3]), max_size=60),
    st.dictionaries(st.sampled_from(MANY), st.integers(1, 3), max_size=60),
    st.integers(0, 2),
)
def test_only_words_of_one_token_at_the_start_and_after_another_are_chosen(
    anywhere, at_start, begins
):
    # A word left out cannot be told from what begins a text; no real tokenizer has both.
    assume(not begins or 0 not in anywhere.values())
    chosen = choose(ToyTokenizer(anywhere, at_start, begins=begins), MANY, count_all=True)
    single = [word for word in MANY if word not in anywhere and word not in at_start]
    assert list(chosen.words) == single[:ENOUGH_WORDS]
    assert chosen.added == begins


def test_a_word_that_is_one_token_only_at_the_start_is_left_out():
    class Tokenizer(ToyTokenizer):
        def tokenize(self, text):
            return super().tokenize(text) + [7] * text.split(" ")[1:].count("w7")

    assert "w7" not in choose(Tokenizer(), numbered(100), count_all=True).words


def test_what_every_word_has_more_at_the_start_is_no_fault_of_the_words():
    every = dict.fromkeys(MANY, 1)
    chosen = choose(ToyTokenizer(at_start=every), MANY, count_all=True)
    assert (chosen.words, chosen.added) == (MANY[:ENOUGH_WORDS], 1)
    assert len(chosen.prompt(KEY, 1, 50).split()) == 50


def test_words_of_a_later_block_show_that_the_first_block_is_of_two_tokens_each():
    halves = dict.fromkeys(numbered(ENOUGH_WORDS, "x"), 2)
    chosen = choose(ToyTokenizer(anywhere=halves), (*halves, *numbered(80)), count_all=True)
    assert (chosen.words, chosen.added) == (numbered(80), 0)


def test_words_that_the_tokenizer_does_not_know_are_left_out_as_they_are_one_token_together():
    chosen = choose(ToyTokenizer(unknown=frozenset(MANY[10:40])), MANY[:100], count_all=True)
    assert chosen.words == MANY[:10] + MANY[40:100]


def test_a_tokenizer_that_leaves_all_words_out_has_too_few():
    with pytest.raises(EnvironmentProblem, match="0 of 90 words"):
        choose(ToyTokenizer(anywhere=dict.fromkeys(numbered(90), 0)), numbered(90), count_all=True)


@pytest.mark.parametrize("good", [0, MIN_WORDS - 1])
def test_too_few_words_are_an_error_that_says_so(good):
    words = numbered(90)
    tokenizer = ToyTokenizer(anywhere=dict.fromkeys(words[good:], 3))
    with pytest.raises(EnvironmentProblem) as caught:
        choose(tokenizer, words, count_all=True)
    (problem,) = caught.value.problems
    assert (problem.file, problem.found) == ("toy.json", f"{good} of 90 words")
    assert problem.expected == f"at least {MIN_WORDS}"
    assert "endpoint.tokenizer" in problem.remedy


def test_no_candidates_are_too_few():
    with pytest.raises(EnvironmentProblem, match="0 of 0 words"):
        choose(ToyTokenizer(), (), count_all=True)


def test_tokens_that_reach_over_many_words_are_refused_before_the_load():
    merged = {(MANY[i], MANY[j]) for i in range(60) for j in range(i)}
    with pytest.raises(
        EnvironmentProblem, match="reach over words; found 199 tokens; expected 400"
    ):
        choose(ToyTokenizer(merged=merged), MANY[:60], count_all=False)


def test_a_prompt_that_is_counted_otherwise_is_refused_with_file_found_and_expected():
    words = Words(("a", "b"), "tokenizer file", tokenizer="toy.json", tokenize=lambda _: [1] * 41)
    with pytest.raises(EnvironmentProblem) as caught:
        words.prompt(KEY, 0, 40)
    (problem,) = caught.value.problems
    assert (problem.file, problem.found, problem.expected) == (
        "toy.json",
        "41 tokens",
        "40 tokens",
    )


def launch_line(told):
    """The line of a launch as it is read back from a journal's bytes."""
    raw = canonical_bytes(
        {"seq": 1, "at": "now", "event": "launch", "prev": "0" * 64, "data": told}
    )
    return Entry.model_validate_json(raw)


@pytest.mark.parametrize(
    "asked",
    [
        Ids(49152),
        common_words(),
        Words(COMMON_WORDS[:MIN_WORDS], "server /tokenize", tokenizer="http://127.0.0.1", added=1),
        Words(COMMON_WORDS, "tokenizer file", tokenizer="t.json", tokenizer_sha256="0" * 64),
    ],
    ids=["ids", "common", "server", "file"],
)
@given(st.integers(0, 300), st.integers(0, 9), st.integers(0, 20))
def test_the_line_of_a_launch_alone_gives_every_prompt_again(asked, tokens, stream, shared):
    again = prompts_of(launch_line({"prompts": asked.to_json()}))
    key = trial_key("ab" * 32, "c", 1, 2)
    assert again.prompt(key, stream, tokens, shared) == asked.prompt(key, stream, tokens, shared)
    assert again.to_json() == asked.to_json()


def text(**changes):
    words = list(COMMON_WORDS[:60])
    return {"kind": "text", "source": "common words", "words": words} | changes


IDS = {"kind": "ids", "first": 512, "vocabulary": 32000}
REFUSED = {
    "nothing": (None, "prompts"),
    "a number": (5, "prompts"),
    "a list": ([], "prompts"),
    "no kind": ({}, "prompts"),
    "another kind": ({"kind": "audio"}, "prompts"),
    "ids that begin elsewhere": (IDS | {"first": 0}, "first"),
    "no vocabulary": ({"kind": "ids", "first": 512}, "vocabulary"),
    "a vocabulary of no ids": (IDS | {"vocabulary": 512}, "vocabulary"),
    "a vocabulary beyond any": (IDS | {"vocabulary": 10**9}, "vocabulary"),
    "a vocabulary as text": (IDS | {"vocabulary": "32000"}, "vocabulary"),
    "one thing more": (IDS | {"seed": 1}, "seed"),
    "a count of words": (text(words=60), "words"),
    "too few words": (text(words=list(COMMON_WORDS[: MIN_WORDS - 1])), "words"),
    "too many words": (text(words=[*COMMON_WORDS, "more", "again"]), "words"),
    "a word twice": (text(words=[*COMMON_WORDS[:60], "time"]), "text"),
    "a word with a space": (text(words=[*COMMON_WORDS[:60], "two words"]), "words.60"),
    "an empty word": (text(words=[*COMMON_WORDS[:60], ""]), "words.60"),
    "a long word": (text(words=[*COMMON_WORDS[:60], "x" * 17]), "words.60"),
    "another source": (text(source="a friend"), "source"),
    "a file without a digest": (text(source="tokenizer file"), "text"),
    "a digest without a file": (text(tokenizer_sha256="0" * 64), "text"),
}


@pytest.mark.parametrize(("told", "field"), REFUSED.values(), ids=REFUSED)
def test_what_are_no_prompts_is_refused_with_line_and_field(told, field):
    with pytest.raises(InputError) as caught:
        prompts_of(launch_line({} if told is None else {"prompts": told}))
    (problem,) = caught.value.problems
    assert problem.field.startswith("journal line 1.prompts")
    assert problem.field.endswith(field)
    assert problem.expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from([IDS, text()]), st.sampled_from([*IDS, *text(), "tokenizer_sha256"]), JSON)
def test_a_changed_line_gives_prompts_that_say_the_same_or_is_refused(told, key, value):
    try:
        found = prompts_of(launch_line({"prompts": told | {key: value}}))
    except InputError:
        return
    assert found.to_json() in (told, told | {key: value})


def test_common_words_are_each_there_once_and_plain():
    assert len(set(COMMON_WORDS)) == len(COMMON_WORDS) > MIN_WORDS
    assert all(re.fullmatch(WORD, word) for word in COMMON_WORDS)


def test_words_say_who_counted_them():
    assert str(common_words()).endswith("no tokenizer has counted")
    assert str(choose(ToyTokenizer(), MANY, count_all=True)) == "200, each one token for toy.json"
