"""What the boards of a setup could do at most: by their data sheet, and by bus × clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenwatt_site import accelerators
from tokenwatt_site.bandwidth.step import NoFigure
from tokenwatt_site.evidence.power import Board
from tokenwatt_site.model_shape.shape import ModelShape, StoredBytes
from tokenwatt_site.spec import NOT_RECORDED, Setup

MAX_OF_RATED = 1.05
"""Where bus × clock is not known: data sheets are rounded, and boards run a little above them."""

SHEETS_AGREE_WITHIN = 0.01


@dataclass(frozen=True, slots=True)
class Limits:
    """Of all boards of a setup together. `boards`: as their driver told of them; may be empty."""

    setup: Setup
    boards: tuple[Board, ...]

    def rated_bytes_s(self) -> float:
        """Return what the memory is sold as: as the setup says, else by the table.

        Raises:
            NoFigure: neither tells, or there is no board.
        """
        board = self.setup.accelerator
        self._require_boards()
        rated = board.rated_bandwidth_gb_s
        if rated == NOT_RECORDED:
            row = self._row()
            if row is None:
                raise NoFigure(
                    f"no rated bandwidth is known of {board.model}"
                    " (accelerator.rated_bandwidth_gb_s is not recorded)"
                )
            rated = row.rated_bandwidth_gb_s
        return board.count * rated * 1e9

    def bus_bytes_s(self) -> float:
        """Return bus × clock.

        Raises:
            NoFigure: a board did not tell it, or other boards were read than the setup has.
        """
        self._require_boards()
        if not self.boards:
            raise NoFigure("no driver told width and clock of the boards' memory buses")
        if len(self.boards) != self.setup.accelerator.count:
            raise NoFigure(
                f"{len(self.boards)} boards were read, the setup has {self.setup.accelerator.count}"
            )
        carried = [board.bus_bytes_s for board in self.boards if board.bus_bytes_s is not None]
        if len(carried) < len(self.boards):
            raise NoFigure("the driver does not tell width and clock of every board's memory bus")
        return float(sum(carried))

    def peak_flop_s(self) -> float:
        """Return the dense peak in bf16, never the one for sparse matrices.

        Raises:
            NoFigure: the table does not have it.
        """
        self._require_boards()
        row = self._row()
        if row is None or row.bf16_tflop_s is None:
            raise NoFigure(f"no dense peak is known of {self.setup.accelerator.model}")
        return self.setup.accelerator.count * row.bf16_tflop_s * 1e12

    def above_memory(self, bytes_s: float) -> str | None:
        """Say in words by how much this is more than the memory can do; None: it is not."""
        for limit, name, most in (
            (self.bus_bytes_s, "bus × clock", 1.0),
            (self.rated_bytes_s, "the rated bandwidth", MAX_OF_RATED),
        ):
            try:
                share = bytes_s / limit()
            except NoFigure:
                continue
            return f"{100 * share:.1f}% of {name}" if share > most else None
        return None

    def other_than_sold(self) -> str | None:
        """Say in words where the setup's rated bandwidth is not the table's."""
        row, rated = self._row(), self.setup.accelerator.rated_bandwidth_gb_s
        if row is None or rated == NOT_RECORDED:
            return None
        if abs(rated / row.rated_bandwidth_gb_s - 1) <= SHEETS_AGREE_WITHIN:
            return None
        return (
            f"the setup says {rated:,g} GB/s for each board, its data sheet"
            f" {row.rated_bandwidth_gb_s:,g} ({row.name})"
        )

    def _require_boards(self) -> None:
        if self.setup.is_cpu or self.setup.accelerator.count == 0:
            raise NoFigure("there is no accelerator, and nothing is rated of a processor here")

    def _row(self) -> accelerators.AcceleratorRow | None:
        model = self.setup.accelerator.model
        return accelerators.named(model) or accelerators.find(model)


def peak_multiple(shape: ModelShape, stored: StoredBytes) -> int:
    """Return how many times its bf16 peak a board may do on weights as narrow as these.

    Half the width, twice the peak: a board may have such units, and the table does not say.
    """
    widths = [stored.dense / shape.dense] if shape.dense else []
    widths += [
        each / group.parameters for group, each in zip(shape.experts, stored.expert, strict=True)
    ]
    narrowest = min(widths, default=2.0)
    return 1 if narrowest > 1.5 else 2 if narrowest > 0.75 else 4


def gpu_boards(logs: Sequence[tuple[Board, ...]]) -> tuple[Board, ...]:
    """Return the boards of the first log whose driver told of a memory bus, else none."""
    return next((boards for boards in logs if any(b.bus_bytes_s for b in boards)), ())
