"""Emit "the value of tensor `v` at this index" as scalar code: the heart of the loop emitters and of fused epilogues.

    ev = Evaluator(graph, b, buffers, ranges, status)
    y = ev.at(value, (row, column))          # indices are dims.Dim over the builder's loop variables and size symbols

The walk (`evaluate_walk.Walk`) inlines generic bodies and turns views into addresses; here each op becomes code at the
end of `b`'s innermost scope, or in an outer scope when its index needs no inner variable. Values are memoised per scope.
`known[v] = provider` gives values that live elsewhere: an accumulator, a scratch row, a register tile:
`provider(index)` returns an SSA value or None ("not this element").

Any reduction that is not known is computed in place by its own loops: slow, never wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.status import code_of
from .arg_reduction import is_searched, search
from .evaluate_accesses import TOKEN, Accesses
from .evaluate_walk import Index, Walk
from .index_algebra import Ranges
from .kept_rows import KeptRow
from .literal_table import literal_table, table_type
from .loop_nest import Loop, Space, refine
from .loops_builder import LoopsBuilder
from .order_keys import combine_keys, flat, from_key, is_orderable, to_key, unflat
from .reduction_loops import SUMS, accumulator_kinds, is_small, reduction_loops
from .tensor_graph import BodyOp, Generic, TensorGraph


class Evaluator(Walk):
    """Evaluate tensors of `graph` in the function that `b` writes.

    `buffers` maps the kernel's tensor arguments to flat 1-D memrefs; `status` is the memref of the status word.
    """

    def __init__(
        self,
        graph: TensorGraph,
        b: LoopsBuilder,
        buffers: Mapping[ir.Value, ir.Value],
        ranges: Ranges,
        status: ir.Value | None = None,
    ):
        super().__init__(graph, ranges)
        self.b = b
        self.reassociated: set[ir.Value] = set()  # results of bodies that combine terms of a sum or product
        self.ordered: set[ir.Value] = set()  # and of maxima and minima that are kept as keys
        self.kept: dict[ir.Value, list[KeptRow]] = {}
        self.row_width = 1
        self.sum_block = 1024  # f32 terms per block of a long sum: LLVM spreads them over 32 partial sums
        self.buffers = dict(buffers)
        self.status = status

    # -- placement -------------------------------------------------------------------------------------------------
    def level(self, index: Sequence[Dim]) -> int:
        """The scope that code for `index` goes to."""
        return max(self.b.floor, self.b.level_of(index))

    def remember(self, key: Any, index: Index, make: Callable[[], Any]) -> Any:
        """Emit once per scope chain, as far out as `index` allows."""
        full = (self, key, index)
        for scope in self.b.scopes:
            if full in scope.cache:
                return scope.cache[full]
        level = min(self.level(index), len(self.b.scopes) - 1)
        with self.b.at_level(level):
            made = make()
        self.b.scopes[level].cache[full] = made
        return made

    def vector(self, value: ir.Value) -> ir.Value:
        """`value` as all that is evaluated at once: itself, for one element."""
        return value

    # -- leaves ----------------------------------------------------------------------------------------------------
    def load(self, argument: ir.Value, offset: Dim) -> Any:
        buffer = self.buffers[argument]
        return self.remember(("load", argument), (offset,), lambda: self.load_at(buffer, offset))

    def load_at(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        """Load one element of a flat buffer."""
        element = ir.MemRefType(buffer.type).element_type
        return self.b.value("memref.load", (buffer, self.b.dim(offset)), element)

    def store(self, buffer: ir.Value, offset: Dim, value: ir.Value) -> None:
        """Write `value` to element `offset` of a flat buffer."""
        self.b.op("memref.store", (value, buffer, self.b.dim(offset)))

    def store_row(self, scratch: ir.Value, position: Dim, value: ir.Value) -> None:
        """Write `value` to place `position` of a scratch row (which has `row_width` elements for each)."""
        self.store(scratch, position, value)

    def load_row(self, scratch: ir.Value, position: Dim) -> ir.Value:
        """Read what `store_row` wrote."""
        return Evaluator.load_at(self, scratch, position)

    def scalar(self, value: ir.Value) -> Any:
        expression = self.graph.dim(value)
        if expression is not None:
            return self.index_value(expression)
        return self.remember(("scalar", value), (), lambda: self._scalar(value))

    def _scalar(self, value: ir.Value) -> Any:
        op = self.graph.owner(value)
        if op is None:
            raise NotImplementedError("a scalar argument of a kernel that is not a size symbol")
        if op.name == "tensor.extract":
            source, *indices = op.operands
            return self.at(source, [self.graph.dim(i) or 0 for i in indices])
        body = BodyOp(op, op.name, list(op.operands), list(op.results))
        return self.apply(body, [self.scalar(x) for x in body.operands])[0]

    def literal(self, value: ir.Value, index: Index) -> Any:
        op = self.graph.owner(value)
        assert op is not None
        attribute = op.attributes["value"]
        element = ir.RankedTensorType(value.type).element_type
        if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
            splat = attribute.get_splat_value()
            return self.remember(("splat", value), (), lambda: self._constant(splat, element))
        offset = self.ranges.linearize(index, self.graph.shape(value))
        return self.remember(("literal", value), (offset,), lambda: self.load_at(self._table(value), offset))

    def _constant(self, attribute: ir.Attribute, type: ir.Type) -> ir.Value:
        return self.b.value("arith.constant", (), type, value=attribute)

    def _table(self, value: ir.Value) -> ir.Value:
        """A dense constant as a flat buffer: a global of the module."""

        def make() -> ir.Value:
            op = self.graph.owner(value)
            assert op is not None
            function = self.graph.op
            name = f"{ir.StringAttr(function.attributes['sym_name']).value}.table{self.b.fresh}"
            self.b.fresh += 1
            type = table_type(literal_table(op, name, ir.InsertionPoint(function)))
            return self.b.op("memref.get_global", (), [type], {"name": ir.FlatSymbolRefAttr.get(name)}).result

        return self.remember(("table", value), (), make)

    def empty(self, type: ir.Type) -> Any:
        return self.b.constant(0, type)

    # -- ops -------------------------------------------------------------------------------------------------------
    def apply(self, op: BodyOp, operands: list[Any]) -> list[Any]:
        if op.name == "arith.constant":
            type = op.results[0].type
            attribute = op.op.attributes["value"]
            return [self.remember(("constant", attribute, type), (), lambda: self._constant(attribute, type))]
        if op.results and op.results[0] in self.ordered:
            return [combine_keys(self.b, op.name, *operands)]
        return self.emit(op, operands, [r.type for r in op.results])

    def emit(self, op: BodyOp, operands: list[Any], types: list[ir.Type]) -> list[Any]:
        """`op` on values; the sum of a product is one multiply-add, which LLVM vectorises as it does a sum."""
        b = self.b
        if op.name == "arith.addf" and op.results[0] in self.reassociated:
            for product, total in (operands, reversed(operands)):
                maker = None if isinstance(product.owner, ir.Block) else product.owner.operation
                if maker is not None and maker.name == "arith.mulf":
                    flags = b.attribute("#llvm.fastmath<reassoc>")
                    terms = [*maker.operands, total]
                    return [b.value("llvm.intr.fmuladd", terms, types[0], fastmathFlags=flags)]
        return list(b.op(op.name, operands, types, self._attributes(op)).results)

    def _attributes(self, op: BodyOp) -> dict[str, ir.Attribute]:
        attributes = {name: op.op.attributes[name] for name in _names(op.op)}
        if op.results and op.results[0] in self.reassociated:
            attributes["fastmath"] = self.b.attribute("#arith.fastmath<reassoc>")
        return attributes

    def index_value(self, expression: Dim) -> Any:
        return self.b.dim(expression)

    def index_symbol(self, value: Any) -> Dim:
        return self.b.bind_fresh(value, self.b.value_level(value))

    def check(self, ok: Any, message: str) -> None:
        """`status[0] = max(status[0], ok ? 0 : code)`: no branch, so that a loop around it still vectorises."""
        b = self.b
        if self.status is None:
            raise NotImplementedError("a run-time check in a kernel without a status word")
        failed = b.select(ok, b.constant(0, b.i32), b.constant(code_of(message), b.i32))
        zero = b.dim(0)
        old = b.value("memref.load", (self.status, zero), b.i32)
        b.op("memref.store", (b.value("arith.maxsi", (old, failed), b.i32), self.status, zero))

    def choose(
        self, conditions: list[Dim], yes: Callable[[], Any], no: Callable[[], Any], value: ir.Value, at: Index
    ) -> Any:
        element = ir.RankedTensorType(value.type).element_type
        return self.b.branch(self.all_nonnegative(conditions), [element], lambda: [yes()], lambda: [no()])[0]

    def all_nonnegative(self, conditions: list[Dim]) -> ir.Value:
        """True where every expression is at least 0."""
        b = self.b
        inside = None
        for c in conditions:
            ok = b.compare("sge", c, 0)
            inside = ok if inside is None else b.value("arith.andi", (inside, ok), b.i1)
        assert inside is not None
        return inside

    # -- reductions ------------------------------------------------------------------------------------------------
    def reduce(self, generic: Generic, index: Index) -> list[Any]:
        fixed = generic.loops_of(index)
        if is_small(generic):
            return self._unrolled(generic, index, fixed)
        space, positions = self._reduction_space(generic, fixed)
        loops = positions(space, self.ranges)
        keep = [k for k in self.kept.get(generic.arguments[-1], []) if k.reduction.index == index]
        inits = [self.at(out, index) for out in generic.outs]

        def each() -> None:
            for k in keep:
                k.store(self, loops)

        results = self.accumulate(generic, space.loops, inits, loops, each)
        for k in keep:
            self.known[k.value] = k.provider(self)
        return results

    def _unrolled(self, generic: Generic, index: Index, fixed: list[Dim]) -> list[Any]:
        """A reduction of few terms as straight code, which leaves the loop around it free to be vectorised."""
        values = [self.at(out, index) for out in generic.outs]
        for place in itertools.product(*(range(generic.extents[d]) for d in generic.reductions)):  # type: ignore[arg-type]
            loops = list(fixed)
            for d, i in zip(generic.reductions, place):
                loops[d] = i
            values = self.body(generic, loops, values)
        return values

    def _reduction_space(
        self, generic: Generic, fixed: list[Dim]
    ) -> tuple[Space, Callable[[Space, Ranges], list[Dim]]]:
        """The loops of a reduction: one over all reduced positions, split where addresses need it."""
        extents = [generic.extents[d] for d in generic.reductions]
        self.b.fresh += 1
        name = f"r{self.b.fresh}"
        space = Space.of([(name, dims.product(extents), True)])

        def positions(space: Space, ranges: Ranges) -> list[Dim]:
            for l in space.loops:
                ranges.add(l.name, l.extent)
            loops = list(fixed)
            for d, i in zip(generic.reductions, ranges.delinearize(space.values[name], extents)):
                loops[d] = i
            return loops

        def expressions(space: Space) -> list[Dim]:
            accesses = Accesses(self.graph, self.ranges.copy())
            accesses.body(generic, positions(space, accesses.ranges), [TOKEN] * len(generic.outs))
            return accesses.expressions()

        refine(space, expressions)
        return space, positions

    def accumulate(
        self,
        generic: Generic,
        over: list[Loop],
        inits: list[Any],
        loops: Sequence[Dim],
        each: Callable[[], None] = lambda: None,
    ) -> list[Any]:
        """Run the loops `over` and combine with the body of `generic`; `each()` is emitted first in the innermost."""
        if is_searched(self, generic, over, loops):
            return search(self, generic, over, inits, loops, each)
        kinds = accumulator_kinds(generic)
        self.reassociated |= {k.result for k in kinds if k.is_sum or k.is_product}
        ordered = [k.is_extreme and is_orderable(v.type) for k, v in zip(kinds, inits)]
        self.ordered |= {k.result for k, o in zip(kinds, ordered) if o}

        starts = [to_key(self.b, v, k.name) if o else v for k, v, o in zip(kinds, inits, ordered)]

        def body(carried: list[Any]) -> list[Any]:
            each()
            return flat(self.body(generic, loops, unflat(carried, starts)))

        cheap = all(k.is_sum for k in kinds) and not self._calls_functions(generic, loops)
        each_kind = [k for k, s in zip(kinds, starts) for _ in flat([s])]
        values = reduction_loops(self.b, over, flat(starts), each_kind, body, self.sum_block, SUMS if cheap else 0)
        results = unflat(values, starts)
        return [from_key(self.b, v, i.type, k.name) if o else v for v, i, k, o in zip(results, inits, kinds, ordered)]

    def _calls_functions(self, generic: Generic, loops: Sequence[Dim]) -> bool:
        """True if a term needs functions of the math dialect, whose polynomials take many registers."""
        accesses = Accesses(self.graph, self.ranges.copy())
        accesses.body(generic, loops, [TOKEN] * len(generic.outs))
        return accesses.functions > 0


def _names(op: ir.Operation) -> list[str]:
    return [a if isinstance(a, str) else a.name for a in op.attributes]
