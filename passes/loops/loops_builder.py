"""A small builder for loops-level IR: scopes, cached constants, symbolic index expressions, scf loops.

`LoopsBuilder` writes into one function. It keeps a chain of *scopes*, one per open block: an index expression or a
value whose inputs live in an outer scope is emitted there, before the loop that is being filled, so what does not
change in a loop is computed outside it. Raw `Operation.create` is used throughout: it is 3-20 times faster than the
generated op classes (4 us an op).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim, Expr

# LLVM would unroll a loop of 49 elements before it thinks of vectors: five times the compile time, and scalar code.
# Longer loops it leaves alone, and may unroll well once they are vectors.
KEPT_LOOPS = range(16, 129)


@dataclass
class Scope:
    """One open block: where its next op goes, and what has been computed in it."""

    block: ir.Block
    ip: ir.InsertionPoint
    cache: dict[Any, Any] = field(default_factory=dict)


class LoopsBuilder:
    """Emit ops into `block` (scope 0) and the loops opened in it; `symbols` gives the values of size symbols."""

    def __init__(self, block: ir.Block, location: ir.Location | None = None, at_start: bool = False):
        self.context = block.owner.context
        self.location = location or ir.Location.unknown(self.context)
        self.index = ir.IndexType.get(self.context)
        self.i1 = ir.IntegerType.get_signless(1, self.context)
        self.i32 = ir.IntegerType.get_signless(32, self.context)
        self.i64 = ir.IntegerType.get_signless(64, self.context)
        self.f32 = ir.F32Type.get(self.context)
        self.f64 = ir.F64Type.get(self.context)
        ip = ir.InsertionPoint.at_block_begin(block) if at_start and len(list(block.operations)) else None
        self.scopes = [Scope(block, ip or ir.InsertionPoint(block))]
        self.symbols: dict[str, tuple[ir.Value, int]] = {}
        self.fresh = 0
        self.floor = 0  # the scope of the innermost branch: what must not run unless it is taken stays inside
        self._attributes: dict[str, ir.Attribute] = {}
        self._nsw = self.attribute("#arith.overflow<nsw>")

    # -- ops ---------------------------------------------------------------------------------------------------
    def op(
        self,
        name: str,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type] = (),
        attributes: dict[str, ir.Attribute] | None = None,
        regions: int = 0,
        level: int = -1,
    ) -> ir.Operation:
        """Create op `name` at the end of scope `level` (default: the innermost)."""
        return ir.Operation.create(
            name,
            results=list(results),
            operands=list(operands),
            attributes=attributes,
            regions=regions,
            loc=self.location,
            ip=self.scopes[level].ip,
        )

    def value(
        self, name: str, operands: Sequence[ir.Value], result: ir.Type, level: int = -1, **attributes: Any
    ) -> ir.Value:
        """Create an op with one result and return the result."""
        return self.op(name, operands, (result,), attributes or None, level=level).result

    def attribute(self, text: str) -> ir.Attribute:
        """Parse an attribute once."""
        found = self._attributes.get(text)
        if found is None:
            found = self._attributes[text] = ir.Attribute.parse(text, self.context)
        return found

    def constant(self, value: float | int, type: ir.Type) -> ir.Value:
        """An `arith.constant` in the outermost scope; vector types get a splat."""
        key = ("constant", repr(value), type)
        cache = self.scopes[0].cache
        if key not in cache:
            attribute = self.number(value, type)
            block = self.scopes[0].block
            operations = block.operations
            ip = ir.InsertionPoint(operations[0]) if len(operations) else ir.InsertionPoint(block)
            cache[key] = ir.Operation.create(
                "arith.constant", results=[type], attributes={"value": attribute}, loc=self.location, ip=ip
            ).result
        return cache[key]

    def number(self, value: float | int, type: ir.Type) -> ir.Attribute:
        """The attribute of a number of `type` (a scalar type, or a vector type for a splat)."""
        if isinstance(type, ir.VectorType):
            element = ir.VectorType(type).element_type
            return ir.DenseElementsAttr.get_splat(type, self.number(value, element))
        if isinstance(type, (ir.IndexType, ir.IntegerType)):
            if isinstance(type, ir.IntegerType) and ir.IntegerType(type).width < 64:
                width = ir.IntegerType(type).width
                value = (
                    (int(value) + (1 << (width - 1))) % (1 << width) - (1 << (width - 1)) if width > 1 else int(value)
                )
                if width == 1:
                    return self.attribute("true" if value else "false")
            return ir.IntegerAttr.get(type, int(value))
        return ir.FloatAttr.get(type, float(value), loc=self.location)

    # -- symbolic index expressions --------------------------------------------------------------------------------
    def bind(self, name: str, value: ir.Value, level: int = -1) -> Expr:
        """Give symbol `name` a value that lives in scope `level`; returns the symbol as an expression."""
        self.symbols[name] = (value, level % len(self.scopes))
        return dims.symbol(name)

    def bind_fresh(self, value: ir.Value, level: int = -1) -> Expr:
        """Make a new symbol for a run-time index."""
        self.fresh += 1
        return self.bind(f"v{self.fresh}", value, level)

    def bind_unique(self, name: str, value: ir.Value, level: int = -1) -> Expr:
        """Give a new symbol, called after `name`, a value: expressions over a symbol are kept, so none is bound twice."""
        self.fresh += 1
        return self.bind(f"{name}_{self.fresh}", value, level)

    def level_of(self, expressions: Sequence[Dim]) -> int:
        """The outermost scope in which all `expressions` can be computed."""
        level = 0
        for e in expressions:
            if isinstance(e, Expr):
                for name in dims.symbols(e):
                    level = max(level, self.symbols[name][1])
        return level

    def dim(self, expression: Dim) -> ir.Value:
        """An expression as an `index` value, computed in the outermost scope that has all its symbols."""
        if isinstance(expression, int):
            return self.constant(expression, self.index)
        level = self.level_of([expression])
        cache = self.scopes[level].cache
        found = cache.get(expression)
        if found is None:
            terms = sorted(expression.terms.items(), key=lambda t: (self._monomial_level(t[0]), not t[0]))
            total: ir.Value | None = None
            for monomial, coefficient in terms:
                term = self._monomial(monomial, coefficient)
                total = term if total is None else self.binary("arith.addi", total, term)
            assert total is not None
            found = cache[expression] = total
        return found

    def _monomial_level(self, monomial: tuple) -> int:
        names = {x for atom, _ in monomial for x in _atom_symbols(atom)}
        return max((self.symbols[n][1] for n in names), default=0)

    def _monomial(self, monomial: tuple, coefficient: int) -> ir.Value:
        factors = [atom for atom, power in monomial for _ in range(power)]
        factors.sort(key=lambda a: max((self.symbols[n][1] for n in _atom_symbols(a)), default=0))
        value: ir.Value | None = None
        if coefficient != 1 or not factors:
            value = self.constant(coefficient, self.index)
        for atom in factors:
            factor = self.symbols[atom][0] if isinstance(atom, str) else self._function(*atom)
            value = factor if value is None else self.binary("arith.muli", value, factor)
        assert value is not None
        return value

    def _function(self, name: str, a: Dim, b: Dim) -> ir.Value:
        level = self.level_of([a, b])
        key = (name, a, b)
        cache = self.scopes[level].cache
        if key in cache:
            return cache[key]
        x, y = self.dim(a), self.dim(b)
        if name in ("max", "min"):
            result = self.value(f"arith.{name}si", (x, y), self.index, level=level)
        else:
            if not isinstance(b, int):  # a size that is 0 must not trap where this is computed ahead of its loop
                y = self.value("arith.maxsi", (y, self.constant(1, self.index)), self.index, level=level)
            quotient = self._floordiv(a, x, y, level)
            if name == "floordiv":
                result = quotient
            else:
                product = self.binary("arith.muli", quotient, y)
                result = self.binary("arith.subi", x, product)
        cache[key] = result
        return result

    def _floordiv(self, a: Dim, x: ir.Value, y: ir.Value, level: int) -> ir.Value:
        if self.nonnegative(a):
            return self.value("arith.divui", (x, y), self.index, level=level)
        # floor(x / y) for y > 0 is trunc((x - (x < 0 ? y - 1 : 0)) / y)
        zero = self.constant(0, self.index)
        negative = self.value("arith.cmpi", (x, zero), self.i1, level=level, predicate=self.number(2, self.i64))
        y1 = self.binary("arith.subi", y, self.constant(1, self.index))
        back = self.value("arith.select", (negative, y1, zero), self.index, level=level)
        return self.value("arith.divsi", (self.binary("arith.subi", x, back), y), self.index, level=level)

    def nonnegative(self, expression: Dim) -> bool:
        """True if `expression` is known to be at least 0; by default when it has no negative term."""
        return (
            isinstance(expression, int)
            and expression >= 0
            or (
                isinstance(expression, Expr)
                and all(c > 0 for c in expression.terms.values())
                and self._plain(expression)
            )
        )

    def _plain(self, expression: Expr) -> bool:
        return all(not n.startswith("v") for n in dims.symbols(expression))

    def binary(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """Index arithmetic that does not overflow, once per scope, as far out as its operands allow."""
        level = max(self.value_level(a), self.value_level(b))
        key = (name, a, b)
        cache = self.scopes[level].cache
        if key not in cache:
            cache[key] = self.value(name, (a, b), self.index, level=level, overflowFlags=self._nsw)
        return cache[key]

    def value_level(self, value: ir.Value) -> int:
        """The scope in whose block `value` is defined (0 for anything outside)."""
        block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
        for level in range(len(self.scopes) - 1, -1, -1):
            if self.scopes[level].block == block:
                return level
        return 0  # a function argument or constant outside

    # -- control flow ------------------------------------------------------------------------------------------------
    @contextmanager
    def scope(self, op: ir.Operation, block: ir.Block) -> Iterator[None]:
        """Fill `block` of `op`, the last op of the current scope; hoisted code goes before `op`."""
        outer, before = self.scopes[-1], self.scopes[-1].ip
        outer.ip = ir.InsertionPoint(op)
        self.scopes.append(Scope(block, ir.InsertionPoint(block)))
        yield
        self.scopes.pop()
        outer.ip = before

    @contextmanager
    def at_level(self, level: int) -> Iterator[None]:
        """Emit into scope `level`, before the loops that are open inside it."""
        scopes, self.scopes = self.scopes, self.scopes[: level + 1]
        yield
        self.scopes = scopes

    @contextmanager
    def loop(
        self, name: str, low: Dim | ir.Value, high: Dim | ir.Value, step: Dim = 1, interleave: int = 0
    ) -> Iterator[Expr]:
        """`for name = low to high step step`; yields the loop variable as a symbol.

        LLVM is told to work on `interleave` vectors at once where that is not 0.
        """
        op = self._for(low, high, step, [], interleave)
        with self.scope(op, op.regions[0].blocks[0]), self._variable(name, op.regions[0].blocks[0].arguments[0]) as at:
            yield at
            self.op("scf.yield", ())

    def loop_carried(
        self,
        name: str,
        low: Dim | ir.Value,
        high: Dim | ir.Value,
        inits: Sequence[ir.Value],
        body: Callable[[Expr, list[ir.Value]], Sequence[ir.Value]],
        step: Dim = 1,
        interleave: int = 0,
        kept: bool = False,
    ) -> list[ir.Value]:
        """A loop that carries values: `body(variable, carried) -> next`; returns the final values.

        LLVM does not unroll a loop that is `kept`.
        """
        op = self._for(low, high, step, inits, interleave, kept)
        block = op.regions[0].blocks[0]
        variable, *carried = block.arguments
        with self.scope(op, block), self._variable(name, variable) as at:
            self.op("scf.yield", body(at, list(carried)))
        return list(op.results)

    @contextmanager
    def _variable(self, name: str, value: ir.Value) -> Iterator[Expr]:
        """Bind a loop's variable while its body is written. What the body needs may be a loop of the same name that is
        written ahead of this one (a row's sum inside its mean): then the name is this loop's again."""
        outer = self.symbols.get(name)
        yield self.bind(name, value)
        if outer is not None:
            self.symbols[name] = outer

    def branch(
        self,
        condition: ir.Value,
        results: Sequence[ir.Type],
        then: Callable[[], Sequence[ir.Value]],
        otherwise: Callable[[], Sequence[ir.Value]] | None = None,
    ) -> list[ir.Value]:
        """`scf.if`; the branches return the results."""
        op = self.op("scf.if", (condition,), results, regions=2)
        for region, fill in zip(op.regions, (then, otherwise)):
            if fill is None:
                continue
            block = region.blocks.append()
            floor = self.floor
            with self.scope(op, block):
                self.floor = len(self.scopes) - 1
                self.op("scf.yield", fill())
            self.floor = floor
        return list(op.results)

    def _for(
        self, low: Dim | ir.Value, high: Dim | ir.Value, step: Dim, inits: Sequence[ir.Value], interleave: int = 0,
        kept: bool = False,
    ) -> ir.Operation:  # fmt: skip
        bounds = [x if isinstance(x, ir.Value) else self.dim(x) for x in (low, high)]
        types = [v.type for v in inits]
        kept = kept or isinstance(high, int) and high in KEPT_LOOPS
        advice = ["unroll = <disable = true>"] if kept else []
        advice += [f"interleave = <count = {interleave} : i32>"] if interleave else []
        attributes = None
        if advice:
            attributes = {"loop_annotation": self.attribute(f"#llvm.loop_annotation<{', '.join(advice)}>")}
        op = self.op("scf.for", [*bounds, self.dim(step), *inits], types, attributes, regions=1)
        op.regions[0].blocks.append(self.index, *types, arg_locs=[self.location] * (1 + len(types)))
        return op


def _atom_symbols(atom: Any) -> set[str]:
    return {atom} if isinstance(atom, str) else dims.symbols(atom[1]) | dims.symbols(atom[2])
