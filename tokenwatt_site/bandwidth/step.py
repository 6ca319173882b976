"""Bytes that a decode step reads, and its arithmetic, from the model's shape and its stored bytes.

Weights once per step; of routed experts those that its tokens reach; the KV cache of each sequence;
a fixed state read and written. What a step writes, activations, draft models and traffic between
boards are no part of it. Formulas after the roofline of "LLM inference performance engineering"
(Databricks) and S-MBU (MoE-CAP, arXiv 2412.07067).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenwatt_site.model_shape.shape import AttentionLayers, ModelShape, StoredBytes
from tokenwatt_site.spec import Parallelism

HBM2_J_PER_BIT = 3.9e-12
"""Of a read from HBM2 (O'Connor et al., MICRO-50, 2017): a reference and no proven bound."""


class NoFigure(Exception):
    """Why there is no number; the text is published as the reason."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How boards share the work.

    Attributes:
        replicas: engines that know nothing of each other.
        stages: of a pipeline, each at work on a batch of its own.
        ranks: data-parallel ones with a decoder each; only the routed experts are shared, so that
            they step together.
        tensor: ranks that compute one batch.
        copies: of the attention among these, each for its own sequences.
    """

    replicas: int = 1
    stages: int = 1
    ranks: int = 1
    tensor: int = 1
    copies: int = 1

    @property
    def batches(self) -> int:
        """Batches of sequences that are in work at one time."""
        return self.replicas * self.stages * self.ranks

    @property
    def head_ranks(self) -> int:
        """Ranks that share the heads of one sequence."""
        return self.tensor // self.copies


def layout_of(parallelism: Parallelism, boards: int) -> Layout:
    """Return how `boards` share the work; 0 boards are a CPU.

    Data-parallel ranks have boards of their own, with all weights but the routed experts on each;
    or they are among the tensor ranks, and only the attention is on each. The number of boards
    tells which.

    Raises:
        NoFigure: prefill and decode are apart, or these ranks do not make these boards.
    """
    p = parallelism
    if p.prefill_decode_split.casefold() != "none":
        raise NoFigure(
            "only one engine for prefill and decode is modelled"
            f" (parallelism.prefill_decode_split: {p.prefill_decode_split})"
        )
    ranks = p.tensor * p.pipeline
    own_boards = boards in (0, p.replicas * ranks * p.data)
    among_tensor_ranks = boards == p.replicas * ranks and p.tensor % p.data == 0
    if p.expert <= p.tensor * p.data and own_boards:
        return Layout(p.replicas, p.pipeline, p.data, p.tensor)
    if p.expert <= p.tensor and among_tensor_ranks:
        return Layout(p.replicas, p.pipeline, 1, p.tensor, p.data)
    raise NoFigure(
        f"how {boards} boards hold replicas: {p.replicas}, tensor: {p.tensor}, pipeline:"
        f" {p.pipeline}, expert: {p.expert}, data: {p.data} (parallelism) is not modelled"
    )


@dataclass(frozen=True, slots=True)
class Contexts:
    """Lengths of the sequences that were attended to: `count`, from `first`, each `step` longer."""

    first: float
    step: float = 0.0
    count: int = 1

    def total(self, cap: int | None = None) -> float:
        """Return their sum, of each no more than `cap`."""
        below = self.count
        if cap is not None and self.step > 0:
            below = min(self.count, max(0, math.floor((cap - self.first) / self.step) + 1))
        elif cap is not None and self.first > cap:
            below = 0
        whole = below * self.first + self.step * below * (below - 1) / 2
        return whole + (self.count - below) * (cap or 0)


def distinct_experts(experts: int, per_token: int, tokens: float) -> float:
    """Return how many of a layer's experts the tokens of one pass reach, as expected.

    E (1 - (1 - k/E)^T): exact where each is as likely as the other and tokens are independent;
    otherwise it is an upper bound (Jensen).
    """
    return experts * (1 - math.pow(max(0.0, 1 - per_token / experts), tokens))


def fixed_bytes(stored: StoredBytes, layout: Layout) -> float:
    """Return what a step of one batch reads at any number of tokens, over all its ranks.

    What every rank holds whole is taken to be attention's, where that has copies.
    """
    sliced = max(0.0, stored.attention - stored.replicated)
    return (
        stored.head
        + stored.dense
        + (layout.tensor - 1) * stored.replicated
        + (layout.copies - 1) * sliced
    )


def expert_bytes(shape: ModelShape, stored: StoredBytes, tokens: float) -> float:
    """Return what one pass of `tokens` reads of all routed experts, over all ranks."""
    return math.fsum(
        group.layers * distinct_experts(group.experts, group.per_token, tokens) * each
        for group, each in zip(shape.experts, stored.expert, strict=True)
    )


def sequence_bytes(
    shape: ModelShape, kv_value_bytes: float, layout: Layout, contexts: Contexts
) -> float:
    """Return what steps over one sequence of these lengths read of its own memory.

    The KV cache, once per step however many tokens that yields; where there are more ranks than KV
    heads, several read the same. And the fixed state, read and written.
    """
    return math.fsum(
        group.layers
        * (
            max(1.0, layout.head_ranks / max(1, group.kv_heads))
            * (
                kv_value_bytes * group.kv_values * contexts.total(seen(group))
                + group.index_bytes * contexts.total()
            )
            + 2 * group.state_values * group.state_value_bytes * contexts.count
        )
        for group in shape.attention
    )


def row_bytes(shape: ModelShape, stored: StoredBytes) -> float:
    """Return the bytes of one row of the input embedding, also where it is the head."""
    return (stored.embedding or stored.head) / shape.vocabulary


def attention_flops(shape: ModelShape, contexts: Contexts, *, prompt: bool = False) -> float:
    """Return the arithmetic of one token over each of these contexts; `prompt`: of its tokens."""

    def per_pair(group: AttentionLayers) -> int:
        fewer = group.prompt_flops_per_pair if prompt else None
        return group.flops_per_pair if fewer is None else fewer

    return math.fsum(
        group.layers * per_pair(group) * contexts.total(seen(group)) for group in shape.attention
    )


def weight_flops(shape: ModelShape, prompt_tokens: float, output_tokens: float) -> float:
    """Return 2 per active parameter and token; prompts go through the output matrix once at most.

    That once is the first output token's.
    """
    return 2 * (shape.active * output_tokens + (shape.active - shape.head) * prompt_tokens)


def seen(group: AttentionLayers) -> int | None:
    """Return how many tokens of its context one token attends to at most; None: all."""
    return min((n for n in (group.window, group.index_top) if n is not None), default=None)
