"""What `as_strided` is lowered to, recognised: reads of a flat tensor at sums of indices times sizes.

linalg.generic outs(%y : tensor<2x?xf32>) {
  %i = linalg.index 0   %j = linalg.index 1   %a = arith.muli %i, %n   %b = arith.addi %a, %j
  %e = tensor.extract %x[%b]   linalg.yield %e }                        strides (n, 1), offset 0 of %x
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlir import ir

from ...dialects.dims import Dim


@dataclass(frozen=True)
class StridedRead:
    """Element `i` is element `offset + sum(i[d] * strides[d])` of `source`, which has one dimension."""

    source: ir.Value
    strides: tuple[Dim, ...]
    offset: Dim


def strided_read(op: ir.Operation, rank: int, size: Callable[[ir.Value], Dim | None]) -> StridedRead | None:
    """The read that a `linalg.generic` without inputs is, or None; `size` tells index values that are sizes."""
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
    body = [o.operation for o in op.regions[0].blocks[0].operations]
    if len(body) < 2 or maps != [ir.AffineMap.get_identity(rank)]:
        return None
    *computing, read, last = body
    if read.name != "tensor.extract" or len(read.operands) != 2 or list(last.operands) != list(read.results):
        return None
    sums: dict[ir.Value, _Sum] = {}

    def known(value: ir.Value) -> _Sum | None:
        constant = None if value in sums else size(value)
        return sums.get(value) if constant is None else _Sum((0,) * rank, constant)

    for inner in computing:
        if inner.name == "arith.constant":
            continue
        if inner.name == "linalg.index":
            dim = ir.IntegerAttr(inner.attributes["dim"]).value
            sums[inner.results[0]] = _Sum(tuple(int(d == dim) for d in range(rank)), 0)
            continue
        if inner.name not in ("arith.addi", "arith.muli"):
            return None
        a, b = (known(v) for v in inner.operands)
        made = None if a is None or b is None else a.plus(b) if inner.name == "arith.addi" else a.times(b)
        if made is None:
            return None
        sums[inner.results[0]] = made
    place = known(read.operands[1])
    return None if place is None else StridedRead(read.operands[0], place.factors, place.constant)


@dataclass(frozen=True)
class _Sum:
    """`sum(index[d] * factors[d]) + constant`."""

    factors: tuple[Dim, ...]
    constant: Dim

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(tuple(a + b for a, b in zip(self.factors, other.factors)), self.constant + other.constant)

    def times(self, other: _Sum) -> _Sum | None:
        """The product, if one of both is a size."""
        many, one = (other, self) if all(f == 0 for f in self.factors) else (self, other)
        if any(f != 0 for f in one.factors):
            return None
        return _Sum(tuple(f * one.constant for f in many.factors), many.constant * one.constant)
