"""Operands of a convolution with channels last, as the copy engine brings them: no patch is ever written to memory.

K goes by taps of the kernel, and each tap by blocks of channels. A descriptor in im2col mode (CUDA driver API,
`cuTensorMapEncodeIm2col`) walks over the places of a window's first element, across rows and images, by the stride,

    lower[d] = -padding       upper[d] = padding - (kernel - 1) * dilation, from the last place of dimension d on

so one copy brings any `rows` output positions in a row, for the tap that its offsets name; places outside of the image and
channels beyond the last are zeros. Where nothing is padded, taps that lie side by side are one tap of more channels: places
of the descriptor then overlap. Weights `[outputs, taps, channels]` come in boxes of one tap, so that their blocks end
where the image's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ....dialects.families.channels_last_conv import REACH, windows_fit
from ....dialects.strides import row_major
from ...conv_window import Window
from ...loops.index_algebra import Ranges
from ...loops.strided_view import View
from ..gpu_kernel import GpuStage
from ..hopper.tma import ALIGN_BYTES
from ..hopper.wgmma import ROW_BYTES
from ..lane_places import divisible
from .conv_product import PatchRows
from .problem import Product

BYTES = 2  # of an element


@dataclass(frozen=True)
class _InPlace:
    """What lies in an input, K innermost, as `channels` of elements of a descriptor's `type`; see `operands.Operand`."""

    view: View
    channels: int
    type: str

    turned: ClassVar = False
    planes: ClassVar = (0,)

    @property
    def source(self) -> ir.Value:
        return self.view.base

    @property
    def run(self) -> Dim:
        """Elements of a row that blocks along K divide: a tap's."""
        return self.channels

    def role(self, stage: GpuStage) -> str:
        return stage.buffer_role(stage.inputs[self.source])


@dataclass(frozen=True)
class PatchOperand(_InPlace):
    """Rows of patches of an image with channels last."""

    windows: tuple[Window, ...]

    def blocks(self, k: Dim, depth: int) -> Dim:
        """Blocks of `depth` elements along K."""
        return dims.product(w.kernel for w in self.windows) * -(-self.channels // depth)

    def entry(self, base: str, box: Sequence[int], swizzle: int = ROW_BYTES) -> dict[str, Any]:
        """The descriptor's data; `box` is (channels, positions)."""
        inner_first = self.windows[::-1]
        return {
            "base": base,
            "type": self.type,
            "sizes": [self.view.offset + self.channels, *(w.size for w in inner_first), self.view.shape[0]],
            "strides": [s * BYTES for s in self.view.strides[-2::-1]],
            "box": list(box),
            "swizzle": swizzle,
            "lower": [-w.padding for w in inner_first],
            "upper": [w.padding - (w.kernel - 1) * w.dilation for w in inner_first],
            "steps": [w.stride for w in inner_first],
        }

    def coordinates(self, batch: Dim, row: Dim, block: Dim, depth: int, blocks: Dim) -> list[Dim]:
        """Where the first window of the copy begins, innermost first."""
        image, *outs = _places(row, self._images(), [w.out for w in self.windows])
        starts = [o * w.stride - w.padding for o, w in zip(outs, self.windows)]
        channel = depth * dims.mod(block, -(-self.channels // depth))
        return [self.view.offset + channel, *starts[::-1], image]

    def offsets(self, block: Dim, depth: int) -> list[Dim]:
        """Where in its window the copy reads, innermost first."""
        tap = dims.floordiv(block, -(-self.channels // depth))
        taps = _places(tap, 1, [w.kernel for w in self.windows])[1:]
        return [t * w.dilation for t, w in zip(taps, self.windows)][::-1]

    def _images(self) -> Dim:
        return self.view.shape[0]


@dataclass(frozen=True)
class TapOperand(_InPlace):
    """Weights `[outputs, taps, channels]`."""

    taps: int

    def blocks(self, k: Dim, depth: int) -> Dim:
        """Blocks of `depth` elements along K."""
        return self.taps * -(-self.channels // depth)

    def entry(self, base: str, box: Sequence[int], swizzle: int = ROW_BYTES) -> dict[str, Any]:
        """The descriptor's data; `box` is (channels, outputs)."""
        return {
            "base": base,
            "type": self.type,
            "sizes": [self.channels, self.taps, self.view.shape[0]],
            "strides": [self.channels * BYTES, self.taps * self.channels * BYTES],
            "box": [box[0], 1, box[1]],
            "swizzle": swizzle,
        }

    def coordinates(self, batch: Dim, row: Dim, block: Dim, depth: int, blocks: Dim) -> list[Dim]:
        """Where the copy begins, innermost first."""
        each = -(-self.channels // depth)
        return [depth * dims.mod(block, each), dims.floordiv(block, each), row]

    def offsets(self, block: Dim, depth: int) -> list[Dim]:
        return []


def place_patches(product: Product) -> tuple[PatchOperand, TapOperand] | None:
    """Both operands of a convolution with channels last where they lie, if the copy engine can read them there."""
    image, weights = product.a, product.b
    if not isinstance(image, PatchRows) or product.dtype not in ("bf16", "f16") or not _fits(image, product):
        return None
    w = weights.view
    if w is None or w.offset != 0 or tuple(w.strides) != row_major(w.shape) or not _is_stored(w, product):
        return None
    image = _side_by_side(image)
    channels, taps = image.channels, dims.product(x.kernel for x in image.windows)
    assert image.view is not None and isinstance(taps, int)
    return (
        PatchOperand(image.view, channels, product.dtype, image.windows),
        TapOperand(w, channels, product.dtype, taps),
    )


def _side_by_side(image: PatchRows) -> PatchRows:
    """The image with the last dimension's taps as channels, if they lie so and none is outside."""
    view, last = image.view, image.windows[-1]
    assert view is not None
    if last.kernel == 1 or last.padding or last.dilation != 1 or view.strides[-2] != image.channels:
        return image
    merged = replace(last, size=last.size - last.kernel + 1, kernel=1)
    return replace(image, windows=(*image.windows[:-1], merged), channels=last.kernel * image.channels)


def _fits(image: PatchRows, product: Product) -> bool:
    """True if a descriptor holds the image's strides and the windows' reach."""
    view, unit = image.view, ALIGN_BYTES // BYTES
    if view is None or not _is_stored(view, product) or image.channels % unit or len(image.windows) not in REACH:
        return False
    *outer, innermost = view.strides
    begins = isinstance(view.offset, int) and view.offset % unit == 0 and (view.offset == 0 or _within(view, outer[-1]))
    if innermost != 1 or not begins or not all(divisible(s, unit) and s != 0 for s in outer):
        return False
    return windows_fit(*zip(*((w.kernel, w.stride, w.padding, w.dilation) for w in image.windows)))


def _within(view: View, pitch: Dim) -> bool:
    """True for a view of some of the channels."""
    end = view.offset + view.shape[-1]
    return isinstance(end, int) and isinstance(pitch, int) and end <= pitch


def _is_stored(view: View, product: Product) -> bool:
    return str(ir.RankedTensorType(view.base.type).element_type) == product.dtype


def _places(place: Dim, outer: Dim, sizes: Sequence[Dim]) -> list[Dim]:
    """The row-major index of `place` in `[outer, *sizes]`."""
    return list(Ranges().delinearize(place, [outer, *sizes]))
