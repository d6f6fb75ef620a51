"""Torch's tensors in memory: private functions that make them, and where their objects keep what native code reads.

Each is found by looking, and `compat.check` says whether it was; without the offsets the native entry is not used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch


def reinterpret(base: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    """A view of `base`'s storage, `offset` elements after the first element of `base`."""
    return torch.as_strided(base, size, stride, base.storage_offset() + offset)


def _find_fast_reinterpret() -> Callable[..., torch.Tensor]:
    """The guard module's C++ version (half the time), if it counts offsets as `reinterpret` does."""
    try:
        from torch._C._dynamo.guards import _reinterpret_tensor as fast
    except ImportError:
        return reinterpret
    x = torch.arange(6.0)[1:]
    same = torch.equal(fast(x, (2,), (2,), 1), reinterpret(x, (2,), (2,), 1))
    return fast if same else reinterpret


def _find_empty_strided() -> Callable[..., torch.Tensor]:
    """`(size, stride, dtype) -> Tensor` on the CPU: the guard module's fast one, else torch's."""
    try:
        from torch._C._dynamo.guards import _empty_strided_cpu as fast
    except ImportError:
        return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cpu")
    return fast


fast_reinterpret = _find_fast_reinterpret()
empty_strided = _find_empty_strided()


def tensor_offset() -> int | None:
    """Bytes from a Python tensor object to the `at::Tensor` in it, found by looking for its pointer; None if absent."""
    tensors = [torch.empty(3), torch.empty(2, 2)]
    words = type(tensors[0]).__basicsize__ // 8
    for index in range(object.__basicsize__ // 8, words):
        if all(ctypes.c_uint64.from_address(id(t) + 8 * index).value == t._cdata for t in tensors):
            return 8 * index
    return None


def version_slot() -> tuple[int, int] | None:
    """Where a TensorImpl keeps its version counter: offset of the pointer to it, offset of the 32-bit count in that.

    Found by watching what changes when a tensor does; None if nothing does.
    """
    probe = torch.zeros(3)
    impl = probe._cdata
    for outer in range(8, 256, 8):
        pointer = ctypes.c_uint64.from_address(impl + outer).value
        if pointer & 7 or not _readable(pointer, 32):
            continue
        for inner in (8, 12, 16, 20, 24):
            count = ctypes.c_uint32.from_address(pointer + inner)
            found = []
            for _ in range(3):
                found.append(count.value == probe._version)
                probe.add_(1)
            if all(found) and count.value == probe._version:
                return outer, inner
    return None


def _readable(address: int, size: int) -> bool:
    try:
        for line in Path("/proc/self/maps").read_text().splitlines():
            low, high = (int(x, 16) for x in line.split()[0].split("-"))
            if low <= address and address + size <= high:
                return line.split()[1][0] == "r"
    except OSError:
        pass
    return False
