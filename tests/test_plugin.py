from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path

import pytest
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, PluginError

from tests.commands.test_published import site as serving
from tests.pages.conftest import SHIPPED, a_power_log, board_spec
from tests.pages.test_goodput_bench import MACHINE
from tests.pages.test_goodput_bench import written as write_bench
from tests.pages.test_report import Parsed
from tests.support.runs import RunBuilder, a_key, keyring_of, small_spec
from tests.support.site import build_site, make_project
from tests.support.statements import state
from tokenwatt_site.commands.measure import read_spec
from tokenwatt_site.commands.published import fetch_run
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.pages.policy import script_hash
from tokenwatt_site.site import front_matter
from tokenwatt_site.trust.commitment import commit, path_beside

EVIL = '</title><script>document.body.dataset.pwned=1</script><img src=x onerror="x()">&lt;b&gt;'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two runs, one of them hostile, and the shipped quoted record."""
    folder = tmp_path_factory.mktemp("project")
    runs = make_project(folder)
    RunBuilder(simulated=False).write(runs / "one")
    RunBuilder(spec=small_spec(title=EVIL, setup__host_kind="other")).write(runs / "two")
    shutil.copy(SHIPPED, runs)
    keyring_of(folder / "site_src" / "keys", a_key(), a_key(2))
    state(runs / "one" / "run.json", "disputed", a_key(2))
    write_bench(folder / "site_src" / "data")
    return build_site(folder)


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_there_is_one_page_per_configuration_and_the_ranking_is_home(site: Path) -> None:
    assert len(list((site / "reports").glob("*.html"))) == 2
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "2 configurations, recomputed" in home
    assert "As published, not recomputed" in home
    assert len(list((site / "quoted").glob("*.html"))) == 1


def test_the_goodput_page_draws_the_benchmark_from_the_file_beside_it(site: Path) -> None:
    page = (site / "goodput.html").read_text(encoding="utf-8")
    assert f"Measured on: {MACHINE}" in page
    assert 'href="data/goodput-bench.json"' in page
    assert 'href="data/goodput-proof.json"' in page
    assert (site / "data" / "goodput-bench.json").is_file()
    assert page.count('role="img"') == 6
    assert "<!--tw:" not in page


def test_run_and_evidence_are_served_with_their_own_bytes(site: Path) -> None:
    runs = site.parent / "runs"
    for served in (site / "runs").iterdir():
        document = json.loads((served / "run.json").read_bytes())
        source = next(
            p
            for p in runs.glob("*/run.json")
            if p.read_bytes() == (served / "run.json").read_bytes()
        )
        for entry in document["evidence"]:
            packed = (served / entry["path"]).read_bytes()
            assert packed == (source.parent / entry["path"]).read_bytes()


def test_the_run_file_that_is_served_can_be_measured_again(site: Path) -> None:
    served = sorted((site / "runs").glob("*/run.json"))
    assert len(served) == 2
    assert all(read_spec(path).label == "toy-cpu" for path in served)
    assert not list((site / "runs").rglob("*.yaml"))


OWN_IMAGES = {"client.html": ["images/client-error.svg", "images/client-late.svg"]}


def test_f29_no_page_holds_a_live_element_of_a_hostile_title(site: Path) -> None:
    for path in pages(site):
        html = path.read_text(encoding="utf-8")
        assert "pwned=1</script>" not in html, path
        images = [a for tag, a in Parsed(html).tags if tag == "img"]
        assert [a["src"] for a in images] == OWN_IMAGES.get(path.name, []), path
        assert not [name for a in images for name in a if name.startswith("on")], path
        assert html.count("</title>") == html.count("<title"), path


def test_every_link_leads_to_a_file_and_to_a_place_that_is_in_it(site: Path) -> None:
    parsed = {path: Parsed(path.read_text(encoding="utf-8")) for path in pages(site)}
    places = {path.resolve(): set(each.ids) for path, each in parsed.items()}
    lost = []
    for path, page in parsed.items():
        # The page for lost addresses stands anywhere: its links begin at the root of the site.
        folder = site if path.name == "404.html" else path.parent
        for _, attrs in page.tags:
            for link in (attrs.get("href"), attrs.get("src")):
                target, _, place = (link or "").partition("#")
                if ":" in target:
                    continue
                there = (folder / target.lstrip("/") if target else path).resolve()
                # With "=" it is a reader's choice, which a script reads.
                known = "=" in place or place in places.get(there, {place}) | {""}
                if not there.exists() or not known:
                    lost.append((path.name, link))
    assert lost == []


def test_no_page_names_an_address_outside_the_site(site: Path) -> None:
    for path in pages(site):
        for tag, attrs in Parsed(path.read_text(encoding="utf-8")).tags:
            if tag in {"script", "link", "img", "iframe"}:
                target = attrs.get("src") or attrs.get("href") or ""
                assert not target.startswith(("http", "//")), (path, tag, target)


def test_f28_every_page_has_a_policy_that_covers_its_inline_scripts(site: Path) -> None:
    assert site / "404.html" in pages(site)
    for path in pages(site):
        html = path.read_text(encoding="utf-8")
        (policy,) = [a["content"] or "" for tag, a in Parsed(html).tags if "http-equiv" in a]
        assert html.index("http-equiv") < html.index("<script"), path
        for directive in ("default-src 'self'", "connect-src 'self'", "form-action 'none'"):
            assert directive in policy.split("; "), path
        inline = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
        assert inline
        assert all(script_hash(script) in policy for script in inline), path
        assert policy.count("sha256-") == len(set(inline)), path
        assert "unsafe-inline" not in policy.partition("script-src")[2], path


def test_f28_a_script_that_nobody_wrote_fails_the_build_and_gets_no_digest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = make_project(tmp_path)
    RunBuilder(spec=small_spec(title="<script>stolen()</script>")).write(runs / "one")
    monkeypatch.setattr("tokenwatt_site.site.shown_title", lambda title: title)
    told = refusal(tmp_path, caplog)
    assert "reports/" in told
    assert "a script is in this page that neither the theme nor its prose has" in told


def test_f28_a_script_in_prose_of_the_site_runs(tmp_path: Path) -> None:
    make_project(tmp_path)
    with (tmp_path / "site_src" / "method.md").open("a", encoding="utf-8") as handle:
        handle.write("\n<script>own(1)</script>\n")
    html = (build_site(tmp_path) / "method.html").read_text(encoding="utf-8")
    assert script_hash("own(1)") in html


def test_f28_a_theme_without_a_place_for_the_policy_fails_the_build(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    monkeypatch.setattr("tokenwatt_site.plugin.with_policy", lambda *_: None)
    assert "404.html: has no <meta" in refusal(tmp_path, caplog)


def test_a_report_has_a_skip_link_and_its_table_of_contents(site: Path) -> None:
    html = next((site / "reports").glob("*.html")).read_text(encoding="utf-8")
    assert 'class="md-skip"' in html
    assert 'href="#not-covered"' in html


def test_there_are_seven_tabs_and_a_page_with_siblings_has_the_sidebar(site: Path) -> None:
    shown = {}
    for path in pages(site):
        tags = [a for _, a in Parsed(path.read_text(encoding="utf-8")).tags]
        assert sum(a.get("class") == "md-tabs__link" for a in tags) == 7, path
        (sidebar,) = [a for a in tags if a.get("data-md-type") == "navigation"]
        shown[path.relative_to(site).as_posix()] = "hidden" not in sidebar
    nested = {"measure.html", "glossary.html", "verify.html", "decisions/0001-httpx2.html"}
    assert nested <= {name for name, there in shown.items() if there}
    alone = {"index.html", "compare.html", "plan.html", "data.html"}
    reports = {name for name in shown if name.startswith(("reports/", "runs/", "quoted/"))}
    assert not [name for name in alone | reports if shown[name]]


def test_the_search_dialog_of_every_page_has_a_name(site: Path) -> None:
    for path in pages(site):
        tags = Parsed(path.read_text(encoding="utf-8")).tags
        dialogs = [a for _, a in tags if a.get("role") == "dialog"]
        assert [a.get("aria-label") for a in dialogs] == ["Search"], path


def test_charts_are_in_and_no_hole_is_left(site: Path) -> None:
    for path in (site / "reports").glob("*.html"):
        html = path.read_text(encoding="utf-8")
        assert "<!--tw:" not in html
        assert 'role="img"' in html


def test_search_knows_a_report_by_its_head_alone(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = [d["location"] for d in index["docs"] if d["location"].startswith("reports/")]
    assert len(places) == 2
    assert (site / "search" / "search_index.js").is_file()


def test_a_bad_file_stops_the_build_with_one_list_of_all_that_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = make_project(tmp_path)
    good = RunBuilder().write(runs / "good")
    cut = runs / "cut.json"
    cut.write_bytes(good.read_bytes()[:1000])
    (runs / "other.json").write_text('{"run_schema": "x"}', encoding="utf-8")
    with caplog.at_level(logging.ERROR), pytest.raises(Abort):
        build_site(tmp_path)
    told = "\n".join(record.message for record in caplog.records)
    assert "2 files under" in told
    assert str(cut) in told
    assert "other.json" in told


def test_bad_keys_and_bad_runs_are_told_in_one_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = make_project(tmp_path)
    RunBuilder().write(runs / "good")
    (runs / "cut.json").write_text("{", encoding="utf-8")
    keys = tmp_path / "site_src" / "keys"
    keyring_of(keys, a_key())
    (keys / "one.json").write_text("[]", encoding="utf-8")
    (keys / "two.json").write_text('{"a": 1, "a": 2}', encoding="utf-8")
    told = refusal(tmp_path, caplog)
    for name in ("one.json", "two.json", "cut.json"):
        assert name in told
    assert "problems with" in told
    assert "1 file under" in told


def test_bad_keys_fail_a_build_that_drops_bad_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_project(tmp_path, on_invalid="drop")
    keys = tmp_path / "site_src" / "keys"
    keyring_of(keys, a_key())
    (keys / "one.json").write_text("[]", encoding="utf-8")
    assert "one.json" in refusal(tmp_path, caplog)
    assert not (tmp_path / "site" / "index.html").exists()


def test_another_word_for_what_to_do_with_bad_files_is_refused(tmp_path: Path) -> None:
    make_project(tmp_path, on_invalid="stop")
    with pytest.raises(Abort):
        build_site(tmp_path)


def test_statements_are_served_beside_their_run(site: Path) -> None:
    (beside,) = (site.parent / "runs").glob("*/run.att.jsonl")
    (served,) = (site / "runs").glob("*/run.att.jsonl")
    assert served.read_bytes() == beside.read_bytes()
    assert json.loads((served.parent / "run.json").read_bytes()) == json.loads(
        beside.with_name("run.json").read_bytes()
    )
    told = "disputed by Lab 2: too fast for its clocks"
    assert told in (site / "index.html").read_text(encoding="utf-8")


def test_statements_that_are_not_valid_stop_the_build_and_their_run_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = make_project(tmp_path)
    beside = state(RunBuilder().write(runs), "disputed", a_key(2))
    beside.write_bytes(beside.read_bytes()[:-9])
    told = refusal(tmp_path, caplog)
    assert "run.att.jsonl:1: is no statement, or was cut" in told
    assert "1 file under" in told


def test_drop_publishes_a_run_without_statements_that_are_not_valid(tmp_path: Path) -> None:
    runs = make_project(tmp_path, on_invalid="drop")
    beside = state(RunBuilder().write(runs), "disputed", a_key(2))
    beside.write_bytes(beside.read_bytes()[:-9])
    site = build_site(tmp_path)
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "1 configuration, recomputed" in home
    assert "<li>run.att.jsonl<span>" in home
    assert not list(site.rglob("*.att.jsonl"))
    report = next((site / "reports").glob("*.html")).read_text(encoding="utf-8")
    assert "What failed verification in 1 file of statements" in report


def test_drop_publishes_the_rest_and_lists_what_was_left_out(tmp_path: Path) -> None:
    runs = make_project(tmp_path, on_invalid="drop")
    good = RunBuilder().write(runs / "good")
    (runs / "cut.json").write_bytes(good.read_bytes()[:1000])
    home = (build_site(tmp_path) / "index.html").read_text(encoding="utf-8")
    assert "1 configuration, recomputed" in home
    assert "1 file failed verification and is not" in home
    assert "cut.json" in home


def test_the_public_page_names_dropped_files_within_the_runs_folder(tmp_path: Path) -> None:
    runs = make_project(tmp_path, on_invalid="drop")
    good = RunBuilder().write(runs / "good")
    copied = RunBuilder().write(runs / "zz")
    bare = runs / "without" / "evidence.json"
    bare.parent.mkdir()
    bare.write_bytes(good.read_bytes())
    shutil.rmtree(copied.parent / "evidence")
    (runs / "link.json").symlink_to(good)
    (runs / "deep" / "er").mkdir(parents=True)
    (runs / "deep" / "er" / "cut.json").write_bytes(good.read_bytes()[:1000])
    site = build_site(tmp_path)
    home = (site / "index.html").read_text(encoding="utf-8")
    left_out = home[home.index('id="left-out"') :]
    for name in ("deep/er/cut.json", "link.json", "without/evidence.json", "zz/run.json"):
        assert f"<li>{name}<span>" in left_out
    for path in site.rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes(), path


@pytest.mark.parametrize("name", ["\x1b[31mred.json", "two\nlines.json", "a\udcffb.json"])
def test_control_characters_of_a_file_name_are_shown_escaped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    runs = make_project(tmp_path, on_invalid="drop")
    (runs / name).write_text("{", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        home = (build_site(tmp_path) / "index.html").read_text(encoding="utf-8")
    told = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
    assert len(told) == 1
    assert told[0].isprintable()
    escaped = name.encode("unicode_escape").decode()
    assert escaped in told[0]
    assert f"<li>{escaped}<span>" in home


def refusal(folder: Path, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.ERROR), pytest.raises(Abort):
        build_site(folder)
    return "\n".join(record.getMessage() for record in caplog.records)


def test_a_runs_folder_that_is_not_there_stops_the_build(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_project(tmp_path, runs_dir="rnus")
    told = refusal(tmp_path, caplog)
    assert "runs_dir" in told
    assert str(tmp_path / "rnus") in told
    assert not (tmp_path / "site" / "index.html").exists()


@pytest.mark.parametrize("option", ["runs_dir", "keys_dir"])
def test_a_file_in_the_place_of_a_folder_stops_the_build(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    make_project(tmp_path, **{option: "afile"})
    (tmp_path / "afile").write_text("", encoding="utf-8")
    told = refusal(tmp_path, caplog)
    assert f"{option}: " in told
    assert str(tmp_path / "afile") in told


@pytest.mark.parametrize("name", ["index.md", "README.md", "plan.md"])
def test_a_page_of_ones_own_in_the_place_of_one_of_ours_is_refused_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    make_project(tmp_path)
    (tmp_path / "site_src" / name).write_text("# mine\n", encoding="utf-8")
    told = refusal(tmp_path, caplog)
    assert f"{name}: has the address of a page that the plugin makes" in told


@pytest.mark.parametrize("option", ["runs_dir", "keys_dir"])
def test_a_folder_without_a_name_is_not_the_whole_project(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    make_project(tmp_path, **{option: "''"})
    assert f"{option}: is empty" in refusal(tmp_path, caplog)


def test_a_site_that_knows_its_address_names_the_run_to_reproduce_and_publishes_its_commitment(
    tmp_path: Path,
) -> None:
    runs = make_project(tmp_path)
    config = tmp_path / "mkdocs.yml"
    told = config.read_text(encoding="utf-8") + "\nsite_url: https://example.org/bench/\n"
    config.write_text(told, encoding="utf-8")
    path = RunBuilder(simulated=False).write(runs)
    opening = verify(path).evidence.journal[0]
    path_beside(path).write_bytes(commit(opening, a_key()))
    built = build_site(tmp_path)
    (page,) = (built / "reports").glob("*.html")
    run_id = verify(path).run_id
    address = f"https://example.org/bench/runs/{run_id}/run.json"
    text = Parsed(page.read_text(encoding="utf-8")).text
    assert f"tokenwatt-site reproduce {address} --out" in text
    assert "Committed, own word" in text
    with serving(built) as local:
        fetched = fetch_run(f"{local}/runs/{run_id}/run.json", tmp_path / "fetched")
    assert verify(fetched).run_id == run_id
    assert verify(built / "runs" / run_id / "run.json").promised.commitment is not None


def test_every_result_is_a_script_that_a_page_from_disk_can_load(site: Path) -> None:
    details = site / "details"
    reports = {path.stem for path in (site / "reports").glob("*.html")}
    assert {path.stem for path in details.glob("*.js")} == reports
    assert [path.stem for path in (details / "quoted").glob("*.js")] == [
        path.stem for path in (site / "quoted").glob("*.html")
    ]
    for path in details.rglob("*.js"):
        assert path.read_text(encoding="ascii").startswith("TokenwattDetail({")


def test_a_comparison_of_what_is_not_there_stops_the_build_naming_file_and_field(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_project(tmp_path)
    named = tmp_path / "site_src" / "comparisons"
    named.mkdir()
    (named / "x.yml").write_text(
        "name: x\ntitle: X\nwhy: To see.\nbaseline: gone\nothers:\n  - gone-too\n",
        encoding="utf-8",
    )
    told = refusal(tmp_path, caplog)
    assert f"{named / 'x.yml'}:4: baseline: is not on this site" in told
    assert "others.0: is not on this site" in told


def test_a_site_without_runs_builds(tmp_path: Path) -> None:
    make_project(tmp_path)
    home = (build_site(tmp_path) / "index.html").read_text(encoding="utf-8")
    assert "No measured configuration yet" in home


def test_front_matter_cannot_be_broken_out_of() -> None:
    meta = {"description": 'd"\n---\n', "hide": ["navigation"]}
    lines = front_matter(EVIL + "\n---\nhide: []", meta).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "---",
        "title",
        "description",
        "hide",
        "---",
    ]
    assert "<" not in lines[1]


def test_a_site_names_what_its_pages_multiply_energy_with(tmp_path: Path) -> None:
    runs = make_project(
        tmp_path, energy='{price: {name: "Tariff 2026", per_kwh: 0.2, currency: EUR}}'
    )
    RunBuilder(spec=board_spec(), power=a_power_log()).write(runs / "one")
    (page,) = (build_site(tmp_path) / "reports").glob("*.html")
    html = page.read_text(encoding="utf-8")
    assert "0.2 EUR/kWh (Tariff 2026)" in html
    assert "gCO2" not in html


@pytest.mark.parametrize(
    ("energy", "words"),
    [
        ("{price: {per_kwh: 0.2, currency: EUR}}", "price.name"),
        ("{pue: {name: Hall, factor: 0.8}}", "pue.factor"),
        ("{carbon: 400}", "carbon"),
    ],
    ids=["no name", "PUE below 1", "unknown"],
)
def test_a_factor_that_is_not_valid_stops_the_build_and_is_named(
    tmp_path: Path, energy: str, words: str
) -> None:
    make_project(tmp_path, energy=energy)
    config = load_config(str(tmp_path / "mkdocs.yml"))
    with pytest.raises(PluginError, match=rf"energy.*{words}"):
        config.plugins.run_event("config", config)
