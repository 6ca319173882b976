"""Configurations that went through the real verification, made once for all page tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.runs import (
    RunBuilder,
    ToyEngine,
    a_key,
    keyring_of,
    small_spec,
    spec_in_mode,
)
from tests.support.statements import state
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.evidence.power import Board, PowerLog, PowerSample
from tokenwatt_site.evidence.records import RequestRecord, Status
from tokenwatt_site.journal import Entry
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages.dataset import Licence, Publisher
from tokenwatt_site.pages.windows import spans
from tokenwatt_site.run import BoardClaim, Claims, ClaimsOnlyRecord, MetricClaim, Run
from tokenwatt_site.trials import Evidence
from tokenwatt_site.trust.held import Held
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import load_claims_only, read_tree, verify_run
from tokenwatt_site.workload import Realisation

Make = Callable[..., Configuration]

SHIPPED = (
    Path(__file__).parents[2] / "runs" / "published" / "deepseek-v4.1-flash-4x-h200-quick.json"
)


T = TypeVar("T")


def once(made: Callable[[Configuration], T]) -> Callable[[Configuration], T]:
    """Make what is only read once for each configuration; fixtures give all tests the same ones."""
    kept: dict[int, tuple[Configuration, T]] = {}  # holds them, so that no id comes twice

    def known(configuration: Configuration) -> T:
        if id(configuration) not in kept:
            kept[id(configuration)] = configuration, made(configuration)
        return kept[id(configuration)][1]

    return known


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Give a function from the arguments of a RunBuilder to a verified configuration."""

    def made(*, known: bool = False, **builder: Any) -> Configuration:
        folder = tmp_path_factory.mktemp("run")
        path = RunBuilder(**builder).write(folder)
        keyring = keyring_of(folder / "keys", a_key()) if known else Keyring()
        return group([verify_run(path, root=folder, keyring=keyring)])[0]

    return made


@pytest.fixture(scope="session")
def demo(make: Make) -> Configuration:
    return make()


@pytest.fixture(scope="session")
def measured(make: Make) -> Configuration:
    """A demo run that does not say it was simulated."""
    return make(simulated=False, known=True)


@pytest.fixture(scope="session")
def quick(make: Make) -> Configuration:
    return make(spec=spec_in_mode("quick"))


@pytest.fixture(scope="session")
def full(make: Make) -> Configuration:
    return make(spec=spec_in_mode("full"), simulated=False, known=True)


@pytest.fixture(scope="session")
def boards(make: Make) -> Configuration:
    """Four boards whose power was read once a second around the trial at the highest rate."""
    return make(spec=board_spec(), power=a_power_log())


@dataclass(frozen=True)
class FaultyEngine(ToyEngine):
    """Answers two requests of every trial badly; the SLO of `small_spec` allows two misses."""

    http_error: int = 7
    disconnected: int = 9

    def serve(
        self, realisation: Realisation, rate_urps: int, *, repeat: int, trial: int
    ) -> Iterator[RequestRecord]:
        bad = {self.http_error: Status.HTTP_ERROR, self.disconnected: Status.DISCONNECTED}
        for record in super().serve(realisation, rate_urps, repeat=repeat, trial=trial):
            if record.row not in bad:
                yield record
                continue
            yield replace(
                record,
                status=bad[record.row],
                first_ns=None,
                last_ns=None,
                end_ns=record.due_ns + 10**6,
                prompt_tokens=None,
                cached_tokens=None,
                output_tokens=None,
                first_tokens=None,
                events=0,
            )


@pytest.fixture(scope="session")
def faulty(make: Make) -> Configuration:
    return make(engine=FaultyEngine())


@pytest.fixture(scope="session")
def quoted() -> ClaimsOnlyRecord:
    return load_claims_only(SHIPPED)


