"""One real engine for all tests that need one: llama.cpp with a 135M model on the CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tokenwatt_site.commands.measure import read_spec
from tokenwatt_site.measure.engine import RunningEngine, launch
from tokenwatt_site.spec import Spec


@pytest.fixture(scope="session")
def demo_spec() -> Spec:
    return read_spec(ROOT / "specs" / "demo.spec.yaml")


@pytest.fixture(scope="session")
def engine(demo_spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """The engine of the demo spec, launched by our own launcher."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the real engine is not installed: pip install -e '.[demo]'")
    argv = demo_spec.setup.engine.argv
    assert isinstance(argv, tuple)
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with launch(argv, {}, log=log, ready_timeout_s=60) as running:
        yield running
