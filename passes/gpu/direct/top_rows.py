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
from ....dialects.record import TensorType
from ...direct.kernel import Scalars, root_result
from ...direct.keys import entry, entry_position
from ...linalg.ir_cache import IrCache
from ...linalg.scalar_core import Scalar
from ...loops.index_algebra import Ranges
from ...loops.kernel_functions import strings
from ...loops.tensor_graph import TensorGraph
from ..block_reduce import shuffle_xor
from ..conditions import less
from ..gpu_kernel import GpuKernel
from ..thread_values import ThreadValues

THREADS, LANES = 256, 32
NONE = -1  # an entry after all others


def takes_rows(graph: TensorGraph, root: ir.Operation) -> bool:
    """True if `root` is a `topk` of sizes and a type that this stage is for."""
    return root.name == "lamina.topk" and takes_short_rows(_type(graph, root), attributes_of(root))


class TopRows:
    """The first `k` entries of rows, as a stage of `kernel`, which `takes_rows` holds for."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.graph, self.root, self.x = kernel, kernel.graph, root, root.operands[0]
        attributes = attributes_of(root)
        self.count, self.largest = attributes["k"], bool(attributes["largest"])
        self.type = _type(kernel.graph, root)
        *self.front, length = self.type.shape
        assert isinstance(length, int)
        self.length = length
        self.rows = dims.product(self.front)

    def emit(self) -> None:
        """Write the stage."""
        each = THREADS // LANES
        stage = self.stage = self.kernel.stage(THREADS, (dims.ceildiv(self.rows, each), 1, 1))
        b = self.b = stage.b
        self.cache, self.ev = IrCache(b.context), ThreadValues(stage, Ranges(), 1)
        thread = b.bind("thread", stage.thread())
        lane = b.bind("lane_in_row", b.dim(dims.mod(thread, LANES)))
        number = b.bind("number", b.dim(b.bind("block", stage.block()) * each + dims.floordiv(thread, LANES)))
        row = b.bind("row", b.dim(dims.dim_min(number, self.rows - 1)))  # all lanes of a wave take part
        self.ev.ranges.add("row", self.rows)
        self.place = tuple(self.ev.ranges.delinearize(row, self.front))
        none = b.constant(NONE, ir.IntegerType.get_signless(64))
        entries = [self._entry(lane + LANES * j, none) for j in range(-(-self.length // LANES))]

        def one(round: dims.Dim, carried: list[ir.Value]) -> list[ir.Value]:
            *left, mine = carried
            found = reduce(self._least, left)
            for k in range(LANES.bit_length() - 1):
                found = self._least(found, shuffle_xor(b, found, 1 << k))
            left = [self._choose(b.compare("eq", e, found), none, e) for e in left]
            return [*left, self._choose(b.compare("eq", lane, round), found, mine)]

        *_, mine = b.loop_carried("round", 0, self.count, [*entries, none], one)
        is_one = b.value("arith.andi", (less(b, number, self.rows), less(b, lane, self.count)), b.i1)
        b.branch(is_one, [], lambda: self._store(mine, row * self.count + lane))
        stage.finish()

    def _entry(self, at: dims.Dim, none: ir.Value) -> ir.Value:
        """The entry of this row's element `at`; `none` beyond its end."""
        b = self.b
        place = b.bind_unique("at", b.dim(dims.dim_min(at, self.length - 1)))
        made = entry(self._scalars(), self._read(place), Scalar(b.dim(place), "index"), self.largest)[0].value
        return self._choose(less(b, at, self.length), made, none)

    def _read(self, place: dims.Dim) -> Scalar:
        self.ev.ranges.add(str(place), self.length)
        return Scalar(self.ev.at(self.x, (*self.place, place)), self.type.dtype)

    def _store(self, mine: ir.Value, to: dims.Dim) -> list[ir.Value]:
        """Write the element of an entry and where it is."""
        b = self.b
        place = b.bind_unique("found", entry_position(self._scalars(), [Scalar(mine, "u64")]).value)
        for result, buffer in zip(self.graph.results, self.stage.outputs):
            if root_result(self.graph, self.root, result) == 0:
                value = self._read(place).value
            else:
                value = b.value("arith.index_cast", (b.dim(place),), ir.IntegerType.get_signless(64))
            self.ev.store(buffer, to, value)
        return []

    def _scalars(self) -> Scalars:
        """Arithmetic at the end of the innermost scope."""
        return Scalars(self.b, self.cache)

    def _least(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.value("arith.minui", (x, y), x.type)

    def _choose(self, condition: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.value("arith.select", (condition, x, y), x.type)


def _type(graph: TensorGraph, root: ir.Operation) -> TensorType:
    """The type of the operand."""
    return TensorType(strings(root.attributes["lamina.operand_dtypes"])[0], graph.shape(root.operands[0]))
