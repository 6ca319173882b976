from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.pages.conftest import SHIPPED
from tests.support.details import GOODPUT, a_detail, a_metric, answered, offered
from tokenwatt_site.comparison.compare import compare
from tokenwatt_site.pages import compare as pages
from tokenwatt_site.pages.comparison_blocks import blocks, heading
from tokenwatt_site.pages.page import asset
from tokenwatt_site.pages.quoted_detail import quoted_detail
from tokenwatt_site.trust.verify import load_claims_only

pytestmark = pytest.mark.browser

Details = list[dict[str, Any]]

NOISY = (2300.0, 2450.0, 2350.0, 2500.0, 2410.0)
NUMBERS = {
    "long_run_goodput": GOODPUT,
    "goodput": GOODPUT,
    "boundary_rate": (5.1, 5.2, 5.05, 5.15, 5.12),
    "tokens_per_joule": (0.87, 0.88, 0.86, 0.87, 0.872),
    "board_power": (2300.0, 2310.0, 2290.0, 2305.0, 2299.0),
    "mbu": (61.0, 60.9, 61.1, 60.8, 61.0),
}
SCALED = {key: tuple(1.084 * v for v in values) for key, values in NUMBERS.items()}
RIGHT = [True] * 90 + [False] * 10
LEFT = [True] * 80 + [False] * 14 + [True] * 6
OTHER_ROWS = [[r, 10_000_000, 1800] for r in range(1, 6)]


def a_side(id_: str = "a", numbers: Any = NUMBERS, **changes: Any) -> dict[str, Any]:
    trials = [*offered(10**6, 400.0, 410.0, 399.0, 402.0, 390.0), *offered(2 * 10**6, 700.0)]
    return a_detail(id_, numbers, **({"trials": trials, "answers": answered(*RIGHT)} | changes))


def uncorrected() -> dict[str, Any]:
    side = a_side("b", {"goodput": NOISY})
    side["metrics"].append(a_metric("long_run_goodput", reason="not corrected: refused"))
    return side


def quoted() -> dict[str, Any]:
    return quoted_detail(load_claims_only(SHIPPED))


NO_BOARDS = {"accelerator.power_limit_w": "not recorded"}

