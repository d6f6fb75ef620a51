"""The math functions that MLIR's GPU conversions call, defined by us as LLVM IR, for any GPU.

No vendor's library is needed: most are one instruction, and the others are built from the machine's approximations of
`exp2`, `rcp` and `rsqrt` and fused multiply-adds. How these are spelled and how functions are called is a `Spelling`.
Largest errors over the range, in ulp: tanh 2.6, erf 1.3; `sqrt` and division round correctly. Functions missing here
are made arithmetic before (`lamina-expand-math`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from . import gpu_f64

# name of a function: (LLVM intrinsic, operands)
_INTRINSICS = {
    "fabs": ("fabs", 1),
    "sqrt": ("sqrt", 1),
    "floor": ("floor", 1),
    "ceil": ("ceil", 1),
    "trunc": ("trunc", 1),
    "rint": ("roundeven", 1),
    "round": ("round", 1),
    "fma": ("fma", 3),
    "copysign": ("copysign", 2),
    "fmax": ("maxnum", 2),
    "fmin": ("minnum", 2),
}
TYPES = {"f16": "half", "f32": "float", "f64": "double"}
LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Spelling:
    """How one machine names functions and writes approximations.

    `split` takes `__nv_expf` apart into ("exp", "f32"); `name` puts it together. `approximate` writes the call of
    `exp2`, `rcp` or `rsqrt` on an f32 operand. `own` are functions that only this machine has so.
    """

    split: Callable[[str], tuple[str, str]]
    name: Callable[[str, str], str]
    approximate: Callable[[str, str], str]
    own: Mapping[tuple[str, str], Callable[[], str]] = field(default_factory=dict)


def definitions(spelling: Spelling, names: Iterable[str]) -> tuple[str, set[str]]:
    """LLVM IR that defines the functions in `names`, and those that nothing defines."""
    bodies, missing = [], set()
    for full in sorted(names):
        name, type = spelling.split(full)
        if (name, type) in spelling.own:
            bodies.append(spelling.own[name, type]())
        elif (name, type) in _FUNCTIONS:
            bodies.append(_FUNCTIONS[name, type](spelling))
        elif type == "f64" and name in gpu_f64.NAMES:
            bodies.append(gpu_f64.definition(name, full))
        elif name in _INTRINSICS and type in TYPES:
            bodies.append(_intrinsic(full, name, type))
        else:
            missing.add(full)
    declared = [
        f"declare {t} @llvm.{i}.{s}({', '.join([t] * n)})"
        for s, t in TYPES.items()
        for i, n in dict(_INTRINSICS.values()).items()
    ]
    return "\n".join([*declared, gpu_f64.DECLARATIONS, *bodies]), missing


def _intrinsic(full: str, name: str, suffix: str) -> str:
    type = TYPES[suffix]
    intrinsic, count = _INTRINSICS[name]
    arguments = ", ".join(f"{type} %x{i}" for i in range(count))
    return function(
        f"{type} @{full}({arguments})", [f"%y = call {type} @llvm.{intrinsic}.{suffix}({arguments})", f"ret {type} %y"]
    )


def function(signature: str, lines: Iterable[str]) -> str:
    """A definition that is inlined wherever it is called; `internal` ones would not resolve declarations."""
    body = "\n".join(f"  {line}" if not line.endswith(":") else line for line in lines)
    return f"define linkonce_odr hidden {signature} alwaysinline {{\n{body}\n}}"


def hexadecimal(x: float) -> str:
    """An f32 constant as LLVM writes it: the bits of the double."""
    (single,) = struct.unpack("f", struct.pack("f", x))
    (bits,) = struct.unpack("<Q", struct.pack("<d", single))
    return f"0x{bits:016X}"


class F32:
    """Writes one f32 function of `%x`, an instruction at a time; floats become constants."""

    def __init__(self, spelling: Spelling, name: str):
        self.spelling, self.name, self.lines = spelling, spelling.name(name, "f32"), list[str]()

    def emit(self, text: str) -> str:
        self.lines.append(f"%t{len(self.lines)} = {text}")
        return f"%t{len(self.lines) - 1}"

    def operand(self, x: str | float) -> str:
        return x if isinstance(x, str) else hexadecimal(x)

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        x, y, z = map(self.operand, (a, b, c))
        return self.emit(f"call float @llvm.fma.f32(float {x}, float {y}, float {z})")

    def binary(self, op: str, a: str | float, b: str | float) -> str:
        return self.emit(f"{op} float {self.operand(a)}, {self.operand(b)}")

    def call(self, intrinsic: str, *xs: str | float) -> str:
        return self.emit(f"call float @llvm.{intrinsic}.f32({', '.join(f'float {self.operand(x)}' for x in xs)})")

    def approximate(self, function: str, x: str) -> str:
        """The machine's approximation of `exp2`, `rcp` or `rsqrt`."""
        return self.emit(self.spelling.approximate(function, x))

    def compare(self, predicate: str, a: str | float, b: str | float) -> str:
        return self.emit(f"fcmp {predicate} float {self.operand(a)}, {self.operand(b)}")

    def select(self, condition: str, a: str | float, b: str | float) -> str:
        return self.emit(f"select i1 {condition}, float {self.operand(a)}, float {self.operand(b)}")

    def polynomial(self, x: str, coefficients: Iterable[float], start: str | float | None = None) -> str:
        """Horner's scheme, highest power first."""
        given = list(coefficients)
        value = start if start is not None else given.pop(0)
        for c in given:
            value = self.fma(value, x, c)
        return self.operand(value)

    def done(self, value: str) -> str:
        return function(f"float @{self.name}(float %x)", [*self.lines, f"ret float {value}"])


