"""The protocol on an engine that is a formula: what is kept, resumed, refused."""

import math
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from tests.measure.stub_engine import StubEngine, as_json, serving
from tests.support.clock import VirtualClock
from tests.support.runs import HELD, KEYID, ToyEngine, small_spec, spec_in_mode
from tests.support.tls import Authority, tls_before
from tests.support.tokenizer_files import metaspace
from tokenwatt_site import journal as journal_module
from tokenwatt_site import trials as trials_module
from tokenwatt_site import windows as windows_module
from tokenwatt_site.canonical import sha256_hex
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.engine_model.document import Fit, ModelFit
from tokenwatt_site.engine_model.load import Load
from tokenwatt_site.engine_model.model import Family, Prices
from tokenwatt_site.errors import (
    EngineError,
    EnvironmentProblem,
    Interrupted,
    InvalidMeasurement,
    UsageError,
)
from tokenwatt_site.evidence.answers import text_digest
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.evidence.under_load import SAMPLES, Compared
from tokenwatt_site.goodput import decide, judge
from tokenwatt_site.measure import begun, fitting, searching, session, workfolder
from tokenwatt_site.measure.client import Offered
from tokenwatt_site.measure.endpoint import EngineFacts
from tokenwatt_site.measure.power import ScriptedMeter, opening
from tokenwatt_site.measure.preflight import Preflight
from tokenwatt_site.measure.search import SWEEP
from tokenwatt_site.measure.searching import Budget
from tokenwatt_site.measure.session import Events, measure
from tokenwatt_site.measure.settling import Burst, WarmUp
from tokenwatt_site.meters import SCOPES
from tokenwatt_site.prompts import COMMON_WORDS, Ids, prompts_of
from tokenwatt_site.windows import windows_of

LAUNCH = {"endpoint__start": "launch"}
ATTACH = {"endpoint__start": "attach", "endpoint__url": "http://127.0.0.1:9"}


class FakeEngine:
    url = "http://127.0.0.1:9"
    urls = (url,)

    def __init__(self, lab):
        self.lab = lab
        self.started = f"2026-01-01T00:00:{lab.launches:02}Z"
        self.starts = (self.started,)

    def alive(self):
        return not self.lab.dead

    def processes(self):
        return self.lab.pids

    def exit_text(self):
        return "ended with exit code 7"


class Lab:
    """Stands in for engine, client and meter; the session between them is real."""

    def __init__(self):
        self.launches = 0
        self.restarts = True
        self.dead = False
        self.trials = 0
        self.said = []
        self.before_trial = lambda _: None
        self.late_ns = 0
        self.connecting_ns = 0
        self.prompt_tokens = None
        self.clock = VirtualClock()
        self.origin_ns = 0
        self.meters = {}
        self.counters = lambda: None
        self.pids = ()
        self.status = Status.OK
        self.held = HELD
        self.cpu_ns = 1_000
        self.clock_step_ns = 0
        self.several = ((), None)
        self.client = None
        self.asked_alone = []
        self.before_alone = lambda: None
        self.predict = lambda *_: None
        self.fitted = []
        self.model_fit = lambda *_: None

    @contextmanager
    def engine(self, *_args, **_options):
        self.launches += self.restarts
        yield FakeEngine(self)

    def run_clock(self, origin_ns):
        self.origin_ns = origin_ns
        return self.clock

    def open_meters(self, spec, boards):
        """What `opening.open_meters` does, of the meters and reasons of the lab."""
        openers = {sensor: lambda *_, s=sensor: self.opened(s) for sensor in SCOPES}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening, "_OPENERS", openers)
            return opening.open_meters(spec, boards)

    def opened(self, sensor):
        meter = self.meters.get(sensor, "this machine has no boards")
        if isinstance(meter, str):
            raise EnvironmentProblem(meter)
        return meter() if callable(meter) else meter

    def run_trial(
        self,
        _spec,
        realisation,
        _target,
        *,
        repeat,
        trial,
        rate_urps,
        window,
        texts_of,
        client,
        **_options,
    ):
        self.trials += 1
        self.client = client
        self.before_trial(self.trials)
        records = [
            replace(
                record,
                sent_ns=record.sent_ns + self.late_ns + self.connecting_ns,
                dialled_ns=record.sent_ns + self.late_ns if self.connecting_ns else None,
                connected_ns=record.sent_ns + self.late_ns + self.connecting_ns
                if self.connecting_ns
                else None,
                prompt_tokens=self.prompt_tokens or record.prompt_tokens,
                status=self.status,
            )
            for record in ToyEngine().serve(realisation, rate_urps, repeat=repeat, trial=trial)
        ]
        epoch = self.origin_ns + self.clock.now_ns() + 20_000_000
        due, rows = realisation.due_ns(rate_urps), realisation.scored_rows
        window(epoch + due[rows.start], epoch + due[rows.stop - 1])
        self.clock.pause(max(record.end_ns for record in records) / 1e9 + 0.02)
        failed = sum(record.status is not Status.OK for record in records)
        errors = {"HTTP 500": failed} if failed else {}
        client = (self.cpu_ns, 10_000, self.clock_step_ns)
        texts = {row: f"loaded {row}" for row in texts_of}
        return Offered(tuple(records), epoch, "kernel", errors, 0, 1, *client, texts, *self.several)

    def predicted(self, *given):
        return self.predict(*given)

    def fit(self, *given):
        self.fitted.append(given)
        return self.model_fit(*given)

    def compare_alone(self, spec, _realisation, _target, *, repeat, trial, texts, **_options):
        self.asked_alone.append((repeat, trial))
        self.before_alone()
        assert len(texts) == SAMPLES[spec.protocol.mode]
        return tuple(
            Compared(
                repeat=repeat,
                trial=trial,
                row=row,
                loaded=text_digest(text),
                alone=text_digest(text),
                again=text_digest(text),
                same_chars=len(text),
                chars=len(text),
                cached_tokens=0,
            )
            for row, text in sorted(texts.items())
        )


