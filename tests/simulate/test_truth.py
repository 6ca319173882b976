from __future__ import annotations

import json
from pathlib import Path

from tokenwatt_site.simulate.truth import Moment, Served, TruthFile

BOTH = Moment(5_000, 1_764_600_000_123_456_789)


def served(**more: object) -> Served:
    made = Served(3, "chat", b'{"secret": 1}', BOTH)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_line_has_every_instant_on_both_clocks_and_no_body() -> None:
    line = served(
        admitted=BOTH.moved(5_010),
        sent=[(BOTH.moved(6_000), 2), (BOTH.moved(7_000), 1)],
        late_ns=40,
        ended="complete",
        ended_at=BOTH.moved(7_001),
    ).line()
    assert line.count("\n") == 1
    told = json.loads(line)
    assert told["received"] == [5_000, "1764600000123456789"]
    assert told["admitted"] == [5_010, "1764600000123456799"]
    assert told["sent"] == [[6_000, "1764600000123457789", 2], [7_000, "1764600000123458789", 1]]
    assert (told["number"], told["api"], told["ended"]) == (3, "chat", "complete")
    assert told["late_ns"] == 40
    assert "secret" not in line


def test_an_instant_that_never_was_is_null() -> None:
    told = json.loads(served(ended="refused").line())
    assert (told["admitted"], told["ended_at"], told["sent"]) == (None, None, [])


def test_a_line_is_on_disk_as_soon_as_its_request_ended(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    with TruthFile(path) as file:
        file.keep(served())
        assert [json.loads(line)["number"] for line in path.read_text("utf-8").splitlines()] == [3]
        file.keep(served())
        assert len(path.read_text("utf-8").splitlines()) == 2
