"""Roundings of f32 to floats of 8 bits by NVIDIA's instruction, which takes two at once (PTX ISA, `cvt`, since sm_89).

`cvt.rn.satfinite` rounds to nearest, ties to even, lets NaN pass, and makes the largest finite value of all that is too
large: what a `cast` to `f8E4M3FN` means. In `f8E5M2` infinity is the pattern after the largest value (0x7c, 0x7b), so one
is added where `|x|` is at least the tie above that. Widening is left to `lamina-expand-math`: memory takes longer.
"""

from __future__ import annotations

from mlir import ir

from ..find_ops import find_ops
from ..loops.op_builder import comparison
from ..math.builder import MathBuilder
from ..registry import register

INFINITE = {"f8E4M3FN": None, "f8E5M2": 61440.0}  # from where on a value rounds to infinity


@register
def convert_float8(module: ir.Module) -> None:
    """Replace `arith.truncf` of f32 to `f8E4M3FN` and `f8E5M2` by conversions of pairs.

    Before: `%y = arith.truncf %x : vector<8xf32> to vector<8xf8E4M3FN>`
    After: four `nvvm.convert.f32x2.to.f8x2 %x1, %x0 … : i16 (f8E4M3FN)`, and bitcasts of a `vector<4xi16>`.
    """
    suits = lambda op: op.name == "arith.truncf" and _suits(op.operands[0].type, op.results[0].type)
    with module.context, ir.Location.unknown():
        for op in find_ops(module.operation, suits):
            op.results[0].replace_all_uses_with(_converted(MathBuilder(op), op))
            op.erase()


def _suits(source: ir.Type, target: ir.Type) -> bool:
    """One element, or pairs of them."""
    if isinstance(target, ir.VectorType):
        pairs = len(target.shape) == 1 and target.shape[0] % 2 == 0
        return pairs and _suits(ir.VectorType(source).element_type, target.element_type)
    return isinstance(source, ir.F32Type) and str(target) in INFINITE


def _converted(m: MathBuilder, op: ir.Operation) -> ir.Value:
    x, type = op.operands[0], op.results[0].type
    i8, i16 = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(16)
    if not isinstance(type, ir.VectorType):
        byte = m.op("arith.trunci", (_pair(m, x, x, type),), i8)
        return m.op("arith.bitcast", (byte,), type)
    count = type.shape[0]
    lanes = [_lane(m, x, k) for k in range(count)]
    words = [_pair(m, lanes[k], lanes[k + 1], type.element_type) for k in range(0, count, 2)]
    packed = m.op("vector.from_elements", words, ir.VectorType.get([count // 2], i16))
    return m.op("arith.bitcast", (m.op("vector.bitcast", (packed,), m.like(i8)),), type)


def _lane(m: MathBuilder, vector: ir.Value, k: int) -> ir.Value:
    return m.op("vector.extract", (vector,), ir.F32Type.get(), static_position=ir.DenseI64ArrayAttr.get([k]))


def _pair(m: MathBuilder, low: ir.Value, high: ir.Value, format: ir.Type) -> ir.Value:
    """Two numbers as an i16."""
    i16 = ir.IntegerType.get_signless(16)
    attributes = {
        "dstTy": ir.TypeAttr.get(format),
        "rnd": ir.Attribute.parse("#nvvm.fp_rnd_mode<rn>"),
        "sat": ir.Attribute.parse("#nvvm.sat_mode<satfinite>"),
    }
    made = m.op("nvvm.convert.f32x2.to.f8x2", (high, low), i16, **attributes)
    limit = INFINITE[str(format)]
    if limit is None:
        return made
    for x, one in ((low, 1), (high, 1 << 8)):
        size = m.op("math.absf", (x,), x.type)
        compare, i1, at_least = comparison("oge", x.type)
        beyond = m.op(compare, (size, m.const(limit, x.type)), i1, predicate=at_least)
        step = m.op("arith.select", (beyond, m.const(one, i16), m.const(0, i16)), i16)
        made = m.op("arith.addi", (made, step), i16)
    return made