@pytest.fixture
def lab(monkeypatch):
    lab = Lab()
    facts = EngineFacts("toy", "1.0", "test", ("toy-135m",), 4096, 32000, None)
    monkeypatch.setattr(session, "launch", lab.engine)
    monkeypatch.setattr(session, "attach", lab.engine)
    monkeypatch.setattr(searching, "run_trial", lab.run_trial)
    monkeypatch.setattr(session, "compare_alone", lab.compare_alone)
    monkeypatch.setattr(session, "read_back_all", lambda *_: (facts,))
    monkeypatch.setattr(session, "preflight", lambda *_, **__: Preflight(False, 0, 0, True))
    monkeypatch.setattr(begun, "open_meters", lab.open_meters)
    monkeypatch.setattr(begun, "engine_source", lambda *_: lab.counters())
    monkeypatch.setattr(begun, "RunClock", lab.run_clock)
    monkeypatch.setattr(session, "self_test", lambda *_: lab.held)
    monkeypatch.setattr(session, "warm_up", lambda *_, **__: WARM)
    monkeypatch.setattr(windows_module, "LONG_RUN_SCORED", 1_000)
    monkeypatch.setattr(
        "tokenwatt_site.engine_model.long_run._loads", {}
    )  # else it would stay short
    monkeypatch.setattr(fitting, "predict", lab.predicted)
    monkeypatch.setattr(fitting, "model_fit", lab.fit)
    return lab


WARM = WarmUp(True, 17, (Burst(5_000_000, 2_000_000, 3_000_000),) * 3)


def run(lab, spec, folder, **options):
    events = Events(lambda _: None, lab.said.append)
    return measure(spec, folder, events, keyid=KEYID, **options)


def test_a_session_encloses_the_boundary_and_its_evidence_can_be_derived_from(lab, tmp_path):
    spec = small_spec()
    measured = run(lab, spec, tmp_path / "work")
    claims = derive(spec, measured.evidence)
    repeat = claims.repeats[0]
    assert repeat.lowest_fail_urps <= repeat.highest_pass_urps * 1.15
    assert claims.metric("goodput").value > 0
    assert not measured.simulated
    assert measured.conditions.stamps == "kernel"
    assert claims.metric("board_power").reason == "the spec names no power sensor"


def test_the_journal_opens_before_any_trial_and_closes_after_the_last(lab, tmp_path):
    measured = run(lab, small_spec(), tmp_path / "work")
    events = [line.event for line in measured.evidence.journal]
    assert events[:3] == ["open", "launch", "trial_start"]
    assert events[-3:] == ["repeat_end", "under_load", "close"]
    assert events.count("trial_start") == events.count("trial_end") == lab.trials
    parsed = journal_module.parse(measured.journal_bytes, "journal")
    assert parsed == measured.evidence.journal


def test_later_repeats_start_at_the_boundary_of_the_one_before(lab, tmp_path):
    one = run(lab, small_spec(), tmp_path / "one")
    trials_of_one = lab.trials
    lab.trials = 0
    three = run(lab, small_spec(protocol__repeats=3), tmp_path / "three")
    assert lab.trials < 3 * trials_of_one
    repeats = derive(three.spec, three.evidence).repeats
    assert [r.repeat for r in repeats] == [1, 2, 3]
    assert all(r.boundary_urps for r in repeats)
    assert lab.launches == 4
    assert one.evidence.journal[0].data["nonce"] != three.evidence.journal[0].data["nonce"]


def interrupt(at):
    def before(number):
        if number == at:
            raise KeyboardInterrupt

    return before


