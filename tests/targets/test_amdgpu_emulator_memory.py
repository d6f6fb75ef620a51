"""Memory and control flow in the AMD emulator: LDS, atomics, vectors, loops, scratch, globals, grids."""

import ml_dtypes
import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_emulator import EmulatorError, launch

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
every_chip = pytest.mark.parametrize("chip", amdgpu_code.CHIPS)
RNG = np.random.default_rng(0)
BARRIER = """fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire"""


def run(body, chip, out, *given, grid=(1,), block=(256,), globals=""):
    """A kernel with the pointers %o and %a, and the thread %t; the array that it wrote."""
    threads = int(np.prod(block))
    text = f"""{globals}
define amdgpu_kernel void @k(ptr addrspace(1) noalias %o, ptr addrspace(1) noalias %a) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  {body}
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="{threads},{threads}" }}"""
    launch(amdgpu_code.compile_ir(text, chip), "k", grid, block, [out, *(given or (np.zeros(1),))])
    return out


@every_chip
def test_a_transpose_through_lds(chip):
    body = f"""%p = getelementptr float, ptr addrspace(1) %a, i32 %t
  %v = load float, ptr addrspace(1) %p
  %to = getelementptr float, ptr addrspace(3) @tile, i32 %t
  store float %v, ptr addrspace(3) %to
  {BARRIER}
  %r = and i32 %t, 15
  %c = lshr i32 %t, 4
  %row = shl i32 %r, 4
  %j = add i32 %row, %c
  %from = getelementptr float, ptr addrspace(3) @tile, i32 %j
  %u = load float, ptr addrspace(3) %from
  %q = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %u, ptr addrspace(1) %q
  ret void"""
    x = RNG.standard_normal((16, 16)).astype("f")
    tile = "@tile = internal addrspace(3) global [256 x float] undef"
    np.testing.assert_array_equal(run(body, chip, np.zeros_like(x), x, globals=tile), x.T)


@every_chip
def test_lds_of_all_widths(chip):
    body = f"""%p = getelementptr <4 x i32>, ptr addrspace(1) %a, i32 %t
  %v = load <4 x i32>, ptr addrspace(1) %p
  %to = getelementptr <4 x i32>, ptr addrspace(3) @s, i32 %t
  store <4 x i32> %v, ptr addrspace(3) %to, align 16
  {BARRIER}
  %x = xor i32 %t, 63
  %p4 = getelementptr <4 x i32>, ptr addrspace(3) @s, i32 %x
  %u = load <4 x i32>, ptr addrspace(3) %p4, align 4
  %p2 = getelementptr i16, ptr addrspace(3) @s, i32 %x
  %h = load i16, ptr addrspace(3) %p2
  %hw = sext i16 %h to i32
  %p1 = getelementptr i8, ptr addrspace(3) @s, i32 %x
  %b = load i8, ptr addrspace(3) %p1
  %bw = zext i8 %b to i32
  %z = insertelement <4 x i32> %u, i32 %hw, i32 1
  %z2 = insertelement <4 x i32> %z, i32 %bw, i32 2
  %q = getelementptr <4 x i32>, ptr addrspace(1) %o, i32 %t
  store <4 x i32> %z2, ptr addrspace(1) %q
  ret void"""
    x = RNG.integers(-(2**31), 2**31, (64, 4)).astype(np.int32)
    wanted = x[::-1].copy()
    wanted[:, 1] = x.reshape(-1).view(np.int16)[:64][::-1]
    wanted[:, 2] = x.reshape(-1).view(np.uint8)[:64][::-1]
    room = "@s = internal addrspace(3) global [256 x i32] undef, align 16"
    np.testing.assert_array_equal(run(body, chip, np.zeros_like(x), x, block=(64,), globals=room), wanted)


