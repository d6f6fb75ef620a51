"""Programmatic dependent launches: a kernel may start while the one before it in the stream ends.

The launcher lets such a kernel start when all blocks of its predecessor have said `launch_dependents` (or have ended), and
`wait` blocks until the predecessor is complete and its writes are visible (PTX ISA, `griddepcontrol`). What comes before
the wait overlaps: the launch itself, index arithmetic, barriers. Three rules make that the same as one after another:

* Nothing of global memory is read or written before the wait. The predecessor may still read what this kernel
  overwrites, for arenas and allocators hand the same memory out again.
* Every thread of every kernel waits. A kernel that ended before its predecessor would let its successor begin before that.
* The successor is let in after the wait. Whoever comes next, also a kernel of another library that reads before its own
  wait what it takes for old, finds all but this kernel complete.
"""

from __future__ import annotations

import json

from mlir import ir

from ..registry import register

# What keeps a buffer's `llvm.noalias`; one that is written in another way only loses it.
_STORES = frozenset(("memref.store", "memref.atomic_rmw", "vector.store", "vector.maskedstore"))


@register
def overlap_launches(module: ir.Module) -> None:
    """Let each stage wait for the launch before it, at its start or where it says so, and let the next one in.

    What a stage only reads loses `llvm.noalias`: LLVM would load it as constant for the kernel's whole time
    (`ld.global.nc`), which begins before the wait. Kernels are marked, `"overlaps"` in `lamina.stages`.

    Before:
    ```mlir
    gpu.func @k_0(%x: memref<...> {llvm.noalias}, %y: memref<...> {llvm.noalias}) kernel { ... }
    ```
    After:
    ```mlir
    gpu.func @k_0(%x: memref<...>, %y: memref<...> {llvm.noalias}) kernel {
      nvvm.griddepcontrol wait
      nvvm.griddepcontrol launch_dependents
      ... }
    ```
    """
    with module.context, ir.Location.unknown():
        for op in module.body.operations:
            if op.operation.name == "gpu.module" and "lamina.stages" in op.attributes:
                _rewrite(op.operation)


def _rewrite(kernel: ir.Operation) -> None:
    for op in kernel.regions[0].blocks[0].operations:
        if op.operation.name != "gpu.func":
            continue
        block = op.regions[0].blocks[0]
        waits = [o.operation for o in block.operations if o.operation.name == "nvvm.griddepcontrol"]
        first = waits[0] if waits else _control("wait", ir.InsertionPoint.at_block_begin(block), op.location)
        _control("launch_dependents", ir.InsertionPoint.after(first), op.location)
        _expose_reads(op.operation, block)
    described = json.loads(ir.StringAttr(kernel.attributes["lamina.stages"]).value)
    kernel.attributes["lamina.stages"] = ir.StringAttr.get(json.dumps({**described, "overlaps": True}))


def _control(action: str, ip: ir.InsertionPoint, location: ir.Location) -> ir.Operation:
    kind = ir.Attribute.parse(f"#nvvm<grid_dep_action {action}>", location.context)
    return ir.Operation.create("nvvm.griddepcontrol", attributes={"kind": kind}, loc=location, ip=ip)


def _expose_reads(function: ir.Operation, block: ir.Block) -> None:
    """Remove `llvm.noalias` from the buffers that `function` does not store to."""
    attributes = list(ir.ArrayAttr(function.attributes["arg_attrs"])) if "arg_attrs" in function.attributes else []
    for i, given in enumerate(attributes):
        if not _is_written(block.arguments[i]):
            attributes[i] = ir.DictAttr.get({a.name: a.attr for a in ir.DictAttr(given) if a.name != "llvm.noalias"})
    if attributes:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


def _is_written(value: ir.Value) -> bool:
    """Is the buffer, a cast or a part of it stored to?"""
    users = [use.owner.operation for use in value.uses]
    parts = (r for op in users for r in op.results if isinstance(r.type, ir.MemRefType))
    return any(op.name in _STORES for op in users) or any(map(_is_written, parts))
