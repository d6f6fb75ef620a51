"""What the memory instructions share: sizes in names, values between lanes and bytes, atomic arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .operands import F16, F32, F64, I32, I64, U32, U64
from .registers import HALF
from .waves import Waves

_WORDS = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
_SMALL = {"ubyte": (1, False), "sbyte": (1, True), "byte": (1, False), "u8": (1, False), "i8": (1, True)}
_SMALL |= {"ushort": (2, False), "sshort": (2, True), "short": (2, False), "u16": (2, False), "i16": (2, True)}
_SMALL |= {"b8": (1, False), "b16": (2, False)}


@dataclass(frozen=True)
class Access:
    """An access of `size` bytes of each lane; `half` says which half of a register a small one (d16) goes to."""

    size: int
    signed: bool = False
    half: int | None = None

    @property
    def registers(self) -> int:
        return max(self.size // 4, 1)

    def loaded(self, row: int) -> list[int]:
        """The registers from `row` on, as the counters call them."""
        return [row + i for i in range(self.registers)] if self.half is None else [row + HALF[self.half]]

    def write(self, w: Waves, row: int, data: np.ndarray, loader: str = "") -> None:
        """Put (accesses, size) bytes of the masked lanes into registers from `row` on, for a load of a counter."""
        where = w.mask
        if self.size < 4:
            narrow = np.dtype(f"{'i' if self.signed else 'u'}{self.size}")
            words = data.view(narrow).astype(I32).view(U32)
        else:
            words = data.view(U32)
        for i in range(self.registers):
            value = np.zeros(where.shape, U32)
            value[where] = words[:, i]
            if self.half is not None:
                shift, keep = np.uint32(16 * self.half), np.uint32((0xFFFF0000, 0xFFFF)[self.half])
                value = w.v[row + i] & keep | (value & np.uint32(0xFFFF)) << shift
            w.write_vector(row + i, value, half=self.half, loader=loader)

    def read(self, w: Waves, row: int) -> np.ndarray:
        """(accesses, size) bytes of the masked lanes from registers from `row` on."""
        words = np.stack([w.vector(row + i)[w.mask] for i in range(self.registers)], 1)
        if self.half:
            words = words >> np.uint32(16)
        return np.ascontiguousarray(words).view(np.uint8)[:, : self.size]


def access_of(suffix: str) -> Access | None:
    """The access that the end of a name says: `dwordx4`, `b128`, `ubyte_d16_hi`, `d16_hi_u8` …"""
    core = re.sub(r"_?d16(_hi)?_?", "", suffix)
    half = (1 if "d16_hi" in suffix else 0) if "d16" in suffix else None
    if core in _WORDS:
        return Access(_WORDS[core])
    return Access(*_SMALL[core], half) if core in _SMALL else None


_PLAIN = {"umax": "max_u", "umin": "min_u", "smax": "max_i", "smin": "min_i"}
_BF16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES = {"u32": U32, "i32": I32, "b32": U32, "f32": F32, "u64": U64, "i64": I64, "b64": U64, "f64": F64}
_DTYPES |= {"pk_f16": F16, "pk_bf16": _BF16}
_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "rsub": lambda old, x: x - old,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "max": np.fmax,
    "min": np.fmin,
    "swap": lambda old, x: x,
    "inc": lambda old, x: np.where(old >= x, old * 0, old + old.dtype.type(1)),
    "dec": lambda old, x: np.where((old == 0) | (old > x), x, old - old.dtype.type(1)),
}


@dataclass(frozen=True)
class Atomic:
    """A read-modify-write; with `compares`, a swap if the old value is the second of two data values."""

    dtype: np.dtype
    size: int
    update: Callable[[Any, Any], Any] | None
    compares: bool = False


def atomic_of(name: str) -> Atomic | None:
    """The atomic that the end of a name says: `add`, `umax_x2` (gfx9), `add_u32`, `pk_add_bf16`, `cmpswap_b32` …"""
    wide = name.endswith("_x2")
    name = name.removesuffix("_x2").replace("_num_", "_")
    packed = name.startswith("pk_")
    operation, _, kind = name.removeprefix("pk_").partition("_")
    if operation in _PLAIN:
        operation, _, sign = _PLAIN[operation].partition("_")
        kind = f"{sign}32"
    kind = kind or "u32"
    kind = kind.replace("32", "64") if wide else kind
    dtype = _DTYPES.get(f"pk_{kind}" if packed else kind)
    if dtype is None:
        return None
    size = 4 if packed else dtype.itemsize
    if operation in ("cmpswap", "cmpst", "cmpstore"):
        return Atomic(dtype, size, None, True)
    return Atomic(dtype, size, _UPDATES[operation]) if operation in _UPDATES else None


def run_atomic(atomic: Atomic, place: np.ndarray, data: bytes, swapped_first: bool) -> bytes:
    """Update the bytes at `place` for one lane; the old bytes."""
    old = place.tobytes()
    value, values = place.view(atomic.dtype), np.frombuffer(data, atomic.dtype)
    if atomic.compares:
        new, expected = (values[0], values[1]) if swapped_first else (values[1], values[0])
        if value[0] == expected:
            value[0] = new
    else:
        assert atomic.update is not None
        value[:] = atomic.update(value.copy(), values)
    return old
