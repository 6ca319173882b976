"""Who says before the load what a token is: a tokenizer's file, or the engine's own /tokenize.

The one user of the library `tokenizers`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tokenizers

from tokenwatt_site.canonical import JsonValue, clean_text, read_file, sha256_hex
from tokenwatt_site.endpoint import Endpoint
from tokenwatt_site.errors import EngineError, InputError, Problem
from tokenwatt_site.measure.control import Answer, request
from tokenwatt_site.prompts import (
    COMMON_WORDS,
    WORD,
    Ids,
    Prompts,
    Source,
    Words,
    choose,
    common_words,
)

MAX_FILE_BYTES = 256 << 20

_DEADLINE_S = 10.0
_WORD = re.compile(f"[Ġ▁]?({WORD})")


class TokenizerFile:
    """A tokenizer.json, as the library of its format reads it. Cutting and padding are off."""

    source: Source = "tokenizer file"

    def __init__(self, name: str) -> None:
        """Read it.

        Args:
            name: its path; may be a link, as in a model cache.

        Raises:
            InputError: not there, too large, or no tokenizer.
        """
        self.name = name
        try:
            data = read_file(Path(name).resolve(), limit=MAX_FILE_BYTES)
            self._tokenizer = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        except InputError as error:
            raise InputError(*(_of_file(name, p) for p in error.problems)) from error
        except Exception as error:  # the library has no class of its own for it
            problem = Problem("is no tokenizer", found=clean_text(str(error)))
            raise InputError(_of_file(name, problem)) from error
        self.sha256 = sha256_hex(data)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def tokenize(self, text: str) -> Sequence[int]:
        """Return the ids of a text, without special tokens around it."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def vocabulary_words(self) -> tuple[str, ...]:
        """Return the lower-case words of its vocabulary in the order of their ids.

        Those with a mark for the space before them, as they stand within a text, come first.
        """
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=False)
        by_id = sorted(
            vocabulary, key=lambda token: (token[:1] not in {"Ġ", "▁"}, vocabulary[token])
        )
        found = (_WORD.fullmatch(token) for token in by_id)
        return tuple(dict.fromkeys(match[1] for match in found if match))


class ServerTokenizer:
    """The tokenizer that an engine uses itself, asked over HTTP.

    One body serves all: vLLM and SGLang read `prompt`, llama.cpp `content`, TGI `inputs`, and each
    skips the rest. The first three answer {"tokens": [id, ...]}, the first two with a "count"; TGI
    answers a list of objects, and may count the token that begins a prompt.
    """

    source: Source = "server /tokenize"
    sha256 = None

    def __init__(self, url: str, model: str, api_key_variable: str | None = None) -> None:
        self.name = f"{url}/tokenize"
        self._model = model
        self._api_key_variable = api_key_variable

    def offered(self) -> bool:
        """Tell whether the engine tokenizes at all.

        Raises:
            EngineError: nothing answers.
        """
        return self._ask(COMMON_WORDS[0]).status == 200

    def tokenize(self, text: str) -> Sequence[int]:
        """Return the ids of a text.

        Raises:
            EngineError: no whole answer, or one that is no list of tokens.
        """
        answer = self._ask(text)
        if answer.status != 200:
            raise self._no_tokens(f"HTTP {answer.status}")
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise self._no_tokens(f"no JSON ({answer.content_type or 'no content type'})") from None
        told, tokens = None, value
        if isinstance(value, dict):
            told, tokens = value.get("count"), value.get("tokens")
        listed = tokens if isinstance(tokens, list) else []
        ids = [known for token in listed if (known := _id(token)) is not None]
        if not ids or len(ids) != len(listed):
            raise self._no_tokens(clean_text(json.dumps(value), limit=80))
        if told is not None and (type(told) is not int or told != len(ids)):
            shown = clean_text(json.dumps(told), limit=40)
            raise self._no_tokens(f"a count of {shown} beside {len(ids)} tokens")
        return ids

    def _ask(self, text: str) -> Answer:
        body: dict[str, JsonValue] = {
            "model": self._model,
            "prompt": text,
            "content": text,
            "inputs": text,
            "add_special_tokens": False,
        }
        return request(
            self.name,
            deadline_s=_DEADLINE_S,
            content=json.dumps(body, separators=(",", ":")).encode(),
            api_key_variable=self._api_key_variable,
        )

    def _no_tokens(self, found: str) -> EngineError:
        return EngineError(
            Problem(
                "the engine's own tokenizer gives no tokens",
                field="endpoint.url",
                file=self.name,
                found=found,
                expected="HTTP 200 with the tokens as JSON",
                remedy="Name the model's tokenizer.json in endpoint.tokenizer.",
            )
        )


def _of_file(name: str, problem: Problem) -> Problem:
    return replace(
        problem,
        file=name,
        field="endpoint.tokenizer",
        expected="the tokenizer.json of the model",
        remedy="Its path counts from the folder in which the command runs.",
    )


def _id(value: JsonValue) -> int | None:
    if isinstance(value, dict):
        value = value.get("id")
    return value if type(value) is int and 0 <= value < 2**31 else None


def prompts_by_file(name: str) -> Words:
    """Return the prompts that a tokenizer's file counts exactly.

    Raises:
        InputError: see `TokenizerFile`.
        EnvironmentProblem: too few words are one token each.
    """
    file = TokenizerFile(name)
    words = dict.fromkeys((*COMMON_WORDS, *file.vocabulary_words()))
    return choose(file, tuple(words), count_all=True)


def prompts_for(endpoint: Endpoint, url: str) -> Prompts:
    """Return what the engine at `url` is asked with: ids, or words of the best source there is.

    Raises:
        InputError: see `TokenizerFile`.
        EngineError: the engine's own tokenizer answers nonsense.
        EnvironmentProblem: too few words are one token each.
    """
    if endpoint.prompt_kind == "ids":
        return Ids(endpoint.vocabulary)
    if endpoint.tokenizer is not None:
        return prompts_by_file(endpoint.tokenizer)
    server = ServerTokenizer(url, endpoint.model, endpoint.api_key_variable)
    if server.offered():
        return choose(server, COMMON_WORDS, count_all=False)
    return common_words()
