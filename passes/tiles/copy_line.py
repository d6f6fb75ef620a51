"""Copy one line of a tensor (a view, or computed) to scratch, converting it to the dtype that computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from . import numeric
from .code import Index
from .frame import Frame
from .values import Lane, Values


@dataclass(frozen=True)
class Line:
    """Elements `tensor[*index, low], tensor[*index, low + 1], ...`, of `dtype`."""

    tensor: ir.Value
    dtype: str
    index: Sequence[Index]
    low: Index = 0


@dataclass(frozen=True)
class Place:
    """Elements `at, at + 1, ...` of a flat buffer of `dtype`."""

    buffer: ir.Value
    dtype: str
    at: Index


def copy_line(
    frame: Frame, line: Line, to: Place, size: Index, width: int, factor: ir.Value | None = None, shift: int = 0
) -> None:
    """Copy `size` elements of `line` to `to`, by vectors of `width` and a scalar tail.

    Floats are multiplied by `factor`, to integers `shift` is added.
    """
    code = frame.code
    names = [code.register(f"@a{d}", x) for d, x in enumerate(line.index)]

    def element(k: Index, lanes: int) -> None:
        lane = Lane(code, "@k", code.add(k, line.low), (1,), lanes)
        x = Values(frame, {}, lane).at(line.tensor, (*names, *lane.index))
        x = numeric.spread(code, numeric.convert(code, x, line.dtype, to.dtype), lanes)
        if factor is not None:
            x = code.op("arith.mulf", [x.type], [x, numeric.spread(code, factor, lanes)])
        if shift:
            x = code.op("arith.addi", [x.type], [x, code.constant(shift, x.type)])
        (code.store if lanes == 1 else code.vstore)(x, to.buffer, code.add(to.at, k))

    whole = code.mul(code.div(size, width), width) if width > 1 else 0
    code.loop(0, whole, width, [], lambda k: element(k, width))
    code.loop(whole, size, 1, [], lambda k: element(k, 1))
