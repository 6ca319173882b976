"""Runs of two mixes whose boards draw so much for each token, through the real verification."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.runs import RunBuilder, ToyEngine, a_key, gpu_spec, steady_power
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.energy.per_token import TokenEnergy
from tokenwatt_site.evidence.power import PowerLog, PowerSample
from tokenwatt_site.evidence.records import RequestRecord
from tokenwatt_site.lengths import Fixed
from tokenwatt_site.mixes import Mixes, other_mixes
from tokenwatt_site.pages import report
from tokenwatt_site.pages.page import NO_LINKS
from tokenwatt_site.pages.token_energy import ALONE, WHAT
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.verify import verify_run
from tokenwatt_site.workload import Workload

BASE_W, INPUT_J, OUTPUT_J = 150, 0.5, 2.0
SECOND = 1_000_000_000


def builder_of(
    name: str, tokens_in: int, tokens_out: int, *, boards: str = "GPU-a", seed: int = 1
) -> RunBuilder:
    lengths = [Fixed(kind="fixed", tokens=n) for n in (tokens_in, tokens_out)]
    workload = Workload(name, 1, *lengths)
    spec = gpu_spec(
        setup__workload={"name": name, "version": 1, "hash": workload.hash},
        setup__input_tokens=lengths[0].to_json(),
        setup__output_tokens=lengths[1].to_json(),
        protocol__repeats=3,
    )
    engine = ToyEngine(slots=8, prefill_ns=60_000_000, step_ns=30_000_000)
    bare = RunBuilder(
        spec=spec, engine=engine, rates_urps=(600_000, 900_000, 1_300_000), key=a_key(seed)
    )
    return replace(bare, power=power_of(bare, boards))


def power_of(builder: RunBuilder, boards: str) -> PowerLog:
    """What two boards draw half each: so much all the time, and so much for each token.

    Read once a second, and at the edges of windows.
    """
    records, samples = builder.requests(), []
    rows = builder.spec.protocol
    for trial, (start_ns, end_ns) in enumerate(builder.loads(), start=1):
        own, total_j = [r for r in records if r.trial == trial], 0.0
        events = sorted(events_of(own), reverse=True)
        edges = (own[rows.lead_in].due_ns, own[rows.lead_in + rows.scored - 1].due_ns)
        for at in sorted({*range(0, end_ns - start_ns, SECOND), *edges}):
            while events and events[-1][0] <= at:
                total_j += events.pop()[1]
            energy_mj = round((total_j + BASE_W * at / 1e9) * 1e3 / 2)
            samples += [PowerSample(start_ns + at, n, None, energy_mj) for n in (0, 1)]
    told = (
        board.model_copy(update={"uuid": f"{boards}-{n}"})
        for n, board in enumerate(steady_power(0, boards=2).boards)
    )
    return PowerLog("nvml", "gpu", SECOND, None, tuple(told), tuple(samples))


def events_of(records: Sequence[RequestRecord]) -> list[tuple[float, float]]:
    """When joules were taken: for a prompt as its answer begins, then for each token."""
    events = []
    for r in records:
        assert r.first_ns is not None
        assert r.last_ns is not None
        events.append((r.first_ns, INPUT_J * r.prompt_asked))
        step = (r.last_ns - r.first_ns) / (r.output_asked - 1)
        events += [(r.first_ns + n * step, OUTPUT_J) for n in range(r.output_asked)]
    return events


def verified(folder: Path, *builders: RunBuilder) -> tuple[Configuration, ...]:
    runs = []
    for n, builder in enumerate(builders):
        path = builder.write(folder / str(n))
        runs.append(verify_run(path, root=path.parent, keyring=Keyring()))
    return group(runs)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Configuration, ...]:
    prompts, answers = builder_of("long-prompts", 400, 10), builder_of("long-answers", 20, 60)
    return verified(tmp_path_factory.mktemp("mixes"), prompts, answers)


def test_runs_that_differ_in_lengths_alone_stand_together(two: tuple[Configuration, ...]) -> None:
    found = other_mixes(two)

    assert sorted(found) == [each.id for each in two]
    (together,) = set(found.values())
    assert together.configurations == two
    assert other_mixes(two[:1]) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "other"},
        {"slo": gpu_spec().setup.slo[:1]},
        {"power": gpu_spec().setup.power.model_copy(update={"sensor": "none"})},
    ],
)
def test_runs_that_differ_in_more_do_not(
    two: tuple[Configuration, ...], change: dict[str, object]
) -> None:
    other = replace(two[1], setup=two[1].setup.model_copy(update=change))

    assert other_mixes((two[0], other)) == {}


def test_runs_of_another_key_or_taken_back_do_not_count(
    two: tuple[Configuration, ...], tmp_path: Path
) -> None:
    (stranger,) = verified(tmp_path, builder_of("long-answers", 20, 60, seed=2))
    assert other_mixes((two[0], stranger)) == {}

    taken_back = copy(two[1].headline)
    standing = SimpleNamespace(retracted=True)
    object.__setattr__(taken_back, "standing", standing)
    assert other_mixes((two[0], replace(two[1], headline=taken_back))) == {}


def test_what_a_token_of_each_kind_takes_is_recovered(two: tuple[Configuration, ...]) -> None:
    found = Mixes(two).apart

    assert isinstance(found, TokenEnergy), found
    assert (found.windows, found.launches) == (18, 6)
    for figure, truth in (
        (found.base_w, BASE_W),
        (found.input_j, INPUT_J),
        (found.output_j, OUTPUT_J),
    ):
        assert figure.value == pytest.approx(truth, rel=0.02)
        assert figure.low <= truth <= figure.high


def test_other_boards_are_refused(two: tuple[Configuration, ...], tmp_path: Path) -> None:
    elsewhere = verified(tmp_path, builder_of("long-answers", 20, 60, boards="GPU-b"))
    assert "are not all of the same boards" in str(Mixes((two[0], *elsewhere)).apart)
    masked = verified(tmp_path, builder_of("long-answers", 20, 60, boards="GPU"))
    assert "masked" in str(Mixes((two[0], *masked)).apart)


def test_the_evidence_of_all_is_read_once_for_all(two: tuple[Configuration, ...]) -> None:
    mixes = other_mixes(two)[two[0].id]
    first = mixes.apart

    assert mixes.apart is first


def test_a_report_shows_the_figures_with_how_sure_they_are(two: tuple[Configuration, ...]) -> None:
    html = report.render(two[0], NO_LINKS, mixes=Mixes(two)).html

    assert "Energy of an input token, apart" in html
    assert "6 launches, 95% CI" in html
    assert "18 windows of runs that differ in lengths alone, long-prompts v1 and long-" in html
    assert WHAT not in html


def test_a_report_without_other_mixes_says_so_once(two: tuple[Configuration, ...]) -> None:
    html = report.render(two[0], NO_LINKS).html

    assert html.count(WHAT) == 1
    assert f"Not measured: {ALONE}." in html