CASES: dict[str, Details] = {
    "paired": [a_side(), a_side("b", SCALED, setup={"engine.version": "1.1"})],
    "welch": [a_side(), a_side("b", SCALED, realisations=OTHER_ROWS, answers=answered(*LEFT))],
    "noisy": [a_side(), a_side("b", {"goodput": NOISY, "board_power": NOISY}, cards=7)],
    "three": [a_side(), a_side("b", SCALED, setup={"engine.argv": ["toy", "-x"]}), a_side("c")],
    "two launches": [
        a_side(i, {"goodput": GOODPUT[:2], "tokens_per_joule": (0.5, 0.6)}, mode="quick")
        for i in ("a", "b")
    ],
    "uncorrected": [a_side(), uncorrected()],
    "scopes": [a_side(), a_side("b", SCALED, power_scope="host", power_words="whole host")],
    "modes": [a_side(), a_side("b", {"long_run_goodput": GOODPUT[:2]}, mode="quick")],
    "rows": [a_side(), a_side("b", SCALED, rows=[80, 600, 120])],
    "simulated": [a_side(), a_side("b", simulated=True, status="simulated", exclusions=[
        {"code": "simulated", "text": "the engine was simulated: nothing was measured"}])],
    "slo": [a_side(), a_side("b", slo=[], slo_text="none")],
    "workload": [a_side(), a_side("b", workload={"name": "x", "version": 1, "hash": "2" * 64})],
    "setups of two questions": [
        a_side(setup={"slo": [1]}),
        a_side("b", setup={"slo": [2]}, slo=[], slo_text="none", workload={"name": "x"}),
    ],
    "hash": [
        a_side(),
        a_side("b", workload={"name": "chat-mix-v1", "version": 1, "hash": "2" * 64}),
    ],
    "quoted": [quoted(), a_side("b", SCALED)],
    "quoted last": [a_side(), quoted()],
    "cpu": [
        a_side(i, cards=None, cpu=True, power_words="", setup={"engine.version": v} | NO_BOARDS)
        for i, v in (("a", "1"), ("b", "2"))
    ],
    "answers": [
        a_side(),
        a_side("b", answers=None),
        a_side("c", setup={"accuracy_gate.task": "x"}),
    ],
    "many launches": [
        a_side("a", {"goodput": tuple(2400.0 + (7 * i) % 13 for i in range(40))}),
        a_side("b", {"goodput": tuple(2500.0 + (5 * i) % 17 for i in range(40))}, realisations=[]),
    ],
    "told of sides": [
        a_side(
            tool_version="0.9",
            status="unranked",
            exclusions=[{"code": "mode", "text": "x"}, {"code": "key", "text": "y"}],
        ),
        a_side(
            "b",
            signer=None,
            mode="demo",
            status="withdrawn",
            exclusions=[{"code": "withdrawn", "text": "withdrawn by its publisher: <b>"}],
            gate={"outcome": "failed", "text": "the accuracy gate failed"},
        ),
    ],
    "setup": [
        a_side(setup={"slots": 4, "shared": True, "lengths": [{"min": 1, "max": 2.5}], "x": None}),
        a_side("b", setup={"slots": 8.0, "shared": False, "lengths": [{"min": 1, "max": 3}]}),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def scripted(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page()
    page.set_content("<!doctype html><title>x</title>")
    page.add_script_tag(content=pages.script_data([]))
    for name in pages.SCRIPTS[:2]:
        page.add_script_tag(content=asset(name))
    yield page
    page.close()


def close(found: Any, expected: Any) -> None:
    """Equal, numbers within the last bits that sums and logarithms may differ in."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            close(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    else:
        assert found == expected


@pytest.mark.parametrize("details", CASES.values(), ids=CASES)
def test_the_script_comes_to_the_builders_numbers(scripted: Page, details: Details) -> None:
    found = scripted.evaluate("details => TokenwattComparison.compare(details)", details)
    close(found, json.loads(json.dumps(asdict(compare(details)))))


def by_chance(draw: random.Random) -> Details:
    """Two results whose launches, rows, answers and cards are any."""
    n, spread = draw.randint(1, 8), draw.choice((0.0, 0.004, 0.02, 0.3))
    right = [draw.random() < 0.8 for _ in range(draw.randint(1, 300))]
    sides = []
    for name in ("a", "b"):
        launches = draw.choice((n, n, draw.randint(1, 40)))
        numbers = {
            key: [draw.uniform(0.9, 1.1) * draw.lognormvariate(3, spread) for _ in range(launches)]
            for key in NUMBERS
        }
        given = [is_right != (draw.random() < 0.1) for is_right in right]
        rows = draw.choice(([[r, 5_000_000, 900] for r in range(1, launches + 1)], []))
        side = {"answers": answered(*given), "cards": draw.randint(1, 64), "realisations": rows}
        sides.append(a_detail(name, numbers, **side))
    return sides


def test_script_and_builder_agree_on_any_numbers(scripted: Page) -> None:
    draw = random.Random(8)
    cases = [by_chance(draw) for _ in range(150)]
    found = scripted.evaluate("cases => cases.map(TokenwattComparison.compare)", cases)
    close(found, json.loads(json.dumps([asdict(compare(details)) for details in cases])))
    said = scripted.evaluate("cases => cases.map(TokenwattCompareView.blocks)", cases)
    close(said, json.loads(json.dumps([blocks(details) for details in cases])))


@pytest.mark.parametrize("details", CASES.values(), ids=CASES)
def test_the_script_says_the_builders_words(scripted: Page, details: Details) -> None:
    found = scripted.evaluate("details => TokenwattCompareView.blocks(details)", details)
    close(found, json.loads(json.dumps(blocks(details))))
    named = scripted.evaluate("details => TokenwattCompareView.heading(details)", details)
    assert named == heading(details)
