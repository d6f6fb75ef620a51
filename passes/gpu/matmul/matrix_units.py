"""Matrix instructions: 16 x 16 results a wave, and which lane holds what.

    D[x, y] += sum over k of X[x, k] * Y[y, k]            x, y = 0 .. 15

A lane holds row `lane % 16` of X and of Y, for `read` neighbouring k; the other lanes of that row (`lane / 16`) hold the
next ones, or, on gfx11, the same. Which k an instruction takes from a lane does not matter as long as it is the same for
X and Y: so a lane reads 16 bytes at once and several instructions use them up.

| unit | k read by a lane | instructions | lane's results of D |
|---|---|---|---|
| MFMA f16, bf16 | 8 of 32 | 2 of 16 x 16 x 16 | x = 4 * (lane / 16) + i, y = lane % 16, i < 4 |
| MFMA f8… | 16 of 64 | 2 of 16 x 16 x 32 | the same |
| MFMA f32 | 4 of 16 | 4 of 16 x 16 x 4 | the same |
| WMMA, gfx11 | all 16, twice in a wave | 1 of 16 x 16 x 16 | x = 2 * i + lane / 16, y = lane % 16, i < 8 |
| WMMA, gfx12 | 8 of 16 | 1 of 16 x 16 x 16 | x = 8 * (lane / 16) + i, y = lane % 16, i < 8 |
| WMMA f8…, gfx12 | 16 of 32 | 2 of 16 x 16 x 16 | the same |
| fused multiply-add, f32 in waves of 32 | 2 of 2 | 16 multiply-adds of each lane | as gfx12 |

X is the side of the columns (N): a lane then holds results of one row (M), and stores them as a vector. Which column is
at which x is free: `column` chooses it so that a lane's results are neighbours, in one D or in all D of a step of K. In
the latter order a lane's results, rounded, are what it holds as Y of a next product (`operand`).
Sources: AMD's "Matrix Instruction Calculator"; the ISA documents of CDNA 3, RDNA 3 and RDNA 4, section WMMA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mlir import ir

from ...loops.loops_builder import LoopsBuilder
from ..block_reduce import shuffle_xor
from ..llvm_ops import inline_assembly

SIDE = 16  # rows and columns of one D
FMA_STEP = 4  # k of one 16-byte read

# load(row of the 16, first k, rows further down, elements) -> a vector from shared memory
Load = Callable[[ir.Value, ir.Value, int, int], ir.Value]


@dataclass(frozen=True)
class Unit:
    """One way to multiply: `step` is the k that a wave's lanes read together, `results` the elements of D in a lane."""

    op: str
    k: int
    read: int
    step: int
    results: int
    scalars: bool = True  # AMD's waves: scalar registers for what lanes share, barriers and scheduling of their own

    def barrier(self, b: LoopsBuilder) -> None:
        """Wait until what all waves have written to shared memory is there; loads from global memory stay under way."""
        b.op("amdgpu.lds_barrier" if self.scalars else "gpu.barrier", ())

    def keep_order(self, b: LoopsBuilder) -> None:
        """Let the scheduler move nothing across: it would wait for loads where the products before them begin."""
        if self.scalars:
            opts = b.attribute("#amdgpu.sched_barrier_opt<none>")
            b.op("amdgpu.sched_barrier", (), attributes={"opts": opts})

    @property
    def group(self) -> int:
        """Columns of the D that together are whole steps of K."""
        return max(self.step, SIDE)

    @property
    def parts(self) -> int:
        """How many D a group has."""
        return self.group // SIDE

    def column(self, b: LoopsBuilder, x: ir.Value, part: int, parts: int) -> ir.Value:
        """The column at place `x` of D number `part` of `parts`; a lane has neighbouring columns of all."""
        if parts == 1:
            return x
        group = b.binary("arith.divui", x, b.constant(self.results, b.index))
        inside = b.binary("arith.remui", x, b.constant(self.results, b.index))
        first = b.binary("arith.muli", group, b.constant(self.results * parts, b.index))
        return b.binary("arith.addi", b.binary("arith.addi", first, b.constant(self.results * part, b.index)), inside)

    def load(self, b: LoopsBuilder, lane: ir.Value, load: Load, columns: bool) -> ir.Value:
        """What a lane holds of X or Y for the next `step` of k; `columns`: for the side of N."""
        row = b.binary("arith.remui", lane, b.constant(SIDE, b.index))
        first = b.constant(0, b.index)
        if self.step > self.read:
            group = b.binary("arith.divui", lane, b.constant(SIDE, b.index))
            first = b.binary("arith.muli", group, b.constant(self.read, b.index))
        return load(row, first, 0, self.read)

    def multiply(self, b: LoopsBuilder, d: ir.Value, rows: ir.Value, columns: ir.Value) -> ir.Value:
        """`d` plus the products of what `load` gave for both sides."""
        size = self.k * self.read // self.step  # elements of a lane that one instruction takes
        for part in range(self.read // size):
            d = self._instruction(b, d, b.part(columns, part * size, size), b.part(rows, part * size, size))
        return d

    def _instruction(self, b: LoopsBuilder, d: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        attributes = {"m": SIDE, "n": SIDE, "k": self.k}
        if self.op == "amdgpu.mfma":
            attributes |= {"blocks": 1, "cbsz": 0, "abid": 0}
        else:
            attributes |= {"subwordOffset": 0}
        given: dict[str, ir.Attribute] = {n: ir.IntegerAttr.get(b.i32, v) for n, v in attributes.items()}
        if self.op == "amdgpu.mfma":
            given["blgp"] = b.attribute("#amdgpu<mfma_perm_b none>")
        return b.op(self.op, (x, y, d), [d.type], given).result

    def operand(self, b: LoopsBuilder, lane: ir.Value, values: ir.Value) -> ir.Value:
        """What `load` would give for the side of M, from a lane's results of `parts` D, rounded to the operands' type."""
        return values

    def settled(self, b: LoopsBuilder, d: ir.Value) -> ir.Value:
        """`d`, computed here: LLVM would move WMMA, which needs all lanes, into a branch that only some lanes take."""
        return _through_nothing(b, d, "v") if self.op == "amdgpu.wmma" else d

    def opaque(self, b: LoopsBuilder, x: ir.Value) -> ir.Value:
        """An index that all lanes share, of which LLVM knows nothing."""
        word = b.value("arith.index_cast", (x,), b.i32)
        return b.value("arith.index_cast", (_through_nothing(b, word, "s"),), b.index)

    def in_order(self, b: LoopsBuilder, lane: ir.Value, d: ir.Value) -> ir.Value:
        """What a lane has of D as neighbouring columns of one row, from `place` on."""
        return d

    def place(self, b: LoopsBuilder, lane: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Row and first column, in the 16 x 16, of what `in_order` gives a lane."""
        row = b.binary("arith.remui", lane, b.constant(SIDE, b.index))
        group = b.binary("arith.divui", lane, b.constant(SIDE, b.index))
        return row, b.binary("arith.muli", group, b.constant(self.results, b.index))


class Interleaved(Unit):
    """Lanes `y` and `y + 16` have the even and the odd x, and both hold all k of an operand."""

    def column(self, b: LoopsBuilder, x: ir.Value, part: int, parts: int) -> ir.Value:
        half, odd = (b.binary(f"arith.{op}", x, b.constant(2, b.index)) for op in ("divui", "remui"))
        first = b.binary("arith.muli", odd, b.constant(self.results * parts, b.index))
        return b.binary("arith.addi", b.binary("arith.addi", first, b.constant(self.results * part, b.index)), half)

    def operand(self, b: LoopsBuilder, lane: ir.Value, values: ir.Value) -> ir.Value:
        """Each lane gets the half that the lane of the same row has."""
        upper = b.compare("uge", lane, SIDE)
        element, words = ir.VectorType(values.type).element_type, self.results // 2
        own = b.value("vector.bitcast", (values,), ir.VectorType.get([words], b.i32))
        kept = [b.extract(own, i) for i in range(words)]
        others = [shuffle_xor(b, x, SIDE) for x in kept]
        choose = lambda yes, no: b.select(upper, yes, no)
        both = [choose(o, k) for o, k in zip(others, kept)] + [choose(k, o) for o, k in zip(others, kept)]
        made = b.value("vector.from_elements", both, ir.VectorType.get([2 * words], b.i32))
        return b.value("vector.bitcast", (made,), ir.VectorType.get([self.read], element))


class MultiplyAdd(Unit):
    """The same by multiply-adds: a lane has one row of M and eight columns of N."""

    def load(self, b: LoopsBuilder, lane: ir.Value, load: Load, columns: bool) -> ir.Value:
        first = b.constant(0, b.index)
        if not columns:
            return load(b.binary("arith.remui", lane, b.constant(SIDE, b.index)), first, 0, self.read)
        group = b.binary("arith.divui", lane, b.constant(SIDE, b.index))
        row = b.binary("arith.muli", group, b.constant(self.results, b.index))
        loaded = [load(row, first, i, self.read) for i in range(self.results)]
        element = ir.VectorType(loaded[0].type).element_type
        turned = [b.extract(v, k) for k in range(self.read) for v in loaded]  # [k][column]
        return b.value("vector.from_elements", turned, ir.VectorType.get([len(turned)], element))

    def multiply(self, b: LoopsBuilder, d: ir.Value, rows: ir.Value, columns: ir.Value) -> ir.Value:
        for k in range(self.read):
            factor = b.value("vector.broadcast", (b.extract(rows, k),), d.type)
            d = b.value("math.fma", (factor, b.part(columns, k * self.results, self.results), d), d.type)
        return d


def unit_for(matrix: str, dtype: str) -> Unit | None:
    """The unit of GPUs with matrix instructions `matrix` (a fact of the target) for operands of `dtype` ("f8" for floats of 8 bits), if any."""
    return _UNITS.get((matrix, dtype))


def attention_unit(matrix: str, dtype: str) -> Unit:
    """The same for attention, of f16, bf16 or f32: multiply-adds read more of a row at once."""
    unit = _UNITS[matrix, dtype]
    return replace(unit, read=FMA_STEP, step=FMA_STEP) if isinstance(unit, MultiplyAdd) else unit


_MFMA = Unit("amdgpu.mfma", k=16, read=8, step=32, results=4)
_WMMA = Interleaved("amdgpu.wmma", k=16, read=16, step=16, results=8)
_WMMA2 = Unit("amdgpu.wmma", k=16, read=8, step=16, results=8)
_FMA = MultiplyAdd("math.fma", k=1, read=2, step=2, results=8)
# of warps, for attention in f32
MULTIPLY_ADD = MultiplyAdd("math.fma", k=1, read=FMA_STEP, step=FMA_STEP, results=8, scalars=False)
_UNITS: dict[tuple[str, str], Unit] = {
    ("mfma", "f16"): _MFMA,
    ("mfma", "bf16"): _MFMA,
    ("mfma", "f8"): Unit("amdgpu.mfma", k=32, read=16, step=64, results=4),
    ("mfma", "f32"): Unit("amdgpu.mfma", k=4, read=4, step=16, results=4),
    ("wmma", "f16"): _WMMA,
    ("wmma", "bf16"): _WMMA,
    ("wmma", "f32"): _FMA,
    ("wmma2", "f16"): _WMMA2,
    ("wmma2", "bf16"): _WMMA2,
    ("wmma2", "f8"): Unit("amdgpu.wmma", k=16, read=16, step=32, results=8),
    ("wmma2", "f32"): _FMA,
}


def _through_nothing(b: LoopsBuilder, x: ir.Value, registers: str) -> ir.Value:
    """`x` after no instructions that LLVM looks into, in vector ("v") or scalar registers ("s")."""
    return inline_assembly(b, "", f"={registers},0", (x,), [x.type]).result
