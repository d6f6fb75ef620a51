"""From the llvm level of a GPU kernel to PTX and cubins. Only compile workers import this module."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from .nvptx_math import definitions
from .target import Target, TargetError

if TYPE_CHECKING:
    from mlir import ir


def to_llvm_ir(module: ir.Module) -> str:
    """Translate the one `gpu.module` of a module at the llvm level to LLVM IR text.

    Other ops than llvm's and nvvm's are a TargetError that names them: the translation would crash on them.
    """
    from mlir import ir
    from mlir.dialects import llvm as mlir_llvm

    kernels = [op.operation for op in module.body.operations if op.operation.name == "gpu.module"]
    if len(kernels) != 1:
        raise TargetError(f"a GPU kernel is one gpu.module; there are {len(kernels)}")
    left: set[str] = set()

    def visit(op: Any) -> Any:
        if not op.name.startswith(("llvm.", "nvvm.")) and op.name != "gpu.module":
            left.add(op.name)
        return ir.WalkResult.ADVANCE

    kernels[0].walk(visit)
    if left:
        raise TargetError(f"ops below the llvm level's conversion are left: {', '.join(sorted(left))}")
    stages = ir.StringAttr(kernels[0].attributes["lamina.stages"]).value
    return f"; lamina.stages {stages}\n{mlir_llvm.translate_module_to_llvmir(kernels[0])}"


@functools.cache
def _machine(triple: str, cpu: str, attributes: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=attributes, opt=3)


def to_ptx(target: Target, llvm_ir: str) -> str:
    """Link our math functions, optimise and print PTX; a function nobody defines is a TargetError."""
    machine = _machine(target.triple, target.cpu, target.attributes)
    try:
        module = llvm.parse_assembly(llvm_ir)
    except RuntimeError as error:
        raise TargetError(f"LLVM cannot read the IR for target '{target.name}': {error}") from None
    wanted = set(re.findall(r"@(__nv_\w+)\(", llvm_ir))
    if wanted:
        text, missing = definitions(wanted)
        if missing:
            raise TargetError(f"target '{target.name}' has no function {', '.join(sorted(missing))}")
        library = llvm.parse_assembly(text)
        library.triple = module.triple = target.triple
        module.link_in(library)
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


@functools.cache
def find_ptxas() -> str | None:
    """NVIDIA's assembler: `LAMINA_PTXAS`, on the PATH, of a CUDA toolkit, or of an installed triton."""
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
        done = subprocess.run([*command, str(source), "-o", str(result)], capture_output=True, text=True)
        if verbose is not None:
            verbose.append(done.stdout + done.stderr)
        if done.returncode:
            raise TargetError(f"ptxas refuses the code for '{target.name}': {(done.stderr or done.stdout).strip()}")
        return result.read_bytes()
