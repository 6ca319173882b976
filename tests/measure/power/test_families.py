from __future__ import annotations

from dataclasses import fields

from tokenwatt_site.evidence.power import Board
from tokenwatt_site.measure.power.exporters import Reading
from tokenwatt_site.measure.power.families import DIALECTS


def test_a_family_belongs_to_one_dialect_and_means_one_thing() -> None:
    families = [family for dialect in DIALECTS for family in dialect.families]
    assert len(families) == len(set(families))


def test_what_is_read_has_a_place_to_go() -> None:
    readings = {field.name for field in fields(Reading)}
    for dialect in DIALECTS:
        assert dialect.readings.keys() <= readings
        assert (dialect.limits | dialect.switches).keys() <= Board.model_fields.keys()
        assert set(dialect.measured) <= set(dialect.families)
        labels = (*dialect.uuid, *dialect.name, *dialect.driver, *dialect.pci, dialect.place)
        assert all(label == label.lower() for label in labels)
