"""Convolution with channels last and packed weights: rows are output positions, columns output channels; nothing is turned.

    y[p, o] = sum_{t, c} x[p * stride - padding + t * dilation, c] * packed[(t, c), o]

It is a `packed_conv` of one channel whose last window spans the channels of the image. What a tap reads, or a line of taps,
lies side by side in memory: K is walked in such runs, or in parts of one.
"""

from __future__ import annotations

from mlir import ir

from .code import Index, delinearize
from .conv_problem import ConvProblem
from .epilogue import Epilogue
from .frame import Frame
from .gemm import Gemm, Item
from .micro import Panel, Rows, Tile, multiply
from .packed_conv import PackedConv
from .patch import Patch

LINES = 64  # of K in a block, about: 8 kB of a panel. On a Zen 5 3 x 3 is no faster by 96, 128 or 192, by which its errors double
FEWEST_LINES = LINES // 2


class PackedLastConv(PackedConv):
    """One kernel as a product per image: (positions) x (taps, channels in) x (channels out)."""

    def __init__(self, frame: Frame, problem: ConvProblem, tile: Tile):
        p, row, channels = problem, problem.windows[-2], problem.windows[-1]
        self.joined = row.dilation == 1
        self.run = channels.kernel * (row.kernel if self.joined else 1)
        super().__init__(frame, problem, tile)
        self.keeps = self.blocked
        strides = self.places.strides if self.packs or p.x_view is None else p.x_view.strides[2:-1]
        self.places.next_column = self.code.mul(self.code.size(strides[-1]), row.stride)
        self.channel = 1
        lead = (p.batch, *(w.out for w in p.spatial))
        self.epilogue = Epilogue(frame, p.root, p.dtype, self.tile, lead, (p.out_channels,), p.bias, len(lead))

    def reads_image(self) -> bool:
        view, channels = self.problem.x_view, self.problem.windows[-1].kernel
        if view is None or view.strides[-1] != 1 or not super().reads_image():
            return False
        return self.run == channels or view.strides[-2] == channels

    def depth(self, patch: Patch, positions: int) -> dict[str, int]:
        """Blocks of whole runs, or such as divide a run."""
        if self.run <= LINES:
            return {"k_block": LINES // self.run * self.run, "k_unit": self.run}
        parts = [n for n in range(1, self.run + 1) if self.run % n == 0 and self.run // n >= FEWEST_LINES]
        return {"k_block": min((self.run // n for n in parts), key=lambda lines: abs(lines - LINES))}

    def emit(self) -> None:
        self.starts = self.code.scratch(self.row_block, self.code.index, 8)
        Gemm.emit(self)

    def multiply(
        self, tile: Tile, rows: Rows, b: Panel, low: Index, high: Index, acc: list[ir.Value]
    ) -> list[ir.Value]:
        code, run = self.code, self.run
        outer = [w.kernel for w in (self.problem.windows[:-2] if self.joined else self.problem.windows[:-1])]
        within = [0] * (len(self.problem.windows) - len(outer))

        def part(number: Index, low: Index, high: Index, *now: ir.Value) -> list[ir.Value]:
            """`now` plus lines `low .. high`, which are in the run of a number."""
            taps = [*(delinearize(code, number, outer) if outer else []), *within]
            behind = code.sub(self.places.tap(taps), code.mul(number, run))
            moved = Rows(rows.buffer, [code.add(start, behind) for start in rows.starts])
            return multiply(code, tile, moved, b, low, high, now)

        if self.k_block % run:
            return part(code.div(low, run), low, high, *acc)
        whole = lambda r, *now: part(r, code.mul(r, run), code.mul(code.add(r, 1), run), *now)
        return code.loop(code.div(low, run), code.div(high, run), 1, acc, whole)

    def lead_index(self, item: Item, m: Index) -> list[Index]:
        return [*item.batch, *delinearize(self.code, m, [w.out for w in self.problem.spatial])]

    def write(self, item: Item) -> None:
        Gemm.write(self, item)
