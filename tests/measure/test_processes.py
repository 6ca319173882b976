"""Processes of this machine, real ones and those of a tree of files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenwatt_site.measure.processes import below, is_here, listening, serving, variables

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

FAMILY = "import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
CHILD = "print('ready', flush=True); input()"


@pytest.fixture
def family() -> Iterator[int]:
    """A process that has started another, which waits; gives the first one's id."""
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY.format(child=CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-1", "API_KEY": "k3y"},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate("\n")


def test_all_that_a_process_started_is_below_it(family: int) -> None:
    found = below({family})

    assert family in found
    assert len(found) == 2
    assert found <= below({os.getpid()})


def test_no_variable_is_read_that_is_not_asked_for(family: int) -> None:
    assert variables({family}, ("CUDA_VISIBLE_DEVICES", "NOT_SET")) == {
        "CUDA_VISIBLE_DEVICES": "GPU-1"
    }


def test_who_listens_at_a_port_is_known_with_what_it_started(family: int) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]

        assert {os.getpid(), family} <= listening(port)
        assert listening(port) == serving(f"http://localhost:{port}")

    assert listening(port) == frozenset()


def test_a_connection_is_no_listener() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname()) as ours:
            assert listening(ours.getsockname()[1]) == frozenset()


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://localhost", True),
        ("http://192.0.2.1:8000", False),
        ("https://engine.example", False),
    ],
)
def test_only_the_loopback_is_here(url: str, here: bool) -> None:
    assert is_here(url) == here


@pytest.mark.parametrize("url", ["http://192.0.2.1:8000", "http://127.0.0.1:99999"])
def test_of_an_engine_elsewhere_no_process_is_seen(url: str) -> None:
    assert serving(url) == frozenset()


def test_a_name_with_parentheses_and_a_stat_that_is_cut_do_no_harm(tmp_path: Path) -> None:
    for pid, text in {1: "1 (a) b) (c) S 0 x", 2: "2 (b) S 1 x", 3: "3 (cut", 4: ""}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(text, "ascii")
    (tmp_path / "5").mkdir()

    assert below({1}, tmp_path) == {1, 2}


def test_where_there_is_no_proc_nothing_is_seen(tmp_path: Path) -> None:
    assert below({7}, tmp_path / "none") == {7}
    assert listening(80, tmp_path / "none") == frozenset()
    assert variables({7}, ("PATH",), tmp_path / "none") == {}
