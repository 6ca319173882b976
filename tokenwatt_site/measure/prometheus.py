"""Text of a Prometheus exporter, as its samples. Pure.

The text format 0.0.4, and of OpenMetrics what looks the same: time stamps and exemplars are
skipped. Lenient about lines that are neither: what people keep of an exporter has titles, rulers
and prompts in between, and one odd family must not cost all others. Such lines are counted.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass

from tokenwatt_site.errors import InputError, Problem

MAX_BYTES = 4 << 20
"""Far above what eight boards or an engine of many ranks export."""

# Possessive throughout, so a line costs its length, whatever is in it.
_BLANK = r"[ \t]*+"
_LABEL = rf'{_BLANK}([a-zA-Z_][a-zA-Z0-9_]*+){_BLANK}={_BLANK}"((?:[^"\\]|\\.)*+)"{_BLANK}'
_ONE = _LABEL.replace("([", "(?:[").replace("((?:", "(?:(?:")
_NUMBER = r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_LINE = re.compile(
    rf"{_BLANK}([a-zA-Z_:][a-zA-Z0-9_:]*+)"
    rf"(?:{_BLANK}\{{((?:{_ONE}(?:,{_ONE})*+,?)?{_BLANK})\}}{_BLANK}|[ \t]++)"
    rf"({_NUMBER}|[+-]?(?i:inf|nan))"
    rf"(?:[ \t]++{_NUMBER})?(?:[ \t]++#.*+)?{_BLANK}"
)
_LABELS = re.compile(_LABEL)
_NAME = re.compile(rf"{_BLANK}([a-zA-Z_:][a-zA-Z0-9_:]*+)")
_ESCAPED = re.compile(r"\\(.)")
_MEANT = {"n": "\n", "\\": "\\", '"': '"'}


@dataclass(frozen=True, slots=True)
class Sample:
    """One series as it was: `value` may be infinite or NaN."""

    name: str
    labels: dict[str, str]
    value: float


class Metrics:
    """What an exporter said.

    Attributes:
        foreign: lines that are neither samples nor comments nor blank.
    """

    def __init__(self, text: str, names: Container[str] | None = None) -> None:
        """Read the series of these names alone; None: all there are."""
        self.foreign = 0
        self._lines: dict[str, list[tuple[str | None, str]]] = {}
        for line in text.split("\n"):  # a label's value may hold what `splitlines` splits at
            line = line.removesuffix("\r")  # noqa: PLW2901  # the same line, without its end
            if names is not None and (named := _NAME.match(line)) and named[1] not in names:
                continue
            if found := _LINE.fullmatch(line):
                name, labels, value = found.groups()
                self._lines.setdefault(name, []).append((labels, value))
            elif line.strip(" \t") and not line.lstrip(" \t").startswith("#"):
                self.foreign += 1

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def names(self) -> tuple[str, ...]:
        """Return the names of all series, each once, in the order of the text."""
        return tuple(self._lines)

    def samples(self, name: str) -> Iterator[Sample]:
        """Yield the series called `name`, in the order of the text; the same one may come twice."""
        # Labels are taken apart here: of a thousand lines a reader wants twenty.
        for labels, value in self._lines.get(name, ()):
            told = _LABELS.findall(labels or "")
            yield Sample(name, {key: _unescaped(text) for key, text in told}, float(value))


def parse(data: bytes, *, source: str, names: Container[str] | None = None) -> Metrics:
    """Read what an exporter answered.

    Args:
        data: the body of the answer.
        source: what errors call it.
        names: of the series that are wanted, which costs less than all; None: all there are.

    Raises:
        InputError: larger than MAX_BYTES, or no UTF-8.
    """
    if len(data) > MAX_BYTES:
        raise InputError(
            Problem(
                "is larger than metrics are",
                file=source,
                found=f"{len(data):,} bytes",
                expected=f"at most {MAX_BYTES:,} bytes",
            )
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(Problem("is no UTF-8", file=source)) from error
    return Metrics(text, names)


def _unescaped(text: str) -> str:
    """Undo the three escapes of the format; a backslash before anything else is a backslash."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: _MEANT.get(found[1], found[0]), text)
