"""The warm-up of an engine: when it counts as warm, and what it is asked until then."""

import json
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import conversation_spec, small_spec, spec_in_mode
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure.client import Target
from tokenwatt_site.measure.warmup import MOST_BURSTS, Burst, WarmUp, settle, warm_up
from tokenwatt_site.prompts import Ids, common_words, trial_key
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.workload import workload_of

MS = 1_000_000
KEY = trial_key("ab" * 32, "configuration", 1, -1)


def shown(first_ms, rest_ms=300):
    rest_ns = None if first_ms is None else rest_ms * MS
    return Burst(500 * MS, None if first_ms is None else round(first_ms * MS), rest_ns)


def bursts_until_settled(first_ms, rest_ms=(), most=20):
    """Settle on scripted times; the last of each goes on for ever."""

    def ask(number):
        rest = rest_ms[min(number, len(rest_ms) - 1)] if rest_ms else 300
        return shown(first_ms[min(number, len(first_ms) - 1)], rest)

    settled, bursts = settle(ask, most=most)
    return len(bursts) if settled else None


@pytest.mark.parametrize(
    ("first_ms", "bursts"),
    [
        ([100], 3),
        ([100, 104, 96], 3),
        ([100, 110, 100], 5),  # one of the three is too far from the others until it has left
        ([900, 100], 5),  # the three are below the first: one more shows that they stay there
        ([900, 500, 300, 200, 150, 120, 110, 105, 100], 11),
        ([100, 900, 100], 5),  # a pause is no warm-up: it leaves the three, and is not below
        ([100, 100, 120, 140], 6),  # what got slower has stopped falling
        ([0.3, 1.1, 0.5], 3),  # a millisecond is the client's own
        ([None, 100], 4),
    ],
)
def test_an_engine_is_warm_when_three_bursts_are_alike_and_not_below_those_before(first_ms, bursts):
    assert bursts_until_settled(first_ms) == bursts


def test_the_time_from_the_first_token_to_the_last_has_to_settle_as_well():
    assert bursts_until_settled([100], rest_ms=[900, 600, 400, 300]) == 7


def test_one_that_goes_on_falling_is_told_apart_after_the_most_bursts():
    falling = [1000 * 0.9**n for n in range(40)]
    assert bursts_until_settled(falling, most=20) is None


@given(st.lists(st.integers(2, 2000), min_size=1, max_size=12))
def test_it_settles_on_the_pace_that_lasts_within_four_bursts_of_its_begin(times):
    def ask(number):
        return shown(times[min(number, len(times) - 1)])

    settled, bursts = settle(ask, most=50)
    assert settled
    assert 3 <= len(bursts) <= len(times) + 3
    last = sorted(burst.first_ns for burst in bursts[-3:])
    near = max(0.05 * last[1], MS)
    assert last[1] - last[0] <= near
    assert last[2] - last[1] <= near
    assert last[1] >= min((b.first_ns for b in bursts[:-3]), default=0) - near


def warmed(spec, script, prompts=None, chat_overhead=0):
    realisation = workload_of(spec.setup).realisation(1, lead_in=5, scored=20, tail=60)
    with SimulatedServer(script) as server:
        found = warm_up(
            spec,
            realisation,
            Target.from_url(server.url, spec.endpoint.api),
            key=KEY,
            prompts=prompts or Ids(32000),
            chat_overhead=chat_overhead,
            folder=None,
        )
    return realisation, found, [json.loads(served.body) for served in server.log]


def spec_for(**changes):
    return small_spec(endpoint__model="simulated", **changes)


def test_every_burst_asks_fresh_prompts_of_the_median_length_a_few_at_once():
    realisation, found, asked = warmed(spec_for(), Script(ttft_ms=3, interval_ms=0.2))
    rows = [realisation.rows[n] for n in realisation.scored_rows]
    assert len(asked) == 4 * len(found.bursts)
    assert len({tuple(body["prompt"]) for body in asked}) == len(asked)
    assert {len(body["prompt"]) for body in asked} == {round(median(r.input_tokens for r in rows))}
    tokens = round(median(r.output_tokens for r in rows))
    assert {body["max_tokens"] for body in asked} == {tokens} == {found.tokens}
    assert not any(body["cache_prompt"] for body in asked)


def test_text_is_asked_with_as_many_words_as_the_template_leaves():
    spec = spec_for(endpoint__api="chat")
    _, ids, _ = warmed(spec_for(), Script(ttft_ms=1, interval_ms=0.1))
    realisation, found, asked = warmed(
        spec, Script(ttft_ms=1, interval_ms=0.1), prompts=common_words(), chat_overhead=2
    )
    rows = [realisation.rows[n] for n in realisation.scored_rows]
    words = {len(body["messages"][0]["content"].split()) for body in asked}
    assert words == {round(median(row.input_tokens for row in rows)) - 2}
    assert found.tokens == ids.tokens


def test_prompts_of_a_conversation_are_fresh_as_well():
    _, _, asked = warmed(
        conversation_spec(turns=3, spread=4, shared=10, endpoint__model="simulated"),
        Script(ttft_ms=1, interval_ms=0.1),
    )
    assert len({tuple(body["prompt"][:8]) for body in asked}) == len(asked)


def test_an_engine_that_answers_nothing_is_an_error_with_its_words():
    with pytest.raises(EngineError, match="no whole answer to 2 bursts") as caught:
        warmed(spec_for(), Script(http_status=503))
    assert "HTTP 503" in caught.value.problems[0].found


def test_what_came_of_it_is_told_in_integers_and_in_words():
    found = WarmUp(False, 16, (shown(None), shown(900.5, 600), shown(100, 300)))
    assert found.to_json() == {
        "settled": False,
        "tokens": 16,
        "took_ns": [500 * MS] * 3,
        "first_ns": [None, 900_500_000, 100 * MS],
        "rest_ns": [None, 600 * MS, 300 * MS],
    }
    assert str(found) == (
        "warm-up: 3 bursts in 1.5 s, and its times have not settled; to the first token no"
        " answer, then 100.0 ms; for 15 more no answer, then 300.0 ms"
    )
    one = WarmUp(True, 1, (shown(100, 0),))
    assert str(one) == ("warm-up: 1 burst in 0.5 s; to the first token 100.0 ms, then 100.0 ms")


@pytest.mark.parametrize("mode", ["demo", "quick", "full"])
def test_a_mode_bounds_how_long_it_is_looked_for(mode):
    assert spec_in_mode(mode).protocol.mode in MOST_BURSTS
    assert MOST_BURSTS["demo"] <= 5
