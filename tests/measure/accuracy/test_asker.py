from __future__ import annotations

import pytest

from tests.measure.stub_engine import Answer, StubEngine, as_json, serving
from tests.support.answering import Answering, refusal
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure.accuracy.asker import Asker
from tokenwatt_site.measure.accuracy.task import Choice
from tokenwatt_site.measure.engine import free_port


def asker(url: str) -> Asker:
    return Asker(url, "toy", "completions", None, 30.0, lambda _: None)


@pytest.mark.parametrize(
    ("models", "there"),
    [(as_json({"data": []}), True), (refusal(401, "no key"), True), (refusal(503, "gone"), False)],
)
def test_an_engine_is_there_where_it_answers_and_is_not_too_busy(
    models: Answer, there: bool
) -> None:
    with serving(StubEngine(get={"/v1/models": models})) as url:
        assert asker(url).is_there() is there


def test_an_engine_is_not_there_where_nothing_answers() -> None:
    assert not asker(f"http://127.0.0.1:{free_port()}").is_there()


def test_tokens_of_choices_are_counted_together() -> None:
    engine = StubEngine(plain=Answering(weigh=lambda *_: (-1.0, -1.0)))
    with serving(engine) as url:
        said = asker(url).weigh([Choice("a", " b"), Choice("a", " b c")])

    assert (said.text, said.prompt_tokens, said.tokens, said.finish) == (
        "[[-1,true],[-2,true]]",
        7,
        2,
        None,
    )


def test_one_choice_that_fails_fails_all() -> None:
    answering = Answering(
        weigh=lambda *_: (-1.0, -1.0), faults={"a c": [refusal(400, "not this one")]}
    )
    with (
        serving(StubEngine(plain=answering)) as url,
        pytest.raises(EngineError, match="HTTP 400: not this one"),
    ):
        asker(url).weigh([Choice("a", " b"), Choice("a", " c"), Choice("a", " d")])

    assert answering.times("a d") == 0
