"""From a GPU kernel at the loops level to what upstream conversions take, and its launches as data.

What the host must know to launch the stages leaves the IR as one JSON text, `lamina.stages` on the module:

    {"name", "symbols": ["d0"], "scratch": ["4*d0"], "stages": [{"name", "args", "grid", "block", "shared", "tma"}]}
"""

from __future__ import annotations

import json
from typing import Any

from mlir import ir

from ..find_ops import find_ops
from ..registry import register


@register
def gpu_abi(module: ir.Module) -> None:
    """Drop arguments that nothing uses, and move `lamina.*` attributes of GPU kernels into `lamina.stages`.

    Before:
    ```mlir
    gpu.func @k_0(%x: memref<...>, %unused: memref<...>) kernel attributes {lamina.args = ["buffer:0", "status"], ...}
    ```
    After:
    ```mlir
    gpu.func @k_0(%x: memref<...>) kernel attributes {...}
    ```
    """
    with module.context, ir.Location.unknown():
        for op in module.body.operations:
            if op.operation.name == "gpu.module" and "lamina.stages" not in op.attributes:
                _rewrite(op.operation)


def _rewrite(kernel: ir.Operation) -> None:
    _truncate(kernel)
    stages = []
    for op in kernel.regions[0].blocks[0].operations:
        if op.operation.name == "gpu.func" and "lamina.args" in op.attributes:
            drop_unused(op.operation)
            stages.append(_stage(op.operation))
    described = {
        "name": ir.StringAttr(kernel.attributes["sym_name"]).value,
        "symbols": _strings(kernel, "lamina.symbols"),
        "scratch": _strings(kernel, "lamina.scratch"),
        "stages": stages,
    }
    if "lamina.apart" in kernel.attributes:
        described["overlaps"] = False
    bits = (
        ir.IntegerAttr(kernel.attributes["lamina.index_bits"]).value if "lamina.index_bits" in kernel.attributes else 64
    )
    kernel.attributes["dlti.dl_spec"] = ir.Attribute.parse(f"#dlti.dl_spec<index = {bits} : i64>")
    _forget(kernel)
    kernel.attributes["lamina.stages"] = ir.StringAttr.get(json.dumps(described))


def drop_unused(function: ir.Operation) -> None:
    """Remove the arguments of a stage that nothing uses."""
    block = function.regions[0].blocks[0]
    roles = _strings(function, "lamina.args")
    attributes = list(ir.ArrayAttr(function.attributes["arg_attrs"])) if "arg_attrs" in function.attributes else []
    for i in reversed(range(len(roles))):
        uses = list(block.arguments[i].uses)
        for use in uses:  # a size that is cast to an index and then not used
            if use.owner.operation.name == "arith.index_cast" and not list(use.owner.operation.results[0].uses):
                use.owner.operation.erase()
        if not list(block.arguments[i].uses):
            block.erase_argument(i)
            del roles[i]
            if attributes:
                del attributes[i]
    types = [a.type for a in list(block.arguments)[: len(roles)]]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    function.attributes["lamina.args"] = ir.ArrayAttr.get([ir.StringAttr.get(r) for r in roles])
    if "arg_attrs" in function.attributes:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


def _truncate(kernel: ir.Operation) -> None:
    """`math.trunc` as LLVM's intrinsic: the conversion to nvvm has no pattern for it."""
    for op in find_ops(kernel, lambda op: op.name == "math.trunc"):
        made = ir.Operation.create(
            "llvm.intr.trunc",
            results=[op.results[0].type],
            operands=list(op.operands),
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        op.results[0].replace_all_uses_with(made.result)
        op.erase()


def _stage(function: ir.Operation) -> dict[str, Any]:
    attributes = function.attributes
    stage = {
        "name": ir.StringAttr(attributes["sym_name"]).value,
        "args": _strings(function, "lamina.args"),
        "grid": _strings(function, "lamina.grid"),
        "block": list(ir.DenseI32ArrayAttr(attributes["known_block_size"])),
        "shared": ir.IntegerAttr(attributes["lamina.shared"]).value if "lamina.shared" in attributes else 0,
        "tma": [],
    }
    if "lamina.tma" in attributes:
        stage["tma"] = [_descriptor(ir.DictAttr(d)) for d in ir.ArrayAttr(attributes["lamina.tma"])]
    _forget(function)
    return stage


def _descriptor(entry: ir.DictAttr) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for named in entry:
        attribute = named.attr
        if isinstance(attribute, ir.StringAttr):
            found[named.name] = attribute.value
        elif isinstance(attribute, ir.IntegerAttr):
            found[named.name] = attribute.value
        elif isinstance(attribute, ir.DenseI64ArrayAttr):
            found[named.name] = list(attribute)
        else:
            found[named.name] = [ir.StringAttr(a).value for a in ir.ArrayAttr(attribute)]
    return found


def _strings(op: ir.Operation, name: str) -> list[str]:
    return [ir.StringAttr(a).value for a in ir.ArrayAttr(op.attributes[name])] if name in op.attributes else []


def _forget(op: ir.Operation) -> None:
    """Remove attributes of ours."""
    for name in [a if isinstance(a, str) else a.name for a in op.attributes]:
        if name.startswith("lamina."):
            del op.attributes[name]
