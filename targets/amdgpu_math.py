"""The `__ocml_*` functions on AMD GPUs, without AMD's device library.

`exp` and `exp2` are LLVM's expansions around `v_exp_f32`, within 1 ulp; the others are in gpu_math.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from . import gpu_math
from .gpu_math import F32, TYPES, Spelling, function

# LLVM intrinsics that MLIR's conversion leaves, of scalars or vectors, and the backend aborts on
_INTRINSIC = re.compile(r"@llvm\.(tan|asin|acos|atan|atan2|sinh|cosh|tanh)\.(?:v(\d+))?(f\d+)\(")
_APPROXIMATIONS = {"exp2": "exp2", "rcp": "rcp", "rsqrt": "rsq"}
_SMALL = 2.0**-100  # below, v_rsq_f32 may take its operand for zero


def as_functions(llvm_ir: str) -> str:
    """`llvm_ir` with calls of functions in the place of intrinsics that have no code: `__ocml_tanh_f32_v4` for a vector."""
    return _INTRINSIC.sub(lambda m: f"@{_name(m[1], m[3])}{'_v' + m[2] if m[2] else ''}(", llvm_ir)


def definitions(names: Iterable[str]) -> tuple[str, set[str]]:
    """LLVM IR that defines the functions in `names`, and those that nothing defines."""
    names = set(names)
    vectors = {n for n in names if re.search(r"_v\d+$", n)}
    scalars = names - vectors | {n.rpartition("_v")[0] for n in vectors}
    text, missing = gpu_math.definitions(_SPELLING, scalars)
    text = "\n".join([text, *(_by_lane(n) for n in sorted(vectors) if n.rpartition("_v")[0] not in missing)])
    declared = "\n".join(f"declare float @llvm.amdgcn.{i}.f32(float)" for i in _APPROXIMATIONS.values())
    return f"{declared}\ndeclare float @llvm.exp2.f32(float)\ndeclare float @llvm.exp.f32(float)\n{text}", missing


def _split(full: str) -> tuple[str, str]:
    """`__ocml_exp_f32` → ("exp", "f32")."""
    name, _, type = full.removeprefix("__ocml_").rpartition("_")
    return name, type


def _name(function: str, type: str) -> str:
    return f"__ocml_{function}_{type}"


def _by_lane(full: str) -> str:
    """A function of a vector that calls the scalar one for each lane."""
    scalar, _, count = full.rpartition("_v")
    element = TYPES[_split(scalar)[1]]
    vector = f"<{count} x {element}>"
    lines, made = [], "poison"
    for k in range(int(count)):
        lines += [f"%x{k} = extractelement {vector} %x, i32 {k}", f"%y{k} = call {element} @{scalar}({element} %x{k})"]
        lines.append(f"%z{k} = insertelement {vector} {made}, {element} %y{k}, i32 {k}")
        made = f"%z{k}"
    return function(f"{vector} @{full}({vector} %x)", [*lines, f"ret {vector} {made}"])


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
