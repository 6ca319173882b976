"""Which second run says what of a first one, on the vectors of DESIGN 6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.pages.conftest import a_power_log, board_spec, with_metrics
from tests.support.runs import RunBuilder, small_spec, spec_in_mode
from tokenwatt_site.comparability import (
    Compared,
    compare,
    differences,
    gpu_uuids,
    why_not_independent,
)
from tokenwatt_site.evidence.power import Board, PowerLog
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import Claims, MetricClaim, Run
from tokenwatt_site.trials import Evidence
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run

V2 = (2410.0, 2431.0, 2397.0, 2440.0, 2422.0)
CORRECTED, MEASURED = "long_run_goodput", "goodput"


@dataclass(frozen=True)
class Side:
    """A run that is made up: what `compare` looks at of a verified one."""

    run: Run
    claims: Claims
    evidence: Evidence
    keyid: str = "ed25519:" + "1" * 32


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Side:
    folder: Path = tmp_path_factory.mktemp("run")
    path = RunBuilder(spec=small_spec(), simulated=False).write(folder)
    found = verify_run(path, root=folder, keyring=Keyring())
    return with_goodput(Side(found.run, found.claims, found.evidence, found.keyid), V2)


def with_goodput(side: Side, values: Sequence[float], key: str = CORRECTED, **changes: Any) -> Side:
    told = {"value": values[0] if values else None, "repeats": tuple(values), **changes}
    claim = MetricClaim(key=key, label=METRICS[key].label, **told)
    claims = side.claims.model_copy(update={"metrics": with_metrics(side.claims, claim)})
    return replace(side, claims=claims)


def with_spec(side: Side, **changes: Any) -> Side:
    return replace(side, run=side.run.model_copy(update={"spec": small_spec(**changes)}))


def against_v2(original: Side, *values: float) -> Compared:
    return compare(original, with_goodput(original, values))


@pytest.mark.parametrize(
    ("values", "outcome", "ratio"),
    [
        ((2395, 2418, 2402), "reproduced", (0.99381, 0.98560, 1.00210)),
        ((2250, 2262, 2241), "contradicted", (0.93018, 0.92267, 0.93775)),
        ((2330, 2351, 2344), "inconclusive", (0.96764, 0.95992, 0.97543)),
        ((2405, 2500, 2310), "inconclusive", (0.9933, 0.93023, 1.06066)),
    ],
)
def test_the_vectors_of_the_design_come_out_as_they_stand_there(
    original: Side, values: tuple[float, ...], outcome: str, ratio: tuple[float, float, float]
) -> None:
    found = against_v2(original, *map(float, values))
    assert (found.outcome, found.metric, found.launches) == (outcome, CORRECTED, (5, 3))
    assert found.ratio is not None
    assert (found.ratio.value, found.ratio.low, found.ratio.high) == pytest.approx(ratio, abs=5e-5)
    assert f"is {ratio[0]:.3f}" in found.text


def test_fewer_than_three_launches_on_a_side_are_never_more_than_inconclusive(
    original: Side,
) -> None:
    found = against_v2(original, 2420.0, 2421.0)
    assert found.outcome == "inconclusive"
    assert "from 2 against 5 launches; an interval takes 3" in found.text


def test_the_measured_goodput_counts_where_one_of_the_two_is_not_corrected(original: Side) -> None:
    old = with_goodput(original, V2, MEASURED)
    again = with_goodput(old, (), CORRECTED, reason="the model is refused")
    again = with_goodput(again, (2395.0, 2418.0, 2402.0), MEASURED)
    found = compare(old, again)
    assert (found.metric, found.outcome) == (MEASURED, "reproduced")


def test_a_run_without_a_goodput_contradicts_nothing(original: Side) -> None:
    again = with_goodput(original, (), CORRECTED, reason="no trial passed")
    again = with_goodput(again, (), MEASURED, reason="no trial passed")
    found = compare(original, again)
    assert (found.outcome, found.ratio) == ("inconclusive", None)
    assert found.text == "the new run has no SLO goodput: no trial passed"


def test_an_interrupted_run_settles_nothing_as_it_could_have_ended_when_it_pleased(
    original: Side,
) -> None:
    again = with_goodput(original, (2395.0, 2418.0, 2402.0))
    again = replace(again, run=again.run.model_copy(update={"status": "interrupted"}))
    found = compare(original, again)
    assert found.outcome == "inconclusive"
    assert found.text.startswith("the new run was interrupted")


def test_driver_and_host_may_differ_and_are_listed(original: Side) -> None:
    again = with_spec(original, setup__driver="other", setup__host_kind="elsewhere")
    found = compare(original, again)
    assert found.outcome == "reproduced"
    assert [(each.field, each.again, each.free) for each in found.differences] == [
        ("setup.driver", "other", True),
        ("setup.host_kind", "elsewhere", True),
    ]
    assert str(found.differences[0]) == "setup.driver: 'other' here, 'none' in the original"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"setup__engine__version": "1.1"}, "setup.engine.version"),
        ({"setup__engine__argv": ["{port}"]}, "setup.engine.argv"),
        ({"setup__model__revision": "r2"}, "setup.model.revision"),
        ({"setup__kernel_libraries": "not recorded"}, "setup.kernel_libraries"),
        ({"protocol__scored": 40}, "protocol.scored"),
    ],
)
def test_another_setup_or_other_rows_are_not_compared(
    original: Side, changes: dict[str, Any], field: str
) -> None:
    found = compare(original, with_spec(original, **changes))
    assert (found.outcome, found.ratio, found.metric) == ("not comparable", None, None)
    assert found.text == f"another setup: {field}"


def test_another_mode_is_not_compared() -> None:
    demo, full = small_spec(protocol__repeats=3), spec_in_mode("full")
    assert "protocol.mode" in {each.field for each in differences(demo, full)}


def test_label_title_repeats_and_endpoint_are_not_compared() -> None:
    other = small_spec(
        label="mine",
        title="Mine",
        note="again",
        protocol__repeats=5,
        endpoint__start="attach",
        endpoint__url="http://127.0.0.1:1",
    )
    assert differences(small_spec(), other) == ()


def test_a_simulated_run_says_nothing_of_a_measured_one(original: Side) -> None:
    again = replace(original, run=original.run.model_copy(update={"simulated": True}))
    assert compare(original, again).text == "another setup: simulated"


def test_what_neither_records_is_told(original: Side) -> None:
    assert compare(original, original).unknown == (
        "setup.accelerator.memory_gib",
        "setup.accelerator.rated_bandwidth_gb_s",
        "setup.accelerator.power_limit_w",
    )


def on_boards(side: Side, *uuids: str, keyid: str, **log: Any) -> Side:
    boards = tuple(Board(uuid=uuid, name="Test board") for uuid in uuids)
    power = replace(a_power_log(), boards=boards, samples=(), **log) if uuids else None
    spec = board_spec(setup__accelerator=ONE_BOARD)
    return replace(
        side,
        run=side.run.model_copy(update={"spec": spec}),
        evidence=replace(side.evidence, power=power),
        keyid=keyid,
    )


ONE_BOARD = {
    "model": "Test board",
    "count": 1,
    "memory_gib": 80,
    "rated_bandwidth_gb_s": 4800.0,
    "power_limit_w": 700.0,
}
OURS, THEIRS = "ed25519:" + "1" * 32, "ed25519:" + "2" * 32


def test_another_key_on_another_board_is_independent_as_far_as_files_tell(original: Side) -> None:
    old = on_boards(original, "GPU-a", keyid=OURS)
    assert why_not_independent(old, on_boards(original, "GPU-b", keyid=THEIRS)) == ()


@pytest.mark.parametrize(
    ("again", "why"),
    [
        ({"uuids": ("GPU-b",), "keyid": OURS}, "both are signed with the same key"),
        ({"uuids": ("GPU-A",), "keyid": THEIRS}, "both ran on gpu-a"),
        ({"uuids": (), "keyid": THEIRS}, "the new run records no UUID of a board"),
        (
            {"uuids": ("GPU-00000000-0000",), "keyid": THEIRS},
            "the new run records no UUID of a board",
        ),
        (
            {"uuids": ("chassis-1",), "keyid": THEIRS, "scope": "host"},
            "the new run records no UUID of a board",
        ),
    ],
    ids=["same key", "same board", "none recorded", "masked", "a host is no board"],
)
def test_f22_t12_the_same_key_the_same_board_or_no_uuid_gives_no_badge(
    original: Side, again: dict[str, Any], why: str
) -> None:
    uuids = again.pop("uuids")
    old = on_boards(original, "GPU-a", keyid=OURS)
    assert why_not_independent(old, on_boards(original, *uuids, **again)) == (why,)


def test_boards_of_which_some_are_not_recorded_give_no_badge(original: Side) -> None:
    one = on_boards(original, "GPU-a", keyid=OURS)
    spec = board_spec(setup__accelerator=ONE_BOARD | {"count": 2})
    two = replace(one, keyid=THEIRS, run=one.run.model_copy(update={"spec": spec}))
    two = replace(two, evidence=on_boards(two, "GPU-b", keyid=THEIRS).evidence)
    assert why_not_independent(one, two) == ("the new run records the UUIDs of 1 of its 2 boards",)


def test_boards_that_an_instrument_beside_the_power_read_count_too(original: Side) -> None:
    beside: PowerLog = replace(a_power_log(), samples=())
    evidence = replace(original.evidence, beside=(beside,))
    # GPU-0, of zeros alone, is no name.
    assert gpu_uuids(evidence) == {"gpu-1", "gpu-2", "gpu-3"}
