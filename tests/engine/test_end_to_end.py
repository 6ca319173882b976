"""The whole path on the real engine: preflight, trials, signature, verification, site."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tokenwatt_site.commands.measure import measure_and_sign
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import EngineError, ReadBackError
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.measure.client import Target
from tokenwatt_site.measure.endpoint import Prober, read_back
from tokenwatt_site.measure.preflight import compare, preflight
from tokenwatt_site.measure.session import Events
from tokenwatt_site.measure.tokenizer import prompts_for
from tokenwatt_site.measure.trial import run_trial
from tokenwatt_site.prompts import Ids, common_words, trial_key
from tokenwatt_site.run import Run
from tokenwatt_site.spec import parse_spec
from tokenwatt_site.workload import workload_of

pytestmark = pytest.mark.engine

# A TTFT limit far above what this engine needs keeps the client's own limits (0.5% of it) wide
# enough for a busy machine; the boundary comes from TPOT.
SLO = [
    {"metric": "ttft", "quantile": 0.9, "limit_ms": 20_000},
    {"metric": "tpot", "quantile": 0.9, "limit_ms": 60},
]
PROTOCOL = {"lead_in": 2, "scored": 10, "tail": 30, "start_rate": 4.0, "max_rate": 16}
KEY = trial_key("cd" * 32, "preflight", 1, 0)


NO_GATE = {"task": "none", "shots": 0, "questions": 0, "max_drop_points": 0}


def attached(demo_spec, engine, api="completions", *, gated=False, **setup):
    value = demo_spec.to_json()
    if not gated:
        value["setup"]["accuracy_gate"] = NO_GATE
        del value["accuracy"]
    value["setup"] |= {"slo": SLO} | setup
    value["protocol"] |= PROTOCOL
    value["endpoint"] |= {"start": "attach", "url": engine.url, "api": api}
    return parse_spec(value, source="test")


def prompts(spec):
    return common_words() if spec.endpoint.api == "chat" else Ids(spec.endpoint.vocabulary)


def prompt(spec):
    return lambda number, tokens: prompts(spec).prompt(KEY, number, tokens)


@pytest.fixture(scope="module")
def measured(demo_spec, engine, tmp_path_factory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("end-to-end")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENWATT_KEY_DIR", str(folder / "keys"))
        return measure_and_sign(
            attached(demo_spec, engine, gated=True),
            folder / "work",
            Events(lambda _: None, lambda _: None),
            beside=ROOT / "specs",
            out=folder / "site" / "runs" / "real.json",
        )


def test_the_engine_is_what_the_demo_spec_says(demo_spec, engine):
    facts = read_back(engine.url)
    rows = {row.field: row for row in compare(demo_spec, facts)}
    assert rows["setup.engine.name"].observed == "llama.cpp"
    assert rows["endpoint.model"].state == "read back"
    assert facts.context_tokens == 1024


def test_a_wrong_model_name_is_caught_though_the_engine_accepts_it(demo_spec, engine):
    value = demo_spec.to_json()
    value["endpoint"]["model"] = "smollm2-135m-instruckt"
    with pytest.raises(ReadBackError, match=r"endpoint\.model"):
        compare(parse_spec(value, source="test"), read_back(engine.url))


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_preflight_passes_and_sees_the_traps_of_this_engine(demo_spec, engine, api):
    spec = attached(demo_spec, engine, api)
    found = preflight(spec, engine.url, read_back(engine.url), prompt(spec))
    assert found.accepts_unknown_model
    assert found.repeat_cached_tokens == 0
    assert (found.chat_overhead_tokens > 0) == (api == "chat")


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a13_a_text_made_by_the_tokenizer_of_the_engine_has_the_tokens_asked_for(
    demo_spec, engine, api
):
    value = attached(demo_spec, engine, api).to_json()
    value["endpoint"]["prompt"] = "text"
    spec = parse_spec(value, source="test")
    words = prompts_for(spec.endpoint, engine.url)
    assert words.source == "server /tokenize"
    found = preflight(
        spec,
        engine.url,
        read_back(engine.url),
        lambda number, tokens: words.prompt(KEY, number, tokens),
        counted_by=words.tokenizer,
    )
    probe = Prober(spec, engine.url)
    for tokens in (10, 100, 500):
        reply = probe.ask(f"{tokens} tokens", words.prompt(KEY, tokens, tokens), 2)
        assert reply.prompt_tokens == tokens + found.chat_overhead_tokens


def test_an_output_that_the_context_would_cut_is_refused(demo_spec, engine):
    long = {"kind": "fixed", "tokens": 1000}
    value = attached(demo_spec, engine).to_json()
    value["setup"] |= {
        "output_tokens": long,
        "workload": {**value["setup"]["workload"], "name": "x"},
    }
    spec = parse_spec(value, source="test")
    with pytest.raises(EngineError, match="context"):
        preflight(spec, engine.url, read_back(engine.url), prompt(spec))


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a8_tokens_come_from_usage_in_both_dialects_of_the_engine(demo_spec, engine, api, tmp_path):
    spec = attached(demo_spec, engine, api, slo=[{**o, "limit_ms": 60_000} for o in SLO])
    facts = read_back(engine.url)
    overhead = preflight(spec, engine.url, facts, prompt(spec)).chat_overhead_tokens
    realisation = workload_of(spec.setup).realisation(1, lead_in=0, scored=10, tail=0)
    offered = run_trial(
        spec,
        realisation,
        Target.from_url(engine.url, api),
        repeat=1,
        trial=1,
        rate_urps=4_000_000,
        nonce="ef" * 32,
        prompts=prompts(spec),
        chat_overhead=overhead,
        trials_left=1,
        alive=engine.alive,
        report=lambda _: None,
        keep=lambda _: None,
        window=lambda *_: None,
        folder=tmp_path,
    )
    for record in offered.records:
        assert record.status is Status.OK
        assert record.output_tokens == record.output_asked
        assert abs(record.prompt_tokens - max(record.prompt_asked, overhead + 1)) <= 2
        assert record.due_ns <= record.sent_ns < record.first_ns <= record.last_ns <= record.end_ns
        assert 1 <= record.first_tokens <= record.output_tokens


def test_a_real_run_is_verified_and_its_numbers_are_recomputed(measured):
    path, run = measured
    checked = verify(path)
    assert checked.claims == run.claims
    assert {"PASS", "FAIL"} & {t.verdict for t in run.claims.trials}
    assert run.status == "complete"
    assert not run.simulated
    complete = max(t.complete for t in run.claims.trials)
    assert complete == run.spec.protocol.scored


def test_a_real_run_has_answered_the_questions_of_its_gate_and_is_a_reference(measured):
    _, run = measured
    (answers,) = run.claims.accuracy
    assert (answers.questions, answers.unanswered, answers.same_launch) == (60, 0, True)
    # A model of this size adds one-digit numbers about half of the time.
    assert 0.2 < answers.correct / answers.questions < 0.7
    assert run.claims.gate.outcome == "reference"
    (loaded,) = run.claims.under_load
    assert loaded.compared > 0


def test_a_real_run_becomes_a_page_of_a_strictly_built_site(measured):
    path, run = measured
    site = path.parent.parent
    # The comparisons there are of runs that this site does not have.
    comparisons = shutil.ignore_patterns("comparisons")
    shutil.copytree(ROOT / "site_src", site / "site_src", ignore=comparisons)
    shutil.copy(ROOT / "mkdocs.yml", site)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (site / "site" / "reports" / f"{run.configuration}.html").read_text(encoding="utf-8")
    assert "Not covered" in page
    assert run.run_id in page
    assert run.configuration in (site / "site" / "index.html").read_text(encoding="utf-8")


def test_one_edited_digit_in_a_real_run_is_found(measured, tmp_path):
    path, _ = measured
    document = json.loads(path.read_bytes())
    document["claims"]["trials"][0]["rate_urps"] += 1
    shutil.copytree(path.parent / "evidence", tmp_path / "evidence")
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(Exception, match="check 4"):
        verify(edited)
