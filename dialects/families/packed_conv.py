"""Convolution with a weight packed ahead of time: as a matrix product whose columns are output channels.

`passes/graph/pack_convolutions.py` makes it, where a register tile that multiplies vectors of output channels by single
elements of the image does better than one whose vectors are positions.
"""

from __future__ import annotations

from ..dims import Dim
from ..op import Attr, Ints, Op, Operand, OptionalOperand, Result, sample
from ..record import TensorType
from .convolution import Conv
from .panels import check_panels, lowered_weight, numpy_weight, torch_weight


class PackedConv(Op, name="packed_conv", category="conv"):
    """`conv` of one group by a `w` of `size` channels: `packed[p, (c, k), o] = w[p·columns + o, c, k]`, as `pack` leaves it."""

    x: Operand
    packed: Operand
    bias: OptionalOperand
    size: Attr[int]
    kernel: Attr[Ints]
    stride: Attr[Ints]
    padding: Attr[Ints]
    dilation: Attr[Ints]
    y: Result

    numerics = "order"
    samples = (
        sample((2, 3, 7, 6), (3, 18, 4), (9,), size=9, kernel=(3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
        sample((1, 5, 5, 4), (2, 5, 8), None, size=12, kernel=(1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1)),
        sample((2, 3, 9), (1, 12, 4), (4,), size=4, kernel=(4,), stride=(3,), padding=(2,), dilation=(1,)),
        sample(("bf16", (1, 3, 5, 5)), ("bf16", (1, 27, 4)), None, size=3, kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1)),
    )  # fmt: skip

    @staticmethod
    def infer(x, packed, bias, size, kernel, stride, padding, dilation):
        check_panels(x, packed, size, kernel, x.shape[1])
        w = TensorType(packed.dtype, _weight_shape(x, size, kernel))
        return Conv.infer(x, w, bias, stride, padding, dilation, 1, False, ())

    @staticmethod
    def torch(x, packed, bias, size, kernel, stride, padding, dilation):
        w = torch_weight(packed, _weight_shape(x, size, kernel))
        return Conv.torch(x, w, bias, stride, padding, dilation)

    @staticmethod
    def reference(x, packed, bias, size, kernel, stride, padding, dilation):
        w = numpy_weight(packed, _weight_shape(x, size, kernel))
        return Conv.reference(x, w, bias, stride, padding, dilation, 1, False, ())

    @staticmethod
    def lower(b, x, packed, bias, size, kernel, stride, padding, dilation):
        w = lowered_weight(b, packed, _weight_shape(x, size, kernel))
        return Conv.lower(b, x, w, bias, stride, padding, dilation, 1, False, ())


def _weight_shape(x, size: int, kernel: tuple[int, ...]) -> tuple[Dim, ...]:
    """The shape of `w`."""
    return (size, x.shape[1], *kernel)
