from __future__ import annotations

import json
from typing import Any

from tests.pages.conftest import Make
from tests.support.runs import small_spec
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.pages.catalogue import COLUMNS, FACETS, SCHEMA, catalogue
from tokenwatt_site.pages.packed_catalogue import script


def listed(*configurations: Configuration) -> dict[str, Any]:
    known = {c.id: c for c in configurations}
    return catalogue(rank(configurations), known, {c: f"reports/{c}.html" for c in known})


def test_every_row_has_every_column_and_facet_and_every_missing_number_its_reason(
    demo: Configuration, boards: Configuration
) -> None:
    told = listed(demo, boards)
    assert told["schema"] == SCHEMA
    assert [row["id"] for row in told["rows"]] != []
    for row in told["rows"]:
        assert tuple(row["cells"]) == COLUMNS
        assert tuple(row["facets"]) == tuple(FACETS)
        assert told["sections"][row["section"]]["workload"] == "demo-mix-v1"
        for cell in row["cells"].values():
            assert (cell["value"] is None) == bool(cell["reason"])


def test_two_scopes_are_two_sections_and_a_cpu_has_no_cards(
    demo: Configuration, boards: Configuration
) -> None:
    told = listed(demo, boards)
    by_id = {row["id"]: row for row in told["rows"]}
    assert by_id[demo.id]["section"] != by_id[boards.id]["section"]
    assert (by_id[demo.id]["cards"], by_id[boards.id]["cards"]) == (None, 4)


def test_what_is_simulated_says_so_as_a_fact_and_what_is_not_proven_is_none(
    demo: Configuration, measured: Configuration
) -> None:
    simulated, real = (listed(c)["rows"][0] for c in (demo, measured))
    assert "simulated" in simulated["facets"]["facts"]
    assert "simulated" not in real["facets"]["facts"]
    assert "registered key" in real["facets"]["facts"]
    assert "reproduced by others" not in real["facets"]["facts"]


def test_the_script_cannot_end_its_element_and_holds_each_text_once(make: Make) -> None:
    title = "</script><b> Toy"
    hostile = make(spec=small_spec(title=title, setup__engine__name="<!--"))
    written = script(listed(hostile))
    assert "<" not in written
    assert written.isascii()
    start = "globalThis.TokenwattCatalogueData = "
    literal = written.removeprefix(f"{start}JSON.parse(").removesuffix(");\n")
    packed = json.loads(json.loads(literal))
    assert packed["rows"]["title"] == {"all": title}
    assert len(set(packed["texts"])) == len(packed["texts"])


def test_a_section_begins_with_the_columns_that_at_least_half_of_its_rows_have(
    demo: Configuration, make: Make
) -> None:
    bare = [make(spec=small_spec(setup__host_kind=h), rates_urps=(500_000,)) for h in ("a", "b")]
    (section,) = listed(demo, *bare)["sections"]
    assert section["shown"] == ["long_run_goodput", "ttft", "tpot"]
    (section,) = listed(demo, bare[0])["sections"]
    assert section["shown"] == ["goodput", "ttft", "tpot"]
