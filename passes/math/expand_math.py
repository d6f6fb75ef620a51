"""Expand what the machine has no instruction for: functions of the math dialect, conversions of bf16 and of 8 bits, bounds.

The expansions are branch-free, so a loop around them vectorises, and work on scalars and vectors alike. f64 stays for
libm, but for expm1. Each function's file says how accurate it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mlir import ir

from ..find_ops import find_ops
from ..lane_types import element_of
from ..registry import register
from . import erf, exp, log, pow, trig
from .builder import MathBuilder
from .float8 import FORMATS, f32_to_float8, float8_to_f32
from .halves import bf16_to_f32, f32_to_bf16, select_bf16


@register
def expand_math(module: ir.Module, keep: tuple[str, ...] = (), halves: bool = True) -> None:
    """Replace math functions and constant bounds (but those in `keep`) and conversions of f8… and (with `halves`) bf16 by arithmetic.

    Before:
    ```mlir
    %y = math.exp %x : f32
    ```
    After:
    ```mlir
    %n = math.roundeven ... %p = math.fma ... %y = arith.mulf ... : f32
    ```
    """

    def suits(op: ir.Operation) -> bool:
        kept = op.name.partition(".")[2] in keep
        return op.name in (*EXPANSIONS, *BOUNDS) and not kept or op.name in HALVES and (halves or _is_of_float8(op))

    with module.context, ir.Location.unknown():
        # those of BOUNDS first, while their bounds are constants
        for op in sorted(find_ops(module.operation, suits), key=lambda op: op.name not in BOUNDS):
            if not _expand_with_user(op):
                _expand(op)


def _expand_with_user(op: ir.Operation) -> bool:
    """Expand `erf(x) + 1`, the heart of gelu, as one function; True if `op` was that."""
    if op.name != "math.erf" or not isinstance(element_of(op.results[0].type), ir.F32Type):
        return False
    uses = list(op.results[0].uses)
    if len(uses) != 1 or uses[0].owner.operation.name != "arith.addf":
        return False
    user = uses[0].owner.operation
    other = next((x for x in user.operands if x != op.results[0]), None)
    if other is None or _constant(other) != 1.0:
        return False
    user.results[0].replace_all_uses_with(erf.one_plus_erf(MathBuilder(op), op.operands[0]))
    user.erase()
    op.erase()
    return True


def _constant(value: ir.Value) -> float | None:
    """The number that a float constant is, scalar, splat, broadcast or widened."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    if op.name in ("vector.broadcast", "arith.extf"):
        return _constant(op.operands[0])
    if op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    return attribute.value if isinstance(attribute, ir.FloatAttr) else None


def _expand(op: ir.Operation) -> None:
    special = {
        "arith.select": _select,
        "arith.extf": _widened,
        "arith.truncf": _narrowed,
        **dict.fromkeys(BOUNDS, _bounded),
    }
    made = special.get(op.name, _function)(op)
    if made is not None:
        op.results[0].replace_all_uses_with(made)
        op.erase()


def _select(op: ir.Operation) -> ir.Value | None:
    return select_bf16(MathBuilder(op), *op.operands) if _is_bf16(op.results[0].type) else None


def _bounded(op: ir.Operation) -> ir.Value | None:
    """`x < bound ? bound : x` for the larger of `x` and a constant: one `maxps` on x86, where eager keeps the sign of a zero
    that equals the bound by the same instruction. None for two values that vary, a bound of NaN, and bf16."""
    x, bound = op.operands if _constant(op.operands[1]) is not None else reversed(list(op.operands))
    number = _constant(bound)
    if number is None or math.isnan(number) or _is_bf16(x.type):
        return None
    m = MathBuilder(op)
    return m.select(m.compare("lt" if op.name == "arith.maximumf" else "gt", x, bound), bound, x)


def _widened(op: ir.Operation) -> ir.Value | None:
    """From 8 bits or bf16 by way of f32; None for f16 and f32, which machines widen."""
    x, m = op.operands[0], MathBuilder(op)
    if (source := str(element_of(x.type))) in FORMATS:
        return _resized(m, float8_to_f32(m, x, source), op.results[0].type)
    return _resized(m, bf16_to_f32(m, x), op.results[0].type) if _is_bf16(x.type) else None


def _narrowed(op: ir.Operation) -> ir.Value | None:
    """To 8 bits or bf16 by way of f32; None for f16 and f32."""
    x, m = op.operands[0], MathBuilder(op)
    if (target := str(element_of(op.results[0].type))) in FORMATS:
        return f32_to_float8(m, _resized(m, x, m.f32), target)
    return f32_to_bf16(m, _resized(m, x, m.f32)) if _is_bf16(op.results[0].type) else None


def _resized(m: MathBuilder, x: ir.Value, type: ir.Type) -> ir.Value:
    """`x` as a float of another width."""
    old, new = (ir.FloatType(element_of(t)).width for t in (x.type, type))
    return x if old == new else m.op("arith.extf" if old < new else "arith.truncf", [x], type)


def _function(op: ir.Operation) -> ir.Value | None:
    """A function of f32; of f64 expm1 only."""
    m, result = MathBuilder(op), element_of(op.results[0].type)
    if op.name == "math.expm1" and isinstance(result, ir.F64Type):
        return exp.expm1_f64(m, op.operands[0])
    if not isinstance(result, ir.F32Type):
        return None
    expand = EXPANSIONS[op.name]
    if exp.NONPOSITIVE in op.attributes:
        expand = exp.exp_scaled if exp.ANY_SCALE in op.attributes else exp.exp_nonpositive
    return expand(m, *op.operands)


def _is_bf16(type: ir.Type) -> bool:
    return isinstance(element_of(type), ir.BF16Type)


def _is_of_float8(op: ir.Operation) -> bool:
    """True for a conversion from or to a float of 8 bits."""
    return op.name != "arith.select" and any(
        str(element_of(v.type)) in FORMATS for v in (op.operands[0], op.results[0])
    )


BOUNDS = ("arith.maximumf", "arith.minimumf")
HALVES = ("arith.extf", "arith.truncf", "arith.select")
EXPANSIONS: dict[str, Callable[..., ir.Value]] = {
    f"math.{f.__name__}": f
    for f in (
        *(exp.exp, exp.exp2, exp.expm1, exp.tanh, exp.sinh, exp.cosh),
        *(log.log, log.log2, log.log10, log.log1p, log.asinh, log.acosh, log.atanh),
        *(erf.erf, erf.erfc, pow.powf),
        *(trig.sin, trig.cos, trig.tan, trig.asin, trig.acos, trig.atan, trig.atan2),
    )
}
