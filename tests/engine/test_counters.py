"""The counters of the real engine, against what it was asked for."""

from __future__ import annotations

import pytest

from tests.engine.test_end_to_end import attached, prompt
from tokenwatt_site.measure import endpoint
from tokenwatt_site.measure.counters import Counters
from tokenwatt_site.measure.endpoint import Prober, metrics

pytestmark = pytest.mark.engine


def test_the_counters_of_llama_cpp_are_the_steps_and_tokens_it_made(demo_spec, engine, monkeypatch):
    monkeypatch.setattr(endpoint, "_METRICS_DEADLINE_S", 30.0)
    spec = attached(demo_spec, engine)
    counters = Counters.of(metrics(engine.url))
    before = counters.read(metrics(engine.url), 0)
    reply = Prober(spec, engine.url).ask("one answer", prompt(spec)(0, 30), 12)
    after = counters.read(metrics(engine.url), 1)
    assert reply.prompt_tokens == 30
    assert after.prompt_tokens - before.prompt_tokens == 30
    assert after.output_tokens - before.output_tokens == 12
    assert after.steps - before.steps == 12  # one for the prompt, which makes the first token
    assert (after.running, after.waiting, after.kv_ppm) == (0, 0, None)
