"""NVIDIA's `mma.sync` as a matrix unit (`matrix_units`), for chips since sm_80: 16 x 16 results of a warp.

Four lanes share a row: lane `l` holds rows `l / 4` and `l / 4 + 8` of both sides, 8 neighbouring k of the 32 that the
four read together (one load of 16 bytes a row). An instruction of 16 x 8 x 16 takes two pairs of k from each lane; which
k these are does not matter as long as both sides agree.

    result 4 t + 2 h + e of a lane:  row l / 4 + 8 h, column 8 t + 2 (l mod 4) + e
    in order, after an exchange among the four lanes:  8 columns of one row

Source: PTX ISA, matrix fragments for mma.m16n8k16.
"""

from __future__ import annotations

from mlir import ir

from ...loops.loops_builder import LoopsBuilder
from ..ampere.warp import multiply
from ..block_reduce import shuffle_xor
from .matrix_units import Load, Unit

QUAD = 4  # lanes that share a row
EIGHT = 8


class MmaSync(Unit):
    """16-bit floats, sums in f32."""

    def load(self, b: LoopsBuilder, lane: ir.Value, load: Load, columns: bool) -> ir.Value:
        row = b.binary("arith.divui", lane, b.constant(QUAD, b.index))
        first = b.binary("arith.muli", self._quad(b, lane), b.constant(self.read, b.index))
        upper, lower = load(row, first, 0, self.read), load(row, first, EIGHT, self.read)
        element = ir.VectorType(upper.type).element_type
        both = ir.DenseI64ArrayAttr.get(list(range(2 * self.read)))
        return b.value("vector.shuffle", (upper, lower), ir.VectorType.get([2 * self.read], element), mask=both)

    def multiply(self, b: LoopsBuilder, d: ir.Value, rows: ir.Value, columns: ir.Value) -> ir.Value:
        element = str(ir.VectorType(rows.type).element_type)
        a, c = self._words(b, rows), self._words(b, columns)  # words 0 .. 3 of row l / 4, 4 .. 7 of row l / 4 + 8
        sums = [b.extract(d, i) for i in range(EIGHT)]
        for t in range(2):
            for k in (0, 2):
                left = (a[k], a[4 + k], a[k + 1], a[5 + k])
                right = (c[4 * t + k], c[4 * t + k + 1])
                sums[4 * t : 4 * t + 4] = multiply(b, element, left, right, sums[4 * t : 4 * t + 4])
        return b.value("vector.from_elements", sums, d.type)

    def in_order(self, b: LoopsBuilder, lane: ir.Value, d: ir.Value) -> ir.Value:
        """A lane gets the pairs of one row and eight columns: a transpose of 4 x 4 pairs in each four lanes."""
        pairs = [[b.extract(d, 4 * t + 2 * h + e) for e in range(2)] for h in range(2) for t in range(2)]
        quad = self._quad(b, lane)
        for distance, exchanged in ((1, ((0, 1), (2, 3))), (2, ((0, 2), (1, 3)))):
            bit = b.value("arith.andi", (quad, b.constant(distance, b.index)), b.index)
            odd = b.compare("ne", bit, 0)
            choose = lambda yes, no, odd=odd: b.select(odd, yes, no)
            for x, y in exchanged:
                for e in range(2):
                    p, q = pairs[x][e], pairs[y][e]
                    other = shuffle_xor(b, choose(p, q), distance)
                    pairs[x][e], pairs[y][e] = choose(other, p), choose(q, other)
        return b.value("vector.from_elements", [v for pair in pairs for v in pair], d.type)

    def place(self, b: LoopsBuilder, lane: ir.Value) -> tuple[ir.Value, ir.Value]:
        quad = self._quad(b, lane)
        half, right = (b.binary(f"arith.{op}", quad, b.constant(2, b.index)) for op in ("divui", "remui"))
        row = b.binary("arith.divui", lane, b.constant(QUAD, b.index))
        row = b.binary("arith.addi", row, b.binary("arith.muli", half, b.constant(EIGHT, b.index)))
        return row, b.binary("arith.muli", right, b.constant(EIGHT, b.index))

    def _quad(self, b: LoopsBuilder, lane: ir.Value) -> ir.Value:
        return b.binary("arith.remui", lane, b.constant(QUAD, b.index))

    def _words(self, b: LoopsBuilder, vector: ir.Value) -> list[ir.Value]:
        words = b.value("vector.bitcast", (vector,), ir.VectorType.get([self.read], b.i32))
        return b.elements(words)


MMA_SYNC = MmaSync("nvvm.mma.sync", k=16, read=8, step=32, results=8, scalars=False)
