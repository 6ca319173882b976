"""How long a step takes: the roofline of named boards under a named model.

step = max(bytes / bandwidth, flops / peak) + a fixed time. Bytes: the weights once, of experts as
many as the step's tokens are expected to choose, and the KV of every sequence in the step once.
Flops: 2 per parameter and token, and attention. Several boards share both without loss (ideal
tensor parallelism); nothing overlaps with the fixed time.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property

from tokenwatt_site import accelerators
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.simulate.models import SimulatedModel

FIXED_NS = 1_000_000
"""Scheduling, launches and sampling of a step; our assumption, none of a data sheet."""

KV_VALUE_BYTES = 2
"""Of a KV value: bf16."""

KV_SHARE = 0.9
"""The share of the memory that weights and KV may fill."""

_SECOND = 10**9
_PACE_UNIT = 1_000_000
_PACE_SIGMA = 0.01


@dataclass(frozen=True, slots=True)
class Boards:
    """`count` equal boards: figures of one, dense BF16 for `peak_flop_s`."""

    name: str
    count: int
    memory_bytes: int
    bandwidth_bytes_s: int
    peak_flop_s: int


def boards(name: str, count: int) -> Boards:
    """Return `count` boards of a row of the accelerator table, by its name or a driver's.

    Raises:
        UsageError: no such row, or one without a figure that the roofline needs; with those known.
    """
    known = {row.name: row for row in accelerators.rows() if row.bf16_tflop_s is not None}
    row = accelerators.find(name) or accelerators.named(name)
    if row is None or row.bf16_tflop_s is None:
        what = "is no known accelerator" if row is None else "has no known peak in bf16"
        raise UsageError(
            Problem(what, field="--accelerator", found=name, expected=f"one of {', '.join(known)}")
        )
    if count < 1:
        raise UsageError(
            Problem("is no count", field="--count", found=str(count), expected="1 or more")
        )
    return Boards(
        name=row.name,
        count=count,
        memory_bytes=row.memory_gib << 30,
        bandwidth_bytes_s=round(row.rated_bandwidth_gb_s * 1e9),
        peak_flop_s=round(row.bf16_tflop_s * 1e12),
    )


@dataclass(frozen=True)
class Roofline:
    """Prices of a step of `model` on `boards`.

    `seed` draws the pace of this launch, by which every step is longer or shorter: launches of one
    engine differ by about 1%. None is a pace of 1.
    """

    model: SimulatedModel
    boards: Boards
    fixed_ns: int = FIXED_NS
    seed: int | None = None

    @cached_property
    def pace(self) -> int:
        """The factor on every step, in 1e-6."""
        if self.seed is None:
            return _PACE_UNIT
        drawn = random.Random(self.seed).gauss(0, _PACE_SIGMA)  # noqa: S311 - no secret
        return round(_PACE_UNIT * math.exp(drawn))

    @cached_property
    def _dense_bytes(self) -> int:
        return round(self.model.stored.head + self.model.stored.dense)

    @cached_property
    def _kv_token_bytes(self) -> int:
        return KV_VALUE_BYTES * sum(a.layers * a.kv_values for a in self.model.shape.attention)

    @cached_property
    def _flops(self) -> tuple[int, int]:
        """Flops of a token, and of one over one token of its context."""
        shape = self.model.shape
        return 2 * shape.active, sum(a.layers * a.flops_per_pair for a in shape.attention)

    @cached_property
    def _all_bytes(self) -> int:
        return round(self.model.stored.total(self.model.shape))

    @property
    def weights_gib(self) -> float:
        return self._all_bytes / 2**30

    def weight_bytes(self, tokens: int) -> int:
        """Return the bytes of weights that a step over `tokens` reads.

        Of E experts of a layer, of which a token takes k, T independent tokens are expected to take
        E (1 - (1 - k/E)^T) distinct ones.
        """
        routed = 0.0
        for group, each in zip(self.model.shape.experts, self.model.stored.expert, strict=True):
            idle = (1 - group.per_token / group.experts) ** tokens
            routed += group.layers * group.experts * (1 - idle) * each
        return self._dense_bytes + round(routed)

    @property
    def kv_tokens(self) -> int:
        """Tokens whose KV fits beside the weights; 0 or less where the weights do not fit."""
        memory = math.floor(self.boards.count * self.boards.memory_bytes * KV_SHARE)
        return (memory - self._all_bytes) // self._kv_token_bytes

    def step_ns(self, tokens: int, read: int, pairs: int) -> int:
        """Return how long a step takes, rounded up to whole ns.

        Args:
            tokens: computed in the step, over all its sequences.
            read: tokens whose KV is read: the contexts of its sequences, added up.
            pairs: over the computed tokens, the context that each attends to, added up.
        """
        busy_ns = max(self.busy_ns(tokens, read, pairs))
        return -(-(busy_ns + self.fixed_ns) * self.pace // _PACE_UNIT)

    def busy_ns(self, tokens: int, read: int, pairs: int) -> tuple[int, int]:
        """Return how long memory and arithmetic take, at full rate; arguments as of `step_ns`."""
        count = self.boards.count
        flops_a_token, flops_a_pair = self._flops
        moved = self.weight_bytes(tokens) + self._kv_token_bytes * read
        flops = flops_a_token * tokens + flops_a_pair * pairs
        moving_ns = -(-moved * _SECOND // (self.boards.bandwidth_bytes_s * count))
        computing_ns = -(-flops * _SECOND // (self.boards.peak_flop_s * count))
        return moving_ns, computing_ns
