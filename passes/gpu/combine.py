"""Combine two partial results of one reduction.

A reduction's body takes an element and the accumulators: `acc' = acc + f(x)`, or for the position of a maximum
`best' = take ? v : best`, `at' = take ? here : at`. To combine partial results of two threads the same body is
evaluated with the other thread's accumulators in the place of the element's values `f(x)`, `v` and `here`. A bool, an i1 in
the body and an i8 outside, is seen as the body sees its accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ..loops.op_builder import comparison
from ..loops.tensor_graph import BodyOp, Generic

# apply(op, operands) -> results: emits one scalar op
Apply = Callable[[BodyOp, list[Any]], list[Any]]


class NotCombinable(NotImplementedError):
    """A reduction whose partial results have no known combination: one thread must do it all."""


@dataclass(frozen=True)
class _Fold:
    """How a body takes in an element: the value that stands for it, and the op by which a bool sees its byte."""

    element: ir.Value
    sees: BodyOp | None


def _folds(g: Generic) -> list[_Fold]:
    """How each accumulator takes in an element."""
    makers = {r: op for op in g.body for r in op.results}
    found = []
    for result, accumulator in zip(g.body[-1].operands, g.arguments[len(g.inputs) :]):
        op, seen, sees = makers.get(result), accumulator, None
        if op is not None and op.name == "arith.extui":  # a bool, which lies in a byte: `out != 0`, and back
            op, sees = makers.get(op.operands[0]), _sees(g, accumulator)
            seen = sees.results[0] if sees is not None else accumulator
        operands = list(op.operands) if op is not None else []
        if op is not None and op.name == "arith.select":
            operands = operands[1:]
        if seen not in operands or len(operands) != 2:
            raise NotCombinable("a reduction whose accumulator is not one of two operands")
        found.append(_Fold(operands[1 - operands.index(seen)], sees))
    return found


def _sees(g: Generic, accumulator: ir.Value) -> BodyOp | None:
    """The op of the body that is true where the byte `accumulator` is not 0."""
    name, _, differs = comparison("ne", accumulator.type)
    of_it = (op for op in g.body if op.name == name and op.operands[0] == accumulator)
    return next((op for op in of_it if op.op.attributes["predicate"] == differs), None)


def is_combinable(g: Generic) -> bool:
    """True if partial results of `g` can be combined."""
    try:
        combine(g, [None] * len(g.outs), [None] * len(g.outs), lambda op, _: [None] * len(op.results), lambda _: None)
    except NotCombinable:
        return False
    return True


def combine(
    g: Generic, a: Sequence[Any], b: Sequence[Any], apply: Apply, outside: Callable[[ir.Value], Any]
) -> list[Any]:
    """Emit the combination of partial results `a` and `b` of `g`; `outside(v)` is the value of what is not in the body."""
    env: dict[ir.Value, Any] = dict(zip(g.arguments[len(g.inputs) :], a))
    makers = {r: op for op in g.body for r in op.results}
    inputs = set(g.arguments[: len(g.inputs)])

    def value(v: ir.Value) -> Any:
        if v in env:
            return env[v]
        if v in inputs:
            raise NotCombinable("a reduction that looks at its element apart from the accumulated value")
        op = makers.get(v)
        if op is None:
            env[v] = outside(v)
            return env[v]
        if op.name in ("linalg.index", "tensor.extract", "cf.assert"):
            raise NotCombinable(f"a reduction that needs '{op.name}' beside the accumulated value")
        for result, made in zip(op.results, apply(op, [value(x) for x in op.operands])):
            env[result] = made
        return env[v]

    folds = _folds(g)
    others = [x if f.sees is None else apply(f.sees, [x, value(f.sees.operands[1])])[0] for f, x in zip(folds, b)]
    env.update(zip((f.element for f in folds), others))
    return [value(v) for v in g.body[-1].operands]
