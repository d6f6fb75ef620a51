"""What a target is: a name, facts about the machine, pipelines as printable tuples, and code emission.

A target's module ends in `TARGET = Target(...)` or `TARGETS`, a tuple of them. Facts live in `Features`, never as branches on a name in passes.
This module imports neither MLIR nor LLVM, so the user's process may look targets up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlir import ir


class TargetError(ValueError):
    """An unknown target, or code that a target cannot emit."""


@dataclass(frozen=True)
class Features:
    """Facts of a machine that the emitters ask for.

    `vector_bits` is the width that loops and tiles should use; `registers` the number of vector registers of it.
    """

    vector_bits: int = 128
    registers: int = 16
    has_fma: bool = False
    has_lane_fma: bool = False  # multiply-add takes one lane of a register as a factor
    bf16_dot: str = ""  # LLVM intrinsic (acc, a, b): adds products of pairs of bf16 in f32
    bf16_square: str = ""  # LLVM intrinsic (acc, a, b): adds a 2 x 4 times a 4 x 2 matrix of bf16 in f32
    i8_dot: str = ""  # LLVM intrinsic (acc, a, b): adds products of fours of i8 in i32
    i8_square: str = ""  # LLVM intrinsic (acc, a, b): adds a 2 x 8 times an 8 x 2 matrix of i8 in i32
    u8_dot: str = ""  # as `i8_dot`, with a in u8
    u8_square: str = ""  # as `i8_square`, with a in u8
    u8_u8_dot: str = ""  # as `i8_dot`, with both in u8
    u8_u8_square: str = ""  # as `i8_square`, with both in u8
    i16_pair: str = ""  # LLVM intrinsic (a, b): products of pairs of i16, in i32

    @property
    def narrow(self) -> dict[str, str]:
        """The intrinsics on narrow elements, by field."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: text for name, text in named.items() if isinstance(text, str) and text}

    def packed_depth(self, dtype: str) -> int:
        """Elements along K of a weight in i8 that products take together with `dtype` ("i8", "u8"); 1 if none does."""
        if getattr(self, f"{dtype}_square"):
            return 8
        if getattr(self, f"{dtype}_dot") or self.u8_dot:
            return 4
        return 2 if self.i16_pair else 1

    def lanes(self, bits: int = 32) -> int:
        """Elements of `bits` in one vector register."""
        return max(1, self.vector_bits // bits)


@dataclass(frozen=True)
class Target:
    """One machine that we compile for.

    `cpu` and `attributes` are LLVM's names for it; `flags` the lower-case CPU flags a host needs to run its code.
    `pipeline(kind, plain)` gives the steps from a linalg-level kernel to the llvm level.
    """

    name: str
    arch: str  # as `runtime.machine.host_arch` spells it ("x86_64", "aarch64"); of a GPU as LLVM does ("nvptx64")
    triple: str
    cpu: str
    pipelines: Callable[[Target, str, bool], tuple[str, ...]]
    attributes: str = ""
    tune: str = ""  # LLVM's name of the CPU whose costs choose between forms of code, where `cpu` is not one
    aliases: tuple[str, ...] = ()
    features: Features = field(default_factory=Features)
    flags: frozenset[str] = frozenset()
    device: str = "cpu"  # "cuda", "hip": the runtime walks the plan, there is no host program

    @property
    def attends(self) -> bool:
        """True if there is an emitter for attention: the plain form is slow."""
        return True

    @property
    def convolves(self) -> bool:
        """True if convolutions are computed with channels last."""
        return False

    @property
    def stacks(self) -> bool:
        """True if products read weights that were put one below another where each lies."""
        return False

    @property
    def packed(self) -> tuple[str, ...]:
        """The dtypes whose operands products pack, so that computing them on the way is free."""
        # dot products and squares of bf16 read both operands from memory
        bf16 = () if self.features.bf16_dot or self.features.bf16_square else ("bf16",)
        return ("f32", "f64", "f16", "i32", *bf16)

    def summary(self) -> str:
        """What the machine is, in a line for people."""
        f = self.features
        extras = {"FMA": f.has_fma, "bf16 dot products": f.bf16_dot, "i8 dot products": f.i8_dot or f.u8_dot}
        known = [text for text, has in extras.items() if has]
        return ", ".join([f"{self.arch}, {f.vector_bits}-bit tiles", f"{f.registers} vector registers", *known])

    def pipeline(self, kind: str, plain: bool = False) -> tuple[str, ...]:
        """The steps for a kernel of `kind` (docs/contracts.md, section 4): our pass names and upstream pass text."""
        return self.pipelines(self, kind, plain)

    def emit(self, llvm_ir: str) -> bytes:
        """Optimise LLVM IR text and return a relocatable object."""
        from .llvm import emit_object

        return emit_object(self, llvm_ir)

    def assembly(self, llvm_ir: str) -> str:
        """Optimise LLVM IR text and return assembly."""
        from .llvm import emit_assembly

        return emit_assembly(self, llvm_ir)

    def llvm_ir(self, module: ir.Module) -> str:
        """Translate a module at the llvm level to LLVM IR text."""
        from .llvm import to_llvm_ir

        return to_llvm_ir(module)

    def link(self, objects: Sequence[bytes], names: Sequence[str], exports: Sequence[str]) -> bytes:
        """Link objects, called `names` in messages, to a shared object that exports the symbols `exports`."""
        from . import linker

        return linker.link([linker.read_object(b, n) for b, n in zip(objects, names)], exports)
