"""A linalg-level kernel read for emission: shapes of its tensors, its size arithmetic, its generics unpacked once.

Everything that the emitters ask about an op is read through the MLIR bindings once and kept as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from .kernel_functions import strings

DYNAMIC = -(2**63)

# arithmetic on index values that has a meaning as a size expression
INDEX_ARITH: dict[str, Callable[[Dim, Dim], Dim]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.floordivsi": dims.floordiv,
    "arith.divui": dims.floordiv,
    "arith.remui": dims.mod,
    "arith.minsi": dims.dim_min,
    "arith.maxsi": dims.dim_max,
}
SIZE_ARITH = INDEX_ARITH | {"arith.divsi": dims.floordiv, "arith.remsi": dims.mod}  # sizes are not negative


@dataclass
class BodyOp:
    """One op of a generic's body."""

    op: ir.Operation
    name: str
    operands: list[ir.Value]
    results: list[ir.Value]


@dataclass
class Generic:
    """A linalg.generic (or fill-like op) unpacked: `maps[i](loops)` is operand `i`'s index."""

    op: ir.Operation
    inputs: list[ir.Value]
    outs: list[ir.Value]
    maps: list[tuple[Any, ...]]  # per operand, per dimension: an affine expression tree
    extents: tuple[Dim, ...]
    reduced: tuple[bool, ...]
    arguments: list[ir.Value]
    body: list[BodyOp]
    used: list[bool]  # per block argument

    @property
    def is_reduction(self) -> bool:
        return any(self.reduced)

    @property
    def parallel(self) -> list[int]:
        return [i for i, r in enumerate(self.reduced) if not r]

    @property
    def reductions(self) -> list[int]:
        return [i for i, r in enumerate(self.reduced) if r]

    def loops_of(self, index: Sequence[Dim]) -> list[Dim]:
        """The parallel loop positions for an index of the results; reduced ones are left 0."""
        loops: list[Dim] = [0] * len(self.extents)
        for expression, i in zip(self.maps[len(self.inputs)], index):
            if expression[0] == "d":
                loops[expression[1]] = i
        return loops


