from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.pages.conftest import Make
from tests.support.runs import RunBuilder, a_key, keyring_of, small_spec
from tests.support.statements import state
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.pages import cite
from tokenwatt_site.trust.verify import read_tree

URL = "https://example.org/bench/runs/abc/"


def test_the_address_of_a_run_is_below_that_of_the_site() -> None:
    assert cite.address("https://example.org/bench/", "abc") == URL
    assert cite.address(None, "abc") is None


def test_the_line_carries_n_mode_the_run_and_where_it_stays(quick: Configuration) -> None:
    text = cite.plain(quick, URL)
    assert "quick mode" in text
    assert "n = 2" in text
    assert quick.headline.run_id[:12] in text
    assert text.endswith(f". {URL}")
    assert cite.plain(quick) == text.removesuffix(f" {URL}")


def test_a_run_without_goodput_counts_its_launches(make: Make) -> None:
    never = make(rates_urps=(500_000,))
    for words in (cite.plain(never), cite.bibtex(never)):
        assert "no goodput, simulated, demo mode, n = 1" in words


def test_the_entry_of_bibtex_has_the_same_number_and_the_whole_run_id(
    quick: Configuration,
) -> None:
    entry = cite.bibtex(quick, URL)
    assert entry.startswith(f"@misc{{tokenwatt-{quick.headline.run_id[:12]},\n")
    assert f"howpublished = {{\\url{{{URL}}}}}" in entry
    assert f"tokenwatt run {quick.headline.run_id}" in entry
    value = re.search(r": ([\d,.]+ output tok/s)", cite.plain(quick))
    assert value is not None
    assert value[1] in entry
    assert "howpublished" not in cite.bibtex(quick)


def test_a_hostile_title_stays_inside_its_field(make: Make) -> None:
    title = r"}, note = {\input{/etc/passwd}} {{ % $x$ #1 a_b ~ ^ \\"
    entry = cite.bibtex(make(spec=small_spec(title=title)))
    depth = 0
    for sign in entry:
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    assert depth == 0
    assert r"\input" not in entry
    assert [line.split(" = ")[0].strip() for line in entry.splitlines()[1:-1]] == [
        "author",
        "title",
        "year",
        "month",
        "note",
    ]


@pytest.mark.parametrize("kind", ["withdrawn", "superseded", "disputed"])
def test_what_was_stated_against_a_run_is_quoted_with_it(tmp_path: Path, kind: Any) -> None:
    path = RunBuilder(simulated=False).write(tmp_path / "runs")
    state(path, kind, a_key())
    keyring = keyring_of(tmp_path / "keys", a_key())
    (configuration,) = group(read_tree(tmp_path / "runs", keyring).valid)
    assert cite.plain(configuration).startswith(f"{kind.capitalize()}. ")
    assert f"note = {{{kind}; " in cite.bibtex(configuration)
