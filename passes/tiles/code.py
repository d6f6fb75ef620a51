"""Emit index arithmetic, loops and vectors at the `loops` level: what the tile emitters (matmul, attention, conv) share.

An `Index` is a Python int or an `index` SSA value, and arithmetic on ints folds, so one emitter serves static and
dynamic sizes: `code.add(code.mul(i, 6), 1)` is a number when `i` is one. Buffers are flat 1-D memrefs.

    code = Code(block, symbols)
    total, = code.loop(0, n, 8, [zero], lambda i, acc: [code.fma(code.vload(a, i, 8), code.vload(b, i, 8), acc)])

Ops are made with the raw `ir.Operation.create` (3 us an op; the typed builders are several times slower).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dim_fold import fold
from ...dialects.dims import Dim
from ..lane_types import number
from ..loops.op_builder import comparison

Index = int | ir.Value
Body = Callable[..., Any]
ALLOCA_LIMIT = 65536  # bytes; larger scratch goes to malloc (contracts, section 6)


class Code:
    """An emission point in a function: ops go to the current `ir.InsertionPoint`, constants to the entry block."""

    def __init__(self, entry: ir.Block, symbols: Mapping[str, ir.Value]):
        self.entry = entry
        self.symbols = dict(symbols)
        self.index = ir.IndexType.get()
        self._constants: dict[Any, ir.Value] = {}
        self._allocated: list[ir.Value] = []

    # -- plumbing ---------------------------------------------------------------------------------------------
    def op(self, name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value], **attributes: Any) -> Any:
        """Create an op; returns its only result, a list of several, or the op when it has none."""
        made = ir.Operation.create(name, results=list(results), operands=list(operands), attributes=attributes)
        return made.results[0] if len(results) == 1 else list(made.results) if results else made

    def constant(self, value: int | float | bool, type: ir.Type) -> ir.Value:
        """A scalar, or a splat where `type` is a vector; made once, in the entry block."""
        key = (str(value), str(type))
        if key not in self._constants:
            with ir.InsertionPoint.at_block_begin(self.entry):
                self._constants[key] = self.op("arith.constant", [type], [], value=number(value, type))
        return self._constants[key]

    def value(self, x: Index) -> ir.Value:
        """The SSA value of an index."""
        return self.constant(x, self.index) if isinstance(x, int) else x

    # -- index arithmetic -------------------------------------------------------------------------------------
    def _binary(self, name: str, a: Index, b: Index) -> ir.Value:
        return self.op(name, [self.index], [self.value(a), self.value(b)])

    def add(self, a: Index, b: Index, *more: Index) -> Index:
        """`a + b + ...`."""
        if more:
            return self.add(self.add(a, b), *more)
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 and isinstance(a, int):
            return b
        if b == 0 and isinstance(b, int):
            return a
        return self._binary("arith.addi", a, b)

    def sub(self, a: Index, b: Index) -> Index:
        """`a - b`."""
        if isinstance(b, int):
            return self.add(a, -b)
        return self._binary("arith.subi", a, b)

    def mul(self, a: Index, b: Index) -> Index:
        """`a * b`."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        for x, y in ((a, b), (b, a)):
            if isinstance(x, int) and x in (0, 1):
                return y if x else 0
        return self._binary("arith.muli", a, b)

    def div(self, a: Index, b: Index) -> Index:
        """`a // b` for `a >= 0`, `b > 0`."""
        if isinstance(b, int) and (b == 1 or isinstance(a, int)):
            return a if b == 1 else a // b
        return self._binary("arith.divui", a, b)

    def rem(self, a: Index, b: Index) -> Index:
        """`a % b` for `a >= 0`, `b > 0`."""
        if isinstance(b, int) and (b == 1 or isinstance(a, int)):
            return 0 if b == 1 else a % b
        return self._binary("arith.remui", a, b)

    def ceildiv(self, a: Index, b: Index) -> Index:
        """`ceil(a / b)` for `a >= 0`, `b > 0`."""
        return self.div(self.add(a, self.sub(b, 1)), b)

    def min(self, a: Index, b: Index) -> Index:
        """The smaller index."""
        return min(a, b) if isinstance(a, int) and isinstance(b, int) else self._binary("arith.minsi", a, b)

    def max(self, a: Index, b: Index) -> Index:
        """The larger index."""
        return max(a, b) if isinstance(a, int) and isinstance(b, int) else self._binary("arith.maxsi", a, b)

    def compare(self, predicate: str, a: Index, b: Index) -> ir.Value:
        """`a <predicate> b` as an i1; predicates: eq, ne, lt, le, gt, ge (signed)."""
        signed = predicate if predicate in ("eq", "ne") else f"s{predicate}"
        name, i1, number = comparison(signed, self.index)
        return self.op(name, [i1], [self.value(a), self.value(b)], predicate=number)

    def either(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a or b` of two i1."""
        return self.op("arith.ori", [a.type], [a, b])

    def both(self, a: ir.Value | None, b: ir.Value) -> ir.Value:
        """`a and b` of two i1; None is true."""
        return b if a is None else self.op("arith.andi", [a.type], [a, b])

    def select(self, condition: ir.Value, a: Index, b: Index) -> ir.Value:
        """`a` if `condition` else `b`."""
        return self.op("arith.select", [self.index], [condition, self.value(a), self.value(b)])

    def within(self, i: Index, size: Dim) -> ir.Value:
        """`0 <= i < size`."""
        return self.both(self.compare("ge", i, 0), self.compare("lt", i, self.size(size)))

    def size(self, dim: Dim) -> Index:
        """The index of a size expression over the kernel's symbols (and registered loop variables)."""
        functions = {"max": self.max, "min": self.min, "floordiv": self._floordiv, "mod": self._mod}

        def leaf(x: int | str) -> Index:
            return x if isinstance(x, int) else self.symbols[x]

        def function(name: str, a: Dim, b: Dim) -> Index:
            return functions[name](self.size(a), self.size(b))

        return fold(dim, leaf, function, self.add, self.mul)

    def _floordiv(self, a: Index, b: Index) -> Index:
        return a // b if isinstance(a, int) and isinstance(b, int) else self._binary("arith.floordivsi", a, b)

    def _mod(self, a: Index, b: Index) -> Index:
        return self.sub(a, self.mul(self._floordiv(a, b), b))

    def register(self, name: str, value: Index) -> Dim:
        """Name a loop variable (or any index) so that size expressions can use it, until the name is given anew."""
        self.symbols[name] = self.value(value)
        return dims.symbol(name)

    # -- control ----------------------------------------------------------------------------------------------
    def loop(self, low: Index, high: Index, step: Index, init: Sequence[ir.Value], body: Body) -> list[ir.Value]:
        """`for i in range(low, high, step)`: `body(i, *carried)` returns the new carried values; returns the last ones.

        A loop of exactly one iteration is emitted as its body.
        """
        if isinstance(low, int) and isinstance(high, int) and isinstance(step, int) and low < high <= low + step:
            return list(body(low, *init) or [])
        bounds = [self.value(low), self.value(high), self.value(step)]
        made = ir.Operation.create("scf.for", results=[v.type for v in init], operands=[*bounds, *init], regions=1)
        block = made.regions[0].blocks.append(self.index, *[v.type for v in init], arg_locs=None)
        with ir.InsertionPoint(block):
            result = body(*block.arguments)
            self.op("scf.yield", [], list(result or []))
        return list(made.results)

    def branch(
        self, condition: ir.Value, then: Body, otherwise: Body | None = None, types: Sequence[ir.Type] = ()
    ) -> Any:
        """`if condition`: `then()` / `otherwise()` return the values of `types`."""
        made = ir.Operation.create("scf.if", results=list(types), operands=[condition], regions=2)
        for region, body in zip(made.regions, (then, otherwise)):
            if body is not None:
                with ir.InsertionPoint(region.blocks.append()):
                    self.op("scf.yield", [], list(body() or []))
        return list(made.results)

    def switch(self, selector: Index, cases: Sequence[int], body: Callable[[int], Any]) -> None:
        """Run `body(case)` for the case that equals `selector`; the first case is the default."""
        if isinstance(selector, int):
            if selector in cases:
                body(selector)
            return
        if len(cases) == 1:
            body(cases[0])
            return
        made = ir.Operation.create(
            "scf.index_switch",
            operands=[selector],
            attributes={"cases": ir.DenseI64ArrayAttr.get(list(cases[1:]))},
            regions=len(cases),
        )
        for region, case in zip(made.regions, cases):
            with ir.InsertionPoint(region.blocks.append()):
                body(case)
                self.op("scf.yield", [], [])

    # -- memory -----------------------------------------------------------------------------------------------
    def scratch(self, size: Index, element: ir.Type, bytes: int) -> ir.Value:
        """A 64-byte aligned buffer of `size` elements: the stack up to 64 KiB when the size is known, else malloc.

        Call where the buffer is to live for the whole body; `release` frees what was malloced.
        """
        static = isinstance(size, int)
        kind = ir.MemRefType.get([size if static else ir.ShapedType.get_dynamic_size()], element)
        i64 = ir.IntegerType.get_signless(64)
        on_stack = static and size * bytes <= ALLOCA_LIMIT
        buffer = self.op(
            "memref.alloca" if on_stack else "memref.alloc",
            [kind],
            [] if static else [size],
            alignment=ir.IntegerAttr.get(i64, 64),
            operandSegmentSizes=ir.DenseI32ArrayAttr.get([0 if static else 1, 0]),
        )
        if not on_stack:
            self._allocated.append(buffer)
        return buffer

    def release(self) -> None:
        """Free every malloced scratch buffer; the last thing a body does."""
        for buffer in self._allocated:
            self.op("memref.dealloc", [], [buffer])
        self._allocated.clear()

    def load(self, buffer: ir.Value, at: Index) -> ir.Value:
        """One element."""
        return self.op("memref.load", [ir.MemRefType(buffer.type).element_type], [buffer, self.value(at)])

    def store(self, value: ir.Value, buffer: ir.Value, at: Index) -> None:
        """Write one element."""
        self.op("memref.store", [], [value, buffer, self.value(at)])

    def prefetch(self, buffer: ir.Value, at: Index) -> None:
        """Ask for the cache line of an element, in L2."""
        i32 = ir.IntegerType.get_signless(32)
        flags = {"isWrite": ir.BoolAttr.get(False), "isDataCache": ir.BoolAttr.get(True)}
        self.op("memref.prefetch", [], [buffer, self.value(at)], localityHint=ir.IntegerAttr.get(i32, 2), **flags)

    def vload(self, buffer: ir.Value, at: Index, width: int) -> ir.Value:
        """`width` consecutive elements as a vector (no alignment assumed)."""
        vector = ir.VectorType.get([width], ir.MemRefType(buffer.type).element_type)
        return self.op("vector.load", [vector], [buffer, self.value(at)])

    def vstore(self, value: ir.Value, buffer: ir.Value, at: Index) -> None:
        """Write a vector to consecutive elements."""
        self.op("vector.store", [], [value, buffer, self.value(at)])


def delinearize(code: Code, position: Index, shape: Sequence[Dim]) -> list[Index]:
    """The index at row-major `position` of `shape`."""
    index: list[Index] = []
    for size in reversed(shape[1:]):
        extent = code.size(size)
        index.append(code.rem(position, extent))
        position = code.div(position, extent)
    return [position, *reversed(index)] if shape else []
