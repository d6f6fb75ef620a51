"""Where the scores of one thread lie, and the chip's own functions: what its matrix instructions change in a softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Functions:
    """Intrinsics of one instruction each, f32 to f32, and the op of `arith` that is one instruction for a maximum.

    A maximum may pass over a NaN: its weight is a NaN all the same, and so are the total and the results of its row.
    `attributes` are LLVM's of a stage whose maxima are of sums, which are never signalling NaNs.
    `ballot` is the op that gives a condition of all lanes as the bits of an integer, if votes are taken so.
    """

    exp2: str
    log2: str
    reciprocal: str
    maximum: str
    attributes: tuple[tuple[str, str], ...] = ()
    ballot: str = ""


@dataclass(frozen=True)
class Layout:
    """Value `i` of a thread is in row `rows[row(i)]` and column `column(i)`, both counted from the thread's first ones.

    The lanes whose numbers differ in the bits `distances` have the other columns of its rows.
    """

    rows: tuple[int, ...]
    distances: tuple[int, ...]
    row: Callable[[int], int]
    column: Callable[[int], int]
    functions: Functions
    wave: int = 32  # lanes


NVIDIA = Functions("llvm.nvvm.ex2.approx.ftz.f", "llvm.nvvm.lg2.approx.ftz.f", "llvm.nvvm.rcp.approx.ftz.f", "maximumf")
# of wgmma and mma.sync: four lanes share a row, a thread has pairs of columns of two rows
QUADS = Layout((0, 8), (1, 2), lambda i: i // 2 % 2, lambda i: 8 * (i // 4) + i % 2, NVIDIA)
# In IEEE mode a maximum quiets its operands first: one more instruction for each score.
AMD = Functions(
    "llvm.amdgcn.exp2", "llvm.amdgcn.log", "llvm.amdgcn.rcp", "maxnumf", (("amdgpu-ieee", "false"),),
    "rocdl.ballot",
)  # fmt: skip
