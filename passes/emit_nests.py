"""Write planned nests into a loops-level function.

for item = begin to end                      one position of the outer loops
  <what a row needs once>                    hoisted here by the evaluator
  for inner ...                              stores of the results
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ..dialects import dims
from ..dialects.dims import Dim
from .evaluate import Evaluator
from .evaluate_vector import Lanes, VectorEvaluator
from .kept_rows import KeptRow
from .loop_nest import Loop
from .loops_builder import LoopsBuilder
from .plan_nests import Nest
from .tensor_graph import TensorGraph, result_number

CHUNK_WORK = 65536  # scalar operations of about 0.3 ns: a chunk takes at least 20 us
STACK_BYTES = 64 * 1024  # larger scratch comes from malloc


class Emission:
    """Writes nests; afterwards `range` and `grain` say how the work is cut into chunks."""

    def __init__(
        self,
        graph: TensorGraph,
        b: LoopsBuilder,
        inputs: dict[ir.Value, ir.Value],
        outputs: list[ir.Value],
        status: ir.Value,
        begin: ir.Value,
        end: ir.Value,
    ):
        self.graph, self.b, self.inputs, self.outputs = graph, b, inputs, outputs
        self.status, self.begin, self.end = status, begin, end
        self.range: Dim = 0
        self.grain: Dim = 1
        self._allocated: list[ir.Value] = []

    def emit(self, nests: list[Nest]) -> None:
        """Emit all nests; their work items follow each other in the kernel's range."""
        b = self.b
        for nest in nests:
            base = self.range
            self.range = base + nest.items
            low, high = self.begin, self.end
            if len(nests) > 1:
                low = b.value("arith.maxsi", (b._binary("arith.subi", low, b.dim(base)), b.dim(0)), b.index)
                high = b.value("arith.minsi", (b._binary("arith.subi", high, b.dim(base)), b.dim(nest.items)), b.index)
            self._nest(nest, low, high)
        for buffer in self._allocated:
            b.op("memref.dealloc", (buffer,))
        self.grain = _grain(nests)

    def _nest(self, nest: Nest, low: ir.Value, high: ir.Value) -> None:
        b = self.b
        outer = nest.outer
        ev = self._evaluator(nest)
        for l in [*outer, *nest.inner]:
            ev.ranges.add(l.name, l.extent)
        for kept in nest.kept:
            kept.scratch = self._scratch(kept, ev)
            ev.kept.setdefault(kept.reduction.generic.arguments[-1], []).append(kept)
        single = len(outer) == 1 and nest.lanes == 1
        b.fresh += 1
        name = outer[0].name if single else f"item{b.fresh}"
        with b.loop(name, low, high) as item:
            if not single:
                ev.ranges.add(name, nest.items)
                self._bind_outer(nest, ev, item)
            self._item(nest, ev)

    def _bind_outer(self, nest: Nest, ev: Evaluator, item: Dim) -> None:
        """Give the outer loop variables their values in work item `item`."""
        b = self.b
        for loop, value in zip(nest.outer, ev.ranges.delinearize(item, nest.extents)):
            position = b.dim(value)
            if loop is nest.outer[-1] and nest.lanes > 1:
                # the last block ends at the last position: it repeats a few of the block before it
                last = b.dim(loop.extent - nest.lanes)
                position = b.value("arith.minsi", (b.dim(value * nest.lanes), last), b.index)
            b.bind(loop.name, position)

    def _evaluator(self, nest: Nest) -> Evaluator:
        from .index_algebra import Ranges

        arguments = (self.graph, self.b, self.inputs, Ranges(), self.status)
        if nest.lanes > 1:
            return VectorEvaluator(*arguments, lanes=Lanes(nest.outer[-1].name, nest.lanes))
        return Evaluator(*arguments)

    def _item(self, nest: Nest, ev: Evaluator) -> None:
        for kept in nest.kept:
            reduction = kept.reduction
            ev.at(reduction.generic.op.results[0], reduction.index)
        self._store(nest.rows, nest.row_flat, ev)
        self._loops(nest, ev, nest.inner)

    def _loops(self, nest: Nest, ev: Evaluator, loops: Sequence[Loop]) -> None:
        if not loops:
            self._store(nest.full, nest.flat, ev)
            return
        with self.b.loop(loops[0].name, 0, loops[0].extent):
            self._loops(nest, ev, loops[1:])

    def _store(self, results: list[int], flat: Dim, ev: Evaluator) -> None:
        for i in results:
            value = self.graph.results[i]
            element = ev.at(value, ev.ranges.delinearize(flat, self.graph.shape(value)))
            ev.store(self.outputs[i], flat, element)

    def _scratch(self, kept: KeptRow, ev: Evaluator) -> ir.Value:
        """A buffer for one row, on the stack where it is small."""
        b = self.b
        element = ir.RankedTensorType(kept.maker.op.results[result_number(kept.value)].type).element_type
        size = kept.size * ev.row_width
        if isinstance(size, int):
            type = ir.MemRefType.get([size], element)
            if size * 8 <= STACK_BYTES:
                return b.op(
                    "memref.alloca", (), [type], {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}
                ).result
            operands = []
        else:
            type = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)
            operands = [b.dim(size)]
        segments = ir.DenseI32ArrayAttr.get([len(operands), 0])
        buffer = b.op("memref.alloc", operands, [type], {"operandSegmentSizes": segments}).result
        self._allocated.append(buffer)
        return buffer


def _grain(nests: list[Nest]) -> Dim:
    """Work items that make a chunk worth a thread's while."""
    if not nests:
        return 1
    factor, size = nests[0].item_work
    work = max(1, int(CHUNK_WORK / max(factor, 1.0)))
    if isinstance(size, int):
        return max(1, work // max(size, 1))
    return dims.dim_max(1, dims.floordiv(work, size))
