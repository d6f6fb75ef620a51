"""Programmatic dependent launches: a kernel may start while the one before it in the stream ends.

The launcher lets such a kernel start when all blocks of its predecessor have said `launch_dependents` (or have ended), and
`wait` blocks until the predecessor is complete and its writes are visible (PTX ISA, `griddepcontrol`). What comes before
the wait overlaps: the launch itself, index arithmetic, barriers. Three rules make that the same as one after another:

* Nothing of global memory is read or written before the wait. The predecessor may still read what this kernel
  overwrites, for arenas and allocators hand the same memory out again. A prefetch into the L2 cache is neither
  (hopper/first_rows.py).
* Every thread of every kernel waits. A kernel that ended before its predecessor would let its successor begin before that.
* The successor is let in after the wait. Whoever comes next, also a kernel of another library that reads before its own
  wait what it takes for old, finds all but this kernel complete.

`launch_dependents` itself takes time: a GPU takes in one in 1.2 ns (H200), so that 32768 blocks of little work each took
41 µs instead of 34. A block that has ended has let the successor in, too, and free of charge; so of a large grid only
those blocks say it which are likely to be the last ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from mlir import ir

from ...dialects import dims
from ..loops.index_algebra import Ranges
from ..loops.op_builder import comparison
from ..registry import register

LAST = 1024  # blocks, by number, that let the next launch in before they end: those of 132 multiprocessors, eight each

# What keeps a buffer's `llvm.noalias`; one that is written in another way only loses it.
_STORES = frozenset(("memref.store", "memref.atomic_rmw", "vector.store", "vector.maskedstore"))


@register
def overlap_launches(module: ir.Module) -> None:
    """Let each stage wait for the launch before it, at its start or where it says so, and let the next one in.

    Of a grid that may have more than LAST blocks, its last ones let it in (`scf.if`).
    What a stage only reads loses `llvm.noalias`: LLVM would load it as constant for the kernel's whole time
    (`ld.global.nc`), which begins before the wait. Kernels are marked, `"overlaps"` in `lamina.stages`; one that its emitter
    has set apart stays as it is.

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
    described = json.loads(ir.StringAttr(kernel.attributes["lamina.stages"]).value)
    if "overlaps" in described:  # its emitter has decided
        return
    grids = {stage["name"]: stage["grid"] for stage in described["stages"]}
    for op in kernel.regions[0].blocks[0].operations:
        if op.operation.name != "gpu.func":
            continue
        block = op.regions[0].blocks[0]
        waits = [o.operation for o in block.operations if o.operation.name == "nvvm.griddepcontrol"]
        first = waits[0] if waits else _control("wait", ir.InsertionPoint.at_block_begin(block), op.location)
        _let_in(first, grids[ir.StringAttr(op.attributes["sym_name"]).value])
        _expose_reads(op.operation, block)
    kernel.attributes["lamina.stages"] = ir.StringAttr.get(json.dumps({**described, "overlaps": True}))


def _let_in(wait: ir.Operation, grid: Sequence[str]) -> None:
    """Let the next launch in after `wait`: in all blocks of a grid of at most LAST, else in its last ones."""
    ip, location = ir.InsertionPoint.after(wait), wait.location
    sizes = [Ranges().lower(dims.parse(g), upper=True) for g in grid]
    known = [n for n in sizes if isinstance(n, int)]
    if len(known) == len(sizes) and math.prod(known) <= LAST:
        _control("launch_dependents", ip, location)
        return
    index = ir.IndexType.get()

    def value(
        name: str, operands: Sequence[ir.Value] = (), type: ir.Type = index, **attributes: ir.Attribute
    ) -> ir.Value:
        return ir.Operation.create(name, [type], operands, attributes, loc=location, ip=ip).result

    at = count = None  # the block's number, x fastest, and how many there are
    for size, axis in reversed([*zip(sizes, "xyz")]):
        if size == 1:
            continue
        dimension = ir.Attribute.parse(f"#gpu<dim {axis}>")
        here, extent = (value(f"gpu.{op}", dimension=dimension) for op in ("block_id", "grid_dim"))
        at = here if at is None else value("arith.addi", (value("arith.muli", (at, extent)), here))
        count = extent if count is None else value("arith.muli", (count, extent))
    left = value("arith.subi", (count, at))
    last = value("arith.constant", value=ir.IntegerAttr.get(index, LAST))
    compare, i1, at_most = comparison("ule", index)
    among = value(compare, (left, last), i1, predicate=at_most)
    branch = ir.Operation.create("scf.if", [], [among], regions=2, loc=location, ip=ip)
    inside = ir.InsertionPoint(branch.regions[0].blocks.append())
    _control("launch_dependents", inside, location)
    ir.Operation.create("scf.yield", loc=location, ip=inside)


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
