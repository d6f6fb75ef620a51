"""The levels of IR and the steps between them: the compiler as one page.

    lamina  --GRAPH_PIPELINE-->  kernels    the whole graph, in one module
    kernels --lower_to_linalg--> linalg     from here on each kernel by itself
    linalg  --target.pipeline--> loops      up to `lamina-kernel-abi`
    loops   --target.pipeline--> llvm       the rest of it
    llvm    --translation-->     llvmir     text
    llvmir  --LLVM-->            asm, obj   text, bytes

The names are the values of `--from`, `--to` and `--emit`. This module runs in workers; it imports MLIR inside functions
only, so that the command line can read the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..targets import Target
from ..targets.nvptx import KINDS as GPU_KINDS  # noqa: F401  for the frontend, which does not know targets

if TYPE_CHECKING:
    from mlir import ir

    from ..passes.pass_manager import Observer

LEVELS = ("lamina", "kernels", "linalg", "loops", "llvm", "llvmir", "asm", "obj")
MLIR_LEVELS = LEVELS[:5]

GRAPH_PIPELINE = (
    "lamina-canonicalize",
    "lamina-cse",
    "lamina-fold-constants",
    "lamina-recognize-composites",
    "lamina-sink-reshapes",
    "lamina-raise-reshapes",
    "lamina-canonicalize",
    "lamina-cse",
    "lamina-dce",
    "lamina-materialize-results",
    "lamina-merge-linears",
    "lamina-lower-transposed-conv",
    "lamina-channels-last",
    "lamina-packed-channels-last",
    "lamina-pack-weights",
    "lamina-pack-convolutions",
    "lamina-split-reductions",
    "lamina-store-by-tokens",
    "lamina-choose-inserted",
    "lamina-split-init",
    "lamina-repeat-chains",
    "lamina-form-kernels",
    "lamina-outline",
    "lamina-share-kernels",
    "lamina-reinplace",
)

# Kinds whose root has an emitter for tiles and, for the plain pipeline, a lowering to linalg. Other kinds than these,
# "loops" and "concat" are direct ops: their own loops are the plain form too.
ROOTS = ("matmul", "conv", "attention")
_LOOPS_END = ("lamina-kernel-abi", "lamina-gpu-abi")


class LevelError(ValueError):
    """A level that does not exist or cannot be reached."""


def check_level(name: str) -> str:
    """`name` if it is a level, else a LevelError with the known ones."""
    if name not in LEVELS:
        raise LevelError(f"there is no level '{name}'; levels are {', '.join(LEVELS)}")
    return name


def graph_pipeline(target: Target) -> tuple[str, ...]:
    """The steps from `lamina` to `kernels`: those of GRAPH_PIPELINE that the target takes, with its options."""
    chosen = _cpu_options(target) if target.device == "cpu" else _gpu_options(target)
    steps = ((name, chosen.get(name, {})) for name in GRAPH_PIPELINE)
    return tuple(_step(name, options) for name, options in steps if options is not None)


def _cpu_options(target: Target) -> dict[str, dict[str, Any] | None]:
    """The options of steps for a CPU; None leaves a step out."""
    f = target.features
    tile = {"columns": 2 * f.lanes(), "i8_depth": f.packed_depth("i8"), "u8_depth": f.packed_depth("u8")}
    return {
        "lamina-channels-last": None,  # tiles are packed anyway
        "lamina-store-by-tokens": None,
        "lamina-choose-inserted": None,  # a copy and what is written over it are plain loops
        "lamina-pack-weights": tile,  # the register tile: two vectors of f32
        "lamina-packed-channels-last": None if f.has_lane_fma else {"columns": 2 * f.lanes()},
        # vectors of weights, whose lanes are multiplied there, lie along K as they are
        "lamina-pack-convolutions": None if f.has_lane_fma else {"columns": 2 * f.lanes()},
        "lamina-form-kernels": {"packed": ",".join(target.packed)},
        "lamina-reinplace": {"pointwise": True},
    }


def _gpu_options(target: Target) -> dict[str, dict[str, Any] | None]:
    """The same for a GPU."""
    convolves, attends, stacks = target.convolves, target.attends, target.stacks
    return {
        "lamina-recognize-composites": {"attention": "f16,bf16" if attends else "none"},
        "lamina-lower-transposed-conv": {"last": True} if convolves else {},
        "lamina-channels-last": {} if convolves else None,
        "lamina-packed-channels-last": None,
        "lamina-pack-weights": None,  # tiles take weights as they are
        "lamina-pack-convolutions": None,
        "lamina-split-reductions": None,  # the emitter does
        "lamina-store-by-tokens": {} if attends else None,
        "lamina-split-init": {"stacked": stacks},
        "lamina-share-kernels": None,  # what starts at a number may be aligned
        "lamina-form-kernels": {"turned": attends, "gpu": True, "stacked": stacks},
        "lamina-reinplace": {"residuals": True},
    }


def _step(name: str, options: Mapping[str, Any]) -> str:
    """The text of a step: `name{option=value …}`."""
    given = (f"{n}={str(v).lower() if isinstance(v, bool) else v}" for n, v in options.items())
    return f"{name}{{{' '.join(given)}}}" if options else name


def kernel_pipeline(
    target: Target, kind: str, plain: bool, start: str = "kernels", stop: str = "llvm", numerics: str = "eager"
) -> tuple[str, ...]:
    """The steps of one kernel of `kind` from level `start` to level `stop`, both MLIR levels."""
    rest = target.pipeline(kind, plain)
    split = next((i for i, step in enumerate(rest) if step in _LOOPS_END), len(rest))
    loops = list(rest[:split])
    if "tf32" in numerics and kind == "matmul" and target.device == "cuda":
        loops.insert(0, "lamina-allow-tf32")
    if "fast" in numerics:  # while conversions are ops of arith
        expansion = next((i for i, step in enumerate(loops) if step.startswith("lamina-expand-math")), split)
        loops.insert(expansion, "lamina-keep-f32")
    first = "lamina-lower-to-linalg"
    if kind not in ("loops", "concat") and not (plain and kind in ROOTS):
        first += "{keep-root=true}"
    elif plain:
        first += "{wide-sums=true}"
    steps = {"linalg": (first,), "loops": tuple(loops), "llvm": rest[split:]}
    between = MLIR_LEVELS[MLIR_LEVELS.index(start) + 1 : MLIR_LEVELS.index(stop) + 1]
    return tuple(step for level in between for step in steps.get(level, ()))


def lower_kernel(
    module: ir.Module,
    target: Target,
    kind: str,
    plain: bool = False,
    start: str = "kernels",
    stop: str = "obj",
    observer: Observer | None = None,
    numerics: str = "eager",
) -> str | bytes:
    """Take a module with one kernel from level `start` (an MLIR level) to level `stop`.

    Returns the text of the result, or an object's bytes. `module` is changed. Each level that is passed is verified on
    its way (`observer.verify`).
    """
    from ..passes.pass_manager import run

    for level in MLIR_LEVELS[MLIR_LEVELS.index(start) + 1 :]:
        before = MLIR_LEVELS[MLIR_LEVELS.index(level) - 1]
        run(module, kernel_pipeline(target, kind, plain, before, level, numerics), observer)
        if level == stop:
            return str(module)
    return emit(module, target, stop, observer)


def emit(module: ir.Module, target: Target, stop: str, observer: Observer | None = None) -> str | bytes:
    """Take a module at level `llvm` to `llvmir`, `asm` or `obj`."""
    with timed("LLVM translation", observer):
        text = target.llvm_ir(module)
    if observer and observer.dump:
        observer.dump.text(observer.label, "kernel.ll", text)
    return emit_llvm_ir(text, target, stop, observer)


def emit_llvm_ir(text: str, target: Target, stop: str, observer: Observer | None = None) -> str | bytes:
    """Take LLVM IR text to `llvmir` (itself), `asm` or `obj`."""
    if stop == "llvmir":
        return text
    if stop == "asm":
        return target.assembly(text)
    with timed("LLVM optimisation and emission", observer):
        code = target.emit(text)
    if observer and observer.dump:
        observer.dump.text(observer.label, "kernel.s", target.assembly(text))
    return code


class timed:
    """`with timed(name, observer):` counts the block's time as that of a pass."""

    def __init__(self, name: str, observer: Observer | None):
        self.name, self.times = name, observer.times if observer else None

    def __enter__(self) -> None:
        import time

        self.start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        import time

        if self.times:
            self.times.add(self.name, time.perf_counter() - self.start)
