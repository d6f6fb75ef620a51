"""FX nodes (functional ATen) to a graph record.

    part = convert(nodes, outputs)      # Part: the record, and how torch tensors map to its inputs and outputs

A record holds row-major tensors only. A strided input enters as its buffer followed by views (layout.py); an output
leaves as the buffer that eager's strides describe, so every result has eager's sizes and strides. In records for
artifacts (`strided=False`) both are row-major whatever strides eager has. Outputs are always buffers of their own
(never views of inputs or of each other): views of one buffer are made by the caller (glue.py).

One rule per ATen op: `aten.registry.converters()["aten.add.Tensor"](context, *args, **kwargs)`. Arguments are
`Value`s for tensors, `dims.Expr` or int for sizes, Python scalars, names for dtypes, None for devices and layouts.
"""

from __future__ import annotations

import base64
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from ..dialects import dims
from ..dialects.dims import Dim, Expr
from ..dialects.op import registry
from ..dialects.record import Graph, Location, Symbol, TensorType
from . import compat, sizes, values
from .aten.float8 import check_float8
from .aten.registry import Unsupported, Value, converters
from .hazards import is_of_unsure_strides, makes_something_of_nothing, strides_matter
from .layout import Layout, contiguous
from .part import Naming, OutputSpec, Part
from .values import NotOurs

# get_attr tensors up to this size are literals of the record; larger ones are inputs that never change.
_LITERAL_BYTES = 1024


