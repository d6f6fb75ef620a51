"""Products of narrow elements by instructions that multiply several along K and add in 32 bits.

| instruction | sums | elements |
|---|---|---|
| `bfdot` | `acc[c] += sum_k a[k] * b[k, c]` | c < 4; k < 2, bf16 in f32 |
| `sdot`, `udot` | the same | c < 4; k < 4, i8 or u8 in i32 |
| `vpmaddwd` and an addition | the same | c < 8 or 16; k < 2, i16 in i32: i8 or u8, made wider |
| `vpdpbusd` | the same | c < 8 or 16; k < 4, u8 times i8 in i32 |
| `bfmmla` | `acc[i, j] += sum_k a[i, k] * b[k, j]` | i, j < 2; k < 4, bf16 in f32 |
| `smmla`, `usmmla`, `ummla` | the same | i, j < 2; k < 8, i8 times i8, u8 times i8, u8 times u8 in i32 |

They take the elements of a column that lie along K from one register: B lies in groups of them (`groups`).

Sums of 8-bit integers are exact, modulo 2^32. Arm's instructions on bf16 round inside a group to odd and take denormals for
zero: an error of the size of f32's, far below the rounding of the result to bf16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlir import ir

from ...dialects.dtypes import DTYPES
from . import numeric
from .code import Code

ARM_REGISTER = 16  # bytes
# fields of `targets.Features`, with the dtypes of A and B and the elements along K
_ARM = (
    ("i8_dot", "i8", "i8", 4),
    ("u8_u8_dot", "u8", "u8", 4),
    ("bf16_square", "bf16", "bf16", 4),
    ("i8_square", "i8", "i8", 8),
    ("u8_square", "u8", "i8", 8),
    ("u8_u8_square", "u8", "u8", 8),
)


@dataclass(frozen=True)
class Instruction:
    """An LLVM intrinsic of (sums, a, b) on `depth` elements along K; on two rows and two columns if `square`.

    `a` and `b` are the dtypes that it takes; what is in memory may be narrower. `register` is the bytes of its operands,
    `loaded` the elements of a row of A that are read at once. K is padded to a multiple of `unit`.
    """

    intrinsic: str
    a: str
    b: str
    depth: int
    register: int
    loaded: int
    unit: int
    square: bool = False
    adds: bool = True  # to its first operand; else it takes two, and the addition is ours
    shifted: bool = False  # A is i8, and is taken as u8: 128 more, whose products are subtracted in the end

    @property
    def elements(self) -> int:
        """Elements of B in a register."""
        return self.register // DTYPES[self.b].bytes

    def call(self, code: Code, acc: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """The new `acc`."""
        operands = [acc, a, b] if self.adds else [a, b]
        made = code.op(
            "llvm.call_intrinsic", [acc.type], operands, intrin=ir.StringAttr.get(self.intrinsic),
            operandSegmentSizes=ir.DenseI32ArrayAttr.get([len(operands), 0]), op_bundle_sizes=ir.DenseI32ArrayAttr.get([]),
        )  # fmt: skip
        return made if self.adds else numeric.add(code, acc, made)


def instructions(vector_bits: int, intrinsics: Mapping[str, str]) -> dict[tuple[str, str], Instruction]:
    """The best instruction for each pair of dtypes of A and B in memory; `intrinsics` are named as in `targets.Features`."""

    def arm(name: str, a: str, b: str, depth: int, square: bool) -> Instruction:
        loaded = ARM_REGISTER // DTYPES[a].bytes
        return Instruction(intrinsics[name], a, b, depth, ARM_REGISTER, loaded, loaded, square)

    def x86(name: str, a: str, depth: int, **how: bool) -> Instruction:
        return Instruction(
            intrinsics[name], a, "i16" if a == "i16" else "i8", depth, vector_bits // 8, depth, 16, **how
        )

    found: dict[tuple[str, str], Instruction] = {}  # the better ones come later
    if "i16_pair" in intrinsics:
        pair = x86("i16_pair", "i16", 2, adds=False)
        found.update({(a, b): pair for a in ("i8", "u8") for b in ("i8", "u8")})
    if "u8_dot" in intrinsics:
        found["u8", "i8"] = x86("u8_dot", "u8", 4)
        found["i8", "i8"] = x86("u8_dot", "u8", 4, shifted=True)
    for name, a, b, depth in _ARM:
        if name in intrinsics:
            found[a, b] = arm(name, a, b, depth, square=name.endswith("square"))
    return found


def bf16_pairs(intrinsics: Mapping[str, str]) -> Instruction | None:
    """`bfdot`, which few rows take: it needs no other layout of B."""
    name = intrinsics.get("bf16_dot")
    return Instruction(name, "bf16", "bf16", 2, ARM_REGISTER, 8, 8) if name else None


def shuffle(code: Code, x: ir.Value, y: ir.Value, mask: Sequence[int]) -> ir.Value:
    """Elements `mask` of `x` and `y` one after the other."""
    made = ir.VectorType.get([len(mask)], ir.VectorType(x.type).element_type)
    return code.op("vector.shuffle", [made], [x, y], mask=ir.DenseI64ArrayAttr.get(list(mask)))
