"""Weights of convolutions in panels of output channels, as `pack` leaves them, and the weights `[size, …]` that they hold.

packed[p, k, o] = w[p * columns + o, k]        k over all other dims of `w`
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..dims import Dim, ceildiv
from ..op import check
from ..record import TensorType


def check_panels(x: TensorType, packed: TensorType, size: int, kernel: tuple[int, ...], channels: Dim) -> None:
    """Check that `packed` holds `size` output channels, each of `channels` of `x` for all taps of `kernel`."""
    check(packed.rank == 3, f"takes packed [P, K, columns], got rank {packed.rank}")
    check(x.rank == len(kernel) + 2, f"x has rank {x.rank}, the kernel {len(kernel)} dims")
    panels, k, columns = packed.shape
    check(k == channels * prod(kernel), f"panels have {k} lines for {channels} channels of {prod(kernel)} taps")
    check(panels == ceildiv(size, columns), f"{panels} panels do not hold {size} channels")


def torch_weight(packed: Any, shape: Any) -> Any:
    """The weight of this shape, of torch's tensors."""
    return packed.transpose(1, 2).flatten(0, 1)[: shape[0]].reshape(shape)


def numpy_weight(packed: Any, shape: Any) -> Any:
    """The same of numpy's arrays."""
    return packed.swapaxes(1, 2).reshape(-1, packed.shape[1])[: shape[0]].reshape(shape)


def lowered_weight(b: Any, packed: Any, shape: tuple[Dim, ...]) -> Any:
    """The same, written by builder `b`."""
    panels, k, columns = packed.shape
    w = b.reshape(b.permute(packed, (0, 2, 1)), (panels * columns, k))
    return b.reshape(b.slice(w, (0, 0), (shape[0], k), (1, 1)), shape)
