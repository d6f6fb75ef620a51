"""The AMD emulator on lane-wise code from LLVM: arithmetic, conversions, comparisons, divisions of all types.

A row is a kernel `o[i] = f(x[i], y[i])`; all rows of a chip are one code object. Values must equal numpy's bit for
bit (NaNs among each other), but for functions that LLVM itself computes with an error. Each row runs on one chip, by
turns; all chips are for `make test-full`.
"""

import functools

import ml_dtypes
import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_emulator import launch

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")

COUNT, BLOCK = 200, 64  # the last workgroup is partly off
LLVM = {"f": "float", "e": "half", "d": "double", "i4": "i32", "i8": "i64", "i2": "i16", "i1": "i8", "u2": "bfloat"}
F = {"e": "f16", "f": "f32", "d": "f64"}


def call(name, *types):
    """`r = call name(x0, x1 …)` with the type of the first operand."""
    arguments = ", ".join(f"{LLVM[t]} %x{i}" for i, t in enumerate(types))
    return f"%r = call {LLVM[types[0]]} @llvm.{name}({arguments})"


def unsigned(x):
    return x.view(f"u{x.itemsize}")


def saturated(x, dtype):
    limits = np.iinfo(dtype)
    wide = [0 if np.isnan(v) else int(np.clip(np.trunc(v), -1e30, 1e30)) for v in x.astype("d")]
    return np.array([min(max(v, limits.min), limits.max) for v in wide], dtype)


def quotient(a, b):
    """Division of integers toward zero."""
    return np.array([abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b)], a.dtype)


ROWS = {}  # name: (types of the inputs, type of the output, IR, numpy, tolerance)


def row(name, inputs, output, ir, expected, tolerance=0):
    ROWS[name] = (inputs, output, ir, expected, tolerance)


for t, s in F.items():
    for name, function in {"fadd": np.add, "fmul": np.multiply, "fdiv": np.divide}.items():
        row(f"{name} {s}", (t, t), t, f"%r = {name} {LLVM[t]} %x0, %x1", function)
    for name, function in {"floor": np.floor, "rint": np.rint, "sqrt": np.sqrt, "fabs": np.abs}.items():
        row(f"{name} {s}", (t,), t, call(f"{name}.{s}", t), function)
    for name, function in {"maxnum": np.fmax, "minimum": np.minimum, "copysign": np.copysign}.items():
        row(f"{name} {s}", (t, t), t, call(f"{name}.{s}", t, t), function)
    exact = lambda a, b, c: (a.astype("g") * b.astype("g") + c.astype("g")).astype(a.dtype)
    row(f"fma {s}", (t, t, t), t, call(f"fma.{s}", t, t, t), exact)
    ir = f"%n = fneg {LLVM[t]} %x1\n %c = fcmp olt {LLVM[t]} %x0, %n\n %r = select i1 %c, {LLVM[t]} %x0, {LLVM[t]} %x1"
    row(f"compare {s}", (t, t), t, ir, lambda a, b: np.where(a < -b, a, b))
    ir = f"%c = call i1 @llvm.is.fpclass.{s}({LLVM[t]} %x0, i32 516)\n %r = select i1 %c, i32 1, i32 0"
    row(f"class {s}", (t,), "i4", ir, np.isinf)
    for i in ("i4", "i2", "i1", *(["i8"] if t == "f" else [])):
        ir = f"%r = call {LLVM[i]} @llvm.fptosi.sat.{LLVM[i]}.{s}({LLVM[t]} %x0)"
        row(f"{s} to {i}", (t,), i, ir, functools.partial(saturated, dtype=i))
        row(f"{i} to {s}", (i,), t, f"%r = uitofp {LLVM[i]} %x0 to {LLVM[t]}", lambda x, t=t: unsigned(x).astype(t))
row("f64 to f32", ("d",), "f", "%r = fptrunc double %x0 to float", lambda x: x.astype("f"))
row("f32 to f16", ("f",), "e", "%r = fptrunc float %x0 to half", lambda x: x.astype("e"))
to_bf16 = lambda x: np.where(np.isnan(x), 0, x).astype(ml_dtypes.bfloat16).view("u2")
ir = "%n = fcmp uno float %x0, %x0\n %v = select i1 %n, float 0.0, float %x0\n %r = fptrunc float %v to bfloat"
row("f32 to bf16", ("f",), "u2", ir, to_bf16)
sine = lambda x: np.where(np.abs(x) < 1600, np.sin(x), 0 * x)  # the instruction's domain is 256 revolutions
for name, function in {"exp2": np.exp2, "log2": np.log2, "sin": sine}.items():
    row(name, ("f",), "f", call(f"{name}.f32", "f"), lambda x, f=function: f(x.astype("d")), 1e-5)
