"""Tests of trust.recomputation: how deep it looks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import RunBuilder, a_key, small_spec, write_signed
from tokenwatt_site.claims import derive
from tokenwatt_site.errors import VerificationError
from tokenwatt_site.run import LONG_RUN_METRICS
from tokenwatt_site.trust.checked import Checked
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.recomputation import Level
from tokenwatt_site.trust.verify import ValidatedRun, read_tree, verify_run

SPEC = small_spec(protocol__repeats=3, protocol__scored=200, protocol__lead_in=40)


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose engine model was fitted, and is accepted."""
    return RunBuilder(SPEC, long_run=True).write(tmp_path_factory.mktemp("modelled"))


@pytest.fixture(scope="module")
def replayed(modelled: Path) -> ValidatedRun:
    """The same run, on the model level."""
    return check(modelled, "model")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RunBuilder().write(tmp_path_factory.mktemp("plain"))


def check(path: Path, level: Level) -> ValidatedRun:
    return verify_run(path, root=path.parent, keyring=Keyring(), level=level)


def signed_again(path: Path, folder: Path, change: Callable[[Any], None]) -> Path:
    """Change a run file as its publisher can, its evidence as it is."""
    shutil.copytree(path.parent, folder)
    value = json.loads(path.read_text(encoding="utf-8"))
    del value["signatures"]
    change(value)
    return write_signed(folder / path.name, value, a_key())


def no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive, "long_run_claims", lambda *_: pytest.fail("was replayed"))


def test_the_data_level_replays_nothing_and_says_so(
    modelled: Path, replayed: ValidatedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = replayed
    no_replay(monkeypatch)
    run = check(modelled, "data")
    assert (run.level, whole.level) == ("data", "model")
    assert run.claims == run.run.claims
    assert whole.numbers == whole.claims.numbers
    assert run.numbers == whole.numbers - whole.claims.replayed_numbers
    assert 0 < run.numbers < whole.numbers


def test_where_no_model_was_fitted_both_levels_are_the_same(plain: Path) -> None:
    runs = [check(plain, level) for level in ("data", "model")]
    assert [run.level for run in runs] == ["model", "model"]
    assert runs[0].claims == runs[1].claims
    assert runs[0].claims.replayed_numbers == 0


def better_in_the_long_run(value: Any) -> None:
    value["claims"]["long_run"]["drift_percent"] += 1


def test_what_only_a_replay_shows_passes_the_data_level_alone(
    modelled: Path, tmp_path: Path
) -> None:
    path = signed_again(modelled, tmp_path / "lied", better_in_the_long_run)
    assert check(path, "data").level == "data"
    with pytest.raises(VerificationError, match="drift_percent") as caught:
        check(path, "model")
    assert caught.value.check == 10


def test_no_model_is_replayed_for_a_run_whose_other_numbers_are_wrong(
    modelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faster(value: Any) -> None:
        value["claims"]["trials"][0]["lag_p99_ms"] += 1

    path = signed_again(modelled, tmp_path / "lied", faster)
    no_replay(monkeypatch)
    with pytest.raises(VerificationError, match="lag_p99_ms"):
        check(path, "model")


@pytest.mark.parametrize("position", [0, 1])
def test_a_metric_of_the_long_run_that_is_left_out_or_double_is_refused(
    modelled: Path, tmp_path: Path, position: int
) -> None:
    def double(value: Any) -> None:
        metrics = value["claims"]["metrics"]
        assert [m["key"] for m in metrics[:2]] == list(LONG_RUN_METRICS)
        metrics[position] = metrics[1 - position]

    path = signed_again(modelled, tmp_path / "lied", double)
    with pytest.raises(VerificationError, match="are not those of the long run"):
        check(path, "data")


def test_a_fit_that_lies_is_refused_however_often_it_is_read(tmp_path: Path) -> None:
    builder = RunBuilder(SPEC, long_run=True)
    fit = builder.fitted
    assert fit is not None
    full = fit.fits[0]
    first = full.boundaries[0]
    better = first.model_copy(
        update={"pass_urps": first.pass_urps + 50_000, "fail_urps": first.fail_urps + 50_000}
    )
    forged = full.model_copy(update={"boundaries": (better, *full.boundaries[1:])})
    lied = fit.model_copy(update={"fits": (forged, *fit.fits[1:])})
    published = {"long_run": False, "model_fit": lied}
    replace(builder, published=published).write(tmp_path / "run")
    for _ in range(2):
        found = read_tree(tmp_path / "run", Keyring(), Checked(tmp_path / "cache"))
        assert (found.valid, len(found.refused)) == ((), 1)
    assert not (tmp_path / "cache").exists()
