"""A graph compiled for a GPU and run by the runtime on a fake driver: kernels in the simulator, launches for real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from support.fake_cuda import FakeDriver

from lamina.compiler.api import compile_graph, show_ir
from lamina.dialects.record import Graph
from lamina.runtime.arrays import numpy_dtype
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.program import GpuProgram


def run_on_fake(
    graph: Graph, arrays: list[np.ndarray], monkeypatch: Any, target: str = "sm_90a", sizes: Sequence[int] = ()
) -> list[np.ndarray]:
    """The outputs of `graph`, whose inputs are `arrays` and whose symbols have the values `sizes`."""
    made = compile_graph(graph, target)
    FakeDriver(show_ir(graph, "loops", target)).install(monkeypatch)
    program = GpuProgram(made.manifest, made.image, cuda.device(0))
    names = [i["name"] for i in program.plan["inputs"]]
    given = {i.name: _aligned(a) for i, a in zip(graph.inputs, arrays)}
    prepared = program.prepare(tuple(sizes))
    buffers = [_aligned(np.full(b.shape, 77).astype(numpy_dtype(b.dtype))) for b in prepared.buffers]
    program.run(prepared, [_address(given[n]) for n in names], [_address(b) for b in buffers])
    program.check_status()
    results = []
    for o in prepared.outputs:
        base = buffers[o.index] if o.space == "output" else given[names[o.index]]
        strides = [s * base.itemsize for s in o.strides]
        flat = base.reshape(-1)[o.offset :]
        results.append(np.lib.stride_tricks.as_strided(flat, o.shape, strides).copy())
    return results


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a multiple of 16 bytes."""
    memory = np.empty(array.nbytes + 16, np.uint8)
    start = -_address(memory) % 16
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made
