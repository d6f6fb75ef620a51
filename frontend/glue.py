"""The Python function that runs a partitioned graph: compiled parts, eager ops, views and sizes, in schedule order.

    def call(arg0, arg1):
        s77 = v_arg0.size(0)
        v_relu, = _part0(v_arg0, v_arg1)
        v_view = _reinterpret(v_relu, (s77, 4), (4, 1), 0)
        v_nonzero = _op1(v_view)
        return (v_nonzero,)

Values that are views of one buffer come out as views of one buffer, as in eager. Variables are dropped at their last
use. All-compiled graphs with one part are the common case and may skip this function (dynamo.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from ..dialects import dims
from ..dialects.dims import Dim
from . import compat, sizes, values
from .higher_order.bodies import control_flow
from .partition import Step, is_size

# (part number, nodes, buffers wanted, (input, new value) pairs) -> a callable taking tensors and ints in that order
MakePart = Callable[[int, list[fx.Node], list[fx.Node], list[tuple[fx.Node, fx.Node]]], "BoundPart"]


class BoundPart:
    """A compiled part: `call(*tensors, *symbol values)` returns the tuple of its buffers."""

    def __init__(self, call: Callable[..., Any], inputs: Sequence[fx.Node], symbols: Sequence[str]):
        self.call, self.inputs, self.symbols = call, list(inputs), list(symbols)


class Unbound(ValueError):
    """A compiled part needs a size that the calling code cannot know; `nodes` are the part's."""

    def __init__(self, symbol: str, nodes: list[fx.Node]):
        super().__init__(f"size symbol {symbol} is not known where it is needed")
        self.nodes = nodes


