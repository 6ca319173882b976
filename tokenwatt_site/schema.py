"""The base of all values in files: frozen models, texts that may be published, and their faults."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from tokenwatt_site.canonical import JsonValue, Lines, canonical_bytes
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.private import fault

_SECRET_ARGUMENT = re.compile(
    r"token\s*[=:]|(api[-_]?key|secret|passw(or)?d|authorization)[\"']?\s*[=:]|api[-_]key\s+\S"
    r"|^--?[\w-]*(key|token|secret|passw(or)?d|auth)(-file)?(=|$)",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(
    r"(^|_)(token|secret|pass(w(or)?d)?|credentials?|auth|(\w*_)?(api)?key)(_|$)|pwd$",
    re.IGNORECASE,
)

_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile(r"[A-Za-z]")
_LOOKS_LATIN = re.compile(
    # Cyrillic, Greek, full-width and mathematical letters that are read as Latin ones.
    r"[\u0405\u0406\u0408\u0410\u0412\u0415\u041a\u041c-\u041e\u0420-\u0422\u0425"
    r"\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04bb\u0501\u051b\u051d"
    r"\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    r"\u03b1\u03b9\u03ba\u03bd\u03bf\u03c1\u03c5\u03c7"
    r"\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff]"
)


def _one_line(text: str) -> str:
    if "\n" in text:
        raise ValueError("must be one line")
    return text


def _some_words(text: str) -> str:
    if text and not text.strip():
        raise ValueError("must say something")
    return text


def _one_script(text: str) -> str:
    for word in () if text.isascii() else _WORD.findall(text):
        if _LATIN.search(word) and (other := _LOOKS_LATIN.search(word)):
            raise ValueError(
                f"words of one script: beside Latin letters, U+{ord(other[0]):04X} only looks"
                " like one"
            )
    return text


@lru_cache(maxsize=4096)  # thousands of runs say mostly the same
def publishable(text: str) -> str:
    """Refuse text of which a part is private by its shape: all text in a file is published."""
    if (found := fault(text)) is not None:
        raise ValueError(f"{_PUBLISHED}: this {found}")
    return text


def _no_secret_argument(text: str) -> str:
    if _SECRET_ARGUMENT.search(text):
        raise ValueError(f"{_PUBLISHED}: this looks like a secret")
    return text


def is_secret_variable(name: str) -> bool:
    """Tell whether an environment variable of this name would hold a secret."""
    return _SECRET_VARIABLE.search(name) is not None


_PUBLISHED = "text that may be published"


def _variable_name(text: str) -> str:
    # A key put here by mistake would be published, so what is no plain name is not shown either.
    if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,99}", text):
        raise ValueError("the name of an environment variable (A-Z, 0-9, _), not the secret in it")
    return publishable(text)


_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def file_name(text: str) -> str:
    """Refuse a name that a file cannot have on every system: some call their devices so."""
    if _DEVICE.fullmatch(text):
        raise ValueError("a name that no system has for a device")
    return text


Line = Annotated[
    str,
    Field(min_length=1, max_length=300),
    AfterValidator(_one_line),
    AfterValidator(_one_script),
    AfterValidator(publishable),
]
Words = Annotated[Line, AfterValidator(_some_words)]
"""A line that says something: not only blanks."""
Argument = Annotated[
    str,
    Field(max_length=2000),
    AfterValidator(_one_line),
    AfterValidator(publishable),
    AfterValidator(_no_secret_argument),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
VariableName = Annotated[str, AfterValidator(_variable_name)]
BaseUrl = Annotated[
    str,
    Field(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", max_length=300),
    AfterValidator(publishable),
]


class Model(BaseModel):
    """Base of all values that are read from or written to files: frozen and exact."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> JsonValue:
        """Return plain JSON values, as they are hashed and written."""
        return self.model_dump(mode="json")


class GrowingModel(Model):
    """A model whose bytes are signed or hashed, and which got fields after some were.

    `younger` names them; one that is None is not written, so that older ids and signatures stand.
    """

    younger: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_absent(self, serialise: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        value: dict[str, JsonValue] = serialise(self)
        absent = {name for name in self.younger if getattr(self, name) is None}
        return {name: item for name, item in value.items() if name not in absent}


_M = TypeVar("_M", bound=BaseModel)


def valid(model: type[_M], value: JsonValue, source: str) -> _M:
    """Read a value of a JSON document as a model.

    Raises:
        InputError: it is not of the schema; all that is wrong, by field.
    """
    try:
        return model.model_validate_json(canonical_bytes(value))
    except ValidationError as error:
        raise InputError(*validation_problems(error, source=source)) from error


def validation_problems(
    error: ValidationError, *, source: str, lines: Lines | None = None
) -> tuple[Problem, ...]:
    """Turn a schema error into problems that a reader can act on, one per field."""
    problems: dict[str, Problem] = {}
    for item in error.errors(include_url=False):
        # Union branches add their own name to the path, below the field they are of.
        path = tuple(p for i, p in enumerate(item["loc"]) if i == 0 or not _is_branch(p))
        field = ".".join(map(str, path))
        missing = item["type"] == "missing"
        expected = item["msg"].removeprefix("Value error, ")
        found = _shown(item["input"])
        # What is no secret of its own shape may be one by the place where it stands.
        private = "secret" in expected or expected.startswith(_PUBLISHED)
        if missing or item["type"] == "extra_forbidden" or private:
            found = None
        if known := problems.get(field):
            problems[field] = Problem(
                known.what,
                file=source,
                line=known.line,
                field=field,
                found=known.found,
                expected=f"{known.expected}, or: {expected}",
            )
            continue
        problems[field] = Problem(
            "is missing"
            if missing
            else "is not a field of the schema"
            if item["type"] == "extra_forbidden"
            else "is not valid",
            file=source,
            line=_line_of(path, lines),
            field=field or "document",
            found=found,
            expected=None if missing or item["type"] == "extra_forbidden" else expected,
            remedy='Where the value is not known, most fields take "not recorded".'
            if missing and path[0] == "setup" and len(path) > 1
            else None,
        )
    # A list with a bad item is also "too short" and not "not recorded"; the item says it all.
    return tuple(
        problem
        for field, problem in problems.items()
        if not any(other.startswith(f"{field}.") for other in problems)
    )


_BRANCH = re.compile(
    r"^(constrained-\w+|literal\[.*\]|int|float|str|tuple\[.*\]|function-.*"
    r"|lognormal|fixed|trace)$"
)


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and _BRANCH.match(part) is not None


def _line_of(path: tuple[int | str, ...], lines: Lines | None) -> int | None:
    if lines is None:
        return None
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _shown(value: object) -> str | None:
    if isinstance(value, dict) or fault(text := repr(value)) is not None:
        return None
    return text if len(text) <= 80 else f"{text[:77]}..."
