"""The stage of `topk` of short rows (the routing of experts): a row has 32 lanes, each of which has its elements in registers.

    lane l:   entries of elements l, l + 32, l + 64 …: order and position as one number (`passes/direct/keys.py`), all different
    round r:  the least of all lanes' entries is result r; whoever has it has it no more

Lane r keeps what round r finds, so that results are stored together.
"""

from __future__ import annotations

from functools import reduce

from mlir import ir

from ....dialects import dims
from ....dialects.families.sorting import takes_short_rows
from ....dialects.mlir_ops import attributes_of
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import TensorGraph
from ..block_reduce import shuffle_xor
from ..gpu_kernel import GpuKernel
from ..thread_values import ThreadValues
from .row_entries import NONE, RowEntries, operand_type

THREADS, LANES = 256, 32


def takes_rows(graph: TensorGraph, root: ir.Operation) -> bool:
    """True if `root` is a `topk` of sizes and a type that this stage is for."""
    return root.name == "lamina.topk" and takes_short_rows(operand_type(graph, root), attributes_of(root))


class TopRows:
    """The first `k` entries of rows, as a stage of `kernel`, which `takes_rows` holds for."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.root = kernel, root
        self.count = attributes_of(root)["k"]
        *front, length = operand_type(kernel.graph, root).shape
        assert isinstance(length, int)
        self.length, self.rows = length, dims.product(front)

    def emit(self) -> None:
        """Write the stage."""
        each = THREADS // LANES
        stage = self.stage = self.kernel.stage(THREADS, (dims.ceildiv(self.rows, each), 1, 1))
        b = self.b = stage.b
        thread = b.bind("thread", stage.thread())
        lane = b.bind("lane_in_row", b.dim(dims.mod(thread, LANES)))
        number = b.bind("number", b.dim(b.bind("block", stage.block()) * each + dims.floordiv(thread, LANES)))
        row = b.bind("row", b.dim(dims.dim_min(number, self.rows - 1)))  # all lanes of a wave take part
        ev = ThreadValues(stage, Ranges({"row": self.rows}), 1)
        self.held = RowEntries(ev, self.kernel.graph, self.root, row)
        none = b.constant(NONE, ir.IntegerType.get_signless(64))
        entries = [self._entry(lane + LANES * j, none) for j in range(-(-self.length // LANES))]

        def one(round: dims.Dim, carried: list[ir.Value]) -> list[ir.Value]:
            *left, mine = carried
            found = reduce(self._least, left)
            for k in range(LANES.bit_length() - 1):
                found = self._least(found, shuffle_xor(b, found, 1 << k))
            left = [self.b.select(b.compare("eq", e, found), none, e) for e in left]
            return [*left, self.b.select(b.compare("eq", lane, round), found, mine)]

        *_, mine = b.loop_carried("round", 0, self.count, [*entries, none], one)
        is_one = b.value("arith.andi", (b.compare("slt", number, self.rows), b.compare("slt", lane, self.count)), b.i1)
        b.branch(is_one, [], lambda: self.held.store(mine, row * self.count + lane))
        stage.finish()

    def _entry(self, at: dims.Dim, none: ir.Value) -> ir.Value:
        """The entry of this row's element `at`; `none` beyond its end."""
        place = self.b.bind_unique("at", self.b.dim(dims.dim_min(at, self.length - 1)))
        return self.b.select(self.b.compare("slt", at, self.length), self.held.entry(place), none)

    def _least(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.value("arith.minui", (x, y), x.type)
