"""The softmax between the two products of an attention, on the sums that one thread holds.

A thread has a few rows, which other lanes share (`layout`). The running maximum `m` of a row and the sums of its weights are kept:

    m' = max(m, max(s))      p = exp(s - m')      correction = exp(m - m')      total = correction total + sum(p)

Scores are not scaled before: `m` is in powers of two, `p = 2^(factor s - m)` with `factor` the scale times log2(e), one
multiply-add a score. `exact` scores (with a mask, which may hold the least float) are scaled already, and
`p = 2^(log2(e) (s - m))`, which no finite score overflows; a row may have no column there, and is a row of zeros then.
With `lazy`, `m` stays until some row of the warp exceeds it by 2^lazy: results are the same, most corrections are not made
(FlashAttention-4, "conditional rescaling").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from mlir import ir

from ...loops.loops_builder import LoopsBuilder
from ..block_reduce import shuffle_xor
from ..hopper.ptx import FULL_MASK
from .layout import Layout

LOG2E = 1.4426950408889634
LANES = 4  # independent chains of a maximum or a sum


@dataclass(frozen=True)
class RowState:
    """Maximum and total of each of this thread's rows."""

    top: tuple[ir.Value, ...]
    total: tuple[ir.Value, ...]

    @property
    def values(self) -> list[ir.Value]:
        return [*self.top, *self.total]


def row_state(values: Sequence[ir.Value]) -> RowState:
    """The state from its values."""
    half = len(values) // 2
    return RowState(tuple(values[:half]), tuple(values[half:]))


@dataclass(frozen=True)
class Step:
    """What one tile of keys changes: the state without new totals, the weights `p`, their sums, and corrections.

    With `lazy`, `grown` says whether corrections are made at all.
    """

    top: tuple[ir.Value, ...]
    weights: list[ir.Value]
    sums: tuple[ir.Value, ...]
    corrections: Callable[[], list[ir.Value]]
    grown: ir.Value | None


