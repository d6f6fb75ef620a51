"""Matrix instructions of the AMD emulator: products of asymmetric small integers, laid out as AMD's calculator says.

The layouts stand here again as AMD's "Matrix Instruction Calculator" prints them: `A[i][k]` is in lane
`i + M·(block + B·(k / kv))`, element `k % kv`; `D[i][j]` of MFMA in lane `N·(i / 4) % 64 + j`, register
`4·(i / 8) + i % 4` of its block. B is as A with columns for rows.
"""

import ml_dtypes
import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_emulator import EmulatorError, launch

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")

BF16, FP8, BF8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz
OCP8, OCP_BF8 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
IR = """
define amdgpu_kernel void @k(ptr addrspace(1) noalias %o, ptr addrspace(1) noalias %a, ptr addrspace(1) noalias %b,
                             ptr addrspace(1) noalias %c) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {a}, ptr addrspace(1) %a, i32 %t
  %pb = getelementptr {a}, ptr addrspace(1) %b, i32 %t
  %pc = getelementptr {d}, ptr addrspace(1) %c, i32 %t
  %po = getelementptr {d}, ptr addrspace(1) %o, i32 %t
  %x = load {a}, ptr addrspace(1) %pa
  %y = load {a}, ptr addrspace(1) %pb
  %z = load {d}, ptr addrspace(1) %pc
  %r = call {d} @llvm.amdgcn.{call}
  store {d} %r, ptr addrspace(1) %po
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare {d} @llvm.amdgcn.{name}
attributes #0 = {{ "amdgpu-flat-work-group-size"="{width},{width}" }}
"""


def integers(rng, shape, dtype):
    return rng.integers(-4, 5, shape).astype(dtype)


# intrinsic: M, K, blocks, dtypes of A and B, their LLVM type
BOTH = {
    "mfma.f32.32x32x1f32": (32, 1, 2, "f", "f", "float"),
    "mfma.f32.16x16x1f32": (16, 1, 4, "f", "f", "float"),
    "mfma.f32.4x4x1f32": (4, 1, 16, "f", "f", "float"),
    "mfma.f32.32x32x2f32": (32, 2, 1, "f", "f", "float"),
    "mfma.f32.16x16x4f32": (16, 4, 1, "f", "f", "float"),
    "mfma.f32.32x32x4f16": (32, 4, 2, "e", "e", "<4 x half>"),
    "mfma.f32.4x4x4f16": (4, 4, 16, "e", "e", "<4 x half>"),
    "mfma.f32.32x32x8f16": (32, 8, 1, "e", "e", "<4 x half>"),
    "mfma.f32.16x16x16f16": (16, 16, 1, "e", "e", "<4 x half>"),
    "mfma.f32.32x32x8bf16.1k": (32, 8, 1, BF16, BF16, "<4 x i16>"),
    "mfma.f32.16x16x16bf16.1k": (16, 16, 1, BF16, BF16, "<4 x i16>"),
    "mfma.f64.16x16x4f64": (16, 4, 1, "d", "d", "double"),
}
ONLY = {
    "gfx90a": {
        "mfma.i32.32x32x8i8": (32, 8, 1, "i1", "i1", "i32"),
        "mfma.i32.16x16x16i8": (16, 16, 1, "i1", "i1", "i32"),
    },
    "gfx942": {
        "mfma.i32.16x16x32.i8": (16, 32, 1, "i1", "i1", "i64"),
        "mfma.i32.32x32x16.i8": (32, 16, 1, "i1", "i1", "i64"),
        "mfma.f32.16x16x32.fp8.fp8": (16, 32, 1, FP8, FP8, "i64"),
        "mfma.f32.32x32x16.bf8.fp8": (32, 16, 1, BF8, FP8, "i64"),
        "mfma.f32.16x16x8.xf32": (16, 8, 1, "f", "f", "<2 x float>"),
    },
}
MFMA = [(chip, name) for chip, only in ONLY.items() for name in (*BOTH, *only)]


