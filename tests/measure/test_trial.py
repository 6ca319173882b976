"""One realisation at one rate, by the real client against a server that knows the truth."""

import json
import time

import pytest

from tests.support.fleets import fleet_of
from tests.support.runs import conversation_spec, small_spec
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.evidence.records import Status
from tokenwatt_site.journal import Journal, parse
from tokenwatt_site.measure.client import Target, offer
from tokenwatt_site.measure.trial import plan_requests, run_trial
from tokenwatt_site.prompts import Ids, Words, common_words, prompts_of, trial_key
from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.simulate.text import text
from tokenwatt_site.spec import parse_spec
from tokenwatt_site.workload import workload_of

NONCE = "ab" * 32
FAST = 200_000_000  # 200 requests/s


def spec_for(api="completions", **changes):
    return small_spec(endpoint__api=api, endpoint__model="simulated", **changes)


def offered(
    spec,
    script,
    *,
    rate_urps=FAST,
    prompts=None,
    chat_overhead=2,
    alive=lambda: True,
    seen=None,
    keep=lambda _: None,
    window=lambda *_: None,
    texts_of=(),
    client=offer,
):
    realisation = workload_of(spec.setup).realisation(1, lead_in=5, scored=20, tail=60)
    with SimulatedServer(script) as server:
        result = run_trial(
            spec,
            realisation,
            Target.from_url(server.url, spec.endpoint.api),
            repeat=1,
            trial=3,
            rate_urps=rate_urps,
            nonce=NONCE,
            prompts=prompts or (common_words() if spec.endpoint.api == "chat" else Ids(32000)),
            chat_overhead=chat_overhead,
            trials_left=1,
            alive=alive,
            report=(seen if seen is not None else []).append,
            keep=keep,
            window=window,
            folder=None,
            texts_of=texts_of,
            client=client,
        )
    return realisation, result, server.log


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_every_row_is_offered_with_its_lengths_and_answered_in_full(api):
    realisation, result, log = offered(spec_for(api), Script(ttft_ms=1, interval_ms=0.1))
    scored = [r for r in result.records if r.row in realisation.scored_rows]
    assert [r.status for r in scored] == [Status.OK] * 20
    assert [r.output_tokens for r in scored] == [r.output_asked for r in scored]
    asked = sorted(json.loads(served.body)["max_tokens"] for served in log)
    assert asked == sorted(row.output_tokens for row in realisation.rows[: len(log)])


def test_the_scored_window_is_told_once_before_its_first_request_is_due():
    told = []
    realisation, result, _ = offered(
        spec_for(),
        Script(ttft_ms=1, interval_ms=0.1),
        window=lambda *edges: told.append((*edges, time.monotonic_ns())),
    )
    ((start_ns, end_ns, at_ns),) = told
    due, rows = realisation.due_ns(FAST), realisation.scored_rows
    assert (start_ns, end_ns) == (
        result.epoch_ns + due[rows.start],
        result.epoch_ns + due[rows.stop - 1],
    )
    assert at_ns < result.epoch_ns


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_answers_of_the_chosen_rows_are_kept_where_they_came_whole(api):
    chosen = {6, 9, 80}
    script = named("fragment:3,held-text", Script(ttft_ms=1, interval_ms=0.1))
    _, result, _ = offered(spec_for(api), script, texts_of=chosen)
    asked = {r.row: r.output_asked for r in result.records if r.status is Status.OK}
    kept = {row: text(script, 0, asked[row]) for row in chosen & asked.keys()}
    assert result.texts == kept
    assert {6, 9} <= kept.keys()


def test_no_answer_is_kept_where_none_was_chosen():
    _, result, _ = offered(spec_for(), Script(ttft_ms=1, interval_ms=0.1))
    assert result.texts == {}


def test_a10_no_prompt_comes_twice_in_a_trial():
    _, _, log = offered(spec_for(), Script(ttft_ms=1, interval_ms=0.1))
    prompts = [tuple(json.loads(served.body)["prompt"]) for served in log]
    assert len(set(prompts)) == len(prompts)


def test_c3_a_trial_that_cannot_pass_any_more_is_stopped():
    spec = spec_for(
        setup__slo=[{"metric": "ttft", "quantile": 0.9, "limit_ms": 1.0}],
    )
    _, result, _ = offered(spec, Script(ttft_ms=30, interval_ms=0.1), rate_urps=20_000_000)
    assert len(result.records) < 30


def test_a_trial_of_several_processes_ends_as_soon_too_when_its_verdict_is_certain():
    spec = spec_for(setup__slo=[{"metric": "ttft", "quantile": 0.9, "limit_ms": 1.0}])
    seen = []
    with fleet_of(2) as fleet:
        realisation, result, _ = offered(
            spec,
            Script(ttft_ms=30, interval_ms=0.1),
            rate_urps=FAST // 20,
            seen=seen,
            client=fleet.offer,
        )
    assert seen[-1].outcome == "FAIL"
    assert len(result.records) < len(realisation.rows)


def test_a_trial_ends_when_the_engine_has_ended():
    _, result, _ = offered(
        spec_for(), Script(ttft_ms=60_000), rate_urps=100_000_000, alive=lambda: False
    )
    assert {r.status for r in result.records} == {Status.CENSORED}


def test_progress_counts_what_was_sent_and_names_the_objectives():
    seen = []
    offered(spec_for(), Script(ttft_ms=1, interval_ms=0.1), seen=seen)
    last = seen[-1]
    assert (last.repeat, last.trial, last.scored, last.scored_done) == (1, 3, 20, 20)
    assert [label for label, _, _ in last.objectives] == ["TTFT p90", "TPOT p90"]
    assert last.outcome == "PASS"


