from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokenwatt_site.simulate.blocks import BlockPool, blocks_for, chain, extend


@given(st.lists(st.integers(0, 3), max_size=70), st.lists(st.integers(0, 3), max_size=70))
def test_two_prompts_share_as_many_keys_as_whole_blocks_at_their_beginning(
    one: list[int], other: list[int]
) -> None:
    keys = [list(chain(tuple(tokens))) for tokens in (one, other)]
    assert [len(k) for k in keys] == [len(one) // 16, len(other) // 16]
    equal = sum(a == b for a, b in zip(*keys, strict=False))
    blocks = [end // 16 for end in range(16, min(len(one), len(other)) + 1, 16)]
    assert equal == sum(one[: b * 16] == other[: b * 16] for b in blocks)


def test_a_key_is_that_of_the_tokens_and_of_all_before_them() -> None:
    block = (1,) * 16
    assert list(chain(block * 2)) == [extend(0, block), extend(extend(0, block), block)]


def test_tokens_fill_blocks_and_a_part_of_one_is_one() -> None:
    assert [blocks_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_what_is_held_is_never_taken_and_what_is_idle_is_the_longest_unused_first() -> None:
    pool = BlockPool(3)
    for key in (1, 2, 3):
        assert pool.take((), 1)
        assert pool.share(key)
        pool.release([key], 0)
    assert pool.take([1], 0)
    assert pool.used == 1
    assert pool.take((), 1)  # in the place of 2
    assert [pool.hits([key]) for key in (1, 2, 3)] == [1, 0, 1]
    assert not pool.take((), 2)
    assert pool.used == 2
    assert not pool.take([3], 1)  # holding 3 would leave no place
    assert pool.hits([3]) == 1


def test_a_second_block_of_the_same_tokens_stays_its_holders_own() -> None:
    pool = BlockPool(4)
    assert pool.take((), 2)
    assert pool.share(7)
    assert not pool.share(7)
    pool.release([7], 1)
    assert pool.used == 0
    assert pool.hits([7]) == 1
