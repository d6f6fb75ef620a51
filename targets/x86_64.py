"""x86-64 CPUs, in the psABI's levels: v3 (AVX2 and FMA, 2013) and v4 (AVX-512, 2017)."""

from __future__ import annotations

from .cpu import pipeline
from .target import Features, Target

_V3 = frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
_V4 = _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
_TRIPLE = "x86_64-unknown-linux-gnu"

X86_64_V3 = Target(
    name="x86-64-v3",
    aliases=("x86-64", "x86_64"),
    arch="x86_64",
    triple=_TRIPLE,
    cpu="x86-64-v3",
    pipelines=pipeline,
    features=Features(vector_bits=256, registers=16, has_fma=True),
    flags=_V3,
)

X86_64_V4 = Target(
    name="x86-64-v4",
    arch="x86_64",
    triple=_TRIPLE,
    cpu="x86-64-v4",
    attributes="-prefer-256-bit",  # LLVM's default for this level halves the width of vectorised loops
    pipelines=pipeline,
    features=Features(vector_bits=512, registers=32, has_fma=True),
    flags=_V4,
)

TARGETS = (X86_64_V3, X86_64_V4)
