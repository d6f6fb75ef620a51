"""Compile one kernel in this process and call it on numpy arrays: what tests of emitters use.

    kernel = compile_kernel(text)                      # linalg-level text, docs/contracts.md section 5
    y = kernel(x, w, sizes={"d0": 3})                  # returns the outputs, from `lamina.result_dims`

Calls go through the kernel ABI with a serial `parallel_for` that visits small chunks, so that wrong handling of
`begin` and `end` shows. Outputs are poisoned before each call.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from mlir import ir

from lamina.dialects import dims, mlir_context
from lamina.dialects.interpret import numpy_dtype
from lamina.passes import pass_manager
from lamina.targets import get_target
from lamina.targets.llvm import to_llvm_ir

_BODY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
_PARALLEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_names = itertools.count()


class KernelFailed(RuntimeError):
    """A kernel returned a status other than 0."""


def _chunks(context: int, body: int, buffers: int, sizes: int, total: int, grain: int) -> int:
    """A serial `parallel_for`: three uneven chunks."""
    cuts = sorted({0, total // 3, total // 2, total})
    status = 0
    for begin, end in zip(cuts, cuts[1:]):
        status = status or _BODY(body)(context, buffers, sizes, begin, end)
    return status


_parallel = _PARALLEL(_chunks)
_context = (ctypes.c_int64 * 8)(1, ctypes.cast(_parallel, ctypes.c_void_p).value or 0, 1, 0, 0, 0, 0, 0)


@dataclass
class Kernel:
    """A compiled kernel; calling it checks the status and returns one array or a tuple."""

    name: str
    symbols: list[str]
    result_dims: list[list[str]]
    result_dtypes: list[str]
    address: int
    llvm_ir: str
    keep: Any = field(repr=False, default=None)

    def __call__(self, *inputs: np.ndarray, sizes: Mapping[str, int] | None = None) -> Any:
        values = dict(sizes or {})
        shapes = [[dims.evaluate(dims.parse(d), values) for d in shape] for shape in self.result_dims]
        outputs = [np.empty(s, numpy_dtype(d)) for s, d in zip(shapes, self.result_dtypes)]
        for o in outputs:
            o.reshape(-1).view(np.uint8)[...] = 0xAB if o.dtype != bool else 1
        self.run([*[np.ascontiguousarray(x) for x in inputs], *outputs], values)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, arrays: list[np.ndarray], sizes: Mapping[str, int], context: int = 0) -> None:
        """Run on inputs then outputs; KernelFailed for a status other than 0. `context`: of another `parallel_for`."""
        buffers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
        numbers = (ctypes.c_int64 * max(1, len(self.symbols)))(*[sizes[s] for s in self.symbols])
        context = context or ctypes.addressof(_context)
        status = _LAUNCH(self.address)(context, ctypes.addressof(buffers), ctypes.addressof(numbers))
        if status:
            raise KernelFailed(f"status {status}")


def compile_kernel(
    text: str, plain: bool = False, target: str = "native", kind: str | None = None, context: ir.Context | None = None
) -> Kernel:
    """Compile the one kernel of a module at the linalg level (text) with the target's pipeline for its kind."""
    with context or mlir_context.context():
        return compile_module(ir.Module.parse(text), plain, target, kind)


def compile_module(module: ir.Module, plain: bool = False, target: str = "native", kind: str | None = None) -> Kernel:
    """Compile the one kernel function of `module`, which is changed."""
    function = next(op.operation for op in module.body.operations if "lamina.kind" in op.attributes)
    a = function.attributes
    name = ir.StringAttr(a["sym_name"]).value
    strings = lambda attribute: [ir.StringAttr(x).value for x in ir.ArrayAttr(attribute)]
    symbols = strings(a["lamina.symbols"])
    result_dims = [strings(x) for x in ir.ArrayAttr(a["lamina.result_dims"])]
    result_dtypes = strings(a["lamina.result_dtypes"])
    made = get_target(target)
    pass_manager.run(module, made.pipeline(kind or ir.StringAttr(a["lamina.kind"]).value, plain))
    llvm_ir = to_llvm_ir(module)
    address, keep = load(made.emit(llvm_ir), name)
    return Kernel(name, symbols, result_dims, result_dtypes, address, llvm_ir, keep)


def load(image: bytes, name: str) -> tuple[int, Any]:
    """Load a relocatable object in this process; returns the address of `name` and what keeps it alive."""
    if not hasattr(load, "jit"):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        load.jit = llvm.create_lljit_compiler(use_jit_link=False)  # type: ignore[attr-defined]
    library = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    library.export_symbol(name)
    tracker = library.link(load.jit, f"kernel{next(_names)}")  # type: ignore[attr-defined]
    return tracker[name], tracker
