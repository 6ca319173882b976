"""Real safetensors files, written by hand, and what their tensors are for a few tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BITS = {"F32": 32, "BF16": 16, "F16": 16, "I32": 32, "U32": 32, "U8": 8, "F8_E4M3": 8, "I64": 64}

Tensors = dict[str, tuple[str, list[int]]]


def size_of(dtype: str, shape: list[int]) -> int:
    values = 1
    for each in shape:
        values *= each
    return values * BITS[dtype] // 8


def write(path: Path, tensors: Tensors, *, metadata: bool = True) -> None:
    """Write a file of zeros with these tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}} if metadata else {}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))


def attention(front: str, hidden: int, heads: int, kv: int, size: int) -> Tensors:
    return {
        f"{front}.q_proj.weight": ("BF16", [heads * size, hidden]),
        f"{front}.k_proj.weight": ("BF16", [kv * size, hidden]),
        f"{front}.v_proj.weight": ("BF16", [kv * size, hidden]),
        f"{front}.o_proj.weight": ("BF16", [hidden, heads * size]),
    }


def norms(front: str, hidden: int) -> Tensors:
    return {
        f"{front}.input_layernorm.weight": ("BF16", [hidden]),
        f"{front}.post_attention_layernorm.weight": ("BF16", [hidden]),
    }


def gated(front: str, hidden: int, size: int) -> Tensors:
    return {
        f"{front}.gate_proj.weight": ("BF16", [size, hidden]),
        f"{front}.up_proj.weight": ("BF16", [size, hidden]),
        f"{front}.down_proj.weight": ("BF16", [hidden, size]),
    }


def ends(front: str, vocabulary: int, hidden: int) -> Tensors:
    return {
        f"{front}.embed_tokens.weight": ("BF16", [vocabulary, hidden]),
        f"{front}.norm.weight": ("BF16", [hidden]),
        "lm_head.weight": ("BF16", [vocabulary, hidden]),
    }


LLAMA = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "max_position_embeddings": 512,
}


def llama() -> Tensors:
    found = ends("model", 256, 64)
    for n in range(2):
        layer = f"model.layers.{n}"
        found |= norms(layer, 64) | attention(f"{layer}.self_attn", 64, 4, 2, 16)
        found |= gated(f"{layer}.mlp", 64, 160)
    return found