def board_spec(**changes: Any) -> Any:
    accelerator = {
        "model": "Test board",
        "count": 4,
        "memory_gib": 80,
        "rated_bandwidth_gb_s": 4800.0,
        "power_limit_w": 700.0,
    }
    power = {"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0}
    return small_spec(**({"setup__accelerator": accelerator, "setup__power": power} | changes))


def a_power_log() -> PowerLog:
    boards = tuple(Board(uuid=f"GPU-{i}", name="Test board", limit_mw=700_000) for i in range(4))
    start = 2 * 10**12 - 20 * 10**9
    samples = tuple(
        PowerSample(start + second * 10**9 + board, board, 430_000, second * 430_000)
        for second in range(120)
        for board in range(4)
    )
    return PowerLog("nvml", "gpu", 10**9, None, boards, samples)


@dataclass(frozen=True)
class Altered:
    """Stands for what a run holds, with another part of it."""

    held: Held
    run: Run
    claims: Claims
    evidence: Evidence

    def __getattr__(self, name: str) -> Any:
        return getattr(self.held, name)


def told(configuration: Configuration, *, evidence: Any = None, **claims: Any) -> Configuration:
    """The same configuration whose run tells other claims, or other evidence: no signed run."""
    headline = copy(configuration.headline)
    changed = configuration.claims.model_copy(update=claims)
    seen = headline.evidence if evidence is None else replace(headline.evidence, **evidence)
    object.__setattr__(headline, "held", Altered(headline.held, headline.run, changed, seen))
    return replace(configuration, headline=headline)


def number(
    key: str, value: float | None, label: str = "", reason: str | None = None
) -> MetricClaim:
    """A claim of one repeat, or one without a number."""
    repeats = () if value is None else (value,)
    return MetricClaim(
        key=key, label=label or METRICS[key].label, value=value, repeats=repeats, reason=reason
    )


def with_metrics(claims: Claims, *changed: MetricClaim) -> tuple[MetricClaim, ...]:
    """The metrics of `claims` with some exchanged, and those added that it lacks."""
    named = {claim.key: claim for claim in changed}
    kept = [named.pop(claim.key, claim) for claim in claims.metrics]
    return (*kept, *named.values())


SECOND = 10**9


_UUIDS = {"gpu": "GPU-{:08x}-5f1e-4f6a-9c1d-0000", "host": "chassis-{}", "cpu": "package-{}"}


def a_long_log(
    boards: int = 4,
    seconds: int = 300,
    *,
    sensor: Any = "nvml",
    scope: Any = "gpu",
    dram: bool = True,
    start_ns: int = 0,
) -> PowerLog:
    """A run as its boards saw it: a loaded engine without a request, a load, and again none.

    Watts differ from board to board and swing, by arithmetic alone.
    """
    named = tuple(
        Board(
            uuid=_UUIDS.get(scope, "{}").format(i),
            name="Test board",
            chosen="by process",
            limit_mw=700_000 if scope == "gpu" else None,
            bus_bits=6144,
            memory_mhz=3201,
        )
        for i in range(boards)
    )
    samples = []
    for second in range(seconds):
        busy = 50 <= second < seconds - 40
        for i in range(boards):
            swing = (second * 37 + i * 53) % 41 - 20
            mw = (560_000 + 12_000 * i + 1_500 * swing) if busy else 118_000 + 900 * i + 60 * swing
            at = start_ns + second * SECOND + i * 300_000
            ppm = (610_000 + 4_000 * swing + 5_000 * i if busy else 0) if dram else None
            samples.append(
                PowerSample(at, i, mw, second * 430_000, dram_ppm=ppm, sm_mhz=1980, celsius=61)
            )
    return PowerLog(sensor, scope, SECOND, SECOND, named, tuple(samples))


def idle_lines(configuration: Configuration, *spans: tuple[int, int]) -> tuple[Entry, ...]:
    """The journal with idle lines behind it."""
    journal = configuration.headline.evidence.journal
    return (
        *journal,
        *(
            journal[-1].model_copy(
                update={
                    "event": "idle",
                    "data": {"repeat": 1, "when": "before", "start_ns": a, "end_ns": b},
                }
            )
            for a, b in spans
        ),
    )


ENERGY = {
    "tokens_per_joule": 0.86,
    "joules_per_token": 1.163,
    "joules_per_token_above_idle": 0.93,
    "joules_per_any_token": 0.233,
    "joules_per_slo_token": 1.21,
    "board_power": 2380.0,
    "idle_power": 474.0,
    "cpu_power": 310.0,
    "host_power": 3420.0,
    "mbu": 61.2,
    "mbu_bus": 59.7,
    "mbu_measured": 66.4,
    "mbu_measured_bus": 64.8,
    "mbu_engine": 58.0,
    "bus_bandwidth": 4916.736,
    "decode_batch": 61.3,
    "step_rate": 33.4,
    "step_read": 355.21,
    "bandwidth_limit_rate": 3345.0,
    "compute_share": 21.4,
    "power_limit_share": 85.0,
    "dram_energy_share": 15.6,
}
"""A made-up result of four boards."""


@pytest.fixture(scope="session")
def energetic(boards: Configuration) -> Configuration:
    """All that instruments, model and engine may tell, made up: four boards, a host, two CPUs."""
    return whole(boards)


def whole(boards: Configuration, count: int = 4, **claims: Any) -> Configuration:
    """`boards` with every number of `ENERGY`, and logs of `count` boards, host and processors."""
    window = spans(boards).windows[0]
    start = window[0] - 60 * SECOND
    log = a_long_log(count, start_ns=start)
    beside = tuple(
        a_long_log(n, sensor=sensor, scope=scope, dram=False, start_ns=start)
        for n, sensor, scope in ((1, "redfish", "host"), (2, "rapl", "cpu"))
    )
    idle = ((start + 5 * SECOND, start + 40 * SECOND), (start + 265 * SECOND, start + 295 * SECOND))
    numbers = [number(key, value) for key, value in ENERGY.items()]
    board_claims = tuple(
        BoardClaim(
            repeat=1,
            uuid=board.uuid,
            name=board.name,
            energy_j=71_000.0 + i,
            mean_power_w=590.0 + i,
            limit_w=700.0,
            sm_mhz=1755.0,
            memory_mhz=3201.0,
            celsius=61.0,
            held_back=(("power cap", 0.83),) if i else (),
        )
        for i, board in enumerate(log.boards)
    )
    changed = {"metrics": with_metrics(boards.claims, *numbers), "boards": board_claims} | claims
    evidence = {"power": log, "beside": beside, "journal": idle_lines(boards, *idle)}
    return told(boards, evidence=evidence, **changed)


HOSTILE = "</script></title><img src=x onerror=alert(1)>]]>&amp;{{7*7}} \"'"


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Configuration, ...]:
    """Two runs of one configuration, the second withdrawn, and a simulated one with bad words."""
    folder = tmp_path_factory.mktemp("published")
    runs = folder / "runs"
    RunBuilder(simulated=False).write(runs / "one")
    again = RunBuilder(simulated=False, key=a_key(2), spread=(1.1,)).write(runs / "two")
    RunBuilder(spec=small_spec(title=HOSTILE, setup__host_kind=HOSTILE)).write(runs / "evil")
    state(again, "withdrawn", a_key(2))
    shutil.copy(SHIPPED, runs)
    return group(read_tree(runs, keyring_of(folder / "keys", a_key(), a_key(2))).valid)


@pytest.fixture(scope="session")
def publisher() -> Publisher:
    licence = Licence(name="CC BY 4.0", url="https://creativecommons.org/licenses/by/4.0/")
    return Publisher("A bench", "https://example.org/bench/", licence)
