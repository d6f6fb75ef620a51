"""Constant weights in panels of columns, as register tiles read them: what the passes that pack weights share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mlir import ir

from ...dialects.mlir_ops import build
from .dataflow import Dataflow, Node, functions, read_function

Step = tuple[str, dict[str, Any]]  # an op and its attributes


def with_constant_weights(module: ir.Module, names: Sequence[str]) -> Iterator[tuple[Dataflow, Node]]:
    """The ops of `@main` of these names whose second operand depends on weights and literals alone."""
    main = functions(module).get("main")
    if main is None:
        return
    flow = read_function(main)
    early = flow.constant_nodes()
    for node in flow.nodes:
        if node.name in names and flow.producer[node.inputs[1]] in early:
            yield flow, node


class PackedWeights:
    """Weights that were packed; `columns` is the width of the target's register tile in f32."""

    def __init__(self, columns: int):
        self._columns = columns
        self._made: dict[tuple, ir.Value] = {}

    def width(self, dtype: str) -> int:
        """The columns of a panel of `dtype`."""
        return self._columns // 2 if dtype == "f64" else self._columns

    def fitting(self, size: int, dtype: str) -> int:
        """The same for a convolution of `size` output channels: one vector where that holds them all, for tiles of more positions."""
        columns = self.width(dtype)
        return columns // 2 if 2 * size <= columns else columns

    def pack(self, node: Node, weight: ir.Value, steps: Sequence[Step]) -> ir.Value:
        """`weight` after `steps`, for `node`; the same steps are taken once."""
        key = (weight, *((name, *attributes.items()) for name, attributes in steps))
        if key not in self._made:
            # beside the weight, so that it comes before all users of the weight
            at, value = ir.InsertionPoint.after(weight.owner), weight
            for name, attributes in steps:
                value = build(name, [value], attributes, node.op.location, at).results[0]
            self._made[key] = value
        return self._made[key]


def replace(node: Node, name: str, operands: Sequence[ir.Value | None], attributes: dict[str, Any]) -> None:
    """Put the op `name` in the place of `node`, which has one result."""
    made = build(name, operands, attributes, node.op.location, ir.InsertionPoint(node.op))
    node.op.results[0].replace_all_uses_with(made.results[0])
    node.op.erase()
