"""Take a file of IR from one level to another, in this process: what `lamina compile --from … --to …` does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ..compiler import levels

if TYPE_CHECKING:
    from mlir import ir

    from ..dialects.record import Graph
    from ..passes.pass_manager import Observer
    from ..targets import Target


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


def lower_graph(graph: Graph, stop: str, target: Target, plain: bool, kernel: str | None, observer: Observer):
    """Take a graph record to level `stop`; text, or an object's bytes."""
    from ..dialects.mlir_context import context
    from ..passes.import_graph import import_graph

    module = import_graph(graph, context())
    if stop == "lamina":
        return module.operation.get_asm(enable_debug_info=True)
    return lower_module(module, "lamina", stop, target, plain, kernel, observer)


def lower_text(
    text: str, name: str, start: str, stop: str, target: Target, plain: bool, kernel: str | None, observer: Observer
) -> str | bytes:
    """Take IR text at level `start` to level `stop`."""
    from mlir import ir

    from ..dialects.mlir_context import context
    from .opt import parse_module

    if levels.LEVELS.index(stop) < levels.LEVELS.index(start):
        raise click.ClickException(f"{name} is at level '{start}', which comes after '{stop}'; --from says otherwise")
    if start == "llvmir":
        return levels.emit_llvm_ir(text, target, stop, observer)
    if start in ("asm", "obj"):
        raise click.ClickException(f"nothing reads '{start}'; start from {', '.join(levels.LEVELS[:6])}")
    return lower_module(parse_module(ir, context(), text, name), start, stop, target, plain, kernel, observer)


def lower_module(
    module: ir.Module, start: str, stop: str, target: Target, plain: bool, kernel: str | None, observer: Observer
) -> str | bytes:
    """Take a module at MLIR level `start` to level `stop`; several kernels give one text after another."""
    from mlir import ir

    from ..compiler.kernels import kernel_kind, take_kernels
    from ..passes.pass_manager import run

    if start == stop:
        return str(module)
    if start == "lamina":
        run(module, levels.graph_pipeline(target), observer)
        if stop == "kernels":
            return str(module)
        start = "kernels"
    if start != "kernels":
        return levels.lower_kernel(module, target, kernel_kind(module), plain, start, stop, observer)
    found = take_kernels(module)
    chosen = [k for k in found if kernel is None or kernel in k.name]
    names = ", ".join(k.name for k in found)
    if not chosen:
        raise click.ClickException(f"no kernel's name contains '{kernel}'; kernels are {names}")
    if len(chosen) > 1 and stop == "obj":
        raise click.ClickException(
            f"an object holds one kernel and there are {len(chosen)}; --kernel takes one of {names}"
        )
    results = []
    for k in chosen:
        observer.label = k.name
        parsed = ir.Module.parse(k.text, module.context)
        results.append(levels.lower_kernel(parsed, target, k.kind, plain, "kernels", stop, observer))
    if len(results) == 1:
        return results[0]
    comment = {"asm": "#", "llvmir": ";"}.get(stop, "//")
    return "\n".join(f"{comment} {'-' * 20} {k.name}\n{text}" for k, text in zip(chosen, results))
