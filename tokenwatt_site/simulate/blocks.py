"""KV memory in blocks, and the prefixes of prompts that are still in it.

A block is held by one sequence, or, once it is full and its content known by a key, shared by all
that begin with the same tokens. A shared block that nobody holds stays until its place is needed,
the one longest unused first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

BLOCK_TOKENS = 16


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


def extend(key: int, tokens: tuple[int, ...]) -> int:
    """Return the key of a block of these tokens after the block of `key`; 0 is before the first.

    Python's hash of integers is the same in every process, of 61 bits: no collision to expect.
    """
    return hash((key, tokens))


def chain(tokens: Sequence[int]) -> Iterator[int]:
    """Yield the keys of the full blocks of a prompt."""
    key = 0
    for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        key = extend(key, tuple(tokens[start : start + BLOCK_TOKENS]))
        yield key


class BlockPool:
    """Counts blocks; which place in memory a block has does not matter here.

    Attributes:
        total: blocks that there are.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._own = 0  # held by one sequence, without a key
        self._held: dict[int, int] = {}  # key to the number of holders
        self._idle: OrderedDict[int, None] = OrderedDict()  # longest unused first

    @property
    def used(self) -> int:
        """Blocks that some sequence holds."""
        return self._own + len(self._held)

    def hits(self, keys: Iterable[int]) -> int:
        """Return how many of these keys, from the first, are in memory."""
        count = 0
        for key in keys:
            if key not in self._held and key not in self._idle:
                break
            count += 1
        return count

    def take(self, keys: Sequence[int], fresh: int) -> bool:
        """Hold the shared blocks of `keys`, which are in memory, and `fresh` new ones; or neither.

        Returns whether there was room.
        """
        from_idle = sum(key in self._idle for key in keys)
        if self.used + from_idle + fresh > self.total:
            return False
        for key in keys:
            self._idle.pop(key, None)
            self._held[key] = self._held.get(key, 0) + 1
        self._own += fresh
        while self.used + len(self._idle) > self.total:
            self._idle.popitem(last=False)
        return True

    def share(self, key: int) -> bool:
        """Give a key to a block held alone, which is full now; False when another has that key."""
        if key in self._held or key in self._idle:
            return False
        self._own -= 1
        self._held[key] = 1
        return True

    def release(self, keys: Sequence[int], own: int) -> None:
        """Let go of a sequence's blocks: shared ones by their keys, and those without one."""
        self._own -= own
        for key in reversed(keys):  # the end of a prompt is the least likely to be asked again
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
                self._idle[key] = None
