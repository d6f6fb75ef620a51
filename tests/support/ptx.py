"""PTX of single kernels, and what NVIDIA's assembler says about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from mlir import ir
from support.overlap import assert_waits

from lamina.compiler.levels import lower_kernel
from lamina.targets import get_target
from lamina.targets.gpu import stages_of
from lamina.targets.nvptx_code import assemble, find_ptxas, to_ptx

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="no ptxas here")


@dataclass
class Assembled:
    """A kernel's PTX, its stages as data (contracts §11), and ptxas' report on it."""

    ptx: str
    stages: list[dict[str, Any]]
    report: str

    @property
    def registers(self) -> list[int]:
        """Registers of a thread, of each stage."""
        return [int(r) for r in re.findall(r"Used (\d+) registers", self.report)]


def assembled(module: ir.Module, target: str, kind: str, numerics: str = "eager") -> Assembled:
    """Compile the kernel of a linalg-level module, whose context is current, and assemble it.

    A spill is a failure, and so is since sm_90 a kernel that overlaps with the launch before it and does not wait for it.
    """
    machine = get_target(target)
    text = lower_kernel(module, machine, kind, start="linalg", stop="llvmir", numerics=numerics)
    ptx, report = to_ptx(machine, text), []
    assert assemble(machine, ptx, report)[:4] == b"\x7fELF"
    described = stages_of(text)
    if target.startswith("sm_90") and described["overlaps"]:
        assert_waits(ptx)
    made = Assembled(ptx, described["stages"], report[0])
    assert made.registers and set(re.findall(r"(\d+) bytes spill", made.report)) <= {"0"}, made.report
    return made