def test_c1_an_interrupted_session_is_kept_and_resumed_on_a_new_launch(lab, tmp_path):
    lab.before_trial = interrupt(3)
    with pytest.raises(Interrupted):
        run(lab, small_spec(), tmp_path / "work")
    lab.before_trial = lambda _: None
    measured = run(lab, small_spec(), tmp_path / "work")
    claims = derive(measured.spec, measured.evidence)
    abandoned = [t for t in claims.trials if t.verdict == "INVALID"]
    assert len(abandoned) == 2
    assert all("done again" in t.reason for t in abandoned)
    assert any("starts again" in line for line in lab.said)
    assert claims.metric("goodput").value > 0
    assert [n.event for n in measured.evidence.journal].count("interrupted") == 1


def test_c1_an_attached_engine_that_still_runs_goes_on_with_its_repeat(lab, tmp_path):
    spec = small_spec(**ATTACH)
    run(lab, spec, tmp_path / "whole")
    whole, lab.trials = lab.trials, 0
    lab.before_trial = interrupt(4)
    with pytest.raises(Interrupted):
        run(lab, spec, tmp_path / "work")
    lab.restarts, lab.before_trial = False, lambda _: None
    measured = run(lab, spec, tmp_path / "work")
    # The trial that was broken off is the only one that is offered again.
    assert lab.trials == whole + 1
    claims = derive(spec, measured.evidence)
    assert {t.verdict for t in claims.trials} == {"PASS", "FAIL"}
    assert claims.repeats[0].boundary_urps
    assert [d["continues"] for d in journal(tmp_path / "work", "launch")] == [False, True]
    assert "repeat 1 goes on, on the launch that it had trials on" in lab.said


def test_a_restarted_engine_does_not_go_on_with_a_repeat(lab, tmp_path):
    spec = small_spec(**ATTACH)
    lab.before_trial = interrupt(4)
    with pytest.raises(Interrupted):
        run(lab, spec, tmp_path / "work")
    lab.before_trial = lambda _: None
    measured = run(lab, spec, tmp_path / "work")
    assert [t.verdict for t in derive(spec, measured.evidence).trials][:3] == ["INVALID"] * 3


@pytest.mark.parametrize("running_s", [1, 10**6])
def test_c1_a_session_is_resumed_after_the_machine_was_restarted(
    lab, tmp_path, monkeypatch, running_s
):
    lab.before_trial = interrupt(3)
    with pytest.raises(Interrupted):
        run(lab, small_spec(), tmp_path / "work")
    lab.before_trial = lambda _: None
    monkeypatch.setattr(begun.time, "monotonic_ns", lambda: running_s * 10**9)
    measured = run(lab, small_spec(), tmp_path / "work")
    # The monotonic clock began anew; that of the run goes on, by what the wall clock tells.
    assert 1 <= running_s - lab.origin_ns / 1e9 < 600
    assert derive(measured.spec, measured.evidence).metric("goodput").value > 0


def test_a_session_that_is_done_is_not_measured_again(lab, tmp_path):
    first = run(lab, small_spec(), tmp_path / "work")
    trials = lab.trials
    again = run(lab, small_spec(), tmp_path / "work")
    assert lab.trials == trials
    assert again.journal_bytes == first.journal_bytes


def test_another_spec_is_not_measured_into_the_same_folder(lab, tmp_path):
    run(lab, small_spec(), tmp_path / "work")
    with pytest.raises(EnvironmentProblem, match="another spec"):
        run(lab, small_spec(setup__driver="other"), tmp_path / "work")


def test_an_attached_engine_has_to_be_restarted_between_repeats(lab, tmp_path):
    spec = small_spec(protocol__repeats=2, **ATTACH)
    with pytest.raises(EnvironmentProblem, match="Restart the engine, then"):
        run(lab, spec, tmp_path / "work")
    lab.restarts = False
    with pytest.raises(EnvironmentProblem, match="still runs since repeat 1"):
        run(lab, spec, tmp_path / "work")
    lab.restarts = True
    measured = run(lab, spec, tmp_path / "work")
    assert len(derive(spec, measured.evidence).repeats) == 2


def test_an_engine_that_dies_in_a_trial_stops_the_session_and_loses_nothing(lab, tmp_path):
    def die(number):
        lab.dead = number == 2

    lab.before_trial = die
    with pytest.raises(EngineError, match=r"ended in trial 2 \(ended with exit code 7\)"):
        run(lab, small_spec(), tmp_path / "work")
    lines = journal_module.parse((tmp_path / "work/journal.jsonl").read_bytes(), "journal")
    assert lines[-1].event == "trial_end"
    assert lines[-1].data["engine_alive"] is False
    assert (tmp_path / "work/requests-0002.jsonl").exists()


def test_c8_a_rate_that_is_invalid_three_times_ends_the_session(lab, tmp_path):
    lab.late_ns = 50_000_000
    spec = spec_in_mode("quick", protocol__start_rate=1.0)
    with pytest.raises(
        InvalidMeasurement, match="INVALID 3 times at 1 requests/s: client: p99 dispatch"
    ):
        run(lab, spec, tmp_path / "work")
    assert lab.trials == 3


