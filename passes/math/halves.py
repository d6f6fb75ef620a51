"""bf16 conversions by bit operations: x86-64 has no instruction for them before AVX512-BF16."""

from __future__ import annotations

from mlir import ir

from .builder import MathBuilder


def bf16_to_f32(m: MathBuilder, x: ir.Value) -> ir.Value:
    """Exact: bf16 is the upper half of an f32."""
    i16 = m.like(ir.IntegerType.get_signless(16))
    wide = m.op("arith.extui", (m.op("arith.bitcast", (x,), i16),), m.i32)
    return m.from_bits(m.integer("shli", wide, 16))


def f32_to_bf16(m: MathBuilder, x: ir.Value) -> ir.Value:
    """To nearest, ties to even; NaN becomes the quiet NaN 0x7FC0, as torch rounds.

    NaN is replaced before it is rounded (to itself). Afterwards LLVM would make it a choice of 16-bit lanes by a
    comparison of 32-bit ones, which AVX2 has not: it takes such vectors apart.
    """
    i16, bf16 = m.like(ir.IntegerType.get_signless(16)), m.like(ir.BF16Type.get())
    bits = m.select(m.compare("uno", x, x), m.const(0x7FC00000, m.i32), m.bits(x))
    odd = m.integer("andi", m.integer("shrui", bits, 16), 1)
    rounded = m.integer("shrui", m.integer("addi", m.integer("addi", bits, odd), 0x7FFF), 16)
    return m.op("arith.bitcast", (m.op("arith.trunci", (rounded,), i16),), bf16)


def select_bf16(m: MathBuilder, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """Select as 16-bit integers: LLVM would widen both sides to f32 and round back by a library call."""
    i16, bf16 = m.like(ir.IntegerType.get_signless(16)), m.like(ir.BF16Type.get())
    x, y = (m.op("arith.bitcast", (v,), i16) for v in (a, b))
    return m.op("arith.bitcast", (m.op("arith.select", (condition, x, y), i16),), bf16)
