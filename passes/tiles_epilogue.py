"""From sums in scratch to the kernel's outputs: bias, rounding, fused pointwise ops, stores.

The sums of a block of rows and columns lie in scratch; each row is walked by vectors, with a scalar tail for ragged
columns. The root's result at a point is its sum (plus bias) rounded to the root's dtype, as eager rounds it, and the
fused ops are evaluated on that.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ..dialects import dims
from ..dialects.dims import Dim
from . import tiles_numeric as numeric
from .tiles_code import Index
from .tiles_frame import EmitError, Frame
from .tiles_values import Values


class Epilogue:
    """Writes the outputs of a kernel whose root is `[*lead, n]`, from sums of `dtype`."""

    def __init__(
        self, frame: Frame, root: ir.Operation, root_dtype: str, bias: ir.Value | None, dtype: str, width: int,
        lead: Sequence[Dim], n: Dim,
    ):  # fmt: skip
        self.frame, self.code, self.root = frame, frame.code, root
        self.root_dtype, self.bias, self.dtype, self.width = root_dtype, bias, dtype, width
        self.shape = (*lead, n)
        for _, buffer in frame.outputs:
            if dims.product(buffer.shape) != dims.product(self.shape):
                raise EmitError(f"an output of kernel '{frame.name}' has not the size of its root")
        self.vector = not needs_scalars(frame)

    def emit(self, lead_index: Sequence[Index], n0: Index, columns: Index, sums: ir.Value, start: Index) -> None:
        """Write one row: columns `n0 .. n0 + columns` at `lead_index`, whose sums start at `sums[start]`."""
        code = self.code
        lead = [code.register(f"@m{d}", i) for d, i in enumerate(lead_index)]
        position: Index = 0
        for size, i in zip(self.shape, lead_index):
            position = code.add(code.mul(position, code.size(size)), i)
        flat = code.mul(position, code.size(self.shape[-1]))
        whole = code.mul(code.div(columns, self.width), self.width) if self.vector else 0

        def at(width: int, c: Index) -> None:
            self._point(
                width, [*lead, code.register("@n", code.add(n0, c))], sums, code.add(start, c), code.add(flat, n0, c)
            )

        code.loop(0, whole, self.width, [], lambda c: at(self.width, c))
        if not (isinstance(columns, int) and columns == whole):
            code.loop(whole, columns, 1, [], lambda c: at(1, c))

    def _point(self, width: int, index: Sequence[Dim], sums: ir.Value, at: Index, flat: Index) -> None:
        code = self.code
        total = code.load(sums, at) if width == 1 else code.vload(sums, at, width)
        plain = Values(self.frame, {}, "@n", width)
        if self.bias is not None:
            bias = numeric.convert(code, plain.at(self.bias, [index[-1]]), self.root_dtype, self.dtype)
            total = numeric.add(code, total, numeric.spread(code, bias, width))
        result = numeric.convert(code, total, self.dtype, self.root_dtype)
        values = Values(self.frame, {self.root.results[0]: lambda _: result}, "@n", width)
        for value, buffer in self.frame.outputs:
            out = values.at(value, self._output_index(index, buffer.shape))
            if width == 1:
                code.store(out, buffer.memref, flat)
            else:
                code.vstore(numeric.spread(code, out, width), buffer.memref, flat)

    def _output_index(self, index: Sequence[Dim], shape: Sequence[Dim]) -> Sequence[Dim]:
        """The root's index in an output of `shape`, the same elements in the same order."""
        if tuple(shape) == self.shape:
            return index
        if tuple(shape[-1:]) != self.shape[-1:]:
            raise EmitError(f"an output of kernel '{self.frame.name}' reshapes the columns of its root")
        linear: Dim = 0
        for size, i in zip(self.shape[:-1], index):
            linear = linear * size + i
        out: list[Dim] = []
        for size in reversed(shape[1:-1]):
            out.append(dims.mod(linear, size))
            linear = dims.floordiv(linear, size)
        return [*([linear] if len(shape) > 1 else []), *reversed(out), index[-1]]


def needs_scalars(frame: Frame) -> bool:
    """True if a fused body holds ops without a vector form (reads at computed indices, checks)."""
    for op in frame.old.regions[0].blocks[0].operations:
        for region in op.operation.regions:
            if any(inner.operation.name in ("tensor.extract", "cf.assert") for inner in region.blocks[0].operations):
                return True
    return False
