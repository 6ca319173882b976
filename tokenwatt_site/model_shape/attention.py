"""How a layer remembers a sequence: its weights, and what it keeps and reads of the past.

Sizes are those of the published implementations. A state of fixed size is in fp32 where the config
does not say otherwise; the few last inputs that a convolution keeps beside it are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tokenwatt_site.model_shape.reader import Reader, refused
from tokenwatt_site.model_shape.shape import AttentionLayers
from tokenwatt_site.model_shape.weights import Weight, linear, vector

Mixing: TypeAlias = tuple[tuple[Weight, ...], AttentionLayers]

_STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def grouped(
    r: Reader,
    name: str,
    *,
    window: int | None = None,
    biases: str = "",
    head_norms: bool = False,
    whole_norms: bool = False,
    sinks: bool = False,
    gated: bool = False,
    head_size_key: str = "head_dim",
) -> Mixing:
    """Return attention with grouped heads: MHA, GQA and MQA.

    Args:
        r: the config.
        name: of the module.
        window: tokens seen back.
        biases: letters out of "qkvo" of the products that have one.
        head_norms: queries and keys have a norm of the size of a head.
        whole_norms: they have one over all heads.
        sinks: each head has a learned sink.
        gated: the output has a gate of the queries' size.
        head_size_key: under which the size of a head stands.
    """
    hidden, heads = r.whole("hidden_size"), r.whole("num_attention_heads")
    kv_heads = r.whole("num_key_value_heads", default=heads)
    size = r.whole(head_size_key, "head_dim", default=hidden // heads)
    queries, values = heads * size, kv_heads * size
    weights = [
        *linear(f"{name}.q_proj", queries * (1 + gated), hidden, bias="q" in biases),
        *linear(f"{name}.k_proj", values, hidden, bias="k" in biases),
        *linear(f"{name}.v_proj", values, hidden, bias="v" in biases),
        *linear(f"{name}.o_proj", hidden, queries, bias="o" in biases),
    ]
    if head_norms or whole_norms:
        weights.append(vector(f"{name}.q_norm", queries if whole_norms else size))
        weights.append(vector(f"{name}.k_norm", values if whole_norms else size))
    if sinks:
        weights.append(vector(f"{name}.sinks", heads))
    return tuple(weights), AttentionLayers(
        kind="grouped",
        layers=1,
        kv_values=2 * values,
        kv_heads=kv_heads,
        window=window,
        flops_per_pair=4 * queries,
    )


def latent(r: Reader, name: str) -> Mixing:
    """Return attention over a compressed latent (MLA), with a sparse selection where there is one.

    In decode heads read the latent itself, 2 x heads x (2 x rank + rope) flops. In a prompt they
    read keys and values made of it, which are narrower, unless a selection works on latents.
    """
    hidden, heads = r.whole("hidden_size"), r.whole("num_attention_heads")
    rank, rope = r.whole("kv_lora_rank"), r.whole("qk_rope_head_dim")
    plain, value = r.whole("qk_nope_head_dim"), r.whole("v_head_dim")
    r.harmless("num_key_value_heads", "qk_head_dim", "head_dim")
    queries = heads * (plain + rope)
    bias = "a" if r.flag("attention_bias") else ""
    query_rank = r.get("q_lora_rank")
    if query_rank is None:
        weights = [*linear(f"{name}.q_proj", queries, hidden)]
    else:
        query_rank = r.whole("q_lora_rank")
        weights = [
            *linear(f"{name}.q_a_proj", query_rank, hidden, bias=bool(bias)),
            vector(f"{name}.q_a_layernorm", query_rank),
            *linear(f"{name}.q_b_proj", queries, query_rank),
        ]
    weights += [
        *linear(f"{name}.kv_a_proj_with_mqa", rank + rope, hidden, bias=bool(bias)),
        vector(f"{name}.kv_a_layernorm", rank),
        *linear(f"{name}.kv_b_proj", heads * (plain + value), rank),
        *linear(f"{name}.o_proj", hidden, heads * value, bias=bool(bias)),
    ]
    top = index_size = None
    if r.get("index_topk") is not None:
        top, index_size = r.whole("index_topk"), r.whole("index_head_dim")
        index_heads = r.whole("index_n_heads")
        if query_rank is None:
            raise refused("q_lora_rank", None, "the rank that the indexer reads")
        weights += [
            *linear(f"{name}.indexer.wq_b", index_heads * index_size, query_rank),
            *linear(f"{name}.indexer.wk", index_size, hidden),
            vector(f"{name}.indexer.k_norm", index_size),
            vector(f"{name}.indexer.k_norm.bias", index_size),
            Weight(f"{name}.indexer.weights_proj", (index_heads, hidden)),
        ]
    return tuple(weights), AttentionLayers(
        kind="latent",
        layers=1,
        kv_values=rank + rope,
        kv_heads=1,
        index_values=index_size or 0,
        index_top=top,
        flops_per_pair=2 * heads * (2 * rank + rope),
        prompt_flops_per_pair=2 * heads * (plain + rope + value) if top is None else None,
    )


def delta(r: Reader, name: str) -> Mixing:
    """Return a gated DeltaNet layer: a state of value heads x key size x value size."""
    hidden = r.whole("hidden_size")
    key_heads, value_heads = r.whole("linear_num_key_heads"), r.whole("linear_num_value_heads")
    key_size, value_size = r.whole("linear_key_head_dim"), r.whole("linear_value_head_dim")
    keys, values = key_heads * key_size, value_heads * value_size
    mixed = 2 * keys + values
    weights = (
        *linear(f"{name}.in_proj_qkvz", mixed + values, hidden),
        *linear(f"{name}.in_proj_ba", 2 * value_heads, hidden),
        Weight(f"{name}.conv1d", (mixed, r.whole("linear_conv_kernel_dim"))),
        vector(f"{name}.A_log", value_heads),
        vector(f"{name}.dt_bias", value_heads),
        vector(f"{name}.norm", value_size),
        *linear(f"{name}.out_proj", hidden, values),
    )
    state = value_heads * key_size * value_size
    return weights, _state(state, r.one_of("mamba_ssm_dtype", _STATE_BYTES, "float32"))


def mamba2(r: Reader, name: str) -> Mixing:
    """Return a Mamba2 layer: a state of heads x size of a head x size of the state."""
    hidden, heads = r.whole("hidden_size"), r.whole("mamba_num_heads")
    size, state = r.whole("mamba_head_dim"), r.whole("ssm_state_size")
    inner, bias = heads * size, r.flag("use_bias") or r.flag("mamba_proj_bias")
    mixed = inner + 2 * r.whole("n_groups") * state
    r.harmless("time_step_rank")
    weights = [
        *linear(f"{name}.in_proj", inner + mixed + heads, hidden, bias=bias),
        Weight(f"{name}.conv1d", (mixed, r.whole("conv_kernel"))),
        vector(f"{name}.A_log", heads),
        vector(f"{name}.D", heads),
        vector(f"{name}.dt_bias", heads),
        vector(f"{name}.norm", inner),
        *linear(f"{name}.out_proj", hidden, inner, bias=bias),
    ]
    if r.flag("use_conv_bias", default=True):
        weights.append(vector(f"{name}.conv1d.bias", mixed))
    dtype = r.one_of("mamba_ssm_cache_dtype", _STATE_BYTES, "float32")
    return tuple(weights), _state(heads * size * state, dtype)


def window_of(
    r: Reader, index: int, layers: int, *, plain: Callable[[int], int | None]
) -> int | None:
    """Return how far layer `index` sees back, None: all of it.

    Args:
        r: the config.
        index: from 0.
        layers: of the model.
        plain: the window of a layer where the config has no list of layer types.

    Raises:
        InputError: a type of layer that is not known.
    """
    types = r.each_layer("layer_types", layers)
    if types is None:
        return plain(index)
    match types[index]:
        case "full_attention":
            return None
        case "sliding_attention":
            return r.whole("sliding_window")
        case "chunked_attention":
            return r.whole("attention_chunk_size")
        case other:
            raise refused(f"layer_types[{index}]", other, "a type of layer that is modelled here")


def _state(values: int, dtype: str) -> AttentionLayers:
    return AttentionLayers(
        kind="linear",
        layers=1,
        kv_values=0,
        kv_heads=0,
        state_values=values,
        state_value_bytes=_STATE_BYTES[dtype],
    )
