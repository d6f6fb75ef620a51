"""Rows of registers, and their names.

Vector registers: v0 …, then the AGPRs. Scalar registers: s0 …, then the named ones.
"""

from __future__ import annotations

# Rows of scalar registers beyond s105, and of the AGPRs among the vector registers.
VCC, TTMP, M0, NULL, EXEC, FLAT_SCRATCH = 106, 108, 124, 125, 126, 128
AGPR = 256
SCALARS = 130
SCALAR = 1024  # what the counters call scalar register 0
HALF = (2048, 3072)  # and the lower and upper half of v0, for loads of 16 bits


def register_name(row: int, scalar: bool = False) -> str:
    """A row as assembly text has it."""
    if not scalar:
        return f"v{row}" if row < AGPR else f"a{row - AGPR}"
    for start, name in ((FLAT_SCRATCH, "flat_scratch"), (EXEC, "exec"), (TTMP, "ttmp"), (VCC, "vcc")):
        if row >= start and row not in (M0, NULL):
            return f"{name}{row - TTMP}" if name == "ttmp" else f"{name}_{('lo', 'hi')[row - start]}"
    return {M0: "m0", NULL: "null"}.get(row, f"s{row}")
