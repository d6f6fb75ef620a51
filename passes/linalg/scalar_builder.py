"""`ScalarBuilder`: what the function given to `LinalgBuilder.map`, `reduce` and `generate` builds its loop body with.

    b.map(lambda s, x, y: s.mul(s.exp(x), s.add(y, 1.0)), x, y)

Operands are `Scalar`s (a value and its dtype) or Python numbers. Everything is dtype-aware; see `scalar_core`
(arithmetic, comparison, bits), `scalar_cast`, `scalar_divide`, `scalar_math`, `scalar_special`,
`scalar_bessel`. This file adds what belongs to a body: its position in the iteration space, and reads at computed indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlir import ir

from ...dialects.dims import Dim
from ...dialects.status import INDEX_OUT_OF_RANGE
from .scalar_bessel import ScalarBessel
from .scalar_core import Scalar

if TYPE_CHECKING:
    from .linalg_builder import LinalgBuilder, Tensor


class ScalarBuilder(ScalarBessel):
    """Builds the body of one `linalg.generic`."""

    def __init__(self, builder: LinalgBuilder, ip: ir.InsertionPoint):
        super().__init__(builder.cache, ip, builder.location)
        self.builder = builder

    def index(self, loop: int) -> Scalar:
        """The position along loop number `loop`, dtype `index`."""
        return self.emit("linalg.index", (), "index", dim=self.cache.i64(loop))

    def size(self, dim: Dim) -> Scalar:
        """A size as an `index` scalar."""
        return self.const(dim, "index") if isinstance(dim, int) else Scalar(self.builder.size(dim), "index")

    def clamp(self, x: Scalar, low: Scalar | int | float | None, high: Scalar | int | float | None) -> Scalar:
        """`min(max(x, low), high)`; NaN stays (a bound that is None is absent)."""
        if low is not None:
            x = self.maximum(x, low)
        return x if high is None else self.minimum(x, high)

    def position(
        self, index: Scalar, size: Dim, wrap: bool = True, text: str | None = INDEX_OUT_OF_RANGE.text
    ) -> Scalar:
        """A checked index into a dimension: negative ones count from the end (with `wrap`); `text` is the check's.

        The result always lies within `0 .. size - 1` (0 if the size is 0), so a read there is safe. Without a text
        nothing is checked: the caller knows that the index lies there.
        """
        end = self.size(size)
        at = self.cast(index, "index")
        if wrap:
            at = self.select(self.lt(at, 0), self.add(at, end), at)
        if text is None:
            return at
        ok = self.bitwise_and(self.ge(at, 0), self.lt(at, end))
        self.check(ok, text)
        return self.select(ok, at, 0)

    def read(self, x: Tensor, indices: Sequence[Scalar]) -> Scalar:
        """The element of tensor `x` at `indices` (dtype `index`, within range)."""
        stored = "u8" if x.dtype == "bool" else x.dtype
        op = ir.Operation.create(
            "tensor.extract",
            results=[self.cache.storage(x.dtype)],
            operands=[x.value, *(i.value for i in indices)],
            ip=self.ip,
            loc=self.location,
        )
        return self.load(op.results[0], x.dtype) if x.dtype == "bool" else Scalar(op.results[0], stored)

    def load(self, value: ir.Value, dtype: str) -> Scalar:
        """A stored element as a scalar: a bool byte becomes `i1`."""
        return self.ne(Scalar(value, "u8"), 0) if dtype == "bool" else Scalar(value, dtype)

    def store(self, x: Scalar) -> ir.Value:
        """A scalar as it is stored: `i1` becomes a byte."""
        return self.emit("arith.extui", (x,), "u8").value if x.dtype == "bool" else x.value
