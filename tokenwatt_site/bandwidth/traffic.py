"""The bytes and the arithmetic that an engine's work in a window takes, by the model.

Bytes are concave in the batch: they are summed over short stretches and never taken at a mean.
"""

from __future__ import annotations

import math

from tokenwatt_site.bandwidth.step import (
    Layout,
    attention_flops,
    expert_bytes,
    fixed_bytes,
    row_bytes,
    sequence_bytes,
    weight_flops,
)
from tokenwatt_site.bandwidth.work import Work
from tokenwatt_site.model_shape.shape import ModelShape, StoredBytes


def traffic_bytes(
    work: Work, shape: ModelShape, stored: StoredBytes, kv_value_bytes: float, layout: Layout
) -> float:
    """Return the bytes that all boards must have read for this work; see `bandwidth`."""
    sequences = math.fsum(sequence_bytes(shape, kv_value_bytes, layout, c) for c in work.decoded)

    reads = work.reads_per_event  # an event that took several passes brought a part to each

    def experts(answers: float, prompt: int = 0) -> float:
        return expert_bytes(shape, stored, answers / reads + prompt)

    return math.fsum(
        (
            work.steps * fixed_bytes(stored, layout),
            *(s.passes * experts(s.tokens) for s in work.stretches),
            *(experts(p.beside, p.contexts.count) - experts(p.beside) for p in work.prompts),
            reads * sequences,
            (work.prompt_tokens + work.delivered) * row_bytes(shape, stored),
        )
    )


def traffic_flops(work: Work, shape: ModelShape) -> float:
    """Return the arithmetic of the tokens computed; drafts that were refused are not in it."""
    decoded = math.fsum(attention_flops(shape, contexts) for contexts in work.decoded)
    return math.fsum(
        (
            weight_flops(shape, work.prompt_tokens, work.delivered),
            *(attention_flops(shape, p.contexts, prompt=True) for p in work.prompts),
            decoded * work.tokens_per_event,
        )
    )
