from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.evidence.power import PowerSample
from tokenwatt_site.measure.power.rapl import MOST_W, RaplMeter, RaplUnavailable, WrappingCounter

SECOND = 1_000_000_000
RANGE = 262_143_328_850
"""Microjoules of an Intel package; AMD's and memory's are a quarter of it."""
SMALL = 65_532_610_987


def laid_out(root: Path, files: Mapping[str, object]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n", "ascii")
    return root


def zone(
    place: str, name: str, energy_uj: int, range_uj: int = RANGE, **more: object
) -> dict[str, object]:
    """Files of one zone; `more` are further files of it."""
    told = {"name": name, "energy_uj": energy_uj, "max_energy_range_uj": range_uj, **more}
    return {f"{place}/{file}": content for file, content in told.items()}


def listed(test_data: Path, listing: str, root: Path) -> Path:
    """The sysfs tree that a listing of real files tells, below `root`."""
    rows = (test_data / "power" / listing).read_text("utf-8").splitlines()
    pairs = [row.partition("\t")[::2] for row in rows if row.startswith("sys/class/powercap/")]
    files = {path.removeprefix("sys/class/powercap/"): content for path, content in pairs}
    return laid_out(root, files)


def clock(*times_s: float) -> Callable[[], int]:
    ticks = iter(times_s)
    return lambda: round(next(ticks) * SECOND)


def write_energy(root: Path, place: str, energy_uj: int) -> None:
    (root / place / "energy_uj").write_text(f"{energy_uj}\n", "ascii")


def test_a_real_tree_of_two_packages_is_read_and_its_core_is_not_added(
    test_data: Path, tmp_path: Path
) -> None:
    meter = RaplMeter(listed(test_data, "rapl_sysfs_listing_procfs.tsv", tmp_path))

    assert [(b.uuid, b.name) for b in meter.boards()] == [
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:a", "package-10"),
    ]
    assert meter.read(clock(1, 2)) == (
        PowerSample(SECOND, 0, None, 240_422_366),
        PowerSample(2 * SECOND, 1, None, 240_422_366),
    )


def test_a_limit_of_four_kilowatts_is_no_limit(test_data: Path, tmp_path: Path) -> None:
    meter = RaplMeter(listed(test_data, "rapl_sysfs_listing_procfs.tsv", tmp_path))

    assert [board.limit_mw for board in meter.boards()] == [None, None]


def test_packages_that_a_second_interface_shows_again_are_counted_once(
    test_data: Path, tmp_path: Path
) -> None:
    meter = RaplMeter(listed(test_data, "rapl-hwmon_sysfs_listing.tsv", tmp_path))

    assert [board.name for board in meter.boards()] == ["package-0", "package-10"]
    total = sum(sample.energy_mj or 0 for sample in meter.read(clock(1, 1)))
    assert total == 2 * 240_422_366


def test_b19_four_sockets_with_memory_are_all_read_in_order(tmp_path: Path) -> None:
    files: dict[str, object] = {}
    for n in range(4):
        files |= zone(f"intel-rapl:{n}", f"package-{n}", 1_000_000 * (n + 1))
        files |= zone(f"intel-rapl:{n}:0", "core", 500_000)
        files |= zone(f"intel-rapl:{n}:1", "dram", 250_000 * (n + 1), SMALL)
    files |= zone("intel-rapl:4", "psys", 90_000_000)

    meter = RaplMeter(laid_out(tmp_path, files))

    assert [board.name for board in meter.boards()] == [
        name for n in range(4) for name in (f"package-{n}", f"package-{n} dram")
    ]
    energies = [sample.energy_mj for sample in meter.read(lambda: 0)]
    assert energies == [1000, 250, 2000, 500, 3000, 750, 4000, 1000]


def test_the_tenth_package_comes_after_the_second(tmp_path: Path) -> None:
    files: dict[str, object] = {}
    for n in (10, 2):
        files |= zone(f"intel-rapl:{n}", f"package-{n}", 0)

    boards = RaplMeter(laid_out(tmp_path, files)).boards()

    assert [board.uuid for board in boards] == ["intel-rapl:2", "intel-rapl:10"]


@pytest.mark.parametrize(
    ("more", "limit_mw"),
    [
        ({"constraint_0_power_limit_uw": 350_000_000, "enabled": 1}, 350_000),
        ({"constraint_0_power_limit_uw": 350_000_000, "enabled": 0}, None),
        ({"constraint_0_power_limit_uw": 350_000_000}, None),
        ({"constraint_0_power_limit_uw": 0, "enabled": 1}, None),
        ({"constraint_0_power_limit_uw": "", "enabled": 1}, None),
        ({}, None),
    ],
)
def test_a_limit_is_told_where_it_is_enforced(
    tmp_path: Path, more: dict[str, object], limit_mw: int | None
) -> None:
    files = zone("intel-rapl:0", "package-0", 0, RANGE, **more)

    (board,) = RaplMeter(laid_out(tmp_path, files)).boards()

    assert board.limit_mw == limit_mw


def test_b19_a_counter_that_begins_anew_goes_on_rising(tmp_path: Path) -> None:
    root = laid_out(tmp_path, zone("intel-rapl:0", "package-0", RANGE - 100_000_000))
    meter = RaplMeter(root)
    (before,) = meter.read(clock(0))
    write_energy(root, "intel-rapl:0", 150_000_000)
    (after,) = meter.read(clock(1))

    assert before.energy_mj == (RANGE - 100_000_000) // 1000
    assert after.energy_mj == (RANGE + 150_000_000) // 1000


@given(
    start=st.integers(0, SMALL - 1),
    draws=st.lists(
        st.tuples(st.integers(1, 30 * SECOND), st.floats(0, MOST_W, allow_nan=False)), max_size=60
    ),
)
def test_b19_any_true_energy_comes_back_however_often_the_counter_began_anew(
    start: int, draws: list[tuple[int, float]]
) -> None:
    times = list(accumulate((ns for ns, _ in draws), initial=0))
    truth = list(accumulate((int(ns * watts / 1000) for ns, watts in draws), initial=start))
    counter = WrappingCounter(SMALL)

    counted = [counter.add(at, uj % SMALL) for at, uj in zip(times, truth, strict=True)]

    assert counted == truth


@given(
    gap_ns=st.integers(32 * SECOND, 10_000 * SECOND),
    first=st.integers(0, SMALL - 1),
    second=st.integers(0, SMALL - 1),
)
def test_b19_a_gap_in_which_the_counter_may_have_begun_anew_twice_leaves_no_energy(
    gap_ns: int, first: int, second: int
) -> None:
    counter = WrappingCounter(SMALL)

    assert counter.add(0, first) == first
    assert counter.add(gap_ns, second) is None
    assert counter.add(gap_ns + SECOND, second) is None


def test_a_wide_counter_stands_a_gap_that_a_narrow_one_does_not() -> None:
    wide, narrow = WrappingCounter(RANGE), WrappingCounter(SMALL)
    for counter in (wide, narrow):
        counter.add(0, 0)

    assert wide.add(60 * SECOND, 6_000_000_000) == 6_000_000_000
    assert narrow.add(60 * SECOND, 6_000_000_000) is None


@given(first=st.integers(0, RANGE - 1), second=st.integers(0, RANGE - 1))
def test_b8_a_rise_that_no_package_can_draw_leaves_no_energy(first: int, second: int) -> None:
    drawn = (second - first) % RANGE
    assume(drawn > 2 * MOST_W * 1_000_000)
    counter = WrappingCounter(RANGE)
    counter.add(0, first)

    assert counter.add(SECOND, second) is None


def test_a_reading_outside_of_the_range_is_missing_and_the_count_goes_on() -> None:
    counter = WrappingCounter(SMALL)

    counted = [counter.add(i * SECOND, uj) for i, uj in enumerate((5, SMALL + 1, -1, 9))]

    assert counted == [5, None, None, 9]


@pytest.mark.parametrize("text", ["", "no number", "-5"])
def test_b14_an_energy_that_cannot_be_read_later_is_missing_and_the_count_goes_on(
    tmp_path: Path, text: str
) -> None:
    root = laid_out(tmp_path, zone("intel-rapl:0", "package-0", 1_000_000))
    meter = RaplMeter(root)
    energies = []
    for at_s, content in enumerate(("1000000", text, "3000000")):
        (root / "intel-rapl:0" / "energy_uj").write_text(content, "ascii")
        energies.append(meter.read(clock(at_s))[0].energy_mj)

    assert energies == [1000, None, 3000]


def test_there_are_no_watts_and_the_scope_is_the_processor(tmp_path: Path) -> None:
    meter = RaplMeter(laid_out(tmp_path, zone("intel-rapl:0", "package-0", 7_000)))

    assert (meter.sensor, meter.scope, meter.driver, meter.averaging_ns) == (
        "rapl",
        "cpu",
        None,
        None,
    )
    assert meter.read(clock(3)) == (PowerSample(3 * SECOND, 0, None, 7),)
    meter.close()


def test_b19_without_root_the_reason_and_the_remedy_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root reads a file of mode 000 too, so the refusal is made here.
    root = laid_out(tmp_path, zone("intel-rapl:0", "package-0", 7_000))
    read_text = Path.read_text

    def refusing(path: Path, encoding: str | None = None) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, encoding)

    monkeypatch.setattr(Path, "read_text", refusing)

    with pytest.raises(RaplUnavailable, match=r"energy_uj: no permission.*chmod a\+r") as caught:
        RaplMeter(root)
    assert isinstance(caught.value, EnvironmentProblem)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no processor package here; found no zone intel-rapl:N"),
        (zone("intel-rapl:0", "psys", 1), "no processor package here; found psys"),
        (zone("intel-rapl-mmio:0", "package-0", 1), "found no zone intel-rapl:N"),
        (
            zone("intel-rapl:0", "package-0", 1) | zone("intel-rapl:1", "package-0", 1),
            "lists package-0 more than once",
        ),
        ({"intel-rapl:0/energy_uj": 1}, "name: cannot be read: No such file"),
        (
            {"intel-rapl:0/name": "package-0", "intel-rapl:0/energy_uj": 1},
            "max_energy_range_uj: cannot be read",
        ),
        (zone("intel-rapl:0", "package-0", 1, 0), "max_energy_range_uj: is no count; found '0'"),
        (zone("intel-rapl:0", "package-0", -4), "energy_uj: is no count; found '-4'"),
        (
            zone("intel-rapl:0", "package-0", 1) | {"intel-rapl:0/energy_uj": "much"},
            "energy_uj: is no count; found 'much'",
        ),
    ],
)
def test_why_nothing_is_read_is_said(tmp_path: Path, files: dict[str, object], words: str) -> None:
    with pytest.raises(RaplUnavailable) as caught:
        RaplMeter(laid_out(tmp_path, files))

    assert words in str(caught.value)


def test_b11_equal_packages_add_up_to_their_number(tmp_path: Path) -> None:
    files: dict[str, object] = {}
    for n in range(4):
        files |= zone(f"intel-rapl:{n}", f"package-{n}", 0)
    root = laid_out(tmp_path, files)
    meter = RaplMeter(root)
    sums = []
    for at_s in range(3):
        for n in range(4):
            write_energy(root, f"intel-rapl:{n}", at_s * 100_000_000)
        sums.append(sum(s.energy_mj or 0 for s in meter.read(clock(*[at_s] * 4))))

    assert [b - a for a, b in pairwise(sums)] == [4 * 100_000, 4 * 100_000]
