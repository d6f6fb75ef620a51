"""What the linker must know of an instruction set: its relocations and the shape of a call stub.

A machine is one value of `Machine` in one file (`x86_64.py`); `MACHINES` finds it by the ELF header's number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .elf import LinkError


@dataclass(frozen=True)
class Machine:
    """Facts of one instruction set. `P` is the patched address, `S + A` symbol plus addend, `G` a GOT slot's address."""

    name: str
    number: int  # e_machine
    page: int  # alignment of segments: the largest page size of a system that runs it
    absolute: int  # relocation type of a 64-bit address, in objects and in shared objects
    relative: int  # dynamic: load base + addend
    symbol: int  # dynamic: address of an imported symbol, into a GOT slot
    got: frozenset[int]  # types whose value is `G + A - P` (or its page): they want a GOT slot
    calls: frozenset[int]  # types that a stub may stand in for
    stub_size: int
    stub: Callable[[int, int], bytes]  # (address of the stub, address of its GOT slot) -> code
    apply: Callable[[bytearray, int, int, int, int], None]  # (data, offset, type, value, P): patch one place
    # (data, offset, type): avoid a GOT load; the new type or None
    relax: Callable[[bytearray, int, int], int | None] = lambda data, offset, type: None
    high: frozenset[int] = frozenset()  # types of the first of two instructions that make an address ...
    low: frozenset[int] = frozenset()  # ... and of the second: its symbol is the label of the first
    notes: bool = False  # the loader reads the objects' notes


def fits(value: int, bits: int, what: str) -> int:
    """Return `value` if it is a signed number of `bits` bits; LinkError otherwise."""
    if not -(1 << (bits - 1)) <= value < (1 << (bits - 1)):
        raise LinkError(
            f"{what}: {value:#x} does not fit in {bits} bits; the image is larger than the small code model"
        )
    return value
