"""Traces and conversations from spec to verified run, against a server that knows the truth."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.measure.test_session import Lab, lab  # noqa: F401  # a fixture
from tests.support.runs import (
    HELD,
    a_trace,
    as_written,
    conversation_spec,
    small_spec,
    trace_spec,
)
from tokenwatt_site.commands import measure as command
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.configuration import group
from tokenwatt_site.errors import (
    EnvironmentProblem,
    InputError,
    Interrupted,
    InvalidMeasurement,
    SpecError,
    UsageError,
)
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.measure import searching, session
from tokenwatt_site.measure.session import Events
from tokenwatt_site.measure.trial import plan_requests, run_trial
from tokenwatt_site.pages import report
from tokenwatt_site.pages.page import NO_LINKS
from tokenwatt_site.prompts import trial_key
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.trace import parse

BLOCK = 16
TRACE = a_trace(200)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    return tmp_path


def nothing(prompts):
    """An engine without a cache."""
    return [0] * len(prompts)


def caching(prompts):
    """An engine that holds all prompts in blocks of 16 tokens and takes from them what it can."""
    held, found = set(), []
    for prompt in prompts:
        blocks = [tuple(prompt[:end]) for end in range(BLOCK, len(prompt) + 1, BLOCK)]
        known = next((i for i, block in enumerate(blocks) if block not in held), len(blocks))
        held.update(blocks)
        # The last token is always computed.
        found.append(min(known * BLOCK, len(prompt) - 1))
    return found


def stale(prompts):
    """An engine that takes the beginning of every prompt from somewhere."""
    return [2] * len(prompts)


class Playing:
    """Trials over real HTTP, judged as if neither client nor engine had ever been late.

    What is sent and answered is real. What is cached follows from the plan, and times are set to
    those of the schedule, so that it does not matter how busy the machine of the tests is.
    """

    def __init__(self, cached_of):
        self._cached_of = cached_of
        self._cached = {}
        self.server = SimulatedServer(self._script)

    def _script(self, number):
        served = self.server.log[number] if self._cached else None
        cached = 0 if served is None else self._cached.get(served.body, 0)
        return Script(ttft_ms=1, interval_ms=0.1, cached_tokens=cached)

    def run_trial(self, spec, realisation, target, **options):
        told = {name: options[name] for name in ("prompts", "chat_overhead")}
        number = (options["repeat"], options["trial"])
        key = trial_key(options["nonce"], spec.configuration_id, *number)
        plan = plan_requests(spec, realisation, options["rate_urps"], key=key, **told)
        bodies = [planned.body for planned in plan]
        cached = self._cached_of([json.loads(body)["prompt"] for body in bodies])
        self._cached = dict(zip(bodies, cached, strict=True))
        offered = run_trial(spec, realisation, target, **options)
        return replace(offered, records=tuple(map(on_time, offered.records)), clock_step_ns=0)


def on_time(record):
    """Set the times of a record to those of a client and an engine that are quick."""
    ended = record.status is Status.OK
    return replace(
        record,
        dialled_ns=None,
        connected_ns=None,
        sent_ns=record.due_ns,
        first_ns=record.due_ns + 1_000_000 if ended else None,
        last_ns=record.due_ns + 2_000_000 if ended else None,
        end_ns=record.due_ns + 3_000_000 if ended else record.due_ns,
        uncertainty_ns=0,
    )


@pytest.fixture
def simulated(here, monkeypatch):
    """Measure against a simulated server; give path, run and the bodies that it got."""

    def played(make, cached_of=nothing, **changes):
        playing = Playing(cached_of)
        monkeypatch.setattr(searching, "run_trial", playing.run_trial)
        monkeypatch.setattr(session, "self_test", lambda *_: HELD)
        with playing.server as server:
            spec = make(
                endpoint__start="attach",
                endpoint__url=server.url,
                endpoint__model="simulated",
                setup__engine__name="tokenwatt-simulated",
                setup__engine__version="simulated",
                setup__slo=[{"metric": "ttft", "quantile": 0.9, "limit_ms": 60_000.0}],
                protocol__start_rate=50.0,
                protocol__max_rate=60.0,
                protocol__tail=20,
            )
            path, run = measured(spec, **changes)
        return path, run, [served.body for served in server.log]

    return played


def measured(spec, **changes):
    folder = command.new_folder(spec)
    return command.measure_and_sign(spec, folder, Events(lambda _: None, print), **changes)


def shown(path):
    (configuration,) = group([verify(path)])
    return report.render(configuration, NO_LINKS).html


def test_a_trace_is_played_signed_verified_and_shown(simulated):
    path, run, log = simulated(lambda **c: trace_spec(TRACE, **c), trace=TRACE)
    checked = verify(path)
    assert checked.evidence.trace == TRACE
    assert run.simulated
    assert {trial.verdict for trial in run.claims.trials} == {"PASS"}
    html = shown(path)
    assert "Trace, its time scaled, rate swept to SLO boundary" in html
    assert "as in the trace, 20 to 59" in html
    assert "The trace at its own rate" in html
    # The shape that was offered is that of the file: four at once, then a pause.
    trial = [r for r in checked.evidence.requests if r.trial == 1]
    gaps = [b.due_ns - a.due_ns for a, b in pairwise(trial)]
    assert all((gap > 0) == (row % 4 == 0) for row, gap in enumerate(gaps, start=1))
    sent = {(len(body["prompt"]), body["max_tokens"]) for body in map(json.loads, log)}
    assert {request[1:] for request in TRACE.requests[: len(trial)]} <= sent


def test_conversations_are_held_signed_verified_and_their_cache_is_a_number(simulated):
    path, run, _ = simulated(lambda **c: conversation_spec(3, 4, 32, **c), caching)
    assert {trial.verdict for trial in verify(path).claims.trials} == {"PASS"}
    share = run.claims.metric("cached_prompt_share").value
    told = next(
        n.why for n in run.claims.not_covered if n.what == "An engine without a prompt cache"
    )
    bound = float(told.removeprefix("Up to ").partition("%")[0])
    assert 20 < share <= bound
    html = shown(path)
    assert "Prompt tokens from the cache" in html
    assert "3 turns, 4 requests apart · shared prefix of 32 tokens" in html
    assert "new in each turn: median 32" in html
    assert run.simulated


def test_a10_the_same_cache_hits_make_a_plain_run_invalid(simulated):
    with pytest.raises(InvalidMeasurement, match="prompt tokens came from its cache"):
        simulated(small_spec, stale)


def written(folder, trace, **changes):
    """Write a spec with its trace beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy-trace.jsonl").write_bytes(trace.data)
    path = folder / "a.spec.yaml"
    path.write_text(as_written(trace_spec(trace, **changes)), encoding="utf-8")
    return path


