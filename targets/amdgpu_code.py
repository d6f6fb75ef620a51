"""From the llvm level of a GPU kernel to AMD's code objects. Only compile workers import this module."""

from __future__ import annotations

import re
from typing import Any

from . import linker
from .amdgpu_math import as_functions, definitions
from .gpu_code import optimised
from .llvm_module import machine
from .target import Target

# HIP reads versions 3 to 5; LLVM's own default is newer.
_VERSION = '!{i32 1, !"amdhsa_code_object_version", i32 500}'


def emit_code_object(target: Target, llvm_ir: str) -> bytes:
    """Optimise and return the shared object that the driver loads."""
    code = _machine(target).emit_object(_module(target, llvm_ir))
    return linker.link([linker.read_object(code, target.name)], libraries={})


def emit_assembly(target: Target, llvm_ir: str) -> str:
    """Optimise and return assembly."""
    return _machine(target).emit_assembly(_module(target, llvm_ir))


def _machine(target: Target) -> Any:
    return machine(target, opt=3, reloc="pic")


def _module(target: Target, llvm_ir: str) -> Any:
    """The optimised module; code may be emitted from it once, which changes it."""
    return optimised(target, _machine(target), _with_version(_private(as_functions(llvm_ir))), "__ocml_", definitions)


def _private(llvm_ir: str) -> str:
    """`llvm_ir` with a thread's own memory where AMDGPU has it, in address space 5, seen through a generic pointer."""
    there = r"\1%private\2 = alloca \3, addrspace(5)\n\1%\2 = addrspacecast ptr addrspace(5) %private\2 to ptr"
    return re.sub(r"^( *)%(\w+) = alloca (.*)$", there, llvm_ir, flags=re.M)


def _with_version(llvm_ir: str) -> str:
    """`llvm_ir` with the module flag that chooses the code object's version."""
    number = 1 + max((int(n) for n in re.findall(r"^!(\d+) =", llvm_ir, re.M)), default=-1)
    flags = re.search(r"^!llvm\.module\.flags = !\{(.*)\}$", llvm_ir, re.M)
    if flags is None:
        return f"{llvm_ir}\n!llvm.module.flags = !{{!{number}}}\n!{number} = {_VERSION}\n"
    there = f"!llvm.module.flags = !{{{flags[1]}, !{number}}}"
    return f"{llvm_ir[: flags.start()]}{there}{llvm_ir[flags.end() :]}\n!{number} = {_VERSION}\n"
