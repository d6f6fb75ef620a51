"""`LinalgBuilder`: writes an op's meaning as linalg on tensors. Op classes' `lower(b, …)` use nothing else.

    b.map(lambda s, x, y: s.add(x, y), x, y)                    pointwise, numpy broadcasting
    b.reduce(lambda s, x, acc: s.add(acc, x), [x], dims, [(0, "f32")])
    b.generate(shape, "i64", lambda s, i: s.cast(i[0], "i64"))  from indices, with s.read(x, indices)
    b.permute(x, dims)  b.slice(…)  b.reshape(x, shape)  …      views (linalg_views)
    b.sum(x, dims)  b.amax(x, dims)  b.contract("mk,kn->mn", …) reductions (linalg_reduce)
    b.exp(x)  b.add(x, 1.0)  b.lt(x, y)                         any scalar function, mapped

Values are `Tensor`s: an SSA value and its TensorType, whose sizes are `dims.Dim`. In MLIR a symbolic size is `?`, and
its value is arithmetic on the kernel's symbols (`size`). bool tensors are `i8`. Ops are created raw with cached
attributes: that is 3 to 20 times faster than through the bindings' op classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mlir import ir

from ...dialects.dim_fold import fold
from ...dialects.dims import Dim
from ...dialects.dtypes import size
from ...dialects.op import broadcast
from ...dialects.record import TensorType
from .ir_cache import IrCache
from .linalg_reduce import Reductions
from .linalg_tensor import Tensor, aligned
from .linalg_views import Views
from .scalar_builder import ScalarBuilder
from .scalar_core import Scalar, is_narrow

_BOOL_RESULTS = frozenset("eq ne lt le gt ge isnan isinf isfinite signbit logical_not".split())


class LinalgBuilder(Views, Reductions):
    """Appends linalg at `ip`; `symbols` gives the `index` value of each symbol of the kernel.

    With `wide_sums` float sums accumulate in f64: for straight sequential loops, which would lose accuracy in f32.
    """

    def __init__(
        self,
        ip: ir.InsertionPoint,
        symbols: Mapping[str, ir.Value],
        location: ir.Location,
        cache: IrCache | None = None,
        wide_sums: bool = False,
    ):
        self.ip = ip
        self.symbols = dict(symbols)
        self.location = location
        self.cache = cache or IrCache(location.context)
        self.wide_sums = wide_sums
        self._sizes: dict[Dim, ir.Value] = {}

    # -- the two general forms --------------------------------------------------------------------------------
    def generic(
        self,
        loops: Sequence[Dim],
        inputs: Sequence[tuple[Tensor, tuple[Any, ...]]],
        dtypes: Sequence[str],
        fn: Callable[..., Any],
        reduced: Sequence[int] = (),
        inits: Sequence[Tensor] | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """One `linalg.generic` over `loops`; its results have the dims of the loops that are not `reduced`.

        An input comes with its index map: per dimension a loop number, None (index 0), or the linear expression
        `(((loop, factor), …), constant)`. `fn(s, *elements)` gives the results; with `inits` it also takes the
        accumulators: `fn(s, *elements, *accumulators)`.
        """
        kept = tuple(i for i in range(len(loops)) if i not in reduced)
        types = [TensorType(d, tuple(loops[i] for i in kept)) for d in dtypes]
        outs = list(inits) if inits is not None else [self.empty(t.shape, t.dtype) for t in types]
        maps = tuple(m for _, m in inputs) + (kept,) * len(outs)
        op = ir.Operation.create(
            "linalg.generic",
            results=[self.cache.tensor(t) for t in types],
            operands=[x.value for x, _ in inputs] + [o.value for o in outs],
            attributes={
                "indexing_maps": self.cache.maps(len(loops), maps),
                "iterator_types": self.cache.iterators(tuple(i in reduced for i in range(len(loops)))),
                "operandSegmentSizes": self.cache.segments(len(inputs), len(outs)),
            },
            regions=1,
            ip=self.ip,
            loc=self.location,
        )
        elements = [x.dtype for x, _ in inputs] + list(dtypes)
        block = op.regions[0].blocks.append(
            *(self.cache.storage(d) for d in elements), arg_locs=[self.location] * len(elements)
        )
        s = ScalarBuilder(self, ir.InsertionPoint(block))
        used = elements if inits is not None else elements[: len(inputs)]
        after = self.ip
        self.ip = ir.InsertionPoint(op)  # sizes that the body asks for go before the op
        try:
            made = fn(s, *(s.load(v, d) for v, d in zip(block.arguments, used)))
            made = made if isinstance(made, tuple) and not isinstance(made, Scalar) else (made,)
            self._yield(s, [self._result(s, m, d) for m, d in zip(made, dtypes, strict=True)])
        finally:
            self.ip = after
        results = tuple(Tensor(v, t) for v, t in zip(op.results, types))
        return results[0] if len(results) == 1 else results

    def map(
        self, fn: Callable[..., Any], *xs: Tensor | bool | int | float, dtypes: Sequence[str] | str | None = None
    ) -> Any:
        """`fn(s, *scalars)` at every index of the operands' broadcast shape; Python numbers pass through.

        `dtypes` of the results; by default one result of the first tensor's dtype.
        """
        tensors = [x for x in xs if isinstance(x, Tensor)]
        shape = broadcast(*(t.shape for t in tensors))
        made = (tensors[0].dtype,) if dtypes is None else (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)

        def body(s: ScalarBuilder, *scalars: Scalar) -> Any:
            given = iter(scalars)
            return fn(s, *(next(given) if isinstance(x, Tensor) else x for x in xs))

        return self.generic(shape, [(t, aligned(t.shape, shape)) for t in tensors], made, body)

    def generate(
        self,
        shape: Sequence[Dim],
        dtype: str,
        fn: Callable[[ScalarBuilder, list[Scalar]], Scalar],
    ) -> Tensor:
        """The tensor whose element at `indices` is `fn(s, indices)`; `s.read(x, …)` reads operands anywhere."""
        result = self.generic(shape, [], [dtype], lambda s: fn(s, [s.index(i) for i in range(len(shape))]))
        return result  # type: ignore[return-value]

    # -- tensors from nothing ---------------------------------------------------------------------------------
    def empty(self, shape: Sequence[Dim], dtype: str) -> Tensor:
        """`tensor.empty`."""
        type = TensorType(dtype, tuple(shape))
        op = ir.Operation.create(
            "tensor.empty",
            results=[self.cache.tensor(type)],
            operands=self.dynamic(shape),
            ip=self.ip,
            loc=self.location,
        )
        return Tensor(op.results[0], type)

    def fill(self, shape: Sequence[Dim], value: bool | int | float, dtype: str) -> Tensor:
        """A tensor of one value (`linalg.fill`)."""
        stored = "u8" if dtype == "bool" else dtype
        constant = ir.Operation.create(
            "arith.constant",
            results=[self.cache.storage(dtype)],
            attributes={"value": self.cache.number(value, stored)},
            ip=self.ip,
            loc=self.location,
        )
        out = self.empty(shape, dtype)
        op = ir.Operation.create(
            "linalg.fill",
            results=[self.cache.tensor(out.type)],
            operands=[constant.results[0], out.value],
            attributes={"operandSegmentSizes": self.cache.segments(1, 1)},
            regions=1,
            ip=self.ip,
            loc=self.location,
        )
        element = self.cache.storage(dtype)
        block = op.regions[0].blocks.append(element, element, arg_locs=[self.location] * 2)
        ir.Operation.create(
            "linalg.yield", operands=[block.arguments[0]], ip=ir.InsertionPoint(block), loc=self.location
        )
        return Tensor(op.results[0], out.type)

    def literal(self, data: bytes, dtype: str, shape: Sequence[int]) -> Tensor:
        """A tensor of the given elements, row-major (`arith.constant dense<…>`)."""
        type = TensorType(dtype, tuple(shape))
        if not data:
            return self.empty(shape, dtype)
        code: Any = {1: "b", 2: "h", 4: "i", 8: "q"}[size(dtype)]
        words = memoryview(data).cast(code)
        elements = ir.DenseElementsAttr.get(
            words, type=self.cache.storage(dtype), shape=list(shape), context=self.cache.context
        )
        op = ir.Operation.create(
            "arith.constant",
            results=[self.cache.tensor(type)],
            attributes={"value": elements},
            ip=self.ip,
            loc=self.location,
        )
        return Tensor(op.results[0], type)

    # -- sizes ------------------------------------------------------------------------------------------------
    def size(self, dim: Dim) -> ir.Value:
        """The `index` value of a size: a constant, or arithmetic on the kernel's symbols."""
        found = self._sizes.get(dim)
        if found is None:
            found = self._sizes[dim] = self._size(dim)
        return found

    def dynamic(self, shape: Sequence[Dim]) -> list[ir.Value]:
        """The values of the symbolic sizes of `shape`, in order."""
        return [self.size(d) for d in shape if not isinstance(d, int)]

    def _size(self, dim: Dim) -> ir.Value:
        if isinstance(dim, int):
            return self._index_op("arith.constant", value=self.cache.number(dim, "index"))
        add, multiply = partial(self._index_op, "arith.addi"), partial(self._index_op, "arith.muli")
        return fold(dim, self._leaf, self._function, add, multiply)

    def _leaf(self, x: int | str) -> ir.Value:
        if isinstance(x, int):
            return self.size(x)
        if x not in self.symbols:
            raise KeyError(f"the kernel has no symbol '{x}'; it has {', '.join(self.symbols) or 'none'}")
        return self.symbols[x]

    def _function(self, function: str, a: Dim, b: Dim) -> ir.Value:
        x, y = self.size(a), self.size(b)
        match function:
            case "max":
                return self._index_op("arith.maxsi", x, y)
            case "min":
                return self._index_op("arith.minsi", x, y)
        # Python's mod for a positive divisor, also of negative numbers
        rest = self._index_op("arith.remsi", x, y)
        rest = self._index_op("arith.remsi", self._index_op("arith.addi", rest, y), y)
        return rest if function == "mod" else self._index_op("arith.divsi", self._index_op("arith.subi", x, rest), y)

    def _index_op(self, name: str, *operands: ir.Value, **attributes: ir.Attribute) -> ir.Value:
        return ir.Operation.create(
            name,
            results=[self.cache.element("index")],
            operands=list(operands),
            attributes=attributes,
            ip=self.ip,
            loc=self.location,
        ).results[0]

    # -- helpers ----------------------------------------------------------------------------------------------
    def _result(self, s: ScalarBuilder, made: Scalar | bool | int | float, dtype: str) -> ir.Value:
        scalar = s.like(made, dtype)
        if scalar.dtype != dtype:
            raise TypeError(f"the body gives {scalar.dtype} where the result is {dtype}; cast it")
        return s.store(scalar)

    def _yield(self, s: ScalarBuilder, values: list[ir.Value]) -> None:
        ir.Operation.create("linalg.yield", operands=values, ip=s.ip, loc=self.location)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """`x` as `dtype`; `x` itself if it already is."""
        return x if x.dtype == dtype else self.map(lambda s, v: s.cast(v, dtype), x, dtypes=dtype)

    def wide(self, x: Tensor) -> Tensor:
        """Narrow floats as f32, in which composites compute before they round once; others unchanged."""
        return self.cast(x, "f32") if is_narrow(x.dtype) else x

    def where(self, condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
        """`condition ? a : b`; at least one of `a` and `b` is a tensor."""
        dtype = next(x.dtype for x in (a, b) if isinstance(x, Tensor))
        return self.map(
            lambda s, c, x, y: s.select(c, s.like(x, dtype), s.like(y, dtype)), condition, a, b, dtypes=dtype
        )

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if name.startswith("_"):
            raise AttributeError(name)

        def mapped(*xs: Tensor | bool | int | float, **attributes: Any) -> Tensor:
            dtype = "bool" if name in _BOOL_RESULTS else None
            return self.map(lambda s, *v: getattr(s, name)(*v, **attributes), *xs, dtypes=dtype)

        return mapped


__all__ = ["LinalgBuilder", "Scalar", "ScalarBuilder", "Tensor"]
