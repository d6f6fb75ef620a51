"""Stages of updates that combine nothing: a copy of `x` (`copy_operand`), then what is written, all at once.

    index_put, scatter, slice_scatter       w = block * threads + thread:  elements V * w … of the updates, each at its place

V neighbours are written as a vector where their places are neighbours, too. Of updates that meet any may be the last, as in
torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ....dialects.families.index_put import index_place
from ....dialects.op import broadcast
from ....dialects.status import GATHER_OUT_OF_RANGE, INDEX_OUT_OF_RANGE, Check
from ...loops.evaluate_walk import Index
from ...loops.index_algebra import Ranges
from ...loops.kernel_functions import strings
from ..gpu_kernel import GpuKernel, GpuStage
from ..lane_places import LANE, divisible
from ..probe import Probe, choose_width
from ..thread_values import ThreadValues, store_failure
from .copy_operand import copy_operand

THREADS = 256


def writes_updates(root: ir.Operation) -> type[Updates] | None:
    """The stage for the updates of `root`; None where they are combined with what is there, or there are none."""
    match root.name.removeprefix("lamina."):
        case "index_put" if not ir.BoolAttr(root.attributes["accumulate"]).value:
            return PutUpdates
        case "scatter" if ir.StringAttr(root.attributes["reduce"]).value == "none":
            return ScatterUpdates
        case "slice_scatter":
            return SliceUpdates
    return None


class Updates:
    """The updates of `root` in `kernel`: elements of `source`, over the positions `space`."""

    source: ir.Value
    space: Index

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.graph, self.root = kernel, kernel.graph, root
        self.x = root.operands[0]
        self.shape = self.graph.shape(self.x)

    # -- what an op says -------------------------------------------------------------------------------------------
    def target(self, ev: ThreadValues, at: Index) -> tuple[Sequence[Dim], list[ir.Value]]:
        """The index in `y` of update `at`, and what must hold for it to be in range."""
        raise NotImplementedError

    def source_index(self, at: Index) -> Sequence[Dim]:
        """Where `source` has update `at`."""
        return at

    def keeps_neighbours(self, width: int) -> bool:
        """True if `width` neighbouring updates, from a multiple of it on, are written side by side."""
        raise NotImplementedError

    # -- the stage -------------------------------------------------------------------------------------------------
    def emit(self) -> None:
        """Write both stages."""
        copy_operand(self.kernel, self.x)
        total = dims.product(self.space)
        if total == 0:
            return
        width = self._width(total)
        vectors = dims.floordiv(total, width)
        stage = self.kernel.stage(THREADS, (dims.ceildiv(vectors, THREADS), 1, 1))
        b = stage.b
        w = b.bind("w", stage.global_thread())

        def inside() -> list[ir.Value]:
            self._write(stage, ThreadValues(stage, Ranges({"w": vectors}), width))
            return []

        b.branch(b.compare("slt", w, vectors), [], inside)
        stage.finish()

    def _write(self, stage: GpuStage, ev: ThreadValues) -> None:
        at = tuple(ev.ranges.delinearize(ev.flat(dims.symbol("w")), self.space))
        target, conditions = self.target(ev, at)

        def store() -> list[ir.Value]:
            value = ev.at(self.source, self.source_index(at))
            offset = ev.ranges.linearize(target, self.shape)
            for buffer in stage.outputs:  # the one result
                ev.store(buffer, offset, value)
            return []

        stage.b.under(conditions, store)

    def _width(self, total: Dim) -> int:
        """Neighbouring elements that a thread writes at once."""

        def probe(width: int) -> Probe:
            ranges = Ranges({"w": dims.floordiv(total, width), LANE: width})
            flat = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            accesses = Probe(self.graph, ranges, set())
            accesses.at(self.source, self.source_index(tuple(ranges.delinearize(flat, self.space))))
            return accesses

        def fits(width: int) -> bool:
            return bool(self.shape) and divisible(self.shape[-1], width) and self.keeps_neighbours(width)

        return choose_width([self.x], probe, fits)


class PutUpdates(Updates):
    """`y[…, indices, …] = value`: the dims of the indices, then those without an index."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        super().__init__(kernel, root)
        self.source, *self.indices = list(root.operands)[1:]
        self.dims = tuple(ir.DenseI64ArrayAttr(root.attributes["dims"]))
        self.updates = broadcast(*(self.graph.shape(i) for i in self.indices))
        self.axes = [a for a in range(len(self.shape)) if a not in self.dims]
        self.space = (*self.updates, *(self.shape[a] for a in self.axes))

    def target(self, ev: ThreadValues, at: Index) -> tuple[Sequence[Dim], list[ir.Value]]:
        t, others = at[: len(self.updates)], at[len(self.updates) :]
        found = [
            checked_place(ev, ev.at(i, aligned(t, self.graph.shape(i))), self.shape[axis], wrap=True)
            for i, axis in zip(self.indices, self.dims)
        ]
        to = {**dict(zip(self.dims, (place for place, _ in found))), **dict(zip(self.axes, others))}
        return [to[a] for a in range(len(self.shape))], [ok for _, ok in found]

    def source_index(self, at: Index) -> Sequence[Dim]:
        """The dims without an index, with the indices' dims in their place."""
        t, others = at[: len(self.updates)], at[len(self.updates) :]
        first = index_place(self.dims)
        return aligned((*others[:first], *t, *others[first:]), self.graph.shape(self.source))

    def keeps_neighbours(self, width: int) -> bool:
        return self.axes[-1:] == [len(self.shape) - 1]


