"""From sums in scratch to the kernel's outputs: bias, rounding, fused pointwise ops, stores.

The sums of a block of rows and columns lie in scratch; each row is walked by vectors, with a scalar tail for ragged
columns. The root's result at a point is its sum (plus bias) rounded to the root's dtype, as eager rounds it, and the
fused ops are evaluated on that.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from . import numeric
from .code import Index
from .frame import Buffer, EmitError, Frame
from .micro import Tile
from .values import Lane, Override, Values


class Epilogue:
    """Writes the outputs of a kernel whose root has shape `(*lead, *columns)`; `columns` are walked as one dimension.

    `bias` is a vector indexed by dimension `bias_axis` of the root. `outputs` are the kernel's, unless given.
    """

    def __init__(
        self, frame: Frame, root: ir.Operation, dtype: str, tile: Tile, lead: Sequence[Dim], columns: Sequence[Dim],
        bias: ir.Value | None = None, bias_axis: int = -1, outputs: Sequence[tuple[ir.Value, Buffer]] | None = None,
    ):  # fmt: skip
        self.frame, self.code, self.root, self.dtype, self.tile = frame, frame.code, root, dtype, tile
        self.lead, self.columns, self.shape = tuple(lead), tuple(columns), (*lead, *columns)
        self.bias, self.bias_axis = bias, bias_axis
        self.outputs = frame.outputs if outputs is None else outputs
        for _, buffer in self.outputs:
            if dims.product(buffer.shape) != dims.product(self.shape):
                raise EmitError(f"an output of kernel '{frame.name}' has not the size of its root")
        self.vector = not needs_scalars(frame)
        self.lanes = tile.width

    def emit(self, lead_index: Sequence[Index], first: Index, count: Index, sums: ir.Value, start: Index) -> None:
        """Write columns `first .. first + count` of one row, whose sums start at `sums[start]`."""
        code, width = self.code, self.lanes
        lead = [code.register(f"@m{d}", i) for d, i in enumerate(lead_index)]
        position: Index = 0
        for size, i in zip(self.lead, lead_index):
            position = code.add(code.mul(position, code.size(size)), i)
        flat = code.add(code.mul(position, code.size(dims.product(self.columns))), first)
        whole = code.mul(code.div(count, width), width) if self.vector else 0

        def at(lanes: int, c: Index) -> None:
            self._point(lanes, lead, code.add(first, c), sums, code.add(start, c), code.add(flat, c))

        code.loop(0, whole, width, [], lambda c: at(width, c))
        if not (isinstance(count, int) and count == whole):
            code.loop(whole, count, 1, [], lambda c: at(1, c))

    def _point(
        self, lanes: int, lead: Sequence[Dim], column: Index, sums: ir.Value, at: Index, flat: Index
    ) -> None:  # fmt: skip
        code = self.code
        lane = Lane(code, "@n", column, self.columns, lanes)
        index = (*lead, *lane.index)
        values = Values(self.frame, {self.root.results[0]: self.root_values(lane, index, sums, at)}, lane)
        for value, buffer in self.outputs:
            out = values.at(value, self._output_index(index, buffer.shape))
            if lanes == 1:
                code.store(out, buffer.memref, flat)
            else:
                code.vstore(numeric.spread(code, out, lanes), buffer.memref, flat)

    def root_values(self, lane: Lane, index: Sequence[Dim], sums: ir.Value, at: Index) -> Override:
        """The root's values at an index that results ask for: here at `index` alone, whose sums start at `sums[at]`."""
        result = self.root_value(lane, index, sums, at)
        return lambda _: result

    def root_value(self, lane: Lane, index: Sequence[Dim], sums: ir.Value, at: Index) -> ir.Value:
        """The root's values at `index`, from their sums."""
        code, lanes = self.code, lane.width
        total = code.load(sums, at) if lanes == 1 else code.vload(sums, at, lanes)
        if self.bias is not None:
            bias = Values(self.frame, {}, lane).at(self.bias, [index[self.bias_axis]])
            bias = numeric.convert(code, bias, self.dtype, self.tile.dtype)
            total = numeric.add(code, total, numeric.spread(code, bias, lanes))
        return numeric.convert(code, total, self.tile.dtype, self.dtype)

    def _output_index(self, index: Sequence[Dim], shape: Sequence[Dim]) -> Sequence[Dim]:
        """The root's index in an output of `shape`, which has the same elements in the same order."""
        if tuple(shape) == self.shape:
            return index
        n = len(self.columns)
        if tuple(shape[len(shape) - n :]) != self.columns:
            raise EmitError(f"an output of kernel '{self.frame.name}' reshapes the columns of its root")
        linear: Dim = 0
        for size, i in zip(self.lead, index):
            linear = linear * size + i
        out: list[Dim] = []
        for size in reversed(shape[1 : len(shape) - n]):
            out.append(dims.mod(linear, size))
            linear = dims.floordiv(linear, size)
        return [*([linear] if len(shape) > n else []), *reversed(out), *index[len(self.lead) :]]


def needs_scalars(frame: Frame) -> bool:
    """True if a fused body holds ops without a vector form (reads at computed indices, checks)."""
    for op in frame.old.regions[0].blocks[0].operations:
        for region in op.operation.regions:
            if any(inner.operation.name in ("tensor.extract", "cf.assert") for inner in region.blocks[0].operations):
                return True
    return False
