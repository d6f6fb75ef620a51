"""Where instructions get their meaning: a table of lane-wise operations, and builders for the rest.

ALU["v_add_f32"] = Alu(F32, (F32, F32), np.add)

@builds(r"s_load_.*")
def scalar_load(instruction, chip):     # once per place in a program
    ...
    def run(w): ...                     # each time, for all active waves
    return run
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .errors import UnknownInstruction
from .waves import Waves

Run = Callable[[Waves], None]
Builder = Callable[[Instruction, Chip], Run]


@dataclass(frozen=True)
class Alu:
    """A lane-wise operation: `compute` of sources of these types is the result."""

    result: np.dtype
    sources: tuple[np.dtype, ...]
    compute: Callable[..., np.ndarray]
    selects: bool = False  # the last source says which of the others is the result
    accumulates: bool = False  # the destination is the last source
    keeps_high: bool = False  # a 16-bit result leaves the upper half also on gfx9


ALU: dict[str, Alu] = {}
BUILDERS: list[tuple[re.Pattern[str], Builder]] = []


def builds(pattern: str) -> Callable[[Builder], Builder]:
    """Register a builder for the instructions whose whole name matches."""

    def register(builder: Builder) -> Builder:
        BUILDERS.append((re.compile(pattern), builder))
        return builder

    return register


def find_builder(instruction: Instruction, chip: Chip) -> Builder:
    """The builder for an instruction that is not in the table."""
    for pattern, builder in BUILDERS:
        if pattern.fullmatch(instruction.name):
            return builder
    raise UnknownInstruction(f"the emulator does not know '{instruction.name}' ({chip.name}: {instruction})")


def refuse(instruction: Instruction, what: str) -> UnknownInstruction:
    """An instruction is known, but not in this form."""
    return UnknownInstruction(f"the emulator does not know {what} of {instruction}")
