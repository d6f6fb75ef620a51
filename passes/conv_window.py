"""The windows of a convolution, for each spatial dim: what an output position reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from ..dialects import dims
from ..dialects.dims import Dim


@dataclass(frozen=True)
class Window:
    """The geometry of one spatial dim."""

    size: Dim  # of the input
    out: Dim
    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def reach(self) -> int:
        """Input positions that one output position spans."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def padded(self) -> Dim:
        """Input positions, from the first one on, that all output positions span."""
        return (self.out - 1) * self.stride + self.reach


def windows_of(root: ir.Operation, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> tuple[Window, ...]:
    """The windows of the convolution `root` of an image of `sizes` by a kernel of these sizes."""
    stride, padding, dilation = (
        list(ir.DenseI64ArrayAttr(root.attributes[name])) for name in ("stride", "padding", "dilation")
    )
    return tuple(
        Window(n, dims.floordiv(n + 2 * p - (k - 1) * d - 1, s) + 1, k, s, p, d)  # type: ignore[arg-type]
        for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation)
    )
