"""Tests of configuration."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import (
    MODES,
    RunBuilder,
    a_key,
    answers_of,
    gated_spec,
    keyring_of,
    small_spec,
    spec_in_mode,
)
from tests.support.statements import state
from tokenwatt_site.configuration import Configuration, group
from tokenwatt_site.evidence.answers import AccuracyLog
from tokenwatt_site.trust.keyring import Keyring
from tokenwatt_site.trust.registration import register, with_successor
from tokenwatt_site.trust.verify import ValidatedRun, read_tree, settle


def made(folder: Path, *builders: RunBuilder, known: tuple[int, ...] = ()) -> list[ValidatedRun]:
    """Write the runs, register the keys with these seeds, and verify all."""
    for number, builder in enumerate(builders):
        builder.write(folder / "runs", f"{number}.json")
    keyring = keyring_of(folder / "keys", *(a_key(seed) for seed in known))
    tree = read_tree(folder / "runs", keyring)
    assert tree.refused == ()
    return list(tree.valid)


def one(runs: list[ValidatedRun]) -> Configuration:
    (configuration,) = group(runs)
    return configuration


def names(configuration: Configuration) -> list[str]:
    return [run.path.stem for run in configuration.runs]


def test_nothing_makes_no_configuration() -> None:
    assert group([]) == ()


def test_a_run_that_is_not_published_leads_only_where_none_is(tmp_path: Path) -> None:
    old, new = made(tmp_path, RunBuilder(simulated=False), RunBuilder(simulated=False, day=2))
    assert one([old, new]).headline is new
    (found,) = group([old, new], {new.run_id})
    assert (found.headline, found.runs, found.preview) == (old, (old, new), False)
    (alone,) = group([new], {new.run_id})
    assert (alone.preview, alone.exclusions[0].code) == (True, "unpublished")


def test_runs_with_the_same_setup_are_one_configuration(tmp_path: Path) -> None:
    runs = made(
        tmp_path,
        RunBuilder(simulated=False),
        RunBuilder(simulated=False, day=2, spec=small_spec(title="Other", label="other")),
    )
    configuration = one(runs)
    assert configuration.id == runs[0].run.configuration
    assert configuration.setup == runs[0].run.spec.setup
    assert len(configuration.runs) == 2


def test_what_setups_say_alike_is_held_once_and_each_says_what_was_signed(tmp_path: Path) -> None:
    builders = [RunBuilder(spec=small_spec(setup__driver=driver)) for driver in ("a", "b")]
    one, other = group(made(tmp_path, *builders))
    assert one.setup.engine is other.setup.engine
    assert one.exclusions[0] is other.exclusions[0]
    for each in (one, other):
        signed = each.headline.run.spec.setup
        assert each.setup == signed
        assert each.setup.to_json() == signed.to_json()


def test_another_setup_is_another_configuration_in_the_order_of_ids(tmp_path: Path) -> None:
    drivers = ("a", "b", "c")
    runs = made(
        tmp_path,
        *(RunBuilder(simulated=False, spec=small_spec(setup__driver=name)) for name in drivers),
    )
    ids = [configuration.id for configuration in group(runs)]
    assert len(ids) == 3
    assert ids == sorted(ids)


def test_a_simulated_run_never_shares_a_configuration_with_a_measured_one(tmp_path: Path) -> None:
    runs = made(tmp_path, RunBuilder(simulated=False), RunBuilder(simulated=True))
    measured, simulated = sorted(group(runs), key=lambda c: c.simulated)
    assert (measured.simulated, simulated.simulated) == (False, True)
    assert simulated.id.startswith("simulated-")
    assert measured.id == runs[0].run.configuration
    assert len(measured.runs) == len(simulated.runs) == 1


def test_a_simulated_id_keeps_its_digest_and_the_length_of_ids(tmp_path: Path) -> None:
    name = "a-very-long-model-name-that-fills-the-whole-slug-of-the-id"
    (run,) = made(tmp_path, RunBuilder(spec=small_spec(setup__model__name=name)))
    page = one([run]).id
    assert page[-13:] == run.run.configuration[-13:]
    assert len(page) <= 64


def test_setups_whose_short_digests_agree_are_not_one_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenwatt_site.spec.configuration_id", lambda _: "toy-0123456789ab")
    drivers = ("a", "b")
    builders = [RunBuilder(simulated=False, spec=small_spec(setup__driver=d)) for d in drivers]
    configurations = group(made(tmp_path, *builders))
    assert [len(each.runs) for each in configurations] == [1, 1]
    assert len({each.id for each in configurations}) == 2
    assert all(re.fullmatch(r"[a-z0-9-]{1,64}", each.id) for each in configurations)


def test_the_headline_is_the_newest_run(tmp_path: Path) -> None:
    configuration = one(made(tmp_path, *(RunBuilder(day=day) for day in (1, 3, 2))))
    assert names(configuration) == ["1", "2", "0"]
    assert configuration.claims is configuration.headline.claims
    assert configuration.title == configuration.headline.run.spec.title


def test_a_higher_mode_leads_before_a_newer_run(tmp_path: Path) -> None:
    builders = [
        RunBuilder(day=day, spec=spec_in_mode(mode))
        for day, mode in ((1, "full"), (2, "quick"), (3, "demo"))
    ]
    assert names(one(made(tmp_path, *builders))) == ["0", "1", "2"]


def test_the_first_publisher_leads_though_another_has_a_newer_run(tmp_path: Path) -> None:
    builders = [
        RunBuilder(day=1, key=a_key(1)),
        RunBuilder(day=2, key=a_key(2)),
        RunBuilder(day=3, key=a_key(1)),
    ]
    assert names(one(made(tmp_path, *builders, known=(1, 2)))) == ["2", "1", "0"]


def test_a_backdated_run_with_an_unknown_key_does_not_lead(tmp_path: Path) -> None:
    builders = [RunBuilder(day=1, key=a_key(9)), RunBuilder(day=2, key=a_key(1))]
    assert names(one(made(tmp_path, *builders, known=(1,)))) == ["1", "0"]


def full(day: int, key: int, mode: str = "full") -> RunBuilder:
    """Return a run that may rank, if its key is known and its mode is full."""
    spec = gated_spec(
        role="baseline",
        setup__accelerator__memory_gib=64,
        setup__accelerator__rated_bandwidth_gb_s=100.0,
        setup__accelerator__power_limit_w=65.0,
        **{f"protocol__{name}": value for name, value in MODES[mode].items()},
    )
    return RunBuilder(
        spec,
        simulated=False,
        long_run=mode == "full",
        day=day,
        key=a_key(key),
        accuracy=answers_of(spec, [True] * 20),
    )


def test_a_quick_run_of_before_keeps_no_place_from_a_run_that_may_rank(tmp_path: Path) -> None:
    configuration = one(made(tmp_path, full(1, 1, "quick"), full(2, 2), known=(1, 2)))
    assert names(configuration)[0] == "1"
    assert configuration.exclusions == ()


def test_a_disputed_run_of_before_keeps_no_place_from_a_run_that_may_rank(tmp_path: Path) -> None:
    runs = made(tmp_path, full(1, 1), full(2, 2), known=(1, 2))
    assert names(one(runs))[0] == "0"
    state(runs[0].path, "disputed", a_key(2))
    settled = settle(runs, Keyring.load(tmp_path / "keys"))
    assert names(one(list(settled)))[0] == "1"


def test_a_publisher_s_older_run_does_not_rank_for_the_newer_one_that_may_not(
    tmp_path: Path,
) -> None:
    runs = made(tmp_path, full(1, 1), full(2, 1), full(3, 2), known=(1, 2))
    state(runs[1].path, "disputed", a_key(2))
    settled = list(settle(runs, Keyring.load(tmp_path / "keys")))
    assert names(one(settled))[0] == "2"
    alone = one(settled[:2])
    assert names(alone)[0] == "1"
    assert [why.code for why in alone.exclusions] == ["disputed"]


def test_who_was_witnessed_first_leads_whatever_the_dates_say(tmp_path: Path) -> None:
    runs = made(tmp_path, full(1, 1), full(2, 2), full(3, 3), known=(1, 2, 3, 4))
    state(runs[2].path, "countersigned", a_key(4), made="2026-02-01T10:00:00Z")
    state(runs[1].path, "countersigned", a_key(4), made="2026-02-02T10:00:00Z")
    settled = settle(runs, Keyring.load(tmp_path / "keys"))
    assert names(one(list(settled)))[0] == "2"


def test_a_stranger_s_whole_run_does_not_lead_for_a_known_key_s_interrupted_one(
    tmp_path: Path,
) -> None:
    stopped = RunBuilder(day=2, key=a_key(1), status="interrupted")
    runs = made(tmp_path, RunBuilder(day=1, key=a_key(9)), stopped, known=(1,))
    assert names(one(runs)) == ["1", "0"]


def test_an_interrupted_run_leads_only_where_there_is_no_complete_one(tmp_path: Path) -> None:
    complete: dict[str, Any] = {"day": 1, "key": a_key(2)}
    interrupted: dict[str, Any] = {"day": 2, "key": a_key(1), "status": "interrupted"}
    builders = [RunBuilder(**complete), RunBuilder(**interrupted)]
    runs = made(tmp_path, *builders, known=(1, 2))
    assert names(one(runs)) == ["0", "1"]
    assert names(one(runs[1:])) == ["1"]


def test_a_run_that_was_taken_back_leads_only_where_there_is_no_other(tmp_path: Path) -> None:
    runs = made(tmp_path, RunBuilder(day=1), RunBuilder(day=2), known=(1,))
    keyring = Keyring.load(tmp_path / "keys")
    state(runs[1].path, "withdrawn", a_key(1))
    assert names(one(list(settle(runs, keyring)))) == ["0", "1"]
    state(runs[0].path, "superseded", a_key(1))
    assert names(one(list(settle(runs, keyring)))) == ["1", "0"]


def test_a_publisher_leads_on_under_the_key_that_follows(tmp_path: Path) -> None:
    runs = made(
        tmp_path, RunBuilder(day=1, key=a_key(1)), RunBuilder(day=2, key=a_key(2)), known=()
    )
    old = register(a_key(1), name="Lab")
    new = register(a_key(2), name="Lab", follows=old.keyid)
    old = with_successor(old, new.keyid, a_key(1))
    keyring = Keyring().including(new).including(old)
    assert names(one(list(settle(runs, keyring)))) == ["1", "0"]


def test_who_says_that_a_key_follows_their_own_does_not_lead_for_it(tmp_path: Path) -> None:
    builders = [RunBuilder(day=1, key=a_key(2)), RunBuilder(day=2, key=a_key(1))]
    runs = made(tmp_path, *builders, known=())
    owner = register(a_key(2), name="Lab")
    other = with_successor(register(a_key(1), name="Mallory"), owner.keyid, a_key(1))
    keyring = Keyring().including(owner).including(other)
    assert names(one(list(settle(runs, keyring))))[0] == "0"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_in_which_files_are_found_changes_nothing(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    builders = [RunBuilder(key=a_key(i), spec=small_spec(label=f"run-{i}")) for i in (1, 2, 3)]
    runs = made(tmp_path, *builders)
    assert one([runs[i] for i in order]) == one(runs)


def baseline(folder: Path) -> ValidatedRun:
    spec = gated_spec(role="baseline")
    return made(folder, RunBuilder(spec=spec, accuracy=answers_of(spec, [True] * 20)))[0]


def candidate(folder: Path, reference: ValidatedRun, answered: AccuracyLog | None) -> ValidatedRun:
    """Return a run that says that its answers were compared with those that `reference` gave."""
    spec = gated_spec(role="candidate", setup__driver="another")
    builder = RunBuilder(
        spec=spec,
        accuracy=answers_of(spec, [True] * 20),
        reference=answered,
        reference_run=reference.run_id,
        reference_configuration=reference.run.configuration,
    )
    return made(folder, builder)[0]


def test_the_reference_is_found_among_all_runs(tmp_path: Path) -> None:
    reference = baseline(tmp_path / "a")
    run = candidate(tmp_path / "b", reference, reference.evidence.accuracy)
    found = {c.headline.run_id: c.reference for c in group([run, reference])}
    assert found == {run.run_id: reference, reference.run_id: None}
    assert one([run]).reference is None


def test_a_run_that_gave_other_answers_is_not_the_reference(tmp_path: Path) -> None:
    reference = baseline(tmp_path / "a")
    other = answers_of(reference.run.spec, [True] * 19 + [False])
    run = candidate(tmp_path / "b", reference, other)
    assert run.claims.gate.reference_run == reference.run_id
    assert [c.reference for c in group([reference, run])] == [None, None]
