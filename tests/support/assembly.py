"""Assembly of single kernels for any target, and its inner loops."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import llvm
from mlir import ir

from lamina.dialects.mlir_context import context
from lamina.passes import pass_manager
from lamina.targets import get_target
from lamina.targets.llvm import to_llvm_ir

MCA = Path(llvm.__path__[0]) / "bin" / "llvm-mca"
ITERATIONS = 200


def assembly(text: str, target: str, kind: str) -> str:
    """The assembly of the one kernel of a module at the linalg level."""
    made = get_target(target)
    with context():
        module = ir.Module.parse(text)
        pass_manager.run(module, made.pipeline(kind))
        return made.assembly(to_llvm_ir(module))


def inner_loops(text: str) -> list[list[str]]:
    """The instructions of each loop that is one basic block, from its label to the branch back."""
    found, label, lines = [], "", []
    for line in text.splitlines():
        if made := re.match(r"(\.L\w+):", line):
            label, lines = made[1], []
        elif line.startswith("\t") and not line.startswith("\t."):
            lines.append(line.strip())
            if label and re.match(rf"\t[bj]\S*\s.*{re.escape(label)}$", line):
                found.append(lines)
                label, lines = "", []
    return found


def cycles(loop: list[str], triple: str, cpu: str) -> float:
    """Cycles of an iteration as llvm-mca sees them: everything in L1, branches free."""
    return int(_mca(loop, triple, cpu, "Total Cycles")) / ITERATIONS


def port_limit(loop: list[str], triple: str, cpu: str) -> float:
    """Cycles that an iteration takes at least, since its instructions share the core's ports."""
    return float(_mca(loop, triple, cpu, "Block RThroughput"))


def _mca(loop: list[str], triple: str, cpu: str, line: str) -> str:
    """What llvm-mca says in a line of its summary."""
    source = "again:\n" + "\n".join(re.sub(r"\.L\w+", "again", line) for line in loop) + "\n"
    command = [MCA, f"-mtriple={triple}", f"-mcpu={cpu}", f"-iterations={ITERATIONS}"]
    shown = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return re.search(rf"{line}: +([\d.]+)", shown)[1]  # type: ignore[index]
