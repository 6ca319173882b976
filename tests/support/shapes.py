"""Shapes of published models, written by hand from their config.json, and their bytes in bf16."""

from __future__ import annotations

from dataclasses import replace

from tokenwatt_site.model_shape.shape import AttentionLayers, ExpertLayers, ModelShape, StoredBytes


def in_bf16(shape: ModelShape) -> StoredBytes:
    """Return the bytes of a shape whose every parameter takes two."""
    return StoredBytes(
        source="config",
        embedding=0.0 if shape.tied else 2.0 * shape.embedding,
        head=2.0 * shape.head,
        dense=2.0 * shape.dense,
        attention=2.0 * shape.attention_parameters,
        replicated=2.0 * shape.replicated,
        expert=tuple(2.0 * group.parameters for group in shape.experts),
        kv_value=2.0,
    )


def _shape(
    name: str,
    matrix: tuple[int, int],
    attention: tuple[AttentionLayers, ...],
    experts: tuple[ExpertLayers, ...],
    parameters: int,
) -> ModelShape:
    """Return an untied shape: `matrix` is the output's; `dense` is what is left of all."""
    vocabulary, hidden = matrix
    routed = sum(e.layers * e.experts * e.parameters for e in experts)
    return ModelShape(
        name=name,
        vocabulary=vocabulary,
        hidden=hidden,
        layers=sum(group.layers for group in attention),
        max_context=None,
        attention=attention,
        experts=experts,
        embedding=vocabulary * hidden,
        head=vocabulary * hidden,
        tied=False,
        dense=parameters - 2 * vocabulary * hidden - routed,
        attention_parameters=0,
        replicated=0,
    )


LLAMA_8B = _shape(
    "llama",
    (128_256, 4096),
    (AttentionLayers("grouped", 32, 2 * 8 * 128, 8, flops_per_pair=4 * 32 * 128),),
    (),
    8_030_261_248,
)
QWEN3_30B = _shape(
    "qwen3_moe",
    (151_936, 2048),
    (AttentionLayers("grouped", 48, 2 * 4 * 128, 4, flops_per_pair=4 * 32 * 128),),
    (ExpertLayers(48, 128, 8, 3 * 2048 * 768),),
    30_532_122_624,
)
DEEPSEEK_V3 = replace(
    _shape(
        "deepseek_v3",
        (129_280, 7168),
        (AttentionLayers("latent", 61, 512 + 64, 1, flops_per_pair=2 * 128 * (576 + 512)),),
        (ExpertLayers(58, 256, 8, 3 * 7168 * 2048),),
        671_026_419_200,
    ),
    # q_a, q_b, kv_a, kv_b and o of 61 layers; every rank holds q_a, kv_a and the 58 routers.
    attention_parameters=61
    * (7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 + 16384 * 7168),
    replicated=61 * (7168 * 1536 + 7168 * 576) + 58 * 256 * 7168,
)
GPT_OSS_120B = _shape(
    "gpt_oss",
    (201_088, 2880),
    (
        AttentionLayers("grouped", 18, 2 * 8 * 64, 8, window=128, flops_per_pair=4 * 64 * 64),
        AttentionLayers("grouped", 18, 2 * 8 * 64, 8, flops_per_pair=4 * 64 * 64),
    ),
    (ExpertLayers(36, 128, 4, 3 * 2880 * 2880 + 3 * 2880),),
    116_829_156_672,
)
