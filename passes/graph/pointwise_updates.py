"""Pointwise kernels that make the new value of an argument from its old one: `x.add_(y)`, an optimiser's step.

Such a kernel reads and writes each element at one index, so it may write over the argument. Its loops then take one
buffer for both (`lamina.inplace` on the kernel): two that are the same would belie what LLVM is told of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlir import ir

from .dataflow import Dataflow, Node, functions, launched, read_function


def pointwise_updates(flow: Dataflow, kernels: Mapping[str, ir.Operation]) -> list[tuple[Node, int, int]]:
    """The launches of such kernels in `@main`, with the number of the operand and of the result that replaces it."""
    attributes = flow.function.attributes
    if "lamina.mutates" not in attributes:
        return []
    names = [ir.StringAttr(a).value for a in ir.ArrayAttr(attributes["lamina.arg_names"])]
    targets = [ir.StringAttr(a).value for a in ir.ArrayAttr(attributes["lamina.mutates"])]
    old = {v: names.index(t) for v, t in zip(flow.returned, targets) if t in names}
    found = []
    for node in flow.nodes:
        pairs = [(node.operands.index(old[v]), r) for r, v in enumerate(node.results) if old.get(v) in node.operands]
        if node.name == "launch" and pairs:
            kernel = read_function(kernels[launched(node.op)])
            found += [(node, operand, result) for operand, result in pairs if _is_elementwise(kernel, operand, result)]
    return found


def _is_elementwise(kernel: Dataflow, operand: int, result: int) -> bool:
    """True if nothing is read of `operand` but the element at the index that is written.

    All results are of its shape, so one loop computes an element of each from what it has loaded before it stores any.
    """
    type = kernel.types[operand]
    return (
        ir.StringAttr(kernel.function.attributes["lamina.kind"]).value == "loops"
        and all(n.category in ("pointwise", "creation") for n in kernel.nodes)
        and all(kernel.types[v].shape == type.shape for v in kernel.returned)
        and kernel.types[kernel.returned[result]] == type
    )


def mark_kernels(module: ir.Module, launches: Sequence[ir.Operation]) -> None:
    """Say on the kernels of `launches`, too, what they write over; a kernel that others launch otherwise is cloned."""
    entries = functions(module)
    kernels = {name: f for name, f in entries.items() if "lamina.kind" in f.attributes}
    users: dict[str, int] = dict.fromkeys(kernels, 0)
    for function in entries.values():
        for op in function.regions[0].blocks[0].operations:
            if op.operation.name == "lamina.launch":
                users[launched(op.operation)] += 1
    alike: dict[tuple[str, str], list[ir.Operation]] = {}
    for op in launches:
        alike.setdefault((launched(op), str(op.attributes["inplace"])), []).append(op)
    for number, ((name, _), ops) in enumerate(alike.items()):
        kernel = kernels[name]
        if users[name] > len(ops):
            users[name] -= len(ops)
            kernel = kernel.clone(ir.InsertionPoint(kernel)).operation
            kernel.attributes["sym_name"] = ir.StringAttr.get(f"{name}_{number}")
            for op in ops:
                op.attributes["kernel"] = ir.FlatSymbolRefAttr.get(f"{name}_{number}")
        kernel.attributes["lamina.inplace"] = ops[0].attributes["inplace"]
