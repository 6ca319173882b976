from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.runs import small_spec
from tests.test_leaderboard import stub
from tokenwatt_site.comparability import flat
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.leaderboard import rank
from tokenwatt_site.lineage import MOST_ALIKE, MOST_VERSIONS, NO_KIN, RELEASED, Kin, kin
from tokenwatt_site.spec import Setup


def setup(**changes: Any) -> Setup:
    engine = {k.removeprefix("engine__"): v for k, v in changes.items() if k[:8] == "engine__"}
    other = {f"setup__{k}": v for k, v in changes.items() if k[:8] != "engine__"}
    whole = small_spec().setup.engine.to_json() | engine
    return small_spec(setup__engine=whole, **other).setup


def with_setups(setups: Iterable[Setup], *, simulated: bool = False) -> list[Configuration]:
    """What a lineage reads of configurations with these setups."""
    kind = "s" if simulated else "c"
    made = []
    for i, own in enumerate(setups):
        name = f"{kind}{i:04}"
        made.append(stub(name, 1.0))
        vars(made[-1]).update(id=name, setup=own, simulated=simulated)
    return made


def found(configurations: Sequence[Configuration]) -> dict[str, Kin]:
    return kin(rank(configurations), {each.id: each for each in configurations})


def named(of: Kin) -> dict[str, list[str]]:
    return {each.field: [other.id for other in each.nearest] for each in of.alike}


def flattened(members: Iterable[Configuration]) -> dict[str, dict[str, Any]]:
    return {each.id: dict(flat("setup", each.setup.to_json())) for each in members}


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    paths = one.keys() | other.keys()
    return {p.removeprefix("setup.") for p in paths if one.get(p) != other.get(p)}


def drawn(seed: int, count: int) -> list[Setup]:
    """Setups of few values each, so that many are near one another; no two are the same."""
    chance = random.Random(seed)
    some: dict[str, Setup] = {}
    while len(some) < count:
        one = setup(
            engine__version=chance.choice(["1.0", "1.1", "not recorded"]),
            engine__build=chance.choice(["test", "fast"]),
            engine__argv=["toy", "{port}", "--slots", chance.choice("248")],
            engine__environment=chance.choice([{}, {"A": "1"}, {"A": "2"}, {"B": "1"}]),
            driver=chance.choice(["none", "595"]),
            slo=[
                {"metric": "ttft", "quantile": 0.9, "limit_ms": chance.choice([1500.0, 900.0])},
                {"metric": "tpot", "quantile": 0.9, "limit_ms": 150.0},
            ],
        )
        some[repr(one)] = one
    return list(some.values())


def test_what_is_one_field_away_is_what_a_search_pair_by_pair_finds() -> None:
    members = with_setups(drawn(1, 90))
    got, fields = found(members), flattened(members)
    for each in members:
        expected: dict[str, set[str]] = {}
        for other in members:
            paths = differing(fields[each.id], fields[other.id])
            if len(paths) == 1 and not paths & {"slo", "engine.version"}:
                expected.setdefault(paths.pop(), set()).add(other.id)
        own = got.get(each.id, NO_KIN)
        assert {a.field: a.count for a in own.alike} == {p: len(i) for p, i in expected.items()}
        for path, ids in named(own).items():
            assert set(ids) <= expected[path]
            assert len(set(ids)) == min(MOST_ALIKE, len(expected[path]))


def test_the_versions_are_what_a_search_pair_by_pair_finds() -> None:
    members = with_setups(drawn(2, 90))
    got, fields = found(members), flattened(members)
    for each in members:
        known = [m for m in members if m.setup.engine.version != "not recorded"]
        line = {m.id for m in known if differing(fields[each.id], fields[m.id]) <= RELEASED}
        several = len({m.setup.engine.version for m in known if m.id in line}) > 1
        expected = line if several and each.id in line else set()
        assert {m.id for m in got.get(each.id, NO_KIN).versions} == expected


def test_one_that_stands_alone_has_no_kin() -> None:
    assert found(with_setups([setup()])) == {}


def test_of_many_the_nearest_are_named_in_the_order_of_their_values() -> None:
    counts = [1, 2, 4, 8, 10, 12, 16, 20, 24, 32]
    members = with_setups(setup(engine__argv=["toy", "{port}", f"{n}"]) for n in counts)
    [of_ten] = found(members)["c0004"].alike
    assert (of_ten.field, of_ten.count) == ("engine.argv", 9)
    assert [each.id for each in of_ten.nearest] == [f"c{i:04}" for i in (1, 2, 3, 5, 6, 7)]
    [of_one] = found(members)["c0000"].alike
    assert [each.id for each in of_one.nearest] == [f"c{i:04}" for i in range(1, 7)]


def test_many_that_differ_in_one_field_each_name_a_few() -> None:
    one = setup()
    members = with_setups(one.model_copy(update={"driver": f"{n}"}) for n in range(500))
    got = found(members)
    assert {(len(k.alike[0].nearest), k.alike[0].count) for k in got.values()} == {(6, 499)}


def test_h10_versions_stand_in_their_order_with_what_is_around_this_one() -> None:
    versions = ["0.9.1", "0.10.0", "0.10.1", *(f"1.{n}" for n in range(20))]
    members = with_setups(setup(engine__version=v) for v in reversed(versions))
    got = found(members)
    first, last = got["c0022"], got["c0000"]
    assert [c.setup.engine.version for c in first.versions] == versions[:MOST_VERSIONS]
    assert (first.earlier, first.later) == (0, len(versions) - MOST_VERSIONS)
    assert (last.earlier, last.later) == (len(versions) - MOST_VERSIONS, 0)
    assert last.versions[-1].id == "c0000"


def test_another_question_and_a_simulated_run_are_no_kin() -> None:
    power = {"sensor": "nvml", "scope": "gpu", "rate_hz": 1.0}
    members = with_setups([setup(), setup(power=power)])
    [simulated] = with_setups([setup(driver="x")], simulated=True)
    assert found([*members, simulated]) == {}
