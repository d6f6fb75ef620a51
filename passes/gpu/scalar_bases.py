"""Loads from a base that a whole block shares: `buffer[shared + own]` as `(buffer + shared)[own]`.

AMD's chips add a base in scalar registers to a lane's offset of 32 bits as they load. LLVM finds such a pair only where
it is written as one: what changes from step to step of a loop is then one scalar sum for all loads of an operand, and
the offsets are the same in all steps.
"""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim, Expr
from ..loops.index_algebra import Ranges
from .gpu_kernel import GpuStage
from .lane_places import LANE
from .thread_values import ThreadValues


class ScalarBases(ThreadValues):
    """The evaluator of one thread; `shared` are the symbols that are equal in all threads of a block."""

    def __init__(self, stage: GpuStage, ranges: Ranges, width: int):
        super().__init__(stage, ranges, width)
        self.shared: set[str] = set(stage.kernel.graph.symbols)

    def load_at(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        shared = self._shared(offset)
        own = offset - shared
        if isinstance(shared, int) or isinstance(own, int) or dims.symbols(own) <= {LANE}:
            return super().load_at(buffer, offset)
        base = self.remember(("base", buffer), (shared,), lambda: self._base(buffer, shared))
        return super().load_at(base, own)

    def _shared(self, offset: Dim) -> Dim:
        """The terms of `offset` that all threads share; only whole vectors, so that the rest says how loads are aligned."""
        if isinstance(offset, int):
            return offset
        terms = {m: c for m, c in offset.terms.items() if m and c % self.width == 0}
        return Expr({m: c for m, c in terms.items() if dims.symbols(Expr({m: c})) <= self.shared}) + 0

    def _base(self, buffer: ir.Value, shared: Dim) -> ir.Value:
        """`buffer` from element `shared` on."""
        b, type = self.b, ir.MemRefType(buffer.type)
        layout = b.attribute("strided<[1], offset: ?>")
        attributes = {
            "static_offsets": ir.DenseI64ArrayAttr.get([ir.ShapedType.get_dynamic_stride_or_offset()]),
            "static_sizes": ir.DenseI64ArrayAttr.get(type.shape),
            "static_strides": ir.DenseI64ArrayAttr.get([1]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 0, 0]),
        }
        result = ir.MemRefType.get(type.shape, type.element_type, layout, type.memory_space)
        return b.op("memref.reinterpret_cast", (buffer, b.dim(shared)), [result], attributes).result
