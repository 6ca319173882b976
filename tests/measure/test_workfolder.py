from __future__ import annotations

from pathlib import Path

import pytest

from tests.measure.test_exchange import exchange
from tokenwatt_site.errors import EnvironmentProblem
from tokenwatt_site.measure.workfolder import WorkFolder
from tokenwatt_site.records import RequestRecord, Status, decode_requests


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
