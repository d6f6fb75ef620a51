"""What GPU targets share: a kernel's object is a container of its launches and code, and so is a program's image."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dialects.op import all_ops
from .target import Target, TargetError

if TYPE_CHECKING:
    from mlir import ir

KINDS = frozenset(("loops", "concat"))  # kernels that there is an emitter for on all GPUs


def is_direct(kind: str) -> bool:
    """True for the kinds of kernels that `lamina-emit-gpu-direct` emits: right, but not fast."""
    op = all_ops().get(kind)
    return op is not None and op.category == "direct"


@dataclass(frozen=True)
class GpuTarget(Target):
    """A GPU: its kernels are launched by the runtime, which walks the plan (docs/contracts.md, section 11)."""

    @property
    def attends(self) -> bool:
        return False

    def llvm_ir(self, module: ir.Module) -> str:
        """Translate a module at the llvm level; what the host must know stands in its first line."""
        from .gpu_code import to_llvm_ir

        return to_llvm_ir(module)

    def link(self, objects: Sequence[bytes], names: Sequence[str], exports: Sequence[str]) -> bytes:
        """The image of a program: the containers of its kernels."""
        from .gpu_container import pack

        return pack({"arch": self.name, "kernels": list(names)}, list(objects))


def no_kernel(target: Target, kind: str) -> TargetError:
    """The error for a kind of kernel that a GPU has no emitter for."""
    return TargetError(f"target '{target.name}' has no kernel of kind '{kind}' yet")


def stages_of(llvm_ir: str) -> dict:
    """The launches of a kernel, from the comment that stands before its LLVM IR."""
    found = re.match(r"; lamina\.stages (.*)\n", llvm_ir)
    return json.loads(found[1]) if found else {}