def test_a_trace_that_is_not_there_is_told_with_the_spec_that_names_it(here):
    path = written(here, TRACE)
    (here / "toy-trace.jsonl").unlink()
    with pytest.raises(UsageError, match=r"spec\.yaml: trace: .*trace\.jsonl: cannot be read"):
        command.read_trace(path, command.read_spec(path))


def test_a_folder_that_leads_elsewhere_gives_no_trace(here):
    written(here / "elsewhere", TRACE)
    path = written(here / "specs", TRACE)
    (here / "specs" / "link").symlink_to(here / "elsewhere")
    path.write_text(path.read_text().replace("toy-trace.jsonl", "link/toy-trace.jsonl"))
    with pytest.raises(UsageError, match="leads out of the spec's own folder"):
        command.read_trace(path, command.read_spec(path))


def test_the_trace_of_a_spec_lies_beside_it_also_in_the_folder_of_specs(here):
    written(here / "specs", TRACE)
    name = command.Path("a.spec.yaml")
    assert command.read_trace(name, command.read_spec(name)) == TRACE


def test_a_run_of_a_trace_is_measured_again_from_its_file_and_evidence_alone(here, lab):  # noqa: F811
    path = written(here / "mine", TRACE)
    spec = command.read_spec(path)
    first, _ = measured(spec, trace=command.read_trace(path, spec), out=here / "pub" / "run.json")
    (here / "mine" / "toy-trace.jsonl").unlink()
    again = command.read_spec(first)
    second, run = measured(again, trace=command.read_trace(first, again))
    assert run.configuration == spec.configuration_id
    assert verify(second).evidence.trace == TRACE
    assert str(here) not in first.read_text(encoding="utf-8")


