"""Strict loading of hostile bytes, and the one byte form that is hashed and signed (RFC 8785).

JSON and YAML readers disagree on duplicate keys, big integers, retyped scalars and aliases; two
programs that read the same file differently make a signature worthless. So everything that two
readers could see differently is refused here, before any schema looks at it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import rfc8785
import yaml

from tokenwatt_site.errors import InputError, Problem

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, list or dict of these."""

Lines: TypeAlias = dict[tuple[str | int, ...], int]
"""The line (from 1) on which each value of a YAML file starts, by its path."""

MAX_DOCUMENT_BYTES = 2 << 20
_MAX_YAML_BYTES = 256 << 10  # PyYAML reads about 0.4 MB/s
MAX_DEPTH = 32
_INT_LIMIT = 2**53
_FORBIDDEN_KEYS = frozenset({"__proto__"})
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})
_BLANKS = "\n\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Line feed and the spaces (category Zs), which are allowed."""


def canonical_bytes(value: JsonValue) -> bytes:
    """Return the RFC 8785 (JCS) bytes of `value`.

    Raises:
        InputError: the value has no canonical form (NaN, |int| >= 2^53, lone surrogate). A text
            that is not UTF-8, as an argument may be, is named by its field.
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError) as error:
        if isinstance(error.__cause__ or error, UnicodeError):
            _check_strings(value, None)
        raise InputError(f"value has no canonical JSON form: {error}") from error


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest(value: JsonValue) -> str:
    """Return the lowercase hex SHA-256 of the canonical bytes of `value`."""
    return sha256_hex(canonical_bytes(value))


def read_file(path: Path, *, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a regular file of at most `limit` bytes; symlinks, FIFOs and devices are refused.

    Raises:
        InputError: not there, not a regular file, not readable, or too large.
    """
    data = read_start(path, limit=limit)
    if len(data) > limit:
        raise InputError(
            Problem("is too large", file=str(path), expected=f"at most {limit:,} bytes")
        )
    return data


def read_start(path: Path, *, limit: int) -> bytes:
    """Read the first `limit` bytes of a regular file, and one more where there is more.

    Raises:
        InputError: as of `read_file`, but for the size.
    """
    # O_NONBLOCK: opening a FIFO for reading would wait for a writer for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(path, "rb", opener=lambda name, _: _open_regular(name, flags)) as handle:
            # read(n) sets n bytes aside, so n follows the file and not the limit.
            size = os.fstat(handle.fileno()).st_size
            data = handle.read(min(size, limit) + 1)
    except OSError as error:
        raise InputError(
            Problem(f"cannot be read ({error.strerror})", file=str(path), expected="a regular file")
        ) from error
    if len(data) != min(size, limit + 1):
        raise InputError(Problem("changed while it was read", file=str(path)))
    return data


def _open_regular(name: str, flags: int) -> int:
    descriptor = os.open(name, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return descriptor


def load_json(
    data: bytes,
    *,
    source: str,
    limit: int = MAX_DOCUMENT_BYTES,
    constant: Callable[[str], JsonValue] | None = None,
) -> JsonValue:
    """Parse JSON that every conforming reader understands in the same way.

    Args:
        data: the bytes as received.
        source: name of the file, for the error.
        limit: largest accepted size in bytes.
        constant: what to put for NaN and Infinity in a file that others wrote; None: refuse them.

    Raises:
        InputError: naming the file and what is wrong.
    """
    text = _decode(data, source, limit)
    _check_depth(text, source)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_pairs,
            parse_constant=constant or _refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
        )
    except json.JSONDecodeError as error:
        raise InputError(
            Problem(
                f"is not valid JSON: {error.msg}",
                file=source,
                line=error.lineno,
                found=f"column {error.colno}",
                remedy="If the file was cut short, fetch it again.",
            )
        ) from error
    except ValueError as error:
        raise InputError(Problem(str(error), file=source)) from error
    _check_strings(value, source)
    return value


def load_yaml(data: bytes, *, source: str) -> tuple[JsonValue, Lines]:
    """Parse YAML in the subset that means the same everywhere, and tell where each value stands.

    Only `true`, `false`, decimal integers and decimal fractions are not strings: `no`, `0123` and
    `12:30:45` stay what was typed. Anchors, aliases, tags and duplicate keys are refused.

    Raises:
        InputError: naming file and line.
    """
    text = _decode(data, source, _MAX_YAML_BYTES)
    lines: Lines = {}
    loader: _StrictYaml | None = None
    try:
        loader = _StrictYaml(text)
        node = loader.get_single_node()
        value = _build(node, (), lines, source) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InputError(
            Problem(
                f"is not valid YAML: {error.problem or error.context}",
                file=source,
                line=mark.line + 1 if mark else None,
            )
        ) from error
    except yaml.reader.ReaderError as error:
        raise InputError(
            Problem(
                f"is not valid YAML: {error.reason}",
                file=source,
                line=text.count("\n", 0, error.position) + 1,
                found=f"U+{error.character:04X}",
            )
        ) from error
    finally:
        if loader is not None:
            loader.dispose()
    _check_strings(value, source, lines)
    return value, lines


