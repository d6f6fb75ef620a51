"""Our definitions of the `__nv_*` functions that MLIR's GPU conversion calls, as LLVM IR.

NVIDIA's own library is not needed: most are one instruction, and the others are built from the machine's `ex2`, `rcp`
and `rsqrt` approximations and fused multiply-adds. Largest errors over the range, in ulp: exp 1.9, tanh 2.6, erf 1.3;
`sqrt` and division round correctly. Functions missing here are made arithmetic before (`lamina-expand-math`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

# name of the __nv_ function without its f: (LLVM intrinsic, operands)
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


def definitions(names: Iterable[str]) -> tuple[str, set[str]]:
    """LLVM IR that defines the functions in `names`, and those that nothing defines."""
    bodies, missing = [], set()
    for full in sorted(names):
        name = full.removeprefix("__nv_")
        if name in _FUNCTIONS:
            bodies.append(_FUNCTIONS[name]())
        elif name.removesuffix("f") in _INTRINSICS:
            bodies.append(_intrinsic(name))
        else:
            missing.add(full)
    declared = [
        f"declare {t} @llvm.{i}.{s}({', '.join([t] * n)})"
        for t, s in (("float", "f32"), ("double", "f64"))
        for i, n in dict(_INTRINSICS.values()).items()
    ]
    return "\n".join([*declared, *bodies]), missing


def _intrinsic(name: str) -> str:
    single = name not in _INTRINSICS
    type, suffix = ("float", "f32") if single else ("double", "f64")
    intrinsic, count = _INTRINSICS[name.removesuffix("f") if single else name]
    arguments = ", ".join(f"{type} %x{i}" for i in range(count))
    return _function(
        f"{type} @__nv_{name}({arguments})",
        [f"%y = call {type} @llvm.{intrinsic}.{suffix}({arguments})", f"ret {type} %y"],
    )


def _function(signature: str, lines: Iterable[str]) -> str:
    """A definition that is inlined wherever it is called; `internal` ones would not resolve declarations."""
    body = "\n".join(f"  {line}" if not line.endswith(":") else line for line in lines)
    return f"define linkonce_odr hidden {signature} alwaysinline {{\n{body}\n}}"


def _hex(x: float) -> str:
    """An f32 constant as LLVM writes it: the bits of the double."""
    (single,) = struct.unpack("f", struct.pack("f", x))
    (bits,) = struct.unpack("<Q", struct.pack("<d", single))
    return f"0x{bits:016X}"


class _F32:
    """Writes one f32 function of `%x`, an instruction at a time; floats become constants."""

    def __init__(self, name: str):
        self.name, self.lines = name, list[str]()

    def emit(self, text: str) -> str:
        self.lines.append(f"%t{len(self.lines)} = {text}")
        return f"%t{len(self.lines) - 1}"

    def operand(self, x: str | float) -> str:
        return x if isinstance(x, str) else _hex(x)

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        x, y, z = map(self.operand, (a, b, c))
        return self.emit(f"call float @llvm.fma.f32(float {x}, float {y}, float {z})")

    def binary(self, op: str, a: str | float, b: str | float) -> str:
        return self.emit(f"{op} float {self.operand(a)}, {self.operand(b)}")

    def call(self, intrinsic: str, *xs: str | float) -> str:
        return self.emit(f"call float @llvm.{intrinsic}.f32({', '.join(f'float {self.operand(x)}' for x in xs)})")

    def ptx(self, instruction: str, *xs: str | float) -> str:
        """One PTX instruction."""
        places = ", ".join(f"${i}" for i in range(len(xs) + 1))
        given = ", ".join(f"float {self.operand(x)}" for x in xs)
        return self.emit(f'call float asm "{instruction}.f32 {places};", "=f{",f" * len(xs)}"({given})')

    def select(self, condition: str, a: str, b: str) -> str:
        return self.emit(f"select i1 {condition}, float {a}, float {b}")

    def polynomial(self, x: str, coefficients: Iterable[float], start: str | float | None = None) -> str:
        """Horner's scheme, highest power first."""
        given = list(coefficients)
        value = start if start is not None else given.pop(0)
        for c in given:
            value = self.fma(value, x, c)
        return self.operand(value)

    def done(self, value: str) -> str:
        return _function(f"float @__nv_{self.name}(float %x)", [*self.lines, f"ret float {value}"])


LOG2_E = 1.4426950408889634


def _exp() -> str:
    """2^j * 2^r with j = round(x log2 e): a saturating fma rounds and clamps at once, and lets NaN pass."""
    f = _F32("expf")
    t = f.ptx("fma.rn.sat", "%x", LOG2_E / 252, 0.5)
    m = f.ptx("fma.rm", t, 252.0, 12582913.0)
    j = f.binary("fadd", m, -12583039.0)
    r = f.fma("%x", 1.44269502, f.emit(f"fneg float {j}"))
    r = f.fma("%x", 1.92596299e-8, r)
    scale = f.emit(f"bitcast float {m} to i32")
    scale = f.emit(f"bitcast i32 {f.emit(f'shl i32 {scale}, 23')} to float")
    return f.done(f.binary("fmul", f.ptx("ex2.approx.ftz", r), scale))


def _exp2() -> str:
    f = _F32("exp2f")
    return f.done(f.ptx("ex2.approx", "%x"))


def _rsqrt() -> str:
    f = _F32("rsqrtf")
    return f.done(f.ptx("rsqrt.approx", "%x"))


def _tanh() -> str:
    """An odd polynomial up to 0.55, and 1 - 2 / (1 + e^2x) beyond."""
    f = _F32("tanhf")
    a, square = f.call("fabs", "%x"), f.binary("fmul", "%x", "%x")
    p = f.polynomial(square, (0.0157296831, -0.0523029624, 0.133152977, -0.333327681))
    small = f.fma(f.binary("fmul", p, square), "%x", "%x")
    e = f.ptx("ex2.approx.ftz", f.binary("fmul", a, 2 * LOG2_E))
    large = f.call("copysign", f.fma(f.ptx("rcp.approx.ftz", f.binary("fadd", e, 1.0)), -2.0, 1.0), "%x")
    return f.done(f.select(f.emit(f"fcmp olt float {a}, {_hex(0.55)}"), small, large))


def _erf() -> str:
    """An odd polynomial up to 0.92, and 1 - 2^p(x) beyond."""
    f = _F32("erff")
    t, square = f.call("fabs", "%x"), f.binary("fmul", "%x", "%x")
    r = f.fma(-1.72853470e-5, t, 3.83197126e-4)
    r = f.fma(r, square, f.fma(-3.88396438e-3, t, 2.42546219e-2))
    r = f.polynomial(t, (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1), r)
    r = f.fma(r, t, f.emit(f"fneg float {t}"))
    power = f.ptx("ex2.approx.ftz", f.binary("fmul", r, LOG2_E))
    large = f.call("copysign", f.binary("fsub", 1.0, power), "%x")
    coefficients = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
    small = f.fma(f.polynomial(square, coefficients), "%x", "%x")
    return f.done(f.select(f.emit(f"fcmp ogt float {t}, {_hex(0.921875)}"), large, small))


def _fmod() -> str:
    """The exact remainder: each step takes a multiple of y off x, exactly, in f64; at most seven are needed."""
    return _function(
        "float @__nv_fmodf(float %x, float %y)",
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


_FUNCTIONS: dict[str, Callable[[], str]] = {
    "expf": _exp,
    "exp2f": _exp2,
    "rsqrtf": _rsqrt,
    "tanhf": _tanh,
    "erff": _erf,
    "fmodf": _fmod,
}
