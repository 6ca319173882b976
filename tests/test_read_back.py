from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import RunBuilder, gpu_spec, small_spec
from tests.trust.test_verify import altered, check, put, refused, two_repeats
from tokenwatt_site.errors import InputError
from tokenwatt_site.read_back import agrees, check_rows, declared, rows_of
from tokenwatt_site.run import ReadBack

SPEC = gpu_spec()
NOTHING: dict[str, str | None] = dict.fromkeys(declared(SPEC))


@pytest.mark.parametrize(
    ("field", "told", "observed", "same"),
    [
        ("setup.engine.name", "vLLM", "vllm", True),
        ("setup.engine.name", "vLLM", "SGLang", False),
        ("setup.engine.version", "0.32.0", "0.32.0", True),
        ("setup.engine.version", "0.32.0", "0.32.1", False),
        ("setup.engine.version", "not recorded", "0.32.1", True),
        ("endpoint.model", "llama", "other, llama", True),
        ("endpoint.model", "llama", "other, llama-2", False),
        ("endpoint.model", "llama", "m" * 300, True),
        ("setup.driver", "NVIDIA 580.12 (CUDA 13)", "580.12", True),
        ("setup.driver", "NVIDIA 580.12 (CUDA 13)", "580", False),
        ("setup.accelerator.model", "NVIDIA H200", "NVIDIA H200", True),
        ("setup.accelerator.model", "NVIDIA H200", "NVIDIA H200, NVIDIA H100", False),
        ("setup.accelerator.count", "4", "4", True),
        ("setup.accelerator.count", "4", "8", False),
        ("setup.accelerator.power_limit_w", "700", "699.5, 700", True),
        ("setup.accelerator.power_limit_w", "700", "600, 700", False),
        ("setup.accelerator.power_limit_w", "700", "much", False),
    ],
)
def test_t10_what_was_observed_is_held_against_what_was_declared(
    field: str, told: str, observed: str, same: bool
) -> None:
    assert agrees(field, told, observed) is same


def test_rows_of_a_spec_are_in_order_whether_anything_was_observed_or_not() -> None:
    rows = rows_of(SPEC, NOTHING | {"setup.accelerator.count": "2"})
    check_rows(SPEC, rows, "here")
    assert {row.field for row in rows if row.state == "read back"} == {"setup.accelerator.count"}


ROWS = rows_of(SPEC, NOTHING | {"setup.engine.version": "1.0"})


def without(name: str, **changes: Any) -> tuple[ReadBack, ...]:
    return tuple(row.model_copy(update=changes if row.field == name else {}) for row in ROWS)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (without("setup.engine.version", observed="2.0"), "is not what the spec declares"),
        (without("setup.engine.version", declared="2.0"), "declares something else"),
        (without("setup.engine.version", state="declared"), "exactly where something was"),
        (without("setup.driver", state="read back"), "exactly where something was"),
        (without("setup.driver", field="setup.slo"), "is no field that is read back"),
        (ROWS + ROWS[:1], "one a second time"),
    ],
)
def test_t10_rows_that_do_not_fit_the_spec_are_refused(
    rows: tuple[ReadBack, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        check_rows(SPEC, rows, "here")


OTHER = [
    {
        "field": "setup.engine.version",
        "declared": "1.0",
        "observed": "2.0",
        "state": "read back",
    }
]


def test_t10_a_signed_run_of_another_engine_than_it_declares_is_refused(tmp_path: Path) -> None:
    builder = RunBuilder(
        edit_journal=altered("launch", read_back=OTHER),
        edit_document=put("conditions", "read_back", value=OTHER),
    )
    path = builder.write(tmp_path)
    refused(path, 7, "journal line 1.read_back.0 (setup.engine.version)", "found '2.0'")


def test_t10_every_launch_is_held_against_the_spec_and_not_the_last_alone(tmp_path: Path) -> None:
    builder = two_repeats(edit_journal=altered("launch", read_back=OTHER))
    refused(builder.write(tmp_path), 7, "read_back.0 (setup.engine.version)")


@pytest.mark.parametrize("told", [[{}], [3], 3, [{"field": "x"}]])
def test_b14_rows_that_are_none_cost_this_run_alone(tmp_path: Path, told: Any) -> None:
    builder = two_repeats(edit_journal=altered("launch", read_back=told))
    refused(builder.write(tmp_path), 7, "read_back: is no list of what was declared and observed")


def test_a_run_that_was_read_back_is_valid(tmp_path: Path) -> None:
    spec = small_spec()
    seen: dict[str, str | None] = dict.fromkeys(declared(spec))
    rows = [row.to_json() for row in rows_of(spec, seen | {"setup.engine.name": "TOY"})]
    builder = RunBuilder(
        edit_journal=altered("launch", read_back=rows),
        edit_document=put("conditions", "read_back", value=rows),
    )
    assert len(check(builder.write(tmp_path)).run.conditions.read_back) == len(rows)
