"""A kernel's instructions, each built into a function once, when it is first reached."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from .chips import Chip
from .disassembly import Instruction, disassemble
from .errors import EmulatorError
from .operands import U64, parse_operand, scalar_reader
from .registers import EXEC, VCC
from .registry import ALU, Run, find_builder, refuse
from .vector_alu import build_alu, build_dual
from .waves import Waves


class Kind(Enum):
    """What the scheduler has to do after a step."""

    PLAIN = 0
    BRANCH = 1  # run(w) says which waves jump to `target`
    JUMP = 2  # run(w) gives each wave's next address
    BARRIER = 3
    SIGNAL = 4  # the first half of a split barrier
    END = 5


@dataclass
class Step:
    """One instruction, ready to run."""

    instruction: Instruction
    kind: Kind
    run: Callable[[Waves], Any]
    next: int
    target: int = 0


_NOTHING = re.compile(
    r"s_(nop|delay_alu|clause|code_end|set_inst_prefetch_distance|inst_prefetch|sleep|setprio|sendmsg|version"
    r"|waitcnt_depctr|wait_alu|icache_inv|dcache_inv|dcache_wb|ttracedata|prefetch_\w+|set_vgpr_msb|wakeup|endpgm_saved)"
    r"|buffer_(gl[01]_inv|inv|wbl2|wbinvl1|wbinvl1_vol|invl2)|global_(inv|wb|wbinv)|v_nop|v_pipeflush|sched_barrier"
    r"|global_prefetch_b8"
)
# gfx12's counters by the names of the waits
_NEW_WAITS = {"loadcnt": ("vm",), "storecnt": ("vs",), "dscnt": ("ds",), "kmcnt": ("km",)}
_NEW_WAITS |= {"samplecnt": (), "bvhcnt": (), "expcnt": (), "xcnt": ()}


def _wait(instruction: Instruction, chip: Chip) -> Run | None:
    """`s_waitcnt vmcnt(0) lgkmcnt(1)`, `s_waitcnt_vscnt null, 0x0`, `s_wait_loadcnt_dscnt 0x100`."""
    name, waits = instruction.name, []
    if name == "s_waitcnt":
        waits = [(counter, int(n)) for counter, n in re.findall(r"(vm|lgkm)cnt\((\d+)\)", instruction.text)]
    elif name == "s_waitcnt_vscnt":
        waits = [("vs", int(instruction.operands[1], 0))]
    elif name in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        number = int(instruction.operands[0], 0)
        waits = [("vm" if "load" in name else "vs", number >> 8), ("ds", number & 63)]
    elif name == "s_wait_idle":
        waits = [(counter, 0) for counter in ("vm", "vs", "lgkm", "ds", "km")]
    elif name.startswith("s_wait_") and name[7:] in _NEW_WAITS:
        waits = [(counter, int(instruction.operands[0], 0)) for counter in _NEW_WAITS[name[7:]]]
    else:
        return None

    def run(w: Waves) -> None:
        for counter, left in waits:
            w.counters.wait(counter, left, w.active)

    return run


def _condition(name: str) -> Callable[[Waves], np.ndarray]:
    """Which waves take a branch."""

    def bits(w: Waves, row: int) -> np.ndarray:
        return w.scalar64(row) if w.width == 64 else w.scalar(row)

    tests = {
        "s_branch": lambda w: np.ones(w.count, bool),
        "s_cbranch_execz": lambda w: bits(w, EXEC) == 0,
        "s_cbranch_execnz": lambda w: bits(w, EXEC) != 0,
        "s_cbranch_vccz": lambda w: bits(w, VCC) == 0,
        "s_cbranch_vccnz": lambda w: bits(w, VCC) != 0,
        "s_cbranch_scc0": lambda w: ~w.scc,
        "s_cbranch_scc1": lambda w: w.scc,
    }
    return tests[name]


def _jump(instruction: Instruction) -> Callable[[Waves], np.ndarray]:
    """`s_setpc_b64 address`, `s_swappc_b64 return, address`: offsets in the image."""
    reader = scalar_reader(parse_operand(instruction.operands[-1]), U64)
    back = parse_operand(instruction.operands[0]) if instruction.name == "s_swappc_b64" else None
    after = instruction.address + instruction.size

    def run(w: Waves) -> np.ndarray:
        to = np.broadcast_to(reader(w) - np.uint64(w.code_base), (w.count,)).astype(np.int64)
        if back:
            w.write_scalar64(back.row, np.array(w.code_base + after, U64))
        return to

    return run


def build(instruction: Instruction, chip: Chip) -> Step:
    """Make an instruction ready to run."""
    name, after = instruction.name, instruction.address + instruction.size
    nothing = lambda w: None
    if name == "s_endpgm":
        return Step(instruction, Kind.END, nothing, after)
    if name in ("s_barrier", "s_barrier_wait"):
        return Step(instruction, Kind.BARRIER, nothing, after)
    if name == "s_barrier_signal":
        if instruction.operands[0] != "-1":
            raise refuse(instruction, "a barrier other than the workgroup's")
        return Step(instruction, Kind.SIGNAL, nothing, after)
    if name == "s_branch" or re.fullmatch(r"s_cbranch_(execn?z|vccn?z|scc[01])", name):
        return Step(instruction, Kind.BRANCH, _condition(name), after, instruction.target)
    if name in ("s_setpc_b64", "s_swappc_b64"):
        return Step(instruction, Kind.JUMP, _jump(instruction), after)
    if _NOTHING.fullmatch(name):
        return Step(instruction, Kind.PLAIN, nothing, after)
    if wait := _wait(instruction, chip):
        return Step(instruction, Kind.PLAIN, wait, after)
    if instruction.second is not None:
        return Step(instruction, Kind.PLAIN, build_dual(instruction, chip), after)
    if name in ALU:
        return Step(instruction, Kind.PLAIN, build_alu(instruction, ALU[name], chip), after)
    return Step(instruction, Kind.PLAIN, find_builder(instruction, chip)(instruction, chip), after)


class Program:
    """The code of one code object, on one chip."""

    def __init__(self, data: bytes, chip: Chip):
        self.chip, self.instructions = chip, disassemble(data)
        self._steps: dict[int, Step] = {}

    def step(self, address: int) -> Step:
        """The step at an offset in the image."""
        if address not in self._steps:
            if address not in self.instructions:
                raise EmulatorError(f"execution reaches {address:#x}, where there is no code")
            self._steps[address] = build(self.instructions[address], self.chip)
        return self._steps[address]


@functools.lru_cache(maxsize=64)
def program_of(data: bytes, chip: Chip) -> Program:
    """The program of a code object's bytes."""
    return Program(data, chip)
