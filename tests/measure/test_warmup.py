"""The warm-up of an engine: what it is asked until it is warm."""

import json
from statistics import median

import pytest

from tests.support.runs import conversation_spec, small_spec
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure.client import Target
from tokenwatt_site.measure.warmup import warm_up
from tokenwatt_site.prompts import Ids, common_words, trial_key
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.workload import workload_of

KEY = trial_key("ab" * 32, "configuration", 1, -1)


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