def test_a_fault_that_another_try_cannot_mend_ends_the_session_at_once(lab, tmp_path):
    lab.prompt_tokens = 7
    with pytest.raises(InvalidMeasurement, match=r"INVALID 1 times .* another length"):
        run(lab, spec_in_mode("quick"), tmp_path / "work")
    assert lab.trials == 1


def test_demo_mode_publishes_what_it_has_when_the_machine_is_too_busy(lab, tmp_path):
    def busy(number):
        lab.late_ns = 50_000_000 if number > 1 else 0

    lab.before_trial = busy
    measured = run(lab, small_spec(), tmp_path / "work")
    claims = derive(measured.spec, measured.evidence)
    assert [t.verdict for t in claims.trials] == ["PASS", "INVALID", "INVALID", "INVALID"]
    assert claims.metric("goodput").value is None
    assert claims.metric("highest_pass_rate").value == 1


def test_c2_a_repeat_that_fails_is_left_for_later_and_the_others_are_done(lab, tmp_path):
    def die(number):
        lab.dead = number == 3

    lab.before_trial = die
    spec = small_spec(protocol__repeats=3)
    with pytest.raises(EngineError, match=r"repeat 1 is not measured: the engine ended in trial 3"):
        run(lab, spec, tmp_path / "work")
    lines = journal_module.parse((tmp_path / "work/journal.jsonl").read_bytes(), "journal")
    assert [n.data["repeat"] for n in lines if n.event == "repeat_end"] == [2, 3]
    (left,) = [n.data for n in lines if n.event == "interrupted"]
    assert left["repeat"] == 1
    assert "ended in trial 3" in left["why"]
    trials = lab.trials
    measured = run(lab, spec, tmp_path / "work")
    assert lab.trials - trials < trials
    repeats = derive(spec, measured.evidence).repeats
    assert all(r.boundary_urps for r in repeats)


def test_c2_a_busy_machine_in_one_repeat_does_not_end_the_others(lab, tmp_path):
    def busy(number):
        lab.late_ns = 50_000_000 if lab.launches == 2 else 0

    lab.before_trial = busy
    lab.predict = right
    with pytest.raises(EnvironmentProblem, match="repeat 2 is not measured: INVALID 3 times") as at:
        run(lab, FULL, tmp_path / "work")
    assert at.value.exit_code == 3
    assert lab.launches == 3
    lab.before_trial = lambda _: None
    lab.late_ns = 0
    run(lab, FULL, tmp_path / "work")
    assert lab.launches == 4


def test_c2_an_engine_that_dies_beside_the_boundary_leaves_the_repeat_done(lab, tmp_path):
    lab.predict = right

    def die(number):
        lab.dead = number == REPEAT_1

    lab.before_trial = die
    measured = run(lab, FULL, tmp_path / "work")
    (end, *_) = journal(tmp_path / "work", "repeat_end")
    assert f"ended in trial {REPEAT_1}" in end["gone"]
    claims = derive(FULL, measured.evidence)
    assert claims.repeats[0].boundary_urps
    assert claims.trials[REPEAT_1 - 1].verdict == "INVALID"
    assert not [c for c in claims.under_load if c.repeat == 1]


def test_c2_a_rate_beside_the_boundary_that_stays_invalid_is_left_out(lab, tmp_path):
    lab.predict = right

    def busy(number):
        lab.late_ns = 50_000_000 if REPEAT_1 - 3 <= number < REPEAT_1 else 0

    lab.before_trial = busy
    measured = run(lab, FULL, tmp_path / "work")
    assert any("is left out beside the boundary" in line for line in lab.said)
    assert all(r.boundary_urps for r in derive(FULL, measured.evidence).repeats)


FULL = spec_in_mode("full", protocol__start_rate=1.0)
REPEAT_1 = 3 + len(SWEEP)
"""Trials of it in full mode, where the model is right: a pilot, a pass and a fail, the sweep."""


@cache
def boundaries():
    """Return the toy engine's boundary on what each repeat of FULL offers, by how long that is."""
    found = {}
    for repeat in (1, 2, 3):
        realisation = windows_of(FULL).realisation(repeat, windows_of(FULL).bands[0])
        rows = realisation.scored_rows
        low, high = 100_000, 10_000_000
        while high > low * 1.002:
            middle = math.isqrt(low * high)
            records = list(ToyEngine().serve(realisation, middle, repeat=repeat, trial=1))
            scored = records[rows.start : rows.stop]
            if decide([judge(objective, scored) for objective in FULL.setup.slo]) == "PASS":
                low = middle
            else:
                high = middle
        found[int(Load.of(realisation).elapsed[-1])] = low
    return found


def right(_spec, _seen, load, _near_urps):
    """Predict as a model does that is right."""
    return boundaries()[int(load.elapsed[-1])]


def journal(folder, event):
    lines = journal_module.parse((folder / "journal.jsonl").read_bytes(), "journal")
    return [line.data for line in lines if line.event == event]