def test_a_chat_prompt_leaves_room_for_the_template():
    spec = spec_for("chat")
    realisation = workload_of(spec.setup).realisation(1, lead_in=0, scored=10, tail=0)
    plan = plan_requests(
        spec,
        realisation,
        FAST,
        key=trial_key(NONCE, "c", 1, 1),
        prompts=common_words(),
        chat_overhead=4,
    )
    for planned, row in zip(plan, realisation.rows, strict=True):
        words = json.loads(planned.body)["messages"][0]["content"].split()
        assert len(words) == max(1, row.input_tokens - 4)
        assert planned.prompt_asked == row.input_tokens
        assert json.loads(planned.body)["cache_prompt"] is False


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_each_turn_begins_with_the_whole_of_the_turns_before_it_and_all_with_the_prefix(api):
    spec = conversation_spec(3, 4, 24, endpoint__api=api)
    realisation = workload_of(spec.setup).realisation(1, lead_in=0, scored=24, tail=0)
    key = trial_key(NONCE, "c", 1, 1)
    prompts = common_words() if api == "chat" else Ids(spec.endpoint.vocabulary)
    plan = plan_requests(spec, realisation, FAST, key=key, prompts=prompts, chat_overhead=0)
    bodies = [json.loads(planned.body) for planned in plan]
    prompts = [
        body["messages"][0]["content"].split() if api == "chat" else body["prompt"]
        for body in bodies
    ]
    assert all(body["cache_prompt"] for body in bodies)
    assert [len(prompt) for prompt in prompts] == [row.input_tokens for row in realisation.rows]
    for row, prompt in enumerate(prompts):
        assert prompt[:24] == prompts[0][:24]
        turn = row % 12 // 4
        if turn:
            assert prompt[: len(prompts[row - 4])] == prompts[row - 4]
        # One word of 200 may come twice by chance; a whole prompt may not.
        others = [p for n, p in enumerate(prompts[:row]) if (row - n) % 4 or n // 12 != row // 12]
        assert all(prompt[: len(other)] != other for other in others)


@pytest.mark.parametrize(
    ("api", "prompts", "overhead"),
    [
        ("completions", Ids(32000), 0),
        ("completions", common_words(), 1),
        ("chat", common_words(), 4),
    ],
)
def test_a_journal_alone_gives_the_bodies_that_were_sent(tmp_path, api, prompts, overhead):
    kind = "ids" if isinstance(prompts, Ids) else "text"
    spec = conversation_spec(
        3, 4, 24, endpoint__api=api, endpoint__model="simulated", endpoint__prompt=kind
    )
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, lambda: "2026-01-01T00:00:00.000000Z")
    journal.append("open", spec=spec.to_json(), nonce=NONCE)
    journal.append("launch", repeat=1, prompts=prompts.to_json(), chat_overhead=overhead)
    journal.append("trial_start", repeat=1, trial=3, rate_urps=FAST)
    _, _, log = offered(
        spec, Script(ttft_ms=1, interval_ms=0.1), prompts=prompts, chat_overhead=overhead
    )

    opening, launch, start = (line for line in parse(path.read_bytes(), "journal"))
    told = parse_spec(opening.data["spec"], source="journal")
    repeat = start.data["repeat"]
    again = plan_requests(
        told,
        workload_of(told.setup).realisation(repeat, lead_in=5, scored=20, tail=60),
        start.data["rate_urps"],
        key=trial_key(opening.data["nonce"], told.configuration_id, repeat, start.data["trial"]),
        prompts=prompts_of(launch),
        chat_overhead=launch.data["chat_overhead"],
    )
    assert len(log) > 20
    made = {planned.body for planned in again}
    assert {served.body for served in log} <= made


def test_records_are_kept_as_their_requests_end():
    kept = []
    _, result, _ = offered(spec_for(), Script(ttft_ms=1, interval_ms=0.1), keep=kept.extend)
    ended = [r for r in result.records if r.status is not Status.CENSORED]
    assert sorted(kept, key=lambda record: record.row) == ended


def test_a_text_for_completions_is_asked_as_text_and_leaves_room_for_what_begins_it():
    spec = spec_for(endpoint__prompt="text")
    realisation = workload_of(spec.setup).realisation(1, lead_in=0, scored=10, tail=0)
    plan = plan_requests(
        spec, realisation, FAST, key=b"k" * 32, prompts=common_words(), chat_overhead=1
    )
    asked = [json.loads(planned.body)["prompt"].split() for planned in plan]
    assert [len(words) for words in asked] == [row.input_tokens - 1 for row in realisation.rows]
    assert len({tuple(words) for words in asked}) == len(asked)


def test_a_prompt_that_the_tokenizer_counts_otherwise_stops_a_trial_before_its_load():
    spec = spec_for(endpoint__prompt="text")
    realisation = workload_of(spec.setup).realisation(1, lead_in=0, scored=10, tail=0)
    words = Words(("a", "b"), "tokenizer file", tokenizer="t.json", tokenize=lambda _: [1, 2, 3])
    with pytest.raises(EnvironmentProblem, match=r"t\.json: counts another number"):
        plan_requests(spec, realisation, FAST, key=b"k" * 32, prompts=words, chat_overhead=0)


def test_c1_what_was_seen_of_a_trial_that_is_broken_off_is_kept():
    kept = []

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        offered(spec_for(), Script(ttft_ms=60_000), alive=interrupt, keep=kept.extend)
    assert len(kept) > 0
    assert {r.status for r in kept} == {Status.CENSORED}
