"""What data sheets say of accelerators: memory, bandwidth, peak, board power, with the source.

The rows are in `accelerators.toml`. A name that is not there has no figures: a percentage of a
guessed peak would be worse than none.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Annotated

from pydantic import Field

from tokenwatt_site.canonical import canonical_bytes
from tokenwatt_site.schema import Line, Model


class AcceleratorRow(Model):
    """One product as sold. `names` are what the driver reports; figures are per board.

    `bf16_tflop_s` is the dense peak: data sheets also print twice that, for sparse matrices.
    """

    name: Line
    names: Annotated[tuple[Line, ...], Field(min_length=1)]
    memory_gib: Annotated[int, Field(gt=0)]
    rated_bandwidth_gb_s: Annotated[float, Field(gt=0)]
    bf16_tflop_s: Annotated[float, Field(gt=0)] | None = None
    board_power_w: Annotated[float, Field(gt=0)] | None = None
    source: Line


@cache
def rows() -> tuple[AcceleratorRow, ...]:
    """Return every row of the table."""
    text = resources.files("tokenwatt_site").joinpath("accelerators.toml").read_text("utf-8")
    return tuple(
        AcceleratorRow.model_validate_json(canonical_bytes(row))
        for row in tomllib.loads(text)["accelerator"]
    )


def find(driver_name: str) -> AcceleratorRow | None:
    """Return the row of a product by the name its driver reports; None when it is not known.

    The whole name must match (letter case apart): "NVIDIA H200 NVL" is not "NVIDIA H200".
    """
    wanted = driver_name.casefold()
    for row in rows():
        if wanted in (name.casefold() for name in row.names):
            return row
    return None


def is_model(declared: str, driver_name: str) -> bool:
    """Tell whether a board of this driver's name is the one that a setup declares."""
    row = find(driver_name)
    return declared.casefold() == driver_name.casefold() or (
        row is not None and declared == row.name
    )


def named(name: str) -> AcceleratorRow | None:
    """Return the row of a product by its own name in the table; None when there is none."""
    wanted = name.casefold()
    return next((row for row in rows() if row.name.casefold() == wanted), None)
