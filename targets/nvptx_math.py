"""The `__nv_*` functions on NVIDIA GPUs: how PTX spells approximations, and what is best written with its own.

Largest errors over the range, in ulp: exp 1.9; the others are in gpu_math.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import gpu_math
from .gpu_math import F32, LOG2_E, Spelling

_PTX = {"exp2": "ex2.approx.ftz", "rcp": "rcp.approx.ftz", "rsqrt": "rsqrt.approx"}


def definitions(names: Iterable[str]) -> tuple[str, set[str]]:
    """LLVM IR that defines the functions in `names`, and those that nothing defines."""
    return gpu_math.definitions(_SPELLING, names)


def _split(full: str) -> tuple[str, str]:
    """`__nv_expf` → ("exp", "f32"); f64 functions have no suffix."""
    name = full.removeprefix("__nv_")
    if name in _DOUBLE_F or not name.endswith("f"):
        return name, "f64"
    return name[:-1], "f32"


def _name(function: str, type: str) -> str:
    return f"__nv_{function}{'f' if type == 'f32' else ''}"


_DOUBLE_F = ("erf",)  # f64 functions whose names end in f


def ptx(f: F32, instruction: str, *xs: str | float) -> str:
    """One PTX instruction on f32."""
    return f.emit(_assembly(instruction, *map(f.operand, xs)))


def _assembly(instruction: str, *operands: str) -> str:
    places = ", ".join(f"${i}" for i in range(len(operands) + 1))
    given = ", ".join(f"float {x}" for x in operands)
    return f'call float asm "{instruction}.f32 {places};", "=f{",f" * len(operands)}"({given})'


def _exp() -> str:
    """2^j * 2^r with j = round(x log2 e): a saturating fma rounds and clamps at once, and lets NaN pass."""
    f = F32(_SPELLING, "exp")
    t = ptx(f, "fma.rn.sat", "%x", LOG2_E / 252, 0.5)
    m = ptx(f, "fma.rm", t, 252.0, 12582913.0)
    j = f.binary("fadd", m, -12583039.0)
    r = f.fma("%x", 1.44269502, f.emit(f"fneg float {j}"))
    r = f.fma("%x", 1.92596299e-8, r)
    scale = f.emit(f"bitcast float {m} to i32")
    scale = f.emit(f"bitcast i32 {f.emit(f'shl i32 {scale}, 23')} to float")
    return f.done(f.binary("fmul", ptx(f, "ex2.approx.ftz", r), scale))


def _exp2() -> str:
    f = F32(_SPELLING, "exp2")
    return f.done(ptx(f, "ex2.approx", "%x"))


def _rsqrt() -> str:
    f = F32(_SPELLING, "rsqrt")
    return f.done(f.approximate("rsqrt", "%x"))


_SPELLING = Spelling(
    split=_split,
    name=_name,
    approximate=lambda function, x: _assembly(_PTX[function], x),
    own={("exp", "f32"): _exp, ("exp2", "f32"): _exp2, ("rsqrt", "f32"): _rsqrt},
)
