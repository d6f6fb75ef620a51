"""What all GPUs share from the llvm level of a kernel to code. Only compile workers import this module.

A kernel's LLVM IR text has its launches (docs/contracts.md, section 11) in its first line, `; lamina.stages {...}`:
text is what travels between levels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .llvm_module import optimise, parse, require_llvm_level
from .target import Target, TargetError

if TYPE_CHECKING:
    from mlir import ir

# In kernels with NVIDIA's matrix instructions, whose vectors are written as such, the SLP vectoriser finds nothing (PTX is
# the same for the products and attentions of five models, sm_80 and sm_90a) in 15 % of the time of LLVM's passes.
_MATRICES = re.compile(r"wgmma\.|nvvm\.mma\.")

# definitions(names of functions) -> (LLVM IR that defines them, those that nothing defines)
Definitions = Callable[[set[str]], tuple[str, set[str]]]


def to_llvm_ir(module: ir.Module) -> str:
    """Translate the one `gpu.module` of a module at the llvm level to LLVM IR text.

    Other ops than llvm's and those of a machine are a TargetError that names them.
    """
    from mlir import ir
    from mlir.dialects import llvm as mlir_llvm

    kernels = [op.operation for op in module.body.operations if op.operation.name == "gpu.module"]
    if len(kernels) != 1:
        raise TargetError(f"a GPU kernel is one gpu.module; there are {len(kernels)}")
    require_llvm_level(kernels[0], ("llvm.", "nvvm.", "rocdl."))
    stages = ir.StringAttr(kernels[0].attributes["lamina.stages"]).value
    return f"; lamina.stages {stages}\n{mlir_llvm.translate_module_to_llvmir(kernels[0])}"


def optimised(target: Target, machine: Any, llvm_ir: str, prefix: str, definitions: Definitions) -> Any:
    """Parse `llvm_ir`, link definitions of the functions whose names begin with `prefix`, and optimise at O3.

    A function that nobody defines is a TargetError.
    """
    module = parse(target, machine, llvm_ir)
    wanted = set(re.findall(rf"@({prefix}\w+)\(", llvm_ir))
    if wanted:
        text, missing = definitions(wanted)
        if missing:
            raise TargetError(f"target '{target.name}' has no function {', '.join(sorted(missing))}")
        module.link_in(parse(target, machine, text))
    optimise(module, machine, 3, loop_vectorization=False, slp_vectorization=not _MATRICES.search(llvm_ir))
    return module