def test_trials_go_around_what_an_engine_model_predicts_from_those_before(lab, tmp_path):
    spec = spec_in_mode("quick", protocol__start_rate=1.0)
    plain = derive(spec, run(lab, spec, tmp_path / "plain").evidence)
    known = {r.repeat: r.boundary_urps for r in plain.repeats}
    without, lab.trials, asked = lab.trials, 0, []

    def predict(_spec, seen, load, near_urps):
        asked.append((len(seen), len(load.n_in), near_urps))
        return known[1 if len(seen) == 1 else 2]

    lab.predict = predict
    measured = run(lab, spec, tmp_path / "work")
    assert lab.trials < without
    assert asked[0] == (1, 800, 1_000_000)
    claims = derive(spec, measured.evidence)
    for repeat in claims.repeats:
        assert repeat.boundary_urps == pytest.approx(known[repeat.repeat], rel=0.05)
    assert any("engine model fitted to 1 trial has the boundary at" in line for line in lab.said)


def test_every_trial_offers_the_rows_of_its_band_and_the_boundary_is_of_the_last(
    lab, tmp_path, monkeypatch
):
    def banded(spec, trace=None):
        (band,) = windows_of(spec, trace).bands
        edges = (0, 1_500_000, 3_000_000, 10**11)
        return windows_module.Windows(
            windows_of(spec).workload,
            tuple(
                replace(band, low_urps=low, high_urps=high, scored=20 + number)
                for number, (low, high) in enumerate(pairwise(edges))
            ),
            chosen=True,
        )

    monkeypatch.setattr(session, "windows_of", banded)
    monkeypatch.setattr(trials_module, "windows_of", banded)
    spec = small_spec()
    measured = run(lab, spec, tmp_path / "work")
    bands = [d["band"] for d in journal(tmp_path / "work", "trial_start")]
    rates = [d["rate_urps"] for d in journal(tmp_path / "work", "trial_start")]
    assert len(set(bands)) > 1
    assert bands[0] == banded(spec).band_at(rates[0]).low_urps
    claims = derive(spec, measured.evidence)
    own = [t for t, band in zip(claims.trials, bands, strict=True) if band == bands[-1]]
    (repeat,) = claims.repeats
    assert repeat.highest_pass_urps == max(t.rate_urps for t in own if t.verdict == "PASS")
    assert repeat.lowest_fail_urps == min(t.rate_urps for t in own if t.verdict == "FAIL")
    assert lab.asked_alone[0][1] in {t.trial for t in own}


def test_a_model_that_cannot_be_fitted_costs_no_trial(lab, tmp_path):
    def broken(*_):
        raise FloatingPointError("no steps")

    lab.predict = broken
    spec = spec_in_mode("quick", protocol__start_rate=1.0)
    claims = derive(spec, run(lab, spec, tmp_path / "work").evidence)
    assert all(r.boundary_urps for r in claims.repeats)
    assert "the engine model could not be fitted (FloatingPointError: no steps)" in lab.said


FIT = ModelFit(
    format="tokenwatt/engine-model/1",
    fits=(
        Fit(
            left_out=0,
            family=Family(prefill="chunked", token_budget=8192, max_batch=256),
            prices=Prices(
                base_ps=10**10, sequence_ps=10**8, prompt_token_ps=10**7, context_token_ps=0
            ),
            boundaries=(),
        ),
    ),
    windows_95=None,
)


def test_after_the_last_repeat_of_full_mode_a_model_is_fitted_to_all_trials_and_kept(lab, tmp_path):
    lab.model_fit = lambda *_: FIT
    lab.predict = right
    measured = run(lab, FULL, tmp_path / "work")
    assert measured.evidence.model_fit == FIT
    ((told, seen, realisations, long_run, boundaries),) = lab.fitted
    assert told == FULL
    assert len(seen) == lab.trials
    claims = derive(FULL, measured.evidence)
    assert boundaries == {r.repeat: r.boundary_urps for r in claims.repeats}
    assert {r: len(load.n_in) for r, load in realisations.items()} == dict.fromkeys((1, 2, 3), 800)
    assert len(long_run.n_in) == 5_000
    assert f"fitting the engine model to {lab.trials} trials" in lab.said
    (tmp_path / "work/fitted-model.jsonl").unlink()
    assert run(lab, FULL, tmp_path / "work").evidence.model_fit == FIT
    assert len(lab.fitted) == 2


def test_without_a_model_that_can_be_fitted_the_run_is_what_was_measured(lab, tmp_path):
    def broken(*_):
        raise ValueError("nothing converges")

    lab.model_fit = broken
    lab.predict = right
    measured = run(lab, FULL, tmp_path / "work")
    assert measured.evidence.model_fit is None
    assert "there is no engine model: ValueError: nothing converges" in lab.said
    assert measured.evidence.journal[-1].event == "close"


def test_two_repeats_are_not_enough_to_fit_a_model_that_is_judged(lab, tmp_path):
    run(lab, spec_in_mode("quick", protocol__start_rate=1.0), tmp_path / "work")
    assert lab.fitted == []


