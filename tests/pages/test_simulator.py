"""What the simulator of the method page says and carries, without a browser."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from tokenwatt_site.engine_model.load import holds
from tokenwatt_site.pages import simulator
from tokenwatt_site.workload import NAMED


def carried():
    text = simulator.data()
    return json.loads(text.removeprefix("globalThis.TokenwattSimulatorData = ").rstrip(";\n"))


def test_the_rows_that_it_carries_are_those_of_the_generator():
    rows = NAMED["chat-mix-v1"].realisation(0, lead_in=2000, scored=20_000, tail=2000).rows
    found = struct.iter_unpack("<IHH", base64.b64decode(carried()["rows"]))
    assert list(found) == [row[:3] for row in rows]


@pytest.mark.parametrize("number", range(len(simulator.ENGINES)))
def test_every_engine_begins_where_it_keeps_the_slo_and_fails_above_its_boundary(number):
    engine = simulator.ENGINES[number]
    begins = carried()["engines"][number]["shownUrps"]
    edges = simulator.edges_of(engine)
    assert holds(engine.model, simulator.load(), begins, simulator.SLO)
    assert not holds(engine.model, simulator.load(), edges.fail_urps, simulator.SLO)
    assert edges.pass_urps - 10_000 < begins <= edges.pass_urps


def test_the_picture_has_a_mark_wherever_a_line_counts_a_miss():
    html = simulator.html("../assets")
    assert html.count('<path class="tw-sim-miss"') == html.count("miss</span>") > 1
    assert 'src="../assets/engine-model.js"' in html
    assert "<b>Simulated.</b>" in html