@every_chip
def test_atomics(chip):
    body = f"""%p = getelementptr i32, ptr addrspace(1) %a, i32 %t
  %v = load i32, ptr addrspace(1) %p
  %b = and i32 %v, 7
  %q = getelementptr i32, ptr addrspace(1) %o, i32 %b
  %u = atomicrmw add ptr addrspace(1) %q, i32 %v syncscope("agent") monotonic
  %q2 = getelementptr i32, ptr addrspace(1) %o, i32 8
  %u2 = atomicrmw max ptr addrspace(1) %q2, i32 %v syncscope("agent") monotonic
  %q3 = getelementptr float, ptr addrspace(1) %o, i32 9
  %f = sitofp i32 %v to float
  %u3 = atomicrmw fadd ptr addrspace(1) %q3, float %f syncscope("agent") monotonic
  %lp = getelementptr i32, ptr addrspace(3) @s, i32 %b
  %few = icmp ult i32 %t, 8
  br i1 %few, label %zero, label %go
zero:
  %lz = getelementptr i32, ptr addrspace(3) @s, i32 %t
  store i32 0, ptr addrspace(3) %lz
  br label %go
go:
  {BARRIER}
  %u4 = atomicrmw add ptr addrspace(3) %lp, i32 1 syncscope("workgroup") monotonic
  {BARRIER}
  %n = load i32, ptr addrspace(3) %lp
  %q5 = getelementptr i32, ptr addrspace(1) %q2, i32 8
  %q6 = getelementptr i32, ptr addrspace(1) %q5, i32 %b
  store i32 %n, ptr addrspace(1) %q6
  ret void"""
    x = RNG.integers(0, 99, 256).astype(np.int32)
    wanted = np.zeros(24, np.int32)
    np.add.at(wanted, x & 7, x)
    wanted[8], wanted[9] = x.max(), np.float32(x.sum()).view(np.int32)
    wanted[16:] = np.bincount(x & 7, minlength=8)
    room = "@s = internal addrspace(3) global [8 x i32] undef"
    np.testing.assert_array_equal(run(body, chip, np.zeros(24, np.int32), x, globals=room), wanted)


@every_chip
def test_atomics_give_the_old_value(chip):
    """Each thread takes a ticket, of both memories and widths; one compare-and-swap of all wins."""
    body = f"""%lp = getelementptr i64, ptr addrspace(3) @s, i32 0
  %first = icmp eq i32 %t, 0
  br i1 %first, label %zero, label %go
zero:
  store i64 0, ptr addrspace(3) %lp
  br label %go
go:
  {BARRIER}
  %wide = zext i32 %t to i64
  %total = getelementptr i64, ptr addrspace(1) %o, i32 64
  %x = atomicrmw add ptr addrspace(1) %total, i64 1 syncscope("agent") monotonic
  %y = atomicrmw add ptr addrspace(3) %lp, i64 4294967296 syncscope("workgroup") monotonic
  %won = getelementptr i64, ptr addrspace(1) %o, i32 65
  %pair = cmpxchg ptr addrspace(1) %won, i64 0, i64 7 syncscope("agent") monotonic monotonic
  %z = extractvalue {{ i64, i1 }} %pair, 0
  %z2 = shl i64 %z, 60
  %sum = add i64 %x, %y
  %r = xor i64 %sum, %z2
  %q = getelementptr i64, ptr addrspace(1) %o, i32 %t
  store i64 %r, ptr addrspace(1) %q
  ret void"""
    out = run(
        body, chip, np.zeros(66, np.uint64), block=(64,), globals="@s = internal addrspace(3) global [1 x i64] undef"
    )
    tickets, lds, lost = out[:64] & 0xFFFFFFFF, out[:64] >> 32 & 0xFFFFFFF, out[:64] >> 60
    np.testing.assert_array_equal(np.sort(tickets), np.arange(64))
    np.testing.assert_array_equal(np.sort(lds), np.arange(64))
    np.testing.assert_array_equal(np.sort(lost), [0] + [7] * 63)
    assert (out[64], out[65]) == (64, 7)


