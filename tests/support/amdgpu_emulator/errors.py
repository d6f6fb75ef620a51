"""What the emulator refuses."""

from __future__ import annotations


class EmulatorError(Exception):
    """The code object, a launch or an instruction is wrong; the text names the instruction, wave and lane."""


class UnknownInstruction(EmulatorError):
    """The emulator has no meaning for an instruction."""
