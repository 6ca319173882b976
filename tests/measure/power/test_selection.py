from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.errors import ReadBackError
from tokenwatt_site.measure.power.selection import Chosen, Present, choose

FOUR = tuple(
    Present(
        uuid=f"GPU-{n}abc{n}def-0000-0000-0000-00000000000{n}",
        pci=f"00000000:{bus}:00.0",
        pids=frozenset(),
    )
    for n, bus in enumerate(("C1", "0A", "8F", "4B"))
)
SPLIT = Present(
    uuid="GPU-feed0000-0000-0000-0000-000000000000",
    mig=True,
    instances=("MIG-aaaa0000-1111", "MIG-bbbb0000-2222"),
    pids=frozenset(),
)


def seen(*pids: tuple[int, ...]) -> tuple[Present, ...]:
    return tuple(replace(board, pids=frozenset(on)) for board, on in zip(FOUR, pids, strict=True))


def places(chosen: tuple[Chosen, ...]) -> list[int]:
    return [one.place for one in chosen]


def test_boards_on_which_the_engine_is_seen_are_the_servers() -> None:
    present = seen((), (10, 999), (11,), (999,))

    assert choose(present, 2, pids={10, 11, 12}) == (
        Chosen(1, "by process", part=False, others=1),
        Chosen(2, "by process", part=False, others=0),
    )


def test_all_that_there_are_count_when_they_are_as_many_as_declared() -> None:
    chosen = choose(FOUR, 4)

    assert {(one.how, one.others) for one in chosen} == {("all there are", None)}
    assert places(chosen) == [0, 1, 2, 3]


def test_more_boards_than_declared_and_no_sign_of_the_engine_is_an_error_that_names_them() -> None:
    with pytest.raises(ReadBackError) as raised:
        choose(FOUR, 2, pids={10})

    text = str(raised.value)
    assert "setup.accelerator.count" in text
    assert "found 4 (observed); expected 2 (declared)" in text
    assert all(board.uuid in text for board in FOUR)
    assert "--gpus" in text


@pytest.mark.parametrize("declared", [1, 3])
def test_an_engine_seen_on_another_number_of_boards_is_an_error(declared: int) -> None:
    with pytest.raises(ReadBackError, match="the number of boards, by process; found 2"):
        choose(seen((10,), (10,), (), ()), declared, pids={10})


def test_fewer_boards_than_declared_is_an_error() -> None:
    with pytest.raises(ReadBackError, match=r"found 4 \(observed\); expected 8 \(declared\)"):
        choose(FOUR, 8)


@pytest.mark.parametrize(
    "name",
    [
        FOUR[2].uuid,
        "GPU-2abc",
        "gpu-2ABC2DEF",
        " GPU-2 ",
        f"MIG-{FOUR[2].uuid}/1/0",
    ],
)
def test_a_board_is_named_by_its_uuid_or_the_beginning_of_it(name: str) -> None:
    chosen = choose(FOUR, 1, named=(name,))

    assert (places(chosen), chosen[0].how) == ([2], "by name")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GPU-", "fits several boards"),
        ("GPU-ffff", "names no board here"),
        ("2abc2def", "names no board here"),
        ("NVIDIA H200", "names no board here"),
        ("", "names no board here"),
        ("0", "is a number, and CUDA and NVML number boards differently"),
    ],
)
def test_a_name_that_fits_no_board_or_several_is_an_error_with_the_ids(
    name: str, words: str
) -> None:
    with pytest.raises(ReadBackError, match=words) as raised:
        choose(FOUR, 1, named=(name,))

    assert FOUR[3].uuid in str(raised.value)
    assert f"--gpus {FOUR[0].uuid}" in str(raised.value)


def test_another_number_of_named_boards_than_declared_is_an_error() -> None:
    with pytest.raises(ReadBackError, match=r"by name; found 1.*name with --gpus every board"):
        choose(FOUR, 2, named=("GPU-1", "GPU-1abc"))


def test_named_boards_on_which_the_engine_is_seen_count_as_seen() -> None:
    present = seen((), (10,), (11,), ())

    chosen = choose(present, 2, named=("GPU-2", "GPU-1"), pids={10, 11})

    assert {one.how for one in chosen} == {"by process"}


def test_workers_that_are_not_seen_may_be_named() -> None:
    present = seen((), (10, 999), (77,), ())

    chosen = choose(present, 2, named=("GPU-2", "GPU-1"), pids={10})

    assert [(one.place, one.how, one.others) for one in chosen] == [
        (1, "by name", 1),
        (2, "by name", None),
    ]