row(
    "frexp",
    ("f",),
    "f",
    "%s = call {float, i32} @llvm.frexp.f32.i32(float %x0)\n %r = extractvalue {float, i32} %s, 0",
    lambda x: np.frexp(x)[0],
)
ir = "%n = srem i32 %x1, 100\n %r = call float @llvm.ldexp.f32.i32(float %x0, i32 %n)"
row("ldexp", ("f", "i4"), "f", ir, lambda x, n: np.ldexp(x, np.fmod(n, 100)))
for t in ("i1", "i2", "i4", "i8"):
    n, bits = LLVM[t], 8 * np.dtype(t).itemsize
    for name, function in {"add": np.add, "mul": np.multiply, "xor": np.bitwise_xor}.items():
        row(f"{name} {n}", (t, t), t, f"%r = {name} {n} %x0, %x1", function)
    for name, function in {"shl": np.left_shift, "lshr": np.right_shift, "ashr": np.right_shift}.items():
        view = (lambda x: x) if name == "ashr" else unsigned
        shifted = lambda a, b, f=function, v=view, k=bits: f(v(a), v(b & (k - 1)))
        row(f"{name} {n}", (t, t), t, f"%m = and {n} %x1, {bits - 1}\n %r = {name} {n} %x0, %m", shifted)
    row(f"sdiv {n}", (t, t), t, f"%m = or {n} %x1, 1\n %r = sdiv {n} %x0, %m", lambda a, b: quotient(a, b | 1))
    row(
        f"urem {n}",
        (t, t),
        t,
        f"%m = or {n} %x1, 1\n %r = urem {n} %x0, %m",
        lambda a, b: unsigned(a) % unsigned(b | 1),
    )
    row(f"smax {n}", (t, t), t, call(f"smax.{n}", t, t), np.maximum)
    row(f"umin {n}", (t, t), t, call(f"umin.{n}", t, t), lambda a, b: np.minimum(unsigned(a), unsigned(b)))
    ones = lambda x: [bin(v).count("1") for v in unsigned(x).tolist()]
    row(f"ctpop {n}", (t,), t, call(f"ctpop.{n}", t), ones)
    ir = f"%r = call {n} @llvm.ctlz.{n}({n} %x0, i1 false)"
    row(f"ctlz {n}", (t,), t, ir, lambda x, k=bits: [k - v.bit_length() for v in unsigned(x).tolist()])
    total = lambda a, b, k=bits: [min(x + y, 2**k - 1) for x, y in zip(unsigned(a).tolist(), unsigned(b).tolist())]
    row(
        f"uadd.sat {n}",
        (t, t),
        t,
        call(f"uadd.sat.{n}", t, t),
        lambda a, b, f=total: np.array(f(a, b), f"u{a.itemsize}"),
    )


def kernel(number, inputs, output, ir):
    lines = [f"define amdgpu_kernel void @k{number}(ptr addrspace(1) noalias %o"]
    lines += [f", ptr addrspace(1) noalias %p{i}" for i in range(len(inputs))]
    lines += [") #0 {\n %t = call i32 @llvm.amdgcn.workitem.id.x()\n %w = call i32 @llvm.amdgcn.workgroup.id.x()\n"]
    lines += [f" %b = mul i32 %w, {BLOCK}\n %i = add i32 %b, %t\n %in = icmp ult i32 %i, {COUNT}\n"]
    lines += [" br i1 %in, label %do, label %done\ndo:\n"]
    for i, t in enumerate(inputs):
        lines += [f" %q{i} = getelementptr {LLVM[t]}, ptr addrspace(1) %p{i}, i32 %i\n"]
        lines += [f" %x{i} = load {LLVM[t]}, ptr addrspace(1) %q{i}\n"]
    lines += [f" {ir}\n %q = getelementptr {LLVM[output]}, ptr addrspace(1) %o, i32 %i\n"]
    lines += [f" store {LLVM[output]} %r, ptr addrspace(1) %q\n br label %done\ndone:\n ret void\n}}\n"]
    return "".join(lines)


@functools.cache
def code(chip):
    text = "".join(kernel(n, *ROWS[name][:3]) for n, name in enumerate(ROWS))
    return amdgpu_code.compile_ir(text + f'attributes #0 = {{ "amdgpu-flat-work-group-size"="{BLOCK},{BLOCK}" }}', chip)


def values(t, seed):
    rng = np.random.default_rng(seed)
    if t in F:
        x = (3 * rng.standard_normal(COUNT)).astype(t)
        x[:10] = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, np.finfo(t).max, 100 * np.finfo(t).tiny]
        return rng.permutation(x)
    limits = np.iinfo(t)
    x = rng.integers(limits.min, limits.max, COUNT, dtype=t, endpoint=True)
    x[:4] = [0, 1, limits.min, limits.max]
    return rng.permutation(x)


CASES = [
    pytest.param(name, chip, marks=() if number % len(amdgpu_code.CHIPS) == turn else pytest.mark.full)
    for number, name in enumerate(ROWS)
    for turn, chip in enumerate(amdgpu_code.CHIPS)
]


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_lane_wise_code(name, chip):
    inputs, output, _, expected, tolerance = ROWS[name]
    given, out = [values(t, seed) for seed, t in enumerate(inputs)], np.zeros(COUNT, output)
    launch(code(chip), f"k{list(ROWS).index(name)}", (-(-COUNT // BLOCK),), (BLOCK,), [out, *given])
    with np.errstate(all="ignore"):
        wanted = np.asarray(expected(*given))
    wanted = wanted.view(output) if wanted.dtype.kind == "u" and out.dtype.kind == "i" else wanted.astype(output)
    if tolerance:
        np.testing.assert_allclose(out, wanted, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(out, wanted)
