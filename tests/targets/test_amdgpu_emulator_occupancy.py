"""The table of what kernels ask of a chip."""

import pytest
from support import amdgpu_code
from support.amdgpu_emulator.chips import CHIPS
from support.amdgpu_emulator.occupancy import matrix_cycles, table, uses, waves_per_simd

needs_tools = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
CHIP = {chip.name: chip for chip in CHIPS.values()}


@pytest.mark.parametrize(
    "chip, registers, lds, threads, waves",
    [
        ("gfx90a", 64, 0, 256, 8),
        ("gfx90a", 65, 0, 256, 7),
        ("gfx942", 256, 0, 256, 2),
        ("gfx942", 64, 32 * 1024, 256, 2),  # two groups of four waves on four SIMDs
        ("gfx942", 64, 64 * 1024, 1024, 4),
        ("gfx1100", 96, 0, 256, 16),
        ("gfx1100", 97, 0, 256, 12),
        ("gfx1201", 96, 32 * 1024, 128, 4),
    ],
)
def test_waves_are_limited_by_registers_and_lds(chip, registers, lds, threads, waves):
    assert waves_per_simd(CHIP[chip], registers, lds, threads) == waves


@pytest.mark.parametrize(
    "name, chip, cycles",
    [
        ("v_mfma_f32_32x32x8f16", "gfx90a", 64),
        ("v_mfma_f32_16x16x4f32", "gfx90a", 32),
        ("v_mfma_f32_4x4x1f32", "gfx90a", 8),
        ("v_mfma_f32_32x32x8_f16", "gfx942", 32),
        ("v_mfma_f32_16x16x32_fp8_fp8", "gfx942", 16),
        ("v_wmma_f32_16x16x16_f16", "gfx1100", 32),
        ("v_wmma_f32_16x16x16_f16", "gfx1201", 16),
        ("v_add_f32", "gfx942", 0),
    ],
)
def test_cycles_of_matrix_instructions(name, chip, cycles):
    assert matrix_cycles(name, CHIP[chip]) == cycles


@needs_tools
def test_the_matrix_share_is_of_the_innermost_loop():
    code = """
    v_mov_b32 v9, 0
    outer:
    s_mov_b32 s4, 0
    loop:
    v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]
    s_add_u32 s4, s4, 1
    s_cmp_lt_u32 s4, 8
    s_cbranch_scc1 loop
    s_add_u32 s5, s5, 1
    s_cbranch_scc0 outer
    s_endpgm
    """
    (row,) = uses(amdgpu_code.assemble(code, "gfx90a"))
    assert (row.kernel, row.slots, row.busy) == ("k", 0.25, 1.0)
    assert "| 25% | 100% |" in table({"a": amdgpu_code.assemble(code, "gfx90a")})
    (row,) = uses(amdgpu_code.assemble("s_endpgm", "gfx1100"))
    assert row.slots is None
