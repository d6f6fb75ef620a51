"""The softmax of one row of attention scores in scratch: mask, maximum, exponentials and their sum, in place.

    scores[r] = exp(scores[r] + mask - max);  factors[r] = 1 / sum;  lse = max + log(sum)

Positions past the row's keys, up to a whole number of panels, become -inf and so weigh nothing.
"""

from __future__ import annotations

import math

from mlir import ir

from . import tiles_numeric as numeric
from .attention_problem import AttentionProblem
from .tiles_code import Index
from .tiles_frame import Buffer, Frame
from .tiles_micro import Tile
from .tiles_values import Lane, Values


class Softmax:
    """Row `r` of the tile starts at `scores[r * length]`; `lse` are the outputs that take the log of the sums."""

    def __init__(
        self, frame: Frame, problem: AttentionProblem, tile: Tile, scores: ir.Value, length: Index, factors: ir.Value,
        lse: list[Buffer],
    ):  # fmt: skip
        self.frame, self.code, self.problem, self.tile = frame, frame.code, problem, tile
        self.scores, self.length, self.factors, self.lse = scores, length, factors, lse
        self.element = numeric.element_type(tile.dtype)
        self.vector = ir.VectorType.get([tile.width], self.element)
        self.keys = frame.code.size(problem.keys)

    def row(self, head: list[Index], query: Index, r: Index, keys: Index) -> None:
        """Row `r` of the tile, which is query `query`; the tile has scores for `keys` keys."""
        code, columns = self.code, self.tile.columns
        start = code.mul(r, self.length)
        count = code.min(self.keys, code.add(query, 1)) if self.problem.causal else keys
        padded = code.mul(code.ceildiv(keys, columns), columns)
        if self.problem.mask is not None:
            self._mask(head, query, start, count)
        nothing = code.constant(-math.inf, self.element)
        code.loop(count, padded, 1, [], lambda j: code.store(nothing, self.scores, code.add(start, j)))
        top = self._fold(start, padded, -math.inf, "maxnumf", lambda x, at: x)
        all_masked = self._compare(top, -math.inf)
        top = code.op("arith.select", [self.element], [all_masked, code.constant(0.0, self.element), top])
        spread = numeric.broadcast(code, top, self.tile.width)

        def exponential(x: ir.Value, at: Index) -> ir.Value:
            e = code.op("math.exp", [self.vector], [code.op("arith.subf", [self.vector], [x, spread])])
            code.vstore(e, self.scores, at)
            return e

        total = self._fold(start, padded, 0.0, "addf", exponential)
        empty = self._compare(total, 0.0)
        one, zero = code.constant(1.0, self.element), code.constant(0.0, self.element)
        factor = code.op("arith.divf", [self.element], [one, total])
        code.store(code.op("arith.select", [self.element], [empty, zero, factor]), self.factors, r)
        if self.lse:
            log = code.op("math.log", [self.element], [total])
            value = code.op("arith.addf", [self.element], [top, log])
            self._store_lse(head, query, code.op("arith.select", [self.element], [empty, zero, value]))

    def _fold(self, start: Index, size: Index, init: float, combine: str, element) -> ir.Value:  # noqa: ANN001
        """Combine `element(vector, at)` over the row, in one accumulator per vector of a panel."""
        code, tile = self.code, self.tile

        def step(j: Index, *acc: ir.Value) -> list[ir.Value]:
            out = []
            for q, a in enumerate(acc):
                at = code.add(start, j, q * tile.width)
                x = element(code.vload(self.scores, at, tile.width), at)
                out.append(code.op(f"arith.{combine}", [self.vector], [a, x]))
            return out

        parts = code.loop(0, size, tile.columns, [code.constant(init, self.vector)] * tile.vectors, step)
        total = parts[0]
        for part in parts[1:]:
            total = code.op(f"arith.{combine}", [self.vector], [total, part])
        kind = ir.Attribute.parse(f"#vector.kind<{'add' if combine == 'addf' else combine}>")
        return code.op("vector.reduction", [self.element], [total], kind=kind, fastmath=self._reassociate(combine))

    def _reassociate(self, combine: str) -> ir.Attribute:
        return ir.Attribute.parse(f"#arith.fastmath<{'reassoc' if combine == 'addf' else 'none'}>")

    def _compare(self, x: ir.Value, constant: float) -> ir.Value:
        """`x == constant`, ordered."""
        code, i1 = self.code, ir.IntegerType.get_signless(1)
        oeq = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)
        return code.op("arith.cmpf", [i1], [x, code.constant(constant, x.type)], predicate=oeq)

    def _mask(self, head: list[Index], query: Index, start: Index, count: Index) -> None:
        """Add a float mask, or put -inf where a bool mask is False."""
        code, p, width = self.code, self.problem, self.tile.width
        index = [*head, query][len(head) + 2 - len(p.mask_shape) :]
        names = [
            code.register(f"@q{d}", 0 if size == 1 else i) for d, (i, size) in enumerate(zip(index, p.mask_shape[:-1]))
        ]
        broadcast = p.mask_shape[-1] == 1

        def element(j: Index, lanes: int) -> None:
            lane = Lane(code, "@j", j, (p.keys,), lanes)
            mask = Values(self.frame, {}, lane).at(
                p.mask, (*names, code.register("@zero", 0) if broadcast else lane.index[0])
            )
            mask = numeric.spread(code, mask, lanes)
            at = code.add(start, j)
            x = code.load(self.scores, at) if lanes == 1 else code.vload(self.scores, at, lanes)
            (code.store if lanes == 1 else code.vstore)(self._masked(x, mask), self.scores, at)

        whole = code.mul(code.div(count, width), width)
        code.loop(0, whole, width, [], lambda j: element(j, width))
        code.loop(whole, count, 1, [], lambda j: element(j, 1))

    def _masked(self, x: ir.Value, mask: ir.Value) -> ir.Value:
        code = self.code
        element = ir.VectorType(mask.type).element_type if isinstance(mask.type, ir.VectorType) else mask.type
        if isinstance(element, ir.FloatType):
            return numeric.add(code, x, numeric.convert(code, mask, str(element), self.tile.dtype))
        i1 = numeric.like(mask, ir.IntegerType.get_signless(1))
        ne = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)
        keep = code.op("arith.cmpi", [i1], [mask, code.constant(0, mask.type)], predicate=ne)
        return code.op("arith.select", [x.type], [keep, x, code.constant(-math.inf, x.type)])

    def _store_lse(self, head: list[Index], query: Index, value: ir.Value) -> None:
        code = self.code
        position: Index = 0
        for size, i in zip((*self.problem.heads, self.problem.queries), [*head, query]):
            position = code.add(code.mul(position, code.size(size)), i)
        for buffer in self.lse:
            code.store(numeric.convert(code, value, self.tile.dtype, buffer.dtype), buffer.memref, position)
