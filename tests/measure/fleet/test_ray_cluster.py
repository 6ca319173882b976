"""Workers on two nodes of Ray, which are two raylets of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.measure.fleet.test_coordinator import QUICK, SILENT, planned, send
from tokenwatt_site.errors import EnvironmentProblem, UsageError
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.measure.fleet import ray_cluster
from tokenwatt_site.measure.fleet.coordinator import Fleet
from tokenwatt_site.measure.fleet.ray_cluster import Cluster, joined
from tokenwatt_site.simulate.server import SimulatedServer

MS = 1_000_000
KEY = "a-key-that-nobody-may-keep"
pytest.importorskip("ray", reason="the extra fleet is not installed")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Path]:
    """Run two nodes, which `auto` finds; give the folder of all that Ray writes."""
    # Not a folder of the test: paths of Unix sockets are short.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        ours = {
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": str(ROOT),
            "ENGINE_KEY": KEY,
        }
        # Ray's processes are not what is covered, and many.
        others = {n: v for n, v in os.environ.items() if not n.startswith("COVERAGE")}
        with subprocess.Popen(
            [sys.executable, "-m", "tests.support.ray_nodes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**others, **ours},
            text=True,
        ) as process:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RAY_TMPDIR", folder)
                patch.setenv("RAY_ADDRESS", address)
                patch.delenv("ENGINE_KEY", raising=False)
                yield Path(folder)


@contextmanager
def fleet_on(cluster: Cluster) -> Iterator[Fleet]:
    fleet = Fleet(cluster.start, cluster.count)
    try:
        yield fleet
    finally:
        fleet.close()


def test_a_worker_that_is_killed_on_its_node_is_named_and_the_next_trial_has_another(
    nodes: Path,
) -> None:
    said: list[str] = []
    handler = signal.getsignal(signal.SIGTERM)
    with joined("auto", None, said.append) as cluster, fleet_on(cluster) as fleet:
        assert signal.getsignal(signal.SIGTERM) is handler
        with SimulatedServer(SILENT) as server:

            def kill(_: int, __: object, still: list[RequestRecord]) -> bool:
                if {0, 1} <= {record.row for record in still}:
                    worker: Any = fleet._members[1].worker
                    os.kill(worker.pid, signal.SIGKILL)
                return False

            options: Any = {"watch": kill, "watch_every_ns": 20 * MS, "key": "ENGINE_KEY"}
            offered = send(fleet.offer, planned(100, 20), server.url, **options)
        with SimulatedServer(QUICK) as server:
            after = send(fleet.offer, planned(40), server.url)
        with pytest.raises(UsageError, match=r"on node .+: is not set"):
            send(fleet.offer, planned(2), server.url, key="NO_SUCH_VARIABLE")
    assert offered.lost == "worker 2 of 2 ended by signal 9"
    assert {record.status for record in offered.records} == {Status.CENSORED}
    assert offered.records[1].sent_ns is not None
    assert (after.lost, len(after.records)) == (None, 40)
    assert {record.status for record in after.records} == {Status.OK}
    assert len(after.offset_bounds_ns) == 2
    assert max(after.offset_bounds_ns) > 0
    ran = [line.partition(" runs on node ") for line in said[:3]]
    assert [worker for worker, _, _ in ran] == [f"worker {n} of 2" for n in (1, 2, 2)]
    assert ran[1][2] == ran[2][2] != ran[0][2]
    written = [path for path in nodes.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


def test_a_cluster_that_has_too_few_nodes_or_another_version_of_ours_is_told_by_name(
    nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(EnvironmentProblem, match=r"--workers 3@auto: too few nodes; found .{8} \(p"),
        joined("auto", 3, print),
    ):
        pass
    monkeypatch.setattr(ray_cluster, "__version__", "9.9")
    with pytest.raises(EnvironmentProblem) as caught, joined("auto", 2, print):
        pass
    assert len(caught.value.problems) == 2
    assert all("expected tokenwatt-site 9.9" in str(p) for p in caught.value.problems)


def test_what_is_no_cluster_and_a_missing_ray_are_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(EnvironmentProblem, match="Start one: `ray start --head` here"):
        joined("127.0.0.1:9", None, print).__enter__()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'tokenwatt-site\[fleet\]'"):
        joined("auto", None, print).__enter__()
