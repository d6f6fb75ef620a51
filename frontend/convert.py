"""FX nodes (functional ATen) to a graph record.

    part = convert(nodes, outputs)      # Part: the record, and how torch tensors map to its inputs and outputs

A record holds row-major tensors only. A strided input enters as its buffer followed by views (layout.py); an output
leaves as the buffer that eager's strides describe, so every result has eager's sizes and strides. In records for
artifacts (`strided=False`) both are row-major whatever strides eager has. Outputs are always buffers of their own
(never views of inputs or of each other): views of one buffer are made by the caller (glue.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import fx

from . import values
from .aten.registry import Value
from .context import Context
from .part import Naming, OutputSpec, Part
from .values import NotOurs


def convert(
    nodes: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    mutations: Sequence[tuple[fx.Node, fx.Node]] = (),
    weights: Iterable[fx.Node] = (),
    names: Naming | None = None,
    strided: bool = True,
    close_gaps: bool = False,
) -> Part:
    """Convert `nodes` (in order) into a Part with `outputs` as results.

    `mutations` are (input, new value) pairs: the value is written to the input's storage after the call.
    `strided`: inputs and outputs lie in memory as eager's tensors do, else row-major. `close_gaps`: so do outputs that
    eager leaves with gaps between their elements, which otherwise have no form.
    Raises Unsupported or NotOurs when a node, an input or an output has no form.
    """
    names = names or Naming()
    context = Context(names.graph, weights, names.inputs, strided, close_gaps)
    for node in names.order:
        context.value(node)
    for node in nodes:
        context.convert(node)
    part = Part(context.graph)
    for i, node in enumerate(outputs):
        value, spec = context.buffer(node)
        context.graph.add_output(value.id, names.outputs[i] if names.outputs else "")
        part.outputs.append(spec)
    for target, source in mutations:
        value, spec = _mutation(context, target, source)
        context.graph.add_output(value.id, f"new_{context.names[target]}", mutates=context.names[target])
        part.outputs.append(spec)
    part.symbols, part.order = context.finish(names)
    part.inputs = list(context.inputs)
    part.node_of = context.node_of
    return part


def _mutation(context: Context, target: fx.Node, source: fx.Node) -> tuple[Value, OutputSpec]:
    """The new contents of input `target`, in the order of its memory."""
    where = context.layout(target.meta["val"])
    if not where.dense:
        raise NotOurs("an input with gaps is written")
    context.value(target)  # it is an input of the record even if nothing reads it
    value = context.value(source)
    expected, given = values.tensor_type(target.meta["val"]), context.type(value)
    if given != expected:
        value = context.cast(value, expected.dtype)
        if given.shape != expected.shape:
            value = context.op("expand", value, shape=expected.shape)
    if not where.contiguous:
        value = context.op("permute", value, dims=where.order)
    return context.own(value), OutputSpec(target, target.meta["val"].dtype, where.shape, where.strides, mutates=target)
