"""From the llvm level of MLIR to LLVM IR text, objects and assembly.

MLIR 22 prints LLVM IR, llvmlite's LLVM 22 reads it, optimises at O2 and emits code: position independent, small code
model. Only compile workers import this module.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from .target import Target, TargetError

if TYPE_CHECKING:
    from mlir import ir

# On functions whose addresses are written as they should be computed (register tiles). LLVM then does not rewrite them
# (loop strength reduction), which takes two thirds of the time of emitting them and gives the same speed.
HAND_WRITTEN = "lamina-hand-written"

# What LLVM calls, where there is no instruction for it, to narrow the f32 that it keeps a bf16 in: bf16 values that live
# across blocks or go through a select. libgcc has it from version 13 on only. Values from loads come back unchanged.
_NARROW_BF16 = """
define weak_odr hidden bfloat @__truncsfbf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %last = and i32 %high, 1
  %half = add i32 %last, 32767
  %sum = add i32 %bits, %half
  %rounded = lshr i32 %sum, 16
  %quiet = or i32 %high, 64
  %nan = fcmp uno float %x, %x
  %picked = select i1 %nan, i32 %quiet, i32 %rounded
  %short = trunc i32 %picked to i16
  %result = bitcast i16 %short to bfloat
  ret bfloat %result
}
"""


def to_llvm_ir(module: ir.Module) -> str:
    """Translate a module at the llvm level to LLVM IR text.

    A module with other ops is a TargetError that names them: MLIR's translation would crash the process on it.
    """
    from mlir import ir
    from mlir.dialects import llvm as mlir_llvm

    left: set[str] = set()

    def visit(op: Any) -> Any:
        if not op.name.startswith("llvm.") and op.name != "builtin.module":
            left.add(op.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if left:
        raise TargetError(f"ops below the llvm level's conversion are left: {', '.join(sorted(left))}")
    return mlir_llvm.translate_module_to_llvmir(module.operation)


def emit_object(target: Target, llvm_ir: str) -> bytes:
    """Optimise `llvm_ir` and return a relocatable object for `target`."""
    machine, module = _optimised(target, llvm_ir)
    return machine.emit_object(module)


def emit_assembly(target: Target, llvm_ir: str) -> str:
    """Optimise `llvm_ir` and return assembly for `target`."""
    machine, module = _optimised(target, llvm_ir)
    return machine.emit_assembly(module)


@functools.cache
def _machine(triple: str, cpu: str, attributes: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=attributes, opt=2, reloc="pic", codemodel="small", jit=False
    )


def _optimised(target: Target, llvm_ir: str) -> tuple[Any, Any]:
    # O2 and not O3: same or faster code in all measured kernels, half the time
    machine = _machine(target.triple, target.cpu, target.attributes)
    try:
        module = llvm.parse_assembly(llvm_ir + _NARROW_BF16 if "bfloat" in llvm_ir else llvm_ir)
    except RuntimeError as error:
        raise TargetError(f"LLVM cannot read the IR for target '{target.name}': {error}") from None
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = True
    tuning.slp_vectorization = False
    tuning.loop_unrolling = True
    tuning.loop_interleaving = True
    # an option of the process, read when code is emitted
    llvm.set_option("lamina", f"-disable-lsr={'true' if HAND_WRITTEN in llvm_ir else 'false'}")
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return machine, module
