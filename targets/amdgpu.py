"""AMD GPUs, through LLVM's AMDGPU backend: code objects of version 5, linked by our linker.

What the chips differ in are features: the width of a wave, registers, and the form of their matrix instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from .gpu import KINDS, GpuTarget, is_direct, no_kernel
from .target import Features, Target

# exp and exp2 are LLVM's own, tanh and erf in gpu_math; lamina-expand-math makes arithmetic of the others
EXPAND = "lamina-expand-math{keep=exp,exp2,tanh,erf,maximumf,minimumf halves=false}"


def pipeline(target: Target, kind: str, plain: bool) -> tuple[str, ...]:
    """The steps for a kernel of `kind`; TargetError for a kind without a GPU emitter."""
    assert isinstance(target, AmdgpuTarget)
    if is_direct(kind):
        return (f"lamina-emit-gpu-direct{{wave={target.wave} ballot=rocdl.ballot}}", EXPAND, *_to_rocdl(target.cpu))
    if kind in KINDS or plain:
        return (f"lamina-emit-gpu-loops{{wave={target.wave}}}", EXPAND, *_to_rocdl(target.cpu))
    if kind in ("matmul", "conv"):
        float8 = f" float8={target.float8}" if target.float8 else ""
        emitter = f"lamina-emit-gpu-matmul{{wave={target.wave} matrix={target.matrix}{float8}}}"
        return (emitter, EXPAND, *_to_rocdl(target.cpu))
    if kind == "attention":
        emitter = f"lamina-emit-gpu-attention{{wave={target.wave} matrix={target.matrix}}}"
        return (emitter, EXPAND, *_to_rocdl(target.cpu))
    raise no_kernel(target, kind)


def _to_rocdl(chip: str) -> tuple[str, ...]:
    passes = (
        "canonicalize",
        "cse",
        "convert-scf-to-cf",
        f"convert-amdgpu-to-rocdl{{chipset={chip}}}",
        f"convert-gpu-to-rocdl{{chipset={chip} use-bare-ptr-memref-call-conv=true runtime=HIP}}",
        "canonicalize",
        "cse",
        "reconcile-unrealized-casts",
    )
    return ("lamina-gpu-abi", *(f"gpu.module({p})" for p in passes))


@dataclass(frozen=True)
class AmdgpuTarget(GpuTarget):
    """An AMD GPU: `wave` lanes run together; `matrix` is the form of its matrix instructions."""

    device: str = "hip"
    wave: int = 64
    matrix: str = ""  # "mfma", "wmma" (gfx11: operands twice in a wave), "wmma2" (gfx12: once)
    float8: str = ""  # the formats of 8 bits that they multiply: "fnuz", "ocp" or none

    @property
    def attends(self) -> bool:
        return True

    def emit(self, llvm_ir: str) -> bytes:
        """The container of one kernel: its stages and a code object."""
        from .amdgpu_code import emit_code_object
        from .gpu import stages_of
        from .gpu_container import pack

        return pack(stages_of(llvm_ir), [emit_code_object(self, llvm_ir)])

    def assembly(self, llvm_ir: str) -> str:
        """Optimise LLVM IR text and return assembly."""
        from .amdgpu_code import emit_assembly

        return emit_assembly(self, llvm_ir)

    def summary(self) -> str:
        form = "MFMA" if self.matrix == "mfma" else "WMMA"
        float8 = f", fp8 ({self.float8.upper()})" if self.float8 else ""
        return f"AMD GPU, waves of {self.wave}, {self.features.registers} vector registers, {form}{float8}"


def _target(name: str, wave: int, matrix: str, registers: int, float8: str = "") -> AmdgpuTarget:
    return AmdgpuTarget(
        name=name,
        arch="amdgcn",
        triple="amdgcn-amd-amdhsa",
        cpu=name,
        pipelines=pipeline,
        features=Features(vector_bits=128, registers=registers, has_fma=True),
        flags=frozenset((name,)),
        wave=wave,
        matrix=matrix,
        float8=float8,
    )


TARGETS = (
    _target("gfx90a", 64, "mfma", 512),
    _target("gfx942", 64, "mfma", 512, "fnuz"),
    _target("gfx1100", 32, "wmma", 256),
    _target("gfx1201", 32, "wmma2", 256, "ocp"),
)
