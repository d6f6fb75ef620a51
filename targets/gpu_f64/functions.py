"""The table of functions, and their definitions as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from . import error_function, exponentials, logarithms, powers, trigonometry
from .value import Value

# name: (formula, operands)
_FORMULAS: dict[str, tuple[Callable[..., Value], int]] = {
    "exp": (exponentials.exp, 1),
    "exp2": (exponentials.exp2, 1),
    "expm1": (exponentials.expm1, 1),
    "sinh": (exponentials.sinh, 1),
    "cosh": (exponentials.cosh, 1),
    "tanh": (exponentials.tanh, 1),
    "log": (logarithms.log, 1),
    "log2": (logarithms.log2, 1),
    "log10": (logarithms.log10, 1),
    "log1p": (logarithms.log1p, 1),
    "asinh": (logarithms.asinh, 1),
    "acosh": (logarithms.acosh, 1),
    "atanh": (logarithms.atanh, 1),
    "sin": (trigonometry.sin, 1),
    "cos": (trigonometry.cos, 1),
    "tan": (trigonometry.tan, 1),
    "asin": (trigonometry.asin, 1),
    "acos": (trigonometry.acos, 1),
    "atan": (trigonometry.atan, 1),
    "atan2": (trigonometry.atan2, 2),
    "erf": (error_function.erf, 1),
    "erfc": (error_function.erfc, 1),
    "pow": (powers.pow, 2),
    "rsqrt": (lambda x: 1.0 / x.intrinsic("sqrt"), 1),
}
NAMES = frozenset((*_FORMULAS, "fmod"))
DECLARATIONS = "\n".join(
    (
        "declare double @llvm.rint.f64(double)",
        "declare i64 @llvm.fptosi.sat.i64.f64(double)",
    )
)


def definition(name: str, full: str) -> str:
    """The definition of function `name` under its `full` name on a machine. It is a function of its own: they are long."""
    if name == "fmod":
        return f"define linkonce_odr hidden double @{full}(double %x, double %y) {{\nentry:{powers.FMOD}\n}}"
    formula, count = _FORMULAS[name]
    lines: list[str] = []
    operands = ["%x", "%y"][:count]
    made = formula(*(Value(lines, o) for o in operands))
    body = "\n".join(f"  {line}" for line in lines)
    signature = ", ".join(f"double {o}" for o in operands)
    return f"define linkonce_odr hidden double @{full}({signature}) {{\n{body}\n  ret double {made.text}\n}}"
