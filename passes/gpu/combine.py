"""Combine two partial results of one reduction.

A reduction's body takes an element and the accumulators: `acc' = acc + f(x)`, or for the position of a maximum
`best' = take ? v : best`, `at' = take ? here : at`. To combine partial results of two threads the same body is
evaluated with the other thread's accumulators in the place of the element's values `f(x)`, `v` and `here`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlir import ir

from ..loops.tensor_graph import BodyOp, Generic

# apply(op, operands) -> results: emits one scalar op
Apply = Callable[[BodyOp, list[Any]], list[Any]]


class NotCombinable(NotImplementedError):
    """A reduction whose partial results have no known combination: one thread must do it all."""


def element_values(g: Generic) -> list[ir.Value]:
    """For each accumulator the value of the body that stands for the element."""
    makers = {r: op for op in g.body for r in op.results}
    found = []
    for i, result in enumerate(g.body[-1].operands):
        accumulator = g.arguments[len(g.inputs) + i]
        op = makers.get(result)
        operands = list(op.operands) if op is not None else []
        if op is not None and op.name == "arith.select":
            operands = operands[1:]
        if accumulator not in operands or len(operands) != 2:
            raise NotCombinable("a reduction whose accumulator is not one of two operands")
        found.append(operands[1 - operands.index(accumulator)])
    return found


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
    env: dict[ir.Value, Any] = dict(zip(element_values(g), b))
    env.update(zip(g.arguments[len(g.inputs) :], a))
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

    return [value(v) for v in g.body[-1].operands]
