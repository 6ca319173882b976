"""The comparisons that a site names: one YAML file each, one page each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from tokenwatt_site.canonical import Lines, canonical_bytes, load_yaml, read_file
from tokenwatt_site.errors import InputError, Problem, SpecError, TokenwattError
from tokenwatt_site.pages.compare import MOST_SIDES
from tokenwatt_site.schema import Line, Model, file_name, validation_problems

FOLDER = "comparisons"
"""Where they are in the folder of the prose, and where their pages are on the site."""


class Named(Model):
    """A comparison that somebody found worth a page of its own.

    Sides are ids of configurations; the baseline may be `quoted/` and the id of a publication.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$"), AfterValidator(file_name)]
    title: Line
    why: Line
    baseline: Line
    others: Annotated[tuple[Line, ...], Field(min_length=1, max_length=MOST_SIDES - 1)]

    @property
    def sides(self) -> tuple[str, ...]:
        """All ids, the baseline first."""
        return self.baseline, *self.others


@dataclass(frozen=True, slots=True)
class _Read:
    path: Path
    named: Named
    lines: Lines


def load_named(folder: Path, known: Collection[str]) -> tuple[Named, ...]:
    """Read every comparison in a folder, by name; none where there is no folder.

    Args:
        folder: of files that end in .yml.
        known: ids that may be a side.

    Raises:
        SpecError: all that is wrong with any of them, each with file and field.
    """
    found: list[_Read] = []
    wrong: list[Problem] = []
    for path in sorted(folder.glob("*.y*ml")):
        try:
            found.append(_read(path))
        except TokenwattError as error:
            wrong += error.problems
    wrong += _faults(found, known)
    if wrong:
        raise SpecError(*wrong)
    return tuple(sorted((each.named for each in found), key=lambda named: named.name))


def _read(path: Path) -> _Read:
    if path.suffix != ".yml":
        told = Problem("is passed over", file=str(path), found=path.suffix, expected="a name.yml")
        raise InputError(told)
    value, lines = load_yaml(read_file(path), source=str(path))
    if not isinstance(value, dict):
        raise InputError(Problem("is no comparison", file=str(path), expected="fields with values"))
    try:
        return _Read(path, Named.model_validate_json(canonical_bytes(value)), lines)
    except ValidationError as error:
        problems = validation_problems(error, source=str(path), lines=lines)
        raise SpecError(*problems) from error


def _faults(found: list[_Read], known: Collection[str]) -> Iterator[Problem]:
    seen: dict[str, Path] = {}
    for each in found:
        file, named = str(each.path), each.named
        if (first := seen.setdefault(named.name, each.path)) is not each.path:
            yield Problem(
                "is the name of another comparison",
                file=file,
                line=each.lines.get(("name",)),
                field="name",
                found=named.name,
                expected=f"another one than in {first}",
            )
        fields = ("baseline", *(f"others.{i}" for i in range(len(named.others))))
        for i, (field, side) in enumerate(zip(fields, named.sides, strict=True)):
            if side in named.sides[:i]:
                what, expected = "is named twice", "each side once"
            elif side not in known:
                what, expected = "is not on this site", "the id of a configuration that has a page"
            else:
                continue
            line = each.lines.get((field,) if i == 0 else ("others", i - 1))
            yield Problem(what, file=file, line=line, field=field, found=side, expected=expected)
