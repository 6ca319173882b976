from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ended
from tokenwatt_site.errors import EngineError
from tokenwatt_site.measure import engine as engine_module
from tokenwatt_site.measure.endpoint import answers
from tokenwatt_site.measure.engine import RunningEngine, attach, launch

READY = """
import http.server, os, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(7)
        self.send_response(200 if self.path in ("/health", "/v1/models") else 404)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "m"}]}')
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
"""
FAMILY = (
    READY
    + """
sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
inside = subprocess.Popen(sleeper)
outside = subprocess.Popen(sleeper, start_new_session=True)
open(sys.argv[2], "w").write(f"{os.getpid()} {inside.pid} {outside.pid}")
server.serve_forever()
"""
)


def argv(folder: Path, source: str, *more: str) -> list[str]:
    script = folder / "engine.py"
    script.write_text(textwrap.dedent(source), "utf-8")
    return ["{python}", str(script), "{port}", *more]


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[RunningEngine, list[int]]]:
    pids = tmp_path / "pids"
    with launch(
        argv(tmp_path, FAMILY, str(pids)), {}, log=tmp_path / "log", ready_timeout_s=60
    ) as engine:
        yield engine, [int(pid) for pid in pids.read_text("ascii").split()]


def test_an_engine_is_ready_when_its_health_answers_and_ends_with_all_its_children(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"

    with launch(
        argv(tmp_path, FAMILY, str(pids)), {}, log=tmp_path / "log", ready_timeout_s=60
    ) as engine:
        own, inside, outside = (int(pid) for pid in pids.read_text("ascii").split())
        assert (engine.pid, engine.alive(), engine.exit_text()) == (own, True, None)
        assert engine.started is not None
        assert engine.started.endswith("Z")

    assert all(ended(pid) for pid in (own, inside, outside))
    assert not answers(engine.url)


def test_all_processes_of_a_launched_engine_are_known_by_their_ids(
    family: tuple[RunningEngine, list[int]],
) -> None:
    engine, pids = family

    assert set(engine.processes()) == set(pids)
    assert engine.pid in engine.processes()


def test_no_engine_outlives_us_when_we_are_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    ours = textwrap.dedent(
        f"""
        import sys
        from pathlib import Path
        from tokenwatt_site.measure.engine import launch
        with launch({argv(tmp_path, FAMILY, str(pids))!r}, {{}},
                    log=Path({str(tmp_path / "log")!r}), ready_timeout_s=60):
            print("ready", flush=True)
            sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", ours], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        family = [int(pid) for pid in pids.read_text("ascii").split()]

        process.kill()
        process.wait()

        assert process.returncode == -signal.SIGKILL
        assert all(ended(pid) for pid in family)


def test_a_guardian_that_is_told_to_end_takes_the_engine_with_it(tmp_path: Path) -> None:
    numbers = tmp_path / "pids"
    with launch(
        argv(tmp_path, FAMILY, str(numbers)), {}, log=tmp_path / "log", ready_timeout_s=60
    ) as engine:
        process = engine._process
        assert process is not None

        process._guardian.terminate()
        process._guardian.wait()

        assert engine.exit_text() == "was ended by SIGTERM; its log is empty"
        assert all(ended(int(pid)) for pid in numbers.read_text("ascii").split())


def test_an_engine_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "GRACE_S", 0.05)
    stubborn = (
        READY + "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "server.serve_forever()\n"
    )

    with launch(argv(tmp_path, stubborn), {}, log=tmp_path / "log", ready_timeout_s=60) as engine:
        assert engine.pid is not None

    assert ended(engine.pid)


def test_an_engine_that_loses_its_guardian_is_ended_all_the_same(tmp_path: Path) -> None:
    numbers = tmp_path / "pids"
    with launch(
        argv(tmp_path, FAMILY, str(numbers)), {}, log=tmp_path / "log", ready_timeout_s=60
    ) as engine:
        pids = [int(pid) for pid in numbers.read_text("ascii").split()]
        process = engine._process
        assert process is not None
        os.kill(process._guardian.pid, signal.SIGKILL)
        process._guardian.wait()

        assert not engine.alive()
        assert "guardian" in (engine.exit_text() or "")

    assert ended(pids[0])
    assert ended(pids[1])
    os.kill(pids[2], signal.SIGKILL)  # it left the group and has no guardian: nobody knows it


def test_the_end_of_an_engine_is_seen_with_its_exit_code_and_log(tmp_path: Path) -> None:
    source = READY + "print('about to serve', flush=True)\nserver.serve_forever()\n"

    with launch(argv(tmp_path, source), {}, log=tmp_path / "log", ready_timeout_s=60) as engine:
        assert engine.pid is not None
        handle = os.pidfd_open(engine.pid)
        answers(engine.url, "/none")
        assert not _get(engine.url, "/die")
        assert select.select([handle], [], [], 30)[0]
        os.close(handle)
        assert engine._process is not None
        select.select([engine._process._status], [], [], 30)

        assert not engine.alive()
        assert engine.exit_text() == "ended with exit code 7\n  | about to serve"


def test_an_engine_that_ends_before_it_answers_is_an_error_with_its_last_lines(
    tmp_path: Path,
) -> None:
    source = "import sys\nprint('out of memory', file=sys.stderr)\nsys.exit(3)\n"
    (tmp_path / "log").write_text("of an earlier launch\n", "utf-8")

    with (
        pytest.raises(EngineError) as caught,
        launch(argv(tmp_path, source), {}, log=tmp_path / "log", ready_timeout_s=60),
    ):
        pass

    assert "exit code 3" in str(caught.value)
    assert "| out of memory" in str(caught.value)
    assert "earlier launch" not in str(caught.value)


def test_an_engine_ended_by_a_signal_is_named_so(tmp_path: Path) -> None:
    source = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"

    with (
        pytest.raises(EngineError, match="was ended by SIGKILL"),
        launch(argv(tmp_path, source), {}, log=tmp_path / "log", ready_timeout_s=60),
    ):
        pass


def test_an_engine_that_never_answers_times_out_and_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    source = (
        "import os, signal, sys\nopen(sys.argv[2], 'w').write(str(os.getpid()))\nsignal.pause()\n"
    )

    with (
        pytest.raises(EngineError, match="did not answer within"),
        launch(argv(tmp_path, source, str(pid)), {}, log=tmp_path / "log", ready_timeout_s=1),
    ):
        pass

    # An engine that was too slow even to write its number is gone as well: launch waited for it.
    assert not pid.exists() or ended(int(pid.read_text("ascii")))


def test_the_environment_of_the_spec_reaches_the_engine(tmp_path: Path) -> None:
    source = "import os, sys\nsys.exit(int(os.environ['TOKENWATT_TEST_EXIT']))\n"

    with (
        pytest.raises(EngineError, match="exit code 42"),
        launch(
            argv(tmp_path, source),
            {"TOKENWATT_TEST_EXIT": "42"},
            log=tmp_path / "log",
            ready_timeout_s=60,
        ),
    ):
        pass


def test_a_taken_port_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(engine_module, "free_port", lambda: taken.getsockname()[1])

        with (
            pytest.raises(EngineError, match="is taken"),
            launch(argv(tmp_path, READY), {}, log=tmp_path / "log", ready_timeout_s=60),
        ):
            pass


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["no-such-engine-here", "{port}"], "found no-such-engine-here"),
        (["{python}", "-c", "pass"], "does not say where to listen"),
        ([], "does not say where to listen"),
    ],
)
def test_a_command_that_cannot_be_started_is_named(
    tmp_path: Path, command: list[str], word: str
) -> None:
    with (
        pytest.raises(EngineError, match=word) as caught,
        launch(command, {}, log=tmp_path / "log", ready_timeout_s=60),
    ):
        pass

    assert caught.value.problems[0].field is not None
    assert caught.value.problems[0].field.startswith("setup.engine.argv")


def test_a_log_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(EngineError, match="log cannot be written"),
        launch(argv(tmp_path, READY), {}, log=tmp_path / "no" / "log", ready_timeout_s=60),
    ):
        pass


def test_an_attached_engine_is_left_running(family: tuple[RunningEngine, list[int]]) -> None:
    launched, _ = family

    with attach(launched.url + "/") as engine:
        assert (engine.url, engine.pid, engine.alive()) == (launched.url, None, True)
        assert engine.exit_text() is None

    assert launched.alive()


def test_the_processes_of_an_attached_engine_are_those_that_listen_at_its_port(
    family: tuple[RunningEngine, list[int]],
) -> None:
    launched, _ = family

    with attach(launched.url) as engine:
        assert launched.pid in engine.processes()
        assert set(engine.processes()) <= set(launched.processes())


def test_an_attached_engine_that_went_away_is_not_alive(tmp_path: Path) -> None:
    with launch(
        argv(tmp_path, READY + "server.serve_forever()\n"),
        {},
        log=tmp_path / "log",
        ready_timeout_s=60,
    ) as launched:
        attached = attach(launched.url)
        engine = attached.__enter__()

    assert not engine.alive()


def test_nothing_to_attach_to_is_an_error_that_names_the_address() -> None:
    url = f"http://127.0.0.1:{engine_module.free_port()}"

    with pytest.raises(EngineError, match="no engine answers") as caught, attach(url):
        pass

    assert caught.value.problems[0].field == "endpoint.url"


def _get(url: str, path: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        try:
            return bool(connection.recv(1))
        except ConnectionResetError:
            return False
