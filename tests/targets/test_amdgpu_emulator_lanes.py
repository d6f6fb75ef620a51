"""Values across lanes in the AMD emulator: DPP, permutations, ballots, single lanes."""

import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_emulator import launch

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
every_chip = pytest.mark.parametrize("chip", amdgpu_code.CHIPS)
X = np.random.default_rng(0).integers(-50, 50, 128).astype(np.int32)


def width(chip):
    return 64 if chip.startswith("gfx9") else 32


def run(body, chip):
    """`%v` is X[thread], `%r` what is stored."""
    text = f"""
define amdgpu_kernel void @k(ptr addrspace(1) noalias %o, ptr addrspace(1) noalias %a) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
  %p = getelementptr i32, ptr addrspace(1) %a, i32 %t
  %v = load i32, ptr addrspace(1) %p
  {body}
  %q = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %r, ptr addrspace(1) %q
  ret void
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="128,128" }}"""
    out = np.zeros_like(X)
    executed = launch(amdgpu_code.compile_ir(text, chip), "k", (1,), (128,), [out, X])
    return out, executed


def dpp(steps):
    """Each lane adds what (control, row mask, zero outside) brings, one after the other."""
    lines, value = [], "%v"
    for n, (control, rows, zero) in enumerate(steps):
        brought = f"%d{n} = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 {value}, i32 {control}, i32 {rows}, i32 15, i1 {zero})"
        lines += [brought, f"%s{n} = add i32 {value}, %d{n}"]
        value = f"%s{n}"
    return "\n".join([*lines, f"%r = add i32 {value}, 0"])


SHIFTS = [(0x111, 15, "true"), (0x112, 15, "true"), (0x114, 15, "true"), (0x118, 15, "true")]


@every_chip
def test_a_scan_of_rows_by_shifts(chip):
    out, executed = run(dpp(SHIFTS), chip)
    np.testing.assert_array_equal(out, np.cumsum(X.reshape(-1, 16), 1).reshape(-1))
    assert sum(n for name, n in executed.items() if "ds_" in name) == 0


@pytest.mark.parametrize("chip", ("gfx90a", "gfx942"))
def test_a_scan_of_waves_by_broadcasts_of_rows(chip):
    out, _ = run(dpp([*SHIFTS, (0x142, 10, "false"), (0x143, 12, "false")]), chip)
    np.testing.assert_array_equal(out, np.cumsum(X.reshape(-1, 64), 1).reshape(-1))


LANES = np.arange(128)
CONTROLS = {
    0x1B: LANES // 4 * 4 + 3 - LANES % 4,  # quad_perm [3, 2, 1, 0]
    0x123: LANES // 16 * 16 + (LANES - 3) % 16,  # row_ror 3
    0x140: LANES // 16 * 16 + 15 - LANES % 16,  # row_mirror
    0x141: LANES // 8 * 8 + 7 - LANES % 8,  # row_half_mirror
    0x155: LANES // 16 * 16 + 5,  # row_newbcast or row_share 5
    0x166: LANES ^ 6,  # row_xmask 6, from gfx10 on
}


@every_chip
@pytest.mark.parametrize("control", CONTROLS)
def test_controls_of_dpp(chip, control):
    if control >= 0x160 and chip.startswith("gfx9"):
        pytest.skip("gfx9 has no row_xmask")
    out, _ = run(dpp([(control, 15, "true")]), chip)
    np.testing.assert_array_equal(out, X + X[CONTROLS[control]])


@every_chip
def test_a_reduction_of_waves_by_permutations(chip):
    lines, value, offset = [], "%v", width(chip) // 2
    while offset:
        lines += [f"%x{offset} = xor i32 %lane, {offset}", f"%a{offset} = shl i32 %x{offset}, 2"]
        lines += [f"%d{offset} = call i32 @llvm.amdgcn.ds.bpermute(i32 %a{offset}, i32 {value})"]
        lines += [f"%s{offset} = add i32 {value}, %d{offset}"]
        value, offset = f"%s{offset}", offset // 2
    out, _ = run("\n".join([*lines, f"%r = add i32 {value}, 0"]), chip)
    np.testing.assert_array_equal(out, np.repeat(X.reshape(-1, width(chip)).sum(1), width(chip)))


@every_chip
def test_patterns_of_swizzles(chip):
    flip = 5 << 10 | 31  # and 31, xor 5
    quad = 0x8000 | 0b00011011  # lanes 3, 2, 1, 0 of four
    lines = [f"%a1 = call i32 @llvm.amdgcn.ds.swizzle(i32 %v, i32 {flip})"]
    lines += [f"%r = call i32 @llvm.amdgcn.ds.swizzle(i32 %a1, i32 {quad})"]
    out, _ = run("\n".join(lines), chip)
    np.testing.assert_array_equal(out, X[LANES ^ 5].reshape(-1, 4)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("chip", ("gfx1100", "gfx1201"))
def test_permutations_of_rows(chip):
    numbers = [(7 * i + 3) % 16 for i in range(16)]
    low, high = (sum(n << 4 * i for i, n in enumerate(numbers[k : k + 8])) for k in (0, 8))
    low, high = (v - (v >> 31 << 32) for v in (low, high))
    lines = [f"%x = call i32 @llvm.amdgcn.permlane16.i32(i32 0, i32 %v, i32 {low}, i32 {high}, i1 true, i1 false)"]
    lines += [f"%r = call i32 @llvm.amdgcn.permlanex16.i32(i32 0, i32 %x, i32 {low}, i32 {high}, i1 true, i1 false)"]
    out, _ = run("\n".join(lines), chip)
    once = X.reshape(-1, 2, 16)[:, :, numbers]
    np.testing.assert_array_equal(out, once[:, ::-1][:, :, numbers].reshape(-1))


@every_chip
def test_ballots_and_single_lanes(chip):
    body = """%c = icmp sgt i32 %v, 10
  %m = call i64 @llvm.amdgcn.ballot.i64(i1 %c)
  %count = call i64 @llvm.ctpop.i64(i64 %m)
  %n = trunc i64 %count to i32
  %fifth = call i32 @llvm.amdgcn.readlane.i32(i32 %v, i32 5)
  %first = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v)
  %s = add i32 %n, %fifth
  %s2 = mul i32 %s, %first
  %r = call i32 @llvm.amdgcn.writelane.i32(i32 77, i32 3, i32 %s2)"""
    out, _ = run(body, chip)
    waves = X.reshape(-1, width(chip))
    wanted = np.repeat(((waves > 10).sum(1) + waves[:, 5]) * waves[:, 0], width(chip)).reshape(waves.shape)
    wanted[:, 3] = 77
    np.testing.assert_array_equal(out, wanted.reshape(-1))
