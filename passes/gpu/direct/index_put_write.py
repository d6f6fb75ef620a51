"""The stage of an `index_put` that adds nothing: all updates at once, neighbouring elements of one in a thread.

    y[…, indices, …] = value        w = block * threads + thread:  update `t` and V elements of the dims without an index

Of updates that meet any may be the last, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ....dialects.families.scatter import index_place
from ....dialects.op import broadcast
from ....dialects.status import INDEX_OUT_OF_RANGE
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, GpuStage
from ..lane_places import LANE
from ..probe import Probe, choose_width
from ..thread_values import ThreadValues, store_failure

THREADS = 256


class IndexPutWrite:
    """The updates of `root` as a stage of `kernel`."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.graph, self.root = kernel, kernel.graph, root
        self.x, self.value, *self.indices = root.operands
        self.shape = self.graph.shape(self.x)
        self.dims = tuple(ir.DenseI64ArrayAttr(root.attributes["dims"]))
        self.updates = broadcast(*(self.graph.shape(i) for i in self.indices))
        self.axes = [a for a in range(len(self.shape)) if a not in self.dims]
        self.space = (*self.updates, *(self.shape[a] for a in self.axes))

    def emit(self) -> None:
        """Write the stage."""
        total = dims.product(self.space)
        width = self._width(total)
        vectors = dims.floordiv(total, width)
        stage = self.kernel.stage(THREADS, (dims.ceildiv(vectors, THREADS), 1, 1))
        b = stage.b
        w = b.bind("w", stage.global_thread())

        def inside() -> list[ir.Value]:
            self._write(stage, ThreadValues(stage, Ranges({"w": vectors}), width))
            return []

        b.branch(b.value("arith.cmpi", (b.dim(w), b.dim(vectors)), b.i1, predicate=b.number(2, b.i64)), [], inside)
        stage.finish()

    def _write(self, stage: GpuStage, ev: ThreadValues) -> None:
        b = stage.b
        index = ev.ranges.delinearize(ev.flat(dims.symbol("w")), self.space)
        t, others = index[: len(self.updates)], index[len(self.updates) :]
        places, conditions = [], []
        for tensor, axis in zip(self.indices, self.dims):
            place, ok = self._place(ev, ev.at(tensor, _aligned(t, self.graph.shape(tensor))), self.shape[axis])
            store_failure(b, stage.status, ok, INDEX_OUT_OF_RANGE.code)
            places.append(place)
            conditions.append(ok)
        ok = conditions[0]
        for other in conditions[1:]:
            ok = b.value("arith.andi", (ok, other), b.i1)

        def store() -> list[ir.Value]:
            value = ev.at(self.value, self._source(t, others))
            offset = ev.ranges.linearize(self._target(places, others), self.shape)
            for result, buffer in zip(self.graph.results, stage.outputs):
                if result == self.root.results[0]:
                    ev.store(buffer, offset, value)
            return []

        b.branch(ok, [], store)

    def _place(self, ev: ThreadValues, index: ir.Value, size: Dim) -> tuple[Dim, ir.Value]:
        """A position along a dim of `size`, from the end if it is negative, and whether there is such a one."""
        b = ev.b
        compare = lambda x, y, predicate: b.value("arith.cmpi", (x, y), b.i1, predicate=b.number(predicate, b.i64))
        at, end, zero = b.value("arith.index_cast", (index,), b.index), b.dim(size), b.dim(0)
        at = b.value("arith.select", (compare(at, zero, 2), b.binary("arith.addi", at, end), at), b.index)
        place = b.bind_unique("place", at)
        ev.ranges.add(str(place), size)
        return place, compare(at, end, 6)  # unsigned: neither negative nor beyond the end

    def _target(self, places: Sequence[Dim], others: Sequence[Dim]) -> tuple[Dim, ...]:
        """The index in the result."""
        at = {**dict(zip(self.dims, places)), **dict(zip(self.axes, others))}
        return tuple(at[a] for a in range(len(self.shape)))

    def _source(self, t: Sequence[Dim], others: Sequence[Dim]) -> tuple[Dim, ...]:
        """The index in the value: the dims without an index, with the indices' dims in their place."""
        first = index_place(self.dims)
        return _aligned((*others[:first], *t, *others[first:]), self.graph.shape(self.value))

    def _width(self, total: Dim) -> int:
        """Neighbouring elements that a thread writes at once."""
        last = self.shape[-1]

        def probe(width: int) -> Probe:
            ranges = Ranges({"w": dims.floordiv(total, width), LANE: width})
            flat = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            index = ranges.delinearize(flat, self.space)
            accesses = Probe(self.graph, ranges, set())
            accesses.at(self.value, self._source(index[: len(self.updates)], index[len(self.updates) :]))
            return accesses

        def fits(width: int) -> bool:
            return self.axes[-1:] == [len(self.shape) - 1] and isinstance(last, int) and last % width == 0

        return choose_width([self.x], probe, fits)


def _aligned(index: Sequence[Dim], shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The index in an operand of `shape` that is broadcast to where `index` is."""
    skip = len(index) - len(shape)
    return tuple(0 if n == 1 else index[skip + i] for i, n in enumerate(shape))
