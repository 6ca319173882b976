"""`doctor` as a whole: what it looks at, and that it changes nothing."""

from __future__ import annotations

import json
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.measure.power.test_dcgm import scrape
from tests.measure.stub_engine import Answer, StubEngine, as_json, serving
from tests.support.amdsmi import FakeAmdsmi
from tests.support.exporter import exporting
from tests.support.nvml import ScriptedBoard, ScriptedMachine, eight_boards
from tests.support.nvml.fixtures import Scripted
from tests.support.runs import (
    RunBuilder,
    answers_of,
    as_written,
    gated_spec,
    replica_spec,
    small_spec,
    spec_in_mode,
)
from tests.support.safetensors_files import LLAMA, llama, write
from tokenwatt_site import cli
from tokenwatt_site.commands import doctor as module
from tokenwatt_site.commands import spec_checks
from tokenwatt_site.commands.checks import Check
from tokenwatt_site.commands.doctor import doctor
from tokenwatt_site.errors import EnvironmentProblem, UsageError
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.measure.accuracy.task import Task
from tokenwatt_site.measure.engine import free_port
from tokenwatt_site.measure.power.amd import AmdMeter
from tokenwatt_site.measure.power.nvml import NvmlUnavailable
from tokenwatt_site.measure.power.rapl import RaplMeter
from tokenwatt_site.measure.power.survey import Survey, survey
from tokenwatt_site.spec import Spec, parse_spec
from tokenwatt_site.trust.keyring import own_key

