"""What a run commits to before any load: the first line of its journal, written or read again."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tokenwatt_site import __version__
from tokenwatt_site.errors import EnvironmentProblem, Problem
from tokenwatt_site.journal import Entry
from tokenwatt_site.measure.accuracy.reference_run import Reference
from tokenwatt_site.measure.clock import RunClock
from tokenwatt_site.measure.engine import RunningEngine
from tokenwatt_site.measure.instruments import Instruments, engine_source
from tokenwatt_site.measure.power import Boards, OpenedMeters, open_meters
from tokenwatt_site.measure.power.selection import ORDER, VISIBLE
from tokenwatt_site.measure.processes import serving, variables
from tokenwatt_site.measure.workfolder import WorkFolder
from tokenwatt_site.prompts import nonce_of, seed_rule
from tokenwatt_site.spec import Spec


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that has its first line.

    Attributes:
        nonce: hex; decides the prompts: the own one, and behind it the publisher's.
        origin_ns: 0 of the run's clock, on the monotonic clock of this machine.
        gpus: boards of the engine that the user named.
        power_reason: why there is no power; None where there is.
        reasons: why each of `spec.instruments` is not read; None where it is.
    """

    nonce: str
    origin_ns: int
    gpus: tuple[str, ...]
    power_reason: str | None
    reasons: tuple[str | None, ...]

    def instruments(self, spec: Spec, engine: RunningEngine) -> Instruments:
        """Open again what could be opened at the beginning, now that the engine runs.

        Raises:
            EnvironmentProblem: see `open_meters` and `OpenedMeters.as_begun`.
        """
        meters = _open_meters(spec, self.gpus, engine).as_begun(self.power_reason, self.reasons)
        # Of several replicas there is no one step, batch or queue.
        alone = spec.endpoint.replicas == 1
        key = spec.endpoint.api_key_variable
        counters = engine_source(engine.url, key) if alone else None
        return Instruments(spec, meters, counters, RunClock(self.origin_ns))


def begin(
    spec: Spec,
    work: WorkFolder,
    gpus: Sequence[str],
    reference: Reference | None,
    say: Callable[[str], None],
    *,
    keyid: str,
    publisher_nonce: str | None = None,
) -> Begun:
    """Write the first line of a new run, or read that of one that is gone on with.

    What the first line tells of is that of a new run: `gpus`, `reference`, `keyid` and
    `publisher_nonce` count there alone.

    Raises:
        UsageError: see `open_meters`; nothing is begun.
        EnvironmentProblem: what is begun there is of another spec.
    """
    journal = work.journal
    fresh = not journal.lines
    if fresh:
        opening = {
            **_opening(spec, gpus, reference, say),
            # Without it anybody could sign this measurement as their own.
            "keyid": keyid,
            "seed_rule": seed_rule(publisher_nonce),
            "nonce": secrets.token_hex(32),
            "publisher_nonce": publisher_nonce,
        }
        if reference is not None:
            work.keep_reference(reference.log)
        work.keep_spec(spec)
        journal.append("open", **opening)
    opening = journal.lines[0].data
    if opening.get("spec") != spec.published().to_json():
        raise EnvironmentProblem(
            Problem(
                "holds the measurement of another spec",
                file=str(work.path),
                remedy="Give the spec that it was started with, or start a new measurement.",
            )
        )
    return Begun(
        nonce=nonce_of(journal.lines[0]),
        origin_ns=int(str(opening["origin_ns"])) if fresh else _origin_ns(journal.lines),
        gpus=tuple(opening["gpus"]),
        power_reason=opening["power_reason"],
        reasons=tuple(told["reason"] for told in opening["instruments"]),
    )


def _origin_ns(lines: Sequence[Entry]) -> int:
    """Return where the clock of a run that is gone on with has its 0, on the monotonic one.

    A monotonic clock begins again with the machine, and may stand still while it sleeps, so from
    one session to the next the wall clock counts. No trial goes on from one to the next: all that
    matters is that the clock of the run never runs back.
    """
    opened, last = (datetime.fromisoformat(lines[at].at) for at in (0, -1))
    past = max(datetime.now(UTC), last + timedelta(seconds=1)) - opened
    return time.monotonic_ns() - past // timedelta(microseconds=1) * 1000


def _opening(
    spec: Spec,
    gpus: Sequence[str],
    reference: Reference | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    # Opened to see what can be, and closed: the engine's boards are known when it runs.
    meters = _open_meters(spec, gpus, None)
    meters.close()
    sensor = spec.setup.power.sensor
    if meters.reason is not None and sensor != "none":
        say(f"power is not covered: {meters.reason}")
    for instrument, reason in zip(spec.instruments, meters.reasons, strict=True):
        if reason is not None and instrument.sensor != sensor:
            say(f"{instrument.sensor} is not read: {reason}")
    return {
        "configuration": spec.configuration_id,
        "spec": spec.published().to_json(),
        "workload": spec.setup.workload.hash,
        # A monotonic clock passes 2^53 ns after 104 days, so it travels as text.
        "origin_ns": str(time.monotonic_ns()),
        "power_reason": meters.reason,
        "instruments": [
            {"sensor": instrument.sensor, "reason": reason}
            for instrument, reason in zip(spec.instruments, meters.reasons, strict=True)
        ],
        "gpus": list(gpus),
        # Chosen before there is a score that it could be chosen by.
        "reference": None if reference is None else reference.to_json(),
        "tool": __version__,
    }


def _open_meters(spec: Spec, gpus: Sequence[str], engine: RunningEngine | None) -> OpenedMeters:
    launched = spec.endpoint.start == "launch"
    if launched:
        pids = engine.processes() if engine is not None else ()
        inherited: Mapping[str, str] = os.environ
    else:
        pids = tuple(sorted(frozenset().union(*map(serving, spec.endpoint.addresses))))
        inherited = variables(pids, (VISIBLE, ORDER))
    return open_meters(
        spec,
        Boards(
            named=tuple(gpus),
            pids=pids,
            environment={**inherited, **spec.setup.engine.environment},
            final=engine is not None or not launched,
        ),
    )
