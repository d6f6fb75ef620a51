"""Forms of instructions that compilers choose rarely, or for some chips only, from hand-written instructions."""

import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_emulator import launch

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")

LOAD = {
    "gfx90a": "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n",
    "gfx1100": "s_load_b64 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n",
    "gfx1201": "s_load_b64 s[4:5], s[0:1], 0x0\ns_wait_kmcnt 0x0\n",
}


def run(code, chip, dtype="u4", count=64, lds=0):
    """What the code leaves in v1, for 4·thread in v8 and the thread in v9."""
    out = np.zeros(count, dtype)
    store = "global_store_dword v8, v1, s[4:5]" if chip == "gfx90a" else "global_store_b32 v8, v1, s[4:5]"
    ids = "v_and_b32 v9, 0x3ff, v0\nv_lshlrev_b32 v8, 2, v9\n"
    text = f"{ids}{LOAD[chip]}{code}\n{store}\ns_endpgm"
    launch(amdgpu_code.assemble(text, chip, lds=lds), "k", (1,), (count,), [out])
    return out


THREAD = np.arange(64)


def bits(value, dtype="f4"):
    return int(np.array(value, dtype).view(f"u{np.dtype(dtype).itemsize}"))


@pytest.mark.parametrize("chip", ("gfx1100", "gfx1201"))
def test_dual_instructions_read_before_they_write(chip):
    code = "v_mov_b32 v2, 5\nv_mov_b32 v3, 7\nv_dual_mov_b32 v2, v3 :: v_dual_mov_b32 v3, v2\n"
    np.testing.assert_array_equal(run(code + "v_lshl_or_b32 v1, v2, 8, v3", chip), 0x705)
    code = "v_mov_b32 v2, 2.0\nv_mov_b32 v3, 3.0\nv_mov_b32 v4, 3.0\n"
    code += "v_dual_fmac_f32 v2, v3, v3 :: v_dual_add_f32 v1, v2, v4"
    np.testing.assert_array_equal(run(code, chip, "f4"), 5)
    np.testing.assert_array_equal(run(code + "\nv_mov_b32 v1, v2", chip, "f4"), 11)


def test_swap():
    np.testing.assert_array_equal(run("v_mov_b32 v2, 5\nv_mov_b32 v1, 7\nv_swap_b32 v1, v2", "gfx90a"), 5)


@pytest.mark.parametrize("chip", ("gfx90a", "gfx1201"))
def test_modifiers_of_sources_and_results(chip):
    start = "v_cvt_f32_u32 v2, v9\n"
    x = THREAD.astype("f")
    np.testing.assert_array_equal(run(start + "v_add_f32 v1, -v2, |v2|", chip, "f4"), 0)
    np.testing.assert_array_equal(run(start + "v_mul_f32 v1, -v2, 2.0 mul:4", chip, "f4"), -8 * x)
    np.testing.assert_array_equal(run(start + "v_mul_f32 v1, v2, 0.5 clamp", chip, "f4"), np.minimum(x / 2, 1))
    np.testing.assert_array_equal(run(start + "v_mul_f32 v1, 0.15915494, v2", chip, "f4"), x * np.float32(0.5 / np.pi))
    np.testing.assert_array_equal(run(start + "v_fma_f32 v1, v2, -v2, 0.5", chip, "f4"), 0.5 - x * x)


def test_parts_of_registers_on_gfx9():
    start = "v_mov_b32 v2, 0x80ff0102\n"
    np.testing.assert_array_equal(run(start + "v_add_u32_sdwa v1, v2, v9 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD", "gfx90a"), THREAD + 1)  # fmt: skip
    signed = "v_add_u32_sdwa v1, sext(v2), v9 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD"
    np.testing.assert_array_equal(run(start + signed, "gfx90a", "i4"), THREAD - 0x7F01)
    kept = "v_mov_b32 v1, v2\nv_mov_b32_sdwa v1, v9 dst_sel:BYTE_3 dst_unused:UNUSED_PRESERVE src0_sel:DWORD"
    np.testing.assert_array_equal(run(start + kept, "gfx90a"), THREAD << 24 | 0xFF0102)


@pytest.mark.parametrize("chip, high", [("gfx90a", 0), ("gfx1201", 0x12340000)])
def test_the_other_half_of_a_16_bit_result(chip, high):
    """gfx9 clears it, later chips keep it."""
    add = "v_add_u16 v1, v9, 1" if chip == "gfx90a" else "v_add_nc_u16 v1, v9, 1"
    np.testing.assert_array_equal(run(f"v_mov_b32 v1, 0x12345678\n{add}", chip), THREAD + 1 | high)


