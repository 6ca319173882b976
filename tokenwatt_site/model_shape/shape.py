"""The shape of a decoder, as far as a decode step reads it, and the bytes it is stored in.

Layers that are alike stand together, so that formulas sum over a few groups. Draft layers, towers
for images or sound, and positions are no part of it; `left_out` names what a config has of these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

AttentionKind: TypeAlias = Literal["grouped", "latent", "linear"]


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """Layers that remember a sequence in the same way.

    Attributes:
        kind: grouped heads (MHA, GQA, MQA), a compressed latent (MLA), or a fixed state.
        layers: how many.
        kv_values: values kept per token and layer: 2 x heads x size; rank + rope of a latent; 0.
        kv_heads: heads that hold them; 1 for a latent, which every tensor rank holds whole.
        window: tokens that are seen back, None: all.
        index_values: values per token and layer that a sparse selection reads of all tokens; see
            `index_bytes`.
        index_top: tokens that it selects, None: no selection.
        state_values: values of the fixed state per sequence and layer, read and written each step.
        state_value_bytes: bytes of one of these.
        flops_per_pair: of one token over one token of its context, in one layer.
        prompt_flops_per_pair: the same within a prompt, where fewer do; None: as many.
    """

    kind: AttentionKind
    layers: int
    kv_values: int
    kv_heads: int
    window: int | None = None
    index_values: int = 0
    index_top: int | None = None
    state_values: int = 0
    state_value_bytes: int = 4
    flops_per_pair: int = 0
    prompt_flops_per_pair: int | None = None

    @property
    def index_bytes(self) -> int:
        """Bytes of `index_values`: engines keep these in fp8, with an fp32 scale for 128 of them.

        So whatever the type of the rest of the KV cache (vLLM's and SGLang's DeepSeek-V3.2).
        """
        return self.index_values + 4 * -(-self.index_values // 128)


@dataclass(frozen=True, slots=True)
class ExpertLayers:
    """Layers with routed experts; shared ones count as dense. `parameters` are of one expert."""

    layers: int
    experts: int
    per_token: int
    parameters: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder in numbers of parameters.

    Attributes:
        name: `model_type` of the config, with what tells its variant.
        vocabulary: rows of the embedding.
        hidden: width.
        layers: of the decoder.
        max_context: longest sequence, None: the config does not tell.
        attention: groups of layers; all layers with neither are feed-forward alone.
        experts: groups of layers with routed experts; empty for a dense model.
        embedding: parameters of the input embedding, of which a step reads rows.
        head: parameters of the output matrix, read whole each step, also where `tied`.
        tied: whether `head` is the input embedding itself.
        dense: all other parameters that every step reads: norms, attention, feed-forward, shared
            experts, routers.
        attention_parameters: those of `dense` that data-parallel attention holds once per rank.
        replicated: those of `dense` that every tensor rank holds whole.
        left_out: what the config has beside these, in words.
    """

    name: str
    vocabulary: int
    hidden: int
    layers: int
    max_context: int | None
    attention: tuple[AttentionLayers, ...]
    experts: tuple[ExpertLayers, ...]
    embedding: int
    head: int
    tied: bool
    dense: int
    attention_parameters: int
    replicated: int
    left_out: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """All of them, each matrix once."""
        routed = sum(e.layers * e.experts * e.parameters for e in self.experts)
        return self.embedding + (0 if self.tied else self.head) + self.dense + routed

    @property
    def active(self) -> int:
        """Parameters that one token is multiplied with: all but the embedding and idle experts.

        Model cards differ: that of gpt-oss-120b (5.13e9) counts in this way, that of DeepSeek-V3
        (37.55e9) adds the embedding.
        """
        routed = sum(e.layers * e.per_token * e.parameters for e in self.experts)
        return self.head + self.dense + routed


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes of the same parts as they lie in memory: weights with their scales.

    Attributes:
        source: what they come from.
        embedding: the input embedding; 0 where it is the head itself.
        head: the output matrix.
        dense: see `ModelShape.dense`.
        attention: see `ModelShape.attention_parameters`.
        replicated: see `ModelShape.replicated`.
        expert: of one expert, of each group of `ModelShape.experts`.
        offloaded: tables kept in host memory; in none of the others.
        kv_value: bytes of one value of the KV cache that the files ask for, None: they do not say.
    """

    source: Literal["safetensors headers", "config"]
    embedding: float
    head: float
    dense: float
    attention: float
    replicated: float
    expert: tuple[float, ...]
    offloaded: float = 0.0
    kv_value: float | None = None

    def total(self, shape: ModelShape) -> float:
        """Return the bytes of all weights, offloaded ones included."""
        routed = (
            e.layers * e.experts * each for e, each in zip(shape.experts, self.expert, strict=True)
        )
        return math.fsum((self.embedding, self.head, self.dense, self.offloaded, *routed))
