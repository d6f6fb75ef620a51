"""Compile a graph record in workers and run it on numpy arrays."""

from __future__ import annotations

import numpy as np

from lamina.compiler.api import Options, Program, compile_graph
from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.record import Graph
from lamina.runtime.program import LoadedProgram


def run_graph(graph: Graph, arrays: dict[str, np.ndarray], options: Options = Options()) -> list[np.ndarray]:
    """Compile `graph` and run it once; arrays by the names of inputs and weights."""
    return run_program(compile_graph(graph, options=options), arrays)


def run_program(program: Program, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a program once; its results are copies. Output buffers are poisoned first."""
    loaded = LoadedProgram(program.manifest, program.image)
    plan = loaded.plan
    inputs = [np.ascontiguousarray(arrays[i["name"]]) for i in plan["inputs"]]
    weights = [np.ascontiguousarray(arrays[w["name"]]) for w in plan["weights"]]
    constants = loaded.initialize([w.ctypes.data for w in weights], weights)
    prepared = loaded.prepare(tuple(inputs[s["input"]].shape[s["dim"]] for s in plan["symbols"]))
    buffers = [np.full(b.bytes, 0xAB, np.uint8) for b in prepared.buffers]
    loaded.run(prepared, [x.ctypes.data for x in inputs], [b.ctypes.data for b in buffers], constants)
    spaces = {"output": buffers, "input": inputs, "weight": weights}
    results = []
    for o in prepared.outputs:
        dtype = numpy_dtype(o.dtype)
        flat = spaces[o.space][o.index].reshape(-1).view(dtype)[o.offset :]
        strides = [s * dtype.itemsize for s in o.strides]
        results.append(np.lib.stride_tricks.as_strided(flat, o.shape, strides).copy())
    return results
