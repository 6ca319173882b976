"""Real questions of the real engine: asked by us, made and scored by the harness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import ROOT
from tokenwatt_site.accuracy_gate import Paired, drop_interval, judge_drop, mcnemar_exact
from tokenwatt_site.accuracy_spec import AccuracyGate, AccuracyPlan
from tokenwatt_site.errors import EngineError
from tokenwatt_site.evidence.answer_flags import flags_of
from tokenwatt_site.measure.accuracy.asking import ask
from tokenwatt_site.measure.accuracy.probe import require_answerable
from tokenwatt_site.measure.accuracy.tasks import plan_task, score
from tokenwatt_site.measure.embedded import ALIAS
from tokenwatt_site.measure.engine import launch

pytestmark = pytest.mark.engine

FOLDERS = (ROOT / "specs",)


class Asked:
    """A local task of ours, and what becomes of it when it is asked."""

    def __init__(self, name, *, shots, questions, api):
        self.gate = AccuracyGate(task=name, shots=shots, questions=questions, max_drop_points=10.0)
        self.plan = AccuracyPlan(data=f"tasks/{name}.jsonl")
        self.api = api
        task = plan_task(self.gate, self.plan, api, folders=FOLDERS)
        # Where its template is wrong the engine does not come to an end.
        self.task = replace(task, asked=task.asked.model_copy(update={"max_tokens": 8}))

    def replies(self, url, *, concurrency):
        return ask(
            self.task,
            url,
            ALIAS,
            self.api,
            api_key_variable=None,
            concurrency=concurrency,
            timeout_s=60,
            part=1,
            done={},
            keep=lambda _: None,
            alive=lambda: True,
            say=lambda _: None,
        )

    def correct(self, replies):
        scores = score(self.gate, self.plan, self.api, self.task, replies, folders=FOLDERS)
        return [each.correct for each in scores]


def test_sums_are_answered_alike_when_they_are_asked_again_and_some_are_right(engine):
    asked = Asked("sums", shots=3, questions=16, api="completions")
    require_answerable(asked.task, engine.url, ALIAS, asked.api, api_key_variable=None)
    first, again = (asked.replies(engine.url, concurrency=1) for _ in range(2))
    assert [reply.text for reply in first] == [reply.text for reply in again]
    assert all(reply.finish == "stop" for reply in first)
    assert 3 <= sum(asked.correct(first)) <= 13


def test_the_gate_fails_another_chat_template_of_the_same_model_and_names_its_markers(
    engine, demo_spec, tmp_path
):
    asked = Asked("capitals", shots=5, questions=24, api="chat")
    own = asked.replies(engine.url, concurrency=2)
    argv = (*demo_spec.setup.engine.argv, "--chat-template", "llama2")
    with launch(argv, {}, log=tmp_path / "log", ready_timeout_s=60) as other:
        wrong = asked.replies(other.url, concurrency=2)
    paired = Paired.of(asked.correct(own), asked.correct(wrong))
    assert paired.worse > 5
    assert paired.better == 0
    assert mcnemar_exact(paired.worse, paired.better) < 0.05
    assert drop_interval(paired)[0] > 0.1
    assert judge_drop(paired, 0.1) == "failed"
    assert all("markers" in flags_of(reply.text) for reply in wrong)
    assert not any(flags_of(reply.text) for reply in own)


def test_a_prompt_longer_than_the_context_is_refused_before_the_load(engine):
    asked = Asked("sums", shots=66, questions=2, api="completions")
    with pytest.raises(EngineError, match="context"):
        require_answerable(asked.task, engine.url, ALIAS, asked.api, api_key_variable=None)
