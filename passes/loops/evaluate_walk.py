"""Walk a kernel's tensors backwards: "the value of tensor `v` at this index", through views and generic bodies.

`Walk.at(value, index)` follows the producers of one element and turns views into index algebra (`Ranges`). What to do
at the leaves and at each scalar op is left to hooks: `Evaluator` emits code, `Accesses` only notes the addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from .index_algebra import Ranges
from .tensor_graph import (
    INDEX_ARITH,
    BodyOp,
    Generic,
    TensorGraph,
    apply_tree,
    dropped_dims,
    reassociation,
    result_number,
    slice_operands,
)

Index = tuple[Dim, ...]
Known = Callable[[Index], Any]  # the value at an index, or None if this provider has not got it


class Walk:
    """The backward walk over `graph`; `known` maps tensor values to providers that are asked first."""

    def __init__(self, graph: TensorGraph, ranges: Ranges):
        self.graph = graph
        self.ranges = ranges
        self.known: dict[ir.Value, Known] = {}

    # -- hooks ---------------------------------------------------------------------------------------------------
    def remember(self, key: Any, index: Index, make: Callable[[], Any]) -> Any:
        """The result of `make()`, computed once per key and index."""
        raise NotImplementedError

    def load(self, argument: ir.Value, offset: Dim) -> Any:
        """Element `offset` of a kernel argument's flat buffer."""
        raise NotImplementedError

    def scalar(self, value: ir.Value) -> Any:
        """A scalar defined outside the bodies: a constant or arithmetic on sizes."""
        raise NotImplementedError

    def literal(self, value: ir.Value, index: Index) -> Any:
        """An element of a dense constant."""
        raise NotImplementedError

    def empty(self, type: ir.Type) -> Any:
        """Any value of `type`."""
        raise NotImplementedError

    def apply(self, op: BodyOp, operands: list[Any]) -> list[Any]:
        """The results of a scalar op."""
        raise NotImplementedError

    def index_value(self, expression: Dim) -> Any:
        """An index expression as a value."""
        raise NotImplementedError

    def index_symbol(self, value: Any) -> Dim:
        """A run-time index as an expression: a new symbol."""
        raise NotImplementedError

    def check(self, ok: Any, message: str) -> None:
        """A run-time check."""
        raise NotImplementedError

    def choose(
        self, conditions: list[Dim], yes: Callable[[], Any], no: Callable[[], Any], value: ir.Value, at: Index
    ) -> Any:
        """`yes()` where every condition is at least 0, else `no()`: the element of `value` at `at`."""
        raise NotImplementedError

    def reduce(self, generic: Generic, index: Index) -> list[Any]:
        """All results of a reduction at one index of its results, by its own loops."""
        raise NotImplementedError

    # -- the walk ------------------------------------------------------------------------------------------------
    def at(self, value: ir.Value, index: Sequence[Dim]) -> Any:
        """The element of tensor `value` at `index`."""
        at = tuple(self.ranges.simplify(i) for i in index)
        known = self.known.get(value)
        if known is not None:
            found = known(at)
            if found is not None:
                return found
        op = self.graph.owner(value)
        if op is None:
            return self.load(value, self.ranges.linearize(at, self.graph.shape(value)))
        name = op.name
        if name == "linalg.generic":
            generic = self.graph.generic(value)
            results = self.remember(generic.arguments[-1], at, lambda: self._generic(generic, at))
            return results[result_number(value)]
        return getattr(self, "_" + name.replace(".", "_"), self._unknown)(op, value, at)

    def _unknown(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        raise NotImplementedError(f"the loop emitter cannot evaluate '{op.name}'")

    def _linalg_fill(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        return self.scalar(op.operands[0])

    def _tensor_empty(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        return self.empty(ir.RankedTensorType(value.type).element_type)

    def _tensor_splat(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        return self.scalar(op.operands[0])

    def _tensor_from_elements(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        if len(op.operands) != 1:
            return self._unknown(op, value, at)
        return self.scalar(op.operands[0])

    def _tensor_cast(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        return self.at(op.operands[0], at)

    def _arith_constant(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        return self.literal(value, at)

    def _tensor_extract_slice(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        offsets, sizes, strides = slice_operands(self.graph, op, 1)
        inner = iter(at)
        dropped = dropped_dims(sizes, ir.RankedTensorType(value.type))
        return self.at(
            op.operands[0],
            [o if i in dropped else o + next(inner) * s for i, (o, s) in enumerate(zip(offsets, strides))],
        )

    def _tensor_expand_shape(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        shape = self.graph.shape(value)
        groups = reassociation(op)
        source = [self.ranges.linearize([at[i] for i in g], [shape[i] for i in g]) for g in groups]
        return self.at(op.operands[0], source)

    def _tensor_collapse_shape(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        shape = self.graph.shape(op.operands[0])
        groups = reassociation(op)
        if not groups:
            return self.at(op.operands[0], [0] * len(shape))
        source: list[Dim] = []
        for i, g in zip(at, groups):
            source += self.ranges.delinearize(i, [shape[d] for d in g])
        return self.at(op.operands[0], source)

    def _tensor_insert_slice(self, op: ir.Operation, value: ir.Value, at: Index) -> Any:
        source, target = list(op.operands)[:2]
        open_, inner = self.inserted(op, at)
        if not open_:
            return self.at(source, inner)
        if any(self.ranges.nonnegative(-1 - c) for c in open_):
            return self.at(target, at)
        return self.choose(open_, lambda: self.at(source, inner), lambda: self.at(target, at), value, at)

    def inserted(self, op: ir.Operation, at: Index) -> tuple[list[Dim], list[Dim]]:
        """What is to be at least 0 (of that which is not known to be) for `at` to lie in an inserted slice; where in it."""
        offsets, sizes, strides = slice_operands(self.graph, op, 2)
        dropped = dropped_dims(sizes, ir.RankedTensorType(op.operands[0].type))
        conditions: list[Dim] = []
        inner: list[Dim] = []
        for d, (i, o, n, s) in enumerate(zip(at, offsets, sizes, strides)):
            local = self.ranges.simplify(i - o)
            if s != 1:
                local = self.ranges.floordiv(local, s)
                conditions.append(o + local * s - i)  # 0 where the step is hit, else negative
            conditions += [i - o, n - 1 - local]
            if d not in dropped:
                inner.append(local)
        return [c for c in map(self.ranges.simplify, conditions) if not self.ranges.nonnegative(c)], inner

    # -- bodies ----------------------------------------------------------------------------------------------------
    def _generic(self, g: Generic, at: Index) -> list[Any]:
        if g.is_reduction:
            return self.reduce(g, at)
        return self.body(g, g.loops_of(at), None)

    def body(self, g: Generic, loops: Sequence[Dim], accumulators: Sequence[Any] | None) -> list[Any]:
        """What the body of `g` yields at loop position `loops`; `accumulators` stand for the outs' elements."""
        return self.body_values(g, loops, accumulators, g.body[-1].operands)

    def body_values(
        self, g: Generic, loops: Sequence[Dim], accumulators: Sequence[Any] | None, wanted: Sequence[ir.Value]
    ) -> list[Any]:
        """Some values of the body of `g` at loop position `loops`."""
        env: dict[ir.Value, Any] = {}
        count = len(g.inputs)
        for i, argument in enumerate(g.arguments):
            if not g.used[i]:
                continue
            if i >= count and accumulators is not None:
                env[argument] = accumulators[i - count]
                continue
            operand = (g.inputs + g.outs)[i]
            if isinstance(operand.type, ir.RankedTensorType):
                env[argument] = self.at(operand, [apply_tree(t, loops) for t in g.maps[i]])
            else:
                env[argument] = self.scalar(operand)
        for op in g.body:
            if op.name == "linalg.yield":
                return [self._operand(env, x) for x in wanted]
            self._body_op(op, env, loops)
        raise AssertionError("a body without linalg.yield")

    def _body_op(self, op: BodyOp, env: dict[ir.Value, Any], loops: Sequence[Dim]) -> None:
        name = op.name
        if name == "linalg.index":
            env[op.results[0]] = loops[ir.IntegerAttr(op.op.attributes["dim"]).value]
            return
        if name == "tensor.extract":
            source, *indices = op.operands
            env[op.results[0]] = self.at(source, [self._as_dim(env, i) for i in indices])
            return
        if name == "cf.assert":
            self.check(self._operand(env, op.operands[0]), ir.StringAttr(op.op.attributes["msg"]).value)
            return
        if op.results and isinstance(op.results[0].type, ir.IndexType):
            expression = self._index_arith(op, env)
            if expression is not None:
                env[op.results[0]] = expression
                return
        operands = [self._operand(env, x) for x in op.operands]
        for result, made in zip(op.results, self.apply(op, operands)):
            env[result] = made

    def _index_arith(self, op: BodyOp, env: dict[ir.Value, Any]) -> Dim | None:
        """The result of index arithmetic as an expression, where all operands are expressions."""
        if op.name == "arith.constant":
            return ir.IntegerAttr(op.op.attributes["value"]).value
        if op.name == "tensor.dim":
            return self.graph.dim(op.results[0])
        signed = {"arith.remsi": "arith.remui", "arith.divsi": "arith.divui"}.get(op.name)
        if op.name not in INDEX_ARITH and not signed:
            return None
        a, b = (self._dim_operand(env, x) for x in op.operands)
        if a is None or b is None:
            return None
        if signed and not (self.ranges.nonnegative(a) and self.ranges.nonnegative(b)):
            return None
        return self.ranges.simplify(INDEX_ARITH[signed or op.name](a, b))

    def _dim_operand(self, env: dict[ir.Value, Any], value: ir.Value) -> Dim | None:
        found = env.get(value)
        if found is None:
            return self.graph.dim(value)
        return found if isinstance(found, (int, dims.Expr)) else None

    def _as_dim(self, env: dict[ir.Value, Any], value: ir.Value) -> Dim:
        expression = self._dim_operand(env, value)
        if expression is None:
            expression = self.index_symbol(self._operand(env, value))
            env[value] = expression
        return expression

    def _operand(self, env: dict[ir.Value, Any], value: ir.Value) -> Any:
        found = env.get(value)
        if found is None:
            return self.scalar(value)
        return self.index_value(found) if isinstance(found, (int, dims.Expr)) else found
