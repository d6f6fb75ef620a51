"""`Context`: the record that is being built, and what a converter works with.

One rule per ATen op: `aten.registry.converters()["aten.add.Tensor"](context, *args, **kwargs)`. Arguments are
`Value`s for tensors, `dims.Expr` or int for sizes, Python scalars, names for dtypes, None for devices and layouts.
"""

from __future__ import annotations

import base64
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ..dialects import dims
from ..dialects.dims import Dim, Expr
from ..dialects.op import registry
from ..dialects.record import Graph, Location, TensorType
from . import compat, sizes, values
from .aten.float8 import check_float8
from .aten.registry import Unsupported, Value, converters
from .declare_symbols import declare_symbols
from .hazards import OF_MEMORY, is_of_unsure_strides, makes_something_of_nothing, strides_matter
from .layout import Layout, contiguous
from .part import Naming, OutputSpec
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
        self._on_host: set[int] = set()  # values that are constants on the CPU
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

    @property
    def on_gpu(self) -> bool:
        """True if the node being converted runs on a GPU, where eager rounds some sums of products elsewhere."""
        made: Any = self.node.meta.get("val") if self.node is not None else None
        tensors = made if isinstance(made, (list, tuple)) else [made]
        return any(isinstance(t, torch.Tensor) and t.is_cuda for t in tensors)

    def is_on_host(self, value: Value) -> bool:
        """True for a constant on the CPU, which a graph on a GPU may read if it has no dims."""
        return value.id in self._on_host

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
        if node.target in OF_MEMORY:
            args[0] = self._in_memory(node.args[0], args[0])
        result = rule(self, *args, **kwargs)
        if node.target is torch.ops.aten.as_strided_scatter.default:
            result = self._logical(result, values.layout(node.meta["val"]))
        self._check(result, self.out_type)
        if isinstance(result, (list, tuple)) and any(result[i] is None for i in _items_used(node)):
            raise Unsupported("a result that the converter leaves out is used")
        self._env[node] = result

    def value(self, node: fx.Node) -> Value:
        """The value of a tensor node, which becomes an input of the record if no converted node made it."""
        if node not in self._env:
            self._env[node] = self._literal(node) or self._input(node)
            if node.op == "get_attr" and not node.meta["val"].is_cuda:
                self._on_host.add(self._env[node].id)
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
            raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        data = base64.b64encode(raw).decode("ascii")
        return self.op("constant", dtype=type.dtype, shape=type.shape, data=data)

    def _in_memory(self, node: Any, value: Value) -> Value:
        """A dense tensor with its dims as they are in memory, for as_strided."""
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
        """Declare the record's symbols (`declare_symbols`), of which those that stand in types and arguments are known."""
        return declare_symbols(self.graph, self._symbols, names, self._some, self._buffers)


def _items_used(node: fx.Node) -> list[int]:
    """The numbers of the results of `node` that other nodes take."""
    return [u.args[1] for u in node.users if u.target is operator.getitem]  # type: ignore[misc]
