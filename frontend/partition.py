"""Which FX nodes are compiled, and in what order: a linear list schedule with few, large compiled parts.

    classify(gm)  ->  {node: reason}    nodes that must run in eager, by trying every converter once
    schedule(gm, eager)  ->  [Step]     alternating compiled and eager steps in an order that keeps dependences,
                                        the mutual order of effects (random numbers, asserts, prints), and mutations
                                        after everything that came before them; a compiled step is two of them where
                                        that frees a large tensor early (early_release.py)

The schedule keeps two queues of ready nodes, and leaves one kind only when it runs dry: 1-4 ms for 1400 nodes, where
torch's CapabilityBasedPartitioner is quadratic (0.8 s).
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ..dialects.op import OpError
from . import compat
from .aten.registry import Unsupported
from .context import Context
from .devices import check_device, check_kernels, device_of
from .early_release import split
from .higher_order.bodies import control_flow
from .sizes import SizeError
from .values import NotOurs, buffer_key, is_view, layout, storage_owners

_INSERTING = (torch.ops.aten.slice_scatter.default, torch.ops.aten.select_scatter.default)


@dataclass
class Step:
    """Nodes run together: by one compiled part, or one by one in eager."""

    compiled: bool
    nodes: list[fx.Node] = field(default_factory=list)


def classify(gm: fx.GraphModule) -> dict[fx.Node, str]:
    """The call nodes that cannot be compiled, with the reason."""
    _lay_out_parts(gm)
    context = Context("trial")
    owners = storage_owners(gm.graph)
    device = device_of(gm)
    eager: dict[fx.Node, str] = {}
    for node in gm.graph.nodes:
        if node.op != "call_function" or is_size(node):
            continue
        if node.target is operator.getitem and node.args[0] in eager:
            eager[node] = ""  # goes with its producer
            continue
        if control_flow(node):
            eager[node] = "control flow, which eager does between compiled graphs"
            continue
        if _is_copy_to_input(node):
            reason = _copy_reason(context, node)
            if reason:
                eager[node] = reason
            continue
        try:
            check_device(node, device)
            made = len(context.graph.nodes)
            context.convert(node)
            check_kernels(context.graph.nodes, context.graph.types, device, made)
            if device.type != "cpu" and any(n.op == "attention" for n in context.graph.nodes[made:]):
                _check_read_in_place(node, owners)
            _check_dense(node, owners)
        except (Unsupported, NotOurs, SizeError, OpError) as error:
            eager[node] = str(error)
        except Exception as error:  # a bug in a converter must cost speed, not the user's program
            eager[node] = f"internal error in the converter: {type(error).__name__}: {error}"
    return eager


def _lay_out_parts(gm: fx.GraphModule) -> None:
    """Let what only becomes part of a larger tensor be contiguous.

    `x[..., :4] = y` is traced as `slice_scatter(x, copy(slice(x), y))`. The copy has the gaps of the slice, which nobody
    will see, and which buffers of ours do not have.
    """
    for node in gm.graph.nodes:
        if node.target is not torch.ops.aten.copy.default and node.target not in _INSERTING:
            continue
        value = node.meta["val"]
        inserted = all(u.target in _INSERTING and u.args[1] is node and u.args[0] is not node for u in node.users)
        if inserted and value.layout is torch.strided:
            node.meta["val"] = torch.empty_like(value, memory_format=torch.contiguous_format)


def _check_read_in_place(node: fx.Node, owners: Mapping[Any, fx.Node]) -> None:
    """Inputs with gaps are copied before a graph runs; torch's attention reads them where they lie."""
    for tensor in node.all_input_nodes[:3]:
        owner = owners[buffer_key(tensor.meta["val"])]
        if owner.op == "placeholder" and not layout(owner.meta["val"]).dense:
            raise NotOurs("attention of inputs with gaps, which would be copied")