def _tanh(spelling: Spelling) -> str:
    """An odd polynomial up to 0.55, and 1 - 2 / (1 + e^2x) beyond."""
    f = F32(spelling, "tanh")
    a, square = f.call("fabs", "%x"), f.binary("fmul", "%x", "%x")
    p = f.polynomial(square, (0.0157296831, -0.0523029624, 0.133152977, -0.333327681))
    small = f.fma(f.binary("fmul", p, square), "%x", "%x")
    e = f.approximate("exp2", f.binary("fmul", a, 2 * LOG2_E))
    large = f.call("copysign", f.fma(f.approximate("rcp", f.binary("fadd", e, 1.0)), -2.0, 1.0), "%x")
    return f.done(f.select(f.compare("olt", a, 0.55), small, large))


def _erf(spelling: Spelling) -> str:
    """An odd polynomial up to 0.92, and 1 - 2^p(x) beyond."""
    f = F32(spelling, "erf")
    t, square = f.call("fabs", "%x"), f.binary("fmul", "%x", "%x")
    r = f.fma(-1.72853470e-5, t, 3.83197126e-4)
    r = f.fma(r, square, f.fma(-3.88396438e-3, t, 2.42546219e-2))
    r = f.polynomial(t, (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1), r)
    r = f.fma(r, t, f.emit(f"fneg float {t}"))
    power = f.approximate("exp2", f.binary("fmul", r, LOG2_E))
    large = f.call("copysign", f.binary("fsub", 1.0, power), "%x")
    coefficients = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
    small = f.fma(f.polynomial(square, coefficients), "%x", "%x")
    return f.done(f.select(f.compare("ogt", t, 0.921875), large, small))


def _fmod(spelling: Spelling) -> str:
    """The exact remainder: each step takes a multiple of y off x, exactly, in f64; at most seven are needed."""
    return function(
        f"float @{spelling.name('fmod', 'f32')}(float %x, float %y)",
        [
            "%a = fpext float %x to double",
            "%b = fpext float %y to double",
            "%size = call double @llvm.fabs.f64(double %b)",
            "%zero = fcmp ueq float %y, 0.0",
            "%finite = fsub float %x, %x",
            "%endless = fcmp uno float %finite, 0.0",
            "%invalid = or i1 %zero, %endless",
            "br label %loop",
            "loop:",
            "%r = phi double [ %a, %0 ], [ %next, %step ]",
            "%n = phi i32 [ 0, %0 ], [ %n1, %step ]",
            "%magnitude = call double @llvm.fabs.f64(double %r)",
            "%more = fcmp oge double %magnitude, %size",
            "%some = icmp ult i32 %n, 8",
            "%go = and i1 %more, %some",
            "br i1 %go, label %step, label %end",
            "step:",
            "%n1 = add i32 %n, 1",
            "%q = fdiv double %r, %b",
            "%whole = call double @llvm.trunc.f64(double %q)",
            "%minus = fneg double %whole",
            "%next = call double @llvm.fma.f64(double %minus, double %b, double %r)",
            "br label %loop",
            "end:",
            "%back = call double @llvm.copysign.f64(double %size, double %a)",
            "%other = fadd double %r, %back",
            "%product = fmul double %r, %a",
            "%wrong = fcmp olt double %product, 0.0",
            "%right = select i1 %wrong, double %other, double %r",
            "%signed = call double @llvm.copysign.f64(double %right, double %a)",
            "%made = fptrunc double %signed to float",
            "%y1 = select i1 %invalid, float 0x7FF8000000000000, float %made",
            "ret float %y1",
        ],
    )


_FUNCTIONS: dict[tuple[str, str], Callable[[Spelling], str]] = {
    ("tanh", "f32"): _tanh,
    ("erf", "f32"): _erf,
    ("fmod", "f32"): _fmod,
}