class TensorGraph:
    """Shapes, sizes and generics of kernel function `op`, with the symbols in `sizes` replaced by what is known of them."""

    def __init__(self, op: ir.Operation, sizes: Mapping[str, Dim] = {}):
        self.op = op
        self.block = op.regions[0].blocks[0]
        self.symbols = strings(op.attributes["lamina.symbols"])
        arguments = list(self.block.arguments)
        count = len(arguments) - len(self.symbols)
        self.inputs = arguments[:count]
        self._dims: dict[ir.Value, Dim | None] = {
            a: sizes.get(s, dims.symbol(s)) for a, s in zip(arguments[count:], self.symbols)
        }
        declared = [[dims.parse(d) for d in strings(x)] for x in ir.ArrayAttr(op.attributes["lamina.arg_dims"])]
        self._shapes: dict[ir.Value, tuple[Dim, ...]] = {
            a: tuple(dims.substitute(d, sizes) for d in shape) for a, shape in zip(self.inputs, declared)
        }
        self._generics: dict[ir.Value, Generic] = {}
        self._owners: dict[ir.Value, ir.Operation | None] = {}
        self.results: list[ir.Value] = list(self.block.operations[len(self.block.operations) - 1].operands)

    def owner(self, value: ir.Value) -> ir.Operation | None:
        """The op that makes `value`; None for a block argument."""
        if value not in self._owners:
            owner = value.owner
            self._owners[value] = None if isinstance(owner, ir.Block) else owner.operation
        return self._owners[value]

    # -- sizes -------------------------------------------------------------------------------------------------
    def dim(self, value: ir.Value) -> Dim | None:
        """The size expression of a function-level index value, or None if it is not one."""
        if value in self._dims:
            return self._dims[value]
        self._dims[value] = None
        op = self.owner(value)
        result: Dim | None = None
        if op is not None:
            if op.name == "arith.constant":
                attribute = op.attributes["value"]
                result = ir.IntegerAttr(attribute).value if isinstance(value.type, ir.IndexType) else None
            elif op.name == "tensor.dim":
                axis = self.dim(op.operands[1])
                result = self.shape(op.operands[0])[axis] if isinstance(axis, int) else None
            elif op.name in SIZE_ARITH:
                result = self._arith(op)
        self._dims[value] = result
        return result

    def _arith(self, op: ir.Operation) -> Dim | None:
        if not isinstance(op.results[0].type, ir.IndexType):
            return None
        a, b = (self.dim(x) for x in op.operands)
        if a is None or b is None:
            return None
        return SIZE_ARITH[op.name](a, b)

    def sizes(self, static: Sequence[int], dynamic: Sequence[ir.Value]) -> list[Dim]:
        """Mixed static and dynamic sizes (MLIR's `?` is a huge negative number)."""
        values = iter(dynamic)
        return [self._need(next(values)) if s == DYNAMIC else s for s in static]

    def _need(self, value: ir.Value) -> Dim:
        found = self.dim(value)
        if found is None:
            raise ValueError(
                f"a size of kernel {self.op.attributes['sym_name']} is not an expression over its symbols: {value}"
            )
        return found

    def shape(self, value: ir.Value) -> tuple[Dim, ...]:
        """The sizes of a tensor value."""
        found = self._shapes.get(value)
        if found is None:
            found = self._shapes[value] = self._infer(value)
        return found

    def declare(self, value: ir.Value, shape: Sequence[Dim]) -> None:
        """State the sizes of a value whose op does not say them: the root of a kernel that is emitted directly."""
        self._shapes[value] = tuple(shape)

    def _infer(self, value: ir.Value) -> tuple[Dim, ...]:
        tensor = ir.RankedTensorType(value.type)
        if tensor.has_static_shape:
            return tuple(tensor.shape)
        op = self.owner(value)
        assert op is not None, "arguments have declared sizes"
        match op.name:
            case "tensor.empty":
                return tuple(self.sizes(tensor.shape, op.operands))
            case "linalg.fill":
                return self.shape(op.operands[1])
            case "linalg.generic":
                return self.shape(self.generic(value).outs[result_number(value)])
            case "tensor.insert_slice":
                return self.shape(op.operands[1])
            case "tensor.extract_slice":
                sizes = slice_operands(self, op, 1)[1]
                dropped = dropped_dims(sizes, tensor)
                return tuple(s for i, s in enumerate(sizes) if i not in dropped)
            case "tensor.expand_shape":
                static = list(ir.DenseI64ArrayAttr(op.attributes["static_output_shape"]))
                return tuple(self.sizes(static, list(op.operands)[1:]))
            case "tensor.collapse_shape":
                source = self.shape(op.operands[0])
                return tuple(dims.product(source[i] for i in g) for g in reassociation(op))
            case "tensor.cast" | "tensor.splat":
                return (
                    self.shape(op.operands[0])
                    if op.name == "tensor.cast"
                    else tuple(self.sizes(tensor.shape, list(op.operands)[1:]))
                )
        raise NotImplementedError(f"the loop emitter does not know the sizes of '{op.name}'")

    # -- generics ----------------------------------------------------------------------------------------------
    def generic(self, value: ir.Value) -> Generic:
        """The linalg.generic that makes `value`, unpacked."""
        op = self.owner(value)
        assert op is not None
        key = op.results[0]
        if key not in self._generics:
            self._generics[key] = self._unpack(op)
        return self._generics[key]

    def _unpack(self, op: ir.Operation) -> Generic:
        operands = list(op.operands)
        count = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))[0]
        trees = [tuple(_tree(e) for e in a.value.results) for a in ir.ArrayAttr(op.attributes["indexing_maps"])]
        reduced = tuple("reduction" in str(a) for a in ir.ArrayAttr(op.attributes["iterator_types"]))
        extents: list[Dim | None] = [None] * len(reduced)
        for value, tree in zip(reversed(operands), reversed(trees)):
            for size, expression in zip(self.shape(value), tree):
                if expression[0] == "d" and extents[expression[1]] is None:
                    extents[expression[1]] = size
        block = op.regions[0].blocks[0]
        body = [
            BodyOp(o.operation, o.operation.name, list(o.operation.operands), list(o.operation.results))
            for o in block.operations
        ]
        arguments = list(block.arguments)
        named = {x for o in body for x in o.operands}
        known = tuple(e for e in extents if e is not None)
        if len(known) < len(extents):
            raise NotImplementedError("a linalg.generic with a loop that no operand's map names alone")
        used = [a in named for a in arguments]
        return Generic(op, operands[:count], operands[count:], trees, known, reduced, arguments, body, used)


