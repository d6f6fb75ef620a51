"""What the AMD emulator refuses: mistakes of code that hardware would answer with wrong values, or not at all.

Each program is a few hand-written instructions; a right twin shows that the mistake alone is refused.
"""

import re
import struct

import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_emulator import EmulatorError, UnknownInstruction, launch
from support.amdgpu_emulator.disassembly import disassemble

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")

CHIPS = ("gfx90a", "gfx1100", "gfx1201")
# Spellings by generation: gfx9, gfx11, gfx12.
WORDS = {
    "LOAD64": ("s_load_dwordx2", "s_load_b64", "s_load_b64"),
    "GLOAD": ("global_load_dword", "global_load_b32", "global_load_b32"),
    "GLOAD2": ("global_load_dwordx2", "global_load_b64", "global_load_b64"),
    "GSTORE": ("global_store_dword", "global_store_b32", "global_store_b32"),
    "DSREAD": ("ds_read_b32", "ds_load_b32", "ds_load_b32"),
    "DSWRITE": ("ds_write_b32", "ds_store_b32", "ds_store_b32"),
    "WAIT_S": ("s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(0)", "s_wait_kmcnt 0"),
    "WAIT_V": ("s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(0)", "s_wait_loadcnt 0"),
    "WAIT_V1": ("s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(1)", "s_wait_loadcnt 1"),
    "WAIT_DS": ("s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(0)", "s_wait_dscnt 0"),
    "BARRIER": ("s_barrier", "s_barrier", "s_barrier_signal -1\ns_barrier_wait -1"),
    "EXEC_ONE": ("s_mov_b64 exec, 1", "s_mov_b32 exec_lo, 1", "s_mov_b32 exec_lo, 1"),
}
START = "LOAD64 s[4:5], s[0:1], 0x0\nv_and_b32 v0, 0x3ff, v0\nv_lshlrev_b32 v0, 2, v0\nWAIT_S\n"


def run(code, chip, size=64, threads=64, lds=0):
    """Run instructions on an array at s[4:5], with 4·thread in v0."""
    at = CHIPS.index(chip) if chip in CHIPS else 0
    for word in sorted(WORDS, key=len, reverse=True):
        code = code.replace(word, WORDS[word][at])
    data = np.arange(size, dtype=np.uint32)
    launch(amdgpu_code.assemble(code + "\ns_endpgm", chip, lds=lds), "k", (1,), (threads,), [data])
    return data


def refused(code, chip, match, **how):
    with pytest.raises(EmulatorError, match=match):
        run(code, chip, **how)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_load_is_used_after_its_wait_only(chip):
    code = START + "GLOAD v1, v0, s[4:5]\n{}\nv_add_nc v1, 1, v1\nGSTORE v0, v1, s[4:5]"
    code = code.replace("v_add_nc", "v_add_u32" if chip == "gfx90a" else "v_add_nc_u32")
    np.testing.assert_array_equal(run(code.format("WAIT_V"), chip), np.arange(64) + 1)
    refused(code.format(""), chip, r"v1 is read before a wait for vmcnt")


@pytest.mark.parametrize("chip", CHIPS)
def test_a_wait_for_all_but_one_completes_the_older_load(chip):
    code = START + "GLOAD v1, v0, s[4:5]\nGLOAD v2, v0, s[4:5]\nWAIT_V1\nv_mov_b32 v3, {}"
    run(code.format("v1"), chip)
    refused(code.format("v2"), chip, r"v2 is read before a wait for vmcnt")


@pytest.mark.parametrize("chip", CHIPS)
def test_a_register_is_not_overwritten_under_a_load(chip):
    code = START + "GLOAD v1, v0, s[4:5]\n{}\nv_mov_b32 v1, 0\nGSTORE v0, v1, s[4:5]"
    run(code.format("WAIT_V"), chip)
    refused(code.format(""), chip, "v1 is overwritten before a wait for vmcnt")


@pytest.mark.parametrize("chip", CHIPS)
def test_scalar_loads_and_lds_loads_are_waited_for(chip):
    refused("LOAD64 s[4:5], s[0:1], 0x0\ns_mov_b32 s6, s5", chip, r"s5 is read before a wait for (lg)?kmcnt")
    code = START + "DSWRITE v0, v0\nWAIT_DS\nDSREAD v1, v0\n{}\nGSTORE v0, v1, s[4:5]"
    np.testing.assert_array_equal(run(code.format("WAIT_DS"), chip, lds=256), 4 * np.arange(64))
    refused(code.format(""), chip, r"v1 is read before a wait for (lgkm|ds)cnt", lds=256)


