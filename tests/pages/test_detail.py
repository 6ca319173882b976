from __future__ import annotations

import json
import re

from tests.pages.conftest import Make
from tests.support.details import a_detail
from tests.support.runs import answers_of, gated_spec, small_spec
from tokenwatt_site.comparison.compare import compare
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages.detail import data, detail, script, status

HOSTILE = "</script><b>&\u2028\u2029"


def test_a_detail_is_json_and_names_its_schema(measured: Configuration) -> None:
    told = json.loads(json.dumps(detail(measured), allow_nan=False))
    assert told["schema"] == "tokenwatt/result/1"
    assert told["id"] == measured.id
    assert told["run"] == measured.headline.run_id


def test_every_number_has_its_unit_and_a_missing_one_its_reason(measured: Configuration) -> None:
    metrics = detail(measured)["metrics"]
    assert [m["key"] for m in metrics] == [claim.key for claim in measured.claims.metrics]
    for metric in metrics:
        assert metric["unit"] == METRICS[metric["key"]].unit
        assert (metric["value"] is None) == bool(metric["reason"])
        assert metric["n"] == len(metric["repeats"])


def test_the_setup_is_told_field_by_field(measured: Configuration) -> None:
    setup = detail(measured)["setup"]
    assert setup["engine.version"] == "1.0"
    assert setup["engine.argv"] == ["{python}", "-m", "toy", "--port", "{port}"]
    assert not any(isinstance(value, dict) for value in setup.values())


def test_fields_that_were_not_recorded_are_named(measured: Configuration) -> None:
    assert "accelerator.memory_gib" in detail(measured)["not_recorded"]


def test_the_rows_that_each_repeat_offered_are_told(full: Configuration) -> None:
    told = detail(full)
    assert [found[0] for found in told["realisations"]] == [1, 2, 3]
    assert {found[2] for found in told["realisations"]} == {600}


def test_trials_have_the_values_of_the_objectives(full: Configuration) -> None:
    trials = detail(full)["trials"]
    assert trials
    assert {label for trial in trials for label in trial["ms"]} == {"TTFT p90", "TPOT p90"}


def test_a_cpu_has_no_cards(measured: Configuration) -> None:
    assert detail(measured)["cards"] is None


def test_all_boards_of_the_setup_count(boards: Configuration) -> None:
    assert detail(boards)["cards"] == 4


def test_answers_are_told_bit_by_bit(make: Make) -> None:
    spec = gated_spec(questions=10)
    right = [True, False, False, False, False, False, False, True, True, False]
    found = detail(make(spec=spec, accuracy=answers_of(spec, right)))["answers"]
    assert found == {"questions": 10, "correct": "gYA="}


def test_without_answers_there_are_none(measured: Configuration) -> None:
    assert detail(measured)["answers"] is None


def test_the_status_is_the_gravest_that_is_said(demo: Configuration, full: Configuration) -> None:
    assert status(demo.exclusions) == "simulated"
    assert status(full.exclusions) == "unranked"
    assert status(()) == "may rank"


def test_no_words_of_a_run_end_the_script(make: Make) -> None:
    written = script(detail(make(spec=small_spec(title="a </script><b>"))), "reports/x.html")
    assert re.fullmatch(r"TokenwattDetail\(\{.*\}\);\n", written)
    assert written.isascii()
    assert "<" not in written


def test_what_a_script_would_read_otherwise_is_escaped() -> None:
    written = data({"x": HOSTILE})
    assert json.loads(written) == {"x": HOSTILE}
    assert written.isascii()
    assert "<" not in written


def test_results_of_real_runs_are_what_is_compared(full: Configuration) -> None:
    told = detail(full)
    assert told.keys() == a_detail().keys()
    (found,) = compare([told, told]).pairs
    assert {row.word for row in found.rows if row.ratio is not None} == {"same within 3%"}
    assert found.differing == ()
