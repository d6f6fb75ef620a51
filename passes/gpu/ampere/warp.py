"""Instructions of a warp of NVIDIA's GPUs since sm_80 on a stage: asynchronous copies, `ldmatrix`, `mma.sync`.

    warp.copy(to, source, 16, valid)       # 16 bytes, global to shared memory; those beyond `valid` become zeros
    warp.commit(); warp.wait(1)            # all groups of copies but the last one are there
    words = warp.matrices(address, 4)      # four 8 x 8 matrices of 16-bit elements; lane 8 i + r gives row r of number i
    sums = warp.multiply("bf16", a, c, sums)

Who holds what (PTX ISA, "Matrix Fragments for mma.m16n8k16"); lane `l`, `g = l / 4`, `q = l mod 4`:

    8 x 8 matrix          row g, columns 2 q, 2 q + 1: one i32             `turned`: of the transposed matrix
    left 16 x 16          i32 number i: row g + 8 (i mod 2), columns 8 (i / 2) + 2 q and the next
    right 16 x 8          i32 number i: rows 8 i + 2 q and the next, column g
    sums 16 x 8           f32 number i: row g + 8 (i / 2), column 2 q + i mod 2
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects.dims import Dim
from ...loops.loops_builder import LoopsBuilder
from ..gpu_kernel import GpuStage, element_bytes
from ..llvm_ops import byte_address, inline_assembly

LINE = 16  # bytes of a copy, and of a row of an 8 x 8 matrix


class Warp:
    """Writes instructions at the end of the stage's innermost scope."""

    def __init__(self, stage: GpuStage):
        self.stage, self.b = stage, stage.b

    # -- copies ----------------------------------------------------------------------------------------------------
    def source(self, buffer: ir.Value, element: Dim) -> ir.Value:
        """The address of an element of a global buffer."""
        b = self.b
        size = element_bytes(ir.MemRefType(buffer.type).element_type)
        offset = b.value("arith.index_cast", (b.dim(element * size),), b.i64)
        return byte_address(b, self.stage.address(buffer), offset)

    def behind(self, address: ir.Value, offset: int) -> ir.Value:
        """The address `offset` bytes behind another: part of an instruction, no instruction of its own."""
        return byte_address(self.b, address, self.b.constant(offset, self.b.i32)) if offset else address

    def copy(self, to: ir.Value, source: ir.Value, valid: ir.Value | None = None) -> None:
        """Begin to copy 16 bytes to shared memory, past the first cache; `valid`: an i32, so many are read, then zeros."""
        b = self.b
        attributes = {"size": b.number(LINE, b.i32), "modifier": b.attribute("#nvvm<load_cache_modifier cg>")}
        b.op("nvvm.cp.async.shared.global", (to, source, *([] if valid is None else [valid])), attributes=attributes)

    def commit(self) -> None:
        """End a group of copies."""
        self.b.op("nvvm.cp.async.commit.group", ())

    def wait(self, pending: int) -> None:
        """Wait until at most `pending` groups of this thread's copies are under way."""
        self.b.op("nvvm.cp.async.wait.group", (), attributes={"n": self.b.number(pending, self.b.i32)})

    # -- products --------------------------------------------------------------------------------------------------
    def matrices(self, address: ir.Value, count: int, turned: bool = False) -> list[ir.Value]:
        """`count` (1, 2 or 4) matrices of 8 x 8, an i32 of each; `turned` transposes them."""
        b = self.b
        attributes = {
            "num": b.number(count, b.i32),
            "layout": b.attribute(f"#nvvm.mma_layout<{'col' if turned else 'row'}>"),
            "shape": b.attribute("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
            "eltType": b.attribute("#nvvm.ld_st_matrix_elt_type<b16>"),
        }
        if count == 1:
            return [b.op("nvvm.ldmatrix", (address,), (b.i32,), attributes).result]
        struct = ir.Type.parse(f"!llvm.struct<({', '.join(['i32'] * count)})>")
        return unpacked(b, b.op("nvvm.ldmatrix", (address,), (struct,), attributes).result, b.i32, count)

    def multiply(
        self, element: str, a: Sequence[ir.Value], c: Sequence[ir.Value], sums: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """`sums` plus the product of 16 x 16 (four i32) and 16 x 8 (two i32) of bf16 or f16; of TF32, K is 8."""
        return multiply(self.b, element, a, c, sums)

    def rounded(self, word: ir.Value) -> ir.Value:
        """An f32 in an i32, rounded to TF32: to nearest, ties away from zero; infinities and NaN stay."""
        text = "cvt.rna.tf32.f32 $0, $1;"
        return inline_assembly(self.b, text, "=r,r", (word,), [self.b.i32], effects=False).result


def multiply(
    b: LoopsBuilder, element: str, rows: Sequence[ir.Value], columns: Sequence[ir.Value], sums: Sequence[ir.Value]
) -> list[ir.Value]:
    """`sums` plus the product of 16 x 16 and 16 x 8 by `mma.sync`; of TF32, 16 x 8 and 8 x 8, where an i32 is one number."""
    given = [*rows, *columns]
    if element == "f16":  # the op takes f16 as pairs, bf16 as i32
        pair = ir.VectorType.get([2], ir.F16Type.get())
        given = [b.value("llvm.bitcast", (x,), pair) for x in given]
    attributes = {
        "layoutA": b.attribute("#nvvm.mma_layout<row>"),
        "layoutB": b.attribute("#nvvm.mma_layout<col>"),
        "shape": b.attribute(f"#nvvm.shape<m = 16, n = 8, k = {8 if element == 'tf32' else 16}>"),
        "operandSegmentSizes": b.attribute("array<i32: 4, 2, 4>"),
    }
    for side in "AB":
        attributes[f"multiplicand{side}PtxType"] = b.attribute(f"#nvvm.mma_type<{element}>")
    struct = ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")
    return unpacked(b, b.op("nvvm.mma.sync", (*given, *sums), (struct,), attributes).result, b.f32, 4)


def unpacked(b: LoopsBuilder, struct: ir.Value, type: ir.Type, count: int) -> list[ir.Value]:
    """The parts of an LLVM struct of `count` values of one type."""
    at = [ir.DenseI64ArrayAttr.get([i]) for i in range(count)]
    return [b.value("llvm.extractvalue", (struct,), type, position=position) for position in at]
