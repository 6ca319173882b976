"""What was measured as a signed run: each piece of evidence stored, each number derived."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tokenwatt_site.claims.derive import derive
from tokenwatt_site.engine_model.document import encode_model_fit
from tokenwatt_site.evidence.answers import encode_accuracy
from tokenwatt_site.evidence.engine import encode_engine
from tokenwatt_site.evidence.power import encode_power
from tokenwatt_site.evidence.records import encode_requests
from tokenwatt_site.evidence.store import EvidenceFile, store
from tokenwatt_site.evidence.under_load import encode_under_load
from tokenwatt_site.journal import head
from tokenwatt_site.measure.workfolder import Measured
from tokenwatt_site.model_shape.document import encode_model
from tokenwatt_site.run import Run
from tokenwatt_site.trust.signature import sign


def signed_run(measured: Measured, target: Path, signer: Ed25519PrivateKey) -> Run:
    """Derive the claims, store the evidence beside where the run file will be, and sign.

    Raises:
        OSError: the disk is full or not writable.
    """
    evidence = measured.evidence
    pieces = [
        ("requests", encode_requests(evidence.requests)),
        ("journal", measured.journal_bytes),
    ]
    if evidence.power is not None:
        pieces.append(("power", encode_power(evidence.power)))
    for number, log in enumerate(evidence.beside, 1):
        pieces.append((f"power-beside-{number}", encode_power(log)))
    if evidence.engine is not None:
        pieces.append(("engine", encode_engine(evidence.engine)))
    if evidence.model is not None:
        pieces.append(("model", encode_model(evidence.model)))
    if evidence.trace is not None:
        pieces.append(("trace", evidence.trace.data))
    if evidence.accuracy is not None:
        pieces.append(("accuracy", encode_accuracy(evidence.accuracy)))
    if evidence.reference is not None:
        pieces.append(("reference", encode_accuracy(evidence.reference)))
    if evidence.under_load is not None:
        pieces.append(("under-load", encode_under_load(evidence.under_load)))
    if evidence.model_fit is not None:
        pieces.append(("engine-model", encode_model_fit(evidence.model_fit)))
    files: tuple[EvidenceFile, ...] = tuple(
        store(target / "evidence", role, data) for role, data in pieces
    )
    unsigned = Run(
        run_schema="tokenwatt/run/1",
        simulated=measured.simulated,
        status="interrupted" if measured.interrupted else "complete",
        spec=measured.spec,
        configuration=measured.spec.configuration_id,
        conditions=measured.conditions,
        claims=derive(measured.spec, evidence),
        evidence=files,
        journal_head=head(measured.journal_bytes),
    )
    return unsigned.model_copy(update={"signatures": (sign(unsigned.signed_bytes(), signer),)})


def run_text(run: Run) -> bytes:
    """Return a run file, to be read by people too."""
    text = json.dumps(run.to_json(), indent=1, ensure_ascii=False, sort_keys=True)
    return f"{text}\n".encode()