def _tree(e: ir.AffineExpr) -> tuple:
    """An affine expression as nested tuples: `("d", 0)`, `("c", 4)`, `("+", a, b)` ..."""
    if isinstance(e, ir.AffineDimExpr):
        return ("d", e.position)
    if isinstance(e, ir.AffineConstantExpr):
        return ("c", e.value)
    for cls, name in (
        (ir.AffineAddExpr, "+"),
        (ir.AffineMulExpr, "*"),
        (ir.AffineFloorDivExpr, "//"),
        (ir.AffineModExpr, "%"),
    ):
        if isinstance(e, cls):
            return (name, _tree(e.lhs), _tree(e.rhs))
    raise NotImplementedError(f"affine expression {e} in an indexing map")


def apply_tree(tree: tuple, loops: Sequence[Dim]) -> Dim:
    """The value of an affine expression tree at `loops`."""
    match tree:
        case ("d", i):
            return loops[i]
        case ("c", c):
            return c
        case ("+", a, b):
            return apply_tree(a, loops) + apply_tree(b, loops)
        case ("*", a, b):
            return apply_tree(a, loops) * apply_tree(b, loops)
        case ("//", a, b):
            return dims.floordiv(apply_tree(a, loops), apply_tree(b, loops))
        case ("%", a, b):
            return dims.mod(apply_tree(a, loops), apply_tree(b, loops))
    raise AssertionError(tree)


def result_number(value: ir.Value) -> int:
    """Which result of its op `value` is."""
    return ir.OpResult(value).result_number


def reassociation(op: ir.Operation) -> list[list[int]]:
    """The dimension groups of an expand_shape or collapse_shape."""
    return [[ir.IntegerAttr(i).value for i in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])]


def slice_operands(graph: TensorGraph, op: ir.Operation, sources: int) -> tuple[list[Dim], list[Dim], list[Dim]]:
    """Offsets, sizes and strides of an extract_slice (1 source) or insert_slice (2)."""
    segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    operands = list(op.operands)[sources:]
    parts = []
    for name, count in zip(("static_offsets", "static_sizes", "static_strides"), segments[sources:]):
        static = list(ir.DenseI64ArrayAttr(op.attributes[name]))
        parts.append(graph.sizes(static, operands[:count]))
        operands = operands[count:]
    return parts[0], parts[1], parts[2]


def dropped_dims(sizes: Sequence[Dim], small: ir.RankedTensorType) -> set[int]:
    """The unit dimensions that a rank-reducing slice drops: MLIR's rule, matched from the back."""
    extra = len(sizes) - small.rank
    dropped: set[int] = set()
    at = small.rank - 1
    for i in reversed(range(len(sizes))):
        static = sizes[i] if isinstance(sizes[i], int) else DYNAMIC
        if at >= 0 and (small.shape[at] == static or (static != 1 and small.shape[at] == DYNAMIC)):
            at -= 1
        elif extra > len(dropped):
            dropped.add(i)
    return dropped
