"""Sessions that read power, counters and model files: what is read when, kept, and refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.measure.test_instruments import counting, llama_cpp
from tests.measure.test_session import Lab, interrupt, lab, run  # noqa: F401  # a fixture
from tests.support.runs import KEYID, small_spec
from tokenwatt_site.claims.derive import derive
from tokenwatt_site.errors import (
    EngineError,
    EnvironmentProblem,
    Interrupted,
    ReadBackError,
    UsageError,
)
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.measure import begun
from tokenwatt_site.measure.power import Boards, OpenedMeters, ScriptedDramMeter, ScriptedMeter
from tokenwatt_site.measure.session import Events, measure
from tokenwatt_site.measure.workfolder import Measured
from tokenwatt_site.model_shape.document import ModelDocument, Tensor, headers_digest
from tokenwatt_site.spec import Spec
from tokenwatt_site.trials import read_trials

S = 1_000_000_000
BOARD = Board(uuid="GPU-1", name="Test board", limit_mw=700_000)
MODEL = ModelDocument(
    config={"model_type": "toy"}, tensors=(Tensor("head", "BF16", (32_000, 576)),)
)


def powered(**changes: Any) -> Spec:
    values: dict[str, Any] = {
        "setup__accelerator__model": "Test board",
        "setup__accelerator__count": 1,
        "setup__model__digest": headers_digest(MODEL),
        "setup__power": {"sensor": "nvml", "scope": "gpu", "rate_hz": 1},
    }
    return small_spec(**values | changes)


def at_watts(watts: int) -> Any:
    return lambda at_ns: [(watts * 1000, 5_000 + watts * at_ns // 1_000_000)]


def gpu(board: Board = BOARD) -> ScriptedDramMeter:
    return ScriptedDramMeter([board], at_watts(300))


def package() -> ScriptedMeter:
    boards = [Board(uuid="intel-rapl:0", name="package-0")]
    return ScriptedMeter(boards, at_watts(90), sensor="rapl", scope="cpu")


def measured_with(lab: Lab, folder: Path, spec: Spec, **options: Any) -> Measured:  # noqa: F811
    events = Events(lambda _: None, lab.said.append)
    return measure(spec, folder, events, **{"keyid": KEYID, **options})


def events(measured: Measured, name: str) -> list[dict[str, Any]]:
    return [line.data for line in measured.evidence.journal if line.event == name]


def test_the_window_of_every_trial_is_read_at_both_edges_with_its_traffic(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    lab.meters["nvml"] = gpu
    measured = run(lab, powered(), tmp_path / "work")

    power = measured.evidence.power
    assert power is not None
    stamps = {sample.at_ns for sample in power.samples}
    windows = [
        tuple(trial.epoch_ns + edge for edge in trial.window_ns)
        for trial in read_trials(measured.spec, measured.evidence)
    ]
    assert len(windows) > 2
    assert all({start, end} <= stamps for start, end in windows)
    assert [(span.start_ns, span.end_ns) for span in power.spans] == windows
    assert max(b - a for a, b in pairwise(sorted(stamps))) <= S


def test_the_loaded_engine_is_read_idle_before_and_after_the_trials_of_each_launch(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    lab.meters["nvml"] = gpu
    measured = run(lab, powered(protocol__repeats=2), tmp_path / "work")

    idle = events(measured, "idle")
    assert [(line["repeat"], line["when"]) for line in idle] == [
        (1, "before"),
        (1, "after"),
        (2, "before"),
        (2, "after"),
    ]
    trials = read_trials(measured.spec, measured.evidence)
    first = min(trial.epoch_ns for trial in trials if trial.repeat == 1)
    last = max(trial.epoch_ns + trial.scored_end_ns for trial in trials if trial.repeat == 1)
    assert idle[0]["end_ns"] <= first
    assert idle[1]["start_ns"] >= last + 2 * S
    assert all(line["end_ns"] - line["start_ns"] == 10 * S for line in idle)
    assert measured.evidence.power is not None
    for line in idle:
        span = (line["start_ns"], line["end_ns"])
        inside = [s for s in measured.evidence.power.samples if span[0] <= s.at_ns <= span[1]]
        assert len(inside) >= 10


def test_without_a_meter_nobody_waits(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    spent: list[float] = []
    lab.clock.pause = spent.append  # type: ignore[method-assign]
    measured = run(lab, small_spec(), tmp_path / "work")

    assert len(spent) == lab.trials
    assert events(measured, "idle") == []
    assert measured.evidence.power is None


def test_all_that_is_read_is_one_evidence_over_all_launches(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    lab.meters |= {"nvml": gpu, "rapl": package}
    lab.counters = lambda: counting(lambda: llama_cpp(lab.clock.now_ns() // S, running=0))
    spec = powered(
        instruments=[{"sensor": "redfish", "url": "https://bmc/x"}, {"sensor": "rapl"}],
        protocol__repeats=2,
        endpoint__model_files="models/toy",
    )
    measured = measured_with(lab, tmp_path / "work", spec, model=MODEL)

    evidence = measured.evidence
    assert evidence.power is not None
    assert evidence.power.boards == (BOARD,)
    (beside,) = evidence.beside
    assert (beside.sensor, beside.scope) == ("rapl", "cpu")
    assert evidence.engine is not None
    assert {sample.running for sample in evidence.engine.samples} == {0}
    assert evidence.model == MODEL
    assert sorted(path.name for path in (tmp_path / "work").glob("power-*")) == [
        "power-0001-beside-2.jsonl",
        "power-0001.jsonl",
        "power-0002-beside-2.jsonl",
        "power-0002.jsonl",
    ]
    opening = evidence.journal[0].data
    assert opening["power_reason"] is None
    assert opening["instruments"] == [
        {"sensor": "redfish", "reason": "this machine has no boards"},
        {"sensor": "rapl", "reason": None},
    ]
    assert "redfish is not read: this machine has no boards" in lab.said
    rows = {row.field: row for row in measured.conditions.read_back}
    assert rows["setup.model.digest"].state == "read back"
    assert rows["setup.accelerator.count"].observed == "1"
    claims = derive(spec, evidence)
    assert claims.metric("board_power").value == pytest.approx(300)
    assert claims.metric("tokens_per_joule").value


def test_what_could_not_be_opened_is_said_and_is_no_power_in_any_launch(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    lab.before_trial = lambda _: lab.meters.update(nvml=gpu)  # it comes back in the first launch
    measured = run(lab, powered(protocol__repeats=2), tmp_path / "work")

    assert events(measured, "open")[0]["power_reason"] == "this machine has no boards"
    assert measured.evidence.power is None
    assert "power is not covered: this machine has no boards" in lab.said
    claim = derive(measured.spec, measured.evidence).metric("board_power")
    assert claim.reason == "this machine has no boards"


def test_power_that_is_lost_between_launches_stops_the_run_and_keeps_the_rest(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    lab.meters["nvml"] = gpu

    def lose(_: int) -> None:
        lab.meters["nvml"] = "NVML shows no board"

    lab.before_trial = lose
    spec = powered(protocol__repeats=2)
    with pytest.raises(EnvironmentProblem, match="cannot be now; found NVML shows no board"):
        run(lab, spec, tmp_path / "work")
    lab.meters["nvml"] = gpu
    lab.before_trial = lambda _: None
    measured = run(lab, spec, tmp_path / "work")
    assert len(derive(spec, measured.evidence).repeats) == 2


def test_other_boards_than_in_the_launch_before_are_refused(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    other = BOARD.model_copy(update={"uuid": "GPU-2"})
    lab.meters["nvml"] = lambda: gpu(other if lab.launches == 2 else BOARD)

    with pytest.raises(EnvironmentProblem, match=r"boards changed .* found GPU-2; expected GPU-1"):
        run(lab, powered(protocol__repeats=2), tmp_path / "work")
    assert "close" not in (tmp_path / "work/journal.jsonl").read_text()


def test_an_interrupted_launch_keeps_its_power_and_the_next_one_adds_to_it(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    lab.meters["nvml"] = gpu
    lab.before_trial = interrupt(3)
    with pytest.raises(Interrupted):
        run(lab, powered(), tmp_path / "work")
    assert (tmp_path / "work/power-0001.jsonl").exists()
    lab.before_trial = lambda _: None
    measured = run(lab, powered(), tmp_path / "work")
    power = measured.evidence.power
    assert power is not None
    assert [s.at_ns for s in power.samples] == sorted(s.at_ns for s in power.samples)
    assert derive(measured.spec, measured.evidence).metric("board_power").value


def test_a_launch_that_is_refused_leaves_the_readings_of_the_one_before(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    lab.meters["nvml"] = lambda: gpu(
        BOARD if lab.launches < 2 else BOARD.model_copy(update={"limit_mw": 1})
    )
    spec = powered(protocol__repeats=2, setup__accelerator__power_limit_w=700)
    with pytest.raises(ReadBackError, match="power_limit_w"):
        run(lab, spec, tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").glob("power-*")] == ["power-0001.jsonl"]


def test_the_engines_boards_are_looked_for_by_name_process_and_environment(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Boards] = []
    lab.meters["nvml"], lab.pids = gpu, (17, 18)

    def opening(spec: Spec, boards: Boards) -> OpenedMeters:
        told.append(boards)
        return lab.open_meters(spec, boards)

    monkeypatch.setattr(begun, "open_meters", opening)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    spec = powered(setup__engine__environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    measured = measured_with(lab, tmp_path / "work", spec, gpus=("GPU-1",))

    before, running = told
    assert (before.final, before.pids, before.named) == (False, (), ("GPU-1",))
    assert (running.final, running.pids, running.named) == (True, (17, 18), ("GPU-1",))
    assert running.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert running.environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert events(measured, "open")[0]["gpus"] == ["GPU-1"]


def test_of_an_attached_engine_only_the_specs_own_environment_counts(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Boards] = []

    def opening(spec: Spec, boards: Boards) -> OpenedMeters:
        told.append(boards)
        return lab.open_meters(spec, boards)

    monkeypatch.setattr(begun, "open_meters", opening)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    lab.meters["nvml"] = gpu
    run(
        lab,
        powered(endpoint__start="attach", endpoint__url="http://127.0.0.1:9"),
        tmp_path / "work",
    )

    assert [boards.final for boards in told] == [True, True]
    assert all("CUDA_VISIBLE_DEVICES" not in boards.environment for boards in told)


def test_the_boards_of_an_attached_engine_are_told_by_who_listens_at_its_port(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Boards] = []

    def opening(spec: Spec, boards: Boards) -> OpenedMeters:
        told.append(boards)
        return lab.open_meters(spec, boards)

    monkeypatch.setattr(begun, "open_meters", opening)
    monkeypatch.setattr(begun, "serving", {"http://127.0.0.1:9": frozenset({18, 17})}.get)
    monkeypatch.setattr(begun, "variables", lambda pids, names: {names[0]: str(pids)})
    lab.meters["nvml"] = gpu
    run(
        lab,
        powered(endpoint__start="attach", endpoint__url="http://127.0.0.1:9"),
        tmp_path / "work",
    )

    assert [boards.pids for boards in told] == [(17, 18), (17, 18)]
    assert all(boards.environment["CUDA_VISIBLE_DEVICES"] == "(17, 18)" for boards in told)


def test_boards_that_were_named_need_not_be_named_again(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    lab.meters["nvml"] = gpu
    lab.before_trial = interrupt(2)
    with pytest.raises(Interrupted):
        measured_with(lab, tmp_path / "work", powered(), gpus=("GPU-1",), model=MODEL)
    lab.before_trial = lambda _: None
    measured = measured_with(lab, tmp_path / "work", powered())
    assert events(measured, "open")[0]["gpus"] == ["GPU-1"]
    assert measured.evidence.model == MODEL


def test_other_files_of_a_model_are_not_measured_into_the_same_folder(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    measured_with(lab, tmp_path / "work", powered(), model=MODEL)
    other = replace(MODEL, tensors=())
    with pytest.raises(EnvironmentProblem, match="other model files"):
        measured_with(lab, tmp_path / "work", powered(), model=other)


def test_a_run_says_which_instrument_hung_and_keeps_what_it_read(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hangs(self: object, limit_s: float, done: Any) -> list[str]:
        del self, limit_s
        return ["nvml"] if done.__name__ == "join" else []

    monkeypatch.setattr("tokenwatt_site.measure.instruments.Instruments._within", hangs)
    lab.meters["nvml"] = gpu
    measured = run(lab, powered(), tmp_path / "work")

    assert events(measured, "repeat_end") == [
        {"repeat": 1, "hung": ["nvml"], "notes": [], "gone": None}
    ]
    caveats = [item.what for item in derive(measured.spec, measured.evidence).not_covered]
    assert "Readings of nvml to the end of repeat 1" in caveats
    assert "nvml does not answer any more; what was read of it is kept" in lab.said
    assert measured.evidence.power is not None


@pytest.mark.parametrize("fell_s", [5, 20])
def test_an_engine_that_starts_again_in_the_middle_of_a_launch_ends_it(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
    fell_s: int,
) -> None:
    # While it is idle, and in its first trial.
    def steps() -> bytes:
        return llama_cpp(7 if lab.clock.now_ns() < fell_s * S else 0, running=0)

    lab.meters["nvml"] = gpu
    lab.counters = lambda: counting(steps)
    with pytest.raises(EngineError, match="was started again in the middle of a launch"):
        run(lab, powered(), tmp_path / "work")

    measured = measured_with(lab, tmp_path / "work", powered())
    assert measured.evidence.engine is not None
    assert [s.steps for s in measured.evidence.engine.samples if s.at_ns < fell_s * S][-1] == 7
    assert derive(measured.spec, measured.evidence).slo_met


def test_a_user_who_names_no_password_has_begun_nothing(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
) -> None:
    def unset() -> ScriptedMeter:
        raise UsageError("BMC_PASSWORD is not set")

    lab.meters["nvml"] = unset
    with pytest.raises(UsageError, match="BMC_PASSWORD"):
        run(lab, powered(), tmp_path / "work")
    assert not (tmp_path / "work/journal.jsonl").exists()