class ScatterUpdates(Updates):
    """`y[…, index[i], …] = src[i]` along `dim`."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        super().__init__(kernel, root)
        self.index, self.source = root.operands[1], root.operands[2]
        self.dim = ir.IntegerAttr(root.attributes["dim"]).value % max(1, len(self.shape))
        self.space = self.graph.shape(self.index)
        named = ir.BoolAttr(root.attributes["index_error"]).value
        self.check = INDEX_OUT_OF_RANGE if named else GATHER_OUT_OF_RANGE

    def target(self, ev: ThreadValues, at: Index) -> tuple[Sequence[Dim], list[ir.Value]]:
        size = self.shape[self.dim] if self.shape else 1
        place, ok = checked_place(ev, ev.at(self.index, at), size, wrap=False, check=self.check)
        return [place if a == self.dim else i for a, i in enumerate(at)], [ok]

    def keeps_neighbours(self, width: int) -> bool:
        """They are at one position along another dim: that of an index that is expanded along the last one."""
        if self.dim == len(self.shape) - 1 or not divisible(self.space[-1], width):
            return False
        probe = Probe(self.graph, Ranges({LANE: self.space[-1]}), set())
        probe.at(self.index, [*(dims.symbol(f"i{a}") for a in range(len(self.space) - 1)), dims.symbol(LANE)])
        return all(LANE not in dims.symbols(e) for e in probe.expressions())


class SliceUpdates(Updates):
    """`y[starts + steps * i] = src[i]`."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        super().__init__(kernel, root)
        self.source = root.operands[1]
        self.space = self.graph.shape(self.source)
        self.starts = [dims.parse(s) for s in strings(root.attributes["starts"])]
        self.steps = list(ir.DenseI64ArrayAttr(root.attributes["steps"]))

    def target(self, ev: ThreadValues, at: Index) -> tuple[Sequence[Dim], list[ir.Value]]:
        return [start + step * i for start, step, i in zip(self.starts, self.steps, at)], []

    def keeps_neighbours(self, width: int) -> bool:
        return self.steps[-1] == 1 and divisible(self.space[-1], width) and divisible(self.starts[-1], width)


def checked_place(
    ev: ThreadValues, index: ir.Value, size: Dim, wrap: bool, check: Check = INDEX_OUT_OF_RANGE
) -> tuple[Dim, ir.Value]:
    """A position along a dim of `size`, from the end if it is negative and may `wrap`, and whether there is such a one."""
    b = ev.b
    at = index if index.type == b.i64 else b.value("arith.extsi", (index,), b.i64)  # an index may have 32 bits
    end = b.constant(size, b.i64) if isinstance(size, int) else b.value("arith.index_cast", (b.dim(size),), b.i64)
    if wrap:
        from_end = b.value("arith.addi", (at, end), b.i64)
        at = b.select(b.compare("slt", at, b.constant(0, b.i64)), from_end, at)
    place = b.bind_unique("place", b.value("arith.index_cast", (at,), b.index))
    ev.ranges.add(str(place), size)
    ok = b.compare("ult", at, end)  # unsigned: neither negative nor beyond the end
    store_failure(b, ev.stage.status, ok, check.code)
    return place, ok


def aligned(index: Sequence[Dim], shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The index in an operand of `shape` that is broadcast to where `index` is."""
    skip = len(index) - len(shape)
    return tuple(0 if n == 1 else index[skip + i] for i, n in enumerate(shape))
