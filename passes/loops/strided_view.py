"""Read a chain of views at the `linalg` level as base, offset and strides, so that emitters address the base directly.

    %s = tensor.extract_slice %x[0, 4] [8, 16] [1, 1]      offset 4, strides (32, 1) of x: tensor<8x32xf32>
    %t = linalg.generic {maps = (d0, d1) -> (d1, d0), (d0, d1)} ins(%s) { yield %in }      offset 4, strides (1, 32)

`strided_view(value, shapes)` gives the `View`, or None where the value is computed or the view has no strides (a
reshape that merges dimensions which do not lie side by side).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.strides import row_major
from .strided_read import strided_read
from .tensor_graph import SIZE_ARITH

_ARITH = SIZE_ARITH | {"arith.ceildivsi": dims.ceildiv, "arith.ceildivui": dims.ceildiv}


@dataclass(frozen=True)
class View:
    """Element `i` of the view is element `offset + sum(i[d] * strides[d])` of the flat buffer of argument `base`."""

    base: ir.Value
    offset: Dim
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]

    def at(self, index: Sequence[Dim]) -> Dim:
        """The flat offset of an element."""
        return self.offset + sum((i * s for i, s in zip(index, self.strides)), 0)


class Shapes:
    """The sizes of a kernel's arguments and the names of its symbols, from the function's attributes.

    `symbols` maps index arguments to names; `arguments` maps tensor arguments to shapes.
    """

    def __init__(self, arguments: Mapping[ir.Value, tuple[Dim, ...]], symbols: Mapping[ir.Value, str]):
        self.arguments = dict(arguments)
        self.symbols = dict(symbols)

    def dim(self, value: ir.Value) -> Dim | None:
        """The size expression that an index value computes, or None."""
        if value in self.symbols:
            return dims.symbol(self.symbols[value])
        op = _producer(value)
        if op is None:
            return None
        if op.name == "arith.constant":
            return ir.IntegerAttr(op.attributes["value"]).value
        if op.name == "tensor.dim":
            view = strided_view(op.operands[0], self)
            axis = self.dim(op.operands[1])
            return view.shape[axis] if view is not None and isinstance(axis, int) else None
        if op.name not in _ARITH:
            return None
        a, b = (self.dim(x) for x in op.operands)
        return None if a is None or b is None else _ARITH[op.name](a, b)

    def of(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """The sizes of a tensor value: of a view, of a static type, or of what a computed value was written to."""
        view = strided_view(value, self)
        if view is not None:
            return view.shape
        kind = ir.RankedTensorType(value.type)
        if kind.has_static_shape:
            return tuple(kind.shape)
        op = _producer(value)
        if op is not None and op.name in ("tensor.collapse_shape", "tensor.expand_shape", "tensor.extract_slice"):
            return self._of_view(op)
        if op is None or op.name not in ("linalg.generic", "linalg.fill", "tensor.empty"):
            return None
        if op.name != "tensor.empty":
            results = list(op.results)
            return self.of(op.operands[len(op.operands) - len(results) + results.index(value)])
        sizes = iter(op.operands)
        dynamic = ir.ShapedType.get_dynamic_size()
        shape = [self.dim(next(sizes)) if n == dynamic else n for n in kind.shape]
        return None if None in shape else tuple(shape)  # type: ignore[return-value, arg-type]

    def _of_view(self, op: ir.Operation) -> tuple[Dim, ...] | None:
        """The sizes of a view of something computed."""
        if op.name == "tensor.extract_slice":
            part = read_slice(op, self)
            return None if part is None else tuple(part.sizes[d] for d in part.kept)
        if op.name == "tensor.expand_shape":
            return expanded_shape(op, self)
        wide = self.of(op.operands[0])
        return None if wide is None else tuple(dims.product(wide[d] for d in group) for group in reassociation(op))


def strided_view(value: ir.Value, shapes: Shapes) -> View | None:
    """The view of an argument that `value` is, or None."""
    if value in shapes.arguments:
        shape = shapes.arguments[value]
        return View(value, 0, shape, row_major(shape))
    op = _producer(value)
    if op is None or op.name not in _VIEWS:
        return None
    return _VIEWS[op.name](op, shapes)


def widened_view(value: ir.Value, shapes: Shapes) -> View | None:
    """`strided_view`, also of a cast to a wider type, which changes no value: the base then has the narrow type."""
    op = _producer(value)
    if op is not None and op.name == "linalg.generic" and len(op.operands) == 2:
        first, *rest = op.regions[0].blocks[0].operations
        exact = first.operation.name in ("arith.extf", "arith.extsi", "arith.extui")
        if exact and len(rest) == 1 and list(rest[0].operands) == list(first.results):
            return _reindexed(op, shapes)
    return strided_view(value, shapes)


def merge(shape: Sequence[Dim], strides: Sequence[Dim]) -> tuple[Dim, Dim] | None:
    """Size and stride of the one dimension that walks `shape` in row-major order, or None if there is none."""
    kept = [(n, s) for n, s in zip(shape, strides) if n != 1]
    for (_, outer), (size, inner) in zip(kept, kept[1:]):
        if outer != size * inner:
            return None
    return dims.product(shape), kept[-1][1] if kept else 0


def _producer(value: ir.Value) -> ir.Operation | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation if hasattr(owner, "operation") else owner


@dataclass(frozen=True)
class Slice:
    """What a `tensor.extract_slice` takes of each dimension, and which dimensions its result keeps."""

    offsets: list[Dim]
    sizes: list[Dim]
    steps: list[Dim]
    kept: list[int]


def read_slice(op: ir.Operation, shapes: Shapes) -> Slice | None:
    """The slice, or None where a number in it is not known."""
    counts = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    dynamic = list(op.operands)[1:]
    lists: list[list[Dim]] = []
    for position, name in enumerate(("static_offsets", "static_sizes", "static_strides"), 1):
        given, dynamic = dynamic[: counts[position]], dynamic[counts[position] :]
        resolved = _mixed(ir.DenseI64ArrayAttr(op.attributes[name]), given, shapes)
        if resolved is None:
            return None
        lists.append(resolved)
    offsets, sizes, steps = lists
    dropped = _dropped(sizes, ir.RankedTensorType(op.results[0].type).shape)
    if dropped is None:
        return None
    return Slice(offsets, sizes, steps, [d for d in range(len(sizes)) if d not in dropped])


def _extract_slice(op: ir.Operation, shapes: Shapes) -> View | None:
    source = strided_view(op.operands[0], shapes)
    part = None if source is None else read_slice(op, shapes)
    if source is None or part is None:
        return None
    strides = [s * step for s, step in zip(source.strides, part.steps)]
    shape = tuple(part.sizes[d] for d in part.kept)
    return View(source.base, source.at(part.offsets), shape, tuple(strides[d] for d in part.kept))


def _dropped(sizes: Sequence[Dim], result: Sequence[int]) -> set[int] | None:
    """Which unit dimensions of a slice its rank-reduced result lacks."""
    dropped: set[int] = set()
    position = 0
    for d, size in enumerate(sizes):
        dynamic = position < len(result) and result[position] == ir.ShapedType.get_dynamic_size()
        if position < len(result) and (result[position] == size or (dynamic and not isinstance(size, int))):
            position += 1
        elif size == 1:
            dropped.add(d)
        else:
            return None
    return dropped if position == len(result) else None


def _mixed(static: Sequence[int], dynamic: Sequence[ir.Value], shapes: Shapes) -> list[Dim] | None:
    rest = iter(dynamic)
    mixed = [shapes.dim(next(rest)) if s == ir.ShapedType.get_dynamic_size() else int(s) for s in static]
    return None if any(m is None for m in mixed) else mixed  # type: ignore[return-value]


def reassociation(op: ir.Operation) -> list[list[int]]:
    """The groups of dimensions of a `tensor.collapse_shape` or `tensor.expand_shape`."""
    return [[ir.IntegerAttr(i).value for i in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])]


def _collapse_shape(op: ir.Operation, shapes: Shapes) -> View | None:
    source = strided_view(op.operands[0], shapes)
    if source is None:
        return None
    merged = []
    for group in reassociation(op):
        one = merge([source.shape[d] for d in group], [source.strides[d] for d in group])
        if one is None:
            return None
        merged.append(one)
    return View(source.base, source.offset, tuple(n for n, _ in merged), tuple(s for _, s in merged))


def expanded_shape(op: ir.Operation, shapes: Shapes) -> tuple[Dim, ...] | None:
    """The sizes of the result of a `tensor.expand_shape`."""
    shape = _mixed(ir.DenseI64ArrayAttr(op.attributes["static_output_shape"]), list(op.operands)[1:], shapes)
    return None if shape is None else tuple(shape)


def _expand_shape(op: ir.Operation, shapes: Shapes) -> View | None:
    source = strided_view(op.operands[0], shapes)
    if source is None:
        return None
    shape = expanded_shape(op, shapes)
    if shape is None:
        return None
    strides: list[Dim] = [0] * len(shape)
    for stride, group in zip(source.strides, reassociation(op)):
        for d in reversed(group):
            strides[d] = stride
            stride = stride * shape[d]
    return View(source.base, source.offset, shape, tuple(strides))


def _generic(op: ir.Operation, shapes: Shapes) -> View | None:
    """A `linalg.generic` that only yields its one input, a permutation or a broadcast; or that reads at strides."""
    if len(op.operands) == 1:
        return _as_strided(op, shapes)
    body = op.regions[0].blocks[0]
    last = list(body.operations)[-1]
    if len(op.operands) != 2 or len(list(body.operations)) != 1 or last.operands[0] != body.arguments[0]:
        return None
    return _reindexed(op, shapes)


def _as_strided(op: ir.Operation, shapes: Shapes) -> View | None:
    """A `linalg.generic` without inputs that yields elements of a flat tensor at strides."""
    shape = _result_shape(op, shapes)
    read = strided_read(op, len(shape), shapes.dim)
    source = None if read is None else strided_view(read.source, shapes)
    if read is None or source is None or None in shape:
        return None
    (step,) = source.strides
    strides = tuple(s * step for s in read.strides)
    return View(source.base, source.offset + read.offset * step, tuple(shape), strides)  # type: ignore[arg-type]


def _reindexed(op: ir.Operation, shapes: Shapes) -> View | None:
    """The view that a `linalg.generic` of one input takes of it, whatever it does to the elements."""
    source = strided_view(op.operands[0], shapes)
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
    if source is None or maps[1] != ir.AffineMap.get_identity(maps[1].n_dims):
        return None
    shape = _result_shape(op, shapes)
    strides: list[Dim] = [0] * maps[0].n_dims
    for axis, expression in enumerate(maps[0].results):
        if isinstance(expression, ir.AffineDimExpr):
            position = ir.AffineDimExpr(expression).position
            strides[position] = strides[position] + source.strides[axis]
            if shape[position] is None:
                shape[position] = source.shape[axis]
        elif not (isinstance(expression, ir.AffineConstantExpr) and ir.AffineConstantExpr(expression).value == 0):
            return None
    if any(n is None for n in shape):
        return None
    return View(source.base, source.offset, tuple(shape), tuple(strides))  # type: ignore[arg-type]


def _result_shape(op: ir.Operation, shapes: Shapes) -> list[Dim | None]:
    """Sizes of the destination: static ones, and those that `tensor.empty` was made with."""
    dynamic = ir.ShapedType.get_dynamic_size()
    shape: list[Dim | None] = [None if n == dynamic else n for n in ir.RankedTensorType(op.results[0].type).shape]
    empty = _producer(op.operands[len(op.operands) - 1])
    if empty is not None and empty.name == "tensor.empty":
        sizes = iter(empty.operands)
        shape = [shapes.dim(next(sizes)) if n is None else n for n in shape]
    return shape


def _cast(op: ir.Operation, shapes: Shapes) -> View | None:
    return strided_view(op.operands[0], shapes)


_VIEWS = {
    "tensor.extract_slice": _extract_slice,
    "tensor.collapse_shape": _collapse_shape,
    "tensor.expand_shape": _expand_shape,
    "tensor.cast": _cast,
    "linalg.generic": _generic,
}