def test_fma_of_mixed_types():
    pair = hex(bits(-2.0, "f2") << 16 | bits(1.5, "f2"))
    start = f"v_mov_b32 v2, {pair}\nv_cvt_f32_u32 v3, v9\n"
    mixed = "v_fma_mix_f32 v1, v2, v3, v2 op_sel:[1,0,0] op_sel_hi:[1,0,1]"
    np.testing.assert_array_equal(run(start + mixed, "gfx1100", "f4"), -2 * THREAD.astype("f") + 1.5)
    high = "v_mov_b32 v1, 0x1234\nv_fma_mixhi_f16 v1, v2, v3, v2 op_sel_hi:[1,0,1]"
    wanted = (1.5 * THREAD + 1.5).astype("f2").view("u2").astype("u4") << 16 | 0x1234
    np.testing.assert_array_equal(run(start + high, "gfx1100"), wanted)


@pytest.mark.parametrize("chip", ("gfx90a", "gfx1201"))
def test_carries(chip):
    """v[2:3] = 2³² - 1 + thread, by halves."""
    vcc, add, carry = (
        ("vcc", "v_add_co_u32", "v_addc_co_u32") if chip == "gfx90a" else ("vcc_lo", "v_add_co_u32", "v_add_co_ci_u32")
    )
    code = f"v_mov_b32 v2, -1\nv_mov_b32 v3, 0\n{add} v2, {vcc}, v2, v9\n{carry} v1, {vcc}, 0, v3, {vcc}"
    np.testing.assert_array_equal(run(code, chip), THREAD > 0)


def test_raw_buffers_give_0_beyond_their_end():
    resource = "s_mov_b32 s8, s4\ns_mov_b32 s9, s5\ns_mov_b32 s10, 128\ns_mov_b32 s11, 0x27000\n"
    code = (
        resource
        + "v_mov_b32 v2, 7\nbuffer_store_dword v2, v8, s[8:11], 0 offen\nbuffer_load_dword v1, v8, s[8:11], 0 offen\n"
    )
    code += "s_waitcnt vmcnt(0)\nv_add_u32 v1, 1, v1"
    np.testing.assert_array_equal(run(code, "gfx90a"), np.where(THREAD < 32, 8, 1))


@pytest.mark.parametrize("chip", ("gfx90a", "gfx1201"))
def test_calls(chip):
    """A function that doubles v9, called twice."""
    code = """
    s_mov_b32 s20, 0
    again:
    s_getpc_b64 s[14:15]
    base:
    s_add_u32 s14, s14, double-base
    s_addc_u32 s15, s15, 0
    s_swappc_b64 s[16:17], s[14:15]
    s_add_u32 s20, s20, 1
    s_cmp_lt_u32 s20, 2
    s_cbranch_scc1 again
    s_branch done
    double:
    v_lshlrev_b32 v9, 1, v9
    s_setpc_b64 s[16:17]
    done:
    v_mov_b32 v1, v9"""
    np.testing.assert_array_equal(run(code, chip), 4 * THREAD)


@pytest.mark.parametrize("chip", ("gfx90a", "gfx1201"))
def test_bit_fields_of_scalars(chip):
    code = "s_mov_b32 s6, 0x8765f321\ns_bfe_i32 s7, s6, 0x40008\ns_bfe_u32 s8, s6, 0x8000c\ns_sub_u32 s7, s8, s7\nv_mov_b32 v1, s7"
    np.testing.assert_array_equal(run(code, chip), 0x5F - 3)
    code = "s_movk_i32 s6, -5\ns_ashr_i32 s6, s6, 1\ns_absdiff_i32 s6, s6, 0\ns_cselect_b32 s6, s6, 9\nv_mov_b32 v1, s6"
    np.testing.assert_array_equal(run(code, chip), 3)


def test_division_steps_of_extreme_operands():
    """1/FLT_MAX is denormal: the steps scale, so that the quotient is right."""
    for above, below in ((-2.5, 3.4028235e38), (1e38, 1e-3), (1e-38, 3.0), (1e-45, 1e-44), (3.0, 0.0), (np.inf, 2.0)):
        code = f"""v_mov_b32 v2, {hex(bits(above))}
        v_mov_b32 v3, {hex(bits(below))}
        v_div_scale_f32 v4, s[6:7], v3, v3, v2
        v_div_scale_f32 v5, vcc, v2, v3, v2
        v_rcp_f32 v6, v4
        v_fma_f32 v7, -v4, v6, 1.0
        v_fmac_f32 v6, v7, v6
        v_mul_f32 v7, v5, v6
        v_fma_f32 v10, -v4, v7, v5
        v_fmac_f32 v7, v10, v6
        v_fma_f32 v4, -v4, v7, v5
        v_div_fmas_f32 v4, v4, v6, v7
        v_div_fixup_f32 v1, v4, v3, v2"""
        with np.errstate(all="ignore"):
            wanted = np.float32(above) / np.float32(below)
        np.testing.assert_array_equal(run(code, "gfx90a", "f4"), wanted)
