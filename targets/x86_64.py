"""x86-64 CPUs, in the psABI's levels: v3 (AVX2 and FMA, 2013) and v4 (AVX-512, 2017), and with products of i8 (VNNI)."""

from __future__ import annotations

from dataclasses import replace

from .cpu import pipeline
from .target import Features, Target

_V3 = frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
_V4 = _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
_TRIPLE = "x86_64-unknown-linux-gnu"


def _target(
    name: str, cpu: str, flags: frozenset[str], features: Features, attributes: str = "", aliases: tuple[str, ...] = ()
) -> Target:
    return Target(
        name=name,
        aliases=aliases,
        arch="x86_64",
        triple=_TRIPLE,
        cpu=cpu,
        attributes=attributes,
        pipelines=pipeline,
        features=features,
        flags=flags,
    )


_AVX2 = Features(vector_bits=256, registers=16, has_fma=True, i16_pair="llvm.x86.avx2.pmadd.wd")
_AVX512 = Features(vector_bits=512, registers=32, has_fma=True, i16_pair="llvm.x86.avx512.pmaddw.d.512")
_VNNI = "llvm.x86.avx512.vpdpbusd."  # AVX-VNNI's instruction on 256 bits has the same intrinsic
# LLVM's default for v4 halves the width of vectorised loops. Scatters are slower than the stores that they stand for: turning
# and reversing 512 x 512 x 3 x 3 weights took a Zen 5 core 3.4 ms with them, 1.8 ms without.
_WIDE = "-prefer-256-bit,+prefer-no-scatter"

TARGETS = (
    _target("x86-64-v3", "x86-64-v3", _V3, _AVX2, aliases=("x86-64", "x86_64")),
    _target(
        "x86-64-v3+vnni", "x86-64-v3", _V3 | {"avx_vnni"}, replace(_AVX2, u8_dot=f"{_VNNI}256"), attributes="+avxvnni"
    ),
    _target("x86-64-v4", "x86-64-v4", _V4, _AVX512, attributes=_WIDE),
    _target(
        "x86-64-v4+vnni",
        "x86-64-v4",
        _V4 | {"avx512_vnni"},
        replace(_AVX512, u8_dot=f"{_VNNI}512"),
        attributes=f"{_WIDE},+avx512vnni",
    ),
)
