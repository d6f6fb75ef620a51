"""Neighbouring elements out of aligned loads, from a place on that is known when the kernel runs.

    words       |--------|--------|--------|     as they lie in memory, each 16 bytes aligned
    wanted          |--------|--------|          the elements from number `place` on

Whole words move by selects, one for each bit of the distance, and what is left of it, bytes, by funnel shifts.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ..loops.loops_builder import LoopsBuilder
from .gpu_kernel import element_bytes

WORD = 4  # bytes


def shift_elements(b: LoopsBuilder, parts: Sequence[ir.Value], place: ir.Value, count: int) -> ir.Value:
    """The `count` elements from number `place` (an index, less than a part has elements) of the vectors `parts` on."""
    type = ir.VectorType(parts[0].type)
    element, lanes = type.element_type, type.shape[0]
    size = element_bytes(element)
    distance = b.value("arith.muli", (i32(b, place), b.constant(size, b.i32)), b.i32)
    words = [w for p in parts for w in as_words(b, p)]
    return as_vector(b, shift_words(b, words, distance, lanes * size, size, count * size // WORD), count, element)


def shift_words(
    b: LoopsBuilder, words: Sequence[ir.Value], distance: ir.Value, end: int, unit: int, count: int
) -> list[ir.Value]:
    """`count` words from byte `distance` (i32, a multiple of `unit`, less than `end`) of `words` on."""
    step = end // 2
    while step >= max(WORD, unit):
        moved = b.value("arith.andi", (distance, b.constant(step, b.i32)), b.i32)
        far = b.compare("ne", moved, b.constant(0, b.i32))
        pairs = zip(words, words[step // WORD :])
        words = [b.select(far, later, word) for word, later in pairs]
        step //= 2
    if unit < WORD:
        rest = b.value("arith.andi", (distance, b.constant(WORD - 1, b.i32)), b.i32)
        bits = b.value("arith.muli", (rest, b.constant(8, b.i32)), b.i32)
        words = [b.value("llvm.intr.fshr", (y, x, bits), b.i32) for x, y in zip(words, words[1:])]
    return list(words[:count])


def i32(b: LoopsBuilder, value: ir.Value) -> ir.Value:
    """An index as an i32."""
    return b.value("arith.index_cast", (value,), b.i32)


def as_words(b: LoopsBuilder, vector: ir.Value) -> list[ir.Value]:
    """The words of a vector of whole words."""
    type = ir.VectorType(vector.type)
    count = type.shape[0] * element_bytes(type.element_type) // WORD
    wanted = ir.VectorType.get([count], b.i32)
    words = vector if type == wanted else b.value("vector.bitcast", (vector,), wanted)
    return b.elements(words)


def as_vector(b: LoopsBuilder, words: Sequence[ir.Value], count: int, element: ir.Type) -> ir.Value:
    """Words as a vector of `count` elements."""
    made = b.value("vector.from_elements", list(words), ir.VectorType.get([len(words)], b.i32))
    wanted = ir.VectorType.get([count], element)
    return made if made.type == wanted else b.value("vector.bitcast", (made,), wanted)
