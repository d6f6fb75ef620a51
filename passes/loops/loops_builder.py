"""A small builder for loops-level IR: scopes, cached constants, symbolic index expressions, scf loops.

`LoopsBuilder` writes into one function. It keeps a chain of *scopes*, one per open block: an index expression or a
value whose inputs live in an outer scope is emitted there, before the loop that is being filled, so what does not
change in a loop is computed outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim, Expr
from .op_builder import OpBuilder, comparison

# LLVM would unroll a loop of 49 elements before it thinks of vectors: five times the compile time, and scalar code.
# Longer loops it leaves alone, and may unroll well once they are vectors.
KEPT_LOOPS = range(16, 129)


class LoopsBuilder(OpBuilder):
    """Emit ops into `block` (scope 0) and the loops opened in it; `symbols` gives the values of size symbols."""

    def __init__(self, block: ir.Block, location: ir.Location | None = None, at_start: bool = False):
        super().__init__(block, location, at_start)
        self.symbols: dict[str, tuple[ir.Value, int]] = {}
        self.fresh = 0
        self.floor = 0  # the scope of the innermost branch: what must not run unless it is taken stays inside
        self._nsw = self.attribute("#arith.overflow<nsw>")

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
        negative = self.compare("slt", x, zero, level=level)
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

    def compare(self, predicate: str, x: Dim | ir.Value, y: Dim | ir.Value, level: int = -1) -> ir.Value:
        """Whether `x predicate y`: an i1, or a vector of them.

        `predicate` is a name of `arith.cmpi` ("slt", "ult", …), of floats one of `arith.cmpf` ("oeq", "uno", …).
        """
        a, c = self._value_of(x), self._value_of(y)
        name, result, number = comparison(predicate, a.type)
        return self.value(name, (a, c), result, level, predicate=number)

    def select(self, condition: ir.Value, x: Dim | ir.Value, y: Dim | ir.Value) -> ir.Value:
        """`x` where `condition` holds, else `y`."""
        a, c = self._value_of(x), self._value_of(y)
        return self.value("arith.select", (condition, a, c), a.type)

    def all_of(self, conditions: Sequence[ir.Value]) -> ir.Value:
        """Whether all conditions hold, of which there is one at least."""
        made, *others = conditions
        for condition in others:
            made = self.value("arith.andi", (made, condition), self.i1)
        return made

    def _value_of(self, x: Dim | ir.Value) -> ir.Value:
        return self.dim(x) if isinstance(x, (int, Expr)) else x

    # -- control flow ------------------------------------------------------------------------------------------------
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

    def under(self, conditions: Sequence[ir.Value | None], do: Callable[[], Any]) -> None:
        """`do()` where all conditions that there are hold."""
        given = [c for c in conditions if c is not None]
        if given:
            self.branch(self.all_of(given), [], do)
        else:
            do()

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
