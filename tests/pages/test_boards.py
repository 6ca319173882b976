from __future__ import annotations

from tests.pages.conftest import told
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.pages import boards
from tokenwatt_site.run import BoardClaim, RoleClaim

BARE = BoardClaim(
    repeat=1,
    uuid="GPU-0",
    name="x",
    energy_j=None,
    mean_power_w=None,
    limit_w=None,
    sm_mhz=None,
    memory_mhz=None,
    celsius=None,
    held_back=(),
)


def test_every_board_of_every_repeat_has_a_row(energetic: Configuration) -> None:
    table = boards.table(energetic.claims)
    assert table is not None
    head, rows = table
    assert [row[0] for row in rows] == [board.uuid for board in energetic.claims.boards]
    assert dict(zip(head, rows[1], strict=True)) | {"Board": ""} == {
        "Board": "",
        "Repeat": "1",
        "Name": "Test board",
        "Energy, J": "71,001",
        "Mean, W": "591.0",
        "Enforced limit, W": "700",
        "Of the limit, %": "84",
        "SM clock, MHz": "1,755",
        "Memory clock, MHz": "3,201",
        "Chip, °C": "61",
        "Held back by": "power cap in 83% of readings",
    }


def test_what_a_board_does_not_tell_is_no_zero(demo: Configuration) -> None:
    table = boards.table(told(demo, boards=(BARE,)).claims)
    assert table is not None
    assert table[1][0][3:] == ("not told",) * 8


def test_clocks_that_nothing_held_back_are_not_untold() -> None:
    assert boards.held_back(BARE.model_copy(update={"sm_mhz": 1980.0})) == "nothing"
    assert boards.held_back(BARE) == "not told"


def test_without_boards_there_is_no_table(demo: Configuration) -> None:
    assert boards.table(demo.claims) is None


def test_nodes_and_roles_are_columns_where_there_are_any(demo: Configuration) -> None:
    placed = BARE.model_copy(update={"node": 2, "role": "decode"})
    table = boards.table(told(demo, boards=(placed,)).claims)
    assert table is not None
    assert (table[0][:4], table[1][0][:4]) == (
        ("Board", "Node", "Role", "Repeat"),
        ("GPU-0", "2", "decode", "1"),
    )
    role = RoleClaim(
        repeat=1,
        role="decode",
        boards=2,
        energy_j=1200.4,
        mean_power_w=None,
        percent=61.23,
        joules_per_token=0.8123,
    )
    made = boards.roles(told(demo, roles=(role,)).claims)
    assert made is not None
    assert made[1] == (("decode", "1", "2", "1,200", "61.2", "not told", "0.812"),)
    assert boards.roles(demo.claims) is None