class Glue:
    """Generates the function for one graph; `source` keeps its text."""

    def __init__(
        self,
        gm: fx.GraphModule,
        steps: Sequence[Step],
        make_part: MakePart,
        bodies: Mapping[fx.Node, Callable[..., Any]] = MappingProxyType({}),
    ):
        self.gm, self.make_part, self.bodies = gm, make_part, bodies
        self.env: dict[str, Any] = {f"_{k}": v for k, v in sizes.python_names().items()}
        self.env["_reinterpret"] = compat.fast_reinterpret
        self.statements: list[tuple[str, list[str], list[str]]] = []  # text, variables read, variables written
        self.bound: set[str] = set()
        self.owner = values.storage_owners(gm.graph)
        self.placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.output = next(n for n in gm.graph.nodes if n.op == "output")
        self.parts: list[BoundPart] = []
        self.made: list[fx.Node] = []  # the buffers that parts return
        self._steps(steps)

    def function(self, boxed: bool, written: Sequence[int] = ()) -> Callable[..., Any]:
        """The callable: `call(*args)`, or with `boxed` `call(list)`, which empties the list (AOTAutograd's protocol).

        Where `call(*args)` would only pass its arguments on to one part, it is that part. The version counters of the
        arguments `written` are advanced.
        """
        if not boxed and not written and self._is_one_part():
            return self.parts[0].call
        names = "".join(f"{var(n)}, " for n in self.placeholders)
        head = ["def call(args):"] if boxed else [f"def call({names}):"]
        if boxed and names:
            head += [f"    {names.rstrip()} = args", "    args.clear()"]
        if written:
            self.env["_count_writes"] = compat.count_writes
            head += [f"    _count_writes(({''.join(f'{var(self.placeholders[i])}, ' for i in written)}))"]
        self.source = "\n".join(head + ["    " + line for line in self._lines()]) + "\n"
        scope = dict(self.env)
        exec(compile(self.source, "<lamina glue>", "exec"), scope)
        call = scope["call"]
        call._boxed_call = boxed
        return call

    def _is_one_part(self) -> bool:
        results = list(self.output.args[0])  # type: ignore[call-overload]
        return (
            len(self.parts) == 1
            and self.made == results
            and [var(n) for n in self.parts[0].inputs] + self.parts[0].symbols == [var(n) for n in self.placeholders]
        )

    # -- statements -------------------------------------------------------------------------------------------
    def _steps(self, steps: Sequence[Step]) -> None:
        for node in self.gm.graph.nodes:
            if node.op == "get_attr":
                self.env[var(node)] = self.bodies.get(node) or operator.attrgetter(str(node.target))(self.gm)
        for node in self.placeholders:
            self._bind_sizes(node)
        for step in steps:
            if step.compiled:
                self._compiled(step.nodes)
            else:
                for node in step.nodes:
                    self._eager(node)
        results = tuple(self.output.args[0])  # type: ignore[arg-type]
        self._state(f"return {self._text(results)}", self.output.all_input_nodes)

    def _state(self, text: str, reads: Iterable[fx.Node] = (), writes: Iterable[fx.Node] = ()) -> None:
        self.statements.append((text, list(map(var, reads)), list(map(var, writes))))

    def _lines(self) -> list[str]:
        """The statements, each followed by the deletion of variables that nothing reads any more."""
        last: dict[str, int] = {var(n): -1 for n in self.placeholders}
        for i, (_, reads, writes) in enumerate(self.statements):
            last.update((name, i) for name in (*writes, *reads))
        lines = [f"del {name}" for name, i in last.items() if i < 0]
        dead: dict[int, list[str]] = {}
        for name, i in last.items():
            if name not in self.env and 0 <= i < len(self.statements) - 1:
                dead.setdefault(i, []).append(name)
        for i, (text, _, _) in enumerate(self.statements):
            lines.append(text)
            if i in dead:
                lines.append("del " + ", ".join(dead[i]))
        return lines

    def _compiled(self, nodes: list[fx.Node]) -> None:
        inside = set(nodes)
        copies = [n for n in nodes if n.target is torch.ops.aten.copy_.default]
        body = [n for n in nodes if n not in set(copies)]
        wanted = [
            n for n in body if isinstance(n.meta.get("val"), torch.Tensor) and any(u not in inside for u in n.users)
        ]
        buffers = list(dict.fromkeys(b for n in wanted if (b := self._base(n)) in inside))
        if buffers or copies:
            pairs = [(n.args[0], n.args[1]) for n in copies]
            part = self.make_part(len(self.parts), body, buffers, pairs)  # type: ignore[arg-type]
            self._need(part.symbols, nodes)
            name = f"_part{len(self.parts)}"
            self.env[name] = part.call
            self.parts.append(part)
            self.made += buffers
            arguments = ", ".join([var(n) for n in part.inputs] + part.symbols)
            results = "".join(f"{var(b)}, " for b in buffers).rstrip()
            text = f"{results} = {name}({arguments})" if results else f"{name}({arguments})"
            self._state(text, part.inputs, buffers)
        for node in wanted:
            if node not in buffers:
                self._view(node, nodes)
        for node in copies:
            if node.users:
                target: Any = node.args[0]
                self._state(f"{var(node)} = {var(target)}", [target], [node])

    def _base(self, node: fx.Node) -> fx.Node:
        return self.owner[values.buffer_key(node.meta["val"])]

    def _view(self, node: fx.Node, nodes: list[fx.Node]) -> None:
        """`node` as a view of the buffer it lies in."""
        base = self._base(node)
        value, origin = node.meta["val"], base.meta["val"]
        offset = sizes.to_dim(value.storage_offset()) - sizes.to_dim(origin.storage_offset())
        size = [sizes.to_dim(d) for d in value.shape]
        stride = [sizes.to_dim(d) for d in value.stride()]
        for d in (*size, *stride, offset):
            self._need(dims.symbols(d), nodes)
        text = ", ".join([var(base), _tuple(size), _tuple(stride), _python(offset)])
        self._state(f"{var(node)} = _reinterpret({text})", [base], [node])

    def _eager(self, node: fx.Node) -> None:
        if is_size(node) and (text := self._size_text(node)):
            self._state(f"{var(node)} = {text}", (), [node])
            return
        name = f"_op{len(self.env)}"
        self.env[name] = control_flow(node) or compat.bind_eager(node.target)
        arguments = [self._text(a) for a in node.args] + [f"{k}={self._text(v)}" for k, v in node.kwargs.items()]
        self._state(f"{var(node)} = {name}({', '.join(arguments)})", node.all_input_nodes, [node])
        self._bind_sizes(node)

    def _size_text(self, node: fx.Node) -> str:
        try:
            size = sizes.to_dim(node.meta.get("val"))
        except sizes.SizeError:
            return ""
        return _python(size) if dims.symbols(size) <= self.bound else ""

    def _bind_sizes(self, node: fx.Node) -> None:
        """Give a variable to every symbol that can be read off `node` and has none yet."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            self._bind(value, var(node), node)
        elif isinstance(value, torch.Tensor) and value.layout is torch.strided:
            for method, found in (("size", value.shape), ("stride", value.stride())):
                for i, size in enumerate(found):
                    self._bind(size, f"{var(node)}.{method}({i})", node)

    def _bind(self, size: Any, text: str, source: fx.Node) -> None:
        if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
            return
        name = size.node.expr.name
        if name not in self.bound:
            self.bound.add(name)
            self._state(f"{name} = {text}", [source])

    def _need(self, names: Iterable[str], nodes: list[fx.Node]) -> None:
        for name in names:
            if name not in self.bound:
                raise Unbound(name, nodes)

    def _text(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return var(value)
        if isinstance(value, (list, tuple)) and type(value).__name__ in ("list", "tuple", "immutable_list"):
            items = ", ".join(map(self._text, value))
            return f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
        if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and value - value == 0):
            return repr(value)
        name = f"_const{len(self.env)}"
        self.env[name] = value
        return name


def var(node: fx.Node) -> str:
    """The variable that holds `node` in generated code."""
    return f"v_{node.name}"


def _tuple(values: Sequence[Dim]) -> str:
    return "(" + "".join(f"{_python(v)}, " for v in values).rstrip() + ")"


def _python(dim: Dim) -> str:
    """Python source of a size; the functions in it are the generated code's `_floordiv` and so on."""
    text = str(dim)
    for name in sizes.python_names():
        text = text.replace(f"{name}(", f"_{name}(")
    return text
