"""Vectors that begin at any element of a buffer, out of the aligned vectors in which they lie.

NVIDIA's chips load vectors from multiples of their size only: eight elements of 16 bits that begin anywhere would be
eight loads. Here they are two of 16 bytes, and a shift by a distance that is known when it runs, or is a constant
(shift_elements.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mlir import ir

from ...dialects.dims import Dim
from ..loops.loops_builder import LoopsBuilder
from .gpu_kernel import element_bytes
from .shift_elements import shift_elements

VECTOR_BYTES = 16
Load = Callable[[ir.Value], ir.Value]  # of the vector that begins at an element
MANY_PARTS = 4  # loads of a vector, from which on aligned ones and a shift are better


def are_whole(count: Dim, size: int) -> bool:
    """True if `count` elements of `size` bytes are whole vectors, so that no aligned load leaves them."""
    return isinstance(count, int) and size > 1 and count * size % VECTOR_BYTES == 0


def can_load(buffer: ir.Value, count: Dim, width: int) -> bool:
    """True if `width` elements of `count` are whole vectors of 16 bytes, and the buffer has such."""
    type = ir.MemRefType(buffer.type)
    size = element_bytes(type.element_type)
    long = not isinstance(count, int) or lanes_of(type) <= count
    return long and size > 1 and width * size % VECTOR_BYTES == 0


def lanes_of(type: ir.MemRefType) -> int:
    """The elements of a vector."""
    return VECTOR_BYTES // element_bytes(type.element_type)


def unaligned_load(
    b: LoopsBuilder,
    buffer: ir.Value,
    end: Dim,
    offset: ir.Value,
    width: int,
    within: bool,
    load: Load | None = None,
    place: int | None = None,
) -> ir.Value:
    """The `width` elements of `buffer`, which has `end`, from number `offset` on, where `can_load`.

    `within`: there is a vector more behind them. `load` loads the aligned ones. `place`: that of the first element in its
    aligned vector, where it is known.
    """
    type = ir.MemRefType(buffer.type)
    lanes, load = lanes_of(type), load or partial(_part, b, buffer)
    at = place if place is not None else b.binary("arith.remui", offset, b.constant(lanes, b.index))
    first, count = (
        b.binary("arith.subi", offset, at if isinstance(at, ir.Value) else b.constant(at, b.index)),
        width // lanes,
    )
    starts = [b.binary("arith.addi", first, b.constant(k * lanes, b.index)) for k in range(count + 1)]
    parts = [load(s) for s in starts[:-1]]  # an element that is wanted is in each
    last = load(starts[-1]) if within else aligned_load(b, buffer, end, starts[-1], load)
    return shift_elements(b, [*parts, last], at, width)


def _part(b: LoopsBuilder, buffer: ir.Value, start: ir.Value) -> ir.Value:
    type = ir.MemRefType(buffer.type)
    vector = ir.VectorType.get([lanes_of(type)], type.element_type)
    return b.value("vector.load", (buffer, start), vector, alignment=ir.IntegerAttr.get(b.i64, VECTOR_BYTES))


def aligned_load(b: LoopsBuilder, buffer: ir.Value, end: Dim, start: ir.Value, load: Load | None = None) -> ir.Value:
    """The vector from `start` on, a multiple of its lanes; where the buffer ends (at `end`) before it does, other elements
    stand for what nobody wants."""
    type = ir.MemRefType(buffer.type)
    lanes, load = lanes_of(type), load or partial(_part, b, buffer)
    if are_whole(end, element_bytes(type.element_type)):
        return load(b.value("arith.minsi", (start, b.dim(end - lanes)), b.index))

    def single() -> list[ir.Value]:
        places = [b.value("arith.addi", (start, b.constant(k, b.index)), b.index) for k in range(lanes)]
        places = [b.value("arith.minsi", (p, b.dim(end - 1)), b.index) for p in places]
        loads = [b.value("memref.load", (buffer, p), type.element_type) for p in places]
        return [b.value("vector.from_elements", loads, ir.VectorType.get([lanes], type.element_type))]

    fits = b.compare("sle", start, end - lanes)
    vector = ir.VectorType.get([lanes], type.element_type)
    return b.branch(fits, [vector], lambda: [load(start)], single)[0]
