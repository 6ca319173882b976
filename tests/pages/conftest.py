"""Configurations that went through the real verification, made once for all page tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.power_log import Board, PowerLog, PowerSample
from tokenwatt_site.records import RequestRecord, Status
from tokenwatt_site.run import ClaimsOnlyRecord
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import load_claims_only, verify_run
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
    return small_spec(setup__accelerator=accelerator, setup__power=power, **changes)


def a_power_log() -> PowerLog:
    boards = tuple(Board(uuid=f"GPU-{i}", name="Test board", limit_mw=700_000) for i in range(4))
    start = 2 * 10**12 - 20 * 10**9
    samples = tuple(
        PowerSample(start + second * 10**9 + board, board, 430_000, second * 430_000)
        for second in range(120)
        for board in range(4)
    )
    return PowerLog("nvml", "gpu", 10**9, None, boards, samples)
