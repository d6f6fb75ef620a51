"""Exponentials that nothing but a sum sees, less the largest exponent: `sum(exp(x - max(x)))` of a log-softmax.

`exp2(d * log2(e))` with a rounded product is one instruction for the machine's exp2, but off by up to `|d| 2^-24` of its value:
22 ulp at d = -88. Here `d <= 0`, and the largest term of the sum is 1: what a term is off by, `|d| e^d 2^-24`, is at most
0.37 * 2^-24 beside a sum of at least 1, less than adding it rounds.
"""

from __future__ import annotations

from mlir import ir

from ..loops.tensor_graph import Generic, TensorGraph

RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")


def summed_exponents(graph: TensorGraph) -> set[ir.Value]:
    """The results of such `math.exp` ops, in the bodies of generics."""
    found = set()
    for op in graph.op.regions[0].blocks[0].operations:
        if op.operation.name != "linalg.generic":
            continue
        value = op.operation.results[0]
        g = graph.generic(value)
        if _is(g, "math.exp") and _maximum_above(graph, g.inputs[0]) is not None and _is_only_summed(graph, value):
            found.add(g.body[0].results[0])
    return found


def summed_below(graph: TensorGraph, total: Generic, exponentials: set[ir.Value]) -> Generic | None:
    """The maximum of the elements that `total` sums `exp(x - max(x))` of, all in the same order; `exponentials` are such."""
    power = _generic(graph, total.inputs[0]) if _is(total, "arith.addf") and len(total.inputs) == 1 else None
    if power is None or not exponentials.intersection(power.body[0].results):
        return None
    shifted, largest = _generic(graph, power.inputs[0]), _maximum_above(graph, power.inputs[0])
    if shifted is None or largest is None or power.maps[0] != power.maps[1] or shifted.maps[0] != shifted.maps[2]:
        return None
    same = (largest.extents, largest.reduced, largest.maps) == (total.extents, total.reduced, total.maps)
    return largest if same else None


def _is(g: Generic, *names: str) -> bool:
    """True if the body of `g` is one op, of one of these names, of the elements in order and accumulators."""
    first, *rest = g.body
    return first.name in names and len(rest) == 1 and list(rest[0].operands) == list(first.results)


def _maximum_above(graph: TensorGraph, value: ir.Value) -> Generic | None:
    """The maximum along what is reduced, if `value` is `x - max(x)`."""
    g = _generic(graph, value)
    if g is None or not _is(g, "arith.subf") or list(g.body[0].operands) != g.arguments[:2]:
        return None
    x, most = g.inputs
    while (owner := graph.owner(most)) is not None and owner.name in RESHAPES:
        most = owner.operands[0]
    maximum = _generic(graph, most)
    found = maximum is not None and maximum.is_reduction and _is(maximum, "arith.maximumf") and maximum.inputs == [x]
    return maximum if found else None


def _is_only_summed(graph: TensorGraph, value: ir.Value) -> bool:
    users = [graph.generic(use.owner.results[0]) for use in value.uses if use.owner.name == "linalg.generic"]
    return len(users) == len(list(value.uses)) and all(g.is_reduction and _is(g, "arith.addf") for g in users)


def _generic(graph: TensorGraph, value: ir.Value) -> Generic | None:
    owner = graph.owner(value)
    return graph.generic(value) if owner is not None and owner.name == "linalg.generic" else None