class Softmax:
    """Writes the softmax of a stage of scores that are to be multiplied by `scale`, or are `exact`."""

    def __init__(self, b: LoopsBuilder, scale: float, layout: Layout, lazy: int = 0, exact: bool = False):
        self.b, self.layout, self.functions = b, layout, layout.functions
        self.rows = range(len(layout.rows))
        self.factor, self.lazy, self.exact = scale * LOG2E, lazy, exact

    # -- arithmetic ------------------------------------------------------------------------------------------------
    def binary(self, name: str, x: ir.Value, y: ir.Value) -> ir.Value:
        """`arith.<name>` of two f32."""
        return self.b.value(f"arith.{name}", (x, y), self.b.f32)

    def maximum(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The larger one."""
        return self.binary(self.functions.maximum, x, y)

    def constant(self, value: float) -> ir.Value:
        """An f32."""
        return self.b.constant(value, self.b.f32)

    def exponential(self, x: ir.Value, top: ir.Value) -> ir.Value:
        """`exp` of a maximum less another."""
        difference = self.binary("subf", x, top)
        return self.exp2(self.binary("mulf", difference, self.constant(LOG2E)) if self.exact else difference)

    def exp2(self, x: ir.Value) -> ir.Value:
        """`2^x` in one instruction, 2 ulp."""
        return self._intrinsic(self.functions.exp2, x)

    def reciprocal(self, x: ir.Value) -> ir.Value:
        """`1 / x` in one instruction, 1 ulp."""
        return self._intrinsic(self.functions.reciprocal, x)

    def log2(self, x: ir.Value) -> ir.Value:
        """The binary logarithm in one instruction."""
        return self._intrinsic(self.functions.log2, x)

    def _intrinsic(self, name: str, x: ir.Value) -> ir.Value:
        attributes = {
            "intrin": ir.StringAttr.get(name),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        }
        return self.b.op("llvm.call_intrinsic", (x,), [self.b.f32], attributes).result

    def select(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        """`condition ? yes : no`."""
        return self.b.select(condition, yes, no)

    def is_equal(self, x: ir.Value, value: float) -> ir.Value:
        """`x == value`."""
        return self.b.compare("oeq", x, self.constant(value))

    # -- rows ------------------------------------------------------------------------------------------------------
    def of_row(self, values: Sequence[ir.Value], h: int) -> list[ir.Value]:
        """A thread's values in its row number `h`."""
        return [x for i, x in enumerate(values) if self.layout.row(i) == h]

    def _combined(self, name: str, values: Sequence[ir.Value]) -> ir.Value:
        lanes = list(values[:LANES])
        for i, x in enumerate(values[LANES:]):
            lanes[i % LANES] = self.binary(name, lanes[i % LANES], x)
        while len(lanes) > 1:
            lanes = [self.binary(name, x, y) for x, y in zip(lanes[::2], lanes[1::2])]
        return lanes[0]

    def across(self, name: str, x: ir.Value) -> ir.Value:
        """The result over the lanes that share a row."""
        for distance in self.layout.distances:
            x = self.binary(name, x, shuffle_xor(self.b, x, distance))
        return x

    # -- tiles of keys ---------------------------------------------------------------------------------------------
    def first(self, scores: Sequence[ir.Value]) -> tuple[RowState, list[ir.Value]]:
        """State and weights after the first tile."""
        step = self.step(scores, None)
        return RowState(step.top, step.sums), step.weights

    def step(self, scores: Sequence[ir.Value], before: RowState | None) -> Step:
        """One tile of keys, after those that led to the state `before`."""
        tops, grown = [self._top(self.of_row(scores, h)) for h in self.rows], None
        if before is not None and self.lazy:
            tops, grown = self._lazy_tops(tops, before)
        elif before is not None:
            tops = [self.maximum(t, m) for t, m in zip(tops, before.top)]
        bases = [self.base(t) for t in tops]
        weights = self._weights(scores, bases)
        sums = [self._combined("addf", self.of_row(weights, h)) for h in self.rows]

        def corrections() -> list[ir.Value]:
            assert before is not None
            return [self.exponential(before.top[h], bases[h]) for h in self.rows]

        return Step(tuple(tops), weights, tuple(sums), corrections, grown)

    def base(self, top: ir.Value) -> ir.Value:
        """What exponents are relative to: the maximum, and 0 for a row without columns."""
        return self.select(self.is_equal(top, -inf), self.constant(0.0), top) if self.exact else top

    def _top(self, scores: Sequence[ir.Value]) -> ir.Value:
        name = self.functions.maximum
        top = self.across(name, self._combined(name, scores))
        return top if self.exact else self.binary("mulf", top, self.constant(self.factor))

    def _weights(self, scores: Sequence[ir.Value], bases: Sequence[ir.Value]) -> list[ir.Value]:
        if self.exact:
            return [self.exponential(x, bases[self.layout.row(i)]) for i, x in enumerate(scores)]
        factor, minus = self.constant(self.factor), [self.b.value("arith.negf", (x,), self.b.f32) for x in bases]
        fma = lambda x, plus: self.b.value("math.fma", (x, factor, plus), self.b.f32)
        return [self.exp2(fma(x, minus[self.layout.row(i)])) for i, x in enumerate(scores)]

    def _lazy_tops(self, tops: list[ir.Value], before: RowState) -> tuple[list[ir.Value], ir.Value]:
        limit = self.lazy / LOG2E if self.exact else float(self.lazy)
        most = self._combined(self.functions.maximum, [self.binary("subf", t, m) for t, m in zip(tops, before.top)])
        over = self.b.compare("ugt", most, self.constant(limit))  # a NaN must be seen as growth
        grown = self._any(over)
        made = [self.select(grown, self.maximum(t, m), m) for t, m in zip(tops, before.top)]
        return made, grown

    def _any(self, condition: ir.Value) -> ir.Value:
        """True in all lanes of a wave if it is in one."""
        b = self.b
        if self.functions.ballot:
            lanes = ir.IntegerType.get_signless(self.layout.wave)
            ballot = b.value(self.functions.ballot, (condition,), lanes)
            return b.compare("ne", ballot, b.constant(0, lanes))
        kind = b.attribute("#nvvm<vote_sync_kind any>")
        return b.value("nvvm.vote.sync", (b.constant(FULL_MASK, b.i32), condition), b.i1, kind=kind)

    def pairs(self, weights: Sequence[ir.Value], element: ir.Type) -> list[ir.Value]:
        """Weights as pairs of 16-bit floats in i32: the left operand of the second product."""
        b, words = self.b, []
        for x, y in zip(weights[::2], weights[1::2]):
            wide = b.value("vector.from_elements", (x, y), ir.VectorType.get([2], b.f32))
            half = b.value("arith.truncf", (wide,), ir.VectorType.get([2], element))
            word = b.value("vector.bitcast", (half,), ir.VectorType.get([1], b.i32))
            words.append(b.extract(word, 0))
        return words

    # -- the end ---------------------------------------------------------------------------------------------------
    def finished(self, state: RowState) -> list[ir.Value]:
        """Totals over the whole rows."""
        return [self.across("addf", x) for x in state.total]

    def inverse(self, total: ir.Value) -> ir.Value:
        """`1 / total`, and 0 for a row without columns."""
        found = self.reciprocal(total)
        return self.select(self.is_equal(total, 0.0), self.constant(0.0), found) if self.exact else found

    def lse(self, top: ir.Value, total: ir.Value) -> ir.Value:
        """`log(sum(exp(scores)))`, and 0 for a row without columns."""
        logarithm = self.binary("mulf", self.log2(total), self.constant(1 / LOG2E))
        if not self.exact:
            return self.binary("addf", self.binary("mulf", top, self.constant(1 / LOG2E)), logarithm)
        return self.select(self.is_equal(total, 0.0), self.constant(0.0), self.binary("addf", top, logarithm))
