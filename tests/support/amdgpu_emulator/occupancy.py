"""What kernels ask of a chip, from their metadata and disassembly: registers, LDS, occupancy, matrix share.

    print(table({"matmul": code_object, …}))

*Waves* is how many waves of the kernel a SIMD can hold. The matrix columns look at the innermost loop with the most
matrix instructions: *slots* is their share of the loop's instructions; *busy* bounds how much of the time one wave
keeps the matrix unit busy, matrix cycles / max(matrix cycles, issue cycles of all instructions), since a wave issues
the next instruction while the matrix unit works. An instruction of a wave takes 4 issue cycles on CDNA, 1 on RDNA.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .chips import Chip
from .code_object import CodeObject, Kernel
from .disassembly import Instruction, disassemble

# Multiplications and additions of a SIMD in a cycle, by the type of A (AMD's "CDNA" and "RDNA" ISA documents and white
# papers give them for a compute unit, which has four SIMDs on CDNA and two on RDNA).
_RATES = {
    "gfx90a": {"f64": 64, "f32": 64, "f16": 256, "bf16": 256, "i8": 256},
    "gfx942": {"f64": 64, "f32": 64, "xf32": 256, "f16": 512, "bf16": 512, "i8": 1024, "fp8": 1024, "bf8": 1024},
    "gfx1100": {"f16": 256, "bf16": 256, "iu8": 256},
    "gfx1201": {"f16": 512, "bf16": 512, "iu8": 1024, "fp8": 1024, "bf8": 1024},
}
_MATRIX = re.compile(r"v_(?:mfma|wmma)_[a-z0-9]+_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?([a-z]+\d+)")


@dataclass(frozen=True)
class Use:
    """One kernel's row of the table."""

    kernel: str
    vgprs: int
    agprs: int
    sgprs: int
    lds: int  # bytes, static
    scratch: int  # bytes of a lane
    waves: int  # of a SIMD
    slots: float | None  # of the matrix loop; None where there is none
    busy: float | None


def waves_per_simd(chip: Chip, registers: int, lds: int, threads: int) -> int:
    """How many waves of workgroups of `threads` a SIMD holds: limited by registers, LDS and the chip."""
    granted = -(-max(registers, 1) // chip.granule) * chip.granule
    waves = min(chip.most_waves, chip.vgprs // granted)
    per_group = -(-threads // chip.width)
    if lds:
        waves = min(waves, chip.lds // lds * per_group // chip.simds or -(-per_group // chip.simds))
    return waves


def matrix_cycles(name: str, chip: Chip) -> float:
    """How long a matrix instruction keeps the matrix unit busy, 0 for another instruction."""
    match = _MATRIX.match(name)
    if not match:
        return 0
    m, n, k = (int(x) for x in match.groups()[:3])
    blocks = int(match[4] or 1)
    if chip.name == "gfx90a":  # whose names leave the blocks out
        blocks = {(32, 1): 2, (16, 1): 4, (4, 1): 16, (32, 4): 2, (16, 4): 4, (4, 4): 16}.get((m, k), 1)
        blocks = 1 if match[5] in ("f32", "f64") and k == 4 else blocks
    return 2 * m * n * k * blocks / _RATES[chip.name][match[5]]


def _loops(instructions: list[Instruction]) -> list[list[Instruction]]:
    """The instructions of each loop: from a branch's target up to the branch."""
    backward = [i for i in instructions if i.name.startswith(("s_cbranch", "s_branch")) and i.target <= i.address]
    return [[i for i in instructions if b.target <= i.address <= b.address] for b in backward]


def matrix_share(instructions: list[Instruction], chip: Chip) -> tuple[float, float] | None:
    """(slots, busy) of the loop with the most matrix instructions, the innermost of equals."""
    best, most = None, 0
    for loop in sorted(_loops(instructions), key=len):
        cycles = [matrix_cycles(i.name, chip) for i in loop]
        count = sum(c > 0 for c in cycles)
        if count > most:
            issue = len(loop) * (4 if chip.generation == 9 else 1)
            best, most = (count / len(loop), sum(cycles) / max(sum(cycles), issue)), count
    return best


def use(code: CodeObject, kernel: Kernel, instructions: dict[int, Instruction]) -> Use:
    """A kernel's row."""
    m, chip = kernel.metadata, code.chip
    end = min((k.entry for k in code.kernels.values() if k.entry > kernel.entry), default=len(code.image))
    body = [i for address, i in sorted(instructions.items()) if kernel.entry <= address < end]
    share = matrix_share(body, chip)
    return Use(
        kernel.name,
        m[".vgpr_count"],
        m.get(".agpr_count", 0),
        m[".sgpr_count"],
        m[".group_segment_fixed_size"],
        m[".private_segment_fixed_size"],
        waves_per_simd(chip, m[".vgpr_count"], m[".group_segment_fixed_size"], m[".max_flat_workgroup_size"]),
        *(share or (None, None)),
    )


def uses(data: bytes) -> list[Use]:
    """The rows of a code object's kernels."""
    code = CodeObject(data)
    instructions = disassemble(data)
    return [use(code, kernel, instructions) for kernel in code.kernels.values()]


def table(codes: Mapping[str, bytes]) -> str:
    """A Markdown table of the kernels of named code objects."""
    lines = ["| code | kernel | VGPRs | AGPRs | SGPRs | LDS | scratch | waves | slots | busy |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, data in codes.items():
        for row in uses(data):
            shares = ("–" if share is None else f"{share:.0%}" for share in (row.slots, row.busy))
            numbers = (row.vgprs, row.agprs, row.sgprs, row.lds, row.scratch, row.waves)
            lines.append(f"| {' | '.join((name, row.kernel, *map(str, numbers), *shares))} |")
    return "\n".join(lines)
