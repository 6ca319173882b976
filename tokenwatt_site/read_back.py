"""What engine and driver say of themselves, held against the spec. Pure.

Who measures does it before the load, and who verifies once more. Both sides are texts, as a run
publishes them; several of a kind have ", " between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from tokenwatt_site import accelerators
from tokenwatt_site.canonical import clean_text
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.power import LIMIT_WITHIN_W
from tokenwatt_site.run import ReadBack
from tokenwatt_site.spec import NOT_RECORDED, Spec

_LONGEST = 300
"""Of an observed text: of a longer one only the beginning is kept."""


def declared(spec: Spec) -> dict[str, str]:
    """Return what a spec declares of what can be observed, by field."""
    setup, engine, board = spec.setup, spec.setup.engine, spec.setup.accelerator
    limit = board.power_limit_w
    return {
        "setup.engine.name": engine.name,
        "setup.engine.version": engine.version,
        "setup.engine.build": engine.build,
        "endpoint.model": spec.endpoint.model,
        "setup.driver": setup.driver,
        "setup.power.sensor": setup.power.sensor,
        "setup.power.scope": setup.power.scope,
        "setup.accelerator.model": board.model,
        "setup.accelerator.count": str(board.count),
        "setup.accelerator.power_limit_w": limit if isinstance(limit, str) else f"{limit:g}",
        "setup.model.digest": setup.model.digest,
    }


def agrees(field: str, told: str, observed: str) -> bool:
    """Tell whether what was observed is what was declared, each as it is written there.

    A field declared "not recorded" agrees with anything: there is nothing to compare.
    """
    return told == NOT_RECORDED or _RULES.get(field, str.__eq__)(told, observed)


def _same_name(told: str, observed: str) -> bool:
    return told.casefold() == observed.casefold()


def _served(told: str, observed: str) -> bool:
    return told in observed.split(", ") or len(observed) == _LONGEST


def _named_in(told: str, observed: str) -> bool:
    return observed in re.split(r"[\s,/()]+", told)


def _all_of_model(told: str, observed: str) -> bool:
    return all(accelerators.is_model(told, name) for name in observed.split(", "))


def _all_near(told: str, observed: str) -> bool:
    try:
        watts = [float(each) for each in observed.split(", ")]
        return all(abs(each - float(told)) <= LIMIT_WITHIN_W for each in watts)
    except ValueError:
        return False


_RULES: Mapping[str, Callable[[str, str], bool]] = MappingProxyType(
    {
        "setup.engine.name": _same_name,
        "endpoint.model": _served,
        "setup.driver": _named_in,
        "setup.accelerator.model": _all_of_model,
        "setup.accelerator.power_limit_w": _all_near,
    }
)
"""When a field agrees that need not be the same text."""


def rows_of(spec: Spec, observed: Mapping[str, str | None]) -> tuple[ReadBack, ...]:
    """Return the rows of a run: of each field what was declared, and observed or not."""
    return tuple(
        ReadBack(
            field=field,
            declared=told,
            observed=None if (seen := observed[field]) is None else clean_text(seen),
            state="declared" if seen is None else "read back",
        )
        for field, told in declared(spec).items()
    )


def check_rows(spec: Spec, rows: Iterable[ReadBack], where: str) -> None:
    """Check that rows are of this spec, each field once, and what was observed agrees.

    Raises:
        InputError: every row that is not so; `where` says where they stand.
    """
    problems, known = [], declared(spec)
    for number, row in enumerate(rows):
        told = known.pop(row.field, None)
        if told is None:
            what, expected = "is no field that is read back, or one a second time", None
        elif row.declared != told:
            what, expected = "declares something else than the spec", told
        elif (row.observed is None) != (row.state == "declared"):
            what, expected = "says what was observed exactly where something was", None
        elif row.observed is not None and not agrees(row.field, told, row.observed):
            what, expected = "is not what the spec declares", told
        else:
            continue
        found = row.observed if row.declared == told else row.declared
        place = f"{where}.{number} ({row.field})"
        problems.append(Problem(what, field=place, found=repr(found)[:200], expected=expected))
    if problems:
        raise InputError(*problems)
