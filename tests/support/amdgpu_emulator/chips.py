"""Facts of the chips that the emulator knows."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import EmulatorError


@dataclass(frozen=True)
class Chip:
    """One chip. Sources: LLVM's "User Guide for AMDGPU Backend" and AMD's ISA documents."""

    name: str
    mach: int  # EF_AMDGPU_MACH of the ELF header
    width: int  # lanes of a wave
    generation: int  # 9, 11, 12
    vgprs: int  # registers of a lane that the waves of a SIMD share, of `width` lanes each
    granule: int  # in which they are given to waves
    most_waves: int  # of a SIMD
    simds: int  # of a compute unit (RDNA: of a work-group processor)
    lds: int  # bytes that the workgroups of these SIMDs share
    group_registers_in_ttmp: bool  # workgroup ids come in ttmp9 and ttmp7 instead of SGPRs

    @property
    def zeroes_high_half(self) -> bool:
        """16-bit vector instructions clear the upper half of their destination."""
        return self.generation == 9

    @property
    def store_counter(self) -> str:
        """The counter of vector stores: their own from gfx10 on."""
        return "vm" if self.generation == 9 else "vs"

    @property
    def lds_counter(self) -> str:
        """The counter of LDS accesses: their own from gfx12 on."""
        return "ds" if self.generation >= 12 else "lgkm"

    @property
    def scalar_counter(self) -> str:
        """The counter of scalar loads: their own from gfx12 on."""
        return "km" if self.generation >= 12 else "lgkm"


CHIPS = {
    chip.mach: chip
    for chip in (
        Chip("gfx90a", 0x3F, 64, 9, 512, 8, 8, 4, 64 * 1024, False),
        Chip("gfx942", 0x4C, 64, 9, 512, 8, 8, 4, 64 * 1024, False),
        Chip("gfx1100", 0x41, 32, 11, 1536, 24, 16, 4, 128 * 1024, False),
        Chip("gfx1201", 0x4E, 32, 12, 1536, 24, 16, 4, 128 * 1024, True),
    )
}


def chip_of(flags: int) -> Chip:
    """The chip that an ELF header's flags name."""
    if (flags & 0xFF) not in CHIPS:
        known = ", ".join(chip.name for chip in CHIPS.values())
        raise EmulatorError(f"the code object is for machine {flags & 0xFF:#x}; the emulator knows {known}")
    return CHIPS[flags & 0xFF]
