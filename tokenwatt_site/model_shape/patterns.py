"""Names of modules as the files of quantisers write them, matched without a hostile file's cost.

Three dialects occur: a run of whole pieces ("lm_head", "model.layers.0.mlp.gate", "gate"), the same
with `*` (ModelOpt, gpt-oss), and after "re:" a regular expression that must match from the start of
a name (compressed-tensors). Of the last only a part that `*` can express is understood; the rest is
refused, since a pattern of an attacker could keep a regular expression busy for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from itertools import product

from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.model_shape.weights import short_name

MAX_PATTERNS = 100_000
_MAX_LENGTH = 300
_MAX_GLOBS = 128
_MAX_CHOICES = 64

_TOKEN = re.compile(
    r"(?P<any>\.[*+])|(?P<digits>(?:\\d|\[0-9\])[+*]?)|(?P<dot>\\\.|\[\.\])|(?P<one>\.)"
    r"|(?P<text>[A-Za-z0-9_]+)|\((?:\?:)?(?P<choice>[A-Za-z0-9_|]+)\)"
)


class Patterns:
    """A set of patterns.

    Raises:
        InputError: when made of one that is not understood, or of too many.
    """

    def __init__(self, patterns: Iterable[str], *, field: str) -> None:
        self._literal: set[str] = set()
        globs: set[str] = set()
        for count, pattern in enumerate(patterns):
            if count >= MAX_PATTERNS or len(pattern) > _MAX_LENGTH:
                raise _refused(field, pattern, f"at most {MAX_PATTERNS:,} short patterns")
            if pattern.startswith("re:"):
                globs |= _as_globs(pattern, field)
            elif "*" in pattern or "?" in pattern:
                if _ONE_EXPERT.search(pattern):
                    raise _refused(field, pattern, "all experts of a layer")
                piece = short_name(pattern).replace("[", "[[]")
                globs |= {piece, f"{piece}.*", f"*.{piece}", f"*.{piece}.*"}
            else:
                self._literal.add(short_name(pattern))
        if len(globs) > 4 * _MAX_GLOBS:
            raise _refused(field, f"{len(globs)} with wildcards", f"at most {_MAX_GLOBS}")
        self._glob = re.compile("|".join(map(translate, sorted(globs)))) if globs else None
        self._experts = _experts_named(self._literal)

    def match(self, name: str) -> bool:
        """Tell whether a pattern names the module of this short name, or one that it is part of."""
        pieces = name.split(".")
        runs = (
            ".".join(pieces[start:end])
            for start in range(len(pieces))
            for end in range(start + 1, len(pieces) + 1)
        )
        return any(run in self._literal for run in runs) or (
            self._glob is not None and self._glob.match(name) is not None
        )

    def check_experts(self, experts: int, *, field: str) -> None:
        """Refuse patterns that name some experts of a layer and not all `experts`.

        Raises:
            InputError: there are such; a step would read bytes that depend on the routing.
        """
        for name, numbers in self._experts.items():
            if len(numbers) != experts:
                found = f"{name} of {len(numbers)} experts"
                raise _refused(field, found, f"all {experts} or none")


_ONE_EXPERT = re.compile(r"\bexperts\.\d")
_EXPERT = re.compile(r"(.*\bexperts\.)(\d{1,9})(\b.*)", re.DOTALL)


def _experts_named(literals: Iterable[str]) -> dict[str, set[int]]:
    named: dict[str, set[int]] = {}
    for literal in literals:
        if found := _EXPERT.fullmatch(literal):
            named.setdefault(f"{found[1]}#{found[3]}", set()).add(int(found[2]))
    return named


def _as_globs(pattern: str, field: str) -> set[str]:
    rest = pattern.removeprefix("re:").removeprefix("^")
    ended = rest.endswith("$")
    rest = rest.removesuffix("$")
    pieces: list[list[str]] = []
    while rest:
        token = _TOKEN.match(rest)
        if token is None:
            raise _refused(field, pattern, "letters, digits, dots, .*, \\d+ and (a|b)")
        rest = rest[token.end() :]
        match token.lastgroup:
            case "any":
                pieces.append(["*"])
            case "digits":
                pieces.append(["[0-9]*" if token.group()[-1] in "+*" else "[0-9]"])
            case "dot":
                pieces.append(["."])
            case "one":
                pieces.append(["?"])
            case "choice":
                pieces.append(token["choice"].split("|"))
            case _:
                pieces.append([token.group()])
    choices = 1
    for piece in pieces:
        choices *= len(piece)
    if choices > _MAX_CHOICES:
        raise _refused(field, pattern, f"at most {_MAX_CHOICES} choices")
    tail = "" if ended else "*"
    # A pattern may start with what files put before `layers.`, which a short name lacks.
    return {short_name("".join(each)) + tail for each in product(*pieces)}


def _refused(field: str, found: str, expected: str) -> InputError:
    return InputError(
        Problem(
            "names modules in a way that is not understood",
            field=field,
            found=repr(found[:200]),
            expected=expected,
        )
    )
