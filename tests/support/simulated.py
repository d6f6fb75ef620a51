"""Whole graphs as GPU kernels of kind `loops` that are simulated on the CPU, beside the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
from mlir import ir
from support.graph_kernel import graph_module
from support.simulate_gpu import simulate

from lamina.dialects import interpret
from lamina.dialects.record import Graph
from lamina.passes.pass_manager import run

ALIGNED = "{aligned=true}"  # of a machine that loads vectors from multiples of their size only
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64}


def storage(dtype: np.dtype | type) -> np.dtype:
    """How the elements of a dtype lie in memory, as the simulator has them: signless, bool as i8."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.dtype(np.int8)
    return np.dtype(dtype.str.replace("u", "i")) if dtype.kind == "u" else dtype


def run_simulated(
    graph: Graph, arrays: Sequence[np.ndarray], options: str = ""
) -> tuple[list[np.ndarray], list[np.ndarray], str]:
    """The outputs of `graph` as one simulated kernel, those of the interpreter, and the kernel's IR."""
    expected = [np.asarray(x) for x in interpret.run(graph, arrays)]
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = graph_module(graph)
        run(module, "lamina-emit-gpu-loops" + options)
        symbols = interpret.symbol_values(graph, arrays)
        made, status = simulate(
            module,
            [np.ascontiguousarray(a).view(storage(a.dtype)) for a in arrays],
            [(e.shape, storage(e.dtype)) for e in expected],
            [symbols[s.name] for s in graph.symbols],
        )
        text = str(module)
    assert status == 0
    return [m.view(e.dtype) for m, e in zip(made, expected)], expected, text


def check(graph: Graph, arrays: Sequence[np.ndarray], tolerance: float = 2e-5, options: str = "") -> str:
    """Compare both, bit for bit or to the tolerance; returns the IR."""
    made, expected, text = run_simulated(graph, arrays, options)
    for m, e in zip(made, expected):
        if e.dtype.kind in "biu":
            np.testing.assert_array_equal(m, e)
        else:
            scale = 1.6e-2 if e.dtype == ml_dtypes.bfloat16 else tolerance
            np.testing.assert_allclose(m.astype(np.float64), e.astype(np.float64), rtol=scale, atol=scale)
    return text


def random(*types: tuple[str, tuple[int, ...]]) -> list[np.ndarray]:
    """Arrays of normal numbers, of a dtype and a shape each."""
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype(TYPES[t]) for t, s in types]
