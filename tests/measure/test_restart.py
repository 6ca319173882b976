"""A new launch of an attached engine, by a real command and with real processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.measure.stub_engine import StubEngine, as_json, serving
from tests.support.processes import ended
from tests.support.runs import small_spec, small_spec_dict
from tokenwatt_site.errors import EngineError, SpecError
from tokenwatt_site.measure.engine import free_port
from tokenwatt_site.measure.restart import restart
from tokenwatt_site.spec import parse_spec

ENGINE = """
import http.server, os, sys
port, start, pids = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        texts = {
            "/v1/models": b'{"data": [{"id": "m"}]}',
            "/metrics": f"process_start_time_seconds {start}\\n".encode(),
        }
        self.send_response(200 if self.path in texts else 404)
        self.end_headers()
        self.wfile.write(texts.get(self.path, b""))
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", int(port)), Handler)
with open(pids, "a") as file:
    file.write(f"{os.getpid()}\\n")
server.serve_forever()
"""

COMMAND = """
import os, signal, subprocess, sys
engine, port, start, pids = sys.argv[1:]
for pid in open(pids).read().split():
    os.kill(int(pid), signal.SIGKILL)
print("starting", start)
subprocess.Popen([sys.executable, engine, port, start, pids])
"""


@dataclass
class Place:
    """An engine that a command starts anew: its port, and the processes that were started."""

    folder: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        return [int(text) for text in (self.folder / "pids").read_text("ascii").split()]

    def command(self, start: int) -> tuple[str, ...]:
        """Return a command that ends the engine and starts one that tells this start."""
        engine, command = self.folder / "engine.py", self.folder / "command.py"
        engine.write_text(ENGINE, "utf-8")
        command.write_text(COMMAND, "utf-8")
        more = (str(engine), str(self.port), str(start), str(self.folder / "pids"))
        return (sys.executable, str(command), *more)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "pids").write_text("", "ascii")
    place = Place(tmp_path)
    yield place
    for pid in place.pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def restarted(
    argv: tuple[str, ...],
    url: str,
    folder: Path,
    *,
    started: str | None = None,
    timeout_s: float = 60,
) -> str | None:
    log = folder / "restart.log"
    [told] = restart(argv, [url], starts=[started], log=log, timeout_s=timeout_s)
    return told


def test_the_engine_is_another_process_after_the_command_and_tells_when_it_started(
    place: Place,
) -> None:
    first = restarted(place.command(1_700_000_000), place.url, place.folder)
    again = restarted(place.command(1_700_000_100), place.url + "/", place.folder, started=first)

    assert first == "2023-11-14T22:13:20.000000Z"
    assert again == "2023-11-14T22:15:00.000000Z"
    old, new = place.pids
    assert ended(old)
    os.kill(new, 0)
    assert os.getsid(new) != os.getsid(0)
    printed = (place.folder / "restart.log").read_text("utf-8")
    assert printed == "starting 1700000000\nstarting 1700000100\n"


def test_an_engine_that_does_not_tell_its_start_is_taken_at_its_answer(tmp_path: Path) -> None:
    with serving(StubEngine(get={"/v1/models": as_json({"data": [{"id": "m"}]})})) as url:
        assert restarted((sys.executable, "-c", "pass"), url, tmp_path) is None


def test_one_that_still_is_the_process_of_before_is_no_new_launch(tmp_path: Path) -> None:
    metrics = (200, {}, b"process_start_time_seconds 1700000000\n")
    get = {"/v1/models": as_json({"data": [{"id": "m"}]}), "/metrics": metrics}
    command = (sys.executable, "-c", "print('nothing to do')")

    with (
        serving(StubEngine(get=get)) as url,
        pytest.raises(
            EngineError, match=r"it is the process that started 2023-11-14.*, as before"
        ) as caught,
    ):
        restarted(command, url, tmp_path, started="2023-11-14T22:13:20.000000Z", timeout_s=1)

    assert caught.value.problems[0].field == "endpoint.restart"
    assert "\n  | nothing to do" in str(caught.value)


def test_of_replicas_each_has_to_be_another_process(tmp_path: Path) -> None:
    get = {"/v1/models": as_json({"data": [{"id": "m"}]})}
    tells = {**get, "/metrics": (200, {}, b"process_start_time_seconds 1700000000\n")}
    start = "2023-11-14T22:13:20.000000Z"
    command = (sys.executable, "-c", "pass")

    with serving(StubEngine(get=get)) as first, serving(StubEngine(get=tells)) as second:

        def again(*starts: str | None, timeout_s: float) -> tuple[str | None, ...]:
            log = tmp_path / "restart.log"
            return restart(command, [first, second], starts=starts, log=log, timeout_s=timeout_s)

        assert again(None, "before", timeout_s=60) == (None, start)
        with pytest.raises(EngineError, match="it is the process that started 2023-11-14"):
            again(None, start, timeout_s=0.5)


def test_an_engine_that_never_answers_is_said_with_what_the_command_printed(
    tmp_path: Path,
) -> None:
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(
        EngineError, match=r"no new engine answers within .* 1 s .*\n  \| started it$"
    ):
        restarted((sys.executable, "-c", "print('started it')"), url, tmp_path, timeout_s=1)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sys; print('no such unit'); sys.exit(5)", r"exit code 5 .*\n  \| no such unit"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "ended with SIGTERM"),
    ],
)
def test_a_command_that_fails_is_said_with_how_it_ended(
    tmp_path: Path, source: str, words: str
) -> None:
    with pytest.raises(EngineError, match=words):
        restarted((sys.executable, "-c", source), "http://127.0.0.1:9", tmp_path)


def test_a_command_that_does_not_return_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    source = (
        "import os, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}')\n"
        "signal.pause()\n"
    )
    command = (sys.executable, "-c", source, str(pids))

    with pytest.raises(EngineError, match="did not end within 1 s"):
        restarted(command, "http://127.0.0.1:9", tmp_path, timeout_s=1)

    # One that was too slow even to write its number is gone as well: restart waited for it.
    assert not pids.exists() or all(map(ended, map(int, pids.read_text("ascii").split())))


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="found no-such-command") as caught:
        restarted(("no-such-command",), "http://127.0.0.1:9", tmp_path)

    assert caught.value.problems[0].field == "endpoint.restart[0]"


def test_a_log_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be run"):
        restarted((sys.executable, "-c", "pass"), "http://127.0.0.1:9", tmp_path / "no")


ATTACHED = {"endpoint__start": "attach", "endpoint__url": "http://127.0.0.1:9"}


def test_a_spec_names_the_command_as_a_list_of_arguments() -> None:
    spec = small_spec(**ATTACHED, endpoint__restart=["docker", "restart", "vllm"])

    assert spec.endpoint.restart == ("docker", "restart", "vllm")
    assert spec.configuration_id == small_spec().configuration_id


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({**ATTACHED, "endpoint__restart": "docker restart vllm"}, "a valid array"),
        ({**ATTACHED, "endpoint__restart": []}, "at least 1"),
        ({**ATTACHED, "endpoint__restart": ["curl", "--token=abc"]}, "text that may be published"),
        ({"endpoint__restart": ["docker", "restart", "vllm"]}, "remove restart"),
    ],
)
def test_a_command_that_cannot_be_published_or_is_not_needed_is_refused(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        parse_spec(small_spec_dict(**changes), source="test")
