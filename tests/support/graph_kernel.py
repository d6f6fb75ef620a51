"""One kernel from a whole graph record: how tests give the loop emitters fused programs.

kernel = graph_kernel(graph)            # a support.run_kernel.Kernel
check(graph, [x, w], kernel)            # against dialects/interpret.py, float64 where that makes sense
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mlir import ir
from support.run_kernel import Kernel, compile_module

from lamina.dialects import interpret
from lamina.dialects.op import registry
from lamina.dialects.record import Graph, TensorType
from lamina.passes.linalg.ir_cache import IrCache
from lamina.passes.linalg.linalg_builder import LinalgBuilder, Tensor


def graph_of(op: str, *types: tuple[str, tuple], **attributes: Any) -> Graph:
    """A graph of one op: its operands are inputs of `types`, a dtype and a shape each; all its results are outputs."""
    g = Graph()
    made = g.add(op, *(g.add_input(f"x{i}", TensorType(t, s)) for i, (t, s) in enumerate(types)), **attributes)
    for value in made if isinstance(made, tuple) else (made,):
        g.add_output(value)
    return g


def graph_module(graph: Graph, kind: str = "loops", wide_sums: bool = False) -> ir.Module:
    """Lower every node of `graph` into one linalg-level kernel `@k`; needs a current Context."""
    location = ir.Location.unknown()
    module = ir.Module.create(location)
    cache = IrCache(location.context)
    types = [graph.types[i.value] for i in graph.inputs if i.kind != "scalar"]
    outs = [graph.types[o.value] for o in graph.outputs]
    index = ir.IndexType.get(location.context)
    arguments = [cache.tensor(t) for t in types] + [index] * len(graph.symbols)
    names = lambda values: "[" + ", ".join(f'"{v}"' for v in values) + "]"
    shapes = lambda ts: "[" + ", ".join(names(t.shape) for t in ts) + "]"
    text = f"""{{lamina.kind = "{kind}", lamina.label = "{graph.name}", lamina.symbols = {names(s.name for s in graph.symbols)},
        lamina.arg_dims = {shapes(types)}, lamina.result_dims = {shapes(outs)},
        lamina.arg_dtypes = {names(t.dtype for t in types)}, lamina.result_dtypes = {names(t.dtype for t in outs)}}}"""
    attributes = {a.name: a.attr for a in ir.DictAttr(ir.Attribute.parse(text, location.context))}
    attributes["sym_name"] = ir.StringAttr.get("k", location.context)
    function_type = ir.FunctionType.get(arguments, [cache.tensor(t) for t in outs], location.context)
    attributes["function_type"] = ir.TypeAttr.get(function_type, location.context)
    op = ir.Operation.create(
        "func.func", attributes=attributes, regions=1, loc=location, ip=ir.InsertionPoint(module.body)
    )
    block = op.regions[0].blocks.append(*arguments, arg_locs=[location] * len(arguments))
    given = list(block.arguments)
    sizes = {s.name: v for s, v in zip(graph.symbols, given[len(types) :])}
    b = LinalgBuilder(ir.InsertionPoint(block), sizes, location, cache, wide_sums)
    values: dict[int, Tensor] = {}
    for declared, value in zip([i for i in graph.inputs if i.kind != "scalar"], given):
        values[declared.value] = Tensor(value, graph.types[declared.value])
    for node in graph.nodes:
        cls = registry(node.op)
        if cls.lower is None:
            raise NotImplementedError(node.op)
        operands = [None if v is None else values[v] for v in node.operands]
        made = cls.lower(b, **cls.bind(operands), **node.attributes)
        for number, tensor in zip(
            node.results, made if isinstance(made, tuple) and not isinstance(made, Tensor) else (made,)
        ):
            values[number] = tensor
    ir.Operation.create("func.return", operands=[values[o.value].value for o in graph.outputs], loc=location, ip=b.ip)
    module.operation.verify()
    return module


def graph_kernel(graph: Graph, plain: bool = False, kind: str = "loops") -> Kernel:
    """Compile `graph` as one kernel."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        return compile_module(graph_module(graph, kind, wide_sums=plain), plain)


def run_both(graph: Graph, inputs: list[Any], plain: bool = False, kernel: Kernel | None = None) -> tuple[list, list]:
    """The outputs of the compiled kernel and of the interpreter."""
    sizes = interpret.symbol_values(graph, inputs)
    made = (kernel or graph_kernel(graph, plain))(*inputs, sizes=sizes)
    got = list(made) if isinstance(made, tuple) else [made]
    return got, [np.asarray(x) for x in interpret.run(graph, inputs)]
