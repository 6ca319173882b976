from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tokenwatt_site.pages.svg import shorten


def short(inside: str) -> str:
    root = ET.fromstring(f"<svg>{inside}</svg>")  # written in this test
    shorten(root, "p")
    return ET.tostring(root, encoding="unicode").removeprefix("<svg>").removesuffix("</svg>")


@pytest.mark.parametrize(
    ("long", "told"),
    [
        ('<path d="M1.2345,6.700v-0.001" />', '<path d="M1.23,6.7v0" />'),
        ('<path d="M1,2L3,2L3,5L4,6" />', '<path d="M1,2h2v3l1 1" />'),
        ('<path d="M1,2L2.26,1.6L3,2L3.01,2.01L3,9" />', '<path d="M1,2l1.3-.4 .7 .4v7" />'),
        ('<path d="M1,2h3v5Z" />', '<path d="M1,2h3v5Z" />'),
        ('<g><g><path d="M1,2" opacity="1" /></g></g>', '<path d="M1,2" />'),
        ('<path d="" display="none" /><path d="M1,2" />', '<path d="M1,2" />'),
        ('<text transform="translate(0,16.5)">a</text>', '<text y="16.5">a</text>'),
        ('<text font-size="12px" text-anchor="start">a</text>', "<text>a</text>"),
        ('<text font-size="11px">a</text>', '<text font-size="11px">a</text>'),
    ],
)
def test_what_says_nothing_is_left_out(long: str, told: str) -> None:
    assert short(long) == told


def test_lines_of_a_text_keep_the_place_that_they_are_told_from() -> None:
    words = '<text transform="translate(3,4)"><tspan x="0" dy="9">a</tspan></text>'
    assert short(words) == words


def test_what_all_parts_of_a_group_say_is_said_once() -> None:
    found = short('<g id="a"><path class="b" d="M1,2" /><path class="b" d="M3,4" /></g>')
    assert found == '<g id="a" class="b"><path d="M1,2" /><path d="M3,4" /></g>'


def test_lines_of_a_grid_are_one_path_and_another_kind_of_line_is_not_in_it() -> None:
    grid = "".join(f'<line transform="translate(0,{y})" x2="9" />' for y in (1, 2, 3))
    found = short(f'<g id="a">{grid}<line transform="translate(4,0)" y2="5" stroke="red" /></g>')
    other = '<line transform="translate(4,0)" y2="5" stroke="red" />'
    assert found == f'<g id="a"><path d="M0,1h9M0,2h9M0,3h9" />{other}</g>'


def test_marks_of_one_shape_are_one_line_with_the_shape_at_its_points() -> None:
    marks = "".join(f'<path transform="translate({x},5)" d="M1,0h2" />' for x in (1, 2, 3))
    assert short(f'<g class="c">{marks}</g>') == (
        '<g class="c"><marker id="p-0-0" markerUnits="userSpaceOnUse" overflow="visible">'
        '<path d="M1,0h2" /></marker>'
        '<path d="M1,5L2,5L3,5" fill="none" stroke="none" style="marker:url(#p-0-0)" /></g>'
    )


def test_two_marks_stay_as_they_are() -> None:
    marks = "".join(f'<path transform="translate({x},5)" d="M1,0h2" />' for x in (1, 2))
    assert short(f'<g class="c">{marks}</g>') == f'<g class="c">{marks}</g>'