@every_chip
def test_packed_halves(chip):
    body = """%p = getelementptr <8 x half>, ptr addrspace(1) %a, i32 %t
  %v = load <8 x half>, ptr addrspace(1) %p
  %n = fneg <8 x half> %v
  %w = call <8 x half> @llvm.fma.v8f16(<8 x half> %v, <8 x half> %n, <8 x half> splat (half 1.0))
  %s = shufflevector <8 x half> %w, <8 x half> %v, <8 x i32> <i32 7, i32 8, i32 5, i32 10, i32 0, i32 1, i32 3, i32 2>
  %q = getelementptr <8 x half>, ptr addrspace(1) %o, i32 %t
  store <8 x half> %s, ptr addrspace(1) %q
  ret void"""
    x = RNG.standard_normal((64, 8)).astype("e")
    w = (1 - x.astype("d") * x).astype("e")
    wanted = np.concatenate([w, x], 1)[:, [7, 8, 5, 10, 0, 1, 3, 2]]
    np.testing.assert_array_equal(run(body, chip, np.zeros_like(x), x, block=(64,)), wanted)


@every_chip
def test_packed_floats_may_have_a_part_that_nobody_reads(chip):
    """gfx90a adds pairs of f32 whose other half was never written."""
    body = """%p = getelementptr <4 x float>, ptr addrspace(1) %a, i32 %t
  %v = load <4 x float>, ptr addrspace(1) %p
  %w = fmul <4 x float> %v, %v
  %z = fadd <4 x float> %w, <float 1.0, float 2.0, float 3.0, float 4.0>
  %s = shufflevector <4 x float> %z, <4 x float> %v, <4 x i32> <i32 3, i32 4, i32 1, i32 6>
  %q = getelementptr <4 x float>, ptr addrspace(1) %o, i32 %t
  store <4 x float> %s, ptr addrspace(1) %q
  ret void"""
    x = RNG.standard_normal((64, 4)).astype("f")
    wanted = np.stack([x[:, 3] ** 2 + 4, x[:, 0], x[:, 1] ** 2 + 2, x[:, 2]], 1)
    np.testing.assert_array_equal(run(body, chip, np.zeros_like(x), x, block=(64,)), wanted)


@every_chip
def test_loops_of_different_length_and_threads_that_leave(chip):
    body = """%p = getelementptr i32, ptr addrspace(1) %a, i32 %t
  %v = load i32, ptr addrspace(1) %p
  %e = icmp eq i32 %v, 13
  br i1 %e, label %out, label %loop
loop:
  %i = phi i32 [0, %0], [%i1, %loop]
  %s = phi i32 [0, %0], [%s1, %loop]
  %pi = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %pi
  %s1 = add i32 %s, %x
  %i1 = add i32 %i, 1
  %c = icmp ult i32 %i1, %v
  br i1 %c, label %loop, label %done
done:
  %q = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %s1, ptr addrspace(1) %q
  br label %out
out:
  ret void"""
    x = RNG.integers(0, 40, 200).astype(np.int32)
    wanted = [0 if v == 13 else x[: max(v, 1)].sum() for v in x]
    np.testing.assert_array_equal(run(body, chip, np.zeros(200, np.int32), x, block=(200,)), wanted)


@every_chip
def test_constants_and_globals_of_the_code_object(chip):
    body = """%m = and i32 %t, 3
  %p = getelementptr float, ptr addrspace(4) @table, i32 %m
  %v = load float, ptr addrspace(4) %p
  %p2 = getelementptr float, ptr addrspace(1) @seen, i32 %m
  %v2 = load float, ptr addrspace(1) %p2
  %s = fadd float %v, %v2
  %q = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %s, ptr addrspace(1) %q
  ret void"""
    values = "[4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]"
    both = f"@table = internal addrspace(4) constant {values}\n@seen = addrspace(1) global {values}"
    out = run(body, chip, np.zeros(64, "f"), block=(64,), globals=both)
    np.testing.assert_array_equal(out, np.tile([2, 4, 6, 8], 16))


