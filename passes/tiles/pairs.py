"""Products of bf16 in pairs along K, by an instruction that multiplies bf16 and adds in f32 (Arm's `bfdot`).

    acc[c] += a[2i] * b[2i, c] + a[2i + 1] * b[2i + 1, c]        c < width, one instruction

A comes in vectors of `width` elements along K, of which each step spreads one pair; two rows of B are interleaved in
registers. The instruction is an LLVM intrinsic of (acc, a, b). Arm's rounds inside a pair to odd and takes denormals for
zero: an error of the size of f32's, far below the rounding of the result to bf16.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from . import numeric as numeric
from .code import Code, Index
from .micro import Panel, Rows, Tile, step


def multiply_pairs(
    code: Code, tile: Tile, intrinsic: str, rows: Rows, panel: Panel, low: Index, high: Index, acc: Sequence[ir.Value]
) -> list[ir.Value]:
    """`acc + A[rows, low:high] @ B[low:high, columns]`; A has stride 1 along K, A and B are bf16."""
    depth = tile.width
    pairs = ir.VectorType.get([2 * tile.width], numeric.element_type("bf16"))

    def several(k: Index, *now: ir.Value) -> list[ir.Value]:
        a = [code.vload(rows.buffer, code.add(s, k), depth) for s in rows.starts]
        sums = list(now)
        for i in range(depth // 2):
            even, odd = (panel.raw(code, tile, code.add(k, 2 * i + o)) for o in (0, 1))
            b = [code.op("vector.shuffle", [pairs], [x, y], mask=_interleave(tile.width)) for x, y in zip(even, odd)]
            for r, x in enumerate(a):
                # from half a register and in bf16: LLVM makes the instruction's own lane operand of this form only
                pair = ir.DenseI64ArrayAttr.get([2 * i, 2 * i + 1] * tile.width)
                spread = code.op("vector.shuffle", [pairs], [x, x], mask=pair)
                for q, y in enumerate(b):
                    at = r * tile.vectors + q
                    sums[at] = call(code, intrinsic, sums[at], y, spread)
        return sums

    whole = code.add(low, code.mul(code.div(code.sub(high, low), depth), depth))
    return one_by_one(code, tile, rows, panel, whole, high, code.loop(low, whole, depth, acc, several))


def one_by_one(
    code: Code, tile: Tile, rows: Rows, panel: Panel, low: Index, high: Index, acc: Sequence[ir.Value]
) -> list[ir.Value]:
    """`acc + A[rows, low:high] @ B[low:high, columns]` in f32: what K leaves over."""

    def one(k: Index, *now: ir.Value) -> list[ir.Value]:
        scalars = [lambda x=x: numeric.convert(code, x(), "bf16", "f32") for x in rows.loads(code, k)]
        return step(code, tile, scalars, panel.loads(code, tile, k), now)

    return list(acc) if isinstance(high, int) and high == low else code.loop(low, high, 1, acc, one)


def _interleave(width: int) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([i + o for i in range(width) for o in (0, width)])


def call(code: Code, intrinsic: str, acc: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """The LLVM intrinsic of (acc, a, b) that gives the new `acc`."""
    segments = ir.DenseI32ArrayAttr.get([3, 0])
    return code.op(
        "llvm.call_intrinsic", [acc.type], [acc, a, b], intrin=ir.StringAttr.get(intrinsic),
        operandSegmentSizes=segments, op_bundle_sizes=ir.DenseI32ArrayAttr.get([]),
    )  # fmt: skip
