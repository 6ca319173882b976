from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.measure.test_exchange import exchange
from tests.support.runs import answers_of, gated_spec
from tokenwatt_site.engine_model.document import Fit, ModelFit
from tokenwatt_site.engine_model.model import Family, Prices
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.evidence.answers import text_digest
from tokenwatt_site.evidence.engine import EngineLog, EngineSample
from tokenwatt_site.evidence.power import Board, DramSpan, PowerLog, PowerSample
from tokenwatt_site.evidence.records import RequestRecord, Status, decode_requests
from tokenwatt_site.evidence.under_load import Compared, UnderLoadLog
from tokenwatt_site.measure.instruments import Recorded
from tokenwatt_site.measure.workfolder import WorkFolder
from tokenwatt_site.model_shape.document import ModelDocument, Tensor


def record() -> RequestRecord:
    one = exchange()
    one.fate = Status.TIMED_OUT
    return one.conclude(repeat=1, trial=3)[1]


def work_folder(path: Path) -> WorkFolder:
    return WorkFolder(path, lambda: "2026-12-01T00:00:00.000000Z")


def test_a15_records_are_on_disk_while_the_trial_runs(tmp_path: Path) -> None:
    with work_folder(tmp_path) as work:
        keep = work.begin_requests(3)
        keep([record()])
        keep([record()])
        (running,) = tmp_path.glob("requests-*")
        assert decode_requests(running.read_bytes(), source="x") == (record(), record())
        work.keep_requests(3, (record(),))
        (final,) = tmp_path.glob("requests-*")
        assert decode_requests(final.read_bytes(), source="x") == (record(),)


def test_a_trial_that_was_broken_off_is_no_evidence(tmp_path: Path) -> None:
    with work_folder(tmp_path) as work:
        work.begin_requests(3)([record()])
        assert work.evidence().requests == ()


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with work_folder(tmp_path / "work") as work:
        keep = work.begin_requests(3)
        work.path.rename(tmp_path / "elsewhere")
        with pytest.raises(EnvironmentProblem, match="cannot be written"):
            keep([record()])


S = 1_000_000_000
GPU = Board(uuid="GPU-1", name="Toy", limit_mw=700_000)