SCRATCH = """%s = alloca [8 x i32], addrspace(5)
  br label %l
l:
  %i = phi i32 [0, %0], [%i1, %l]
  %v = mul i32 %i, %t
  %sp = getelementptr i32, ptr addrspace(5) %s, i32 %i
  store volatile i32 %v, ptr addrspace(5) %sp
  %i1 = add i32 %i, 1
  %c = icmp ult i32 %i1, 8
  br i1 %c, label %l, label %d
d:
  %m = and i32 %t, 7
  %sq = getelementptr i32, ptr addrspace(5) %s, i32 %m
  %r = load volatile i32, ptr addrspace(5) %sq
  %q = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %r, ptr addrspace(1) %q
  ret void"""


@pytest.mark.parametrize("chip", ("gfx942", "gfx1100", "gfx1201"))
def test_scratch(chip):
    t = np.arange(64)
    np.testing.assert_array_equal(run(SCRATCH, chip, np.zeros(64, np.int32), block=(64,)), (t & 7) * t)


def test_scratch_of_gfx90a_is_refused():
    with pytest.raises(EmulatorError, match="'k' uses scratch"):
        run(SCRATCH, "gfx90a", np.zeros(64, np.int32), block=(64,))


@every_chip
def test_grids_of_three_dimensions(chip):
    names = {
        "x": "workitem.id.x",
        "y": "workitem.id.y",
        "g": "workgroup.id.x",
        "h": "workgroup.id.y",
        "i": "workgroup.id.z",
    }
    lines = [f"%{n} = call i32 @llvm.amdgcn.{name}()" for n, name in names.items()]
    value = "%i"
    for n, size in (("h", 3), ("g", 5), ("y", 8), ("x", 16)):
        lines += [f"%m{n} = mul i32 {value}, {size}", f"%s{n} = add i32 %m{n}, %{n}"]
        value = f"%s{n}"
    lines += [f"%q = getelementptr i32, ptr addrspace(1) %o, i32 {value}", f"store i32 {value}, ptr addrspace(1) %q"]
    out = run("\n  ".join([*lines, "ret void"]), chip, np.zeros(30 * 128, np.int32), grid=(5, 3, 2), block=(16, 8))
    np.testing.assert_array_equal(out, np.arange(30 * 128))


@pytest.mark.parametrize("chip", ("gfx942", "gfx1201"))
def test_fp8(chip):
    """gfx942's 8-bit floats are the ones without -0; gfx12's are OCP's."""
    body = """%p = getelementptr <2 x float>, ptr addrspace(1) %a, i32 %t
  %v = load <2 x float>, ptr addrspace(1) %p
  %x = extractelement <2 x float> %v, i32 0
  %y = extractelement <2 x float> %v, i32 1
  %w = call i32 @llvm.amdgcn.cvt.pk.fp8.f32(float %x, float %y, i32 0, i1 false)
  %w2 = call i32 @llvm.amdgcn.cvt.pk.bf8.f32(float %x, float %y, i32 %w, i1 true)
  %b = call float @llvm.amdgcn.cvt.f32.fp8(i32 %w2, i32 1)
  %c = call <2 x float> @llvm.amdgcn.cvt.pk.f32.bf8(i32 %w2, i1 true)
  %c0 = extractelement <2 x float> %c, i32 0
  %s = fadd float %b, %c0
  %q = getelementptr float, ptr addrspace(1) %o, i32 %t
  store float %s, ptr addrspace(1) %q
  ret void"""
    x = (20 * RNG.standard_normal((64, 2))).astype("f")
    fp8, bf8 = (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz)
    if chip == "gfx1201":
        fp8, bf8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    wanted = x[:, 1].astype(fp8).astype("f") + x[:, 0].astype(bf8).astype("f")
    np.testing.assert_array_equal(run(body, chip, np.zeros(64, "f"), x, block=(64,)), wanted)