@pytest.mark.parametrize("chip, name", MFMA)
def test_mfma(chip, name):
    m, k, blocks, dtype_a, dtype_b, vector = {**BOTH, **ONLY[chip]}[name]
    rng, each = np.random.default_rng(0), k * blocks * m // 64
    result = {"f32": "f4", "i32": "i4", "f64": "f8"}[name.split(".")[1]]
    a, b = integers(rng, (blocks, m, k), dtype_a), integers(rng, (blocks, k, m), dtype_b)
    c = integers(rng, (blocks, m, m), result)
    x, y = np.zeros((64, each), dtype_a), np.zeros((64, each), dtype_b)
    for block, i, inner in np.ndindex(a.shape):
        lane = i + m * (block + blocks * (inner // each))
        x[lane, inner % each], y[lane, inner % each] = a[block, i, inner], b[block, inner, i]
    registers = m * m * blocks // 64
    places = np.zeros((3, 64, registers), int)
    for block, i, j in np.ndindex(c.shape):
        if m == 4:
            lane, register = 4 * block + j, i
        elif result == "f8":
            lane, register = 16 * (i % 4) + j, i // 4
        else:
            lane = (m * (i // 4)) % 64 + j
            register = registers // blocks * block + (4 * (i // 8) if m == 32 else 0) + i % 4
        places[:, lane, register] = block, i, j
    start, out = c[tuple(places)], np.zeros((64, registers), result)
    d = f"<{registers} x {dict(f4='float', i4='i32', f8='double')[result]}>"
    call = f"{name}({vector} %x, {vector} %y, {d} %z, i32 0, i32 0, i32 0)"
    declared = f"{name}({vector}, {vector}, {d}, i32, i32, i32)"
    text = IR.format(a=vector, d=d, call=call, name=declared, width=64)
    executed = launch(amdgpu_code.compile_ir(text, chip), "k", (1,), (64,), [out, x, y, start])
    product = np.matmul(a.astype("d"), b.astype("d")) + c
    np.testing.assert_array_equal(out, product[tuple(places)])
    assert any(n.startswith("v_mfma") for n in executed)


# intrinsic: dtypes of A, B and D, the LLVM types of A (gfx11, gfx12), what follows the operands
WMMA = {
    "wmma.f32.16x16x16.f16": ("e", "e", "f", ("<16 x half>", "<8 x half>"), ""),
    "wmma.f32.16x16x16.bf16": (BF16, BF16, "f", ("<16 x i16>", "<8 x i16>"), ""),
    "wmma.f16.16x16x16.f16": ("e", "e", "e", ("<16 x half>", "<8 x half>"), "op_sel"),
    "wmma.i32.16x16x16.iu8": ("i1", "i1", "i4", ("<4 x i32>", "<2 x i32>"), "signs"),
    "wmma.f32.16x16x16.fp8.bf8": (OCP8, OCP_BF8, "f", ("", "<2 x i32>"), ""),
}


def wmma(chip, name, a, b, c):
    """D of one WMMA, each as a matrix."""
    dtype_a, dtype_b, result, vectors, form = WMMA[name]
    new = chip == "gfx1201"
    lane = np.arange(32)[:, None]
    inner = np.arange(8)[None] + 8 * (lane // 16) if new else np.broadcast_to(np.arange(16), (32, 16))
    x, y = a[lane % 16, inner], b[inner, lane % 16]
    row = 8 * (lane // 16) + np.arange(8) if new else 2 * np.arange(8) + lane // 16
    places = row, np.broadcast_to(lane % 16, (32, 8))
    spread = 2 if result == "e" and not new else 1  # gfx11 has one f16 in each register of C and D
    start = np.repeat(c[places], spread, 1)
    out = np.zeros_like(start)
    d = f"<{8 * spread} x {dict(f='float', e='half', i4='i32')[result]}>"
    vector = vectors[new]
    operands, types = f"{vector} %x, {vector} %y, {d} %z", f"{vector}, {vector}, {d}"
    if form == "signs":
        operands = f"i1 true, {vector} %x, i1 true, {vector} %y, {d} %z, i1 false"
        types = f"i1, {vector}, i1, {vector}, {d}, i1"
    elif form == "op_sel":
        operands, types = f"{operands}, i1 false", f"{types}, i1"
    last = {"<16 x half>": ".v16f16", "<8 x half>": ".v8f16", "<16 x i16>": ".v16i16", "<8 x i16>": ".v8i16"}
    kinds = {"<4 x i32>": ".v4i32", "<2 x i32>": ".v2i32", **last}
    first = {"f": ".v8f32", "i4": ".v8i32", "e": f".v{8 * spread}f16"}[result]
    full = f"{name}{first}{kinds[vector]}"
    text = IR.format(a=vector, d=d, call=f"{full}({operands})", name=f"{full}({types})", width=32)
    launch(amdgpu_code.compile_ir(text, chip), "k", (1,), (32,), [out, x, y, start])
    made = np.zeros_like(c)
    made[places] = out[:, ::spread]
    return made


@pytest.mark.parametrize("name", WMMA)
@pytest.mark.parametrize("chip", ("gfx1100", "gfx1201"))
def test_wmma(chip, name):
    dtype_a, dtype_b, result, vectors, _ = WMMA[name]
    if not vectors[chip == "gfx1201"]:
        pytest.skip(f"{chip} has no {name}")
    rng = np.random.default_rng(0)
    a, b, c = integers(rng, (16, 16), dtype_a), integers(rng, (16, 16), dtype_b), integers(rng, (16, 16), result)
    np.testing.assert_array_equal(wmma(chip, name, a, b, c), a.astype("d") @ b.astype("d") + c)


def test_wmma_of_gfx11_needs_both_halves_of_the_wave_equal():
    a = np.arange(32 * 16).astype("e").reshape(32, 16)
    vector, name = "<16 x half>", "wmma.f32.16x16x16.f16.v8f32.v16f16"
    d = "<8 x float>"
    call, types = f"{name}({vector} %x, {vector} %y, {d} %z)", f"{name}({vector}, {vector}, {d})"
    code = amdgpu_code.compile_ir(IR.format(a=vector, d=d, call=call, name=types, width=32), "gfx1100")
    zero = np.zeros((32, 8), "f")
    with pytest.raises(EmulatorError, match="differs between the halves"):
        launch(code, "k", (1,), (32,), [zero, a, a, zero.copy()])