def _check_dense(node: fx.Node, owners: Mapping[Any, fx.Node]) -> None:
    """A result that is no view must fill its buffer: what is handed out has eager's strides.

    (A program that was saved and loaded has forgotten which tensors share memory.)
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or owners[buffer_key(value)] is not node or is_view(node):
        return
    if not layout(value).dense:
        raise NotOurs("a result with gaps between its elements")


def is_size(node: fx.Node) -> bool:
    """True for arithmetic on sizes (`sym_size`, `mul` of SymInts) and checks of it, which the calling code does itself."""
    if node.target is torch.ops.aten._assert_scalar.default:
        return True
    value = node.meta.get("val")
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)) and node.op == "call_function"


def _is_copy_to_input(node: fx.Node) -> bool:
    return node.target is torch.ops.aten.copy_.default and getattr(node.args[0], "op", "") == "placeholder"


def _copy_reason(context: Context, node: fx.Node) -> str:
    """Why `copy_(input, value)` at the end of the graph cannot be written by compiled code; "" if it can."""
    target, source = node.args[:2]
    try:
        if not isinstance(source, fx.Node) or not layout(target.meta["val"]).dense:
            return "the written input has gaps between its elements"
        context.value(target)
        context.value(source)
    except (Unsupported, NotOurs) as error:
        return str(error)
    return ""


def schedule(gm: fx.GraphModule, eager: Collection[fx.Node]) -> list[Step]:
    """Order the call nodes of `gm` into steps; size arithmetic and getitem of eager tuples count as eager."""
    nodes = [n for n in gm.graph.nodes if n.op == "call_function"]
    number = {n: i for i, n in enumerate(nodes)}
    waits, users = _dependences(nodes, number)
    ready: dict[bool, list[int]] = {True: [], False: []}

    def compiled(i: int) -> bool:
        return nodes[i] not in eager and not is_size(nodes[i])

    def release(i: int) -> None:
        heapq.heappush(ready[compiled(i)], i)

    for i, count in enumerate(waits):
        if not count:
            release(i)
    steps: list[Step] = []
    current = False  # what eager can do first makes later compiled parts larger
    while ready[True] or ready[False]:
        if not ready[current]:
            current = not current
        if not steps or steps[-1].compiled != current:
            steps.append(Step(current))
        done = [heapq.heappop(ready[current])]
        while done:
            i = done.pop()
            steps[-1].nodes.append(nodes[i])
            for user in users[i]:
                waits[user] -= 1
                if nodes[user].target is operator.getitem:
                    done.append(user)
                elif not waits[user]:
                    release(user)
    return [Step(s.compiled, nodes) for s in _delayed(steps) for nodes in (split(s.nodes) if s.compiled else [s.nodes])]


def _delayed(steps: list[Step]) -> list[Step]:
    """The steps with what depends on saved values and other inputs alone in the compiled step of, or before, its first reader.

    What a backward pass computes again of saved activations is ready at its beginning, for all layers: it would be computed,
    stored and kept there, beside the activations.
    """
    place = {node: number for number, step in enumerate(steps) for node in step.nodes}
    if any(compat.is_mutation(node.target) for node in place):
        return steps  # an input may have another value later
    early: set[fx.Node] = set()
    for node, number in place.items():
        if steps[number].compiled and all(a in early or _is_saved(a) for a in node.all_input_nodes):
            early.add(node)
    late: dict[fx.Node, int] = {}
    for node in reversed(place):
        readers = [late.get(u, place[u]) for u in node.users if u in place]
        tuples = any(n.target is operator.getitem for n in (node, *node.users))  # stay together
        if node in early and readers and not tuples:
            first = min(readers)
            first -= not steps[first].compiled
            if first > place[node]:
                late[node] = first
    made: list[Step] = []
    for number, step in enumerate(steps):
        nodes = [n for n, at in reversed(late.items()) if at == number] + [n for n in step.nodes if n not in late]
        if made and made[-1].compiled == step.compiled:
            made[-1].nodes += nodes
        elif nodes:
            made.append(Step(step.compiled, nodes))
    return made


def _is_saved(node: fx.Node) -> bool:
    """True for an input but the gradients that a backward pass is given, which AOTAutograd names so."""
    return node.op != "call_function" and not compat.is_tangent(node)


def _dependences(nodes: list[fx.Node], number: dict[fx.Node, int]) -> tuple[list[int], list[list[int]]]:
    """How many nodes each node waits for, and which nodes wait for it."""
    before: list[set[int]] = []
    last_effect = last_mutation = -1
    since_mutation: list[int] = []
    for i, node in enumerate(nodes):
        needs = {number[a] for a in node.all_input_nodes if a in number}
        if node.target is operator.getitem:  # goes with the node that made its tuple
            before.append(needs)
            continue
        if last_mutation >= 0:
            needs.add(last_mutation)
        if compat.is_mutation(node.target):
            needs.update(since_mutation)
            last_mutation, since_mutation = i, []
        else:
            since_mutation.append(i)
        if compat.is_effect(node.target):
            if last_effect >= 0:
                needs.add(last_effect)
            last_effect = i
        before.append(needs)
    users: list[list[int]] = [[] for _ in nodes]
    for i, needs in enumerate(before):
        for n in needs:
            users[n].append(i)
    return [len(needs) for needs in before], users
