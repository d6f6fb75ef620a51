"""Ops of LLVM's and the vendors' dialects that several emitters write: addresses in bytes, inline assembly, votes, the wait for a launch."""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ..loops.op_builder import OpBuilder

_DYNAMIC = -(2**31)  # an index of `getelementptr` that is an operand


def byte_address(b: OpBuilder, base: ir.Value, offset: ir.Value) -> ir.Value:
    """The address `offset` bytes, an i32 or i64, behind `base`."""
    return b.value(
        "llvm.getelementptr",
        (base, offset),
        base.type,
        elem_type=ir.TypeAttr.get(ir.IntegerType.get_signless(8)),
        rawConstantIndices=ir.DenseI32ArrayAttr.get([_DYNAMIC]),
        noWrapFlags=b.number(0, b.i32),
    )


def inline_assembly(
    b: OpBuilder,
    text: str,
    constraints: str,
    operands: Sequence[ir.Value],
    results: Sequence[ir.Type] = (),
    effects: bool = True,
) -> ir.Operation:
    """Instructions of the machine, which stay where they are if they have side `effects`."""
    attributes = {
        "asm_string": ir.StringAttr.get(text),
        "constraints": ir.StringAttr.get(constraints),
        "asm_dialect": b.number(0, b.i64),
        **({"has_side_effects": ir.UnitAttr.get()} if effects else {}),
    }
    return b.op("llvm.inline_asm", operands, results, attributes)


def wait_for_launch(b: OpBuilder) -> None:
    """Wait until the launch before has ended, here and not at the start of the kernel (overlap_launches.py)."""
    b.op("nvvm.griddepcontrol", (), attributes={"kind": b.attribute("#nvvm<grid_dep_action wait>")})


def ballot(b: OpBuilder, op: str, wave: int, holds: ir.Value) -> ir.Value:
    """A word of a bit for each of `wave` lanes, all of which are here: whether it `holds` there, by the vote of a vendor's dialect."""
    word = ir.IntegerType.get_signless(wave)
    if op == "nvvm.vote.sync":
        kind = b.attribute("#nvvm<vote_sync_kind ballot>")
        return b.value(op, (b.constant(-1, b.i32), holds), word, kind=kind)
    return b.value(op, (holds,), word)
