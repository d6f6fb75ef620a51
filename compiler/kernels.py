"""The kernels of a `kernels`-level module, each as a module of its own and named after its content.

Equal kernels of any graph have equal text, so they have one name and one object in the cache. A kernel's name is its
label and a hash of its text: `addmm_gelu_3fa91c20d5e6b784`. The text has no locations; where its ops came from is
kept beside it for error messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from mlir import ir

from ..dialects.mlir_types import python_location
from ..dialects.record import Location
from ..passes.dump import file_name
from ..passes.find_ops import find_ops
from ..passes.graph.dataflow import launched

PLACEHOLDER = "__kernel__"  # stands for the name while the text is hashed


@dataclass(frozen=True)
class Kernel:
    """One kernel: its name, kind, module text (level `kernels`) and the places in the user's program it came from."""

    name: str
    kind: str
    text: str
    nodes: tuple[Location, ...] = ()


def take_kernels(module: ir.Module) -> list[Kernel]:
    """Rename each kernel function of `module`, and its launches, after its content; return the kernels."""
    names: dict[str, str] = {}
    kernels: dict[str, Kernel] = {}
    for op in kernel_functions(module):
        old = _string(op, "sym_name")
        nodes = tuple(dict.fromkeys(_places(op)))
        op.attributes["sym_name"] = ir.StringAttr.get(PLACEHOLDER, module.context)
        text = op.get_asm(enable_debug_info=False, use_local_scope=True)  # values are numbered from 0
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        label = _string(op, "lamina.label") if "lamina.label" in op.attributes else old
        name = names[old] = f"{file_name(label)[:60]}_{digest}"
        if name in kernels:
            op.erase()
        else:
            op.attributes["sym_name"] = ir.StringAttr.get(name, module.context)
        text = f"module {{\n{text.replace(PLACEHOLDER, name)}\n}}\n"
        known = kernels.get(name)
        kernels[name] = Kernel(name, _string(op, "lamina.kind"), text, nodes + (known.nodes if known else ()))
    _rename_launches(module, names)
    return list(kernels.values())


def kernel_functions(module: ir.Module) -> list[ir.Operation]:
    """The functions of `module` that are kernels."""
    return [op.operation for op in module.body.operations if "lamina.kind" in op.attributes]


def kernel_kind(module: ir.Module) -> str:
    """The kind of the one kernel in `module`; "loops" if it does not say."""
    for op in kernel_functions(module):
        return _string(op, "lamina.kind")
    return "loops"


def _rename_launches(module: ir.Module, names: dict[str, str]) -> None:
    for op in find_ops(module.operation, lambda op: op.name == "lamina.launch"):
        op.attributes["kernel"] = ir.FlatSymbolRefAttr.get(names[launched(op)], module.context)


def _places(function: ir.Operation) -> Iterator[Location]:
    for op in function.regions[0].blocks[0].operations:
        place = python_location(op.operation.location)
        if op.operation.name.startswith("lamina.") and place != Location():
            yield place


def _string(op: ir.Operation, name: str) -> str:
    return ir.StringAttr(op.attributes[name]).value
