"""The published choice of windows: that it can be made again, and that its windows agree.

`make proof B=choosing` looks at windows of all bands, in fewer examples a slice than other proofs,
since each draws and plays a window; here are some of the lower bands.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwatt_site import choosing
from tokenwatt_site.choosing import (
    BANDS,
    PANEL,
    SLO,
    TOLERANCE,
    WORKLOAD,
    Choice,
    Chooser,
    Needs,
    agrees,
    load_of,
    off_ppm,
    scaled,
    text_of,
)
from tokenwatt_site.engine_model.load import Load
from tokenwatt_site.windows import Band, long_run, window

TEXT = resources.files("tokenwatt_site").joinpath("chosen", "chat-mix-v1.json").read_text()
CHOICE = Choice.model_validate_json(TEXT)
ALL = [
    (number, place, engine)
    for number, chosen in enumerate(CHOICE.bands)
    for place in range(len(chosen.windows))
    for engine in range(len(chosen.panel))
]
PROOF = os.environ.get("TOKENWATT_HYPOTHESIS") == "proof"


def band_of(chosen) -> Band:
    return Band(chosen.low_urps, chosen.high_urps, chosen.lead_in, chosen.scored, chosen.tail)


@cache
def drawn(number, place):
    chosen = CHOICE.bands[number]
    return window(WORKLOAD, place + 1, band_of(chosen), chosen.windows[place].first_row)


@cache
def long_load() -> Load:
    return Load.of(long_run(WORKLOAD))


def test_the_file_is_written_as_the_choice_is():
    assert text_of(CHOICE) == TEXT
    assert len(TEXT) < 100_000


def test_the_choice_is_of_this_workload_these_objectives_and_these_bands():
    assert CHOICE.workload_hash == WORKLOAD.hash
    assert CHOICE.slo == SLO
    done = [(b.low_urps, b.high_urps) for b in CHOICE.bands]
    assert (4_000_000, 8_000_000) in done
    assert [band for band in BANDS if band in done] == done
    for chosen in CHOICE.bands:
        wanted = Needs.of(WORKLOAD).band(chosen.low_urps, chosen.high_urps)
        assert band_of(chosen) == wanted


def test_every_window_agrees_with_every_engine_of_the_panel():
    for chosen in CHOICE.bands:
        assert [engine.name for engine in chosen.panel] == [shape.name for shape in PANEL]
        assert len(chosen.windows) >= 9
        for found in chosen.windows:
            assert len(found.off_ppm) == len(PANEL)
            assert max(map(abs, found.off_ppm)) <= TOLERANCE * 10**6


def test_windows_stand_in_the_order_of_their_errors():
    for chosen in CHOICE.bands:
        squares = [sum(off * off for off in found.off_ppm) for found in chosen.windows]
        assert squares == sorted(squares)


def test_a_panel_has_its_boundaries_in_all_thirds_of_its_band():
    for chosen in CHOICE.bands:
        places = [engine.boundary_urps / chosen.low_urps for engine in chosen.panel]
        for low, high in pairwise((1, 2 ** (1 / 3), 2 ** (2 / 3), 2)):
            assert sum(low <= place < high for place in places) >= 2


@given(
    st.sampled_from(
        [(n, p) for n, p, e in ALL if e == 0 and (PROOF or CHOICE.bands[n].low_urps < 32_000_000)]
    )
)
@settings(max_examples=40 if PROOF else 12)
def test_windows_are_drawn_again_bit_for_bit(which):
    number, place = which
    assert drawn(number, place).hash == CHOICE.bands[number].windows[place].hash


def test_the_long_run_is_drawn_again_bit_for_bit():
    assert long_run(WORKLOAD).hash == CHOICE.long_run_hash


@given(st.sampled_from([key for key in ALL if PROOF or CHOICE.bands[key[0]].low_urps < 8_000_000]))
@settings(max_examples=60 if PROOF else 12)
def test_scores_are_found_again(which):
    number, place, engine = which
    chosen = CHOICE.bands[number]
    load, member = Load.of(drawn(number, place)), chosen.panel[engine]
    assert off_ppm(member, load) == chosen.windows[place].off_ppm[engine]
    assert agrees(member, load)


@pytest.mark.skipif(not PROOF, reason="some seconds for each; make proof B=choosing")
@given(st.sampled_from([(n, e) for n, p, e in ALL if p == 0]))
@settings(max_examples=2)
def test_the_panel_is_scaled_again_to_the_same_engines(which):
    number, engine = which
    chosen = CHOICE.bands[number]
    assert scaled(PANEL[engine], band_of(chosen), long_load()) == chosen.panel[engine]


def test_the_rows_of_a_draw_are_kept_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(choosing.Columns, "_PART", 100)
    first = choosing.Columns(WORKLOAD, tmp_path).part(150, 200)
    assert [tuple(row) for row in first.tolist()] == [
        row[:3] for row in WORKLOAD.rows(1, range(150, 350))
    ]
    monkeypatch.setattr(type(WORKLOAD), "rows", None)
    assert np.array_equal(choosing.Columns(WORKLOAD, tmp_path).part(150, 200), first)


@pytest.mark.parametrize("short", ["lead_in", "scored", "tail"])
def test_a_window_with_a_part_that_is_too_short_is_not_looked_at(short):
    band, needs = band_of(CHOICE.bands[0]), Needs.of(WORKLOAD)
    load = Load.of(drawn(0, 0))
    assert needs.met_by(load, band)
    part = f"{short}_ns"
    assert not replace(needs, **{part: getattr(needs, part) * 3}).met_by(load, band)


def test_of_windows_that_share_a_row_the_better_one_is_kept():
    scored = [(9, 100, ()), (4, 150, ()), (5, 200, ()), (1, 260, ())]
    assert choosing._apart(scored, 100) == [(1, 260, ()), (4, 150, ())]


def test_a_choice_is_made_from_the_first_windows_that_agree(tmp_path, monkeypatch):
    # One loose engine and a small draw: the whole way, at a small price.
    monkeypatch.setattr(choosing, "PANEL", PANEL[:1])
    monkeypatch.setattr(choosing, "TOLERANCE", TOLERANCE * 6)
    monkeypatch.setattr(choosing, "POOL", 3)
    monkeypatch.setattr(choosing, "WINDOWS", 2)
    monkeypatch.setattr(choosing.Columns, "_PART", 20_000)
    chooser = Chooser(WORKLOAD, tmp_path)
    short = WORKLOAD.realisation(0, lead_in=2000, scored=20_000, tail=2000)
    vars(chooser)["long_load"] = Load.of(short)
    found = chooser.choose(4_000_000, 8_000_000)
    assert len(found.windows) == 2
    assert 3 <= found.agreed < found.looked_at
    band = band_of(found)
    for repeat, piece in enumerate(found.windows, 1):
        whole = window(WORKLOAD, repeat, band, piece.first_row)
        assert piece.hash == whole.hash
        columns = chooser.columns.part(piece.first_row, band.rows)
        assert piece.off_ppm == (off_ppm(found.panel[0], load_of(columns, band)),)
        assert abs(piece.off_ppm[0]) <= 90_000