class Context:
    """What a converter works with: the record being built and the node being converted."""

    def __init__(
        self,
        name: str = "main",
        weights: Iterable[fx.Node] = (),
        names: Mapping[fx.Node, str] | None = None,
        strided: bool = True,
        close_gaps: bool = False,
    ):
        self.graph = Graph(name)
        self.strided, self.close_gaps = strided, close_gaps
        self.names = dict(names or {})
        self.location = Location()
        self.out_type: Any = None
        self.node: fx.Node | None = None
        self.inputs: dict[fx.Node, int] = {}
        self._buffers: set[int] = set()  # inputs whose buffer has a size of its own, which is none of the tensor's
        self.node_of: list[fx.Node] = []
        self._producer: dict[int, str] = {}  # value -> the op that made it
        self._env: dict[fx.Node, Any] = {}
        self._weights = frozenset(weights)
        self._symbols: dict[str, torch.SymInt] = {}
        self._some: set[Dim] = set()

    # -- for converters ---------------------------------------------------------------------------------------
    def op(self, name: str, *operands: Value | None, **attributes: Any) -> Any:
        """Append `lamina.<name>` at the current location; returns a Value, or a tuple of them."""
        ids = [None if v is None else v.id for v in operands]
        result = self.graph.add(name, *ids, location=self.location, **attributes)
        self.node_of.append(self.node)  # type: ignore[arg-type]
        self._producer.update((r, name) for r in self.graph.nodes[-1].results)
        return tuple(Value(r) for r in result) if isinstance(result, tuple) else Value(result)

    def type(self, value: Value) -> TensorType:
        """The type of a value."""
        return self.graph.types[value.id]

    def bounds(self, number: Expr) -> tuple[int | None, int | None]:
        """Inclusive bounds of a symbolic number that follow from what torch knows of its symbols; None: unbounded."""
        return dims.bounds(number, {n: compat.known_range(self._symbols[n], n) for n in dims.symbols(number)})

    def require_some(self, found: Iterable[Dim]) -> None:
        """Sizes that may not be 0 when the record runs."""
        self._some.update(found)

    def cast(self, value: Value, dtype: str) -> Value:
        """`value` as `dtype`; itself if it is that already."""
        if self.type(value).dtype == dtype:
            return value
        if dtype == "f8E4M3FN" and not compat.float8_saturates():
            value = self._nan_beyond(value, 464.0)  # what is larger does not round to 448
        return self.op("cast", value, dtype=dtype)

    def _nan_beyond(self, value: Value, limit: float) -> Value:
        """NaN where the size of `value` is larger than `limit`, in f32."""
        wide = value if self.type(value).dtype == "f32" else self.op("cast", value, dtype="f32")
        fits = self.op("le", self.op("abs", wide), self.scalar(limit, "f32"))
        return self.op("where", fits, wide, self.scalar(math.nan, "f32"))

    def scalar(self, number: bool | int | float | Expr, dtype: str, shape: Sequence[Dim] = ()) -> Value:
        """A tensor of `shape` filled with a number or a symbolic size."""
        if not isinstance(number, Expr):
            return self.op("full", shape=tuple(shape), value=number, dtype=dtype)
        value = self.cast(self.op("size_value", dim=(number,)), dtype)
        return self.op("expand", value, shape=tuple(shape)) if shape else value

    def promote(self, *args: Any) -> tuple[tuple[Value, ...], str]:
        """Bring tensors and Python numbers to the dtype torch computes in; returns them and the dtype."""
        from .aten.promotion import promote

        return promote(self, *args)

    # -- nodes ------------------------------------------------------------------------------------------------
    def convert(self, node: fx.Node) -> None:
        """Convert one call_function or get_attr node; Unsupported or NotOurs says why it must run in eager."""
        self.node, self.location = node, values.location(node)
        if node.target is operator.getitem:
            self._env[node] = self._item(node)
            return
        if node.target in compat.UNSURE_STRIDES and strides_matter(node):
            raise Unsupported("its strides matter, and only eager knows them")
        rule = converters().get(str(node.target))
        if rule is None:
            raise Unsupported("no converter")
        self.out_type = values.result_types(node)
        check_float8(node, self.out_type)
        if makes_something_of_nothing(node):
            raise Unsupported("an empty operand")  # what that gives, often an error, is eager's to say
        args = [self._argument(a) for a in node.args]
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items()}
        if node.target is torch.ops.aten.as_strided.default:
            args[0] = self._flat(node.args[0], args[0])
        result = rule(self, *args, **kwargs)
        self._check(result, self.out_type)
        if isinstance(result, (list, tuple)) and any(result[i] is None for i in _items_used(node)):
            raise Unsupported("a result that the converter leaves out is used")
        self._env[node] = result

    def value(self, node: fx.Node) -> Value:
        """The value of a tensor node, which becomes an input of the record if no converted node made it."""
        if node not in self._env:
            self._env[node] = self._literal(node) or self._input(node)
        found = self._env[node]
        if not isinstance(found, Value):
            raise Unsupported("a list of tensors where one is needed")
        return found

    def _item(self, node: fx.Node) -> Any:
        source, index = node.args
        items = self._env.get(source)  # type: ignore[arg-type]
        if isinstance(items, (list, tuple)) and isinstance(index, int):
            return items[index]
        return self.value(node)

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            known = arg.meta.get("val")
            if isinstance(known, torch.Tensor):
                return self.value(arg)
            if isinstance(known, (torch.SymInt, int)) and not isinstance(known, bool):
                return self._size(known)
            if isinstance(self._env.get(arg), (list, tuple)):
                return self._env[arg]
            raise Unsupported(f"an argument that is a {type(known).__name__}")
        if isinstance(arg, (list, tuple)):
            return [self._argument(a) for a in arg]
        if isinstance(arg, torch.dtype):
            return values.dtype_name(arg)
        if isinstance(arg, torch.SymInt):
            return self._size(arg)
        if isinstance(arg, (bool, int, float, str)) or arg is None:
            return arg
        if isinstance(arg, (torch.device, torch.layout, torch.memory_format)):
            return None
        raise Unsupported(f"an argument that is a {type(arg).__name__}")

    def _size(self, size: Any) -> Dim:
        self._note(size)
        return sizes.to_dim(size)

    def _note(self, *found: Any) -> None:
        """Remember the symbols in sizes: they must be declared on the record."""
        for size in found:
            if isinstance(size, torch.SymInt):
                for name in sizes.free_symbols(size):
                    self._symbols.setdefault(name, size)

    # -- inputs -----------------------------------------------------------------------------------------------
    def _input(self, node: fx.Node) -> Value:
        fake = node.meta.get("val")
        type = values.tensor_type(fake)
        where = self.layout(fake)
        self._note(*fake.shape, *fake.stride())
        kind = "weight" if node in self._weights else "input"
        name = self.names.setdefault(node, f"{kind}{len(self.inputs)}")
        value = Value(self.graph.add_input(name, TensorType(type.dtype, where.buffer), kind))
        self.inputs[node] = value.id
        if where.order is None:
            self._buffers.add(value.id)
        return self._logical(value, where)

    def _logical(self, value: Value, where: Layout) -> Value:
        """The tensor that lies in buffer `value` as `where` says."""
        if where.contiguous:
            return value
        if where.order is None:
            return self.op("as_strided", value, shape=where.shape, strides=where.strides, offset=(0,))
        kept = sorted(where.order)
        places = [where.order.index(i) for i in kept]
        if places != list(range(len(places))):
            value = self.op("permute", value, dims=tuple(places))
        if not where.broadcast:
            return value
        unit = tuple(1 if i in where.broadcast else n for i, n in enumerate(where.shape))
        return self.op("expand", self.op("reshape", value, shape=unit), shape=where.shape)

    def _literal(self, node: fx.Node) -> Value | None:
        if node.op != "get_attr":
            return None
        tensor = operator.attrgetter(str(node.target))(node.graph.owning_module)
        if not isinstance(tensor, torch.Tensor) or tensor.numel() * tensor.element_size() > _LITERAL_BYTES:
            return None
        type = values.tensor_type(tensor)
        with compat.real_tensors():
            raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        data = base64.b64encode(raw).decode("ascii")
        return self.op("constant", dtype=type.dtype, shape=type.shape, data=data)

    def _flat(self, node: Any, value: Value) -> Value:
        """The storage of a dense tensor as a flat value, for as_strided."""
        where = values.layout(node.meta["val"])
        if not where.dense or node.meta["val"].storage_offset() != 0:
            raise Unsupported("as_strided of a tensor with gaps")
        if is_of_unsure_strides(node):
            raise Unsupported("as_strided of a tensor whose strides only eager knows")
        return value if where.contiguous else self.op("permute", value, dims=where.order)

    # -- results ----------------------------------------------------------------------------------------------
    def _check(self, result: Any, expected: Any) -> None:
        """Compare a converter's results with eager's types: a difference must not reach the user."""
        if isinstance(expected, TensorType):
            self._check_one(result, expected)
            return
        if not isinstance(result, (list, tuple)) or len(result) != len(expected):
            raise Unsupported(f"the converter gives {result}, eager {len(expected)} results")
        for r, e in zip(result, expected):
            if r is not None and e is not None:
                self._check_one(r, e)

    def _check_one(self, value: Any, expected: TensorType) -> None:
        if not isinstance(value, Value):
            raise Unsupported(f"the converter gives a {type(value).__name__}, eager a tensor")
        if self.type(value) != expected:
            raise Unsupported(f"the converter gives {self.type(value)}, eager {expected}")

    def buffer(self, node: fx.Node) -> tuple[Value, OutputSpec]:
        """The value of `node` as a buffer of its own in eager's layout, and what torch needs to allocate it."""
        fake = node.meta["val"]
        where = self.layout(fake)
        if not where.dense:
            if not self.close_gaps:
                raise NotOurs("a result with gaps between its elements")
            where = contiguous(where.shape)
        self._note(*fake.shape, *fake.stride())
        value = self.value(node)
        if not where.contiguous:
            value = self.op("permute", value, dims=where.order)
        return self.own(value), OutputSpec(node, fake.dtype, where.shape, where.strides)

    def layout(self, fake: torch.Tensor) -> Layout:
        """Where the elements of an input or output of the record lie."""
        return values.layout(fake) if self.strided else contiguous(values.tensor_type(fake).shape)

    def own(self, value: Value) -> Value:
        """`value` in a buffer that is no input, literal, other output, or view of one."""
        made_by = self._producer.get(value.id)
        shared = made_by is None or made_by in ("constant", "weight") or registry(made_by).category == "view"
        taken = any(o.value == value.id for o in self.graph.outputs)
        return self.op("materialize", value) if shared or taken else value

    def finish(self, names: Naming) -> tuple[list[str], list[str]]:
        """Declare the symbols as s0, s1 ... (or as `names` has them), so that equal graphs are equal records.

        A symbol that is a size of an input is read there; any other becomes an int input. Returns torch's names of
        the latter, in the order of those inputs, and of all symbols in order.
        """
        used = {name for t in self.graph.types for d in t.shape for name in dims.symbols(d)} | set(self._symbols)
        passed: list[str] = []
        renamed: dict[str, Dim] = {}
        for name in sorted(used, key=_symbol_key):
            if name not in self._symbols:
                raise NotOurs(f"size symbol {name} has no source")
            low, high = names.ranges.get(name) or compat.symbol_range(self._symbols[name], name)
            low = max(low, 1) if dims.symbol(name) in self._some else low
            chosen = names.symbols.get(name, f"s{len(renamed)}")
            input, dim = self._source(name)
            if input < 0:
                input = len(self.graph.inputs)
                self.graph.add_input(chosen, TensorType("i64", ()), "scalar")
                passed.append(name)
            renamed[name] = dims.symbol(chosen)
            self.graph.symbols.append(Symbol(chosen, low, high, 1, input, dim))
        _rename(self.graph, renamed)
        return passed, list(renamed)

    def _source(self, name: str) -> tuple[int, int]:
        wanted = dims.symbol(name)
        for number, declared in enumerate(self.graph.inputs):
            if declared.kind == "weight" or declared.value in self._buffers:
                continue
            for dim, size in enumerate(self.graph.types[declared.value].shape):
                if size == wanted:
                    return number, dim
        return -1, -1


def _items_used(node: fx.Node) -> list[int]:
    """The numbers of the results of `node` that other nodes take."""
    return [u.args[1] for u in node.users if u.target is operator.getitem]  # type: ignore[misc]


def _rename(graph: Graph, names: Mapping[str, Dim]) -> None:
    """Replace symbols in every type and attribute."""

    def renamed(value: Any) -> Any:
        if isinstance(value, Expr):
            return dims.substitute(value, names)
        return tuple(map(renamed, value)) if isinstance(value, tuple) else value

    if names:
        graph.types = [TensorType(t.dtype, renamed(t.shape)) for t in graph.types]
        graph.nodes = [replace(n, attributes={k: renamed(v) for k, v in n.attributes.items()}) for n in graph.nodes]


def _symbol_key(name: str) -> tuple[str, int]:
    return name[0], int(name[1:]) if name[1:].isdigit() else 0


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