def test_a_budget_ends_a_session_before_what_would_end_later_and_the_rest_is_resumed(
    lab, tmp_path, monkeypatch
):
    spec = small_spec(protocol__repeats=2)
    monkeypatch.setattr(session, "Budget", lambda s: Budget(s, lambda: lab.clock.now_ns() / 1e9))
    whole = lab.clock.now_ns()
    run(lab, spec, tmp_path / "whole")
    taken_s = (lab.clock.now_ns() - whole) / 1e9
    trials, began_ns = lab.trials, lab.clock.now_ns()
    budget_s = taken_s * 0.6
    with pytest.raises(Interrupted, match="min has no time left for a trial") as spent:
        run(lab, spec, tmp_path / "work", budget_s=budget_s)
    assert spent.value.exit_code == 130
    assert (lab.clock.now_ns() - began_ns) / 1e9 <= budget_s
    assert 0 < lab.trials - trials < trials
    assert "budget" in journal(tmp_path / "work", "interrupted")[0]["why"]
    measured = run(lab, spec, tmp_path / "work", budget_s=10 * taken_s)
    assert all(r.boundary_urps for r in derive(spec, measured.evidence).repeats)


def test_a_repeat_that_a_budget_cannot_hold_is_not_launched(lab, tmp_path):
    with pytest.raises(Interrupted, match="no time left for repeat 1"):
        run(lab, small_spec(), tmp_path / "work", budget_s=1.0)
    assert lab.launches == 0


def test_an_attached_engine_is_restarted_by_the_command_of_its_spec(lab, tmp_path, monkeypatch):
    told = []

    def restart(argv, urls, *, starts, **_options):
        told.append((argv, urls, starts))

    monkeypatch.setattr(session, "restart", restart)
    spec = small_spec(protocol__repeats=2, endpoint__restart=["./restart", "now"], **ATTACH)
    measured = run(lab, spec, tmp_path / "work")
    assert told == [(("./restart", "now"), (ATTACH["endpoint__url"],), ("2026-01-01T00:00:01Z",))]
    assert len(derive(spec, measured.evidence).repeats) == 2


def test_the_journal_tells_how_the_engine_warmed_up_before_its_trials(lab, tmp_path):
    run(lab, small_spec(), tmp_path / "work")
    (launch,) = journal(tmp_path / "work", "launch")
    assert launch["warm_up"] == WARM.to_json()
    assert str(WARM) in lab.said


def test_quick_mode_never_offers_a_rate_whose_window_would_be_too_short(lab, tmp_path):
    spec = spec_in_mode("quick", protocol__max_rate=1000.0)
    measured = run(lab, spec, tmp_path / "work")
    claims = derive(spec, measured.evidence)
    assert {t.verdict for t in claims.trials} <= {"PASS", "FAIL"}
    assert all(r.window_s is None or r.window_s >= 120 for r in claims.repeats)


def test_a_client_that_holds_too_little_ends_the_search_at_half_of_that(lab, tmp_path):
    lab.held = HELD.model_copy(update={"requests_urps": 2_600_000, "limited_by": "client"})
    measured = run(lab, small_spec(), tmp_path / "work")
    claims = derive(measured.spec, measured.evidence)
    assert [t.rate_urps for t in claims.trials] == [1_000_000, 1_300_000]
    assert {t.verdict for t in claims.trials} == {"PASS"}
    reason = "no trial broke the SLO, up to 1.3 requests/s; the client holds no more, by its"
    assert claims.metric("goodput").reason.startswith(reason)
    line = next(line for line in lab.said if line.startswith("the client held"))
    assert "in 2.6 requests/s, no more" in line
    assert line.endswith("the search ends at half of that, 1.300 requests/s, and not at 64.000")


def test_a_client_that_cannot_hold_the_start_is_offered_nothing(lab, tmp_path):
    lab.held = HELD.model_copy(update={"requests_urps": 1_900_000, "limited_by": "client"})
    with pytest.raises(EnvironmentProblem, match="twice what 1 requests/s ask"):
        run(lab, small_spec(), tmp_path / "work")
    assert lab.trials == 0
    lab.held = HELD
    assert run(lab, small_spec(), tmp_path / "work").conditions.self_test == HELD


def test_every_launch_tests_its_client_and_the_run_says_which_held_least(lab, tmp_path):
    tests = [HELD.model_copy(update={"events_per_s": n}) for n in (70_000, 60_000, 65_000)]

    def next_one(number):
        lab.held = tests[lab.launches]

    lab.held = tests[0]
    lab.before_trial = next_one
    measured = run(lab, small_spec(protocol__repeats=2), tmp_path / "work")
    told = [n.data["self_test"] for n in measured.evidence.journal if n.event == "launch"]
    assert [test["events_per_s"] for test in told] == [70_000, 60_000]
    assert measured.conditions.self_test == tests[1]


