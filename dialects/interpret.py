"""Run a graph record on numpy arrays with the ops' `reference` semantics: slow, and the oracle for everything else.

    outputs = run(graph, [x, w])          # one array per graph output, mutated inputs included as plain results

It shares no code with the compiler beyond the registry, so a difference between the two is a bug in one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import dims
from .dtypes import DTYPES, FLOAT8
from .op import registry
from .record import Graph, RecordError, TensorType


def run(graph: Graph, inputs: Sequence[Any], weights: Mapping[str, Any] | None = None) -> list[np.ndarray]:
    """Evaluate `graph` and return an array per output.

    `inputs` follow `graph.inputs` (an int for kind "scalar"); `weights` are the data of `weight` ops by symbol.
    Raises RecordError when the inputs do not fit the record.
    """
    if len(inputs) != len(graph.inputs):
        raise RecordError(f"graph '{graph.name}' takes {len(graph.inputs)} inputs, got {len(inputs)}")
    sizes = symbol_values(graph, inputs)
    values: dict[int, Any] = {}
    for declared, given in zip(graph.inputs, inputs):
        type = graph.types[declared.value]
        array = np.asarray(given, numpy_dtype(type.dtype)) if declared.kind == "scalar" else given
        values[declared.value] = _checked(array, type, sizes, f"input '{declared.name}'")
    last = _last_uses(graph)
    with np.errstate(all="ignore"):
        for number, node in enumerate(graph.nodes):
            cls = registry(node.op)
            attributes = {k: _concrete(v, sizes) for k, v in node.attributes.items()}
            if node.op == "weight":
                results: Any = (weights or {})[attributes["symbol"]]
            else:
                operands = [None if v is None else values[v] for v in node.operands]
                results = cls.reference(**cls.bind(operands), **attributes)
            for value, array in zip(node.results, results if isinstance(results, tuple) else (results,)):
                what = f"result of lamina.{node.op} at {node.location}"
                values[value] = _checked(array, graph.types[value], sizes, what)
            for dead in last.get(number, ()):
                values.pop(dead, None)
    return [values[o.value] for o in graph.outputs]


def symbol_values(graph: Graph, inputs: Sequence[Any]) -> dict[str, int]:
    """Read the value of every symbol of `graph` off its inputs."""
    sizes = {}
    for s in graph.symbols:
        source = inputs[s.input]
        sizes[s.name] = int(source) if s.dim < 0 else int(source.shape[s.dim])
    return sizes


def numpy_dtype(dtype: str) -> np.dtype:
    """numpy's dtype of one of ours; bf16 and f8… are ml_dtypes'."""
    if dtype == "bf16" or dtype in FLOAT8:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, DTYPES[dtype].numpy))
    return np.dtype(DTYPES[dtype].numpy)


def _concrete(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, dims.Expr):
        return dims.evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(_concrete(v, sizes) for v in value)
    return value


def _checked(array: Any, type: TensorType, sizes: Mapping[str, int], what: str) -> np.ndarray:
    array = np.asarray(array)
    shape = tuple(dims.evaluate(d, sizes) for d in type.shape)
    if array.shape != shape or array.dtype != numpy_dtype(type.dtype):
        raise RecordError(f"{what} is {array.dtype}{list(array.shape)}; the record says {type.dtype}{list(shape)}")
    return array


def _last_uses(graph: Graph) -> dict[int, list[int]]:
    last: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        last.update((v, number) for v in node.operands if v is not None)
    kept = {o.value for o in graph.outputs}
    dead: dict[int, list[int]] = {}
    for value, number in last.items():
        if value not in kept:
            dead.setdefault(number, []).append(value)
    return dead
