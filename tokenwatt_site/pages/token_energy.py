"""Energy of input and of output tokens apart, in the words of a report."""

from __future__ import annotations

from collections.abc import Iterator

from tokenwatt_site.configuration import Configuration
from tokenwatt_site.energy.per_token import TokenEnergy
from tokenwatt_site.mixes import Mixes
from tokenwatt_site.pages import text
from tokenwatt_site.pages.number_row import NumberRow

WHAT = "Energy of an input token and of an output token apart"
ALONE = "it takes runs that differ from this one in their lengths alone, and there is none here"


def section(
    configuration: Configuration, mixes: Mixes | None, group: str
) -> tuple[tuple[NumberRow, ...], tuple[tuple[str, str], ...]]:
    """Return the lines of All numbers, and what has to stand under Not covered in their place.

    Neither, where the energy itself was not measured.

    Args:
        configuration: whose report it is.
        mixes: all that differ from it in lengths alone, itself too; None: there are none.
        group: the group of the lines.
    """
    if configuration.claims.metric("joules_per_token").value is None:
        return (), ()
    found = ALONE if mixes is None else mixes.apart
    if mixes is None or isinstance(found, str):
        return (), ((WHAT, f"{text.NOT_MEASURED.capitalize()}: {found}."),)
    workloads = (each.setup.workload for each in mixes.configurations)
    names = text.joined(f"{each.name} v{each.version}" for each in workloads)
    return tuple(_rows(found, names, group)), ()


def _rows(found: TokenEnergy, names: str, group: str) -> Iterator[NumberRow]:
    over = (
        f"least squares over {found.windows} windows of runs that differ in lengths alone, {names};"
        f" {100 * found.unexplained:.1f}% of the watts is left"
    )
    for label, figure, unit, decimals, against in (
        ("Energy of an input token, apart", found.input_j, "J/input tok", 3, over),
        ("Energy of an output token, apart", found.output_j, "J/output tok", 2, "the same fit"),
        ("Watts that no token explains", found.base_w, "W", 0, "the same fit"),
    ):
        value, low, high = (
            text.rounded(each, decimals) for each in (figure.value, figure.low, figure.high)
        )
        sure = f"{found.launches} launches, 95% CI {low} to {high}"
        yield NumberRow(group, None, label, value, unit, sure, against)