def test_naming_too_few_of_the_boards_that_the_engine_runs_on_is_an_error() -> None:
    present = seen((), (10,), (11,), ())

    with pytest.raises(ReadBackError, match="leaves out boards that the engine runs on") as raised:
        choose(present, 1, named=("GPU-1",), pids={10, 11})

    assert FOUR[2].uuid in str(raised.value)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (FOUR[3].uuid, [3]),
        ("GPU-3abc, GPU-1abc", [1, 3]),
        (f"{FOUR[0].uuid},GPU-2,GPU-3", [0, 2, 3]),
    ],
)
def test_uuids_of_the_engines_environment_name_its_boards(
    visible: str, expected: list[int]
) -> None:
    chosen = choose(FOUR, len(expected), environment={"CUDA_VISIBLE_DEVICES": visible})

    assert places(chosen) == expected
    assert {one.how for one in chosen} == {"by name"}


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("0", [1]), ("0,1", [1, 3]), ("2,-1,0", [2]), ("3,9,0", [0])],
)
def test_numbers_of_the_engines_environment_count_in_the_order_of_the_bus(
    visible: str, expected: list[int]
) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    assert places(choose(FOUR, len(expected), environment=environment)) == expected


@pytest.mark.parametrize("order", [{}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}])
def test_numbers_in_an_order_that_only_cuda_knows_name_nothing(order: dict[str, str]) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0,1", **order}

    with pytest.raises(ReadBackError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        choose(FOUR, 2, environment=environment)
    assert places(choose(FOUR, 4, environment=environment)) == [0, 1, 2, 3]


@pytest.mark.parametrize("change", [{"pci": None}, {"mig": True}])
def test_numbers_name_nothing_where_a_board_tells_no_bus_or_its_shares_have_numbers_too(
    change: dict[str, Any],
) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    present = (replace(FOUR[0], **change), *FOUR[1:])

    with pytest.raises(ReadBackError, match="found 4"):
        choose(present, 1, environment=environment)


@pytest.mark.parametrize("hidden", ["", " ", "-1"])
def test_an_environment_that_hides_every_board_is_an_error(hidden: str) -> None:
    with pytest.raises(ReadBackError, match="hides every board"):
        choose(FOUR, 4, environment={"CUDA_VISIBLE_DEVICES": hidden})


def test_what_the_user_names_and_what_is_seen_come_before_the_environment() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": FOUR[3].uuid}

    assert places(choose(FOUR, 1, named=("GPU-0",), environment=environment)) == [0]
    present = seen((), (10,), (), ())
    assert places(choose(present, 1, pids={10}, environment=environment)) == [1]


def test_processes_that_cannot_be_listed_are_not_seen() -> None:
    present = tuple(replace(board, pids=None) for board in FOUR)

    chosen = choose(present, 4, pids={10})

    assert {(one.how, one.others) for one in chosen} == {("all there are", None)}


@pytest.mark.parametrize(
    "named", [("MIG-aaaa",), ("MIG-aaaa", "MIG-bbbb0000-2222"), ("MIG-GPU-feed0000/1/0",)]
)
def test_b2_ids_of_shares_stand_for_their_one_board_and_say_so(named: tuple[str, ...]) -> None:
    chosen = choose((*FOUR, SPLIT), len(named), named=named)

    assert chosen == (Chosen(4, "by name", part=True, others=None),)


def test_b2_shares_in_the_environment_stand_for_their_board() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "MIG-aaaa0000-1111"}

    assert choose((*FOUR, SPLIT), 1, environment=environment)[0].part


def test_b2_a_split_board_named_by_its_own_id_is_meant_as_a_whole() -> None:
    assert choose((*FOUR, SPLIT), 1, named=("GPU-feed",)) == (
        Chosen(4, "by name", part=False, others=None),
    )


@given(
    st.sets(st.integers(0, 3), min_size=1),
    st.lists(st.integers(0, 3), max_size=3),
    st.permutations(range(4)),
)
def test_however_boards_are_told_each_is_chosen_once_and_in_order(
    wanted: set[int], again: list[int], order: list[int]
) -> None:
    listed = [n for n in order if n in wanted] + [n for n in again if n in wanted]

    named = choose(FOUR, len(wanted), named=[FOUR[n].uuid for n in listed])
    told = choose(
        FOUR,
        len(wanted),
        environment={"CUDA_VISIBLE_DEVICES": ",".join(FOUR[n].uuid for n in listed)},
    )
    ran = choose(
        seen(*((10 + n,) if n in wanted else (999,) for n in range(4))),
        len(wanted),
        pids={10 + n for n in wanted},
    )

    assert places(named) == places(told) == places(ran) == sorted(wanted)
