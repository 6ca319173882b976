from __future__ import annotations

import pytest

from tokenwatt_site import accelerators


@pytest.mark.parametrize(
    ("reported", "bandwidth"),
    [
        ("NVIDIA H200", 4800),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("nvidia b200", 8000),
        ("NVIDIA L40S", 864),
        ("NVIDIA GB10", 273),
        ("AMD Instinct MI300X", 5300),
    ],
)
def test_a_reported_name_finds_its_row(reported: str, bandwidth: float) -> None:
    row = accelerators.find(reported)

    assert row is not None
    assert row.rated_bandwidth_gb_s == bandwidth


@pytest.mark.parametrize(
    "reported",
    ["NVIDIA H200 NVL 2", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "H200", "Tesla T4", "CPU", ""],
)
def test_b17_a_name_that_is_not_listed_has_no_figures(reported: str) -> None:
    assert accelerators.find(reported) is None


def test_boards_of_one_chip_differ_by_sku() -> None:
    large, small = (
        accelerators.find(name) for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB")
    )

    assert large is not None
    assert small is not None
    assert (large.rated_bandwidth_gb_s, small.rated_bandwidth_gb_s) == (2039, 1555)


def test_every_row_has_a_source_and_no_name_is_given_twice() -> None:
    names = [name.casefold() for row in accelerators.rows() for name in row.names]

    assert len(set(names)) == len(names)
    assert all(row.source for row in accelerators.rows())


def test_a_row_is_found_by_its_own_name_too() -> None:
    assert accelerators.named("nvidia h200 sxm 141gb") == accelerators.find("NVIDIA H200")
    assert accelerators.named("NVIDIA H200") is None


@pytest.mark.parametrize(
    ("reported", "dense"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H200", 989),
        ("NVIDIA B200", 2250),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
    ],
)
def test_b17_peaks_are_dense_never_those_of_sparse_matrices(reported: str, dense: float) -> None:
    row = accelerators.find(reported)

    assert row is not None
    assert row.bf16_tflop_s == dense


def test_a_board_of_another_form_is_another_row() -> None:
    sxm, nvl = accelerators.find("NVIDIA H200"), accelerators.find("NVIDIA H200 NVL")

    assert sxm is not None
    assert nvl is not None
    assert sxm.name != nvl.name
    assert (sxm.board_power_w, nvl.board_power_w) == (700, None)


@pytest.mark.parametrize("text", ["recalled", "?", "unknown"])
def test_no_source_is_a_memory(text: str) -> None:
    assert not [row.name for row in accelerators.rows() if text in row.source]
