"""What the direct emitters share: the root op of a kernel, its operands at any index, loops, scratch and stores.

A direct kernel holds one `lamina` op (sort, scan, scatter …) whose operands may come through views and other linalg; those
are read through the loop emitter's `Evaluator`. Emitters write scalar loops with `LoopsBuilder`; arithmetic on elements
goes through `ScalarMath`, which knows dtypes. bool is a byte here (`u8`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim, Expr
from ...dialects.dtypes import DTYPES
from ...dialects.mlir_ops import attributes_of, op_class, operands_of
from ...dialects.status import INDEX_OUT_OF_RANGE, Check
from ..linalg.ir_cache import IrCache
from ..linalg.scalar_core import Scalar
from ..linalg.scalar_math import ScalarMath
from ..loops.evaluate import Evaluator
from ..loops.evaluate_accesses import Accesses
from ..loops.index_algebra import Ranges
from ..loops.kernel_functions import loops_function, strings
from ..loops.loops_builder import LoopsBuilder
from ..loops.tensor_graph import TensorGraph

STACK_BYTES = 64 * 1024
CHUNK_STEPS = 20_000  # inner steps (about a nanosecond each) that make a chunk worth a thread's while


class Scalars(ScalarMath):
    """ScalarMath that writes into the innermost open loop of a LoopsBuilder, with constants ahead of all loops."""

    def __init__(self, b: LoopsBuilder, cache: IrCache):
        super().__init__(cache, b.scopes[-1].ip, b.location)
        self.b = b

    def const(self, value: bool | int | float, dtype: str) -> Scalar:
        made = super().const(value, dtype)
        self._constants.clear()  # another loop may be open at the next use
        return made


class DirectKernel:
    """The kernel of `graph` around `root`, on its way to loops: opens the loops-level function beside the old one."""

    strip = 64  # neighbouring columns that a work item walks along together
    evaluator_type = Evaluator

    def __init__(self, graph: TensorGraph, root: ir.Operation):
        cls = op_class(root)
        assert cls is not None
        self.graph, self.root = graph, root
        self.function = loops_function(graph.op, [*graph.inputs, *graph.results], len(graph.symbols))
        block = self.function.regions[0].blocks[0]
        arguments = list(block.arguments)
        count, tensors = len(graph.inputs), len(graph.inputs) + len(graph.results)
        self.b = b = LoopsBuilder(block, graph.op.location)
        self.status, *sizes, self.begin, self.end = arguments[tensors:]
        for name, value in zip(graph.symbols, sizes):
            b.bind(name, value)
        self.inputs: dict[ir.Value, ir.Value] = dict(zip(graph.inputs, arguments))
        self.name = cls.name
        self.operands: dict[str, Any] = operands_of(root)
        self.attributes: dict[str, Any] = attributes_of(root)
        self._dtypes = dict(zip(root.operands, strings(root.attributes["lamina.operand_dtypes"]), strict=True))
        self.cache = IrCache(b.context)
        self.ranges = Ranges()
        self.evaluator = self.evaluator_type(graph, b, self.inputs, self.ranges, self.status)
        self.result_names = [f.name for f in cls.results]
        self.outputs = self._outputs(arguments[count:tensors])
        self._frees: list[ir.Value] = []

    def _outputs(self, memrefs: Sequence[ir.Value]) -> dict[str, list[ir.Value]]:
        """The buffers of each result of the root: none if unused, several if it is returned twice."""
        found: dict[str, list[ir.Value]] = {n: [] for n in self.result_names}
        for value, memref in zip(self.graph.results, memrefs):
            found[self.result_names[root_result(self.graph, self.root, value)]].append(memref)
        return found

    # -- what the operands are ----------------------------------------------------------------------------------
    def shape(self, value: ir.Value) -> tuple[Dim, ...]:
        """The sizes of an operand."""
        return self.graph.shape(value)

    def dtype(self, value: ir.Value) -> str:
        """The dtype of an operand as stored: bool is u8."""
        return "u8" if self.is_bool(value) else self._dtypes[value]

    def is_bool(self, value: ir.Value) -> bool:
        """Whether an operand is one of bool."""
        return self._dtypes[value] == "bool"

    # -- reading and writing --------------------------------------------------------------------------------------
    @property
    def s(self) -> Scalars:
        """Arithmetic at the end of the innermost open loop."""
        return Scalars(self.b, self.cache)

    def read(self, value: ir.Value, index: Sequence[Dim]) -> Scalar:
        """The element of an operand at `index`."""
        return Scalar(self.evaluator.at(value, index), self.dtype(value))

    def depends(self, value: ir.Value, index: Callable[[Dim], Sequence[Dim]]) -> bool:
        """Whether the element of `value` at `index(c)` is another one for another `c`."""
        name = self.fresh("c")
        walk = Accesses(self.graph, self.ranges.copy())
        walk.at(value, index(dims.symbol(name)))
        return any(name in dims.symbols(e) for e in walk.expressions())

    def store(self, result: str, offset: Dim, value: Scalar) -> None:
        """Write one element of a result, at its flat position."""
        for memref in self.outputs[result]:
            self.b.op("memref.store", (value.value, memref, self.b.dim(offset)))

    def load(self, memref: ir.Value, offset: Dim | ir.Value, dtype: str) -> Scalar:
        """An element of a buffer that this kernel writes (scratch or a result)."""
        at = offset if isinstance(offset, ir.Value) else self.b.dim(offset)
        return Scalar(self.b.value("memref.load", (memref, at), self.cache.storage(dtype)), dtype)

    def put(self, memref: ir.Value, offset: Dim | ir.Value, value: Scalar) -> None:
        """Write an element of a buffer."""
        at = offset if isinstance(offset, ir.Value) else self.b.dim(offset)
        self.b.op("memref.store", (value.value, memref, at))

    def position(self, index: Scalar, size: Dim, wrap: bool) -> Dim:
        """A checked position in a dim of `size`, as an index expression; out of range is a check and position 0."""
        at, ok = self._checked(index, size, wrap, INDEX_OUT_OF_RANGE)
        return self.b.bind_fresh(self.s.select(ok, at, 0).value)

    def valid(self, index: Scalar, size: Dim, wrap: bool, check: Check = INDEX_OUT_OF_RANGE) -> tuple[Dim, ir.Value]:
        """A checked position and whether it lies in range: what a write has to ask."""
        at, ok = self._checked(index, size, wrap, check)
        return self.b.bind_fresh(at.value), ok.value

    def _checked(self, index: Scalar, size: Dim, wrap: bool, check: Check) -> tuple[Scalar, Scalar]:
        """A position, from the end if it is negative and may `wrap`, and whether it lies in a dim of `size`."""
        s = self.s
        at, end = s.cast(index, "index"), Scalar(self.b.dim(size), "index")
        if wrap:
            at = s.select(s.lt(at, 0), s.add(at, end), at)
        ok = s.bitwise_and(s.ge(at, 0), s.lt(at, end))
        self.evaluator.check(ok.value, check.text)
        return at, ok

    # -- loops ----------------------------------------------------------------------------------------------------
    def fresh(self, stem: str) -> str:
        self.b.fresh += 1
        return f"{stem}{self.b.fresh}"

    @contextmanager
    def loop(self, end: Dim, low: Dim | ir.Value = 0, high: Dim | ir.Value | None = None) -> Iterator[Expr]:
        """A loop over `low .. high` (all of `end` by default); the variable is known to lie in `0 .. end - 1`."""
        name = self.fresh("i")
        self.ranges.add(name, end)
        with self.b.loop(name, low, end if high is None else high) as variable:
            yield variable

    @contextmanager
    def loops(self, sizes: Sequence[Dim]) -> Iterator[tuple[Dim, ...]]:
        """Nested loops over `sizes`; yields the index."""
        if not sizes:
            yield ()
            return
        with self.loop(sizes[0]) as first, self.loops(sizes[1:]) as rest:
            yield (first, *rest)

    def fold(self, end: Dim, inits: Sequence[Scalar], step: Callable[..., Sequence[Scalar]]) -> list[Scalar]:
        """A loop that carries scalars: `step(variable, *carried)` gives the next ones."""
        name = self.fresh("i")
        self.ranges.add(name, end)
        kinds = [v.dtype for v in inits]

        def body(variable: Expr, carried: list[ir.Value]) -> list[ir.Value]:
            return [v.value for v in step(variable, *map(Scalar, carried, kinds))]

        made = self.b.loop_carried(name, 0, end, [v.value for v in inits], body)
        return list(map(Scalar, made, kinds))

    def while_loop(
        self,
        inits: Sequence[Scalar],
        condition: Callable[..., Scalar],
        step: Callable[..., Sequence[Scalar]],
    ) -> list[Scalar]:
        """`while condition(*carried): carried = step(*carried)`; returns the last ones."""
        b, kinds = self.b, [v.dtype for v in inits]
        types = [v.value.type for v in inits]
        op = b.op("scf.while", [v.value for v in inits], types, regions=2)
        before, after = (r.blocks.append(*types, arg_locs=[b.location] * len(types)) for r in op.regions)
        with b.scope(op, before):
            carried = list(before.arguments)
            b.op("scf.condition", [condition(*map(Scalar, carried, kinds)).value, *carried])
        with b.scope(op, after):
            b.op("scf.yield", [v.value for v in step(*map(Scalar, after.arguments, kinds))])
        return list(map(Scalar, op.results, kinds))

    def when(self, condition: ir.Value, then: Callable[[], None]) -> None:
        """`if condition: then()`."""

        def filled() -> list[ir.Value]:
            then()
            return []

        self.b.branch(condition, [], filled)

    # -- memory -----------------------------------------------------------------------------------------------------
    def scratch(self, count: Dim, dtype: str) -> ir.Value:
        """A buffer of `count` elements for the whole body; call outside all loops."""
        b, element = self.b, self.cache.storage(dtype)
        small = isinstance(count, int) and count * DTYPES[dtype].bytes <= STACK_BYTES
        sizes = [] if isinstance(count, int) else [b.dim(count)]
        extent = count if isinstance(count, int) else ir.ShapedType.get_dynamic_size()
        memref = ir.MemRefType.get([extent], element)
        made = b.value(
            "memref.alloca" if small else "memref.alloc",
            sizes,
            memref,
            operandSegmentSizes=self.cache.segments(len(sizes), 0),
        )
        if not small:
            self._frees.append(made)
        return made

    def close(self, items: Dim, grain: Dim) -> None:
        """Free the scratch buffers, end the function, say what its range is, and drop the old function."""
        for memref in self._frees:
            self.b.op("memref.dealloc", (memref,))
        self.b.op("func.return", ())
        self.function.attributes["lamina.range"] = ir.StringAttr.get(str(items))
        self.function.attributes["lamina.grain"] = ir.StringAttr.get(str(grain))
        self.graph.op.erase()

    def same_buffer(self, operand: ir.Value, result: str) -> ir.Value | None:
        """Whether a result is written in place over `operand`, known when the kernel runs; None if it cannot be."""
        if operand not in self.inputs or not self.outputs[result]:
            return None
        b = self.b
        name = "memref.extract_aligned_pointer_as_index"
        x, y = (b.value(name, (m,), b.index) for m in (self.inputs[operand], self.outputs[result][0]))
        return b.compare("eq", x, y)


def root_result(graph: TensorGraph, root: ir.Operation, value: ir.Value) -> int:
    """Which result of `root` a result of its kernel is, as it is or reshaped."""
    results, op = list(root.results), graph.owner(value)
    while value not in results and op is not None and op.name in _RESHAPES:
        value = op.operands[0]
        op = graph.owner(value)
    if value not in results:
        raise NotImplementedError(f"a kernel that computes on the result of its root, '{root.name}'")
    return results.index(value)


_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast")


def grain(steps: Dim) -> Dim:
    """Work items of `steps` inner steps each that fill a chunk."""
    return dims.dim_max(1, dims.floordiv(CHUNK_STEPS, dims.dim_max(1, steps)))


def around(shape: Sequence[Dim], dim: int) -> tuple[tuple[Dim, ...], Dim, tuple[Dim, ...]]:
    """The sizes before `dim`, of it, and after it; a scalar is a row of one."""
    if not shape:
        return (), 1, ()
    d = dim % len(shape)
    return tuple(shape[:d]), shape[d], tuple(shape[d + 1 :])
