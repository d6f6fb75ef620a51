"""Take IR from one level to another, in this process: what `lamina compile --from … --to …` and `Compiled.ir` show."""

from __future__ import annotations

import re
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Lowering:
    """How IR is taken to another level. `kernel`: only those kernels whose name contains it."""

    target: Target
    observer: Observer
    plain: bool = False
    kernel: str | None = None
    numerics: str = "eager"

    def record(self, graph: Graph, stop: str) -> str | bytes:
        """Take a graph record to level `stop`; text, or an object's bytes."""
        from ..dialects.mlir_context import context
        from ..passes.graph.import_graph import import_graph

        module = import_graph(graph, context())
        if stop == "lamina":
            return module.operation.get_asm(enable_debug_info=True)
        return self.module(module, "lamina", stop)

    def text(self, text: str, name: str, start: str, stop: str) -> str | bytes:
        """Take IR text, called `name` in messages, from level `start` to level `stop`."""
        from ..dialects.mlir_context import context

        if levels.LEVELS.index(stop) < levels.LEVELS.index(start):
            raise LevelError(f"{name} is at level '{start}', which comes after '{stop}'; --from says otherwise")
        if start == "llvmir":
            return levels.emit_llvm_ir(text, self.target, stop, self.observer)
        if start in ("asm", "obj"):
            raise LevelError(f"nothing reads '{start}'; start from {', '.join(levels.LEVELS[:6])}")
        return self.module(parse_module(text, name, context(), start), start, stop)

    def module(self, module: ir.Module, start: str, stop: str) -> str | bytes:
        """Take a module from MLIR level `start` to level `stop`; several kernels give one text after another."""
        from ..passes.pass_manager import run
        from .kernels import kernel_kind

        if start == stop:
            return str(module)
        if start == "lamina":
            run(module, levels.graph_pipeline(self.target), self.observer)
            if stop == "kernels":
                return str(module)
            start = "kernels"
        if start == "kernels":
            return self._kernels(module, stop)
        return self._one(module, kernel_kind(module), start, stop)

    def _one(self, module: ir.Module, kind: str, start: str, stop: str) -> str | bytes:
        return levels.lower_kernel(module, self.target, kind, self.plain, start, stop, self.observer, self.numerics)

    def _kernels(self, module: ir.Module, stop: str) -> str | bytes:
        """Each chosen kernel of a module at level `kernels` for itself."""
        from mlir import ir

        from .kernels import take_kernels

        found = take_kernels(module)
        chosen = [k for k in found if self.kernel is None or self.kernel in k.name]
        names = ", ".join(k.name for k in found)
        if not found:
            raise LevelError("there are no kernels: they are made of the ops in `func.func @main`")
        if not chosen:
            raise LevelError(f"no kernel's name contains '{self.kernel}'; kernels are {names}")
        if len(chosen) > 1 and stop == "obj":
            raise LevelError(f"an object holds one kernel and there are {len(chosen)}; --kernel takes one of {names}")
        results = []
        for k in chosen:
            self.observer.label = k.name
            results.append(self._one(ir.Module.parse(k.text, module.context), k.kind, "kernels", stop))
        if len(results) == 1:
            return results[0]
        comment = {"asm": "#", "llvmir": ";"}.get(stop, "//")
        return "\n".join(f"{comment} {'-' * 20} {k.name}\n{text}" for k, text in zip(chosen, results))


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


def _position(location: ir.Location) -> str:
    return f"{location.start_line}:{location.start_col}: " if location.is_a_file() else ""
