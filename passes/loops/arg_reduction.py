"""The position of an extreme: the extreme first, then the first position that holds it.

`best, at = take ? (v, here) : (best, at)` carries a decision from element to element, which LLVM leaves scalar. Two
reductions it makes vectors of, and the second reads what the first has just brought into the cache:

    for j: best = max(best, v[j])
    for j: at = min(at, v[j] == best or v[j] is NaN ? j : largest)     if best is NaN, only a NaN matches, else none is

The reduction says that it is one of this kind, and by which op it compares: `lamina.arg = "arith.maximumf"`
(passes/linalg/linalg_reduce.py). On a GPU threads combine their partial results by the body itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..lane_types import like
from ..linalg.linalg_reduce import ARG
from .evaluate_accesses import TOKEN, Accesses
from .loop_nest import Loop
from .order_keys import combine_keys, flat, from_key, is_orderable, to_key, unflat
from .reduction_loops import Accumulator, is_small, reduction_loops
from .tensor_graph import Generic

if TYPE_CHECKING:
    from .evaluate import Evaluator


def is_searched(ev: Evaluator, g: Generic, over: Sequence[Loop], loops: Sequence[Dim]) -> bool:
    """True if `g` is such a reduction, and its elements may be computed twice.

    Sums inside an element may be rounded in another order the second time, and the extreme would not be found again.
    """
    if ARG not in g.op.attributes:
        return False
    accesses = Accesses(ev.graph, ev.ranges.copy())
    accesses.body(g, loops, [TOKEN] * len(g.outs))
    names = {l.name for l in over}
    return not any(
        dims.symbols(i) & names for r in accesses.reductions if not is_small(r.generic) for i in r.index
    )  # fmt: skip


def search(
    ev: Evaluator,
    g: Generic,
    over: Sequence[Loop],
    inits: Sequence[Any],
    loops: Sequence[Dim],
    each: Callable[[], None],
) -> list[Any]:
    """`[best, at]` of `g` over the loops `over`; `each()` is emitted in the innermost loop of the first pass."""
    b = ev.b
    combine = ir.StringAttr(g.op.attributes[ARG]).value
    makers = {r: op for op in g.body for r in op.results}
    element, here = (makers[x].operands[1] for x in g.body[-1].operands)  # of `select take, element, accumulator`
    floats = is_orderable(inits[0].type)

    def larger(carried: list[Any]) -> list[Any]:
        each()
        v = ev.vector(ev.body_values(g, loops, inits, [element])[0])
        if floats:
            return flat([combine_keys(b, combine, unflat(carried, [start])[0], v)])
        return [b.value(combine, (carried[0], v), v.type)]

    start = to_key(b, inits[0], combine) if floats else inits[0]
    starts = flat([start])
    found = reduction_loops(b, over, starts, [Accumulator(element, combine)] * len(starts), larger, 0)
    best = from_key(b, unflat(found, [start])[0], inits[0].type, combine) if floats else found[0]

    total = dims.product(l.extent for l in over)
    bits = 32 if isinstance(total, int) and total < 1 << 31 else 64
    at_type = like(inits[1].type, ir.IntegerType.get_signless(bits))
    last = b.constant((1 << bits - 1) - 1, at_type)

    def first(carried: list[Any]) -> list[Any]:
        v, position = map(ev.vector, ev.body_values(g, loops, inits, [element, here]))
        if bits == 32:
            position = b.value("arith.trunci", (position,), at_type)
        found = _equal(ev, v, best)
        position = b.select(found, position, last)
        return [b.value("arith.minsi", (carried[0], position), at_type)]

    at = reduction_loops(b, over, [last], [Accumulator(here, "arith.minsi")], first, 0)[0]
    return [best, b.value("arith.extsi", (at,), inits[1].type) if bits == 32 else at]


def _equal(ev: Evaluator, v: ir.Value, best: ir.Value) -> ir.Value:
    """True where `v` is `best`, or NaN."""
    b = ev.b
    i1 = like(v.type, b.i1)
    if not is_orderable(v.type):
        return b.compare("eq", v, best)
    same = b.compare("oeq", v, best)
    nan = b.compare("uno", v, v)
    return b.value("arith.ori", (same, nan), i1)