def test_scalar_loads_come_in_any_order():
    code = "LOAD64 s[4:5], s[0:1], 0x0\nLOAD64 s[6:7], s[0:1], 0x0\ns_waitcnt lgkmcnt({})\ns_mov_b32 s8, s4"
    run(code.format(0), "gfx90a")
    refused(code.format(1), "gfx90a", "s4 is read before a wait for lgkmcnt")


@pytest.mark.parametrize("chip", CHIPS)
def test_undefined_registers_may_be_moved_but_not_used(chip):
    run(START + "v_mov_b32 v2, v9\nv_add_f32 v3, v2, v2", chip)
    refused(
        START + "v_mov_b32 v2, v9\nGSTORE v0, v2, s[4:5]",
        chip,
        r"v2 is read but was never written, in lane 0 of wave 0",
    )
    refused(START + "GSTORE v9, v0, s[4:5]", chip, "v9 is read but was never written")
    refused(
        START + "v_cmp_eq_u32 vcc, v0, v9" if chip == "gfx90a" else START + "v_cmp_eq_u32 vcc_lo, v0, v9", chip, "v9"
    )
    refused("s_add_u32 s4, s9, 1", chip, "s9 is read but was never written")


def test_a_register_is_defined_in_the_lanes_that_wrote_it():
    some = START + "s_mov_b64 exec, 0xff\nv_mov_b32 v1, v0\n{}\nGSTORE v0, v1, s[4:5]"
    assert run(some.format(""), "gfx90a")[8] == 8
    refused(some.format("s_mov_b64 exec, -1"), "gfx90a", "v1 is read but was never written, in lane 8 of wave 0")


@pytest.mark.parametrize("chip", CHIPS)
def test_out_of_bounds(chip):
    code = START + "GLOAD v1, v0, s[4:5]\nWAIT_V"
    run(code, chip)
    refused(
        code, chip, r"load of 4 bytes at 0x\w+ is out of bounds; .*argument 0, 248 bytes.*lane \d+ of wave", size=62
    )
    refused(code.replace("GLOAD v1", "GLOAD2 v[2:3]"), chip, r"load of 8 bytes .*out of bounds")
    refused(START + "GSTORE v0, v0, s[4:5] offset:4", chip, "store of 4 bytes .*out of bounds")
    refused(START + "DSWRITE v0, v0", chip, r"LDS store of 4 bytes at \d+ is outside of 128", lds=128)


def test_code_and_arguments_are_read_only():
    refused(START + "GSTORE v0, v0, s[0:1]", "gfx90a", "writes to the kernel's arguments", threads=2)


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_is_written_before_it_is_read(chip):
    refused(START + "DSREAD v1, v0", chip, "LDS at 0 is read but was never written, in lane 0 of wave 0", lds=256)


OTHER = "v_xor_b32 v1, {}, v0\nDSWRITE v0, v0\n"


@pytest.mark.parametrize("chip", CHIPS)
def test_waves_meet_at_a_barrier_between_their_uses_of_lds(chip):
    """Each thread reads what one of another wave wrote."""
    start = START + OTHER.format("0x200" if chip == "gfx90a" else "0x80")
    end = "DSREAD v2, v1\nWAIT_DS\nGSTORE v0, v2, s[4:5]"
    right = run(start + "WAIT_DS\nBARRIER\n" + end, chip, size=256, threads=256, lds=1024)
    np.testing.assert_array_equal(right, 4 * np.arange(256) ^ (0x200 if chip == "gfx90a" else 0x80))
    refused(
        start + "WAIT_DS\n" + end, chip, "is read while wave 2 writes it|while wave 1", size=256, threads=256, lds=1024
    )
    refused(start + "BARRIER\n" + end, chip, "is read while wave", size=256, threads=256, lds=1024)


@pytest.mark.parametrize("chip", CHIPS)
def test_waves_do_not_write_where_another_still_reads(chip):
    far = "0x200" if chip == "gfx90a" else "0x80"
    code = (
        START
        + OTHER.format(far)
        + "WAIT_DS\nBARRIER\nDSREAD v2, v1\nWAIT_DS\n{}\nv_not_b32 v3, v2\nDSWRITE v0, v3\nWAIT_DS"
    )
    run(code.format("BARRIER"), chip, size=256, threads=256, lds=1024)
    refused(code.format(""), chip, "is written while another wave uses it", size=256, threads=256, lds=1024)


@pytest.mark.parametrize("chip", CHIPS)
def test_no_wave_writes_where_several_read(chip):
    """All waves read the first word; then the first thread writes it."""
    code = START + "v_mov_b32 v1, 0\nDSWRITE v0, v0\nWAIT_DS\nBARRIER\nDSREAD v2, v1\nWAIT_DS\n{}\n"
    code += "v_not_b32 v3, v2\nEXEC_ONE\nDSWRITE v1, v3\nWAIT_DS"
    run(code.format("BARRIER"), chip, size=256, threads=256, lds=1024)
    refused(code.format(""), chip, "is written while another wave uses it", size=256, threads=256, lds=1024)


