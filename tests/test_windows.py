"""Which rows a spec measures on."""

from __future__ import annotations

import json
from importlib import resources
from itertools import pairwise

import pytest

from tests.conftest import ROOT
from tests.support.runs import small_spec
from tokenwatt_site.canonical import load_yaml, read_file
from tokenwatt_site.errors import SpecError
from tokenwatt_site.spec import HIGHEST_URPS, Objective, Spec, parse_spec
from tokenwatt_site.windows import WINDOW_DRAW, Band, window, windows_of
from tokenwatt_site.workload import NAMED

EXAMPLE = ROOT / "specs" / "lambda-deepseek-v4.1-flash-tp4-dp1.spec.yaml"
CHAT = NAMED["chat-mix-v1"]
ROWS = ("lead_in", "scored", "tail")


def without_rows(*, slo: list[dict[str, object]] | None = None, **protocol: object) -> Spec:
    """The example's spec, which asks for the chosen windows."""
    value, _ = load_yaml(read_file(EXAMPLE), source="example")
    kept = {key: item for key, item in value["protocol"].items() if key not in ROWS}
    value["protocol"] = kept | protocol
    value["setup"]["slo"] = slo or value["setup"]["slo"]
    return parse_spec(value, source="example")


CHOSEN = windows_of(without_rows())


def test_bands_begin_where_the_one_below_ends():
    assert all(low.high_urps == high.low_urps for low, high in pairwise(CHOSEN.bands))
    assert all(band.high_urps == 2 * band.low_urps for band in CHOSEN.bands)


def test_a_rate_has_one_band_and_beyond_all_of_them_the_nearest():
    assert CHOSEN.band_at(5_090_000).low_urps == 4_000_000
    for band in CHOSEN.bands:
        assert CHOSEN.band_at(band.low_urps) == CHOSEN.band_at(band.high_urps - 1) == band
        assert CHOSEN.band_from(band.low_urps) == band
    assert CHOSEN.band_at(1) == CHOSEN.bands[0]
    assert CHOSEN.band_at(HIGHEST_URPS) == CHOSEN.bands[-1]


def test_where_no_band_begins_there_is_none():
    assert CHOSEN.band_from(4_000_001) is None


def test_a_search_that_starts_above_all_bands_needs_rows_of_its_own():
    highest = CHOSEN.bands[-1].highest_urps / 1e6
    assert windows_of(without_rows(start_rate=highest, max_rate=100_000)).chosen
    beyond = without_rows(start_rate=highest + 0.1, max_rate=100_000)
    with pytest.raises(SpecError, match=rf"start_rate: .*; expected at most {highest:g} requests"):
        windows_of(beyond)


def test_rows_are_offered_a_tenth_beyond_the_end_of_their_band():
    assert Band(4, 8_000_000, 1, 2, 3).highest_urps == 8_800_000
    assert Band(0, HIGHEST_URPS + 1, 1, 2, 3).highest_urps == HIGHEST_URPS


def test_every_band_has_nine_windows_without_a_row_in_common():
    for band in CHOSEN.bands:
        assert len(band.first_rows) >= 9
        starts = sorted(band.first_rows)
        assert all(after - before >= band.rows for before, after in pairwise(starts))


@pytest.mark.parametrize("band", CHOSEN.bands, ids=lambda band: f"{band.low_urps / 1e6:g}")
def test_at_the_highest_rate_of_a_band_engine_window_and_tail_are_full(band):
    for repeat in (1, 9):
        drawn = CHOSEN.realisation(repeat, band)
        due = drawn.due_ns(band.highest_urps)
        scored = drawn.scored_rows
        assert due[scored.start] >= 2 * 1536 * 50 * 10**6
        assert due[scored.stop - 1] - due[scored.start] >= 120 * 10**9
        assert len(scored) >= 600
        assert due[-1] - due[scored.stop - 1] >= 1536 * 50 * 10**6 + 2 * 10**9


def test_a_window_is_a_piece_of_its_draw_with_streams_of_its_own():
    band = Band(1, 2, 3, 10, 2)
    whole = CHAT.rows(WINDOW_DRAW, range(100))
    piece = window(CHAT, 4, band, 60)
    assert [row[:3] for row in piece.rows] == [row[:3] for row in whole[60:75]]
    assert [row.stream for row in piece.rows] == list(range(15))
    assert (piece.number, piece.lead_in, piece.scored) == (4, 3, 10)
    assert piece.highest_urps == band.highest_urps


def test_repeat_r_is_the_window_at_place_r():
    band = CHOSEN.band_at(5_090_000)
    for repeat in (1, 2):
        first_row = band.first_rows[repeat - 1]
        assert CHOSEN.realisation(repeat, band) == window(CHAT, repeat, band, first_row)


def test_more_repeats_than_windows_are_an_error():
    fewest = min(CHOSEN.bands, key=lambda band: len(band.first_rows))
    held = len(fewest.first_rows)
    assert windows_of(without_rows(mode="full", repeats=held)).chosen
    with pytest.raises(SpecError, match=rf"protocol\.repeats: .*; expected at most {held}"):
        windows_of(without_rows(mode="full", repeats=held + 1))
    with pytest.raises(SpecError, match="fewer chosen windows than repeats"):
        CHOSEN.realisation(held + 1, fewest)


def test_windows_say_what_they_were_chosen_for():
    assert CHOSEN.chosen
    assert CHOSEN.chosen_for(without_rows().setup.slo)
    other = without_rows(slo=[{"metric": "tpot", "quantile": 0.9, "limit_ms": 40}])
    windows = windows_of(other)
    assert windows.chosen
    assert not windows.chosen_for(other.setup.slo)
    assert windows.panel_slo == (
        Objective(metric="ttft", quantile=0.99, limit_ms=2000),
        Objective(metric="tpot", quantile=0.99, limit_ms=50),
    )


@pytest.mark.parametrize(
    "slo",
    [
        [{"metric": "tpot", "quantile": 0.99, "limit_ms": 51}],
        [{"metric": "ttft", "quantile": 0.99, "limit_ms": 2000}],
    ],
)
def test_an_slo_under_which_answers_may_last_longer_needs_rows_of_its_own(slo):
    with pytest.raises(SpecError, match=r"protocol: .* 50 ms TPOT .* lead_in, scored and tail"):
        windows_of(without_rows(slo=slo))


def test_a_workload_without_chosen_windows_needs_rows():
    rows = dict.fromkeys((f"protocol__{name}" for name in ROWS), None)
    quick = {"protocol__mode": "quick", "protocol__repeats": 2}
    with pytest.raises(SpecError, match=r"protocol: .* has no chosen windows; expected lead_in"):
        windows_of(small_spec(**rows, **quick))


def test_rows_of_a_spec_make_one_band_whose_repeat_r_is_draw_r():
    spec = without_rows(lead_in=5, scored=600, tail=7)
    windows = windows_of(spec)
    [band] = windows.bands
    assert (band.low_urps, band.highest_urps, band.rows) == (0, HIGHEST_URPS, 612)
    assert not windows.chosen
    assert not windows.chosen_for(spec.setup.slo)
    drawn = windows.realisation(2, band)
    assert drawn == CHAT.realisation(2, lead_in=5, scored=600, tail=7)
    assert drawn.highest_urps is None


def test_the_file_is_of_the_workload_that_it_names():
    text = resources.files("tokenwatt_site").joinpath("chosen", "chat-mix-v1.json").read_text()
    value = json.loads(text)
    assert value["workload_hash"] == CHAT.hash
    assert len(text) < 100_000
