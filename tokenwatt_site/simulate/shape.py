"""Shapes of a few dense models, as far as a simulated step needs them.

Small on purpose: no experts, no compressed or windowed attention, bf16 only. The numbers are those
of each model's published config.json.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenwatt_site.errors import Problem, UsageError

BYTES_PER_VALUE = 2
"""Of a weight and of a KV value: bf16."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense decoder with grouped KV heads and a gated feed-forward part.

    `tied`: one matrix is both input embedding and output. `head_norms`: queries and keys have a
    norm of their own. `max_context` is the longest sequence that the model takes.
    """

    name: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    max_context: int
    tied: bool = False
    head_norms: bool = False

    @property
    def parameters(self) -> int:
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        norms = 2 * self.hidden + (2 * self.head_size if self.head_norms else 0)
        layer = attention + 3 * self.hidden * self.intermediate + norms
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * layer + self.hidden

    @property
    def parameters_read(self) -> int:
        """Parameters that a step reads: all but an input embedding, of which it reads rows."""
        return self.parameters - (0 if self.tied else self.vocabulary * self.hidden)

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_size * BYTES_PER_VALUE

    @property
    def attention_flops_per_pair(self) -> int:
        """Scores and weighted values of one token over one token of its context."""
        return 4 * self.layers * self.heads * self.head_size


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("llama-3.1-8b", 128256, 4096, 14336, 32, 32, 8, 128, 131072),
        Shape("llama-3.1-70b", 128256, 8192, 28672, 80, 64, 8, 128, 131072),
        Shape("qwen3-8b", 151936, 4096, 12288, 36, 32, 8, 128, 40960, head_norms=True),
        Shape("smollm2-135m", 49152, 576, 1536, 30, 9, 3, 64, 8192, tied=True),
    )
}


def named(name: str) -> Shape:
    """Return a shape by its name.

    Raises:
        UsageError: there is none of that name; with those known.
    """
    if name not in SHAPES:
        known = f"one of {', '.join(SHAPES)}"
        raise UsageError(
            Problem("is no known model shape", field="--model", found=name, expected=known)
        )
    return SHAPES[name]
