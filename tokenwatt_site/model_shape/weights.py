"""What a decoder is made of: its weights by name, and what each layer keeps of a sequence.

A name is that of the module, from `layers.` on: what stands before it differs between files. So a
weight that a config implies, a tensor of a file and a pattern of a quantiser meet under one name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tokenwatt_site.model_shape.shape import AttentionLayers

Part: TypeAlias = Literal["embedding", "head", "dense", "expert"]


@dataclass(frozen=True, slots=True)
class Weight:
    """One matrix or vector, or `count` alike: those of the experts of a layer, under expert 0.

    Attributes:
        name: of its module.
        shape: rows are outputs, columns inputs.
        linear: whether it is the matrix of a linear layer, which is what quantisers take.
        value_bytes: of a value that is stored apart from the model's data type; None: in that.
        count: how many.
    """

    name: str
    shape: tuple[int, ...]
    linear: bool = False
    value_bytes: int | None = None
    count: int = 1

    @property
    def parameters(self) -> int:
        """Of all `count`."""
        values = self.count
        for size in self.shape:
            values *= size
        return values


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. `attention` has `layers` = 1; `experts` and `per_token` are 0 where none route."""

    weights: tuple[Weight, ...]
    attention: AttentionLayers | None
    experts: int = 0
    per_token: int = 0


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model as its config implies it.

    `draft_layers`: layers that files hold after the last one and a plain step does not read.
    """

    name: str
    vocabulary: int
    hidden: int
    max_context: int | None
    tied: bool
    layers: tuple[Layer, ...]
    draft_layers: int
    left_out: tuple[str, ...]

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All of them; a head that is the embedding stands as the head alone."""
        head = Weight("lm_head", (self.vocabulary, self.hidden), linear=True)
        embedding = Weight("embed_tokens", (self.vocabulary, self.hidden))
        ends = (head,) if self.tied else (embedding, head)
        layers = (weight for layer in self.layers for weight in layer.weights)
        return (*ends, *layers, vector("norm", self.hidden))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a weight belongs: see `ModelShape` for the parts and for the two shares of dense."""

    part: Part
    layer: int | None = None
    attention: bool = False
    replicated: bool = False


def linear(name: str, outputs: int, inputs: int, *, bias: bool = False) -> tuple[Weight, ...]:
    """Return the weights of a linear layer."""
    matrix = Weight(name, (outputs, inputs), linear=True)
    return (matrix, vector(f"{name}.bias", outputs)) if bias else (matrix,)


def vector(name: str, size: int, *, value_bytes: int | None = None) -> Weight:
    """Return a norm, a bias or the like."""
    return Weight(name, (size,), value_bytes=value_bytes)


_FRONT = re.compile(r"^(?:(?:model|language_model|text_model|backbone|transformer)[.?])+(?=.)")
_IN_LAYER = re.compile(r"layers\.(\d{1,9})\.(.+)", re.DOTALL)
_EMBEDDINGS = frozenset({"embed_tokens", "embeddings", "word_embeddings", "tok_embeddings"})
_NORMS = frozenset({"norm", "norm_f"})
_MIXER = frozenset(
    {
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("in_proj", "out_proj", "conv1d", "A_log", "D", "dt_bias", "norm"),
    }
)
_ROUTERS = frozenset({"gate", "router", "shared_expert_gate", "e_score_correction_bias"})
_LATENT = frozenset({"q_a_proj", "kv_a_proj_with_mqa", "indexer"})


def short_name(name: str) -> str:
    """Return `name`, of a module or a pattern, without what files put before `layers.`.

    MLX's name for all experts of a layer becomes that of the first.
    """
    return _FRONT.sub("", name).replace(".switch_mlp.", ".experts.0.")


def place(name: str) -> Place | None:
    """Return where the weight of this short name belongs; None: it is none of a decoder's.

    What every tensor rank holds whole follows what vLLM and SGLang do: norms, routers, the
    down-projections of a latent, and the selection of sparse attention.
    """
    inside = _IN_LAYER.fullmatch(name)
    if inside is None:
        top = name.split(".", 1)[0]
        if top in _EMBEDDINGS:
            return Place("embedding")
        if top == "lm_head":
            return Place("head")
        return Place("dense", replicated=True) if top in _NORMS else None
    layer = int(inside.group(1))
    pieces = inside.group(2).split(".")
    if "experts" in pieces:
        return Place("expert", layer)
    mixing = pieces[0] == "mixer" and len(pieces) > 1 and pieces[1] in _MIXER
    attention = mixing or pieces[0] in {"self_attn", "linear_attn"}
    norm = any("norm" in piece for piece in pieces) and not mixing
    replicated = norm or not {*pieces}.isdisjoint(_ROUTERS | _LATENT)
    return Place("dense", layer, attention, replicated)