def power(board: Board, at_ns: int) -> PowerLog:
    samples = (PowerSample(at_ns, 0, 300_000, at_ns // 1000),)
    spans = (DramSpan(board=0, start_ns=at_ns, end_ns=at_ns + S, ppm=1),)
    return PowerLog("nvml", "gpu", S, None, (board,), samples, spans)


def engine(at_ns: int, **names: str) -> EngineLog:
    return EngineLog(names, (EngineSample(at_ns, steps=at_ns),))


def launch(work: WorkFolder, recorded: Recorded) -> None:
    work.journal.append("launch", repeat=1)
    work.keep_recorded(recorded)


def test_what_launches_recorded_is_joined_by_instrument(tmp_path: Path) -> None:
    host = replace(power(GPU, S), sensor="redfish", scope="host")
    package = replace(host, sensor="rapl", scope="cpu")
    with work_folder(tmp_path) as work:
        assert work.boards() is None
        launch(work, Recorded(power(GPU, 1 * S), ((2, host), (10, package)), engine(S, steps="a")))
        launch(work, Recorded(power(GPU, 5 * S), ((2, host),), engine(5 * S, running="b")))
        evidence = work.evidence()

        assert work.boards() == (GPU,)
        assert evidence.power is not None
        assert [sample.at_ns for sample in evidence.power.samples] == [1 * S, 5 * S]
        assert [span.start_ns for span in evidence.power.spans] == [1 * S, 5 * S]
        assert [log.sensor for log in evidence.beside] == ["redfish", "rapl"]
        assert [len(log.samples) for log in evidence.beside] == [2, 1]
        assert evidence.engine is not None
        assert evidence.engine.names == {"steps": "a", "running": "b"}
        assert [sample.steps for sample in evidence.engine.samples] == [1 * S, 5 * S]


def test_a_folder_in_which_nothing_was_read_has_no_logs(tmp_path: Path) -> None:
    with work_folder(tmp_path) as work:
        launch(work, Recorded(None, (), None))
        evidence = work.evidence()

        assert (evidence.power, evidence.beside, evidence.engine) == (None, (), None)
        assert evidence.model is None


def test_a_board_is_the_same_by_its_uuid_and_name_whatever_else_changed(tmp_path: Path) -> None:
    with work_folder(tmp_path) as work:
        launch(work, Recorded(power(GPU, S), (), None))
        busy = GPU.model_copy(update={"others": 2, "limit_mw": 600_000})
        launch(work, Recorded(power(busy, 5 * S), (), None))
        assert work.boards() == (GPU,)
        launch(work, Recorded(power(GPU.model_copy(update={"name": "x"}), 9 * S), (), None))
        with pytest.raises(EnvironmentProblem, match="changed between launches"):
            work.evidence()


def test_the_files_of_a_model_are_kept_as_they_were(tmp_path: Path) -> None:
    model = ModelDocument({"model_type": "toy"}, None, (Tensor("head", "BF16", (3, 4)),))
    with work_folder(tmp_path) as work:
        assert work.model() is None
        work.keep_model(model)
        work.keep_model(model)
        assert work.evidence().model == model
        with pytest.raises(EnvironmentProblem, match="other model files"):
            work.keep_model(replace(model, tensors=()))


def compared(repeat: int) -> Compared:
    text = text_digest("a")
    return Compared(
        repeat=repeat,
        trial=repeat,
        row=1,
        loaded=text,
        alone=text,
        again=text,
        same_chars=1,
        chars=1,
        cached_tokens=0,
    )


def test_a_fitted_engine_model_is_evidence_and_no_log_of_the_engine(tmp_path: Path) -> None:
    family = Family(prefill="first", token_budget=2048, max_batch=64)
    prices = Prices(base_ps=1, sequence_ps=2, prompt_token_ps=3, context_token_ps=4)
    fitted = ModelFit(
        format="tokenwatt/engine-model/1",
        fits=(Fit(left_out=0, family=family, prices=prices, boundaries=()),),
        windows_95=None,
    )
    with work_folder(tmp_path) as work:
        assert work.evidence().model_fit is None
        work.keep_model_fit(fitted)
        assert work.evidence().model_fit == fitted
        assert work.evidence().engine is None


def test_answers_count_from_their_line_in_the_journal_on_and_are_joined_by_repeat(
    tmp_path: Path,
) -> None:
    both = answers_of(gated_spec(3), [True] * 3, [False] * 3)
    with work_folder(tmp_path) as work:
        for repeat in (2, 1):
            work.keep_answers(repeat, replace(both, answers=both.of_repeat(repeat)))
            work.keep_under_load(repeat, [compared(repeat)])
        assert (work.evidence().accuracy, work.evidence().under_load) == (None, None)
        work.journal.append("under_load", repeat=1, trial=1)
        work.journal.append("accuracy_end", repeat=1, part=1)
        assert work.evidence().accuracy == replace(both, answers=both.of_repeat(1))
        assert work.evidence().under_load == UnderLoadLog((compared(1),))
        work.journal.append("under_load", repeat=2, trial=2)
        work.journal.append("accuracy_end", repeat=2, part=1)
        assert work.evidence().accuracy == both
        assert work.evidence().under_load == UnderLoadLog((compared(1), compared(2)))


def test_a_reference_counts_where_the_first_line_names_it(tmp_path: Path) -> None:
    log = answers_of(gated_spec(3), [True] * 3)
    with work_folder(tmp_path / "one") as work:
        work.keep_reference(log)
        assert work.evidence().reference is None
        work.journal.append("open", reference=None)
        assert work.evidence().reference is None
    with work_folder(tmp_path / "two") as work:
        work.keep_reference(log)
        work.journal.append("open", reference={"run": "a"})
        assert work.evidence().reference == log
