"""Replace higher-order ops by the ordinary ops that they mean.

    invoke_subgraph(body, …)            the ops of the body, once per call: equal kernels are found later
    scan(body, init, xs), map(body, xs) the body once per place, where that makes few ops
    flex_attention(q, k, v, …)          attention with a mask, or what it consists of (flex.py)
    cond(p, then, otherwise, …)         both branches and a `where`, in programs that have no eager

A *meaning* is a Python function of the op's operands. It is traced on their fake values, and the traced nodes take the
op's place. An op that has none, or whose results would not be laid out as torch says, stays (bodies.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from .. import compat
from . import meanings
from .flex import flex_attention
from .meanings import Body

# The most ops that a loop may become: LSTMs of a hundred places have as many, and compile in seconds.
UNROLLED = 2000
# Parts of names of ops that may raise; a branch that is not taken must not.
_RAISING = ("index", "gather", "scatter", "embedding", "assert", "take", "nll_loss")
_ALWAYS: dict[str, Callable[..., Any]] = {
    **{name: meanings.FLOWS[name] for name in ("invoke_subgraph", "scan", "map_impl")},
    "flex_attention": flex_attention,
}


def expand(gm: fx.GraphModule, branches: bool = False) -> None:
    """Rewrite the functional ATen graph `gm` in place, conditions too with `branches`."""
    table = {**_ALWAYS, "cond": meanings.both_branches} if branches else _ALWAYS
    pending = [n for n in gm.graph.nodes if higher_order(n) in table]
    for node in pending:
        if _may_be_expanded(gm, node):
            made = _traced(gm, node, table[higher_order(node)])
            if made is not None:
                pending += [n for n in _splice(gm, node, made) if higher_order(n) in table]
    if pending:
        _drop_unused(gm)


def higher_order(node: fx.Node) -> str:
    """The name of the higher-order op that a node calls; "" for other nodes."""
    return str(node.target) if isinstance(node.target, torch._ops.HigherOrderOperator) else ""


def bodies(gm: fx.GraphModule, node: fx.Node) -> Iterator[tuple[fx.Node, fx.GraphModule]]:
    """The graphs among the operands of a node, each with the `get_attr` that holds it."""
    for operand in node.all_input_nodes:
        body = _attribute(gm, operand)
        if isinstance(body, fx.GraphModule):
            yield operand, body


def _may_be_expanded(gm: fx.GraphModule, node: fx.Node) -> bool:
    found, kind = list(bodies(gm, node)), higher_order(node)
    inside = [n for _, body in found for n in body.graph.nodes if n.op == "call_function"]
    if any("unbacked_bindings" in n.meta for n in inside):
        return False  # traced again, sizes that depend on data would be other symbols
    if kind in ("scan", "map_impl"):
        xs: Any = node.args[2 if kind == "scan" else 1]
        length = xs[0].meta["val"].shape[0] if xs else None
        return isinstance(length, int) and 0 < length * len(inside) <= UNROLLED
    if kind == "cond":
        tensors = isinstance(node.args[0], fx.Node) and isinstance(node.args[0].meta["val"], torch.Tensor)
        return tensors and not any(part in str(n.target) for n in inside for part in _RAISING)
    return True


def _traced(gm: fx.GraphModule, node: fx.Node, meaning: Callable[..., Any]) -> fx.GraphModule | None:
    """The graph of a node's meaning, a function of `node.all_input_nodes` without bodies; None if it cannot be had."""
    operands, wanted = _operands(gm, node), node.meta["val"]

    def call(*values: Any) -> Any:
        given = dict(zip(operands, values))
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda n: given[n] if n in given else Body(_attribute(gm, n))
        )  # type: ignore[misc]
        made = meaning(*args, **kwargs)
        return [_laid_out(m.clone() if any(m is v for v in values) else m, w) for m, w in zip(made, wanted)]

    try:
        with compat.fake_mode(gm.graph), compat.composites_kept(), torch.no_grad(), fx.traceback.preserve_node_meta():
            traced = make_fx(call)(*(n.meta["val"] for n in operands))
    except Exception:  # of torch's tracing: the op stays, eager runs it, and the partition says so
        return None
    results = [r.meta["val"] if isinstance(r, fx.Node) else r for r in traced.graph.output_node().args[0]]  # type: ignore[union-attr]
    return traced if len(results) == len(wanted) and all(map(_alike, results, wanted)) else None


def _operands(gm: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """The input nodes of a node that are values, not graphs."""
    return [n for n in node.all_input_nodes if not isinstance(_attribute(gm, n), fx.GraphModule)]


def _attribute(gm: fx.GraphModule, node: fx.Node) -> Any:
    return operator.attrgetter(str(node.target))(gm) if node.op == "get_attr" else None


def _laid_out(made: Any, wanted: Any) -> Any:
    """A result with its dimensions in memory in the order that torch says."""
    if not isinstance(made, torch.Tensor) or made.stride() == wanted.stride():
        return made
    order = sorted(range(made.dim()), key=lambda d: wanted.stride(d), reverse=True)
    return made.permute(order).contiguous().permute([order.index(d) for d in range(made.dim())])


def _alike(made: Any, wanted: Any) -> bool:
    """True if a result has the type and layout that torch says."""
    if not isinstance(made, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return made is None and wanted is None
    return (made.dtype, made.shape, made.stride()) == (wanted.dtype, wanted.shape, wanted.stride())


def _splice(gm: fx.GraphModule, node: fx.Node, traced: fx.GraphModule) -> list[fx.Node]:
    """Put the nodes of `traced` in the place of `node`; the nodes made."""
    given: dict[fx.Node, Any] = {}
    inputs = iter(_operands(gm, node))
    with gm.graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "placeholder":
                given[inner] = next(inputs)
            elif inner.op == "get_attr":
                label = _fresh(gm, str(inner.target))
                setattr(gm, label, _attribute(traced, inner))
                given[inner] = gm.graph.get_attr(label)
                given[inner].meta = dict(inner.meta)
            elif inner.op == "call_function":
                given[inner] = gm.graph.node_copy(inner, given.__getitem__)
                _name_number(given[inner])
                given[inner].meta.setdefault("stack_trace", node.meta.get("stack_trace"))
    results = fx.map_arg(traced.graph.output_node().args[0], given.__getitem__)
    for user in list(node.users):
        user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index, call-overload]
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)
    return [n for i, n in given.items() if i.op == "call_function"]


def _name_number(node: fx.Node) -> None:
    """Make a tensor of what tracing put as a number where vmap casts one: `_to_copy(0.5, dtype)`."""
    if node.target is torch.ops.aten._to_copy.default and not isinstance(node.args[0], fx.Node):
        value = node.meta["val"]
        node.target, node.args = torch.ops.aten.full.default, ([], node.args[0])
        node.kwargs = {"dtype": value.dtype, "device": value.device}


def _fresh(gm: fx.GraphModule, name: str) -> str:
    number = 0
    while hasattr(gm, f"{name}_{number}"):
        number += 1
    return f"{name}_{number}"


def _drop_unused(gm: fx.GraphModule) -> None:
    """Erase bodies that nothing uses, and what made unused results."""
    for node in reversed(list(gm.graph.nodes)):
        if node.op in ("get_attr", "call_function") and not node.users and not node.is_impure():
            gm.graph.erase_node(node)
