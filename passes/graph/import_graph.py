"""A graph record as a `lamina`-level module (docs/contracts.md §3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlir import ir

from ...dialects.mlir_context import context
from ...dialects.mlir_ops import build, create
from ...dialects.mlir_types import mlir_type
from ...dialects.op import registry
from ...dialects.record import Graph, Node, RecordError, Symbol


def import_graph(graph: Graph, ctx: ir.Context | None = None) -> ir.Module:
    """Build the module of `graph` in `ctx` (a fresh Context of the dialect by default).

    Weights become `lamina.weight` ops, all other inputs arguments of `@main`. A symbol's `input` counts arguments.
    RecordError if a node's recorded result types are not what its op infers.
    """
    with ctx or context(), ir.Location.unknown():
        module = ir.Module.create()
        module.operation.attributes["lamina.symbols"] = ir.ArrayAttr.get([_symbol(s, graph) for s in graph.symbols])
        module.operation.attributes["lamina.name"] = ir.StringAttr.get(graph.name)
        block, values = _main(graph, module)
        with ir.InsertionPoint(block):
            for i in graph.inputs:
                if i.kind == "weight":
                    t = graph.types[i.value]
                    fields = {"symbol": i.name, "shape": t.shape, "dtype": t.dtype}
                    values[i.value] = build("weight", [], fields, ir.Location.name(i.name)).result
            for node in graph.nodes:
                values.update(zip(node.results, _operation(graph, node, values).results))
            ir.Operation.create("func.return", operands=[values[o.value] for o in graph.outputs])
    return module


def _main(graph: Graph, module: ir.Module) -> tuple[ir.Block, dict[int, ir.Value]]:
    """An empty `@main`: its block, and the values of the inputs that are arguments."""
    arguments = [i for i in graph.inputs if i.kind != "weight"]
    signature = ir.FunctionType.get(
        [mlir_type(graph.types[i.value]) for i in arguments],
        [mlir_type(graph.types[o.value]) for o in graph.outputs],
    )
    main = ir.Operation.create(
        "func.func",
        attributes={
            "sym_name": ir.StringAttr.get("main"),
            "function_type": ir.TypeAttr.get(signature),
            "lamina.arg_names": _strings(i.name for i in arguments),
            "lamina.arg_kinds": _strings(i.kind for i in arguments),
            "lamina.result_names": _strings(o.name for o in graph.outputs),
            "lamina.mutates": _strings(o.mutates or "" for o in graph.outputs),
        },
        regions=1,
        ip=ir.InsertionPoint(module.body),
    )
    block = main.regions[0].blocks.append(*signature.inputs, arg_locs=[ir.Location.name(i.name) for i in arguments])
    return block, {i.value: a for i, a in zip(arguments, block.arguments)}


def _operation(graph: Graph, node: Node, values: Mapping[int, ir.Value]) -> ir.Operation:
    """The op of a node; RecordError if it gives other types than the record says."""
    cls = registry(node.op)
    types = [None if v is None else graph.types[v] for v in node.operands]
    attributes, results = cls.resolve(types, node.attributes, node.location)
    recorded = tuple(graph.types[v] for v in node.results)
    if results != recorded:
        raise RecordError(
            f"lamina.{node.op} at {node.location}: the record says {', '.join(map(str, recorded))}, "
            f"but the op gives {', '.join(map(str, results))}",
            [node.location],
        )
    operands = [None if v is None else values[v] for v in node.operands]
    return create(cls, operands, attributes, results, node.location)


def _strings(texts: Iterable[str]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(t) for t in texts])


def _symbol(s: Symbol, graph: Graph) -> ir.DictAttr:
    """`{name, min, max?, multiple_of, input, dim, hint?}`; absent maximum and hint are left out."""
    i64 = ir.IntegerType.get_signless(64)
    argument = s.input
    if argument >= 0:
        if graph.inputs[argument].kind == "weight":
            raise RecordError(f"symbol '{s.name}' is read from weight '{graph.inputs[argument].name}'")
        argument = sum(i.kind != "weight" for i in graph.inputs[:argument])
    numbers = {
        "min": s.minimum,
        "max": s.maximum,
        "multiple_of": s.multiple_of,
        "input": argument,
        "dim": s.dim,
        "hint": s.hint,
    }
    entries: dict[str, ir.Attribute] = {"name": ir.StringAttr.get(s.name)}
    entries.update({k: ir.IntegerAttr.get(i64, v) for k, v in numbers.items() if v is not None})
    return ir.DictAttr.get(entries)
