"""Tests of trust.counting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.trust.counting import Rerun, surplus

START = datetime(2026, 3, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def rerun(publisher: str, boards: str, **changes: Any) -> Rerun:
    """A rerun on boards of one letter each."""
    told: dict[str, Any] = {
        "run_id": f"{publisher}{boards}",
        "outcome": "reproduced",
        "launches": 3,
        "ended": day(1),
        "witnessed": None,
    }
    return Rerun(publisher=publisher, boards=frozenset(boards), **told | changes)


def counting(**reruns: Rerun) -> set[str]:
    """Return the names of those that count, the same in whatever order they are told."""
    why_not = surplus(reruns)
    assert surplus(dict(reversed(reruns.items()))) == why_not
    return reruns.keys() - why_not.keys()


def test_others_on_other_boards_all_count() -> None:
    assert counting(a=rerun("A", "ab"), b=rerun("B", "cd"), c=rerun("C", "e")) == set("abc")


def test_an_inconclusive_rerun_bars_no_better_one_of_its_publisher() -> None:
    thin = rerun("A", "a", outcome="inconclusive", launches=9, ended=day(9))
    assert counting(thin=thin, good=rerun("A", "a")) == {"good"}
    assert counting(thin=thin) == {"thin"}


def test_of_one_publisher_more_launches_count_before_newer_ones() -> None:
    few = rerun("A", "a", ended=day(5))
    many = rerun("A", "a", launches=5, outcome="contradicted")
    assert counting(few=few, many=many) == {"many"}
    assert counting(few=few, old=rerun("A", "b")) == {"few"}
    assert surplus({"few": few, "old": rerun("A", "b")}) == {
        "old": "its publisher is counted already, by run Aa"
    }


def test_t12_a_board_under_two_keys_counts_once_for_an_outcome() -> None:
    one, other = rerun("A", "ab"), rerun("B", "bc", ended=day(2))
    assert surplus({"one": one, "other": other}) == {"other": "its boards are counted already: b"}
    late = rerun("A", "ab", ended=day(3), witnessed=day(4))
    assert counting(late=late, other=other) == {"late"}
    first = rerun("B", "bc", ended=day(5), witnessed=day(3))
    assert counting(late=late, first=first) == {"first"}


def test_t12_who_claims_another_s_boards_takes_no_other_outcome_away() -> None:
    honest = rerun("A", "a", ended=day(2))
    claimed = rerun("M", "a", outcome="contradicted", witnessed=day(0))
    assert counting(honest=honest, claimed=claimed) == {"honest", "claimed"}


def test_t12_who_claims_many_boards_does_not_stand_in_the_place_of_several() -> None:
    claimed = rerun("M", "ab", witnessed=day(0))
    assert counting(claimed=claimed, a=rerun("A", "a"), b=rerun("B", "b")) == {"a", "b"}


RERUNS = st.builds(
    rerun,
    publisher=st.sampled_from("ABC"),
    boards=st.sampled_from(["a", "b", "ab", "bc", "d"]),
    outcome=st.sampled_from(["reproduced", "contradicted", "inconclusive"]),
    launches=st.integers(1, 3),
    ended=st.integers(0, 2).map(day),
    witnessed=st.none() | st.integers(3, 4).map(day),
)


@given(st.lists(RERUNS, max_size=6), st.randoms())
def test_whatever_is_told_in_any_order_the_same_counts_and_nothing_twice(
    told: list[Rerun], random: Any
) -> None:
    items = [(str(number), each) for number, each in enumerate(told)]
    why_not = surplus(dict(items))
    random.shuffle(items)
    assert surplus(dict(items)) == why_not
    counted = [each for name, each in items if name not in why_not]
    assert {each.publisher for each in counted} <= {each.publisher for each in told}
    assert len({each.publisher for each in counted}) == len(counted)
    for at, one in enumerate(counted):
        for other in counted[at + 1 :]:
            assert one.outcome != other.outcome or not one.boards & other.boards
    # Nothing goes without another for which it goes.
    assert bool(counted) == bool(told)
