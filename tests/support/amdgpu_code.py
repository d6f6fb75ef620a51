"""Code objects for tests of AMD GPUs: from LLVM IR or from assembly text, linked by lld."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from llvmlite import binding as llvm

from .amdgpu_emulator.disassembly import tool

CHIPS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
TRIPLE = "amdgcn-amd-amdhsa"
LLD = next((path for name in ("ld.lld-22", "ld.lld") if (path := shutil.which(name))), "")
MISSING = " and ".join(
    name
    for name, found in (("llvm-objdump", tool("llvm-objdump")), ("llvm-mc", tool("llvm-mc")), ("lld", LLD))
    if not found
)
_VERSION = """
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
"""


def on_chips(cases: Iterable[Any]) -> list[Any]:
    """Parameters `(case, chip)` of all, one chip each outside of the full run."""
    return [
        pytest.param(case, chip, id=f"{case}-{chip}", marks=() if number % len(CHIPS) == turn else pytest.mark.full)
        for number, case in enumerate(cases)
        for turn, chip in enumerate(CHIPS)
    ]


def link(data: bytes) -> bytes:
    """A code object from an object file, by lld."""
    with tempfile.TemporaryDirectory() as folder:
        source, to = Path(folder) / "a.o", Path(folder) / "a.hsaco"
        source.write_bytes(data)
        subprocess.run([LLD, "-shared", source, "-o", to], check=True)
        return to.read_bytes()


@functools.cache
def compile_ir(text: str, chip: str) -> bytes:
    """A code object (version 5) from LLVM IR; intrinsics need no declarations when written `@llvm.name(type …)`."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=chip, opt=3)
    module = llvm.parse_assembly(text + _VERSION)
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    module.verify()
    return link(machine.emit_object(module))


_KERNEL = """
.amdgcn_target "amdgcn-amd-amdhsa--{chip}"
.amdhsa_code_object_version 5
.text
.globl k
.p2align 8
.type k,@function
k:
{code}
.size k, . - k
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 32
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size {kernarg}
  .amdhsa_group_segment_fixed_size {lds}
  {more}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: {kernarg}
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .wavefront_size: {width}
    .sgpr_count: 32
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: 1024
    .args: [{arguments}]
...
.end_amdgpu_metadata
"""


@functools.cache
def assemble(code: str, chip: str, pointers: int = 1, lds: int = 0, vgprs: int = 64) -> bytes:
    """A code object with the kernel `k` of assembly text, whose arguments are `pointers` global pointers at s[0:1]."""
    wide = chip.startswith("gfx9")
    arguments = ", ".join(f"{{.offset: {8 * i}, .size: 8, .value_kind: global_buffer}}" for i in range(pointers))
    text = _KERNEL.format(
        chip=chip,
        code=code,
        vgprs=vgprs,
        kernarg=8 * pointers,
        lds=lds,
        width=64 if wide else 32,
        arguments=arguments,
        more=".amdhsa_accum_offset 64" if wide else "",
    )
    command = [tool("llvm-mc"), f"-triple={TRIPLE}", f"-mcpu={chip}", "-filetype=obj", "-o", "-"]
    made = subprocess.run(command, input=text.encode(), capture_output=True)
    if made.returncode:
        raise ValueError(re.sub(r"^<stdin>:", "", made.stderr.decode(), flags=re.M))
    return link(made.stdout)
