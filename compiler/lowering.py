"""Take IR from one level to another, in this process: what `lamina compile --from … --to …` and `Compiled.ir` show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import levels
from .levels import LevelError

if TYPE_CHECKING:
    from mlir import ir

    from ..dialects.record import Graph
    from ..passes.pass_manager import Observer
    from ..targets import Target


class IrError(ValueError):
    """Text that is not IR."""


def guess_level(name: str, text: str) -> str:
    """The level that the IR in `text` is at, by what occurs in it."""
    if name.endswith(".ll") or re.search(r"^define ", text, re.M):
        return "llvmir"
    if "llvm.func" in text:
        return "llvm"
    if "lamina.range" in text:
        return "loops"
    if "lamina.kind" in text:
        return "kernels" if re.search(r'"lamina\.\w+"\s*\(', text) else "linalg"
    return "lamina"


def lower_record(
    graph: Graph,
    stop: str,
    target: Target,
    plain: bool,
    kernel: str | None,
    observer: Observer,
    numerics: str = "eager",
) -> str | bytes:
    """Take a graph record to level `stop`; text, or an object's bytes."""
    from ..dialects.mlir_context import context
    from ..passes.graph.import_graph import import_graph

    module = import_graph(graph, context())
    if stop == "lamina":
        return module.operation.get_asm(enable_debug_info=True)
    return lower_module(module, "lamina", stop, target, plain, kernel, observer, numerics)


def lower_text(
    text: str,
    name: str,
    start: str,
    stop: str,
    target: Target,
    plain: bool,
    kernel: str | None,
    observer: Observer,
    numerics: str = "eager",
) -> str | bytes:
    """Take IR text at level `start` to level `stop`."""
    from ..dialects.mlir_context import context

    if levels.LEVELS.index(stop) < levels.LEVELS.index(start):
        raise LevelError(f"{name} is at level '{start}', which comes after '{stop}'; --from says otherwise")
    if start == "llvmir":
        return levels.emit_llvm_ir(text, target, stop, observer)
    if start in ("asm", "obj"):
        raise LevelError(f"nothing reads '{start}'; start from {', '.join(levels.LEVELS[:6])}")
    module = parse_module(text, name, context(), start)
    return lower_module(module, start, stop, target, plain, kernel, observer, numerics)


def parse_module(text: str, name: str, context: ir.Context, level: str = "") -> ir.Module:
    """Parse MLIR text, and check the ops of ours in it at the levels that consist of them (`level`).

    What is wrong is an IrError with the file's name and MLIR's position.
    """
    from mlir import ir

    from ..passes.graph.verify_lamina import VerifyError, verify_lamina

    try:
        module = ir.Module.parse(text, context)
        if level in ("lamina", "kernels"):
            verify_lamina(module)
        return module
    except VerifyError as error:
        raise IrError(f"{name}: {error}") from None
    except ir.MLIRError as error:
        found = "; ".join(f"{_position(d.location)}{d.message}" for d in error.error_diagnostics)
        hint = 'this is not MLIR; ops of lamina are written as "lamina.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>'
        raise IrError(f"{name}: {found or hint}") from None


def lower_module(
    module: ir.Module,
    start: str,
    stop: str,
    target: Target,
    plain: bool,
    kernel: str | None,
    observer: Observer,
    numerics: str = "eager",
) -> str | bytes:
    """Take a module at MLIR level `start` to level `stop`; several kernels give one text after another."""
    from mlir import ir

    from ..passes.pass_manager import run
    from .kernels import kernel_kind, take_kernels

    if start == stop:
        return str(module)
    if start == "lamina":
        run(module, levels.graph_pipeline(target), observer)
        if stop == "kernels":
            return str(module)
        start = "kernels"
    if start != "kernels":
        return levels.lower_kernel(module, target, kernel_kind(module), plain, start, stop, observer, numerics)
    found = take_kernels(module)
    chosen = [k for k in found if kernel is None or kernel in k.name]
    names = ", ".join(k.name for k in found)
    if not found:
        raise LevelError("there are no kernels: they are made of the ops in `func.func @main`")
    if not chosen:
        raise LevelError(f"no kernel's name contains '{kernel}'; kernels are {names}")
    if len(chosen) > 1 and stop == "obj":
        raise LevelError(f"an object holds one kernel and there are {len(chosen)}; --kernel takes one of {names}")
    results = []
    for k in chosen:
        observer.label = k.name
        parsed = ir.Module.parse(k.text, module.context)
        results.append(levels.lower_kernel(parsed, target, k.kind, plain, "kernels", stop, observer, numerics))
    if len(results) == 1:
        return results[0]
    comment = {"asm": "#", "llvmir": ";"}.get(stop, "//")
    return "\n".join(f"{comment} {'-' * 20} {k.name}\n{text}" for k, text in zip(chosen, results))


def _position(location: ir.Location) -> str:
    return f"{location.start_line}:{location.start_col}: " if location.is_a_file() else ""
