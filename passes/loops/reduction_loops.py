"""The loops of a reduction: accumulators in registers, and long f32 sums in blocks.

One f32 accumulator over a million elements loses four digits. LLVM spreads a loop over several vectors of partial sums
(the combining op is marked `reassoc`), which covers a thousand elements; beyond that each block's sum is added
to an f64 total:

    total: f64 = init
    for block in 0..n step 1024:  total += f64(sum of the block in f32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..lane_types import element_of, like
from .loop_nest import Loop
from .loops_builder import LoopsBuilder
from .tensor_graph import Generic

SMALL = 9  # a reduction of at most so many terms is unrolled: 3 x 3 windows, three colours
# Sums that a long loop adds to at once: two additions start in each cycle and take four. LLVM's own choice is 4 vectors,
# with which a layer norm of 1024 x 1024 takes 1.05 to 1.1 times as long.
SUMS = 8
LONG = 512  # elements of a long loop: at least four times the largest vectors of 8 sums


def is_small(g: Generic) -> bool:
    """True for a reduction that is unrolled rather than looped over."""
    extents = [g.extents[d] for d in g.reductions]
    return all(isinstance(e, int) for e in extents) and dims.product(extents) <= SMALL  # type: ignore[operator]


@dataclass(frozen=True)
class Accumulator:
    """How one accumulator is combined: `result` is the body's combining value."""

    result: ir.Value
    name: str = ""  # the combining op where the accumulator occurs there and nowhere else

    @property
    def is_sum(self) -> bool:
        return self.name == "arith.addf"

    @property
    def is_extreme(self) -> bool:
        return self.name in ("arith.maximumf", "arith.minimumf")

    @property
    def is_product(self) -> bool:
        return self.name == "arith.mulf"


def accumulator_kinds(g: Generic) -> list[Accumulator]:
    """One per result of the reduction `g`."""
    makers = {r: op for op in g.body for r in op.results}
    uses: dict[ir.Value, int] = {}
    for op in g.body:
        for x in op.operands:
            uses[x] = uses.get(x, 0) + 1
    kinds = []
    for i, result in enumerate(g.body[-1].operands):
        accumulator = g.arguments[len(g.inputs) + i]
        op = makers.get(result)
        direct = op is not None and accumulator in op.operands and uses.get(accumulator) == 1 and uses[result] == 1
        kinds.append(Accumulator(result, op.name if op is not None and direct else ""))
    return kinds


def reduction_loops(
    b: LoopsBuilder,
    loops: Sequence[Loop],
    inits: Sequence[Any],
    kinds: Sequence[Accumulator],
    body: Callable[[list[Any]], list[Any]],
    block: int,
    interleave: int = 0,
) -> list[Any]:
    """Emit `loops` around `body(accumulators) -> accumulators`; returns the final values.

    `block` is how many terms of an f32 sum the innermost loop may add before it goes to the f64 total. `interleave` is
    how many vectors a long innermost loop works on at once; 0: as LLVM thinks.
    """
    if not loops:
        return body(list(inits))
    if not isinstance(loops[-1].extent, int) or loops[-1].extent < LONG:
        interleave = 0
    total = dims.product(l.extent for l in loops)
    wide = [k.is_sum and element_of(v.type) == b.f32 for k, v in zip(kinds, inits)]
    if not any(wide) or (isinstance(total, int) and total <= block):
        return _plain(b, loops, list(inits), body, interleave)
    carried = [_cast(b, "arith.extf", v, b.f64) if w else v for v, w in zip(inits, wide)]

    def piece(low: Any, high: Any, values: list[Any]) -> list[Any]:
        """The innermost loop over low..high, its sums added to the f64 totals."""
        starts = [b.constant(0.0, like(v.type, b.f32)) if w else v for v, w in zip(values, wide)]
        sums = b.loop_carried(loops[-1].name, low, high, starts, lambda _, acc: body(acc), 1, interleave)
        return [
            b.value("arith.addf", (v, _cast(b, "arith.extf", s, b.f64)), v.type) if w else s
            for v, s, w in zip(values, sums, wide)
        ]

    def innermost(values: list[Any]) -> list[Any]:
        extent = loops[-1].extent
        if isinstance(extent, int) and extent <= block:
            return piece(0, extent, values)

        def step(start: Dim, values: list[Any]) -> list[Any]:
            stop = b.value("arith.minsi", (b.dim(start + block), b.dim(extent)), b.index)
            return piece(b.dim(start), stop, values)

        b.fresh += 1
        return b.loop_carried(f"b{b.fresh}", 0, extent, values, step, step=block)

    results = _plain(b, loops[:-1], carried, innermost, 0)
    return [_cast(b, "arith.truncf", v, b.f32) if w else v for v, w in zip(results, wide)]


def _plain(
    b: LoopsBuilder, loops: Sequence[Loop], inits: list[Any], body: Callable[[list[Any]], list[Any]], interleave: int
) -> list[Any]:
    if not loops:
        return body(inits)
    first, *others = loops

    def inner(_: Dim, values: list[Any]) -> list[Any]:
        return _plain(b, others, values, body, interleave)

    return b.loop_carried(first.name, 0, first.extent, inits, inner, 1, 0 if others else interleave)


def _cast(b: LoopsBuilder, name: str, value: ir.Value, element: ir.Type) -> ir.Value:
    return b.value(name, (value,), like(value.type, element))
