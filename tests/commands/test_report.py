from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pages.conftest import SHIPPED
from tests.support.runs import RunBuilder, small_spec
from tokenwatt_site.commands.report import report
from tokenwatt_site.errors import EnvironmentProblem, UsageError, VerificationError
from tokenwatt_site.pages import compare


def test_the_page_lies_beside_the_run_by_default(tmp_path: Path) -> None:
    run = RunBuilder().write(tmp_path, "x.json")
    assert report([run], None, None) == tmp_path / "x.html"
    assert "<h1>Toy model on a CPU</h1>" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_the_title_and_the_place_can_be_chosen(tmp_path: Path) -> None:
    run = RunBuilder().write(tmp_path, "x.json")
    out = report([run], "Another <title>", tmp_path / "deep" / "y.html")
    assert "<h1>Another &lt;title&gt;</h1>" in out.read_text(encoding="utf-8")


def test_two_runs_of_one_configuration_are_one_report(tmp_path: Path) -> None:
    runs = [RunBuilder(day=day).write(tmp_path / str(day)) for day in (1, 2)]
    html = report(runs, None, None).read_text(encoding="utf-8")
    assert "2026-01-01" in html
    assert "2026-01-02" in html


def two(folder: Path, **changes: Any) -> list[Path]:
    specs = [small_spec(title="First"), small_spec(title="Second", setup__driver="other")]
    return [RunBuilder(spec=spec, **changes).write(folder / str(i)) for i, spec in enumerate(specs)]


def test_h32_runs_of_two_configurations_are_compared_with_the_first(tmp_path: Path) -> None:
    runs = two(tmp_path)
    for ones, heading in ((runs, "Second against First"), (runs[::-1], "First against Second")):
        html = report(ones, None, tmp_path / "x.html").read_text(encoding="utf-8")
        assert f"<h1>{heading}</h1>" in html
        assert "Controlled pair" in html
        assert "Driver / runtime" in html


def test_a_comparison_can_have_a_title(tmp_path: Path) -> None:
    out = report(two(tmp_path), "Mine <b>", tmp_path / "x.html")
    assert "<h1>Mine &lt;b&gt;</h1>" in out.read_text(encoding="utf-8")


def test_a_report_says_that_a_commitment_beside_its_run_was_left_out(tmp_path: Path) -> None:
    run = RunBuilder().write(tmp_path, "x.json")
    (tmp_path / "x.commit.json").write_text("{}", encoding="utf-8")
    html = report([run], None, None).read_text(encoding="utf-8")
    assert "<b>Left out.</b> What failed verification in 1 file of statements or" in html


def test_a_publication_is_what_runs_are_compared_with(tmp_path: Path) -> None:
    out = report([SHIPPED, *two(tmp_path, simulated=False)], None, tmp_path / "x.html")
    html = out.read_text(encoding="utf-8")
    assert "another workload: demo-mix-v1 against chat-mix-v1" in html
    assert "As published, not recomputed." in html


def test_a_publication_is_compared_with_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can only be the baseline"):
        report([*two(tmp_path), SHIPPED], None, tmp_path / "x.html")


def test_more_sides_than_a_page_compares_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "MOST_SIDES", 1)
    with pytest.raises(UsageError, match="at most 1"):
        report(two(tmp_path), None, tmp_path / "x.html")


def test_a_changed_run_makes_no_page(tmp_path: Path) -> None:
    run = RunBuilder().write(tmp_path, "x.json")
    run.write_bytes(run.read_bytes().replace(b'"Toy model', b'"Top model'))
    with pytest.raises(VerificationError):
        report([run], None, None)
    assert not (tmp_path / "x.html").exists()


def test_a_quoted_record_has_a_page_too(tmp_path: Path) -> None:
    out = report([SHIPPED], None, tmp_path / "q.html")
    assert "As published, not recomputed." in out.read_text(encoding="utf-8")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"none\.json"):
        report([tmp_path / "none.json"], None, None)


def test_no_file_is_a_wrong_use() -> None:
    with pytest.raises(UsageError):
        report([], None, None)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    run = RunBuilder().write(tmp_path, "x.json")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match=r"y\.html"):
        report([run], None, tmp_path / "file" / "y.html")
