"""How many bytes a matrix takes under each way of storing it, with its scales.

Formats: OCP MX (one byte of scale for 32 values), NVFP4 (one byte for 16 values, and one number
for the matrix), blocks of 128 x 128 with one fp32 scale (DeepSeek), groups along the inputs with a
scale and a zero point (GPTQ, AWQ, MLX).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to store the matrix of a linear layer.

    Attributes:
        name: for messages.
        bits: of a weight.
        rows: that share a scale; 0: all.
        columns: that share a scale; 0: all.
        scale_bytes: of each scale, with its zero point.
        matrix_bytes: for the matrix as a whole.
        input_bytes: for each column.
    """

    name: str
    bits: int
    rows: int
    columns: int
    scale_bytes: float
    matrix_bytes: int = 0
    input_bytes: int = 0

    def bytes_of(self, shape: tuple[int, ...]) -> float:
        """Return the bytes of a matrix of `shape`, (outputs, inputs)."""
        outputs, inputs = shape
        rows = 1 if self.rows == 0 else -(-outputs // self.rows)
        columns = 1 if self.columns == 0 else -(-inputs // self.columns)
        scales = rows * columns * self.scale_bytes + inputs * self.input_bytes
        return outputs * inputs * self.bits / 8 + scales + self.matrix_bytes


def tensor_fp8(*, static: bool) -> Scheme:
    """FP8 with one fp32 scale for the matrix, and one for its inputs where these are static."""
    return Scheme("fp8", 8, 0, 0, 4, matrix_bytes=4 if static else 0)


def channel(bits: int, scale_bytes: float) -> Scheme:
    """One scale for each output."""
    return Scheme(f"{bits} bits by channel", bits, 1, 0, scale_bytes)


def block_fp8(rows: int, columns: int, scale_bytes: float = 4) -> Scheme:
    """FP8 with one scale for a block."""
    return Scheme(f"fp8 in blocks of {rows} x {columns}", 8, rows, columns, scale_bytes)


def grouped(bits: int, group: int, scale_bytes: float, *, input_bytes: int = 0) -> Scheme:
    """Groups of `group` inputs of one output, each with a scale; 0: one group."""
    name = f"{bits} bits in groups of {group}"
    return Scheme(name, bits, 1, group, scale_bytes, input_bytes=input_bytes)


MXFP4 = Scheme("mxfp4", 4, 1, 32, 1)
MXFP8 = Scheme("mxfp8", 8, 1, 32, 1)
NVFP4 = Scheme("nvfp4", 4, 1, 16, 1, matrix_bytes=8)
"""Its two fp32 numbers are the scale of the matrix and that of its inputs."""
