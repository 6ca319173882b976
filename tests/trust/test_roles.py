"""Tests of trust.roles; what it decides for whole runs is in test_verify too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runs import gpu_spec, small_spec
from tokenwatt_site.errors import InputError
from tokenwatt_site.evidence.engine import EngineLog, EngineSample, encode_engine
from tokenwatt_site.evidence.power import Board, PowerLog, encode_power
from tokenwatt_site.evidence.records import encode_requests
from tokenwatt_site.model_shape.document import ModelDocument, Tensor, headers_digest
from tokenwatt_site.spec import NOT_RECORDED, Spec
from tokenwatt_site.trust.roles import BESIDE, check_model, check_roles, decoded

BARE = ["journal", "requests"]
DCGM = [{"sensor": "dcgm", "url": f"http://node-{n}.example/metrics"} for n in range(12)]


def full(**changes: Any) -> Spec:
    settings = {"instruments": DCGM, "endpoint__model_files": "models/toy"}
    return gpu_spec(**settings | changes)


@pytest.mark.parametrize(
    "others",
    [
        [],
        ["power"],
        ["engine", "model"],
        ["power", "power-beside-1"],
        ["power-beside-2", "power-beside-1", "trace"],
        [f"{BESIDE}{n}" for n in range(1, 13)],
    ],
)
def test_what_the_spec_asks_for_may_be_there_or_not(others: list[str]) -> None:
    check_roles(full(), [*BARE, *others])


@pytest.mark.parametrize(
    "roles",
    [
        ["journal"],
        ["requests"],
        [*BARE, "requests"],
        [*BARE, "logs"],
        [*BARE, "power-beside-2"],
        [*BARE, "power-beside-0", "power-beside-1"],
        [*BARE, "power-beside-1", "power-beside-01"],
        [*BARE, "power-beside-x"],
        [*BARE, *(f"{BESIDE}{n}" for n in range(1, 14))],
    ],
)
def test_another_role_or_one_twice_is_refused(roles: list[str]) -> None:
    with pytest.raises(InputError, match="does not have the roles that are read"):
        check_roles(full(), roles)


def test_instruments_of_the_source_of_power_leave_no_log_beside() -> None:
    power = {"sensor": "dcgm", "scope": "gpu", "rate_hz": 1.0}
    with pytest.raises(InputError, match="engine, engine-model, model, power"):
        check_roles(full(setup__power=power), [*BARE, "power-beside-1"])


@pytest.mark.parametrize(("role", "spec"), [("power", small_spec()), ("model", gpu_spec())])
def test_what_the_spec_does_not_ask_for_is_refused(role: str, spec: Spec) -> None:
    with pytest.raises(InputError, match="journal and requests, with "):
        check_roles(spec, [*BARE, role])


def test_logs_beside_are_in_the_order_of_their_numbers() -> None:
    logs = [
        PowerLog("redfish", "host", n, None, (Board(uuid="x", name="y"),), ()) for n in range(12)
    ]
    counters = EngineLog({}, (EngineSample(5),))
    raw = {f"{BESIDE}{n}": encode_power(log) for n, log in enumerate(logs, start=1)}
    raw = dict(sorted(raw.items())) | {"requests": encode_requests([])}
    found = decoded(raw | {"engine": encode_engine(counters)}, None, "run.json")
    assert found.beside == tuple(logs)
    assert (found.engine, found.power, found.model) == (counters, None, None)


def test_a_piece_of_another_format_is_named_by_its_role() -> None:
    raw = {"requests": encode_requests([]), "power": encode_engine(EngineLog({}, ()))}
    with pytest.raises(InputError, match=r"run\.json: power:1: format: has a format"):
        decoded(raw, None, "run.json")


def test_headers_of_tensors_are_those_of_the_model_that_is_named() -> None:
    model = ModelDocument({}, None, (Tensor("lm_head.weight", "BF16", (4, 2)),))
    check_model(gpu_spec(setup__model__digest=headers_digest(model)), model)
    with pytest.raises(InputError, match=r"setup\.model\.digest: is not that of the model's files"):
        check_model(gpu_spec(), model)


def test_a_config_alone_and_no_files_name_no_digest() -> None:
    check_model(gpu_spec(), ModelDocument({}))
    check_model(gpu_spec(), None)


def test_a_model_whose_digest_is_not_recorded_is_not_held_against_one() -> None:
    model = ModelDocument({}, tensors=(Tensor("head", "BF16", (2, 3)),))

    check_model(gpu_spec(setup__model__digest=NOT_RECORDED), model)
