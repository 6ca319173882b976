"""The decoders that are modelled, each from its own config.json.

A family is a function that returns one layer. It is found by `model_type`, else by the name of the
architecture; what a layer has follows from the keys that are there (a latent from `kv_lora_rank`,
whatever the model is called). All else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tokenwatt_site.model_shape import attention
from tokenwatt_site.model_shape.reader import Reader, refused
from tokenwatt_site.model_shape.weights import Layer, Weight, linear, vector

LayerOf: TypeAlias = Callable[[Reader, int, int], Layer]


def _llama(r: Reader, index: int, layers: int) -> Layer:
    biases = "qkvo" if r.flag("attention_bias") else ""
    return _dense_layer(r, index, layers, biases=biases, plain=lambda _: None)


def _mistral(r: Reader, index: int, layers: int) -> Layer:
    return _dense_layer(r, index, layers, plain=lambda _: _sliding(r))


def _qwen2(r: Reader, index: int, layers: int) -> Layer:
    return _dense_layer(r, index, layers, biases="qkv", plain=_late_window(r))


def _qwen3(r: Reader, index: int, layers: int) -> Layer:
    window = attention.window_of(r, index, layers, plain=_late_window(r))
    biases = "qkvo" if r.flag("attention_bias") else ""
    mixing = attention.grouped(
        r, _attention_name(index), window=window, biases=biases, head_norms=True
    )
    return _layer(r, index, mixing, *_qwen_mlp(r, index))


def _mixtral(r: Reader, index: int, layers: int) -> Layer:
    window = attention.window_of(r, index, layers, plain=lambda _: _sliding(r))
    moe = f"layers.{index}.block_sparse_moe"
    experts = r.whole("num_local_experts")
    routed = _routed(r, moe, experts, r.whole("intermediate_size"), names=("w1", "w3", "w2"))
    return _layer(
        r,
        index,
        attention.grouped(r, _attention_name(index), window=window),
        (*linear(f"{moe}.gate", experts, r.whole("hidden_size")), *routed),
        experts,
    )


def _minimax(r: Reader, index: int, layers: int) -> Layer:
    moe = f"layers.{index}.block_sparse_moe"
    experts, hidden = r.whole("num_local_experts"), r.whole("hidden_size")
    r.harmless("layernorm_full_attention_beta", "layernorm_linear_attention_beta")
    r.harmless("shared_moe_mode")  # of experts that are not there, see below
    window = attention.window_of(r, index, layers, plain=lambda _: None)
    r.one_of("qk_norm_type", ("per_layer",), "per_layer")
    if any(kind != 1 for kind in r.wholes("attn_type_list")):
        raise refused("attn_type_list", r.get("attn_type_list"), "full attention (1) everywhere")
    if r.whole("shared_intermediate_size", default=0, least=0):
        raise refused("shared_intermediate_size", r.get("shared_intermediate_size"), "0")
    routed = _routed(r, moe, experts, r.whole("intermediate_size"), names=("w1", "w3", "w2"))
    correction = vector(f"{moe}.e_score_correction_bias", experts, value_bytes=4)
    return _layer(
        r,
        index,
        attention.grouped(
            r, _attention_name(index), window=window, whole_norms=r.flag("use_qk_norm")
        ),
        (*linear(f"{moe}.gate", experts, hidden), correction, *routed),
        experts,
    )


def _deepseek(r: Reader, index: int, layers: int) -> Layer:
    if attention.window_of(r, index, layers, plain=lambda _: None) is not None:
        raise refused("layer_types", r.get("layer_types"), "full attention everywhere")
    mixing = attention.latent(r, _attention_name(index))
    dense_first = r.whole("first_k_dense_replace", default=0, least=0)
    every = r.whole("moe_layer_freq", default=1)
    r.harmless("n_group", "intermediate_size")
    mlp, hidden = f"layers.{index}.mlp", r.whole("hidden_size")
    if index < dense_first or index % every:
        return _layer(r, index, mixing, _gated(mlp, hidden, r.whole("intermediate_size")))
    experts, size = r.whole("n_routed_experts"), r.whole("moe_intermediate_size")
    shared = r.whole("n_shared_experts", default=0, least=0)
    # The router is no linear layer in the published code, so no quantiser takes it.
    weights = [Weight(f"{mlp}.gate", (experts, hidden))]
    if r.get("topk_method") == "noaux_tc":
        weights.append(vector(f"{mlp}.gate.e_score_correction_bias", experts, value_bytes=4))
    if shared:
        weights += _gated(f"{mlp}.shared_experts", hidden, shared * size)
    return _layer(r, index, mixing, (*weights, *_routed(r, mlp, experts, size)), experts)


def _gpt_oss(r: Reader, index: int, layers: int) -> Layer:
    window = attention.window_of(
        r, index, layers, plain=lambda i: None if i % 2 else r.whole("sliding_window")
    )
    biases = "qkvo" if r.flag("attention_bias", default=True) else ""
    mixing = attention.grouped(r, _attention_name(index), window=window, biases=biases, sinks=True)
    mlp, hidden, size = f"layers.{index}.mlp", r.whole("hidden_size"), r.whole("intermediate_size")
    experts = r.whole("num_local_experts")
    r.harmless("experts_per_token")
    weights = (
        *linear(f"{mlp}.router", experts, hidden, bias=True),
        Weight(f"{mlp}.experts.0.gate_up_proj", (2 * size, hidden), linear=True, count=experts),
        Weight(f"{mlp}.experts.0.gate_up_proj_bias", (2 * size,), count=experts),
        Weight(f"{mlp}.experts.0.down_proj", (hidden, size), linear=True, count=experts),
        Weight(f"{mlp}.experts.0.down_proj_bias", (hidden,), count=experts),
    )
    return _layer(r, index, mixing, weights, experts)


def _qwen3_next(r: Reader, index: int, layers: int) -> Layer:
    types = r.each_layer("layer_types", layers)
    if types is None:
        every = r.whole("full_attention_interval", default=4)
        kind = "linear_attention" if (index + 1) % every else "full_attention"
    else:
        r.harmless("full_attention_interval")
        kind = types[index]
    if kind == "linear_attention":
        mixing = attention.delta(r, f"layers.{index}.linear_attn")
    elif kind == "full_attention":
        biases = "qkvo" if r.flag("attention_bias") else ""
        gated = r.flag("attn_output_gate", default=True)
        mixing = attention.grouped(
            r, _attention_name(index), biases=biases, head_norms=True, gated=gated
        )
    else:
        raise refused(f"layer_types[{index}]", kind, "linear_attention or full_attention")
    if r.flag("use_sliding_window"):
        raise refused("use_sliding_window", True, "false")  # noqa: FBT003 - it is what was found
    return _layer(r, index, mixing, *_qwen_mlp(r, index))


def _llama4(r: Reader, index: int, layers: int) -> Layer:
    flags = r.wholes("no_rope_layers")
    if flags and len(flags) != layers:
        raise refused("no_rope_layers", list(flags), f"a list of {layers}")
    step = r.whole("no_rope_layer_interval", default=4)
    chunked = bool(flags[index]) if flags else (index + 1) % step != 0
    chunk = r.get("attention_chunk_size")
    window = attention.window_of(
        r,
        index,
        layers,
        plain=lambda _: r.whole("attention_chunk_size") if chunked and chunk is not None else None,
    )
    r.harmless("use_qk_norm")  # a norm without weights
    r.harmless("intermediate_size_mlp")  # where every layer routes
    biases = "qkvo" if r.flag("attention_bias") else ""
    mixing = attention.grouped(r, _attention_name(index), window=window, biases=biases)
    ffn, hidden = f"layers.{index}.feed_forward", r.whole("hidden_size")
    every = r.whole("interleave_moe_layer_step", default=1)
    listed = r.wholes("moe_layers")
    if (index in listed) if listed else (index + 1) % every == 0:
        experts, size = r.whole("num_local_experts"), r.whole("intermediate_size")
        weights = (
            *linear(f"{ffn}.router", experts, hidden),
            *_gated(f"{ffn}.shared_expert", hidden, size),
            *_routed(r, ffn, experts, size),
        )
        return _layer(r, index, mixing, weights, experts)
    return _layer(r, index, mixing, _gated(ffn, hidden, r.whole("intermediate_size_mlp")))


def _nemotron_h(r: Reader, index: int, layers: int) -> Layer:
    pattern = r.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) != layers:
        raise refused("hybrid_override_pattern", pattern, f"one letter for each of {layers} layers")
    name, hidden = f"layers.{index}.mixer", r.whole("hidden_size")
    norm = vector(f"layers.{index}.norm", hidden)
    bias = r.flag("mlp_bias")
    r.harmless("moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_group")
    r.harmless("head_dim", "attention_head_dim", "num_key_value_heads", "num_attention_heads")
    r.harmless("intermediate_size", "n_routed_experts", "n_shared_experts", "num_experts_per_tok")
    if r.get("sliding_window") is not None:
        raise refused("sliding_window", r.get("sliding_window"), "null")
    match pattern[index]:
        case "M":
            weights, mixing = attention.mamba2(r, name)
            return Layer((norm, *weights), mixing)
        case "*":
            biases = "qkvo" if r.flag("attention_bias") else ""
            weights, mixing = attention.grouped(
                r, name, biases=biases, head_size_key="attention_head_dim"
            )
            return Layer((norm, *weights), mixing)
        case "-":
            size = r.whole("intermediate_size")
            return Layer((norm, *_plain(name, hidden, size, bias=bias)), None)
        case "E":
            experts, size = r.whole("n_routed_experts"), r.whole("moe_intermediate_size")
            shared = r.whole("n_shared_experts", default=0, least=0)
            router = [
                Weight(f"{name}.gate", (experts, hidden)),
                vector(f"{name}.gate.e_score_correction_bias", experts, value_bytes=4),
            ]
            if shared:
                wide = shared * r.whole("moe_shared_expert_intermediate_size")
                router += _plain(f"{name}.shared_experts", hidden, wide, bias=bias)
            routed = _routed(r, name, experts, size, names=("up_proj", "down_proj"))
            per_token = _per_token(r, experts)
            return Layer((norm, *router, *routed), None, experts, per_token)
        case other:
            raise refused(
                f"hybrid_override_pattern[{index}]", other, "M, *, - or E, which are modelled"
            )


def _dense_layer(
    r: Reader, index: int, layers: int, *, plain: Callable[[int], int | None], biases: str = ""
) -> Layer:
    window = attention.window_of(r, index, layers, plain=plain)
    mixing = attention.grouped(r, _attention_name(index), window=window, biases=biases)
    return _layer(r, index, mixing, _dense_mlp(r, index))


def _dense_mlp(r: Reader, index: int) -> tuple[Weight, ...]:
    hidden, size = r.whole("hidden_size"), r.whole("intermediate_size")
    return _gated(f"layers.{index}.mlp", hidden, size, bias=r.flag("mlp_bias"))


def _qwen_mlp(r: Reader, index: int) -> tuple[tuple[Weight, ...], int]:
    """Return the feed-forward part, and how many experts it routes to: 0 where it is dense."""
    mlp, hidden = f"layers.{index}.mlp", r.whole("hidden_size")
    r.harmless("intermediate_size")
    experts = r.whole("num_experts", default=0, least=0)
    step = r.whole("decoder_sparse_step", default=1)
    if not experts or index in r.wholes("mlp_only_layers") or (index + 1) % step:
        return _dense_mlp(r, index), 0
    weights = [*linear(f"{mlp}.gate", experts, hidden)]
    shared = r.whole("shared_expert_intermediate_size", default=0, least=0)
    if shared:
        weights += _gated(f"{mlp}.shared_expert", hidden, shared)
        weights += linear(f"{mlp}.shared_expert_gate", 1, hidden)
    weights += _routed(r, mlp, experts, r.whole("moe_intermediate_size"))
    return tuple(weights), experts


def _layer(
    r: Reader,
    index: int,
    mixing: attention.Mixing,
    feed_forward: tuple[Weight, ...],
    experts: int = 0,
) -> Layer:
    hidden = r.whole("hidden_size")
    norms = (
        vector(f"layers.{index}.input_layernorm", hidden),
        vector(f"layers.{index}.post_attention_layernorm", hidden),
    )
    weights, kept = mixing
    per_token = _per_token(r, experts) if experts else 0
    return Layer((*norms, *weights, *feed_forward), kept, experts, per_token)


def _per_token(r: Reader, experts: int) -> int:
    per_token = r.whole("num_experts_per_tok")
    if per_token > experts:
        raise refused("num_experts_per_tok", per_token, f"at most the {experts} experts")
    return per_token


def _gated(name: str, hidden: int, size: int, *, bias: bool = False) -> tuple[Weight, ...]:
    return (
        *linear(f"{name}.gate_proj", size, hidden, bias=bias),
        *_plain(name, hidden, size, bias=bias),
    )


def _plain(name: str, hidden: int, size: int, *, bias: bool = False) -> tuple[Weight, ...]:
    up = linear(f"{name}.up_proj", size, hidden, bias=bias)
    return (*up, *linear(f"{name}.down_proj", hidden, size, bias=bias))


def _routed(
    r: Reader,
    name: str,
    experts: int,
    size: int,
    *,
    names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj"),
) -> tuple[Weight, ...]:
    """Return the experts; the last of `names` leads back to the width of the model."""
    hidden = r.whole("hidden_size")
    *into, back = names
    shapes = [(each, (size, hidden)) for each in into] + [(back, (hidden, size))]
    return tuple(
        Weight(f"{name}.experts.0.{each}", shape, linear=True, count=experts)
        for each, shape in shapes
    )


def _attention_name(index: int) -> str:
    return f"layers.{index}.self_attn"


def _sliding(r: Reader) -> int | None:
    return None if r.get("sliding_window") is None else r.whole("sliding_window")


def _late_window(r: Reader) -> Callable[[int], int | None]:
    def window(index: int) -> int | None:
        r.harmless("sliding_window")
        if not r.flag("use_sliding_window"):
            return None
        first = r.whole("max_window_layers", least=0)
        return r.whole("sliding_window") if index >= first else None

    return window


MODEL_TYPES: dict[str, LayerOf] = {
    "llama": _llama,
    "mistral": _mistral,
    "ministral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3,
    "qwen3_vl_text": _qwen3,
    "qwen3_vl_moe_text": _qwen3,
    "qwen3_next": _qwen3_next,
    "qwen3_5_text": _qwen3_next,
    "qwen3_5_moe_text": _qwen3_next,
    "mixtral": _mixtral,
    "minimax_m2": _minimax,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "deepseek_v32": _deepseek,
    "kimi_k2": _deepseek,
    "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    "nemotron_h": _nemotron_h,
}
ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "MixtralForCausalLM": "mixtral",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "GptOssForCausalLM": "gpt_oss",
    "NemotronHForCausalLM": "nemotron_h",
}
