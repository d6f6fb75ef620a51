"""Vectors that begin at any element of a buffer, out of the aligned vectors in which they lie.

NVIDIA's chips load vectors from multiples of their size only: eight elements of 16 bits that begin anywhere would be
eight loads. Here they are two of 16 bytes, and a shift by a distance that is known when it runs (shift_elements.py).
"""

from __future__ import annotations

from mlir import ir

from ...dialects.dims import Dim
from ..loops.loops_builder import LoopsBuilder
from .gpu_kernel import element_bytes
from .shift_elements import shift_elements

VECTOR_BYTES = 16
MANY_PARTS = 4  # loads of a vector, from which on aligned ones and a shift are better


def are_whole(count: Dim, size: int) -> bool:
    """True if `count` elements of `size` bytes are whole vectors, so that no aligned load leaves them."""
    return isinstance(count, int) and size > 1 and count * size % VECTOR_BYTES == 0


def can_load(buffer: ir.Value, width: int) -> bool:
    """True if `width` elements are whole vectors of 16 bytes, and the buffer too."""
    type = ir.MemRefType(buffer.type)
    size = element_bytes(type.element_type)
    return width * size % VECTOR_BYTES == 0 and are_whole(type.shape[0], size)


def unaligned_load(b: LoopsBuilder, buffer: ir.Value, offset: ir.Value, width: int) -> ir.Value:
    """The `width` elements of `buffer` from number `offset` on, where `can_load`."""
    type = ir.MemRefType(buffer.type)
    lanes = VECTOR_BYTES // element_bytes(type.element_type)
    place = b.binary("arith.remui", offset, b.constant(lanes, b.index))
    first, count = b.binary("arith.subi", offset, place), width // lanes
    starts = [b.binary("arith.addi", first, b.constant(k * lanes, b.index)) for k in range(count + 1)]
    # where the last one is beyond the buffer, nothing of it is wanted
    starts[-1] = b.value("arith.minsi", (starts[-1], b.constant(type.shape[0] - lanes, b.index)), b.index)
    alignment, vector = ir.IntegerAttr.get(b.i64, VECTOR_BYTES), ir.VectorType.get([lanes], type.element_type)
    parts = [b.value("vector.load", (buffer, s), vector, alignment=alignment) for s in starts]
    return shift_elements(b, parts, place, width)
