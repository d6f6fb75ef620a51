"""TMA descriptors as kernel parameters: by value, in the constant bank."""

from __future__ import annotations

import json

from mlir import ir

from ..registry import register


@register
def gpu_descriptors(module: ir.Module) -> None:
    """Mark descriptor arguments `byval` and `nvvm.grid_constant`, which gpu.func and its conversion would lose.

    Before:
    ```mlir
    llvm.func @k_0(%tma: !llvm.ptr) attributes {nvvm.kernel}
    ```
    After:
    ```mlir
    llvm.func @k_0(%tma: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64, nvvm.grid_constant}) ...
    ```
    """
    with module.context, ir.Location.unknown():
        for op in module.body.operations:
            if op.operation.name != "gpu.module" or "lamina.stages" not in op.attributes:
                continue
            stages = json.loads(ir.StringAttr(op.attributes["lamina.stages"]).value)["stages"]
            args = {s["name"]: s["args"] for s in stages}
            for function in op.regions[0].blocks[0].operations:
                if function.operation.name == "llvm.func" and "nvvm.kernel" in function.attributes:
                    _mark(function.operation, args.get(ir.StringAttr(function.attributes["sym_name"]).value, []))


def _mark(function: ir.Operation, roles: list[str]) -> None:
    if not any(r.startswith("tma:") for r in roles):
        return
    old = list(ir.ArrayAttr(function.attributes["arg_attrs"])) if "arg_attrs" in function.attributes else []
    attributes = []
    for i, role in enumerate(roles):
        given = {x.name: x.attr for x in ir.DictAttr(old[i])} if i < len(old) else {}
        if role.startswith("tma:"):
            i64 = ir.IntegerType.get_signless(64)
            given = {
                "llvm.byval": ir.TypeAttr.get(ir.Type.parse("!llvm.array<128 x i8>")),
                "llvm.align": ir.IntegerAttr.get(i64, 64),
                "nvvm.grid_constant": ir.UnitAttr.get(),
            }
        attributes.append(ir.DictAttr.get(given))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
