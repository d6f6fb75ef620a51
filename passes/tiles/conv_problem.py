"""Read the convolution at the root of a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..conv_window import Window, windows_of
from ..loops.strided_view import View, merge, strided_view
from . import numeric
from .code import Index, delinearize
from .frame import EmitError, Frame
from .patch import Read
from .problem import operand_shape
from .values import Lane, Values

FEWEST_ROWS = 16  # images and positions from which it pays to pack the weights


@dataclass(frozen=True)
class ConvProblem:
    """One convolution; `x` is `[batch, in_channels, *sizes]`, `w` is `[out_channels, in_channels / groups, *kernel]`."""

    root: ir.Operation
    x: ir.Value
    w: ir.Value
    bias: ir.Value | None
    dtype: str
    batch: Dim
    in_channels: int
    out_channels: int
    groups: int
    windows: tuple[Window, ...]
    x_view: View | None
    w_view: View | None
    panel: int = 0  # packed_conv: output channels of a panel of `w`, which is [panels, K, channels]
    last: bool = False  # packed_last_conv: x has one channel, and those that lie side by side are the last window

    @property
    def spatial(self) -> tuple[Window, ...]:
        """The windows of the spatial dims."""
        return self.windows[:-1] if self.last else self.windows

    @property
    def positions(self) -> Dim:
        """Output positions of one image."""
        return dims.product(w.out for w in self.windows)

    @property
    def weight_stride(self) -> Dim | None:
        """The stride along the weights of an output channel, row-major, where they are read in place, else None."""
        if self.w_view is None or self.dtype != numeric.compute_dtype(self.dtype):
            return None
        one = merge(self.w_view.shape[1:], self.w_view.strides[1:])
        return None if one is None else one[1]


@dataclass(frozen=True)
class FewProblem:
    """A convolution of fewer output positions than kernel positions, with kernel and positions in each other's place.

    `windows` have the kernel as their `out`, the positions as their `kernel`, and stride and dilation exchanged.
    """

    root: ir.Operation
    x: ir.Value
    bias: ir.Value | None
    dtype: str
    images: Dim
    channels: Dim  # of the input, in a group
    out_channels: int
    groups: int
    windows: tuple[Window, ...]
    w_view: View
    weight_stride: Dim  # along the kernel positions of one channel


def read_few_positions(frame: Frame, least: int) -> FewProblem | None:
    """The convolution at the root of a kernel, if it has fewer positions than its kernel and `least` channels out of a group.

    Whatever these are, it is where K is symbolic: of an unknown number of channels, or of a kernel of unknown size.
    """
    root = frame.root("conv", "packed_conv", "packed_last_conv")
    if root.name != "lamina.conv" or ir.BoolAttr(root.attributes["transposed"]).value:
        return None
    x, w = root.operands[0], root.operands[1]
    x_shape, w_shape = operand_shape(frame, x), operand_shape(frame, w)
    windows = []
    for window in windows_of(root, x_shape[2:], w_shape[2:]):
        if not isinstance(window.out, int):
            return None
        # positions and taps change places, and so do stride and dilation
        other = replace(window, out=window.kernel, kernel=window.out, stride=window.dilation, dilation=window.stride)
        windows.append(other)
    count = math.prod(w.kernel for w in windows)
    images, k, outputs, groups = x_shape[0], dims.product(w_shape[1:]), w_shape[0], _int(root, "groups")
    if not isinstance(outputs, int):
        return None
    if isinstance(k, int):  # else there is no other way
        few = isinstance(images, int) and images * count < FEWEST_ROWS
        if few or outputs // groups < least or math.prod(w_shape[2:]) <= count:  # type: ignore[type-var]
            return None
    result = (images, outputs, *(w.kernel for w in windows))
    view = strided_view(w, frame.shapes)
    one = None if view is None else merge(view.shape[2:], view.strides[2:])
    if view is None or one is None or any(buffer.shape != result for _, buffer in frame.outputs):
        return None
    return FewProblem(
        root=root,
        x=x,
        bias=root.operands[2] if len(root.operands) > 2 else None,
        dtype=str(ir.RankedTensorType(x.type).element_type),
        images=images,
        channels=w_shape[1],
        out_channels=outputs,
        groups=groups,
        windows=tuple(windows),
        w_view=view,
        weight_stride=one[1],
    )


def read_conv(frame: Frame) -> ConvProblem:
    """The convolution at the root of a kernel of kind `conv`; EmitError for what the emitter does not take."""
    root = frame.root("conv", "packed_conv", "packed_last_conv")
    if root.name == "lamina.packed_last_conv":
        return _read_last(frame, root)
    packed = root.name == "lamina.packed_conv"
    x, w = root.operands[0], root.operands[1]
    x_shape, w_shape = operand_shape(frame, x), operand_shape(frame, w)
    if packed:
        w_shape = (_int(root, "size"), x_shape[1], *_ints(root, "kernel"))
    elif ir.BoolAttr(root.attributes["transposed"]).value:
        raise EmitError(f"kernel '{frame.name}' is a transposed convolution")
    channels, outputs, kernel = x_shape[1], w_shape[0], [k for k in w_shape[2:] if isinstance(k, int)]
    if not isinstance(channels, int) or not isinstance(outputs, int) or len(kernel) < len(w_shape) - 2:
        raise EmitError(f"kernel '{frame.name}' has symbolic channels or kernel sizes")
    return ConvProblem(
        root=root,
        x=x,
        w=w,
        bias=root.operands[2] if len(root.operands) > 2 else None,
        dtype=str(ir.RankedTensorType(x.type).element_type),
        batch=x_shape[0],
        in_channels=channels,
        out_channels=outputs,
        groups=1 if packed else _int(root, "groups"),
        windows=windows_of(root, x_shape[2:], kernel),
        x_view=strided_view(x, frame.shapes),
        w_view=strided_view(w, frame.shapes),
        panel=ir.RankedTensorType(w.type).shape[-1] if packed else 0,
    )


def _read_last(frame: Frame, root: ir.Operation) -> ConvProblem:
    """A `packed_last_conv` as a convolution of one channel, whose kernel spans all that lie side by side."""
    x, w = root.operands[0], root.operands[1]
    batch, *sizes, channels = operand_shape(frame, x)
    if not isinstance(channels, int):
        raise EmitError(f"kernel '{frame.name}' has symbolic channels")
    windows = windows_of(root, sizes, _ints(root, "kernel"))
    view = strided_view(x, frame.shapes)
    if view is not None:
        front, *others = view.strides
        view = replace(view, shape=(batch, 1, *sizes, channels), strides=(front, 0, *others))
    return ConvProblem(
        root=root,
        x=x,
        w=w,
        bias=root.operands[2] if len(root.operands) > 2 else None,
        dtype=str(ir.RankedTensorType(x.type).element_type),
        batch=batch,
        in_channels=1,
        out_channels=_int(root, "size"),
        groups=1,
        windows=(*windows, Window(channels, 1, channels, 1, 0, 1)),
        x_view=view,
        w_view=strided_view(w, frame.shapes),
        panel=ir.RankedTensorType(w.type).shape[-1],
        last=True,
    )


def input_reader(
    frame: Frame, problem: ConvProblem | FewProblem, image: Index, first_channel: Index, dtype: str
) -> Read:
    """The function that loads elements of x, of one image, as `dtype`: channels count from `first_channel`."""
    code = frame.code

    def read(channel: Index, position: list[Index], lanes: int) -> ir.Value:
        channels = [] if isinstance(problem, ConvProblem) and problem.last else [code.add(first_channel, channel)]
        index = [image, *channels, *position[:-1]]
        names = [code.register(f"@x{d}", i) for d, i in enumerate(index)]
        lane = Lane(code, "@x", position[-1], (1,), lanes)
        x = Values(frame, {}, lane).at(problem.x, (*names, *lane.index))
        return numeric.spread(code, numeric.convert(code, x, problem.dtype, dtype), lanes)

    return read


def weight_at(frame: Frame, problem: ConvProblem, channel: Index, k: Index, dtype: str) -> ir.Value:
    """The weight of output `channel` at row-major position `k` of its input channels and taps, as `dtype`."""
    code = frame.code
    index = [channel, *delinearize(code, k, operand_shape(frame, problem.w)[1:])]
    names = [code.register(f"@w{d}", i) for d, i in enumerate(index)]
    return numeric.convert(code, Values(frame).at(problem.w, names), problem.dtype, dtype)


def _int(op: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value


def _ints(op: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))