def test_the_processor_time_of_the_client_is_in_the_claim_and_in_its_fault(lab, tmp_path):
    lab.late_ns = 50_000_000
    spec = spec_in_mode("quick", protocol__start_rate=1.0)
    with pytest.raises(InvalidMeasurement, match="it used 10% of its processor") as caught:
        run(lab, spec, tmp_path / "work")
    assert "processor core to itself" in str(caught.value)
    lines = journal_module.parse((tmp_path / "work/journal.jsonl").read_bytes(), "journal")
    ends = [line.data["client_cpu_ppm"] for line in lines if line.event == "trial_end"]
    assert ends == [100_000] * 3


def test_late_connections_are_told_apart_from_a_late_client(lab, tmp_path):
    lab.connecting_ns = 50_000_000
    spec = spec_in_mode("quick", protocol__start_rate=1.0)
    with pytest.raises(InvalidMeasurement, match="network or engine: p99 dispatch lag") as caught:
        run(lab, spec, tmp_path / "work")
    assert "When the way to the engine is free" in str(caught.value)


def test_late_connections_of_a_client_without_a_processor_may_be_its_own_fault(lab, tmp_path):
    lab.connecting_ns, lab.cpu_ns = 50_000_000, 9_500
    spec = spec_in_mode("quick", protocol__start_rate=1.0)
    with pytest.raises(InvalidMeasurement, match="client or network or engine: p99") as caught:
        run(lab, spec, tmp_path / "work")
    assert "processor core to itself" in str(caught.value)


def test_a_trial_in_which_the_wall_clock_was_set_is_tried_again(lab, tmp_path):
    def set_once(number):
        lab.clock_step_ns = 2_000_000 if number == 2 else 0

    lab.before_trial = set_once
    measured = run(lab, small_spec(), tmp_path / "work")
    lines = [n.data for n in measured.evidence.journal if n.event == "trial_end"]
    assert [line["clock_step_ns"] for line in lines[:3]] == [0, 2_000_000, 0]
    trials = derive(measured.spec, measured.evidence).trials
    assert [t.verdict for t in trials].count("INVALID") == 1
    assert trials[2].rate_urps == trials[1].rate_urps


def test_a_trial_that_lost_a_client_process_is_tried_again_and_the_run_says_how_many_there_were(
    lab, tmp_path
):
    def lose_once(number):
        lab.several = ((20_000, 30_000), "worker 1 of 2 ended by signal 9" if number == 2 else None)

    lab.before_trial = lose_once
    measured = run(lab, small_spec(), tmp_path / "work")
    claims = derive(measured.spec, measured.evidence)
    assert [t.reason for t in claims.trials if t.verdict == "INVALID"] == [
        "client: worker 1 of 2 ended by signal 9"
    ]
    assert claims.trials[2].rate_urps == claims.trials[1].rate_urps
    assert measured.conditions.workers == 2


def test_a_run_by_one_client_process_says_nothing_of_several(lab, tmp_path):
    measured = run(lab, small_spec(), tmp_path / "work")
    ends = [line.data for line in measured.evidence.journal if line.event == "trial_end"]
    assert not any({"offset_bounds_ns", "lost"} & end.keys() for end in ends)
    assert "workers" not in measured.conditions.to_json()


def test_a_moment_of_other_load_costs_one_trial_and_no_more(lab, tmp_path):
    def busy(number):
        lab.late_ns = 50_000_000 if number == 2 else 0

    lab.before_trial = busy
    measured = run(lab, small_spec(), tmp_path / "work")
    verdicts = [t.verdict for t in derive(measured.spec, measured.evidence).trials]
    assert verdicts.count("INVALID") == 1


