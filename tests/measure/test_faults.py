"""A launched engine in a process of its own: what a session does when things go wrong."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.runs import HELD, KEYID, small_spec
from tokenwatt_site import journal
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure import session
from tokenwatt_site.measure.session import Events, measure

MAIN = "from tokenwatt_site.cli import main; main()"
# A token every 1 ms: the smallest shape, so that nothing but the fixed time of a step is left.
ARGV = [
    *("{python}", "-c", MAIN, "simulate", "--port", "{port}"),
    *("--model", "smollm2-135m", "--served-name"),
]


# The client's own limits are shares of the TTFT limit: these hold on a busy machine.
PATIENT = [{"metric": m, "quantile": 0.9, "limit_ms": 60_000.0} for m in ("ttft", "tpot")]


def spec_of(model, script="", start_rate=20.0):
    argv = [*ARGV, model, "--script", script]
    return small_spec(
        setup__engine__argv=argv,
        setup__engine__name="tokenwatt-simulated",
        setup__engine__version="not recorded",
        setup__slo=PATIENT,
        endpoint__model=model,
        protocol__scored=10,
        protocol__lead_in=2,
        protocol__start_rate=start_rate,
        protocol__max_rate=40.0,
    )


def processes_with(marker):
    """Return the pids of all processes whose command line holds `marker`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker.encode() in words:
                found.append((int(entry.name), words[0], words))
    return [pid for pid, _, words in found if b"-I" not in words]  # not the guardian


def run(spec, folder, progress=lambda _: None):
    return measure(spec, folder, Events(progress, lambda _: None), keyid=KEYID)


def test_a_run_against_our_simulated_engine_is_marked_simulated(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "self_test", lambda *_: HELD)
    measured = run(spec_of("marked-model"), tmp_path / "work")
    assert measured.simulated
    claims = derive(measured.spec, measured.evidence)
    assert [t.verdict for t in claims.trials] == ["PASS", "PASS"]
    assert "no trial broke the SLO" in claims.metric("goodput").reason
    assert processes_with("marked-model") == []


def test_an_engine_killed_in_a_trial_is_named_and_its_trial_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "self_test", lambda *_: HELD)

    def kill(_progress):
        for pid in processes_with("killed-model"):
            os.kill(pid, signal.SIGKILL)

    spec = spec_of("killed-model", start_rate=2.0)
    with pytest.raises(EngineError, match=r"ended in trial 1 \(was ended by SIGKILL"):
        run(spec, tmp_path / "work", kill)
    lines = journal.parse((tmp_path / "work/journal.jsonl").read_bytes(), "journal")
    assert lines[-1].event == "trial_end"
    assert lines[-1].data["engine_alive"] is False
    assert processes_with("killed-model") == []


REFUSED = {
    "ignores-ignore-eos": "ignore_eos",
    "short:3": "ignore_eos",
    "no-usage": "usage",
    "cached:8": "cached",
    "http:500": "500",
}


@pytest.mark.parametrize("script", REFUSED)
def test_the_preflight_refuses_an_engine_on_which_trials_would_mean_nothing(script, tmp_path):
    spec = spec_of(f"refused-{script.partition(':')[0]}", script)
    with pytest.raises(EngineError, match=REFUSED[script]):
        run(spec, tmp_path / "work")
    lines = journal.parse((tmp_path / "work/journal.jsonl").read_bytes(), "journal")
    assert [line.event for line in lines] == ["open"]


def test_a_model_that_the_engine_does_not_serve_is_refused(tmp_path):
    spec = small_spec(
        setup__engine__argv=[*ARGV, "served-model"],
        setup__engine__name="tokenwatt-simulated",
        setup__engine__version="not recorded",
    )
    with pytest.raises(Exception, match=r"endpoint\.model.*served-model"):
        run(spec, tmp_path / "work")


def test_an_engine_that_does_not_start_is_named_with_the_end_of_its_log(tmp_path):
    spec = small_spec(setup__engine__argv=["{python}", "-c", "raise SystemExit('no {port}')"])
    with pytest.raises(EngineError, match=r"ended with exit code 1 .*"):
        run(spec, tmp_path / "work")
    assert "no " in (tmp_path / "work/engine.log").read_text(encoding="utf-8")
