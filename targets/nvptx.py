"""NVIDIA GPUs, through LLVM's NVPTX backend: PTX text, and a cubin where `ptxas` is found.

What the chips can do differs by features, not by names: `wgmma` and TMA descriptors are sm_90a's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import gpu
from .gpu import GpuTarget, is_direct, no_kernel, stages_of
from .target import Features, Target

# math functions that have an implementation of ours in nvptx_math; lamina-expand-math makes arithmetic of the others
_TO_NVVM = (
    "gpu.module(canonicalize)",
    "gpu.module(cse)",
    "gpu.module(convert-scf-to-cf)",
    "gpu.module(convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=true})",
    "gpu.module(convert-nvvm-to-llvm)",
    "gpu.module(canonicalize)",
    "gpu.module(cse)",
    "gpu.module(reconcile-unrealized-casts)",
    "lamina-gpu-descriptors",
)
TO_NVVM = ("lamina-gpu-abi", *_TO_NVVM)
OVERLAPPING = ("lamina-gpu-abi", "lamina-overlap-launches", *_TO_NVVM)  # since sm_90
_LOOPS = (
    "lamina-emit-gpu-loops{divide=llvm.nvvm.div.full exp2=llvm.nvvm.ex2.approx.ftz.f largest=llvm.nvvm.redux.sync.max "
    "stream=true aligned=true%s}"
)
EXPAND = "lamina-expand-math{keep=exp,exp2,tanh,erf,maximumf,minimumf halves=false}"
# kernels that torch.compile uses, attention where the target `attends`; convolutions are right,
# but cuDNN is faster
KINDS = gpu.KINDS | {
    "matmul",
    "attention",
    "index_put",
    "scatter",
    "slice_scatter",
    "cumsum",
    "cumprod",
    "topk",
    "searchsorted",
}


def pipeline(target: Target, kind: str, plain: bool) -> tuple[str, ...]:
    """The steps for a kernel of `kind`; TargetError for a kind without a GPU emitter."""
    features = target.gpu_features if isinstance(target, NvptxTarget) else frozenset()
    float8 = ("lamina-convert-float8",) if "convert_float8" in features else ()
    rest = (*float8, EXPAND, *(OVERLAPPING if "overlap" in features else TO_NVVM))
    if is_direct(kind):
        return ("lamina-emit-gpu-direct", *rest)
    if kind in gpu.KINDS or plain:
        options = " clusters=true" * ("clusters" in features) + " overlaps=true" * ("overlap" in features)
        return (_LOOPS % options, *rest)
    wgmma = f"wgmma={str('wgmma' in features).lower()}"
    if kind in ("matmul", "conv"):
        formats = " float8=ocp" if "fp8" in features else ""
        return (f"lamina-emit-gpu-matmul{{{wgmma} matrix={'mma' if 'mma' in features else ''}{formats}}}", *rest)
    if kind == "attention" and target.attends:
        return (f"lamina-emit-gpu-attention{{{wgmma}}}", *rest)
    raise no_kernel(target, kind)


@dataclass(frozen=True)
class NvptxTarget(GpuTarget):
    """An NVIDIA GPU: `ptx` is the PTX version."""

    device: str = "cuda"
    ptx: str = "ptx87"
    capability: tuple[int, int] = (9, 0)
    gpu_features: frozenset[str] = field(default_factory=frozenset)

    @property
    def attends(self) -> bool:
        """Attention needs tensor cores."""
        return "mma" in self.gpu_features

    @property
    def convolves(self) -> bool:
        """Convolutions with channels last need the copy engine's im2col mode and warpgroup products."""
        return {"tma", "wgmma"} <= self.gpu_features

    @property
    def stacks(self) -> bool:
        """The copy engine's descriptors are chosen by the tile, of products that read both operands by it."""
        return {"tma", "wgmma"} <= self.gpu_features

    def emit(self, llvm_ir: str) -> bytes:
        """The container of one kernel: its stages, PTX, and a cubin where ptxas is found."""
        from .gpu_container import pack
        from .nvptx_code import assemble, to_ptx

        ptx = to_ptx(self, llvm_ir)
        return pack(stages_of(llvm_ir), [ptx.encode(), assemble(self, ptx)])

    def assembly(self, llvm_ir: str) -> str:
        """Optimise LLVM IR text and return PTX."""
        from .nvptx_code import to_ptx

        return to_ptx(self, llvm_ir)

    def summary(self) -> str:
        known = ["PTX", *(f for f in ("mma", "tma", "wgmma", "fp8") if f in self.gpu_features)]
        return f"NVIDIA GPU of compute capability {self.capability[0]}.{self.capability[1]}, {', '.join(known)}"


def _target(name: str, ptx: str, capability: tuple[int, int], *features: str, alias: str = "") -> NvptxTarget:
    return NvptxTarget(
        name=name,
        aliases=(alias,) if alias else (),
        arch="nvptx64",
        triple="nvptx64-nvidia-cuda",
        cpu=name,
        attributes=f"+{ptx}",
        pipelines=pipeline,
        features=Features(vector_bits=128, registers=255, has_fma=True),
        flags=frozenset((name,)),
        ptx=ptx,
        capability=capability,
        gpu_features=frozenset(features),
    )


TARGETS = (
    _target("sm_80", "ptx80", (8, 0), "mma", "cp_async"),
    _target("sm_90", "ptx87", (9, 0), "mma", "cp_async", "overlap", "clusters", "tma", "convert_float8"),
    _target(
        "sm_90a",
        "ptx87",
        (9, 0),
        "mma",
        "cp_async",
        "overlap",
        "clusters",
        "tma",
        "convert_float8",
        "wgmma",
        "fp8",
        alias="cuda",
    ),
)
