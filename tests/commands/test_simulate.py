"""`tokenwatt-site simulate`: what its options make, and a process that serves until it is ended."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from tokenwatt_site import cli
from tokenwatt_site.commands.simulate import Asked, Simulation, plan, serving
from tokenwatt_site.errors import EnvironmentProblem, UsageError

MAIN = "from tokenwatt_site.cli import main; main()"


def planned(**options: Any) -> Simulation:
    usual: dict[str, Any] = {
        "accelerator": "NVIDIA H200",
        "model": "llama-3.1-8b",
        "count": 1,
        "served_name": None,
        "max_batch": 256,
        "token_budget": 8192,
        "kv_tokens": None,
        "memory_gib": None,
        "max_model_len": None,
        "seed": None,
        "script": "",
    }
    return plan(Asked(**usual | options))


def test_what_is_not_given_follows_from_boards_and_model() -> None:
    simulation = planned()
    assert simulation.script.model == "llama-3.1-8b"
    assert simulation.limits.kv_tokens == simulation.roofline.kv_tokens // 16 * 16
    assert simulation.limits.max_model_len == 131072
    small = planned(kv_tokens=1000)
    assert (small.limits.kv_tokens, small.limits.max_model_len) == (1000, 1000 // 16 * 16)


def test_more_memory_or_boards_hold_more() -> None:
    kv = [planned(**options).limits.kv_tokens for options in ({"memory_gib": 80}, {}, {"count": 2})]
    assert kv == sorted(set(kv))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"accelerator": "CPU"}, "--accelerator: is no known accelerator; found CPU.*NVIDIA H100"),
        ({"model": "gpt-5"}, "--model: is no known model shape; found gpt-5.*qwen3-8b"),
        ({"script": "nonsense"}, "--script: no such script; found nonsense.*role-early"),
        ({"model": "llama-3.1-70b"}, r"no room.*131\.4 GiB of weights.*--count"),
        ({"memory_gib": 10}, "--memory: leaves no room"),
        ({"memory_gib": 80, "kv_tokens": 512}, "not both"),
        ({"max_model_len": 131073}, "--max-model-len: is longer than the model takes"),
        ({"kv_tokens": -1}, "--kv-tokens: is too small; found -1; expected 16 or more"),
        ({"script": "multi:0"}, "found multi:0.*multi:N from N=1"),
        ({"kv_tokens": 512, "max_model_len": 513}, "--kv-tokens: is too small"),
        ({"token_budget": 255}, "--token-budget: is too small.*at least 256"),
    ],
)
def test_a_wrong_option_is_told_with_what_was_expected(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        planned(**options)


def test_c7_a_wrong_option_exits_with_2_and_a_taken_port_with_3() -> None:
    runner = CliRunner()
    done = runner.invoke(cli.app, ["simulate", "--model", "x"])
    assert (done.exit_code, done.stdout) == (2, "")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = runner.invoke(cli.app, ["simulate", "--port", port])
    assert (done.exit_code, done.stdout) == (3, "")
    assert f"port {port}: cannot be listened on" in done.stderr


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_no_machine_has_is_a_usage_error(port: int) -> None:
    with (
        pytest.raises(UsageError, match=f"--port: is no port; found {port}; expected 0 to 65535"),
        serving(planned(), port=port, log=None),
    ):
        pass


def test_a_log_that_cannot_be_written_is_said_before_anything_is_served(tmp_path: Path) -> None:
    with (
        pytest.raises(EnvironmentProblem, match=r"nowhere.log: cannot be written \(No such file"),
        serving(planned(), port=0, log=tmp_path / "nowhere" / "log"),
    ):
        pass


def test_a_log_on_a_full_disk_ends_the_server_and_is_named() -> None:
    def serve() -> None:
        with serving(planned(), port=0, log=Path("/dev/full")) as (server, _):
            address = urlsplit(server.url).netloc
            with closing(http.client.HTTPConnection(address, timeout=10)) as client:
                client.request("POST", "/v1/completions", "no json")
                assert client.getresponse().status == 400
            server.wait_until_failed()

    with pytest.raises(EnvironmentProblem, match=r"/dev/full: cannot be written \(No space"):
        serve()


@pytest.mark.parametrize("log", [None, "truth.jsonl"])
def test_an_error_of_who_uses_the_server_is_not_told_of_the_log(
    log: str | None, tmp_path: Path
) -> None:
    with (
        pytest.raises(BrokenPipeError),
        serving(planned(), port=0, log=tmp_path / log if log else None),
    ):
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_ended_and_leaves_a_whole_log(
    number: signal.Signals, tmp_path: Path
) -> None:
    log = tmp_path / "truth.jsonl"
    options = ["--port", "0", "--log", str(log), "--model", "smollm2-135m", "--seed", "1"]
    command = [sys.executable, "-c", MAIN, "simulate", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = process.stdout.readline().strip()
            body = {"model": "smollm2-135m", "prompt": "a b", "max_tokens": 3, "stream": True}
            with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)) as client:
                client.request("POST", "/v1/completions", json.dumps(body))
                assert client.getresponse().read().count(b'"text":" token"') == 3
        finally:
            process.send_signal(number)
        rest, said = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "")
    for part in ("simulates smollm2-135m in bf16 on 1x NVIDIA H200", "marked simulated", "1 req"):
        assert part in said
    (line,) = log.read_text("utf-8").splitlines()
    assert json.loads(line)["ended"] == "complete"
