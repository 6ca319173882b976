"""What a prompt is: the beginning of a stream of tokens that nobody has seen before.

A stream comes from a trial's key and a number, so two prompts of one stream begin alike, whatever
their lengths, and those of two streams do not. Prompts are token ids, or text: words each of which
is one token wherever it stands, so that n words are n tokens. Which words those are, a tokenizer
says: `choose` asks it once per launch. The line of the launch in the journal tells them, and
`prompts_of` reads it: with the nonce that the journal opens with, every prompt can be made again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from tokenwatt_site.canonical import JsonValue, canonical_bytes
from tokenwatt_site.errors import EnvironmentProblem, InputError, Problem
from tokenwatt_site.journal import Entry
from tokenwatt_site.schema import Model, Sha256

SEED_RULE = "HMAC-SHA256(nonce, configuration|repeat|trial)"
"""How a journal names `trial_key`."""

PUBLISHED_SEED_RULE = "HMAC-SHA256(nonce publisher_nonce, configuration|repeat|trial)"
"""The same where a publisher gave a nonce too: the key is the one nonce behind the other."""

PUBLISHER_NONCE = re.compile(r"(?:[0-9a-f]{2}){16,64}")
"""Hex of 16 to 64 bytes: beacons give 32 or 64."""

FIRST_TOKEN_ID = 512
"""Lower ids are often special tokens."""

SHARED_STREAM = 2**64 - 1
"""The stream that all prompts of a trial may begin with; no row has this number."""

ENOUGH_WORDS = 200
MIN_WORDS = 50
"""Of fewer, prompts would begin alike so often that caches of single tokens show."""

WORD = "[a-z]{3,16}"
"""What a word is: nothing that a journal, or a body as JSON, could write in two ways."""

Source: TypeAlias = Literal["tokenizer file", "server /tokenize", "common words"]


def seed_rule(publisher_nonce: str | None) -> str:
    """Return how a journal names the rule by which the prompts of its run are drawn."""
    return SEED_RULE if publisher_nonce is None else PUBLISHED_SEED_RULE


def nonce_of(opening: Entry) -> str:
    """Return the hex by which a run draws, from the first line of its journal.

    The run's own nonce, so that nobody knows the prompts before, and behind it that of a publisher
    where one was given, so that the one who measures did not choose them alone.
    """
    return str(opening.data["nonce"]) + str(opening.data.get("publisher_nonce") or "")


def trial_key(nonce: str, configuration: str, repeat: int, trial: int) -> bytes:
    """Return the secret of one trial's prompts: no engine can have seen them before."""
    return hmac.digest(bytes.fromhex(nonce), f"{configuration}|{repeat}|{trial}".encode(), "sha256")


@dataclass(frozen=True, slots=True)
class Ids:
    """Prompts of token ids in [FIRST_TOKEN_ID, vocabulary)."""

    vocabulary: int

    def prompt(self, key: bytes, stream: int, tokens: int, shared: int = 0) -> list[int]:
        """Return the first `tokens` ids of a stream.

        Args:
            key: `trial_key` of the trial.
            stream: number of the stream; streams of different numbers or keys differ.
            tokens: how many.
            shared: how many of them come from the stream that all prompts of the key begin with.
        """
        span = self.vocabulary - FIRST_TOKEN_ID
        return [FIRST_TOKEN_ID + n % span for n in _numbers(key, stream, tokens, shared)]

    def to_json(self) -> JsonValue:
        """Return what the journal tells; `prompts_of` reads it."""
        return {"kind": "ids", "first": FIRST_TOKEN_ID, "vocabulary": self.vocabulary}


