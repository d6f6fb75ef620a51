"""Instructions of a code object, from the text of LLVM's disassembler."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .errors import EmulatorError

_LINE = re.compile(r"\s+(\S+)(?:\s+(.*?))?\s*// 0*([0-9A-F]+): ((?:[0-9A-F]{8} ?)+)")
_COMMA = re.compile(r",\s*(?![^\[]*\])(?![^(]*\))")  # outside of brackets
_ENCODING = re.compile(r"_(e32|e64|dpp|dpp8|e64_dpp|sdwa)$")


def tool(name: str) -> str:
    """The path of an LLVM tool that knows AMDGPU, or ""."""
    homes = sorted(Path("/usr/lib").glob("llvm-*/bin"), reverse=True)
    found = [shutil.which(f"{name}-22"), *(shutil.which(name, path=str(home)) for home in homes), shutil.which(name)]
    return next((path for path in found if path), "")


@dataclass(frozen=True)
class Instruction:
    """One instruction; `name` has no suffix for the encoding."""

    address: int  # offset in the image
    size: int
    word: int  # the first 32 bits
    name: str
    text: str
    operands: tuple[str, ...] = ()
    modifiers: dict[str, str] = field(default_factory=dict)
    second: Instruction | None = None  # the other half of a dual instruction

    def __str__(self) -> str:
        return f"`{self.text}` at {self.address:#x}"

    @property
    def target(self) -> int:
        """Where a branch goes: a signed 16-bit number of words from the next instruction."""
        offset = self.word & 0xFFFF
        return self.address + self.size + 4 * (offset - (offset >> 15 << 16))


def parse(text: str, address: int = 0, size: int = 4, word: int = 0) -> Instruction:
    """Split an instruction's text: `name operand, operand modifier:value modifier`."""
    first, dual, rest = text.partition(" :: ")
    name, _, operands = first.strip().partition(" ")
    second = parse(rest, address, size, word) if dual else None
    modifiers: dict[str, str] = {}
    made = []
    operands = re.sub(r"lit(?:64)?\((\S+?)\)", r"\1", operands.strip())
    for part in _COMMA.split(operands) if operands else ():
        words = re.findall(r"(?:\[[^\]]*\]|\([^)]*\)|\S)+", part)
        if words and not (made and re.match(r"\w+:", words[0])):
            made.append(words.pop(0))
        for word_ in words:
            key, _, value = word_.partition(":")
            modifiers[key] = value or "1"
    short = _ENCODING.sub("", _ENCODING.sub("", name)).replace("v_dual_", "v_")
    return Instruction(address, size, word, short, text, tuple(made), modifiers, second)


@functools.lru_cache(maxsize=64)
def disassemble(data: bytes) -> dict[int, Instruction]:
    """Instructions by their offset in the image."""
    objdump = tool("llvm-objdump")
    if not objdump:
        raise EmulatorError("llvm-objdump is not installed; the emulator decodes through it")
    with tempfile.NamedTemporaryFile(suffix=".hsaco") as file:
        file.write(data)
        file.flush()
        shown = subprocess.run([objdump, "-d", file.name], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in shown.splitlines():
        if match := _LINE.match(line):
            name, operands, address, words = match.groups()
            at, parts = int(address, 16), words.split()
            found[at] = parse(f"{name} {operands or ''}".strip(), at, 4 * len(parts), int(parts[0], 16))
    return found
