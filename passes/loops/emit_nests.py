"""Write planned nests into a loops-level function.

for item = begin to end                      one position of the outer loops
  <what a row needs once>                    hoisted here by the evaluator
  for inner ...                              stores of the results
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from .evaluate import Evaluator
from .evaluate_vector import Lanes, VectorEvaluator
from .index_algebra import Ranges
from .kept_rows import KeptRow
from .loop_nest import Loop
from .loops_builder import LoopsBuilder
from .next_row import asking_for_next_row
from .plan_nests import Nest
from .tensor_graph import TensorGraph, result_number
from .transposed_tiles import BLOCK, TileEvaluator

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
        vector_bits: int,
    ):
        self.graph, self.b, self.inputs, self.outputs = graph, b, inputs, outputs
        self.status, self.begin, self.end = status, begin, end
        self.range: Dim = 0
        self.grain: Dim = 1
        self.tile = 16 if vector_bits >= 512 else 8  # f32 in a vector register
        self._allocated: list[ir.Value] = []
        self._ahead: list[tuple[ir.Value, Dim]] = []  # buffers and offsets of the row after the item's

    def emit(self, nests: list[Nest]) -> None:
        """Emit all nests; their work items follow each other in the kernel's range."""
        b = self.b
        for nest in nests:
            base = self.range
            self.range = base + nest.items
            low, high = self.begin, self.end
            if len(nests) > 1:
                low = b.value("arith.maxsi", (b.binary("arith.subi", low, b.dim(base)), b.dim(0)), b.index)
                high = b.value("arith.minsi", (b.binary("arith.subi", high, b.dim(base)), b.dim(nest.items)), b.index)
            self._nest(nest, low, high)
        for buffer in self._allocated:
            b.op("memref.dealloc", (buffer,))
        self.grain = _grain(nests)

    def _nest(self, nest: Nest, low: ir.Value, high: ir.Value) -> None:
        b = self.b
        for kept in nest.kept:
            kept.scratch = self._scratch(kept, nest.lanes)
        b.fresh += 1
        name = f"item{b.fresh}"
        with b.loop(name, low, high, interleave=0 if nest.inner else nest.interleave) as item:
            ranges = Ranges({name: nest.items})
            positions = ranges.delinearize(item, nest.extents)
            self._ahead = self._next_row(nest, item, high)
            blocks = []
            for loop, position in zip(nest.outer, positions):
                if loop.name in nest.blocks:
                    blocks.append((loop, position, nest.blocks[loop.name]))
                else:
                    b.bind(loop.name, b.dim(position))
            self._blocks(nest, blocks)

    def _next_row(self, nest: Nest, item: Dim, high: ir.Value) -> list[tuple[ir.Value, Dim]]:
        """What `nest.ahead` reads in the item after `item`; the last item has none and takes itself."""
        if not nest.ahead:
            return []
        b = self.b
        last = b.binary("arith.subi", high, b.dim(1))
        after = b.bind_fresh(b.value("arith.minsi", (b.dim(item + 1), last), b.index))
        positions = Ranges({str(after): nest.items}).delinearize(after, nest.extents)
        outer = {l.name: position for l, position in zip(nest.outer, positions)}
        return [(self.inputs[argument], dims.substitute(offset, outer)) for argument, offset in nest.ahead]

    def _blocks(self, nest: Nest, blocks: list[tuple[Loop, Dim, int]]) -> None:
        """One item; `blocks` are the outer loops of which it takes a block of positions, with the block's number."""
        b = self.b
        loops = [(l, size) for l, _, size in blocks] + ([(nest.inner[-1], BLOCK)] if nest.cross else [])
        room = [l.extent - size for l, size in loops if not isinstance(l.extent, int)]

        def whole() -> list[ir.Value]:
            # the last block ends at the last position: it repeats a part of the block before it
            for loop, number, size in blocks:
                last = b.dim(loop.extent - size)
                b.bind(loop.name, b.value("arith.minsi", (b.dim(number * size), last), b.index))
            if nest.cross:
                self._tiles(nest, nest.cross, nest.inner[-1])
            else:
                self._item(nest, self._evaluator(nest, nest.lanes))
            return []

        def one_by_one(left: list[tuple[Loop, Dim, int]]) -> list[ir.Value]:
            if not left:
                self._item(nest, self._evaluator(nest, 1))
                return []
            loop, number, size = left[0]
            end = b.value("arith.minsi", (b.dim((number + 1) * size), b.dim(loop.extent)), b.index)
            with b.loop(loop.name, b.dim(number * size), end):
                return one_by_one(left[1:])

        if not room:
            whole()
            return
        fits = Evaluator(self.graph, b, self.inputs, Ranges(), self.status)
        b.branch(fits.all_nonnegative(room), [], whole, lambda: one_by_one(blocks))

    def _evaluator(self, nest: Nest, lanes: int) -> Evaluator:
        """An evaluator that knows the nest's loops; `lanes` positions of the last outer loop at once."""
        ranges = Ranges({l.name: l.extent for l in [*nest.outer, *nest.inner]})
        arguments = (self.graph, self.b, self.inputs, ranges, self.status)
        if lanes > 1:
            ev: Evaluator = VectorEvaluator(*arguments, lanes=Lanes(nest.outer[-1].name, lanes))
        else:
            ev = Evaluator(*arguments)
        for kept in nest.kept:
            ev.kept.setdefault(kept.reduction.generic.arguments[-1], []).append(kept)
        return ev

    def _item(self, nest: Nest, ev: Evaluator) -> None:
        for kept in nest.kept:
            reduction = kept.reduction
            ev.at(reduction.generic.op.results[0], reduction.index)
        self._store(nest.rows, nest.row_flat, ev)
        self._loops(nest, ev, nest.inner)

    def _loops(self, nest: Nest, ev: Evaluator, loops: Sequence[Loop]) -> None:
        if not loops:
            for last in nest.last_positions():
                self._store(nest.full, dims.substitute(nest.flat, last), ev)
            return
        loop, *others = loops
        if len(nest.full) == 1 and not others and not nest.in_turn and not self._ahead and nest.lanes == 1:
            value = self.graph.results[nest.full[0]]
            index = ev.ranges.delinearize(nest.flat, self.graph.shape(value))
            self._parts(nest, ev, loop, value, tuple(map(ev.ranges.simplify, index)))
            return
        if self._ahead and not others:
            opened = asking_for_next_row(self.b, loop, self._ahead, nest.interleave)
        else:
            opened = self.b.loop(loop.name, 0, loop.extent, interleave=0 if others else nest.interleave)
        with opened:
            self._loops(nest, ev, others)

    def _parts(self, nest: Nest, ev: Evaluator, loop: Loop, value: ir.Value, at: tuple[Dim, ...]) -> None:
        """The innermost loop, which stores `value` at `at`: one for each part of a concatenation along another dim.

        Which part it is in is then asked once a row, and each loop is one that LLVM vectorises.
        """
        op = self.graph.owner(value)
        if op is not None and op.name == "tensor.empty":  # below the last part there is nothing
            return
        if op is not None and op.name == "tensor.insert_slice" and value not in ev.known:
            source, target = list(op.operands)[:2]
            conditions, inner = ev.inserted(op, at)
            if conditions and not any(loop.name in dims.symbols(c) for c in conditions):

                def part(of: ir.Value, where: tuple[Dim, ...]) -> list[ir.Value]:
                    self._parts(nest, ev, loop, of, where)
                    return []

                there = lambda: part(source, tuple(inner))
                self.b.branch(ev.all_nonnegative(conditions), [], there, lambda: part(target, at))
                return
        with self.b.loop(loop.name, 0, loop.extent, interleave=nest.interleave):
            ev.store(self.outputs[nest.full[0]], nest.flat, ev.at(value, at))

    def _tiles(self, nest: Nest, cross: Loop, last: Loop) -> None:
        """A block of rows of `cross` against all of `last`, in square tiles of one vector register."""
        b, width = self.b, self.tile
        ranges = Ranges({l.name: l.extent for l in [*nest.outer, *nest.inner]})
        ranges.add(cross.name, cross.extent - (width - 1))  # rows are told apart before anything is evaluated
        first = b.symbols[cross.name][0]
        with b.loop(f"block{b.fresh}", 0, dims.ceildiv(last.extent, BLOCK)) as block:  # type: ignore[arg-type]
            position = b.value("arith.minsi", (b.dim(block * BLOCK), b.dim(last.extent - BLOCK)), b.index)
            start = b.bind_fresh(position)
            with b.loop("row_tile", 0, BLOCK, width) as row, b.loop("column_tile", 0, BLOCK, width) as column:
                top = b.binary("arith.addi", first, b.dim(row))
                b.bind(cross.name, top)
                b.bind(last.name, b.dim(start + column))
                ev = TileEvaluator(self.graph, b, self.inputs, ranges, self.status, Lanes(last.name, width), cross.name)
                for r in range(width):
                    ev.row = r
                    flat = dims.substitute(nest.flat, {cross.name: cross.variable + r})
                    self._store(nest.full, flat, ev)

    def _store(self, results: list[int], flat: Dim, ev: Evaluator) -> None:
        for i in results:
            value = self.graph.results[i]
            element = ev.at(value, ev.ranges.delinearize(flat, self.graph.shape(value)))
            ev.store(self.outputs[i], flat, element)

    def _scratch(self, kept: KeptRow, lanes: int) -> ir.Value:
        """A buffer for one row, on the stack where it is small."""
        b = self.b
        element = ir.RankedTensorType(kept.maker.op.results[result_number(kept.value)].type).element_type
        size = kept.size * lanes
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