def text_fault(text: str) -> str | None:
    """Say why `text` may not stand in a file of ours, or None.

    Line feed is allowed; every other control, format (bidi, zero-width), private or unassigned
    character is not, nor is text that is not in Unicode normalisation form C.
    """
    if text.isascii() and text.isprintable():
        return None
    # What Python calls printable is all that is allowed, but for the blanks: an answer's text may
    # have a million letters, and a look at each takes ten times as long.
    seen = text
    for blank in _BLANKS:
        seen = seen.replace(blank, "")
    for character in "" if seen.isprintable() else seen:
        if unicodedata.category(character) in _FORBIDDEN_CATEGORIES:
            return f"holds the character U+{ord(character):04X}, which is invisible or a control"
    if not unicodedata.is_normalized("NFC", text):
        return "is not in Unicode normalisation form C"
    return None


def clean_text(text: str, *, limit: int = 300) -> str:
    """Make foreign text (an engine's error message) fit for a file of ours: one short line."""
    normal = unicodedata.normalize("NFC", text[: 4 * limit])
    kept = "".join(
        " " if unicodedata.category(character) in _FORBIDDEN_CATEGORIES else character
        for character in normal
    )
    return " ".join(kept.split())[:limit]


def _decode(data: bytes, source: str, limit: int) -> str:
    if len(data) > limit:
        raise InputError(Problem("is too large", file=source, expected=f"at most {limit:,} bytes"))
    if data.startswith(b"\xef\xbb\xbf"):
        raise InputError(Problem("starts with a byte order mark; remove it", file=source))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"is not UTF-8 at byte {error.start}", file=source)) from error


# Possessive, and a string may lack its end: text of nothing but \" would take quadratic time.
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def _check_depth(text: str, source: str) -> None:
    # Before json.loads, whose recursion ends in a RecursionError at about 200,000 brackets.
    depth = 0
    for match in _STRUCTURE.finditer(text):
        piece = match.group()
        if piece in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InputError(
                    Problem("is nested too deeply", file=source, expected=f"depth <= {MAX_DEPTH}")
                )
        elif piece in "]}":
            depth -= 1


def _unique_pairs(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"holds the key {key[:80]!r} twice")
        if key in _FORBIDDEN_KEYS:
            raise ValueError(f"holds the forbidden key {key!r}")
        result[key] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is no JSON number")


def _parse_int(text: str) -> int:
    if text == "-0":
        raise ValueError("holds -0, which has two readings")
    if len(text) > 17 or abs(int(text)) >= _INT_LIMIT:
        raise ValueError(f"holds the integer {text[:24]}, expected |integer| < 2^53")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or abs(value) >= _INT_LIMIT:
        raise ValueError(f"holds the number {text[:24]}, expected |number| < 2^53")
    if value == 0 and text.startswith("-"):
        raise ValueError("holds -0, which has two readings")
    return value


def _check_strings(
    value: JsonValue,
    source: str | None,
    lines: Lines | None = None,
    path: tuple[str | int, ...] = (),
) -> None:
    if isinstance(value, str):
        if fault := text_fault(value):
            line = lines.get(path) if lines else None
            raise InputError(
                Problem(fault, file=source, line=line, field=".".join(map(str, path)) or None)
            )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if fault := text_fault(key):
                raise InputError(Problem(f"a key {fault}", file=source))
            _check_strings(item, source, lines, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_strings(item, source, lines, (*path, index))


class _StrictYaml(yaml.SafeLoader):
    """SafeLoader whose implicit types are ours alone."""

    # No ClassVar: PyYAML's stubs know it as an instance variable.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it untyped
        for unwanted in ("alias", "anchor", "tag"):
            present = (
                isinstance(event, yaml.events.AliasEvent)
                if unwanted == "alias"
                else getattr(event, unwanted, None) is not None
            )
            if present:
                raise yaml.composer.ComposerError(
                    None, None, f"{unwanted} not allowed; write the value out", event.start_mark
                )
        # Before the recursion ends in a RecursionError.
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"is nested deeper than {MAX_DEPTH}", event.start_mark
            )
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"^(?:true|false)$", "tf"),
    ("tag:yaml.org,2002:int", r"^-?(?:0|[1-9][0-9]*)$", "-0123456789"),
    ("tag:yaml.org,2002:float", r"^-?(?:0|[1-9][0-9]*)\.[0-9]+$", "-0123456789"),
):
    _StrictYaml.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


_SCALARS: dict[str, Callable[[str], JsonValue]] = {
    "tag:yaml.org,2002:bool": lambda text: text == "true",
    "tag:yaml.org,2002:int": _parse_int,
    "tag:yaml.org,2002:float": _parse_float,
    "tag:yaml.org,2002:str": str,
}


def _build(node: yaml.Node, path: tuple[str | int, ...], lines: Lines, source: str) -> JsonValue:
    line = node.start_mark.line + 1
    lines[path] = line

    def refuse(what: str) -> NoReturn:
        field = ".".join(map(str, path)) or None
        raise InputError(Problem(what, file=source, line=line, field=field))

    if isinstance(node, yaml.ScalarNode):
        try:
            return _SCALARS[node.tag](node.value)
        except ValueError as error:
            refuse(str(error))
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, i), lines, source) for i, item in enumerate(node.value)]
    result: dict[str, JsonValue] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            refuse("has a key that is not plain text")
        key = key_node.value
        if key in result or key in _FORBIDDEN_KEYS:
            line = key_node.start_mark.line + 1
            refuse(f"holds the key {key!r} twice" if key in result else f"key {key!r} is forbidden")
        result[key] = _build(value_node, (*path, key), lines, source)
    return result
