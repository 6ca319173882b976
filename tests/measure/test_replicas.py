"""Whole measurements of several simulated engines on this machine, asked apart."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import HELD, KEYID, replica_spec
from tokenwatt_site import journal, validity
from tokenwatt_site.commands.measure import measure_and_sign
from tokenwatt_site.commands.verify import verify
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure import session
from tokenwatt_site.measure.session import Events, measure
from tokenwatt_site.simulate.script import Script
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.spec import Spec

QUICK = Script(ttft_ms=4, interval_ms=1)


@pytest.fixture(autouse=True)
def known_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """These have tests of their own, and a busy machine is late."""
    monkeypatch.setattr(session, "self_test", lambda *_: HELD)
    monkeypatch.setattr(validity, "LIMIT_SHARE", Fraction(1, 2))


def spec_of(servers: list[SimulatedServer], rate: float, **changes: Any) -> Spec:
    return replica_spec(
        len(servers),
        endpoint__urls=[server.url for server in servers],
        endpoint__model="simulated",
        setup__engine__name="tokenwatt-simulated",
        setup__engine__version="simulated",
        protocol__start_rate=rate,
        protocol__max_rate=rate,
        **changes,
    )


def test_the_load_is_shared_out_in_turn_and_the_run_says_what_each_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    said: list[str] = []
    with ExitStack() as running:
        servers = [running.enter_context(SimulatedServer(QUICK)) for _ in range(3)]
        spec = spec_of(servers, 50.0)
        path, run = measure_and_sign(spec, tmp_path / "work", Events(lambda _: None, said.append))
        asked = [len(server.log) for server in servers]
    assert all(asked)
    assert "repeat 1 of 1: tokenwatt-simulated, each of 3 replicas, passed the preflight" in said
    replicas = verify(path).run.claims.replicas or ()
    assert [(r.version, r.requests, r.failed) for r in replicas] == [
        ("simulated", 7, 0),
        ("simulated", 6, 0),
        ("simulated", 7, 0),
    ]
    assert "A balancer before the replicas" in [each.what for each in run.claims.not_covered]


def test_a_replica_that_dies_in_a_trial_is_named(tmp_path: Path) -> None:
    with ExitStack() as running:
        alive = running.enter_context(SimulatedServer(QUICK))
        dying = ExitStack()
        servers = [alive, dying.enter_context(SimulatedServer(QUICK))]
        events = Events(lambda _: dying.close(), lambda _: None)
        with pytest.raises(
            EngineError, match=r"trial 1 \(replica 2 of 2 does not answer any more\)"
        ):
            measure(spec_of(servers, 20.0), tmp_path / "work", events, keyid=KEYID)
    lines = journal.parse((tmp_path / "work/journal.jsonl").read_bytes(), "journal")
    (end,) = (line.data for line in lines if line.event == "trial_end")
    assert end["engine_alive"] is False
    assert [told is None for told in end["replicas"]] == [False, True]