DEEPSEEK = {
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "vocab_size": 512,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 128,
    "q_lora_rank": 128,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "intermediate_size": 384,
    "moe_intermediate_size": 128,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def _fp8(name: str, outputs: int, inputs: int) -> Tensors:
    blocks = [-(-outputs // 128), -(-inputs // 128)]
    return {
        f"{name}.weight": ("F8_E4M3", [outputs, inputs]),
        f"{name}.weight_scale_inv": ("F32", blocks),
    }


def _fp8_gated(front: str, size: int) -> Tensors:
    return {
        **_fp8(f"{front}.gate_proj", size, 256),
        **_fp8(f"{front}.up_proj", size, 256),
        **_fp8(f"{front}.down_proj", 256, size),
    }


def deepseek() -> Tensors:
    """Two layers, and a third that is the draft, with an embedding and a head of its own."""
    found = ends("model", 512, 256)
    for n in range(3):
        layer = f"model.layers.{n}"
        found |= norms(layer, 256)
        front = f"{layer}.self_attn"
        found |= _fp8(f"{front}.q_a_proj", 128, 256) | _fp8(f"{front}.q_b_proj", 192, 128)
        found |= _fp8(f"{front}.kv_a_proj_with_mqa", 144, 256)
        found |= _fp8(f"{front}.kv_b_proj", 256, 128) | _fp8(f"{front}.o_proj", 256, 128)
        found[f"{front}.q_a_layernorm.weight"] = ("BF16", [128])
        found[f"{front}.kv_a_layernorm.weight"] = ("BF16", [128])
        if n == 0:
            found |= _fp8_gated(f"{layer}.mlp", 384)
            continue
        found[f"{layer}.mlp.gate.weight"] = ("BF16", [4, 256])
        found[f"{layer}.mlp.gate.e_score_correction_bias"] = ("F32", [4])
        found |= _fp8_gated(f"{layer}.mlp.shared_experts", 128)
        for e in range(4):
            found |= _fp8_gated(f"{layer}.mlp.experts.{e}", 128)
    found["model.layers.2.embed_tokens.weight"] = ("BF16", [512, 256])
    found["model.layers.2.shared_head.head.weight"] = ("BF16", [512, 256])
    found["model.layers.2.eh_proj.weight"] = ("BF16", [256, 512])
    return found


GPT_OSS = {
    "model_type": "gpt_oss",
    "vocab_size": 128,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 16,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
    },
}


def gpt_oss() -> Tensors:
    found = ends("model", 128, 64)
    for n in range(2):
        layer = f"model.layers.{n}"
        front = f"{layer}.self_attn"
        found |= norms(layer, 64) | attention(front, 64, 4, 2, 32)
        for each, size in (("q", 128), ("k", 64), ("v", 64), ("o", 64)):
            found[f"{front}.{each}_proj.bias"] = ("BF16", [size])
        found[f"{front}.sinks"] = ("BF16", [4])
        mlp = f"{layer}.mlp"
        found[f"{mlp}.router.weight"] = ("BF16", [4, 64])
        found[f"{mlp}.router.bias"] = ("BF16", [4])
        for each, outputs, inputs in (("gate_up_proj", 192, 64), ("down_proj", 64, 96)):
            found[f"{mlp}.experts.{each}_blocks"] = ("U8", [4, outputs, inputs // 32, 16])
            found[f"{mlp}.experts.{each}_scales"] = ("U8", [4, outputs, inputs // 32])
            found[f"{mlp}.experts.{each}_bias"] = ("BF16", [4, outputs])
    return found


QWEN35 = {
    "model_type": "qwen3_5_moe",
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "tie_word_embeddings": False,
    "vision_config": {"depth": 2},
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "dtype": "bfloat16",
        "vocab_size": 128,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "layer_types": ["linear_attention", "full_attention"],
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 8,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "mtp_num_hidden_layers": 1,
    },
}


def qwen35() -> Tensors:
    front = "model.language_model"
    found = ends(front, 128, 64)
    delta = f"{front}.layers.0.linear_attn"
    for name, shape in {
        "A_log": [4],
        "dt_bias": [4],
        "conv1d.weight": [64, 1, 4],
        "in_proj_a.weight": [4, 64],
        "in_proj_b.weight": [4, 64],
        "in_proj_qkv.weight": [64, 64],
        "in_proj_z.weight": [32, 64],
        "norm.weight": [8],
        "out_proj.weight": [64, 32],
    }.items():
        found[f"{delta}.{name}"] = ("BF16", shape)
    full = f"{front}.layers.1.self_attn"
    found |= attention(full, 64, 2, 1, 32)
    found[f"{full}.q_proj.weight"] = ("BF16", [128, 64])  # with the gate
    found[f"{full}.q_norm.weight"] = found[f"{full}.k_norm.weight"] = ("BF16", [32])
    for n in range(2):
        layer = f"{front}.layers.{n}"
        found |= norms(layer, 64)
        found[f"{layer}.mlp.gate.weight"] = ("BF16", [4, 64])
        found[f"{layer}.mlp.shared_expert_gate.weight"] = ("BF16", [1, 64])
        found |= gated(f"{layer}.mlp.shared_expert", 64, 32)
        found[f"{layer}.mlp.experts.gate_up_proj"] = ("BF16", [4, 64, 64])
        found[f"{layer}.mlp.experts.down_proj"] = ("BF16", [4, 64, 32])
    found["model.visual.blocks.0.attn.qkv.weight"] = ("BF16", [48, 16])
    found["mtp.layers.0.mlp.gate.weight"] = ("BF16", [4, 64])
    return found


NEMOTRON = {
    "model_type": "nemotron_h",
    "torch_dtype": "bfloat16",
    "vocab_size": 128,
    "hidden_size": 64,
    "hybrid_override_pattern": "M*-E",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 8,
    "conv_kernel": 4,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 48,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
}


def nemotron() -> Tensors:
    found: Tensors = {
        "backbone.embeddings.weight": ("BF16", [128, 64]),
        "backbone.norm_f.weight": ("BF16", [64]),
        "lm_head.weight": ("BF16", [128, 64]),
    }
    for n in range(4):
        found[f"backbone.layers.{n}.norm.weight"] = ("BF16", [64])
    for name, shape in {
        "A_log": [4],
        "D": [4],
        "dt_bias": [4],
        "conv1d.weight": [96, 1, 4],
        "conv1d.bias": [96],
        "in_proj.weight": [164, 64],
        "norm.weight": [64],
        "out_proj.weight": [64, 64],
    }.items():
        found[f"backbone.layers.0.mixer.{name}"] = ("BF16", shape)
    found |= attention("backbone.layers.1.mixer", 64, 4, 2, 16)
    found["backbone.layers.2.mixer.up_proj.weight"] = ("BF16", [96, 64])
    found["backbone.layers.2.mixer.down_proj.weight"] = ("BF16", [64, 96])
    moe = "backbone.layers.3.mixer"
    found[f"{moe}.gate.weight"] = ("BF16", [4, 64])
    found[f"{moe}.gate.e_score_correction_bias"] = ("F32", [4])
    found[f"{moe}.shared_experts.up_proj.weight"] = ("BF16", [48, 64])
    found[f"{moe}.shared_experts.down_proj.weight"] = ("BF16", [64, 48])
    for e in range(4):
        found[f"{moe}.experts.{e}.up_proj.weight"] = ("BF16", [32, 64])
        found[f"{moe}.experts.{e}.down_proj.weight"] = ("BF16", [64, 32])
    return found


MLX = {
    **LLAMA,
    "tie_word_embeddings": True,
    "quantization": {"group_size": 32, "bits": 4},
    "quantization_config": {"group_size": 32, "bits": 4},
}


def mlx() -> Tensors:
    """Every matrix packed eight to a word, with a scale and a bias for 32 values; no head."""
    found: Tensors = {}
    for name, (dtype, shape) in llama().items():
        if name == "lm_head.weight":
            continue
        if len(shape) == 1:
            found[name] = (dtype, shape)
            continue
        rows, columns = shape
        found[name] = ("U32", [rows, columns // 8])
        for beside in ("scales", "biases"):
            found[f"{name.removesuffix('weight')}{beside}"] = ("BF16", [rows, columns // 32])
    return found


FAMILIES: dict[str, tuple[dict[str, Any], Tensors]] = {
    "llama": (LLAMA, llama()),
    "deepseek, fp8": (DEEPSEEK, deepseek()),
    "gpt-oss, mxfp4": (GPT_OSS, gpt_oss()),
    "qwen3.5 with images": (QWEN35, qwen35()),
    "nemotron-h": (NEMOTRON, nemotron()),
    "mlx, 4 bits": (MLX, mlx()),
}
