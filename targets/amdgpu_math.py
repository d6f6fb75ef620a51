"""The `__ocml_*` functions on AMD GPUs, without AMD's device library.

`exp` and `exp2` are LLVM's expansions around `v_exp_f32`, within 1 ulp; the others are in gpu_math.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import gpu_math
from .gpu_math import F32, Spelling, function

_APPROXIMATIONS = {"exp2": "exp2", "rcp": "rcp", "rsqrt": "rsq"}
_SMALL = 2.0**-100  # below, v_rsq_f32 may take its operand for zero


def definitions(names: Iterable[str]) -> tuple[str, set[str]]:
    """LLVM IR that defines the functions in `names`, and those that nothing defines."""
    text, missing = gpu_math.definitions(_SPELLING, names)
    declared = "\n".join(f"declare float @llvm.amdgcn.{i}.f32(float)" for i in _APPROXIMATIONS.values())
    return f"{declared}\ndeclare float @llvm.exp2.f32(float)\ndeclare float @llvm.exp.f32(float)\n{text}", missing


def _split(full: str) -> tuple[str, str]:
    """`__ocml_exp_f32` → ("exp", "f32")."""
    name, _, type = full.removeprefix("__ocml_").rpartition("_")
    return name, type


def _name(function: str, type: str) -> str:
    return f"__ocml_{function}_{type}"


def _intrinsic(name: str) -> str:
    return function(
        f"float @{_name(name, 'f32')}(float %x)", [f"%y = call float @llvm.{name}.f32(float %x)", "ret float %y"]
    )


def _rsqrt() -> str:
    """Small numbers are scaled: rsqrt(x) = 2^50 rsqrt(2^100 x)."""
    f = F32(_SPELLING, "rsqrt")
    small = f.compare("olt", "%x", _SMALL)
    scaled = f.binary("fmul", "%x", f.select(small, 2.0**100, 1.0))
    return f.done(f.binary("fmul", f.approximate("rsqrt", scaled), f.select(small, 2.0**50, 1.0)))


_SPELLING = Spelling(
    split=_split,
    name=_name,
    approximate=lambda function, x: f"call float @llvm.amdgcn.{_APPROXIMATIONS[function]}.f32(float {x})",
    own={
        ("exp", "f32"): lambda: _intrinsic("exp"),
        ("exp2", "f32"): lambda: _intrinsic("exp2"),
        ("rsqrt", "f32"): _rsqrt,
    },
)
