"""Which pieces of evidence a run may have, and what is in each: of check 6 of `trust.verify`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tokenwatt_site.engine_model.document import decode_model_fit
from tokenwatt_site.errors import InputError, Problem
from tokenwatt_site.evidence.answers import decode_accuracy
from tokenwatt_site.evidence.engine import decode_engine
from tokenwatt_site.evidence.power import decode_power
from tokenwatt_site.evidence.records import decode_requests
from tokenwatt_site.evidence.under_load import decode_under_load
from tokenwatt_site.model_shape.document import ModelDocument, decode_model, headers_digest
from tokenwatt_site.spec import NOT_RECORDED, Spec
from tokenwatt_site.trace import Trace
from tokenwatt_site.trials import Evidence
from tokenwatt_site.trust.difference import expect_equal

REQUIRED_ROLES = frozenset({"journal", "requests"})
OTHER_ROLES = frozenset(
    {
        "power",
        "engine",
        "model",
        "trace",
        "accuracy",
        "reference",
        "under-load",
        "engine-model",
    }
)
BESIDE = "power-beside-"
"""Begins the roles of what further instruments read: power-beside-1, power-beside-2 and so on."""


Piece = TypeVar("Piece")


def check_roles(spec: Spec, roles: Sequence[str]) -> None:
    """Check that every role is there once, and none that the spec does not ask for.

    Raises:
        InputError: naming what is there and what may be.
    """
    others = _others(spec, sum(role.startswith(BESIDE) for role in roles))
    if len(set(roles)) == len(roles) and REQUIRED_ROLES <= set(roles) <= REQUIRED_ROLES | others:
        return
    raise InputError(
        Problem(
            "does not have the roles that are read",
            field="evidence",
            found=", ".join(roles)[:200],
            expected=(
                f"journal and requests, with {', '.join(sorted(others))} or without, each once"
            ),
        )
    )


def _others(spec: Spec, beside: int) -> frozenset[str]:
    asked = sum(i.sensor != spec.setup.power.sensor for i in spec.instruments)
    others = OTHER_ROLES | {f"{BESIDE}{n}" for n in range(1, min(beside, asked) + 1)}
    if spec.setup.power.sensor == "none":
        others -= {"power"}
    if spec.setup.accuracy_gate.asked is None:
        others -= {"accuracy", "reference"}
    return others - {"model"} if spec.endpoint.model_files is None else others


def decoded(raw: Mapping[str, bytes], trace: Trace | None, path: str) -> Evidence:
    """Return what is in the evidence, by role; without the journal, whose chain comes first.

    Raises:
        InputError: a piece of another format.
    """

    def source(role: str) -> str:
        return f"{path}: {role}"

    def read(role: str, decode: Callable[..., Piece]) -> Piece | None:
        return decode(raw[role], source=source(role)) if role in raw else None

    beside = sorted(
        (role for role in raw if role.startswith(BESIDE)),
        key=lambda role: int(role.removeprefix(BESIDE)),
    )
    return Evidence(
        journal=(),
        requests=decode_requests(raw["requests"], source=source("requests")),
        power=read("power", decode_power),
        trace=trace,
        beside=tuple(decode_power(raw[role], source=source(role)) for role in beside),
        engine=read("engine", decode_engine),
        model=read("model", decode_model),
        accuracy=read("accuracy", decode_accuracy),
        reference=read("reference", decode_accuracy),
        under_load=read("under-load", decode_under_load),
        model_fit=read("engine-model", decode_model_fit),
    )


def check_model(spec: Spec, model: ModelDocument | None) -> None:
    """Check that headers of tensors, where there are any, are those of the model that is named.

    A setup may leave the digest "not recorded", as any field; then nothing is named.

    Raises:
        InputError: the setup names another digest.
    """
    if spec.setup.model.digest == NOT_RECORDED:
        return
    if model is not None and (found := headers_digest(model)) is not None:
        what = "is not that of the model's files"
        expect_equal("setup.model.digest", spec.setup.model.digest, found, what)
