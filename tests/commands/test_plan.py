"""What a plan tells, before anything runs."""

import json

import pytest
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.support.runs import as_written, gpu_spec, small_spec, spec_in_mode
from tokenwatt_site import cli
from tokenwatt_site.commands import plan as module
from tokenwatt_site.commands.plan import Wanted, lines, plan_spec, to_json
from tokenwatt_site.errors import UsageError
from tokenwatt_site.journal import Journal


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(spec):
    path = module.Path("a.spec.yaml")
    path.write_text(as_written(spec), encoding="utf-8")
    return path


def text_of(spec, **wanted):
    return "\n".join(lines(plan_spec(written(spec), Wanted(**wanted))))


def begun(spec, *repeats, name="a", close=False):
    folder = module.WORK_FOLDER / name
    folder.mkdir(parents=True)
    journal = Journal(folder / "journal.jsonl", lambda: "2026-01-01T00:00:00.000000Z")
    journal.append("open", spec=spec.to_json())
    for repeat in repeats:
        journal.append("repeat_end", repeat=repeat)
    if close:
        journal.append("close")
    return folder


FULL = spec_in_mode("full", label="toy-full", endpoint__start="attach", endpoint__url="http://h:1")


@pytest.mark.parametrize("name", ["lambda-deepseek-v4.1-flash-tp4-dp1", "demo"])
def test_a_shipped_spec_is_planned_in_lines_that_fit_a_terminal(name):
    wanted = Wanted(rate=5.09, budget_s=3600, price=2.5, interval=2.0)
    told = list(lines(plan_spec(ROOT / "specs" / f"{name}.spec.yaml", wanted)))
    assert max(map(len, told)) <= 80
    assert any(line.startswith("  trials ") for line in told)


def test_each_repeat_is_told_with_its_parts_and_the_rates_of_its_trials():
    text = text_of(FULL, rate=3.0)
    assert text.startswith(
        "toy-full: full mode, 3 repeats\nif the boundary is at 3.000 requests/s\n"
    )
    assert "(start_rate; --rate says another)" in text_of(FULL)
    for number in (1, 2, 3):
        assert f"\nrepeat {number}\n" in text
    assert text.count("restart by hand, then --resume") == 2
    assert text.count("    such as ") == 3


def test_a_rate_that_is_out_of_reach_is_told_with_where_the_search_ends():
    text = text_of(spec_in_mode("quick"), rate=90.0)
    assert text.count("no boundary is found: the search ends at ") == 2
    assert "no boundary" not in text_of(spec_in_mode("quick"), rate=3.0)


def test_boards_cost_hours_and_hours_a_price():
    text = text_of(gpu_spec(), price=2.0)
    hours = plan_spec(written(gpu_spec()), Wanted()).plan.gpu_hours
    assert f"GPU-hours: {hours.low:.1f}" in text
    assert f"price: {2 * hours.low:.2f} to {2 * hours.high:.2f}, at 2.00 a GPU-hour" in text
    assert "price: none, as no boards are held" in text_of(small_spec(), price=2.0)
    assert "GPU-hours" not in text_of(small_spec())


def test_a_budget_says_what_it_leaves_out():
    assert "a budget of 6000 minutes is enough for all of it" in text_of(FULL, budget_s=360_000)
    short = text_of(FULL, budget_s=60)
    assert "a budget of 1 minutes leaves out: repeat 1, repeat 2, repeat 3;" in short


def test_an_interval_is_told_as_the_repeats_that_it_takes():
    text = text_of(small_spec(), interval=2.0)
    assert "a 95% interval of ±2% at a spread of 1.5% between repeats takes 6 repeats" in text
    assert "takes 4 repeats" in text_of(small_spec(), interval=2.0, spread=1.0)
    assert "cannot be had" in text_of(small_spec(), interval=0.5)


def test_c5_what_was_measured_already_is_told_with_the_command_that_goes_on():
    folder = begun(FULL, 1)
    begun(small_spec(), 1, name="other")
    begun(FULL, name="nothing-whole")
    begun(FULL, 1, 2, 3, name="finished", close=True)
    (module.WORK_FOLDER / "torn").mkdir()
    (module.WORK_FOLDER / "torn" / "journal.jsonl").write_text("{}\n", "utf-8")
    planned = plan_spec(written(FULL), Wanted())
    assert planned.begun is not None
    assert (planned.begun.folder, planned.begun.done) == (folder, (1,))
    assert planned.begun.left.seconds.low < planned.plan.seconds.low
    text = "\n".join(lines(planned))
    assert ".tokenwatt/a has repeat 1 of the same plan already" in text
    assert "\n  tokenwatt-site measure --resume .tokenwatt/a\n" in text
    assert to_json(planned)["begun"]["done"] == [1]


def test_all_of_it_is_plain_json():
    value = to_json(
        plan_spec(written(FULL), Wanted(rate=3.0, budget_s=60, price=1.0, interval=2.0, spread=1.0))
    )
    assert json.loads(json.dumps(value)) == value
    assert value["boundary_urps"] == 3_000_000
    assert [r["repeat"] for r in value["repeats"]] == [1, 2, 3]
    assert value["left_out"][0] == {"repeat": 1, "certain": True}
    assert value["repeats_needed"] == 4
    assert value["price"] is None
    for repeat in value["repeats"]:
        assert {trial["verdict"] for trial in repeat["trials"]} == {"PASS", "FAIL"}
        low, high = repeat["parts"][0]["seconds"]
        assert 0 <= low <= high


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"rate": 0.0}, "--rate"),
        ({"rate": float("nan")}, "--rate"),
        ({"rate": 2e5}, "--rate"),
        ({"price": -1.0}, "--price-per-gpu-hour"),
        ({"interval": 0.0}, "--interval"),
        ({"spread": float("inf")}, "--spread"),
    ],
)
def test_a_number_that_means_nothing_is_refused_by_its_option(wanted, field):
    with pytest.raises(UsageError) as caught:
        Wanted(**wanted)
    assert caught.value.problems[0].field == field


def test_the_command_prints_the_plan_or_its_json_and_leaves_nothing_behind(here):
    path = written(FULL)
    options = ["plan", "--spec", str(path), "--rate", "3", "--budget", "1h30m"]
    told = CliRunner().invoke(cli.app, options)
    assert told.exit_code == 0, told.stderr
    planned = plan_spec(path, Wanted(rate=3.0, budget_s=5400))
    assert told.stdout.splitlines() == list(lines(planned))
    as_json = CliRunner().invoke(cli.app, [*options, "--json"])
    assert json.loads(as_json.stdout) == to_json(planned)
    assert [entry.name for entry in here.iterdir()] == [path.name]


@pytest.mark.parametrize("options", [["--budget", "soon"], ["--rate", "-1"]])
def test_the_command_ends_with_2_where_an_option_means_nothing(options):
    told = CliRunner().invoke(cli.app, ["plan", "--spec", str(written(FULL)), *options])
    assert told.exit_code == 2
    assert f"error: {options[0]}: " in told.stderr
