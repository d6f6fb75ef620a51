"""Neighbouring elements out of aligned loads, from a place on that is known when the kernel runs.

    words       |--------|--------|--------|     as they lie in memory, each 16 bytes aligned
    wanted          |--------|--------|          the elements from number `place` on

Whole words move by selects, one for each bit of the distance, and what is left of it, bytes, by funnel shifts. Where the
place is a constant, words are chosen by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ..loops.loops_builder import LoopsBuilder
from .gpu_kernel import element_bytes

WORD = 4  # bytes


def shift_elements(b: LoopsBuilder, parts: Sequence[ir.Value], place: ir.Value | int, count: int) -> ir.Value:
    """The `count` elements from number `place` (less than a part has elements) of the vectors `parts` on."""
    type = ir.VectorType(parts[0].type)
    element, lanes = type.element_type, type.shape[0]
    size = element_bytes(element)
    words = [w for p in parts for w in as_words(b, p)]
    if isinstance(place, int):
        whole, rest = divmod(place * size, WORD)
        words = words[whole : whole + count * size // WORD + 1]
        return as_vector(b, _moved(b, words, b.constant(8 * rest, b.i32)) if rest else words[:-1], count, element)
    distance = b.value("arith.muli", (i32(b, place), b.constant(size, b.i32)), b.i32)
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
        words = _moved(b, words, b.value("arith.muli", (rest, b.constant(8, b.i32)), b.i32))
    return list(words[:count])


def _moved(b: LoopsBuilder, words: Sequence[ir.Value], bits: ir.Value) -> list[ir.Value]:
    """Words from bit number `bits`, of less than a word, of `words` on: one less."""
    return [b.value("llvm.intr.fshr", (y, x, bits), b.i32) for x, y in zip(words, words[1:])]


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
