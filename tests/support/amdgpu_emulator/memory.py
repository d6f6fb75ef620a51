"""The memory that kernels may touch: registered ranges of this process' memory, each access checked."""

from __future__ import annotations

import bisect
import ctypes

import numpy as np

from .errors import EmulatorError


class Fault(EmulatorError):
    """An access outside of memory; `lane` counts the given addresses."""

    def __init__(self, message: str, lane: int):
        super().__init__(message)
        self.lane = lane


class Memory:
    """Ranges by address. Kernels read and write these and nothing else."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[tuple[np.ndarray, bool, str]] = []

    def add(self, data: np.ndarray, writable: bool = True, name: str = "a buffer") -> None:
        """Allow an array's memory."""
        self.add_range(data.ctypes.data, data.nbytes, writable, name)

    def add_range(self, address: int, size: int, writable: bool = True, name: str = "a buffer") -> None:
        """Allow `size` bytes of this process at `address`."""
        if not size:
            return
        at = bisect.bisect(self._starts, address)
        data = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        self._starts.insert(at, address)
        self._ranges.insert(at, (data, writable, name))

    def remove(self, address: int) -> None:
        """Forget the range that starts at `address`."""
        at = self._starts.index(address)
        del self._starts[at], self._ranges[at]

    def _places(self, addresses: np.ndarray, size: int, what: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Ranges with the accesses that go to each: (bytes, which accesses, offsets)."""
        if not len(addresses):
            return []
        found = np.searchsorted(np.array(self._starts, np.uint64), addresses, "right").astype(np.int64) - 1
        low, high = int(found.min()), int(found.max())
        places = []
        for number in range(low, high + 1) if low != high else (low,):
            which = np.flatnonzero(found == number)
            if not len(which):
                continue
            data, writable, name = self._ranges[max(number, 0)]
            offsets = (addresses[which] - np.uint64(self._starts[max(number, 0)])).astype(np.int64)
            bad = (offsets < 0) | (offsets + size > len(data))
            if number < 0 or bad.any():
                lane = int(which[np.argmax(bad)])
                near = f"the nearest below is {name}, {len(data)} bytes at {self._starts[max(number, 0)]:#x}"
                raise Fault(f"{what} of {size} bytes at {int(addresses[lane]):#x} is out of bounds; {near}", lane)
            if what != "load" and not writable:
                raise Fault(f"{what} at {int(addresses[which[0]]):#x} writes to {name}", int(which[0]))
            places.append((data, which, offsets))
        return places

    def load(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """`size` bytes from each address: an array of (accesses, size)."""
        made = np.empty((len(addresses), size), np.uint8)
        for data, which, offsets in self._places(addresses, size, "load"):
            made[which] = data[offsets[:, None] + np.arange(size)]
        return made

    def store(self, addresses: np.ndarray, values: np.ndarray) -> None:
        """Write a row of `values` to each address."""
        for data, which, offsets in self._places(addresses, values.shape[1], "store"):
            data[offsets[:, None] + np.arange(values.shape[1])] = values[which]

    def update(self, address: int, size: int) -> np.ndarray:
        """A writable view of the bytes of an atomic operation."""
        ((data, _, offsets),) = self._places(np.array([address], np.uint64), size, "atomic")
        return data[offsets[0] : offsets[0] + size]
