"""Replace arithmetic on complex tensors by arithmetic on their parts, which is compiled like any other.

    z = view_as_complex(x)          re, im = select(x, -1, 0), select(x, -1, 1)
    p = mul(z, w)                →  p_re, p_im = re * w_re - im * w_im, re * w_im + im * w_re
    y = view_as_real(p)             y = stack([p_re, p_im], -1)

A complex tensor that is an argument, or the result of an op without a rule (rules.py, fourier.py), enters through
`view_as_real`; one that leaves is `view_as_complex` of the stack of its parts. Eager makes these two views, and runs what
has no rule. Strides and aliasing stay eager's: the stack has the fake value of `view_as_real(p)`, so it is laid out as
torch lays out `p`, and what torch takes for a view of `p` is a view of it. Complex views stay beside their parts, for
those who want the tensor itself.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx

from .. import compat
from ..aten.registry import Unsupported
from .builder import Builder, Pair, aten, is_complex
from .fourier import FOURIER
from .rules import RULES, Rule


def split_complex(gm: fx.GraphModule, transforms: bool) -> None:
    """Rewrite the functional ATen graph `gm` in place; one without complex tensors stays as it is.

    With `transforms` that includes Fourier transforms. Eager's are faster (fourier.py), but there may be no eager.
    """
    if any(map(is_complex, gm.graph.nodes)):
        _Splitter(gm.graph, RULES | FOURIER if transforms else RULES).run()


def hold_parts(graph: fx.Graph, constants: Collection[fx.Node]) -> None:
    """Let complex `constants` of which only the parts are read hold `view_as_real` of what they held."""
    for node in filter(is_complex, constants):
        users = list(node.users)
        if all(u.target is aten.view_as_real.default for u in users):
            with compat.fake_mode(graph):
                node.meta["val"] = torch.view_as_real(node.meta["val"])
            for user in users:
                user.replace_all_uses_with(node)
                graph.erase_node(user)


class _Splitter:
    """What is known of the nodes met so far: the parts of complex ones, of lists of such, and where parts lie."""

    def __init__(self, graph: fx.Graph, rules: Mapping[Any, Rule]):
        self.graph, self.rules = graph, rules
        self.build = Builder(graph)
        self.pairs: dict[fx.Node, Pair] = {}
        self.lists: dict[fx.Node, Pair] = {}
        self.stacks: dict[fx.Node, Pair] = {}  # stacks that we made
        self.real: dict[fx.Node, fx.Node] = {}  # view_as_real of complex nodes, where that is compiled

    def run(self) -> None:
        done: set[fx.Node] = set()
        for node in list(self.graph.nodes):
            if node.op != "call_function" or not self._concerns(node):
                continue
            self.build.node = node
            try:
                self._rewrite(node)
                done.add(node)
            except Exception:  # no rule, or one that fails: eager runs the node, and the partition says so
                continue
        done |= self.build.made
        for node in reversed(list(self.graph.nodes)):
            if node in done and not node.users:
                self.graph.erase_node(node)

    def _concerns(self, node: fx.Node) -> bool:
        """True if `node` makes or takes a complex tensor, a list of such, or a stack of parts."""
        known = (self.lists, self.stacks)
        return is_complex(node) or any(is_complex(n) or any(n in k for k in known) for n in node.all_input_nodes)

    def _rewrite(self, node: fx.Node) -> None:
        source: Any = node.args[0] if node.args else None
        if node.target is operator.getitem:
            items = self.lists[source]
            self.pairs[node] = Pair(*(self.build.item(part, node.args[1]) for part in items))  # type: ignore[arg-type]
        elif source in self.stacks:
            self._part_of_stack(node, self.stacks[source])
        elif node.target is aten.view_as_real.default:
            self._view_as_real(node, source)
        else:
            self._apply_rule(node)

    def _part_of_stack(self, node: fx.Node, pair: Pair) -> None:
        """`select(stack, -1, i)` is one part. As a result of the graph it stays the view that eager returns."""
        source, dim, index = node.args
        last = source.meta["val"].dim() - 1  # type: ignore[union-attr]
        if node.target is aten.select.int and dim in (-1, last):
            node.replace_all_uses_with(pair[index], delete_user_cb=lambda user: user.op != "output")  # type: ignore[index]

    def _view_as_real(self, node: fx.Node, source: fx.Node) -> None:
        if source not in self.real and self._is_view_of_stack(source):
            self._stack(source, self.pairs[source])
        if source in self.real:  # else a view of what eager made
            node.replace_all_uses_with(self.real[source])

    def _is_view_of_stack(self, node: fx.Node) -> bool:
        """True for what is, through complex views, a view of a tensor of which only the parts are computed."""
        while node in self.pairs and node not in self.real and is_complex(node.args[0]):
            node = node.args[0]  # type: ignore[assignment]
        return node in self.real

    def _apply_rule(self, node: fx.Node) -> None:
        rule = self.rules.get(node.target)
        if rule is None:
            raise Unsupported("no rule for complex tensors")
        made = rule(self.build, *self._given(node.args), **{k: self._given(v) for k, v in node.kwargs.items()})
        if isinstance(made, fx.Node):
            made.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(made)
        elif not isinstance(node.meta["val"], torch.Tensor):
            self.lists[node] = made
        else:
            self.pairs[node] = made
            if node.target is aten.view_as_complex.default:
                self.real[node] = node.args[0]  # type: ignore[assignment]
            elif isinstance(made.re, fx.Node) and not _is_view(node):
                stack = self._stack(node, made)
                whole = self.build.call(aten.view_as_complex.default, stack)
                whole.meta["val"] = node.meta["val"]
                self.pairs[whole], self.real[whole] = made, stack
                node.replace_all_uses_with(whole)

    def _stack(self, node: fx.Node, pair: Pair) -> fx.Node:
        """`view_as_real(node)`, from its parts."""
        stack = self.build.call(aten.stack.default, list(pair), -1)
        with compat.fake_mode(self.graph):
            stack.meta["val"] = torch.view_as_real(node.meta["val"])
        self.stacks[stack] = pair
        self.real[node] = stack
        return stack

    def _given(self, value: Any) -> Any:
        """Arguments with complex nodes and numbers as pairs."""
        if isinstance(value, (list, tuple)):
            return [self._given(v) for v in value]
        if isinstance(value, complex):
            return Pair(value.real, value.imag)
        return self._pair(value) if is_complex(value) else value

    def _pair(self, node: fx.Node) -> Pair:
        """The parts of a complex node; those of one that eager makes are views of it."""
        if node not in self.pairs:
            conjugate = node.meta["val"].is_conj()
            plain = self.build.call(aten._conj.default, node) if conjugate else node  # flips a bit
            parts = self.build.call(aten.view_as_real.default, plain)
            re, im = self.build.part(parts, 0), self.build.part(parts, 1)
            self.pairs[node] = Pair(re, self.build.neg(im) if conjugate else im)
        return self.pairs[node]


def _is_view(node: fx.Node) -> bool:
    """True if `node` shares the memory of a complex operand."""
    own = compat.storage_key(node.meta["val"])
    return any(is_complex(n) and compat.storage_key(n.meta["val"]) == own for n in node.all_input_nodes)
