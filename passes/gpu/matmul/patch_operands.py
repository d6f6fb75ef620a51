"""Operands of a convolution with channels last, as the copy engine brings them: no patch is ever written to memory.

K goes by taps of the kernel, and each tap by blocks of channels. A descriptor in im2col mode (CUDA driver API,
`cuTensorMapEncodeIm2col`) walks over the places of a window's first element, across rows and images, by the stride,

    lower[d] = -padding       upper[d] = padding - (kernel - 1) * dilation, from the last place of dimension d on

so one copy brings any `rows` output positions in a row, for the tap that its offsets name; places outside of the image and
channels beyond the last are zeros. Weights `[outputs, taps, channels]` come in boxes of one tap, so that their blocks end
where the image's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ....dialects.strides import row_major
from ...loops.index_algebra import Ranges
from ...loops.strided_view import View
from ..gpu_kernel import GpuStage
from ..hopper.tma import ALIGN_BYTES
from ..thread_values import divisible
from .conv_product import PatchRows, Window
from .problem import Product

# what a descriptor's fields hold, by the number of spatial dimensions: corners from -reach to reach - 1, offsets below 2 * reach
_REACH = {1: 1 << 15, 2: 1 << 7, 3: 1 << 4}
_LONGEST_STEP = 8
BYTES = 2  # of an element


@dataclass(frozen=True)
class PatchOperand:
    """Rows of patches of an image with channels last that lies in an input; see `operands.Operand`."""

    view: View
    windows: tuple[Window, ...]
    channels: int
    type: str

    turned: ClassVar = False
    planes: ClassVar = (0,)

    def role(self, stage: GpuStage) -> str:
        return stage.buffer_role(stage.inputs[self.view.base])

    def blocks(self, k: Dim, depth: int) -> Dim:
        """Blocks of `depth` elements along K."""
        return dims.product(w.kernel for w in self.windows) * -(-self.channels // depth)

    def entry(self, base: str, box: Sequence[int]) -> dict[str, Any]:
        """The descriptor's data; `box` is (channels, positions)."""
        *sizes, _ = self.view.shape
        inner_first = self.windows[::-1]
        return {
            "base": base,
            "type": self.type,
            "sizes": [self.view.offset + self.channels, *sizes[::-1]],
            "strides": [s * BYTES for s in self.view.strides[-2::-1]],
            "box": list(box),
            "swizzle": 128,
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
class TapOperand:
    """Weights `[outputs, *kernel, channels]` that lie in an input; see `operands.Operand`."""

    view: View
    taps: int
    type: str

    turned: ClassVar = False
    planes: ClassVar = (0,)

    def role(self, stage: GpuStage) -> str:
        return stage.buffer_role(stage.inputs[self.view.base])

    def blocks(self, k: Dim, depth: int) -> Dim:
        """Blocks of `depth` elements along K."""
        return self.taps * dims.ceildiv(self.view.shape[-1], depth)

    def entry(self, base: str, box: Sequence[int]) -> dict[str, Any]:
        """The descriptor's data; `box` is (channels, outputs)."""
        outputs, channels = self.view.shape[0], self.view.shape[-1]
        return {
            "base": base,
            "type": self.type,
            "sizes": [channels, self.taps, outputs],
            "strides": [channels * BYTES, self.taps * channels * BYTES],
            "box": [box[0], 1, box[1]],
            "swizzle": 128,
        }

    def coordinates(self, batch: Dim, row: Dim, block: Dim, depth: int, blocks: Dim) -> list[Dim]:
        """Where the copy begins, innermost first."""
        each = dims.ceildiv(self.view.shape[-1], depth)
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
    assert image.view is not None
    taps = dims.product(x.kernel for x in image.windows)
    assert isinstance(taps, int)
    return PatchOperand(image.view, image.windows, image.channels, product.dtype), TapOperand(w, taps, product.dtype)


def _fits(image: PatchRows, product: Product) -> bool:
    """True if a descriptor holds the image's strides and the windows' reach."""
    view, unit = image.view, ALIGN_BYTES // BYTES
    if view is None or not _is_stored(view, product) or image.channels % unit or len(image.windows) not in _REACH:
        return False
    *outer, innermost = view.strides
    begins = isinstance(view.offset, int) and view.offset % unit == 0 and (view.offset == 0 or _within(view, outer[-1]))
    if innermost != 1 or not begins or not all(divisible(s, unit) and s != 0 for s in outer):
        return False
    reach = _REACH[len(image.windows)]
    spans = [(w.kernel - 1) * w.dilation for w in image.windows]
    near = all(w.padding <= reach and s < 2 * reach for w, s in zip(image.windows, spans))
    return near and all(s - w.padding <= reach and w.stride <= _LONGEST_STEP for w, s in zip(image.windows, spans))


def _within(view: View, pitch: Dim) -> bool:
    """True for a view of some of the channels."""
    end = view.offset + view.shape[-1]
    return isinstance(end, int) and isinstance(pitch, int) and end <= pitch


def _is_stored(view: View, product: Product) -> bool:
    return str(ir.RankedTensorType(view.base.type).element_type) == product.dtype


def _places(place: Dim, outer: Dim, sizes: Sequence[Dim]) -> list[Dim]:
    """The row-major index of `place` in `[outer, *sizes]`."""
    return list(Ranges().delinearize(place, [outer, *sizes]))
