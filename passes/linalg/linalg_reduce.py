"""Reductions and contractions at the linalg level: one `linalg.generic` with reduction loops each.

Float sums accumulate in f32 (f16 and bf16 too; f64 in f64, or everywhere with `wide_sums`) and are rounded once; the
loop emitter keeps several partial sums, which is what makes long f32 sums accurate. Integers accumulate in their dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlir import ir

from ...dialects import dtypes
from ...dialects.dims import Dim
from ...dialects.op import broadcast
from .linalg_tensor import Tensor, aligned
from .scalar_core import Number, highest, is_narrow, kind, lowest

# On the reduction of `arg`: the op of arith that is its comparison (passes/loops/arg_reduction.py).
ARG = "lamina.arg"


class Reductions:
    """The part of LinalgBuilder that reduces."""

    generic: Any
    fill: Any
    cast: Any
    reshape: Any
    wide_sums: bool

    def reduce(
        self,
        fn: Callable[..., Any],
        xs: Sequence[Tensor],
        dims: Sequence[int],
        inits: Sequence[tuple[Number, str]],
        keepdim: bool = False,
        arg: str = "",
    ) -> Any:
        """Combine the elements of `xs` (broadcast together) along `dims` into one accumulator per `(value, dtype)`.

        `fn(s, *elements, *accumulators)` returns the new accumulators; it must not depend on the order. `s.index(d)`
        is the position. `arg` becomes the attribute ARG. Results lack `dims`, or have size 1 there with `keepdim`; one Tensor or a tuple.
        """
        shape = broadcast(*(x.shape for x in xs))
        reduced = tuple(sorted(d % max(len(shape), 1) for d in dims)) if shape else ()
        kept = tuple(d for i, d in enumerate(shape) if i not in reduced)
        starts = [self.fill(kept, value, dtype) for value, dtype in inits]
        made = self.generic(
            shape, [(x, aligned(x.shape, shape)) for x in xs], [d for _, d in inits], fn, reduced, starts
        )
        if arg:
            made[0].value.owner.attributes[ARG] = ir.StringAttr.get(arg, made[0].value.context)
        if not keepdim:
            return made
        full = tuple(1 if i in reduced else d for i, d in enumerate(shape))
        if isinstance(made, Tensor):
            return self.reshape(made, full)
        return tuple(self.reshape(m, full) for m in made)

    def accumulator(self, dtype: str) -> str:
        """The dtype in which sums of `dtype` are kept."""
        if kind(dtype) != "float":
            return dtype
        return "f64" if dtype == "f64" or self.wide_sums else "f32"

    def sum(self, x: Tensor, dims: Sequence[int], keepdim: bool = False, dtype: str | None = None) -> Tensor:
        """The sum along `dims` as `dtype` (by default `x`'s)."""
        dtype = dtype or x.dtype
        acc = self.accumulator(dtype)
        made = self.reduce(lambda s, v, a: s.add(a, s.cast(v, acc)), [x], dims, [(0, acc)], keepdim)
        return self.cast(made, dtype)

    def prod(self, x: Tensor, dims: Sequence[int], keepdim: bool = False, dtype: str | None = None) -> Tensor:
        """The product along `dims` as `dtype` (by default `x`'s)."""
        dtype = dtype or x.dtype
        acc = self.accumulator(dtype)
        made = self.reduce(lambda s, v, a: s.mul(a, s.cast(v, acc)), [x], dims, [(1, acc)], keepdim)
        return self.cast(made, dtype)

    def amax(self, x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
        """The largest element along `dims`; NaN if there is one."""
        return self._extreme("maximum", x, dims, keepdim, lowest(x.dtype))

    def amin(self, x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
        """The smallest element along `dims`; NaN if there is one."""
        return self._extreme("minimum", x, dims, keepdim, highest(x.dtype))

    def any(self, x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
        """True where an element along `dims` is not zero."""
        return self.reduce(lambda s, v, a: s.bitwise_or(a, s.cast(v, "bool")), [x], dims, [(False, "bool")], keepdim)

    def all(self, x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
        """True where no element along `dims` is zero."""
        return self.reduce(lambda s, v, a: s.bitwise_and(a, s.cast(v, "bool")), [x], dims, [(True, "bool")], keepdim)

    def mean(self, x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
        """The sum along `dims` divided by the number of elements; rounded once."""
        count: Dim = 1
        for d in dims:
            count = count * x.shape[d]
        acc = self.accumulator(x.dtype)
        total = self.sum(x, dims, keepdim, acc)
        return self.scaled(total, count, x.dtype)

    def scaled(self, total: Tensor, count: Dim, dtype: str) -> Tensor:
        """`total / count` as `dtype`."""
        return self.map(  # type: ignore[attr-defined]
            lambda s, v: s.cast(s.div(v, s.cast(s.size(count), v.dtype)), dtype), total, dtypes=dtype
        )

    def arg(self, x: Tensor, dims: Sequence[int], largest: bool, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        """The extreme value along `dims` and its first position (row-major over `dims`), i64; NaN is the extreme.

        The combination prefers the smaller position among equals, so it does not depend on the order.
        """
        wide = "f32" if is_narrow(x.dtype) else x.dtype
        worst = lowest(wide) if largest else highest(wide)
        is_float = dtypes.is_float(x.dtype)

        def body(s: Any, v: Any, best: Any, at: Any) -> tuple[Any, Any]:
            at_dims = [s.cast(s.index(d), "i64") for d in dims] or [s.const(0, "i64")]
            here = at_dims[0]
            v = s.cast(v, wide)
            for d, position in zip(dims[1:], at_dims[1:]):
                here = s.add(s.mul(here, s.cast(s.size(x.shape[d]), "i64")), position)
            better = s.gt(v, best) if largest else s.lt(v, best)
            same = s.eq(v, best)
            if is_float:
                nan, best_nan = s.isnan(v), s.isnan(best)
                better = s.bitwise_or(better, s.bitwise_and(nan, s.bitwise_not(best_nan)))
                same = s.bitwise_or(same, s.bitwise_and(nan, best_nan))
            take = s.bitwise_or(better, s.bitwise_and(same, s.lt(here, at)))
            return s.select(take, v, best), s.select(take, here, at)

        # bool comparisons have no maximum of their own
        suffix = {"float": "imumf", "int": "si", "uint": "ui"}[kind(wide)] if wide != "bool" else ""
        combine = f"arith.{'max' if largest else 'min'}{suffix}" if suffix else ""
        inits = [(worst, wide), (highest("i64"), "i64")]
        value, position = self.reduce(body, [x], dims, inits, keepdim, arg=combine)
        return self.cast(value, x.dtype), position

    def contract(self, spec: str, a: Tensor, b: Tensor, dtype: str | None = None) -> Tensor:
        """The sum of products named as in einsum, `"bmk,bkn->bmn"`: letters not in the result are summed.

        f16 and bf16 are multiplied and summed in f32 and rounded once, to `dtype` (by default `a`'s).
        """
        inputs, out = spec.split("->")
        left, right = inputs.split(",")
        loops = out + "".join(dict.fromkeys(c for c in left + right if c not in out))
        sizes = {**dict(zip(left, a.shape)), **dict(zip(right, b.shape))}
        dtype = dtype or a.dtype
        acc = "f32" if is_narrow(dtype) else dtype
        if self.wide_sums and kind(dtype) == "float":
            acc = "f64"
        start = self.fill([sizes[c] for c in out], 0, acc)
        made = self.generic(
            [sizes[c] for c in loops],
            [(a, tuple(map(loops.index, left))), (b, tuple(map(loops.index, right)))],
            [acc],
            lambda s, x, y, total: s.add(total, s.mul(s.cast(x, acc), s.cast(y, acc))),
            reduced=tuple(range(len(out), len(loops))),
            inits=[start],
        )
        return self.cast(made, dtype)

    def _extreme(self, fn: str, x: Tensor, dims: Sequence[int], keepdim: bool, start: Number) -> Tensor:
        acc = "f32" if is_narrow(x.dtype) else x.dtype
        made = self.reduce(lambda s, v, a: getattr(s, fn)(a, s.cast(v, acc)), [x], dims, [(start, acc)], keepdim)
        return self.cast(made, x.dtype)
