"""The pipelines that CPU targets share: from one linalg-level kernel to the llvm level.

Each kind of kernel has an emitter pass that writes loops; what follows is the same for all. `plain` is the fallback
and the oracle: upstream bufferization and straight loops.
"""

from __future__ import annotations

from .target import Target

PLAIN = (
    "lamina-outputs-to-arguments",
    "eliminate-empty-tensors",
    "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map}",
    "lamina-copies-to-linalg",
    "lamina-expansions-to-casts",
    "convert-linalg-to-loops",
    # before canonicalize, which folds truncf(sitofp) into one rounding to bf16 or 8 bits
    "lamina-expand-math",
    "arith-expand{include-bf16=true}",
    "canonicalize",
    "lamina-checks-to-status",
)

# memref and vector structure out first, then one conversion pass for all dialects at once
TO_LLVM = (
    "lamina-kernel-abi",
    "expand-strided-metadata",
    "lower-affine",
    "convert-scf-to-cf",
    "convert-vector-to-llvm{reassociate-fp-reductions=true}",
    "finalize-memref-to-llvm",
    "convert-math-to-llvm{approximate-log1p=false}",  # log(1 + x) is 0 for a small x; libm's is right
    "convert-math-to-libm",
    "convert-vector-to-llvm",  # libm calls take vectors apart
    "arith-expand{include-bf16=true}",
    "convert-arith-to-llvm",
    "convert-index-to-llvm",
    "convert-cf-to-llvm",
    "convert-func-to-llvm",
    "convert-ub-to-llvm",
    "reconcile-unrealized-casts",
)

LOOP_KINDS = ("loops", "concat")
TILE_KINDS = ("matmul", "conv", "attention")


def pipeline(target: Target, kind: str, plain: bool) -> tuple[str, ...]:
    """The steps for a kernel of `kind` on a CPU target."""
    f = target.features
    if kind not in (*LOOP_KINDS, *TILE_KINDS):  # a direct op: its own loops are the plain form too
        return ("lamina-emit-direct", "lamina-expand-math", *TO_LLVM)
    if plain:
        return (*PLAIN, *TO_LLVM)
    if kind in LOOP_KINDS:
        emitter = f"lamina-emit-loops{{vector_bits={f.vector_bits}}}"
    else:
        emitter = f"lamina-emit-{kind.replace('_', '-')}"
        if kind in TILE_KINDS:
            by_lane = " by_lane=true" if f.has_lane_fma else ""
            narrow = f.narrow if kind == "matmul" else {}
            intrinsics = "".join(f" {option}={intrinsic}" for option, intrinsic in narrow.items())
            emitter += f"{{vector_bits={f.vector_bits} registers={f.registers}{by_lane}{intrinsics}}}"
    return (emitter, "lamina-expand-math", *TO_LLVM)
