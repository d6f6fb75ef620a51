"""From the llvm level of MLIR to LLVM IR text, objects and assembly.

MLIR 22 prints LLVM IR, llvmlite's LLVM 22 reads it, optimises at O2 and emits code: position independent, small code
model. Only compile workers import this module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from .llvm_module import machine, optimise, parse, require_llvm_level
from .target import Target

if TYPE_CHECKING:
    from mlir import ir

# On functions whose addresses are written as they should be computed (products by register tiles). LLVM then does not
# rewrite them (loop strength reduction), which takes two thirds of the time of emitting them and gives the same speed.
HAND_WRITTEN = "lamina-hand-written"
# On functions whose inner loops ask which part of a result they are in, though outer loops have decided it (`concat`).
# LLVM then makes a loop of each part (non-trivial unswitching, of O3), which it can vectorise.
PARTS = "lamina-parts"

_DEFINITION = re.compile(r"^(define .*) \{$", re.MULTILINE)  # of a function, up to its attributes

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
    """Translate a module at the llvm level to LLVM IR text. A module with other ops is a TargetError that names them."""
    from mlir.dialects import llvm as mlir_llvm

    require_llvm_level(module.operation, ("llvm.",))
    return mlir_llvm.translate_module_to_llvmir(module.operation)


def emit_object(target: Target, llvm_ir: str) -> bytes:
    """Optimise `llvm_ir` and return a relocatable object for `target`."""
    made, module = _optimised(target, llvm_ir)
    return made.emit_object(module)


def emit_assembly(target: Target, llvm_ir: str) -> str:
    """Optimise `llvm_ir` and return assembly for `target`."""
    made, module = _optimised(target, llvm_ir)
    return made.emit_assembly(module)


def _optimised(target: Target, llvm_ir: str) -> tuple[Any, Any]:
    # O2 and not O3: same or faster code in all measured kernels, half the time
    made = machine(target, opt=2, reloc="pic", codemodel="small")
    tuned = _DEFINITION.sub(rf'\1 "tune-cpu"="{target.tune}" {{', llvm_ir) if target.tune else llvm_ir
    module = parse(target, made, tuned + _NARROW_BF16 if "bfloat" in tuned else tuned)
    # options of the process: the first is read when code is emitted, the second now
    llvm.set_option("lamina", f"-disable-lsr={'true' if HAND_WRITTEN in llvm_ir else 'false'}")
    llvm.set_option("lamina", f"-enable-nontrivial-unswitch={'true' if PARTS in llvm_ir else 'false'}")
    optimise(
        module,
        made,
        2,
        loop_vectorization=True,
        slp_vectorization=False,
        loop_unrolling=True,
        loop_interleaving=True,
    )
    llvm.set_option("lamina", "-enable-nontrivial-unswitch=false")
    return made, module
