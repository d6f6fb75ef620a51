"""What every machine does from MLIR's llvm level to code, with LLVM through llvmlite. Only compile workers import this."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from .target import Target, TargetError

if TYPE_CHECKING:
    from mlir import ir


def require_llvm_level(root: ir.Operation, dialects: tuple[str, ...]) -> None:
    """A TargetError that names the ops below `root` that are of no dialect in `dialects`, such as ("llvm.",).

    MLIR's translation to LLVM IR would crash the process on them.
    """
    from mlir import ir

    left: set[str] = set()

    def visit(op: Any) -> Any:
        if op != root and not op.name.startswith(dialects):
            left.add(op.name)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    if left:
        raise TargetError(f"ops below the llvm level's conversion are left: {', '.join(sorted(left))}")


def machine(target: Target, **options: Any) -> Any:
    """LLVM's machine for `target`, made once; `options` are llvmlite's: `opt`, `reloc`, `codemodel`."""
    return _machine(target.triple, target.cpu, target.attributes, tuple(options.items()))


@functools.cache
def _machine(triple: str, cpu: str, attributes: str, options: tuple[tuple[str, Any], ...]) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=attributes, **dict(options))


def parse(target: Target, machine: Any, llvm_ir: str) -> Any:
    """LLVM IR text as a module for `target`; a TargetError if it is none."""
    try:
        module = llvm.parse_assembly(llvm_ir)
    except RuntimeError as error:
        raise TargetError(f"LLVM cannot read the IR for target '{target.name}': {error}") from None
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return module


def optimise(module: Any, machine: Any, level: int, **tuning: bool) -> None:
    """Run LLVM's passes of `level` (O2: 2); `tuning` are fields of llvmlite's PipelineTuningOptions."""
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    for name, value in tuning.items():
        setattr(options, name, value)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