@dataclass(frozen=True, slots=True)
class Words:
    """Prompts of words that are one token each.

    Attributes:
        words: what is drawn from.
        source: who says that they are one token each; nobody does of the common words.
        tokenizer: the file or URL of the tokenizer, for errors.
        tokenizer_sha256: of the tokenizer's file.
        added: how many tokens the tokenizer counts beside the words of any text.
        tokenize: gives the tokens of every prompt that is made, to count them; None where that
            would cost a request.
    """

    words: tuple[str, ...]
    source: Source
    tokenizer: str | None = None
    tokenizer_sha256: str | None = None
    added: int = 0
    tokenize: Callable[[str], Sequence[int]] | None = field(default=None, repr=False, compare=False)

    def prompt(self, key: bytes, stream: int, tokens: int, shared: int = 0) -> str:
        """Return the first `tokens` words of a stream; see `Ids.prompt`.

        Raises:
            EnvironmentProblem: the tokenizer counts another number of tokens in it.
        """
        numbers = _numbers(key, stream, tokens, shared)
        text = " ".join(self.words[n % len(self.words)] for n in numbers)
        if self.tokenize is not None and text:
            _require(len(self.tokenize(text)), tokens + self.added, self.tokenizer)
        return text

    def __str__(self) -> str:
        if self.tokenizer is None:
            return f"{len(self.words)} common ones, which no tokenizer has counted"
        return f"{len(self.words)}, each one token for {self.tokenizer}"

    def to_json(self) -> JsonValue:
        """Return what the journal tells; `prompts_of` reads it."""
        told: dict[str, JsonValue] = {
            "kind": "text",
            "source": self.source,
            "words": list(self.words),
        }
        if self.tokenizer_sha256 is not None:
            told["tokenizer_sha256"] = self.tokenizer_sha256
        return told


Prompts: TypeAlias = Ids | Words


class _ToldIds(Model):
    kind: Literal["ids"]
    first: Literal[512]
    vocabulary: Annotated[int, Field(ge=1000, le=10_000_000)]

    def prompts(self) -> Ids:
        return Ids(self.vocabulary)


class _ToldWords(Model):
    kind: Literal["text"]
    source: Source
    words: Annotated[
        tuple[Annotated[str, Field(pattern=f"^{WORD}$")], ...],
        Field(min_length=MIN_WORDS, max_length=ENOUGH_WORDS),
    ]
    tokenizer_sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _each_once(self) -> _ToldWords:
        if len(set(self.words)) != len(self.words):
            raise ValueError("each word stands there once")
        return self

    @model_validator(mode="after")
    def _digest_of_a_file(self) -> _ToldWords:
        if (self.source == "tokenizer file") != (self.tokenizer_sha256 is not None):
            raise ValueError("tokenizer_sha256 goes with source: tokenizer file")
        return self

    def prompts(self) -> Words:
        return Words(self.words, self.source, tokenizer_sha256=self.tokenizer_sha256)


_TOLD: TypeAdapter[_ToldIds | _ToldWords] = TypeAdapter(
    Annotated[_ToldIds | _ToldWords, Field(discriminator="kind")]
)


def prompts_of(launch: Entry) -> Prompts:
    """Return what the trials of a launch were asked with, from its line of the journal alone.

    Every prompt can be made again with it: `trial_key` takes the nonce that the journal opens with,
    and a row asks for its tokens less the launch's `chat_overhead`, one at least. The words are not
    counted again.

    Raises:
        InputError: what stands there are no prompts; names the field.
    """
    try:
        return _TOLD.validate_json(canonical_bytes(launch.data.get("prompts"))).prompts()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(
            Problem(
                "are no prompts",
                field=".".join((f"journal line {launch.seq}.prompts", *map(str, first["loc"]))),
                found=repr(first["input"])[:80],
                expected=first["msg"].removeprefix("Value error, "),
            )
        ) from error


class Tokenizer(Protocol):
    """Gives the tokens of a text, without those that begin or end every prompt if it can."""

    @property
    def source(self) -> Source: ...

    @property
    def name(self) -> str:
        """Its file or URL."""

    @property
    def sha256(self) -> str | None:
        """Of its file."""

    def tokenize(self, text: str) -> Sequence[int]: ...


def common_words() -> Words:
    """Return words that are one token each in the common vocabularies; nothing has checked it."""
    return Words(COMMON_WORDS, "common words")