def at_300_watts(at_ns):
    return [(300_000, 1_000 + 300 * at_ns // 1_000_000)]


POWERED = small_spec(
    setup__power={"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0},
    setup__accelerator__model="Test board",
    setup__accelerator__count=1,
)


def test_power_is_sampled_around_the_trials_on_the_clock_of_the_requests(lab, tmp_path):
    board = Board(uuid="GPU-1", name="Test board", limit_mw=700_000)
    lab.meters["nvml"] = lambda: ScriptedMeter([board], at_300_watts)
    measured = run(lab, POWERED, tmp_path / "work")
    power = measured.evidence.power
    assert measured.conditions.board_uuids == ("GPU-1",)
    epochs = [n.data["epoch_ns"] for n in measured.evidence.journal if n.event == "trial_end"]
    assert power.samples[0].at_ns <= min(epochs)
    claim = derive(POWERED, measured.evidence).metric("board_power")
    assert claim.value == pytest.approx(300)


def test_a_full_disk_is_said_before_anything_is_measured(lab, tmp_path, monkeypatch):
    monkeypatch.setattr(
        workfolder.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1 << 20})()
    )
    with pytest.raises(EnvironmentProblem, match="1 MiB free"):
        run(lab, small_spec(), tmp_path / "work")
    assert lab.trials == 0


def test_a_disk_that_fills_up_in_the_middle_keeps_what_was_there(lab, tmp_path, monkeypatch):
    written = []
    real = workfolder.Path.write_bytes

    def write(path, data):
        if len(written) == 1:
            raise OSError(28, "No space left on device")
        written.append(path)
        return real(path, data)

    monkeypatch.setattr(workfolder.Path, "write_bytes", write)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        run(lab, small_spec(), tmp_path / "work")
    monkeypatch.undo()
    lines = journal_module.parse((tmp_path / "work/journal.jsonl").read_bytes(), "journal")
    assert [line.event for line in lines][-1] == "trial_start"
    assert written[0].exists()


def test_two_sessions_do_not_write_into_the_same_folder(lab, tmp_path):
    with (
        workfolder.WorkFolder(tmp_path / "work", lambda: "now"),
        pytest.raises(EnvironmentProblem, match="in use by another measurement"),
    ):
        run(lab, small_spec(), tmp_path / "work")
    assert lab.trials == 0


def test_c3_an_engine_that_answers_nothing_in_full_ends_the_session(lab, tmp_path):
    lab.status = Status.HTTP_ERROR
    with pytest.raises(EngineError, match=r"no request of 2 trials .* 85 http error"):
        run(lab, small_spec(), tmp_path / "work")
    assert lab.trials == 2


def test_c4_failures_stand_in_the_reason_and_in_the_claim(lab, tmp_path):
    def flaky(number):
        lab.status = Status.HTTP_ERROR if number == 2 else Status.OK

    lab.before_trial = flaky
    measured = run(lab, small_spec(), tmp_path / "work")
    trial = derive(measured.spec, measured.evidence).trials[1]
    assert trial.failures == {"http_error": 85}
    assert "85 http error" in trial.reason
    assert "  85 x HTTP 500" in lab.said


def test_the_journal_tells_at_each_launch_with_which_prompts_it_was_asked(lab, tmp_path):
    measured = run(lab, small_spec(), tmp_path / "work")
    (launch,) = [n for n in measured.evidence.journal if n.event == "launch"]
    assert prompts_of(launch) == Ids(32000)


def test_d6_of_a_tokenizer_the_files_hold_its_digest_and_no_folder_of_this_machine(
    lab, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = metaspace(COMMON_WORDS)
    (tmp_path / "tokenizer.json").write_text(text, "utf-8")
    spec = small_spec(endpoint__api="chat", endpoint__tokenizer="tokenizer.json")
    measured = run(lab, spec, tmp_path / "work")
    (launch,) = [n for n in measured.evidence.journal if n.event == "launch"]
    told = prompts_of(launch)
    assert told.tokenizer_sha256 == sha256_hex(text.encode())
    assert len(set(told.words)) == 200
    assert str(tmp_path) not in measured.journal_bytes.decode()
    assert "prompts are words: 200, each one token for tokenizer.json" in lab.said
    covered = {item.what for item in derive(spec, measured.evidence).not_covered}
    assert "All tokens of the vocabulary" in covered
    assert "Prompts of exact length" not in covered


def test_without_its_key_a_session_is_not_begun(lab, tmp_path, monkeypatch):
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    spec = small_spec(endpoint__api_key_variable="ENGINE_KEY")
    with pytest.raises(UsageError, match="ENGINE_KEY"):
        run(lab, spec, tmp_path / "work")
    assert not (tmp_path / "work").exists()
    assert lab.launches == 0


def test_the_key_is_in_no_file_of_a_session_over_tls_whose_engine_repeats_it(tmp_path, monkeypatch):
    key = "k3y-0123456789abcdef"
    authority = Authority(tmp_path)
    monkeypatch.setenv("ENGINE_KEY", key)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setattr(session, "self_test", lambda *_: HELD)
    engine = StubEngine(
        get={
            "/v1/models": as_json({"data": [{"id": "toy-135m", "aliases": [f"m {key}"]}]}),
            "/metrics": (200, {}, b""),
        },
        models=(),
        key=key,
    )
    said = []

    def say(line):
        said.append(line)
        if line.startswith("warm-up"):
            engine.key = "another from now on"

    with serving(engine) as plain, tls_before(plain, authority.server_context()) as url:
        spec = small_spec(
            endpoint__start="attach",
            endpoint__url=url,
            endpoint__api_key_variable="ENGINE_KEY",
            # A busy machine makes no trial INVALID: 0.5% of this are 300 ms.
            setup__slo=[{"metric": "ttft", "quantile": 0.9, "limit_ms": 60_000.0}],
            protocol__start_rate=100.0,
            protocol__max_rate=400.0,
        )
        with pytest.raises(EngineError) as caught:
            measure(spec, tmp_path / "work", Events(lambda _: None, say), keyid=KEYID)
    files = [path.read_text("utf-8") for path in (tmp_path / "work").iterdir()]
    assert any("HTTP 401: wrong: Bearer (key)" in line for line in said)
    assert any("HTTP 401: wrong: Bearer (key)" in text for text in files)
    assert any("ENGINE_KEY" in text for text in files)
    assert key not in "".join([*said, *files, str(caught.value)])
