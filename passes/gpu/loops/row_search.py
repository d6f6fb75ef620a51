"""The position of a row's extreme: the extreme first, then the first position that holds it, among what registers hold.

    best = max(best, v[j])   for the row       at = v[j] == best or v[j] is NaN ? j : at   from the last vector to the first

`best, at = take ? (v, here) : (best, at)`, element by element, is ten instructions, of NaN and of equal elements; this is five.
On CPUs `passes/loops/arg_reduction.py` does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlir import ir

from ....dialects.dims import Dim
from ...lane_types import element_of, like
from ...linalg.linalg_reduce import ARG
from ..block_reduce import reduce_block
from ..thread_values import ThreadValues
from .joint_reductions import Joint

if TYPE_CHECKING:
    from .row_values import Row


def is_searched(joint: Joint) -> bool:
    """True for one such reduction."""
    return len(joint.generics) == 1 and ARG in joint.first.op.attributes


def search_row(row: Row, ev: ThreadValues, joint: Joint, at: Sequence[Dim]) -> list[Any]:
    """`[best, at]` of a row in registers, whose position in the loops is `at`, in all of its threads."""
    b, g = ev.b, joint.first
    combine = ir.StringAttr(g.op.attributes[ARG]).value
    makers = {r: op for op in g.body for r in op.results}
    element, here = (makers[x].operands[1] for x in g.body[-1].operands)  # of `select take, element, accumulator`
    inits, pieces = joint.inits(ev, at), row.pieces(ev)

    def values(piece: Any) -> list[ir.Value]:
        loops = row.loops(ev, joint, at, piece.column)
        made = piece.values.body_values(g, loops, inits, [element, here])
        return [piece.values.vector(x) for x in made]

    def larger(x: Sequence[ir.Value], y: Sequence[ir.Value]) -> list[ir.Value]:
        return [b.value(combine, (x[0], y[0]), x[0].type)]

    def smaller(x: Sequence[ir.Value], y: Sequence[ir.Value]) -> list[ir.Value]:
        return [b.value("arith.minsi", (x[0], y[0]), x[0].type)]

    found = {id(piece): values(piece) for piece in pieces}
    best = [ev.vector(inits[0])]
    for piece in pieces:
        if piece.values is not ev:  # elements after vectors
            best = ev.across_lanes(best, larger)
        best = piece.kept(larger(best, found[id(piece)][:1]), best)
    best = reduce_block(row.stage, ev.across_lanes(best, larger), row.threads, larger)

    last = b.constant((1 << 31) - 1, b.i32)
    first = [ev.vector(last)]
    for piece in [p for p in reversed(pieces) if p.values is ev]:
        first = piece.kept(_earlier(ev, found[id(piece)], best[0], first[0]), first)
    first = ev.across_lanes(first, smaller)
    for piece in [p for p in pieces if p.values is not ev]:
        alone = _earlier(piece.values, found[id(piece)], best[0], last)
        first = piece.kept(smaller(first, alone), first)
    first = reduce_block(row.stage, first, row.threads, smaller)
    return [best[0], b.value("arith.extsi", (first[0],), inits[1].type)]


def _earlier(ev: ThreadValues, element: Sequence[ir.Value], best: ir.Value, at: ir.Value) -> list[ir.Value]:
    """An element's position where its value is the extreme or NaN (if that is NaN, nothing else is it), else `at`."""
    v, here = element
    b, i1, best = ev.b, like(v.type, ev.b.i1), ev.vector(best)
    if isinstance(element_of(v.type), (ir.IntegerType, ir.IndexType)):
        same = b.compare("eq", v, best)
    else:
        equal = b.compare("oeq", v, best)
        nan = b.compare("uno", v, v)
        same = b.value("arith.ori", (equal, nan), i1)
    position = b.value("arith.trunci", (here,), at.type)
    return [b.select(same, position, at)]
