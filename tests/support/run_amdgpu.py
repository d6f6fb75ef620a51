"""Programs for AMD GPUs, run by the real runtime on a HIP library whose launches the emulator executes.

made = run_graph(graph, arrays, fake)             # compiled for the fake's chip
status = run_kernel(container, inputs, outputs)   # one kernel, as `lower_kernel(…, stop="obj")` gives it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from support.amdgpu_emulator import Emulator, Memory, pack_arguments
from support.fake_hip import FakeHip

from lamina.compiler.api import compile_graph
from lamina.compiler.options import Options
from lamina.dialects import dims, interpret
from lamina.dialects.record import Graph
from lamina.runtime.gpu import hip
from lamina.runtime.gpu.array import DeviceArray
from lamina.runtime.gpu.image import unpack
from lamina.runtime.gpu.program import GpuProgram

GRANULE = 16  # bytes: buffers begin at, and may be read to, multiples of it


def run_graph(graph: Graph, arrays: Sequence[np.ndarray], fake: FakeHip, plain: bool = False) -> list[np.ndarray]:
    """The outputs of `graph`, compiled for the fake's chip; no kernel may have fallen back to plain loops unasked."""
    program = compile_graph(graph, fake.chip, Options(plain=plain))
    reasons = {name: facts["reason"] for name, facts in program.manifest["kernels"].items() if facts["reason"]}
    assert not reasons, reasons
    device = hip.device(0)
    loaded = GpuProgram(program.manifest, program.image, device)
    known = interpret.symbol_values(graph, list(arrays))
    prepared = loaded.prepare(tuple(known[s["name"]] for s in loaded.plan["symbols"]))
    inputs = [DeviceArray.of(device, a, 0) for a in arrays]
    buffers = [DeviceArray.empty(device, b.shape, b.dtype, 0) for b in prepared.buffers]
    loaded.run(prepared, [a.pointer for a in inputs], [b.pointer for b in buffers])
    loaded.check_status()
    assert all(o.whole for o in prepared.outputs)
    return [buffers[o.index].numpy() for o in prepared.outputs]


def run_kernel(
    container: bytes, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], symbols: Sequence[int] = ()
) -> int:
    """Run the stages of one kernel on arrays, writing `outputs`; returns its status word."""
    header, (code,) = unpack(container)
    known = {**dict(zip(header["symbols"], symbols)), "sms": 4}
    size = lambda text: dims.evaluate(dims.parse(text), known)
    memory = Memory()
    emulator = Emulator(code, memory)
    status = np.zeros(1, np.int32)
    buffers = [_padded(a) for a in (*inputs, *outputs)]
    scratch = [_padded(np.full(max(size(s), 1), 0xAB, np.uint8)) for s in header["scratch"]]
    for number, room in enumerate((*buffers, *scratch, status)):
        memory.add(room, True, f"buffer {number}")
    rooms: dict[str, Any] = {"buffer": buffers, "scratch": scratch, "symbol": list(map(np.int64, symbols))}
    for stage in header["stages"]:
        grid, block = tuple(map(size, stage["grid"])), tuple(stage["block"])
        if 0 in grid:
            continue
        places = (a.partition(":") for a in stage["args"])
        arguments = [status if kind == "status" else rooms[kind][int(n)] for kind, _, n in places]
        packed = pack_arguments(emulator.kernel(stage["name"]), arguments, grid, block)
        emulator.launch(stage["name"], grid, block, packed)
    for array, room in zip(outputs, buffers[len(inputs) :]):
        array.reshape(-1).view(np.uint8)[:] = room[: array.nbytes]
    return int(status[0])


def _padded(array: np.ndarray) -> np.ndarray:
    """The bytes of an array in aligned memory of whole granules."""
    size = -(-max(array.nbytes, 1) // GRANULE) * GRANULE
    room = np.zeros(size + GRANULE, np.uint8)
    room = room[-room.ctypes.data % GRANULE :][:size]
    room[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    return room