def test_two_waves_write_different_values_at_once():
    code = START + "v_and_b32 v1, 0xff, v0\nDSWRITE v1, {}"
    refused(code.format("v0"), "gfx90a", "is written by two waves at once", size=128, threads=128, lds=1024)
    run(code.format("v1"), "gfx90a", size=128, threads=128, lds=1024)  # the same value is no conflict


def test_a_barrier_waits_for_all_waves_to_signal():
    code = START + "v_readfirstlane_b32 s6, v0\ns_cmp_eq_u32 s6, 0\ns_cbranch_scc1 wait\nwait:\ns_barrier_wait -1\n"
    code = code.replace("s_cmp", "s_barrier_signal -1\ns_cmp")
    run(code, "gfx1201")
    refused(
        code.replace("s_barrier_signal -1\n", ""), "gfx1201", "waits at a barrier before 0x.* that others never reach"
    )


def test_waves_that_end_are_not_waited_for():
    code = START + "v_readfirstlane_b32 s6, v0\ns_cmp_eq_u32 s6, 0\ns_cbranch_scc1 end\ns_barrier\nend:"
    run(code, "gfx90a", threads=128, size=128)


def test_unknown_instructions_and_forms_are_named():
    with pytest.raises(UnknownInstruction, match=r"does not know 'image_load' \(gfx1100: `image_load v0"):
        run("image_load v0, v[0:1], s[8:15] dmask:0x1 dim:SQ_RSRC_IMG_2D", "gfx1100")
    with pytest.raises(UnknownInstruction, match="does not know the form of .*cbsz"):
        run("v_mfma_f32_16x16x4f32 v[4:7], v0, v1, v[4:7] cbsz:1", "gfx90a")


def test_matrices_need_all_lanes():
    code = "v_mov_b32 v1, 0\ns_mov_b64 exec, 1\nv_mfma_f32_16x16x4f32 v[4:7], v1, v1, 0"
    refused(code, "gfx90a", "runs with lanes off")


def test_registers_are_those_that_the_kernel_asks_for():
    refused("v_mov_b32 v100, 0", "gfx90a", "v100 is beyond the registers")


def test_endless_loops_end(monkeypatch):
    monkeypatch.setattr("support.amdgpu_emulator.schedule.LIMIT", 1000)
    refused("again:\ns_branch again", "gfx90a", "no end after 1000 instructions")


TILE = """
@tile = internal addrspace(3) global [128 x float] undef
define amdgpu_kernel void @k(ptr addrspace(1) %o) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr float, ptr addrspace(1) %o, i32 %t
  %v = load float, ptr addrspace(1) %p
  %to = getelementptr float, ptr addrspace(3) @tile, i32 %t
  store float %v, ptr addrspace(3) %to
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %t, 127
  %from = getelementptr float, ptr addrspace(3) @tile, i32 %other
  %u = load float, ptr addrspace(3) %from
  store float %u, ptr addrspace(1) %p
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="128,128" }
"""


def offset_in_file(code, address):
    """Where the segment that holds an address of the image lies in the file."""
    start, count = struct.unpack_from("<Q", code, 32)[0], struct.unpack_from("<H", code, 56)[0]
    for i in range(count):
        kind, _, offset, begin, _, size, _, _ = struct.unpack_from("<IIQQQQQQ", code, start + 56 * i)
        if kind == 1 and begin <= address < begin + size:
            return address - begin + offset
    raise ValueError(address)


NOP = (0xBF800000).to_bytes(4, "little")


@pytest.mark.parametrize("chip", amdgpu_code.CHIPS)
def test_no_wait_and_no_barrier_of_compiled_code_can_be_left_out(chip):
    """Each is replaced by `s_nop`, in turn."""
    code = amdgpu_code.compile_ir(TILE, chip)
    x = np.arange(128).astype("f")
    launch(code, "k", (1,), (128,), [x])
    np.testing.assert_array_equal(x, np.arange(128)[::-1])
    waits = re.compile(r"s_waitcnt|s_wait_(load|ds|km)cnt|s_barrier(_signal)?")
    needed = [i for i in disassemble(code).values() if waits.fullmatch(i.name)]
    assert len(needed) >= 5
    for instruction in needed:
        at = offset_in_file(code, instruction.address)
        broken = code[:at] + NOP + code[at + 4 :]
        with pytest.raises(EmulatorError):
            launch(broken, "k", (1,), (128,), [x])
