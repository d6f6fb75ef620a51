"""RISC-V, on Linux: rv64gc with the vector extension, of any vector length from 128 bits.

Register tiles are 128 bits wide, one register at the least length; loops, which LLVM vectorises, use all there is.
"""

from __future__ import annotations

from .cpu import pipeline
from .target import Features, Target

RISCV64 = Target(
    name="riscv64",
    aliases=("rv64gcv",),
    arch="riscv64",
    triple="riscv64-unknown-linux-gnu",
    cpu="generic-rv64",
    attributes="+m,+a,+f,+d,+c,+v,+zvl128b",
    pipelines=pipeline,
    features=Features(vector_bits=128, registers=32, has_fma=True),
    flags=frozenset("imafdcv"),
)

TARGETS = (RISCV64,)
