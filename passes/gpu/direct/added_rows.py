"""Stages of an `index_put` or `scatter` that adds rows (an embedding's gradient, `index_add`): sorted by row, then summed.

    sort     words of a row (high bits) and the number of its update, in order of rows (`radix_sort`); rows out of range come last
    sum      a block has CHUNK words in order: of rows that are all in there y = x + sum, of others a part (`sorted_sums`)
    join     where a row begins in a chunk and goes on in the next:  y = x + parts, in order

Sums are in f32 or wider, rounded once; every order is fixed, and no element is written by two threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.families.scatter import scatters_rows, sorts_rows
from ....dialects.mlir_ops import attributes_of
from ....dialects.record import TensorType
from ....dialects.status import GATHER_OUT_OF_RANGE, INDEX_OUT_OF_RANGE
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import TensorGraph
from ..gpu_kernel import GpuKernel, GpuStage
from ..lane_places import LANE
from ..probe import Probe, choose_width
from ..thread_values import ThreadValues
from .copy_operand import copy_operand
from .radix_sort import RadixSort
from .sorted_sums import SortedSums
from .write_updates import aligned, checked_place


def adds_rows(graph: TensorGraph, root: ir.Operation) -> bool:
    """True if `root` is an `index_put`, or a `scatter` of whole rows, of sizes and types that these stages are for."""
    type_of = lambda v: TensorType(str(ir.RankedTensorType(v.type).element_type), graph.shape(v))
    if root.name == "lamina.scatter":
        x, index = map(type_of, root.operands[:2])
        return scatters_rows(x, index, attributes_of(root)) and is_of_rows(graph, root.operands[1])
    if root.name != "lamina.index_put":
        return False
    x, _, *indices = map(type_of, root.operands)
    return sorts_rows(x, indices, tuple(ir.DenseI64ArrayAttr(root.attributes["dims"])))


def is_of_rows(graph: TensorGraph, index: ir.Value) -> bool:
    """True if `index` has one element for each row: it is read at the same place along all dims but the first."""
    names = [f"i{d}" for d in range(len(graph.shape(index)))]
    probe = Probe(graph, Ranges(dict(zip(names, graph.shape(index)))), set())
    probe.at(index, [dims.symbol(n) for n in names])
    return all(not dims.symbols(e) & set(names[1:]) for e in probe.expressions())


class AddedRows:
    """The additions of `root` in `kernel`, which `adds_rows` holds for."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.graph = kernel, kernel.graph
        self.scatters = root.name == "lamina.scatter"
        self.x, *others = root.operands
        self.index, self.value = others if self.scatters else reversed(others)
        shape = self.graph.shape(self.index)
        self.updates = shape[:1] if self.scatters else shape
        self.check = INDEX_OUT_OF_RANGE
        if self.scatters and not ir.BoolAttr(root.attributes["index_error"]).value:
            self.check = GATHER_OUT_OF_RANGE
        self.shape = self.graph.shape(self.x)
        sizes = self.shape[0], dims.product(self.shape[1:]), dims.product(self.updates)
        self.rows, self.columns, self.count = (n for n in sizes if isinstance(n, int))
        self.low = (self.count - 1).bit_length()  # bits of an update's number
        self.bits = max(1, self.rows.bit_length())
        self.word = ir.IntegerType.get_signless(32 if self.low + self.bits <= 32 else 64)

    def emit(self) -> None:
        """Write the stages."""
        copy_operand(self.kernel, self.x)
        if self.count * self.columns == 0:
            return
        sort = RadixSort(self.kernel, self.count, self.word, self.low, self.bits)
        self.order, self.padded = sort.emit(self._words), sort.padded
        sums = SortedSums(self, self._width())
        sums.emit_sums()
        sums.emit_joins()

    def source_index(self, t: tuple[dims.Dim, ...], rest: tuple[dims.Dim, ...]) -> tuple[dims.Dim, ...]:
        """Where the value has column `rest` of update `t`."""
        return aligned((*t, *rest), self.graph.shape(self.value))

    def _words(self, stage: GpuStage, numbers: Sequence[dims.Expr]) -> list[ir.Value]:
        """The words of updates."""
        b, ev = stage.b, ThreadValues(stage, Ranges({str(t): self.count for t in numbers}), 1)
        places = [tuple(ev.ranges.delinearize(t, self.updates)) for t in numbers]
        rest = tuple(0 for _ in self.shape[1:])
        indices = [ev.at(self.index, (*at, *rest) if self.scatters else at) for at in places]  # loads before checks
        words = []
        for t, index in zip(numbers, indices):
            place, ok = checked_place(ev, index, self.rows, not self.scatters, self.check)
            row, number = (
                b.value("arith.index_cast", (x,), self.word) for x in (b.select(ok, place, self.rows), b.dim(t))
            )
            row = b.value("arith.shli", (row, b.constant(self.low, self.word)), self.word)
            words.append(b.value("arith.ori", (row, number), self.word))
        return words

    def _width(self) -> int:
        """Neighbouring columns that a thread sums."""

        def probe(width: int) -> Probe:
            ranges = Ranges({"w": self.columns // width, LANE: width})
            flat = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            accesses = Probe(self.graph, ranges, set())
            t = tuple(dims.symbol(f"t{k}") for k in range(len(self.updates)))
            accesses.at(self.value, self.source_index(t, tuple(ranges.delinearize(flat, self.shape[1:]))))
            return accesses

        return choose_width([self.x], probe, lambda width: self.columns % width == 0)
