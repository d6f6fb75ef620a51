"""AArch64 CPUs, on Linux and macOS: NEON at Armv8.0, SVE of any vector length, and cores by name.

Register tiles (matmul, convolution, attention) are 128 bits wide on all of them: Neoverse V1 issues four NEON or two
256-bit SVE operations a cycle and V2's SVE has 128 bits, so wider tiles would gain nothing there. SVE shows in loops,
which LLVM vectorises with predicates and for any length; one object runs from 128 to 2048 bits.

No code uses register x18, which belongs to the system on macOS and Android: one object is for all.
"""

from __future__ import annotations

from .cpu import pipeline
from .target import Features, Target

_NEON = frozenset(("asimd",))
_SVE = _NEON | frozenset("atomics fphp asimdhp sve".split())  # A64FX, of 512 bits, has no asimddp
_N1 = _NEON | frozenset("atomics fphp asimdhp asimddp".split())
_V1 = _SVE | frozenset("asimddp asimdfhm bf16 i8mm svebf16 svei8mm".split())
_M1 = _N1 | frozenset(("asimdfhm",))


def _target(
    name: str, cpu: str, flags: frozenset[str], attributes: str = "", aliases: tuple[str, ...] = (), tune: str = ""
) -> Target:
    return Target(
        name=name,
        aliases=aliases,
        arch="aarch64",
        triple="aarch64-unknown-linux-gnu",
        cpu=cpu,
        attributes=",".join(filter(None, ("+reserve-x18", attributes))),
        tune=tune,
        pipelines=pipeline,
        features=Features(
            vector_bits=128,
            registers=32,
            has_fma=True,
            has_lane_fma=True,
            bf16_square="llvm.aarch64.neon.bfmmla" if "bf16" in flags else "",
            bf16_dot="llvm.aarch64.neon.bfdot.v4f32.v8bf16" if "bf16" in flags else "",
            i8_square="llvm.aarch64.neon.smmla.v4i32.v16i8" if "i8mm" in flags else "",
            u8_square="llvm.aarch64.neon.usmmla.v4i32.v16i8" if "i8mm" in flags else "",
            u8_u8_square="llvm.aarch64.neon.ummla.v4i32.v16i8" if "i8mm" in flags else "",
            i8_dot="llvm.aarch64.neon.sdot.v4i32.v16i8" if "asimddp" in flags else "",
            u8_u8_dot="llvm.aarch64.neon.udot.v4i32.v16i8" if "asimddp" in flags else "",
        ),
        flags=flags,
    )


TARGETS = (
    _target("aarch64", "generic", _NEON, aliases=("arm64", "armv8-a")),
    _target("neoverse-n1", "neoverse-n1", _N1),
    _target("apple-m1", "apple-m1", _M1),
    # as for V1, with registers of 256 bits: for 128, as LLVM takes a generic CPU's to be, it would write NEON loops
    _target("aarch64+sve", "generic", _SVE, "+v8.2a,+fullfp16,+sve", tune="neoverse-v1"),
    _target("neoverse-v1", "neoverse-v1", _V1),
    _target("neoverse-v2", "neoverse-v2", _V1 | frozenset(("sve2",))),
)
