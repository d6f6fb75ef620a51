"""Run a module of the `lamina` or `kernels` level on numpy arrays with the ops' `reference` parts.

What graph passes must keep: `interpret(module, inputs, weights)` gives the same before and after.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mlir import ir

from lamina.dialects import dims
from lamina.dialects.dims import Expr
from lamina.passes.graph.dataflow import Dataflow, functions, read_function


def interpret(
    module: ir.Module, inputs: list[np.ndarray], weights: dict[str, np.ndarray], sizes: dict[str, int]
) -> list[np.ndarray]:
    """The results of `@main`; `sizes` are the values of the module's symbols."""
    flows = {name: read_function(f) for name, f in functions(module).items()}
    persistent = _run(flows["init"], [], weights, [], sizes, flows) if "init" in flows else []
    return _run(flows["main"], inputs, weights, persistent, sizes, flows)


def _run(
    flow: Dataflow,
    inputs: list[np.ndarray],
    weights: dict[str, np.ndarray],
    persistent: list[np.ndarray],
    sizes: dict[str, int],
    flows: dict[str, Dataflow],
) -> list[np.ndarray]:
    values: dict[int, Any] = dict(enumerate(inputs))
    for node in flow.nodes:
        operands = [None if v is None else values[v] for v in node.operands]
        if node.name == "launch":
            kernel = flows[ir.FlatSymbolRefAttr(node.op.attributes["kernel"]).value]
            names = [ir.StringAttr(a).value for a in ir.ArrayAttr(kernel.function.attributes["lamina.symbols"])]
            given = [dims.parse(ir.StringAttr(a).value) for a in ir.ArrayAttr(node.op.attributes["dims"])]
            inner = {n: dims.evaluate(g, sizes) for n, g in zip(names, given, strict=True)}
            made: Any = tuple(_run(kernel, operands, {}, [], inner, flows))
        elif node.name == "weight":
            made = weights[node.attributes["symbol"]]
        elif node.name == "persistent":
            made = persistent[node.attributes["index"]]
        else:
            assert node.cls is not None, f"no op {node.name}"
            attributes = {k: _concrete(v, sizes) for k, v in node.attributes.items()}
            with np.errstate(all="ignore"):
                made = node.cls.reference(**node.cls.bind(operands), **attributes)
        for v, array in zip(node.results, made if isinstance(made, tuple) else (made,), strict=True):
            shape = tuple(dims.evaluate(d, sizes) for d in flow.types[v].shape)
            assert np.shape(array) == shape, f"{node.name}: {np.shape(array)} where the type says {flow.types[v]}"
            values[v] = array
    return [values[v] for v in flow.returned]


def _concrete(value: Any, sizes: dict[str, int]) -> Any:
    if isinstance(value, Expr):
        return dims.evaluate(value, sizes)
    return tuple(_concrete(v, sizes) for v in value) if isinstance(value, tuple) else value