def choose(tokenizer: Tokenizer, candidates: Sequence[str], *, count_all: bool) -> Words:
    """Return the first ENOUGH_WORDS of `candidates` that are one token wherever they stand.

    Each is tokenized at the start of a text and after another word; then whole prompts of all of
    them are in several orders. Words of equal tokens are left out: they are unknown ones.

    Args:
        tokenizer: who says what a token is.
        candidates: words without spaces, each once, in the order of preference.
        count_all: have every prompt counted when it is made.

    Raises:
        EnvironmentProblem: fewer than MIN_WORDS qualify, or a prompt of them has another number of
            tokens than words; names the tokenizer.
    """
    chosen: list[str] = []
    added: int | None = None
    for start in range(0, len(candidates), ENOUGH_WORDS):
        if len(chosen) >= ENOUGH_WORDS:
            break
        block = candidates[start : start + ENOUGH_WORDS]
        tokens = {word: tuple(tokenizer.tokenize(word)) for word in block}
        # Of many words one is a single token: what it has more, the tokenizer adds to any text.
        # A word without a token is made of characters that it leaves out.
        least = min((len(found) for found in tokens.values() if found), default=1) - 1
        if added is None or least < added:
            added, chosen = least, []
        times = Counter(tokens.values())
        first = [w for w, found in tokens.items() if len(found) == 1 + added and times[found] == 1]
        chosen += _after_another(tokenizer, first, added)
    if len(chosen) < MIN_WORDS or added is None:
        raise EnvironmentProblem(
            Problem(
                "too few words are one token each",
                file=tokenizer.name,
                found=f"{len(chosen)} of {len(candidates)} words",
                expected=f"at least {MIN_WORDS}",
                remedy="Name the model's tokenizer.json in endpoint.tokenizer, or ask with token"
                " ids where the engine takes them (endpoint.prompt: ids).",
            )
        )
    words = Words(
        tuple(chosen[:ENOUGH_WORDS]),
        tokenizer.source,
        tokenizer=tokenizer.name,
        tokenizer_sha256=tokenizer.sha256,
        added=added,
        tokenize=tokenizer.tokenize if count_all else None,
    )
    for stream in range(_TRIED_PROMPTS):
        found = tokenizer.tokenize(words.prompt(_TRIED_KEY, stream, _TRIED_TOKENS))
        _require(len(found), _TRIED_TOKENS + added, tokenizer.name)
    return words


_TRIED_PROMPTS = 4
_TRIED_TOKENS = 2 * ENOUGH_WORDS
_TRIED_KEY = bytes(32)


def _after_another(tokenizer: Tokenizer, words: list[str], added: int) -> list[str]:
    """Return those words that are one token after another word, by halves of a text of them."""
    if not words:
        return []
    # The first of all stands before each half, so that none is counted at the start.
    before = words[0]

    def single(part: list[str]) -> list[str]:
        if len(tokenizer.tokenize(" ".join([before, *part]))) == 1 + len(part) + added:
            return part
        if len(part) == 1:
            return []
        middle = len(part) // 2
        return single(part[:middle]) + single(part[middle:])

    return single(words)


def _require(counted: int, expected: int, tokenizer: str | None) -> None:
    if counted != expected:
        raise EnvironmentProblem(
            Problem(
                "counts another number of tokens in a prompt than it was made of: its tokens reach"
                " over words",
                file=tokenizer,
                found=f"{counted} tokens",
                expected=f"{expected} tokens",
                remedy="Ask with token ids where the engine takes them (endpoint.prompt: ids).",
            )
        )


def _numbers(key: bytes, stream: int, count: int, shared: int) -> list[int]:
    """Return `count` uniform 32-bit numbers: first those of the shared stream, then the stream's.

    A stream is SHA-256(key | stream | block), block after block, each of eight numbers.
    """
    own = max(0, count - shared)
    return _stream(key, SHARED_STREAM, count - own) + _stream(key, stream, own)


def _stream(key: bytes, stream: int, count: int) -> list[int]:
    blocks = (
        hashlib.sha256(key + struct.pack(">QQ", stream, block)).digest()
        for block in range(-(-count // 8))
    )
    return list(struct.unpack(f">{-(-count // 8) * 8}I", b"".join(blocks)))[:count]


COMMON_WORDS = tuple(
    """
    time year people way day man thing woman life child world school state family student group
    country problem hand part place case week company system program question work government
    number night point home water room mother area money story fact month lot right study book
    eye job word business issue side kind head house service friend father power hour game line
    end member law car city community name president team minute idea kid body information back
    parent face level office door health person art war history party result change morning
    reason research girl guy moment air teacher force education foot boy age policy process
    music market sense nation plan college interest death experience effect use class control
    field development role effort rate heart drug show leader light voice wife police mind price
    report decision son view relationship town road arm difference value building action season
    society tax director position player record paper space ground form event official matter
    center couple site project activity star table need court oil situation cost industry figure
    street image phone data picture practice piece land product doctor wall worker news test
    movie north love support technology step baby computer type attention film tree source
    """.split()  # noqa: SIM905  # a list literal of 200 words would fill three screens
)
