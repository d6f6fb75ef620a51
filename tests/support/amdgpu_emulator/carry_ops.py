"""Lane-wise instructions with two results: sums with carries, 64-bit products and sums, exchanges."""

from __future__ import annotations

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .operands import I64, MASK, U32, U64, parse_operand, undefined_where, vector_reader
from .registry import Run, builds, refuse
from .vector_alu import source
from .waves import Waves


@builds(r"v_(add|sub|subrev|addc|subb|subbrev)(_co)?(_ci)?_u32")
def carry(instruction: Instruction, chip: Chip) -> Run:
    """`v_add_co_u32 d, carry out, x, y[, carry in]` and its relatives."""
    name = instruction.name
    to, out = parse_operand(instruction.operands[0]), parse_operand(instruction.operands[1])
    with_carry = name.split("_")[1] in ("addc", "subb", "subbrev") or "_ci_" in name
    operands = [parse_operand(t) for t in instruction.operands[2:4]]
    x, y = (source(instruction, i, operand, U32) for i, operand in enumerate(operands))
    carry_in = vector_reader(parse_operand(instruction.operands[4]), MASK) if with_carry else None
    if "rev" in name:
        x, y = y, x
    sign = 1 if "add" in name else -1

    def run(w: Waves) -> None:
        total = x(w).astype(I64) + sign * y(w).astype(I64)
        if carry_in:
            total = total + sign * carry_in(w)
        total = np.broadcast_to(total, w.mask.shape)
        w.write_lanes(out.row, (total < 0) | (total > 0xFFFFFFFF))
        w.write_vector(to.row, total.astype(U32))

    return run


@builds(r"v_mad(_co)?_([ui])64_[ui]32")
def mad_64(instruction: Instruction, chip: Chip) -> Run:
    """`v_mad_u64_u32 d, carry out, x, y, z`: the 64-bit x·y + z; the carry must be unused."""
    to = parse_operand(instruction.operands[0])
    narrow, wide = (np.dtype(np.int32), I64) if "i64" in instruction.name else (U32, U64)
    x, y = (vector_reader(parse_operand(instruction.operands[i]), narrow) for i in (2, 3))
    added = parse_operand(instruction.operands[4])
    z, low = vector_reader(added, wide, lenient=True), vector_reader(added.at(0), U32)
    high = [[added.row + 1] if added.kind == kind else [] for kind in "vs"]

    def run(w: Waves) -> None:
        low(w)  # the upper half may be undefined where only the lower one of the sum is used
        unknown = w.unknown(*high)
        total = (x(w).astype(wide) * y(w).astype(wide) + z(w)).view(U64)
        w.write_vector(to.row, total.astype(U32))
        w.write_vector(to.row + 1, (total >> np.uint64(32)).astype(U32), unknown=unknown)

    return run


@builds(r"v_swap_b(16|32)")
def swap(instruction: Instruction, chip: Chip) -> Run:
    """Exchange two registers, defined or not."""
    if instruction.name.endswith("16"):
        raise refuse(instruction, "halves")
    x, y = (parse_operand(t) for t in instruction.operands)
    rows, unknown = (x.row, y.row), [undefined_where([o]) for o in (y, x)]

    def run(w: Waves) -> None:
        values = [w.vector(row, lenient=True).copy() for row in reversed(rows)]
        lacking = [u(w) for u in unknown]
        for row, value, where in zip(rows, values, lacking):
            w.write_vector(row, value, unknown=where)

    return run
