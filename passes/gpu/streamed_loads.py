"""Loads of what is read once and is larger than caches: lines that leave the L2 cache first (`evict_first`).

Without the hint a large input pushes out what is about to be written or read again, and its own dirty neighbours: sums
over the rows of 8192 x 4096 take 31.5 µs instead of 33.3 in f32, 17.5 instead of 18.5 in bf16 (H200). Kernels that write as
much as they read lose by it (layer_norm 10 %). A hint is an operand, the policy, of the load (PTX ISA, `createpolicy`).
"""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ..loops.tensor_graph import TensorGraph
from .gpu_kernel import GpuStage, element_bytes
from .llvm_ops import byte_address, inline_assembly

LEAST_BYTES = 32 << 20  # of an input that no cache keeps: the L2 cache of an H100 has 50 MB
MOST_WRITTEN = 8  # an input is so many times as large as all results together
_VECTOR = "ld.global{}.L2::cache_hint.v4.b32 {{$0, $1, $2, $3}}, [$4], $5;"  # 16 bytes
_ONCE = ".L1::no_allocate"  # not where neighbours read the same lines
_WORD = "ld.global.L2::cache_hint.b32 $0, [$1], $2;"
_POLICY = "createpolicy.fractional.L2::evict_first.b64 $0, 1.0;"


class StreamedLoads:
    """Such loads in a stage, of the inputs in `addresses`; none where there are none."""

    def __init__(self, stage: GpuStage):
        self.stage, b = stage, stage.b
        self.addresses = {buffer: stage.address(buffer) for buffer in _large_inputs(stage)}
        if self.addresses:
            with b.at_level(0):
                self._policy = self._inline(_POLICY, "=l", (), b.i64)

    def load(self, buffer: ir.Value, offset: ir.Value, width: int, once: bool = True) -> ir.Value:
        """The `width` elements, 16 bytes or one of 4, that begin at an element of an input; `once`: nobody else reads them."""
        b, element = self.stage.b, ir.MemRefType(buffer.type).element_type
        size = b.constant(element_bytes(element), b.i64)
        far = b.value("arith.muli", (b.value("arith.index_cast", (offset,), b.i64), size), b.i64)
        operands = byte_address(b, self.addresses[buffer], far), self._policy
        if width == 1:
            word = self._inline(_WORD, "=r,l,l", operands, b.i32)
            return word if element == b.i32 else b.value("arith.bitcast", (word,), element)
        four = ir.Type.parse("!llvm.struct<(i32, i32, i32, i32)>")
        made = self._inline(_VECTOR.format(_ONCE if once else ""), "=r,=r,=r,=r,l,l", operands, four)
        words = [b.value("llvm.extractvalue", (made,), b.i32, position=ir.DenseI64ArrayAttr.get([k])) for k in range(4)]
        vector = b.value("vector.from_elements", words, ir.VectorType.get([4], b.i32))
        wanted = ir.VectorType.get([width], element)
        return vector if wanted == vector.type else b.value("vector.bitcast", (vector,), wanted)

    def takes(self, buffer: ir.Value, width: int, alignment: int) -> bool:
        """Are loads of `width` elements of the buffer, at multiples of `alignment` bytes, such loads?"""
        size = width * element_bytes(ir.MemRefType(buffer.type).element_type)
        return buffer in self.addresses and size == alignment == (4 if width == 1 else 16)

    def _inline(self, text: str, constraints: str, operands: tuple[ir.Value, ...], result: ir.Type) -> ir.Value:
        """Inline PTX that stays where it is: behind the wait for the launch before (overlap_launches.py)."""
        return inline_assembly(self.stage.b, text, constraints, operands, [result]).result


def size_of(graph: TensorGraph, value: ir.Value) -> int | None:
    """The bytes of a tensor; None where they are not known."""
    count = dims.product(graph.shape(value))
    return count * element_bytes(ir.RankedTensorType(value.type).element_type) if isinstance(count, int) else None


def _large_inputs(stage: GpuStage) -> list[ir.Value]:
    """The buffers of inputs that are read past the caches."""
    graph = stage.kernel.graph
    if not stage.kernel.stream:
        return []

    written = [size_of(graph, v) for v in graph.results]
    if None in written:
        return []
    least = max(LEAST_BYTES, MOST_WRITTEN * sum(n for n in written if n is not None))
    return [buffer for value, buffer in stage.inputs.items() if (size_of(graph, value) or 0) >= least]
