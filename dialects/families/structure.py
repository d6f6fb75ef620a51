"""Ops that place data: where a tensor comes from that no op of the graph computes."""

from __future__ import annotations

from typing import Any

from ..op import Attr, Dims, DTypeAttr, Op, Result, check
from ..record import TensorType


class _Stored(Op):
    """Base of ops that name a buffer of the host program: no operands, and nothing to evaluate in a graph."""

    @staticmethod
    def infer(shape: tuple, dtype: str, **_: Any) -> TensorType:
        check(all(isinstance(d, int) for d in shape), f"its shape must be static, got {', '.join(map(str, shape))}")
        return TensorType(dtype, shape)

    @staticmethod
    def reference(**_: Any) -> Any:
        raise NotImplementedError("a stored tensor has no value of its own; the caller supplies it")


class Weight(_Stored, name="weight", category="direct"):
    """The tensor called `symbol`, constant between calls; its data live outside the IR."""

    symbol: Attr[str]
    shape: Attr[Dims]
    dtype: Attr[DTypeAttr]
    y: Result


class Persistent(_Stored, name="persistent", category="direct"):
    """Result number `index` of `@init`, which runs once per version of the weights."""

    index: Attr[int]
    shape: Attr[Dims]
    dtype: Attr[DTypeAttr]
    y: Result
