"""`T`: a tensor of the record with operators, for converters that are formulas.

    y = T(c, grad) * (x - x.mean((-1,), keepdim=True))       # each operator appends one lamina op
    return y.to("bf16").value

Operands of one operator have one dtype; Python numbers take the tensor's, and shapes broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects.dims import Dim, product
from ...dialects.dtypes import is_float
from ...dialects.record import TensorType
from .registry import Value

Number = bool | int | float


class T:
    """A value and the Context it is built in; immutable."""

    __slots__ = ("c", "value")

    def __init__(self, c: Any, value: Value):
        self.c, self.value = c, value

    @property
    def type(self) -> TensorType:
        return self.c.type(self.value)

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def op(self, name: str, *others: T | Number, **attributes: Any) -> Any:
        """`lamina.<name>(self, *others)`; a T, or a tuple of them."""
        made = self.c.op(name, self.value, *(self._operand(o) for o in others), **attributes)
        return tuple(T(self.c, v) for v in made) if isinstance(made, tuple) else T(self.c, made)

    def _operand(self, other: T | Number) -> Value:
        return other.value if isinstance(other, T) else self.c.scalar(other, self.dtype)

    def _number(self, other: Number | Dim) -> T:
        return T(self.c, self.c.scalar(other, self.dtype))

    # -- arithmetic -------------------------------------------------------------------------------------------
    def __add__(self, other: T | Number) -> T:
        return self.op("add", other)

    def __radd__(self, other: Number) -> T:
        return self.op("add", other)

    def __sub__(self, other: T | Number) -> T:
        return self.op("sub", other)

    def __rsub__(self, other: Number) -> T:
        return self._number(other).op("sub", self)

    def __mul__(self, other: T | Number) -> T:
        return self.op("mul", other)

    def __rmul__(self, other: Number) -> T:
        return self.op("mul", other)

    def __truediv__(self, other: T | Number) -> T:
        return self.op("div", other)

    def __rtruediv__(self, other: Number) -> T:
        return self._number(other).op("div", self)

    def __neg__(self) -> T:
        return self.op("neg")

    def plus_product(self, x: T, y: T | Number) -> T:
        """`self + x y`: floats are rounded once."""
        if not is_float(self.dtype):
            return self + x * y
        return x.op("fma", y, self)

    def __and__(self, other: T) -> T:
        return self.op("logical_and", other)

    def __or__(self, other: T) -> T:
        return self.op("logical_or", other)

    def eq(self, other: T | Number) -> T:
        return self.op("eq", other)

    def ne(self, other: T | Number) -> T:
        return self.op("ne", other)

    def lt(self, other: T | Number) -> T:
        return self.op("lt", other)

    def le(self, other: T | Number) -> T:
        return self.op("le", other)

    def gt(self, other: T | Number) -> T:
        return self.op("gt", other)

    def exp(self) -> T:
        return self.op("exp")

    def log(self) -> T:
        return self.op("log")

    def rsqrt(self) -> T:
        return self.op("rsqrt")

    def abs(self) -> T:
        return self.op("abs")

    def where(self, a: T | Number, b: T | Number) -> T:
        """`self ? a : b` for a bool tensor; one of `a` and `b` is a T."""
        like = a if isinstance(a, T) else b
        assert isinstance(like, T)
        return T(self.c, self.c.op("where", self.value, like._operand(a), like._operand(b)))

    # -- reductions -------------------------------------------------------------------------------------------
    def sum(self, dims: Sequence[int], keepdim: bool = False) -> T:
        """The sum along `dims`; the tensor itself for none."""
        if not dims:
            return self
        return self.op("sum", dims=tuple(d % self.rank for d in dims), keepdim=keepdim, dtype=self.dtype)

    def mean(self, dims: Sequence[int], keepdim: bool = False) -> T:
        return self.op("mean", dims=tuple(d % self.rank for d in dims), keepdim=keepdim) if dims else self

    # -- shape and type ---------------------------------------------------------------------------------------
    def to(self, dtype: str) -> T:
        """Cast; the tensor itself if it is that already."""
        return T(self.c, self.c.cast(self.value, dtype))

    def wide(self) -> T:
        """f16 and bf16 as f32, in which composites compute before they round once; others unchanged."""
        return self.to("f32") if self.dtype in ("f16", "bf16") else self

    def reshape(self, *shape: Dim) -> T:
        return self if tuple(shape) == self.shape else self.op("reshape", shape=tuple(shape))

    def permute(self, *dims: int) -> T:
        return self if tuple(dims) == tuple(range(self.rank)) else self.op("permute", dims=tuple(dims))

    def transpose(self) -> T:
        """The last two dims exchanged."""
        return self.permute(*range(self.rank - 2), self.rank - 1, self.rank - 2)

    def expand(self, *shape: Dim) -> T:
        return self if tuple(shape) == self.shape else self.op("expand", shape=tuple(shape))

    def unsqueeze(self, dim: int) -> T:
        """A dim of size 1 at position `dim` of the result."""
        d = dim % (self.rank + 1)
        return self.reshape(*self.shape[:d], 1, *self.shape[d:])

    def slice(self, dim: int, start: Dim, size: Dim, step: int = 1) -> T:
        """`size` elements of `dim` from `start`, every `step`-th."""
        d = dim % self.rank
        return self.op(
            "slice",
            starts=tuple(start if i == d else 0 for i in range(self.rank)),
            sizes=tuple(size if i == d else n for i, n in enumerate(self.shape)),
            steps=tuple(step if i == d else 1 for i in range(self.rank)),
        )

    def matmul(self, other: T) -> T:
        return self.op("matmul", other)

    def numel(self, *dims: int) -> Dim:
        """The number of elements along `dims`."""
        return product(self.shape[d] for d in dims)

    def like(self, number: Number) -> T:
        """A tensor of the same type filled with `number`."""
        return T(self.c, self.c.scalar(number, self.dtype, self.shape))

    def size(self, *dims: int) -> T:
        """`numel(*dims)` as a 0-d tensor of the same dtype."""
        return self._number(self.numel(*dims))
