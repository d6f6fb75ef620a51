"""From the llvm level of a GPU kernel to PTX and cubins. Only compile workers import this module."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .gpu_code import optimised
from .llvm_module import machine
from .nvptx_math import definitions
from .target import Target, TargetError


def to_ptx(target: Target, llvm_ir: str) -> str:
    """Link our math functions, optimise and print PTX; a function nobody defines is a TargetError."""
    made = machine(target, opt=3)
    return made.emit_assembly(optimised(target, made, llvm_ir, "__nv_", definitions))


@functools.cache
def find_ptxas() -> str | None:
    """NVIDIA's assembler: `LAMINA_PTXAS` (empty: none), on the PATH, or of a CUDA toolkit."""
    given = os.environ.get("LAMINA_PTXAS")
    if given is not None:
        return given or None
    found = shutil.which("ptxas")
    if found:
        return found
    for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if root and (path := Path(root, "bin", "ptxas")).exists():
            return str(path)
    return None


def assemble(target: Target, ptx: str, verbose: list[str] | None = None) -> bytes:
    """The cubin of `ptx`, or b"" without ptxas; `verbose` receives ptxas' report. TargetError if ptxas refuses."""
    tool = find_ptxas()
    if tool is None:
        return b""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [tool, "-O3", f"-arch={target.cpu}", *(["-v"] if verbose is not None else [])]
        try:
            done = subprocess.run([*command, str(source), "-o", str(result)], capture_output=True, text=True)
        except OSError as error:
            hint = "LAMINA_PTXAS names another, or, empty, none: then the driver compiles PTX"
            raise TargetError(f"cannot run ptxas, '{tool}': {error.strerror}; {hint}") from None
        if verbose is not None:
            verbose.append(done.stdout + done.stderr)
        if done.returncode:
            raise TargetError(f"ptxas refuses the code for '{target.name}': {(done.stderr or done.stdout).strip()}")
        return result.read_bytes()
