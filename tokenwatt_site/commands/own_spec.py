"""By which spec somebody else's run is measured again here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenwatt_site.commands.measure import named_boards
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.measure.power import Boards, open_meters
from tokenwatt_site.measure.power.selection import ORDER, VISIBLE
from tokenwatt_site.measure.processes import serving, variables
from tokenwatt_site.meters import REMOTE_SENSORS
from tokenwatt_site.spec import NOT_RECORDED, Spec, parse_spec


@dataclass(frozen=True, slots=True)
class Own:
    """What of a rerun is not the original's; None: as it is found here, else not told.

    Attributes:
        url: of an engine that runs already; None: it is launched as the original was.
        api_key_variable: the environment variable with that engine's key.
        driver: what drives the boards here.
        host_kind: kind of this host, not its name.
        gpus: the engine's boards, as `measure --gpus` takes them.
    """

    url: str | None = None
    api_key_variable: str | None = None
    driver: str | None = None
    host_kind: str | None = None
    gpus: str | None = None


def own_spec(original: Spec, own: Own, ask: Callable[[str], str]) -> Spec:
    """Return the spec of a rerun: the original's setup, but for driver and host kind.

    What names commands, variables or addresses beside the setup was the publisher's, and is not
    taken over from a file that anybody may have written: where the engine is asked and with which
    key, what restarts it, where other instruments are.

    Raises:
        UsageError: the original's engine ran already, and no address of one here is given; or its
            energy was read over the network.
        SpecError: the address, or a word of the user, may not stand in a spec.
        ReadBackError: see `open_meters`.
    """
    if own.url is None and original.endpoint.start == "attach":
        raise UsageError(
            Problem(
                "was measured on an engine that ran already",
                field="endpoint.start",
                remedy="Start it as its page says, and give the address with --url.",
            )
        )
    if (sensor := original.setup.power.sensor) in REMOTE_SENSORS:
        raise UsageError(
            Problem(
                "is read over the network, from addresses that are the publisher's",
                field="setup.power.sensor",
                found=sensor,
                remedy="Measure the same setup by a spec with instruments of your own, then compare"
                " with --measured.",
            )
        )
    value = original.to_json()
    value |= {"note": "", "board_roles": None}  # which boards, is of the publisher's machines
    value["endpoint"] |= {"api_key_variable": own.api_key_variable, "restart": None}
    if own.url is not None:
        value["endpoint"] |= {"start": "attach", "url": own.url.rstrip("/"), "urls": None}
    value["instruments"] = [item for item in value["instruments"] if item["url"] is None]
    draft = parse_spec(value, source="the run's setup with --url")
    value["setup"]["driver"] = own.driver or _driver(draft, named_boards(own.gpus, draft))
    value["setup"]["host_kind"] = own.host_kind or _host_kind(original, ask)
    return parse_spec(value, source="the run's setup with --driver and --host-kind")


def _driver(spec: Spec, gpus: Sequence[str]) -> str:
    """Return what drives the boards here: in the original's words, where they hold its version."""
    declared, url = spec.setup.driver, spec.endpoint.url
    if spec.setup.is_cpu:
        return declared
    pids = tuple(sorted(serving(url))) if url is not None else ()
    inherited = variables(pids, (VISIBLE, ORDER)) if url is not None else os.environ
    environment = {**inherited, **spec.setup.engine.environment}
    opened = open_meters(spec, Boards(named=tuple(gpus), pids=pids, environment=environment))
    opened.close()
    told = ", ".join(sorted({meter.driver for meter in opened.primary if meter.driver}))
    if not told:
        return NOT_RECORDED
    # As the read-back compares: a declared driver may name the runtime too.
    return declared if told in re.split(r"[\s,/()]+", declared) else told


def _host_kind(original: Spec, ask: Callable[[str], str]) -> str:
    kind = original.setup.host_kind
    return ask(f"Kind of host ({kind} in the original) [{NOT_RECORDED}]:").strip() or NOT_RECORDED
