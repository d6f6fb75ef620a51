"""Products of narrow elements by instructions that multiply several along K and add in 32 bits.

    bfdot     acc[c]    += sum_k a[k] * b[k, c]           c < 4; k < 2, bf16 in f32
    sdot      acc[c]    += sum_k a[k] * b[k, c]           c < 4; k < 4, i8 in i32
    bfmmla    acc[i, j] += sum_k a[i, k] * b[k, j]        i, j < 2; k < 4, bf16 in f32
    smmla     acc[i, j] += sum_k a[i, k] * b[k, j]        i, j < 2; k < 8, i8 in i32

They take the elements of a column that lie along K from one register. Where B is not packed so, a panel is laid out anew
in scratch, once for all tiles of the rows of an item:

    groups[k / depth][c][k % depth] = b[k, c]

Sums of i8 are exact, modulo 2^32. Arm's instructions on bf16 round inside a group to odd and take denormals for zero: an
error of the size of f32's, far below the rounding of the result to bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from ...dialects.dtypes import DTYPES
from . import numeric as numeric
from .code import Code, Index
from .micro import Panel, Rows, Tile, step
from .pack import Matrix

REGISTER = 16  # bytes


@dataclass(frozen=True)
class Instruction:
    """An LLVM intrinsic of (acc, a, b) on `depth` elements of `dtype` along K; on two rows and two columns if `square`."""

    intrinsic: str
    dtype: str
    depth: int
    square: bool

    @property
    def loaded(self) -> int:
        """Elements along K in a register: what a step of the loop over K takes."""
        return REGISTER // DTYPES[self.dtype].bytes

    def call(self, code: Code, acc: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """The new `acc`."""
        segments = ir.DenseI32ArrayAttr.get([3, 0])
        return code.op(
            "llvm.call_intrinsic", [acc.type], [acc, a, b], intrin=ir.StringAttr.get(self.intrinsic),
            operandSegmentSizes=segments, op_bundle_sizes=ir.DenseI32ArrayAttr.get([]),
        )  # fmt: skip


@dataclass(frozen=True)
class Grouped(Panel):
    """A panel that is also laid out in `groups`, from line `origin` on; whole steps of lines are taken from there."""

    groups: ir.Value | None = None
    origin: Index = 0

    def columns(self, code: Code, tile: Tile, instruction: Instruction, k: Index) -> list[ir.Value]:
        """The group of lines that begins at `k`, in registers of a few columns each."""
        assert self.groups is not None
        at = code.mul(code.sub(k, self.origin), tile.columns)
        taken = range(0, tile.columns * instruction.depth, instruction.loaded)
        return [code.vload(self.groups, code.add(at, t), instruction.loaded) for t in taken]


def lay_out(
    code: Code, tile: Tile, instruction: Instruction, panel: Panel, low: Index, high: Index, groups: ir.Value
) -> Grouped:
    """Lay out lines `low .. high` of a panel in `groups`; the last lines that make no group stay in the panel."""
    depth = instruction.depth

    def lines(k: ir.Value) -> None:
        rows = [panel.raw(code, tile, code.add(k, o)) for o in range(depth)]
        at = code.mul(code.sub(k, low), tile.columns)
        for q in range(tile.vectors):
            merged = _merged(code, [row[q] for row in rows], instruction)
            for i, vector in enumerate(merged):
                code.vstore(vector, groups, code.add(at, q * tile.width * depth + i * instruction.loaded))

    whole = code.add(low, code.mul(code.div(code.sub(high, low), depth), depth))
    code.loop(low, whole, depth, [], lines)
    return Grouped(panel.buffer, panel.start, panel.stride, panel.dtype, panel.vectors, panel.next, groups, low)


def lay_out_columns(
    code: Code, tile: Tile, instruction: Instruction, b: Matrix, first: Index, low: Index, high: Index, groups: ir.Value
) -> Grouped:
    """`lay_out` of columns `first ...` of a B with unit stride along K; `high - low` is a multiple of a step."""

    def step_of(k: ir.Value) -> None:
        at = code.mul(code.sub(k, low), tile.columns)
        for c in range(tile.columns):
            column = b.column(code, k, code.add(first, c), instruction.loaded)
            for g in range(instruction.loaded // instruction.depth):
                part = shuffle(code, column, column, range(g * instruction.depth, (g + 1) * instruction.depth))
                code.vstore(part, groups, code.add(at, (g * tile.columns + c) * instruction.depth))

    code.loop(low, high, instruction.loaded, [], step_of)
    return Grouped(b.buffer, b.at(code, 0, first), b.k_stride, b.dtype, groups=groups, origin=low)


def one_by_one(
    code: Code, tile: Tile, rows: Rows, panel: Panel, low: Index, high: Index, acc: Sequence[ir.Value]
) -> list[ir.Value]:
    """`acc + A[rows, low:high] @ B[low:high, columns]` in the tile's type: what K leaves over."""

    def one(k: Index, *now: ir.Value) -> list[ir.Value]:
        scalars = [lambda x=x: numeric.convert(code, x(), panel.dtype, tile.dtype) for x in rows.loads(code, k)]
        return step(code, tile, scalars, panel.loads(code, tile, k), now)

    return list(acc) if isinstance(high, int) and high == low else code.loop(low, high, 1, acc, one)


def shuffle(code: Code, x: ir.Value, y: ir.Value, mask: Sequence[int]) -> ir.Value:
    """Elements `mask` of `x` and `y` one after the other."""
    made = ir.VectorType.get([len(mask)], ir.VectorType(x.type).element_type)
    return code.op("vector.shuffle", [made], [x, y], mask=ir.DenseI64ArrayAttr.get(list(mask)))


def _merged(code: Code, lines: list[ir.Value], instruction: Instruction) -> list[ir.Value]:
    """Vectors of lines, one under the other, as registers of columns: each column's elements together."""
    columns, size = ir.VectorType(lines[0].type).shape[0], 1
    while size < instruction.depth:
        both = [o + c * size + i for c in range(columns) for o in (0, columns * size) for i in range(size)]
        size *= 2
        cut = instruction.loaded if size == instruction.depth else len(both)
        masks = [both[i : i + cut] for i in range(0, len(both), cut)]
        lines = [shuffle(code, x, y, mask) for x, y in zip(lines[::2], lines[1::2]) for mask in masks]
    return lines
