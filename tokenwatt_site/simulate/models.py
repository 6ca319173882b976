"""The models that can be simulated: facts of their published configs, in bf16.

They are described as any model is; the roofline then takes those whose attention is grouped and
sees all of its context.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.errors import Problem, UsageError
from tokenwatt_site.model_shape import describe
from tokenwatt_site.model_shape.document import ModelDocument
from tokenwatt_site.model_shape.shape import ModelShape, StoredBytes


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """A model under the name by which it is asked for."""

    name: str
    shape: ModelShape
    stored: StoredBytes


def named(name: str) -> SimulatedModel:
    """Return a model by its name.

    Raises:
        UsageError: there is none of that name; with those known.
    """
    if name not in CONFIGS:
        known = f"one of {', '.join(CONFIGS)}"
        raise UsageError(
            Problem("is no known model shape", field="--model", found=name, expected=known)
        )
    return SimulatedModel(name, *describe(ModelDocument(CONFIGS[name])))


def _config(kind: str, vocabulary: int, hidden: int, layers: int, **more: int | bool) -> JsonValue:
    return {
        "model_type": kind,
        "torch_dtype": "bfloat16",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "tie_word_embeddings": False,
        **more,
    }


CONFIGS: dict[str, JsonValue] = {
    "llama-3.1-8b": _config(
        "llama",
        128256,
        4096,
        32,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
    ),
    "llama-3.1-70b": _config(
        "llama",
        128256,
        8192,
        80,
        intermediate_size=28672,
        num_attention_heads=64,
        num_key_value_heads=8,
        max_position_embeddings=131072,
    ),
    "qwen3-8b": _config(
        "qwen3",
        151936,
        4096,
        36,
        intermediate_size=12288,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
    ),
    "qwen3-30b-a3b": _config(
        "qwen3_moe",
        151936,
        2048,
        48,
        intermediate_size=6144,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=40960,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
    ),
    "smollm2-135m": _config(
        "llama",
        49152,
        576,
        30,
        intermediate_size=1536,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
}