def test_a_run_file_whose_trace_is_gone_or_changed_is_not_measured_again(here, lab):  # noqa: F811
    spec = trace_spec(TRACE)
    path, run = measured(spec, trace=TRACE)
    entry = next(e for e in run.evidence if e.role == "trace")
    (path.parent / entry.path).unlink()
    with pytest.raises(InputError, match="cannot be read"):
        command.read_trace(path, spec)
    value = json.loads(path.read_bytes())
    for nothing in ([], None, [3]):
        value["evidence"] = nothing
        path.write_text(json.dumps(value), encoding="utf-8")
        with pytest.raises(InputError, match="does not name the trace"):
            command.read_trace(path, spec)
    value["evidence"] = [{"role": "trace", "path": "../../x"}]
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(InputError, match="sha256"):
        command.read_trace(path, spec)


@pytest.mark.parametrize(
    "other", [a_trace(201), parse(TRACE.data.replace(b"{", b"{ "), source="t")]
)
def test_another_file_than_the_one_whose_hash_is_in_the_spec_is_refused(here, other):
    path = written(here, TRACE)
    (here / "toy-trace.jsonl").write_bytes(other.data)
    with pytest.raises(SpecError, match=rf"a\.spec\.yaml: setup\.workload\.hash.*{other.sha256}"):
        command.read_trace(path, command.read_spec(path))


def test_a_trace_too_short_for_the_repeats_is_said_before_anything_is_measured(here, lab):  # noqa: F811
    path = written(here, TRACE, protocol__repeats=3)
    spec = command.read_spec(path)
    with pytest.raises(
        SpecError, match="200 rows, enough for 2 of the repeats, 85 rows each; expected 255 rows"
    ):
        command.read_trace(path, spec)
    with pytest.raises(SpecError, match="too short"):
        measured(spec, trace=TRACE)
    assert lab.launches == lab.trials == 0


def test_c1_a_broken_off_run_of_a_trace_goes_on_from_its_folder_alone(here, lab):  # noqa: F811
    spec = trace_spec(TRACE)
    folder = command.new_folder(spec)
    events = Events(lambda _: None, lambda _: None)

    def interrupt(number):
        if number == 2:
            raise KeyboardInterrupt

    lab.before_trial = interrupt
    with pytest.raises(Interrupted):
        command.measure_and_sign(spec, folder, events, trace=TRACE)
    assert verify(folder / "run.json").evidence.trace == TRACE
    lab.before_trial = lambda _: None
    path, _ = command.measure_and_sign(command.resumed_spec(folder), folder, events)
    assert verify(path).evidence.trace == TRACE


def test_another_trace_is_not_measured_into_the_same_folder(here, lab):  # noqa: F811
    spec = trace_spec(TRACE)
    folder = command.new_folder(spec)
    events = Events(lambda _: None, lambda _: None)
    command.measure_and_sign(spec, folder, events, trace=TRACE)
    with pytest.raises(EnvironmentProblem, match="another trace"):
        command.measure_and_sign(spec, folder, events, trace=a_trace(201))


def test_without_its_trace_a_session_is_not_begun(here, lab):  # noqa: F811
    with pytest.raises(SpecError, match="the trace is missing"):
        measured(trace_spec(TRACE))
    assert lab.launches == 0
