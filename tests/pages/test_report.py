from __future__ import annotations

import re
import shlex
from copy import copy
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.pages.conftest import Altered, Make, board_spec, number, once, told, with_metrics
from tests.support.runs import RunBuilder, a_key, keyring_of, small_spec, spec_in_mode
from tokenwatt_site.commands.measure import read_spec
from tokenwatt_site.commands.reproduce import EXIT_CODES
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import report, text
from tokenwatt_site.pages.factors import Factors
from tokenwatt_site.pages.page import NO_LINKS, Links, Page, fill
from tokenwatt_site.run import NotCovered, Outcome, RepeatClaim
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run

HOSTILE = "</title><img src=x onerror=alert(1)>{{7*7}} [x](javascript:alert(1)) $(rm -rf ~); `id`"


class Parsed(HTMLParser):
    """Tags, ids and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.tags if "id" in attrs]


@once
def rendered(configuration: Configuration) -> Page:
    return report.render(configuration, NO_LINKS)


def parsed(configuration: Configuration, links: Links = NO_LINKS) -> Parsed:
    page = report.render(configuration, links) if links != NO_LINKS else rendered(configuration)
    return Parsed(page.html)


def test_the_sections_stand_in_the_order_of_the_design(demo: Configuration) -> None:
    page = rendered(demo)
    places = [page.html.index(f'id="{anchor}"') for anchor, _ in page.toc]
    assert places == sorted(places)


def test_no_id_is_used_twice_even_with_the_charts_in(boards: Configuration) -> None:
    page = rendered(boards)
    ids = Parsed(fill(page.html, page.charts, lambda c: f'<svg id="{c.id}-svg"></svg>')).ids
    assert len(ids) == len(set(ids))


def test_every_chart_has_its_hole(boards: Configuration) -> None:
    page = rendered(boards)
    holes = re.findall(r"<!--tw:([\w-]+)-->", page.html)
    assert sorted(holes) == sorted(c.id for c in page.charts)


def test_every_recomputed_number_is_on_the_page_with_its_unit(boards: Configuration) -> None:
    text = parsed(boards).text
    for claim in boards.claims.metrics:
        assert claim.label in text
        assert METRICS[claim.key].unit in text or claim.value is None
        if claim.value is None:
            lead = "not corrected" if claim.key.startswith("long_run") else "not measured"
            assert f"{lead}: {claim.reason}" in text


def test_h4_what_was_not_measured_is_a_frame_with_the_reason_and_no_bar(
    demo: Configuration,
) -> None:
    page = rendered(demo)
    assert "bar-board-power" not in {c.id for c in page.charts}
    assert "Not measured: the machine of this test has no power sensor" in Parsed(page.html).text


def test_a_demo_run_says_so_and_is_unranked(measured: Configuration) -> None:
    text = parsed(measured).text
    assert "Demo mode: validation only." in text
    assert "Unranked" in text
    assert "Simulated." not in text


def test_a_simulated_run_is_labelled(demo: Configuration) -> None:
    assert "Simulated. The engine was a simulator" in parsed(demo).text


def test_h8_one_repeat_shows_no_interval_two_their_range_three_an_interval(
    demo: Configuration, quick: Configuration, full: Configuration
) -> None:
    assert "n = 1, no interval" in parsed(demo).text
    assert "n = 2, range" in parsed(quick).text
    assert "±" not in parsed(quick).text
    assert "n = 3, 95% CI of the mean" in parsed(full).text


def test_two_repeats_are_a_median_and_promise_no_band(quick: Configuration) -> None:
    text = parsed(quick).text
    assert "Each value is the median of 2 repeats." in text
    assert "with a chance of only 1 in 3" in text


def test_the_expected_range_of_three_repeats_is_that_of_a_new_launch(full: Configuration) -> None:
    assert "one new launch falls between" in report.expected(full.claims)


def test_f5_f6_f7_hostile_text_is_shown_as_text(make: Make) -> None:
    hostile = make(
        spec=small_spec(
            title=HOSTILE,
            note=HOSTILE,
            setup__host_kind=HOSTILE,
            setup__engine__argv=["--port={port}", HOSTILE],
            setup__model__name=HOSTILE,
        )
    )
    page = parsed(hostile)
    assert not [tag for tag, _ in page.tags if tag in {"img", "script"}]
    assert not [a for _, a in page.tags if (a.get("href") or "").startswith("javascript")]
    assert page.text.count(HOSTILE) >= 4


def test_f15_a_command_is_quoted_for_the_shell(make: Make) -> None:
    engine = {"setup__engine__argv": [HOSTILE, "{port}"], "setup__engine__environment": {"A": "b;"}}
    head = make(spec=small_spec(title=HOSTILE, **engine)).headline
    commands = report.commands(head, "a run's.json")
    for _, line in commands:
        assert shlex.join(shlex.split(line)) == line
    assert HOSTILE in shlex.split(commands[2][1])
    assert "a run's.json" in shlex.split(commands[0][1])
    started = report.engine_command(head.run.spec.setup.engine)
    assert shlex.split(started or "") == ["A=b;", HOSTILE, "{port}"]


def test_the_run_file_is_what_a_rerun_is_made_from(demo: Configuration) -> None:
    run = demo.headline
    assert read_spec(run.path) == run.run.spec
    for links, name in (
        (NO_LINKS, run.path.name),
        (Links(None, None, None, {run.run_id: "../runs/x"}), "run.json"),
    ):
        assert f"tokenwatt-site reproduce {name} --out" in parsed(demo, links).text


def test_where_the_site_knows_its_address_the_command_fetches_the_run(demo: Configuration) -> None:
    folder = {demo.headline.run_id: "../runs/x"}
    links = Links(None, None, None, folder, "https://example.org/site/reports/r.html")
    text = parsed(demo, links).text
    assert "tokenwatt-site reproduce https://example.org/site/runs/x/run.json --out" in text
    assert "It fetches the run and its evidence from this site." in text


def test_a_page_of_one_file_names_the_run_file_as_it_is_called(tmp_path: Path) -> None:
    path = RunBuilder().write(tmp_path, "mine.json")
    run = verify_run(path, root=tmp_path, keyring=Keyring())
    assert "reproduce mine.json --out" in parsed(group([run])[0]).text


def test_the_outcomes_of_a_rerun_are_told_with_the_exit_codes_of_the_command() -> None:
    told = {name.partition(",")[0].lower(): name.split()[-1] for name, _ in report.OUTCOMES}
    assert told == {outcome: str(code) for outcome, code in EXIT_CODES.items()}


def test_an_engine_that_was_attached_has_to_be_started_first(
    make: Make, demo: Configuration
) -> None:
    endpoint = small_spec().endpoint.to_json() | {"start": "attach", "url": "http://10.0.0.1:9"}
    text = parsed(make(spec=small_spec(endpoint=endpoint))).text
    assert "Start the engine first, and give its address with --url." in text
    assert "reproduce run.json --url http://127.0.0.1:8000 --out" in text
    assert "The engine, as its publisher says it was started" in text
    assert "Start the engine first" not in parsed(demo).text


def test_an_engine_whose_command_is_not_recorded_has_none_on_the_page(make: Make) -> None:
    endpoint = small_spec().endpoint.to_json() | {"start": "attach", "url": "http://10.0.0.1:9"}
    spec = small_spec(endpoint=endpoint, setup__engine__argv="not recorded")
    assert "The engine, as" not in parsed(make(spec=spec)).text


def test_links_lead_to_the_run_its_evidence_and_the_glossary(demo: Configuration) -> None:
    run = demo.headline
    links = Links(
        home="../index.html",
        glossary="../glossary.html",
        method=None,
        runs={run.run_id: f"../runs/{run.run_id}"},
    )
    targets = {a.get("href") for _, a in parsed(demo, links).tags}
    assert f"../runs/{run.run_id}/run.json" in targets
    assert "../glossary.html#goodput" in targets
    for entry in run.run.evidence:
        assert f"../runs/{run.run_id}/{entry.path}" in targets


def test_a_page_without_neighbours_links_only_to_itself(demo: Configuration) -> None:
    targets = [a["href"] or "" for _, a in parsed(demo).tags if "href" in a]
    assert all(target.startswith("#") for target in targets)


def test_cards_for_equal_goodput_are_64_for_a_configuration_that_is_its_own_reference(
    boards: Configuration,
) -> None:
    assert "Cards for equal goodput" in parsed(boards).text
    assert re.search(
        r"Cards for equal goodput</th>\s*<td class=\"n tw-v\">64<",
        rendered(boards).html,
    )


def test_the_summary_is_made_from_the_numbers(measured: Configuration) -> None:
    words = " ".join(part for part, _ in report.summary_parts(measured))
    assert words.startswith("Within TTFT p90 ≤ 1.5 s and TPOT p90 ≤ 150 ms, toy-135m on CPU")
    assert "Power was not measured." in words


def with_numbers(configuration: Configuration, **values: float) -> Configuration:
    """The same configuration whose claims hold other values; no file could say this."""
    claims = configuration.claims
    metrics = tuple(
        m.model_copy(update={"value": values[m.key], "repeats": (values[m.key],)})
        if m.key in values
        else m
        for m in claims.metrics
    )
    return told(configuration, metrics=metrics)


def with_repeats(configuration: Configuration, *brackets: tuple[int, int]) -> Configuration:
    """The same configuration whose repeats found other brackets."""
    repeats = tuple(
        RepeatClaim(
            repeat=number,
            band_urps=0,
            scored=20,
            highest_pass_urps=passed,
            lowest_fail_urps=failed,
            boundary_urps=None,
            window_s=None,
        )
        for number, (passed, failed) in enumerate(brackets, start=1)
    )
    return told(configuration, repeats=repeats)


def test_the_summary_of_the_example_comes_out_of_the_template(boards: Configuration) -> None:
    example = with_numbers(
        boards,
        boundary_rate=5.09,
        goodput=2047.0,
        input_throughput=8180.0,
        board_power=2380.0,
        tokens_per_joule=0.86,
    )
    bracketed = with_repeats(example, (4_970_000, 5_210_000))
    words = " ".join(part for part, _ in report.summary_parts(bracketed))
    assert (
        "holds 4.97 requests/s and fails at 5.21: at the boundary between them, 5.09 requests/s,"
        " that is 2,047 output and about 8,180 input tokens per second."
        " The boards drew 2,380 W, 0.86 tokens per joule."
        " Accuracy was not measured." in words
    )
    assert "Accuracy Δ vs. reference" in parsed(example).text


@pytest.mark.parametrize(
    ("brackets", "words"),
    [
        (
            [(3_890_000, 4_240_000), (3_950_000, 4_100_000)],
            "holds 3.89 to 3.95 requests/s and fails at 4.10 to 4.24: at the boundary",
        ),
        (
            [(3_890_000, 4_240_000), (3_891_000, 4_241_000)],
            "holds 3.89 requests/s and fails at 4.24: at the boundary",
        ),
    ],
)
def test_a6_the_summary_of_several_repeats_spans_what_each_held_and_failed(
    quick: Configuration, brackets: list[tuple[int, int]], words: str
) -> None:
    found = with_repeats(quick, *brackets)
    assert words in " ".join(part for part, _ in report.summary_parts(found))


def test_a6_no_rate_is_said_to_have_run_that_did_not(measured: Configuration) -> None:
    words = " ".join(part for part, _ in report.summary_parts(measured))
    offered = {text.rate(t.rate_urps) for t in measured.claims.trials}
    found = re.search(r"holds ([\d.]+) requests/s and fails at ([\d.]+):", words)
    assert found is not None
    assert set(found.groups()) <= offered
    assert "served" not in words


def test_without_goodput_the_summary_says_why(make: Make) -> None:
    never = make(rates_urps=(500_000,))
    text = parsed(never).text
    assert "has no goodput to report (no trial broke the SLO" in text
    assert "Nothing can be expected" in text


def test_without_goodput_the_highest_passing_rate_leads_the_summary(make: Make) -> None:
    held = " ".join(part for part, _ in report.summary_parts(make(rates_urps=(500_000,))))
    assert (
        "toy 1.0 held 0.50 requests/s as its highest passing rate and has no goodput to report"
        " (no trial broke the SLO" in held
    )
    wide = make(rates_urps=(500_000, 64_000_000))
    assert "held 0.50 requests/s as its highest passing rate and has no goodput to report (the" in (
        " ".join(part for part, _ in report.summary_parts(wide))
    )
    never = " ".join(part for part, _ in report.summary_parts(make(rates_urps=(64_000_000,))))
    assert "toy 1.0 has no goodput to report (no trial met the SLO" in never
    assert "highest passing rate" not in never


def test_a_rate_that_only_some_repeats_held_is_not_said_of_all(make: Make) -> None:
    mixed = make(spec=spec_in_mode("quick"), spread=(1.0, 3.0), rates_urps=(1_000_000,))
    words = " ".join(part for part, _ in report.summary_parts(mixed))
    assert "held 1.00 requests/s in 1 of 2 repeats as its highest passing rate" in words


def test_without_goodput_the_history_says_what_held_and_why_there_is_no_more(make: Make) -> None:
    html = report.render(make(rates_urps=(500_000,)), NO_LINKS).html
    history = Parsed(html[html.index('id="history"') :]).text
    assert "not measured: no trial broke the SLO, up to 0.5 requests/s" in history
    assert "0.50 requests/s held" in history


@pytest.mark.parametrize("engine", ["not recorded", "1.0"])
def test_a7_what_was_not_recorded_is_said_in_words_that_make_sense(make: Make, engine: str) -> None:
    absent = "not recorded"
    unknown = make(
        spec=small_spec(
            setup__accelerator=dict.fromkeys(
                ("model", "memory_gib", "rated_bandwidth_gb_s", "power_limit_w"), absent
            )
            | {"count": 0},
            setup__engine__version=engine,
            setup__quantization={"weights": absent, "kv_cache": absent},
            setup__model__architecture=absent,
        )
    )
    shown = parsed(unknown).text
    for nonsense in ("0× ", "not recorded weights", "toy not recorded", "(not recorded)"):
        assert nonsense not in shown
    assert "on hardware that was not recorded with toy" in shown
    assert ("toy (version not recorded)" in shown) == (engine == absent)
    assert "weights not recorded, KV cache not recorded" in shown
    assert "not measured: the accelerator was not recorded" in shown


def test_a8_the_banner_of_a_demo_is_true_for_any_model_and_number_of_launches(
    demo: Configuration,
) -> None:
    assert (
        "Demo mode: validation only. Too few requests and launches for a result; it shows that the"
        " path works. Listed, unranked." in parsed(demo).text
    )


@pytest.mark.parametrize("mode", ["demo", "quick", "full"])
def test_a8_nothing_is_counted_in_a_plural_of_both(make: Make, mode: str) -> None:
    shown = parsed(make(spec=spec_in_mode(mode))).text
    assert not re.search(r"\w\(s\)|\b1 (launches|repeats|runs|trials|files|keys)\b", shown)
    assert not re.search(r"\b[2-9] (launch|repeat|run|trial|file|key)\b", shown)


def test_an_interrupted_run_says_so(make: Make) -> None:
    html = report.render(make(status="interrupted"), NO_LINKS).html
    assert "Interrupted." in Parsed(html).text
    assert "demo, interrupted" in Parsed(html[html.index('id="history"') :]).text


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ("2026-01-01T01:00:00Z", "This run took 60 minutes, 240 board-minutes."),
        ("2026-01-01T00:02:00Z", "This run took 2.0 minutes, 8 board-minutes."),
        ("2026-01-01T00:01:59Z", "This run took 119 seconds, 476 board-seconds."),
        ("2026-01-01T00:00:01.250Z", "This run took 1.2 seconds, 5 board-seconds."),
    ],
)
def test_the_cost_is_the_time_the_run_took(boards: Configuration, ended: str, words: str) -> None:
    run = boards.headline.run
    times = {"started": "2026-01-01T00:00:00Z", "ended": ended}
    conditions = run.conditions.model_copy(update=times)
    changed = run.model_copy(update={"conditions": conditions})
    head = copy(boards.headline)
    object.__setattr__(head, "held", Altered(head.held, changed, head.claims, head.evidence))
    assert report.cost(head) == words


def test_a_full_run_that_may_not_rank_says_why(full: Configuration) -> None:
    assert "Listed, unranked. No accuracy gate was asked for" in parsed(full).text


def test_a_run_under_another_key_stands_in_the_history(tmp_path: Path) -> None:
    ours = RunBuilder(day=1).write(tmp_path / "a")
    theirs = RunBuilder(day=2, key=a_key(2)).write(tmp_path / "b")
    for keys, words in (((1, 2), "Rerun under 1 other key"), ((1,), "Nobody else with a known")):
        keyring = keyring_of(tmp_path / words, *map(a_key, keys))
        runs = [verify_run(p, root=tmp_path, keyring=keyring) for p in (ours, theirs)]
        text = parsed(group(runs)[0]).text
        assert words in text
        assert all(run.run_id[:12] in text for run in runs)


def test_a_page_with_everything_draws_every_chart(energetic: Configuration) -> None:
    page = rendered(energetic)
    holes = re.findall(r"<!--tw:([\w-]+)-->", page.html)
    assert sorted(holes) == sorted(c.id for c in page.charts)
    assert {"chart-limits", "chart-dram", "chart-power-beside-1"} <= set(holes)
    drawn = fill(page.html, page.charts, lambda c: f'<svg id="{c.id}-svg"></svg>')
    ids = Parsed(drawn).ids
    assert len(ids) == len(set(ids))


def test_boards_say_how_they_were_chosen_and_what_they_drew(energetic: Configuration) -> None:
    text = parsed(energetic).text
    assert "GPU-00000001-5f1e-4f6a-9c1d-0000 (the engine's processes were seen on it)" in text
    assert "power cap in 83% of readings" in text
    assert "Energy and power: GPU boards only, ±5% systematic" in text


def test_an_impossible_number_is_said_on_top_and_by_the_numbers(energetic: Configuration) -> None:
    why = "GPU-1: the energy counter ran backwards"
    keys = ("tokens_per_joule", "joules_per_token", "board_power")
    none = [number(key, None, reason=f"INVALID: {why}") for key in keys]
    said = (
        Outcome(key="joules_per_token", level="INVALID", text=why),
        Outcome(key="mbu", level="warn", text="an odd batch"),
    )
    metrics = with_metrics(energetic.claims, *none)
    page = parsed(told(energetic, metrics=metrics, outcomes=said))
    top, _, rest = page.text.partition("All numbers")
    assert f"INVALID. Energy per output token: {why}." in top
    assert "Power has no number to report." in top
    words = "Warning. Decode bandwidth utilization (MBU): an odd batch."
    assert words in top.partition("Results")[0]
    assert (top.count("an odd batch"), rest.count("an odd batch")) == (1, 0)
    assert f"not measured: INVALID: {why}" not in page.text


def test_what_is_not_covered_for_one_reason_stands_together(energetic: Configuration) -> None:
    why = "Not measured: the spec names no model files."
    lacking = tuple(NotCovered(what=what, why=why) for what in ("MBU", "Read per step"))
    other = NotCovered(what="Natural text", why="Prompts are random tokens.")
    claims = told(energetic, not_covered=(lacking[0], other, lacking[1])).claims
    assert report.not_covered(claims) == (("MBU; Read per step", why), (other.what, other.why))


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("gpu", "The boards drew 2,380 W, 0.86 tokens per joule."),
        ("module", "The modules drew 2,380 W, 0.86 tokens per joule."),
        ("host", "The host drew 2,380 W, 0.86 tokens per joule."),
    ],
)
def test_b9_the_summary_says_what_drew_the_watts(make: Make, scope: str, words: str) -> None:
    sensor = "redfish" if scope == "host" else "nvml"
    power = {"sensor": sensor, "scope": scope, "rate_hz": 1.0}
    url = {"instruments": [{"sensor": sensor, "url": "http://127.0.0.1:1/redfish/v1/Chassis/1"}]}
    spec = board_spec(setup__power=power, **(url if scope == "host" else {}))
    drew = with_numbers(make(spec=spec), board_power=2380.0, tokens_per_joule=0.86)
    assert words in " ".join(part for part, _ in report.summary_parts(drew))


def test_watts_without_tokens_are_told_all_the_same(boards: Configuration) -> None:
    none = number("tokens_per_joule", None, reason="x")
    watts = number("board_power", 2380.0)
    drew = told(boards, metrics=with_metrics(boards.claims, none, watts))
    words = " ".join(part for part, _ in report.summary_parts(drew))
    assert "The boards drew 2,380 W. Accuracy" in words


def test_no_money_and_no_co2_come_with_this_project(energetic: Configuration) -> None:
    text = parsed(energetic).text
    assert "kWh/M output tok" in text
    assert "CO2" not in text
    priced = Factors.model_validate(
        {"price": {"name": "<b>Tariff</b>", "per_kwh": 0.2, "currency": "EUR"}}
    )
    html = report.render(energetic, NO_LINKS, priced).html
    assert "&lt;b&gt;Tariff&lt;/b&gt;" in html