METRICS = (
    200,
    {"Content-Type": "text/plain"},
    b"vllm:iteration_tokens_total_count 5\nprocess_start_time_seconds 1.7e9\n",
)
TOY: dict[str, Answer] = {
    "/v1/models": as_json({"data": [{"id": "toy-135m", "owned_by": "vllm", "max_model_len": 90}]}),
    "/version": as_json({"version": "1.0"}),
    "/metrics": METRICS,
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with a signing key of its own to come."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(tmp_path / "keys"))
    return tmp_path


def no_boards() -> Survey:
    raise NvmlUnavailable("nvmlInit: NVML Shared Library Not Found")


def looked(**options: Any) -> list[Check]:
    return list(doctor(**{"boards": no_boards, **options}))


def about(checks: list[Check], name: str) -> list[Check]:
    return [check for check in checks if check.about == name]


def test_a_machine_without_a_board_is_a_warning_and_nothing_is_changed(here: Path) -> None:
    checks = looked()

    (gpu,) = about(checks, "GPU")
    assert gpu.level == "warn"
    assert "power is not covered: nvmlInit" in gpu.found
    assert [check for check in checks if check.level == "fail"] == []
    assert {"RAPL", "engine", "clock", "processors", "open files", "ports", "disk runs"} <= {
        check.about for check in checks
    }
    assert list(here.iterdir()) == []


def test_the_command_prints_its_table_in_a_few_seconds_and_ends_with_0(here: Path) -> None:
    begun = time.monotonic()

    done = CliRunner().invoke(cli.app, ["doctor"])

    assert done.exit_code == 0, done.stderr
    assert time.monotonic() - begun < 5
    lines = done.stdout.splitlines()
    assert {line[:4].strip() for line in lines} <= {"ok", "warn", ""}
    assert any("disk .tokenwatt" in line for line in lines)
    assert done.stderr.strip().endswith("0 fail")
    assert list(here.iterdir()) == []


def test_an_engine_that_does_not_answer_ends_with_3_and_says_what_to_do() -> None:
    done = CliRunner().invoke(cli.app, ["doctor", "--url", f"http://127.0.0.1:{free_port()}"])

    assert done.exit_code == 3
    assert "fail  engine" in done.stdout
    assert "-> Start the engine" in done.stdout
    assert "1 fail" in done.stderr


def test_an_address_that_is_none_is_a_mistake_of_the_user() -> None:
    with pytest.raises(UsageError, match=r"endpoint\.url"):
        looked(url="http://me:hunter2@127.0.0.1:1")


def test_an_engine_is_asked_for_its_name_context_steps_and_start() -> None:
    with serving(StubEngine(get=TOY)) as url:
        checks = looked(url=f"{url}/")

    told = {check.about: check for check in checks if check.about.startswith("engine")}
    assert {check.level for check in told.values()} == {"ok"}
    assert told["engine"].found == f"vLLM 1.0 at {url}"
    assert told["engine's model"].found == "toy-135m; 90 tokens of context"
    assert told["engine's steps"].found == "counted by vllm:iteration_tokens_total_count"
    assert told["engine's start"].found == "2023-11-14T22:13:20.000000Z"


def test_boards_are_told_by_the_real_binding(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine: ScriptedMachine = scripted(ScriptedBoard(limit_mw=500_000, pids=(1,)))

    checks = looked(
        boards=lambda: survey(now_ns=machine.now_ns, wait=lambda s: machine.pass_(round(s * 1e9)))
    )

    assert about(checks, "GPU 0")[0].found.startswith("NVIDIA H200, GPU-11111111")
    assert about(checks, "GPU energy")[0].found.startswith("a counter, refreshed every 100 ms")
    assert about(checks, "GPU limit")[0].level == "warn"
    assert about(checks, "GPU") == []


def test_a_key_that_is_there_is_named_and_one_that_others_can_read_is_refused(here: Path) -> None:
    own_key(here / "keys")
    (check,) = about(looked(), "signing key")
    assert (check.level, check.found[:8]) == ("ok", "ed25519:")

    (here / "keys" / "ed25519.key").chmod(0o644)
    (check,) = about(looked(), "signing key")
    assert check.level == "fail"
    assert "chmod 600" in (check.remedy or "")


def test_a_place_in_which_no_key_can_be_made_is_a_failure(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "file").write_text("", "utf-8")
    monkeypatch.setenv("TOKENWATT_KEY_DIR", str(here / "file" / "keys"))

    (check,) = about(looked(), "signing key")

    assert check.level == "fail"
    assert "TOKENWATT_KEY_DIR" in (check.remedy or "")


def test_amd_boards_take_the_place_of_those_that_are_missing(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AMD_DEVICE", here)

    checks = looked()

    # The machine of this test has the device and not the library.
    assert about(checks, "GPU") == []
    assert about(checks, "AMD GPU")[0].level == "warn"
    assert about(checks, "AMD GPU")[0].found


def spec_file(here: Path, url: str, **changes: Any) -> Path:
    changes = {
        "setup__engine__name": "vLLM",
        "endpoint": {
            **{k: v for k, v in small_spec().endpoint.to_json().items() if v is not None},
            "start": "attach",
            "url": url,
        },
        **changes,
    }
    path = here / "a.spec.yaml"
    path.write_text(as_written(small_spec(**changes)), "utf-8")
    return path


def test_what_a_spec_names_is_tried_at_the_engine_that_it_names(here: Path) -> None:
    with serving(StubEngine(get={**TOY, "/v1/models": _models(100_000)})) as url:
        checks = looked(spec=spec_file(here, url))

    assert [check for check in checks if check.level == "fail"] == []
    assert about(checks, "spec")[0].found.startswith("configuration toy-135m-cpu")
    assert about(checks, "power")[0].found == "the spec asks for none"
    assert "fields are as declared" in about(checks, "read back")[0].found


def test_what_differs_from_the_spec_fails_field_by_field(here: Path) -> None:
    with serving(StubEngine(get=TOY)) as url:
        checks = looked(spec=spec_file(here, url, setup__engine__version="2.0"))

    (check,) = about(checks, "read back")
    assert (check.level, "setup.engine.version" in check.found) == ("fail", True)
    assert check.remedy
    (context,) = about(checks, "engine's context")
    assert context.level == "fail"
    assert context.found.startswith("90 tokens, and the longest prompt and answer have")


def test_every_replica_of_a_spec_is_asked_and_those_that_differ_are_named(here: Path) -> None:
    newer = {**TOY, "/version": as_json({"version": "1.1"})}
    with serving(StubEngine(get=TOY)) as first, serving(StubEngine(get=newer)) as second:
        spec = replica_spec(
            2,
            endpoint__urls=[first, second],
            setup__engine__name="vLLM",
            setup__engine__build="not recorded",
        )
        (here / "a.spec.yaml").write_text(as_written(spec), "utf-8")
        checks = looked(spec=here / "a.spec.yaml")

    assert [check.found.split(" at ")[1] for check in about(checks, "engine")] == [first, second]
    (differ,) = about(checks, "read back")
    assert differ.level == "fail"
    assert "found 1.0 (replica 1); 1.1 (replica 2)" in differ.found


def test_a_command_that_is_not_there_fails(here: Path) -> None:
    path = here / "a.spec.yaml"
    argv = ["no-such-engine", "--port", "{port}"]
    path.write_text(as_written(small_spec(setup__engine__argv=argv)), "utf-8")

    (check,) = [c for c in about(looked(spec=path), "engine") if c.level == "fail"]

    assert check.found == "no-such-engine is not a command that can be run here"


@pytest.mark.parametrize(
    ("command", "level", "found"),
    [
        ("no-such-command", "fail", "no-such-command is not a command that can be run here"),
        ("env", "ok", "started by env"),
    ],
)
def test_a_command_that_restarts_the_engine_is_looked_for(
    here: Path, command: str, level: str, found: str
) -> None:
    path = here / "a.spec.yaml"
    attached = {"endpoint__start": "attach", "endpoint__url": f"http://127.0.0.1:{free_port()}"}
    path.write_text(as_written(small_spec(**attached, endpoint__restart=[command])), "utf-8")

    (check,) = about(looked(spec=path), "restart")

    assert (check.level, check.found) == (level, found)


@pytest.mark.parametrize(("mode", "level"), [("demo", "ok"), ("full", "warn")])
def test_rows_that_nobody_chose_are_told_and_whether_a_run_can_be_ranked(
    here: Path, mode: str, level: str
) -> None:
    path = here / "a.spec.yaml"
    path.write_text(as_written(spec_in_mode(mode)), "utf-8")

    checks = looked(spec=path)

    (windows,) = about(checks, "windows")
    assert (windows.level, "long run is not known" in windows.found) == (level, True)
    (ranking,) = about(checks, "ranking")
    assert ("only full ranks" in ranking.found) == (mode == "demo")


def test_model_files_that_are_not_there_and_limits_that_are_too_low_fail(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenwatt_site.measure.preflight.allow", lambda _: 100)
    with serving(StubEngine(get=TOY)) as url:
        path = spec_file(here, url)
        path.write_text(path.read_text("utf-8").replace('"start"', '"model_files":"m","start"'))
        checks = looked(spec=path)

    assert [c.level for c in about(checks, "spec")] == ["ok", "fail"]
    assert [c.level for c in about(checks, "open files")][-1] == "fail"


def test_power_that_cannot_be_read_is_a_warning_with_the_reason(here: Path) -> None:
    power = {"sensor": "dcgm", "scope": "gpu", "rate_hz": 1.0}
    port = free_port()
    with serving(StubEngine(get=TOY)) as url:
        path = spec_file(
            here,
            url,
            setup__power=power,
            instruments=[{"sensor": "dcgm", "url": f"http://127.0.0.1:{port}/metrics"}],
        )
        checks = looked(spec=path)

    (check,) = about(checks, "power")
    assert check.level == "warn"
    assert f"not covered: http://127.0.0.1:{port}/metrics" in check.found


def test_a_password_that_is_not_set_fails_by_the_name_of_its_variable(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BMC_USER", raising=False)
    instrument = {
        "sensor": "redfish",
        "url": "https://127.0.0.1:9/redfish/v1/Chassis/1",
        "user_variable": "BMC_USER",
        "password_variable": "BMC_PASSWORD",
    }
    with serving(StubEngine(get=TOY)) as url:
        checks = looked(spec=spec_file(here, url, instruments=[instrument]))

    (check,) = about(checks, "instruments")
    assert check.level == "fail"
    assert "BMC_USER" in f"{check.found} {check.remedy}"


def test_boards_that_are_not_those_of_the_spec_fail_and_are_named(
    here: Path, scripted: Scripted
) -> None:
    scripted(*eight_boards()[:2], ScriptedBoard(pids=()))
    with serving(StubEngine(get=TOY)) as url:
        path = spec_file(
            here,
            url,
            setup__accelerator={
                "model": "NVIDIA H200 SXM 141GB",
                "count": 2,
                "memory_gib": 141,
                "rated_bandwidth_gb_s": 4800.0,
                "power_limit_w": 700.0,
            },
            setup__power={"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0},
        )
        checks = looked(spec=path)

    (check,) = about(checks, "instruments")
    assert check.level == "fail"
    assert "setup.accelerator.count" in check.found
    assert "--gpus" in (check.remedy or "")


def test_exporters_that_answer_are_told_with_their_boards(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # where the exporter's module is
    (here / "one").mkdir()
    (here / "other").mkdir()
    with (
        exporting(here / "one", scrape(("GPU-1", 300.0, 1000))) as one,
        exporting(here / "other", scrape(("GPU-2", 300.0, 1000))) as other,
        serving(StubEngine(get=TOY)) as url,
    ):
        monkeypatch.chdir(here)
        dcgm = {"sensor": "dcgm", "url": one.url}
        rapl = {"sensor": "rapl"}
        primary = looked(
            spec=spec_file(
                here,
                url,
                setup__power={"sensor": "dcgm", "scope": "gpu", "rate_hz": 1.0},
                instruments=[rapl, dcgm, {**dcgm, "url": other.url}],
            )
        )
        beside = looked(spec=spec_file(here, url, instruments=[dcgm]))

    assert [check.found for check in about(primary, "power")] == [
        "dcgm, scope gpu, 1 board, watts averaged over a time that is not told"
    ] * 2
    assert about(beside, "instrument 1")[0].found.startswith("dcgm, scope gpu, 1 board")
    assert {c.level for c in about(primary, "power") + about(beside, "instrument 1")} == {"ok"}


def test_an_instrument_beside_that_cannot_be_read_is_a_warning(here: Path) -> None:
    with serving(StubEngine(get=TOY)) as url:
        instrument = {"sensor": "dcgm", "url": f"http://127.0.0.1:{free_port()}/metrics"}
        checks = looked(spec=spec_file(here, url, instruments=[instrument]))

    (check,) = about(checks, "instrument 1")
    assert check.level == "warn"
    assert check.found.startswith("not covered: ")


def test_boards_that_are_told_apart_when_the_engine_runs_are_no_fault_yet(
    here: Path, scripted: Scripted
) -> None:
    scripted(*eight_boards())
    path = here / "a.spec.yaml"
    power = {"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0}
    spec = small_spec(setup__power=power, setup__accelerator__count=2)
    path.write_text(as_written(spec), "utf-8")

    checks = looked(spec=path)

    (check,) = about(checks, "power")
    assert (check.level, "told apart when it runs" in check.found) == ("ok", True)
    assert about(checks, "engine")[-1].found.startswith("started by ")


@pytest.mark.parametrize(
    ("kind", "level", "found"),
    [
        ("llama", "ok", "llama, 0.00e9 parameters"),
        ("rwkv", "warn", "bandwidth is not modelled"),
    ],
)
def test_model_files_are_described_or_the_reason_is_told(
    here: Path, kind: str, level: str, found: str
) -> None:
    (here / "m").mkdir()
    (here / "m" / "config.json").write_text(json.dumps({**LLAMA, "model_type": kind}), "utf-8")
    write(here / "m" / "model.safetensors", llama())
    with serving(StubEngine(get=TOY)) as url:
        path = spec_file(here, url)
        path.write_text(path.read_text("utf-8").replace('"start"', '"model_files":"m","start"'))
        (check,) = about(looked(spec=path), "model files")

    assert check.level == level
    assert found in check.found


def test_amd_boards_are_told_with_what_is_not_read_of_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeAmdsmi()
    monkeypatch.setattr(module, "_AMD_DEVICE", here)
    monkeypatch.setattr(
        module, "AmdMeter", lambda: AmdMeter(fake, now_ns=lambda: fake.now_ns, wait=fake.wait)
    )

    checks = looked()

    assert about(checks, "driver")[0].found == "AMD 6.12.12"
    assert about(checks, "AMD GPU 1")[0].found.startswith("AMD Instinct MI300X, 01ff74a1")
    assert about(checks, "GPU") == []


def test_processor_packages_that_can_be_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Packages(RaplMeter):
        def __init__(self) -> None:
            """Read nothing."""

        def boards(self) -> tuple[Board, ...]:
            return (Board(uuid="intel-rapl:0", name="package-0"),)

    monkeypatch.setattr(module, "RaplMeter", Packages)

    (check,) = about(looked(), "RAPL")

    assert (check.level, check.found) == ("ok", "package-0")


def test_the_harness_is_named_with_its_version_and_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "version", {"lm-eval": "0.4.13"}.__getitem__)
    (check,) = about(looked(), "lm-eval")
    assert (check.level, check.found) == ("ok", "0.4.13")


@pytest.mark.parametrize(("gated", "level"), [(False, "ok"), (True, "fail")])
def test_an_absent_harness_is_a_fault_where_the_spec_asks_for_a_gate(
    here: Path, monkeypatch: pytest.MonkeyPatch, gated: bool, level: str
) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    def not_planned(*_: object) -> Task:
        raise EnvironmentProblem("the harness is not installed")

    monkeypatch.setattr(metadata, "version", absent)
    monkeypatch.setattr(spec_checks, "plan_gate", not_planned)
    path = here / "a.spec.yaml"
    path.write_text(as_written(gated_spec() if gated else small_spec()), "utf-8")

    checks = looked(spec=path)

    (check,) = about(checks, "lm-eval")
    assert check.level == level
    assert ("pip install" in (check.remedy or "")) is gated
    assert [c.found for c in about(checks, "accuracy gate")] == (
        ["the harness is not installed"] if gated else []
    )


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of `gated_spec`, in the place of the harness."""
    gate = gated_spec().setup.accuracy_gate
    assert gate.asked is not None
    task = Task(gate.task, gate.shots, gate.asked, "generate", ())
    monkeypatch.setattr(spec_checks, "plan_gate", lambda *_: task)


def gate_checks(here: Path, spec: Spec) -> list[tuple[str, str, str]]:
    path = here / "a.spec.yaml"
    path.write_text(as_written(spec), "utf-8")
    told = [c for c in looked(spec=path) if c.about in {"accuracy gate", "reference"}]
    return [(c.about, c.level, c.found) for c in told]


@pytest.mark.usefixtures("planned")
def test_a_gate_that_fits_is_told_with_the_run_it_is_compared_with(here: Path) -> None:
    spec = gated_spec(role="candidate")
    fits = ("accuracy gate", "ok", "sums-0shot, 20 questions, as asked")
    alone = gate_checks(here, spec)
    assert alone[0] == fits
    assert alone[1][:2] == ("reference", "warn")
    log = answers_of(gated_spec(), [True] * 20)
    RunBuilder(spec=gated_spec(), simulated=False, accuracy=log).write(here / "runs")
    assert gate_checks(here, spec)[1][:2] == ("reference", "ok")
    assert gate_checks(here, gated_spec(role="baseline")) == [fits]


@pytest.mark.usefixtures("planned")
def test_a_gate_that_does_not_say_what_is_asked_or_says_something_else_is_a_fault(
    here: Path,
) -> None:
    value = gated_spec().to_json()
    del value["setup"]["accuracy_gate"]["asked"]
    ((_, level, found),) = gate_checks(here, parse_spec(value, source="test"))
    assert (level, "does not say what is asked" in found) == ("fail", True)
    other = gated_spec(setup__accuracy_gate__asked__max_tokens=63)
    ((_, level, found),) = gate_checks(here, other)
    assert (level, "setup.accuracy_gate.asked" in found) == ("fail", True)


def _models(context: int) -> Answer:
    row = {"id": "toy-135m", "owned_by": "vllm", "max_model_len": context}
    return as_json({"data": [row]})
