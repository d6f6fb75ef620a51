"""The softmax of attention scores in scratch, one block of keys at a time, in place.

Each query row carries its maximum so far and the sum of its exponentials relative to it. A block of keys gives

    top' = max(top, scores + mask);  correction = exp(top - top')
    scores = exp(scores + mask - top');  sum = sum * correction + sum(scores)

and what was accumulated before is multiplied by `correction`. At the end `lse = top + log(sum)`. Positions past the row's
keys, up to a whole number of panels, become -inf and so weigh nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mlir import ir

from ..lane_types import element_of
from ..math.exp import NONPOSITIVE
from . import numeric
from .attention_problem import AttentionProblem
from .code import Index
from .frame import Buffer, Frame
from .micro import Tile
from .values import Lane, Values


class Softmax:
    """Row `r` of the tile starts at `scores[r * length]`; `states` hold maximum, sum and correction of an item's rows.

    `lse` are the outputs that take the log of the sums. With `one_block` there is but one block of keys.
    """

    def __init__(
        self, frame: Frame, problem: AttentionProblem, tile: Tile, scores: ir.Value, length: int,
        states: Sequence[ir.Value], lse: Sequence[Buffer], one_block: bool,
    ):  # fmt: skip
        self.frame, self.code, self.problem, self.tile = frame, frame.code, problem, tile
        self.scores, self.length, self.lse, self.one_block = scores, length, lse, one_block
        self.tops, self.sums, self.corrections = states
        self.element = numeric.element_type(tile.dtype)
        self.vector = ir.VectorType.get([tile.width], self.element)

    def begin(self, state: Index) -> None:
        """Reset the state of a row."""
        code = self.code
        code.store(code.constant(-math.inf, self.element), self.tops, state)
        code.store(code.constant(0.0, self.element), self.sums, state)

    def correction(self, state: Index, width: int) -> ir.Value:
        """The factor for what a row accumulated before this block, as a vector."""
        return numeric.broadcast(self.code, self.code.load(self.corrections, state), width)

    def row(self, head: Sequence[Index], query: Index, r: Index, state: Index, first: Index, last: Index) -> None:
        """Row `r` of the tile: query `query` with keys `first .. last`."""
        code, columns = self.code, self.tile.columns
        start = code.mul(r, self.length)
        count = code.sub(last, first)
        padded = code.mul(code.ceildiv(count, columns), columns)
        if self.problem.causal:
            count = code.max(0, code.sub(code.min(last, code.add(query, 1)), first))
        if self.problem.mask is not None:
            self._mask(head, query, start, first, count)
        nothing = code.constant(-math.inf, self.element)
        code.loop(count, padded, 1, [], lambda j: code.store(nothing, self.scores, code.add(start, j)))
        top = self._fold(start, padded, -math.inf, self._maximum, lambda x, at: x)
        before = None if self.one_block else code.load(self.tops, state)
        top = top if before is None else self._maximum(before, top)
        code.store(top, self.tops, state)
        # with everything masked so far, any finite maximum gives exponentials of 0
        top = self._select(self._equal(top, -math.inf), 0.0, top)
        spread = numeric.broadcast(code, top, self.tile.width)

        def exponential(x: ir.Value, at: Index) -> ir.Value:
            e = self._exp(code.op("arith.subf", [self.vector], [x, spread]))
            code.vstore(e, self.scores, at)
            return e

        add = lambda a, b: numeric.add(code, a, b)
        total = self._fold(start, padded, 0.0, add, exponential)
        if before is not None:
            correction = self._exp(code.op("arith.subf", [self.element], [before, top]))
            code.store(correction, self.corrections, state)
            total = numeric.multiply_add(code, code.load(self.sums, state), correction, total)
        code.store(total, self.sums, state)

    def end(self, head: Sequence[Index], query: Index, state: Index) -> ir.Value:
        """Store the row's lse; returns the factor that normalizes what it accumulated."""
        code = self.code
        total, top = code.load(self.sums, state), code.load(self.tops, state)
        empty = self._equal(total, 0.0)
        if self.lse:
            lse = numeric.add(code, top, code.op("math.log", [self.element], [total]))
            self._store_lse(head, query, self._select(empty, 0.0, lse))
        factor = code.op("arith.divf", [self.element], [code.constant(1.0, self.element), total])
        return self._select(empty, 0.0, factor)

    def _exp(self, x: ir.Value) -> ir.Value:
        """`exp(x)` of a difference from a maximum: at most 0."""
        return self.code.op("math.exp", [x.type], [x], **{NONPOSITIVE: ir.UnitAttr.get()})

    def _maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The larger value. A NaN may be lost here, but comes back when its exponential is taken."""
        condition = numeric.compare(self.code, "ogt", a, b)
        return self.code.op("arith.select", [a.type], [condition, a, b])

    def _select(self, condition: ir.Value, a: float, b: ir.Value) -> ir.Value:
        return self.code.op("arith.select", [b.type], [condition, self.code.constant(a, b.type), b])

    def _equal(self, x: ir.Value, constant: float) -> ir.Value:
        return numeric.compare(self.code, "oeq", x, self.code.constant(constant, x.type))

    def _fold(
        self, start: Index, size: Index, init: float, combine: Callable[..., ir.Value], element: Callable[..., ir.Value]
    ) -> ir.Value:  # fmt: skip
        """Combine `element(vector, at)` over the row: an accumulator per vector of a panel, then a tree over lanes."""
        code, tile = self.code, self.tile

        def step(j: Index, *acc: ir.Value) -> list[ir.Value]:
            places = [code.add(start, j, q * tile.width) for q in range(tile.vectors)]
            return [combine(element(code.vload(self.scores, at, tile.width), at), a) for a, at in zip(acc, places)]

        parts = code.loop(0, size, tile.columns, [code.constant(init, self.vector)] * tile.vectors, step)
        total = parts[0]
        for part in parts[1:]:
            total = combine(total, part)
        while ir.VectorType(total.type).shape[0] > 1:
            total = combine(*self._halves(total))
        return code.op("vector.extract", [self.element], [total], static_position=ir.DenseI64ArrayAttr.get([0]))

    def _halves(self, x: ir.Value) -> list[ir.Value]:
        half = ir.VectorType(x.type).shape[0] // 2
        kind = ir.VectorType.get([half], self.element)
        masks = [ir.DenseI64ArrayAttr.get(range(low, low + half)) for low in (0, half)]
        return [self.code.op("vector.shuffle", [kind], [x, x], mask=mask) for mask in masks]

    def _mask(self, head: Sequence[Index], query: Index, start: Index, first: Index, count: Index) -> None:
        """Add a float mask, or put -inf where a bool mask is False."""
        code, p, width = self.code, self.problem, self.tile.width
        shape = p.mask_shape
        index = [*head, query][len(head) + 2 - len(shape) :]
        names = [code.register(f"@q{d}", 0 if n == 1 else i) for d, (i, n) in enumerate(zip(index, shape[:-1]))]

        def element(j: Index, lanes: int) -> None:
            lane = Lane(code, "@j", code.add(first, j), (p.keys,), lanes)
            last = code.register("@zero", 0) if shape[-1] == 1 else lane.index[0]
            mask = numeric.spread(code, Values(self.frame, {}, lane).at(p.mask, (*names, last)), lanes)
            at = code.add(start, j)
            x = code.load(self.scores, at) if lanes == 1 else code.vload(self.scores, at, lanes)
            (code.store if lanes == 1 else code.vstore)(self._masked(x, mask), self.scores, at)

        whole = code.mul(code.div(count, width), width)
        code.loop(0, whole, width, [], lambda j: element(j, width))
        code.loop(whole, count, 1, [], lambda j: element(j, 1))

    def _masked(self, x: ir.Value, mask: ir.Value) -> ir.Value:
        code = self.code
        element = element_of(mask.type)
        if isinstance(element, ir.FloatType):
            return numeric.add(code, x, numeric.convert(code, mask, str(element), self.tile.dtype))
        keep = numeric.compare(code, "ne", mask, code.constant(0, mask.type))
        return code.op("arith.select", [x.type], [keep, x, code.constant(-math.inf, x.type)])

    def _store_lse(self, head: Sequence[Index], query: Index, value: ir.Value) -> None:
        code = self.code
        position: Index = 0
        for size, i in zip((*self.problem.heads, self.problem.queries), [*head, query]):
            position = code.add(code.mul(position, code.size(size)), i)
        for buffer in self.lse:
            code.store(numeric.convert(code, value, self.tile.dtype, buffer.dtype), buffer.memref, position)
