"""A convolution as a matrix product: output channels by output positions, one product for each image and group.

    y[n, o, p] = sum over (c, t) of w[o, (c, t)] * x[n, c, p * stride + t * dilation - padding]

The second operand's elements outside the image are zeros; `Patches` evaluates them. As rows of K they are what "im2col"
writes, and the emitters that need an operand in memory write it. A kernel of one element with stride 1 reads the image as
it is: channels by positions.

With channels last it is one product for all images: positions by channels, whose K counts taps, then channels
(`PatchRows`).

    y[(n, p), o] = sum over (t, c) of x[n, p * stride + t * dilation - padding, c] * w[o, (t, c)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...conv_window import Window, windows_of
from ...loops.evaluate_walk import Walk
from ...loops.strided_view import Shapes, strided_view
from ...loops.tensor_graph import TensorGraph
from .problem import Product, Side, Strides


@dataclass(frozen=True, kw_only=True)
class Patches(Side):
    """The input of a convolution, `[images, groups * channels, *sizes]`, as rows of patches."""

    groups: int
    channels: int  # of a group
    windows: tuple[Window, ...]
    taps_first: bool = False  # how K is counted

    vectors: ClassVar[bool] = False  # neighbours may lie outside the image one by one

    def strides(self) -> Strides | None:
        return None

    def _place(self, ev: Walk, batch: Dim, row: Dim, k: Dim) -> tuple[Dim, Dim, list[Dim], list[Dim]]:
        """Image, channel and position of an element, and what must not be negative for it to be inside the image."""
        image, group = ev.ranges.floordiv(batch, self.groups), ev.ranges.mod(batch, self.groups)
        outs = ev.ranges.delinearize(row, [w.out for w in self.windows])
        kernel = [w.kernel for w in self.windows]
        if self.taps_first:
            *taps, channel = ev.ranges.delinearize(k, [*kernel, self.channels])
        else:
            channel, *taps = ev.ranges.delinearize(k, [self.channels, *kernel])
        return (image, group * self.channels + channel, *self._positions(ev, outs, taps))

    def _positions(self, ev: Walk, outs: Sequence[Dim], taps: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
        """Where the window at `outs` reads at `taps`, and what must not be negative there."""
        places = [
            ev.ranges.simplify(o * w.stride + t * w.dilation - w.padding) for o, t, w in zip(outs, taps, self.windows)
        ]
        inside = [c for p, w in zip(places, self.windows) for c in (p, w.size - 1 - p) if not ev.ranges.nonnegative(c)]
        return places, inside

    def _index(self, image: Dim, channel: Dim, places: Sequence[Dim]) -> list[Dim]:
        return [image, channel, *places]

    def clamped(self, ev: Walk, batch: Dim, row: Dim, k: Dim) -> tuple[Any, list[Dim]]:
        """An element or, outside the image, one near it; and what is negative there."""
        image, channel, places, inside = self._place(ev, batch, row, k)
        near = [dims.dim_max(dims.dim_min(p, w.size - 1), 0) for p, w in zip(places, self.windows)]
        return ev.at(self.value, self._index(image, channel, near if inside else places)), inside

    def at(self, ev: Walk, batch: Dim, row: Dim, k: Dim) -> Any:
        image, channel, places, inside = self._place(ev, batch, row, k)
        index = self._index(image, channel, places)
        read = lambda: ev.at(self.value, index)
        if not inside:
            return read()
        element = ir.RankedTensorType(self.value.type).element_type
        return ev.choose(inside, read, lambda: ev.empty(element), self.value, tuple(index))


@dataclass(frozen=True, kw_only=True)
class PatchRows(Patches):
    """The input of a convolution with channels last, `[images, *sizes, channels]`: rows count the positions of all images."""

    def _place(self, ev: Walk, batch: Dim, row: Dim, k: Dim) -> tuple[Dim, Dim, list[Dim], list[Dim]]:
        images = ev.graph.shape(self.value)[0]
        image, *outs = ev.ranges.delinearize(row, [images, *(w.out for w in self.windows)])
        *taps, channel = ev.ranges.delinearize(k, [*(w.kernel for w in self.windows), self.channels])
        return (image, channel, *self._positions(ev, outs, taps))

    def _index(self, image: Dim, channel: Dim, places: Sequence[Dim]) -> list[Dim]:
        return [image, *places, channel]


@dataclass(frozen=True, kw_only=True)
class GroupWeights(Side):
    """The weights of several groups, `[groups * outputs, channels, *kernel]`; the batch is images by groups."""

    groups: int
    outputs: int  # of a group

    def strides(self) -> Strides | None:
        return None

    def at(self, ev: Walk, batch: Dim, row: Dim, k: Dim) -> Any:
        return super().at(ev, 0, ev.ranges.mod(batch, self.groups) * self.outputs + row, k)


def taps_first(product: Product) -> Product:
    """A convolution whose K counts channels last: neighbouring k are at one place of the image, in all channels."""
    image, weights = product.b, product.a
    assert isinstance(image, Patches)
    return replace(
        product,
        a=replace(weights, k=(*weights.k[1:], weights.k[0])),
        b=replace(image, taps_first=True),
    )


def read_conv(graph: TensorGraph, root: ir.Operation, shapes: Shapes) -> Product:
    """The product of a kernel whose root is `lamina.conv`; NotImplementedError for what has no such form."""
    if ir.BoolAttr(root.attributes["transposed"]).value:
        raise NotImplementedError("a transposed convolution as a matrix product")
    x, w = root.operands[0], root.operands[1]
    x_shape, w_shape = graph.shape(x), graph.shape(w)
    groups = ir.IntegerAttr(root.attributes["groups"]).value
    if not all(isinstance(n, int) for n in w_shape):
        raise NotImplementedError("a convolution with symbolic channels or kernel sizes")
    outputs, channels, *kernel = w_shape
    windows = windows_of(root, x_shape[2:], kernel)
    rank = len(x_shape)
    space = tuple(range(2, rank))
    each = outputs // groups  # type: ignore[operator]
    weights = Side(w, (), (0,), (1, *space), strided_view(w, shapes))
    image = Side(x, (0,), space, (1,), strided_view(x, shapes))
    if groups > 1 or any(w.kernel != 1 or w.stride != 1 or w.padding for w in windows):
        image = Patches(x, (0,), space, (1,), None, groups=groups, channels=channels, windows=windows)  # type: ignore[arg-type]
    if groups > 1:
        weights = GroupWeights(w, (), (0,), (1, *space), None, groups=groups, outputs=each)
    product = Product(
        root=root,
        a=weights,
        b=image,
        bias=root.operands[2] if len(root.operands) > 2 else None,
        batch=(x_shape[0], groups) if groups > 1 else (x_shape[0],),
        rows=(each,),
        k=dims.product(w_shape[1:]),
        n=dims.product(w.out for w in windows),
        dtype=str(ir.RankedTensorType(x.type).element_type),
        result=(x_shape[0], outputs, *(w.out for w in windows)),
        bias_by_rows=True,
    )
    graph.declare(root.results[0], product.result)
    return product


def read_channels_last(graph: TensorGraph, root: ir.Operation, shapes: Shapes) -> Product:
    """The product of a kernel whose root is `lamina.channels_last_conv`, or `lamina.depthwise_conv`: K is the taps then."""
    x, w = root.operands[0], root.operands[1]
    images, *sizes, channels = graph.shape(x)
    w_shape = graph.shape(w)
    if not all(isinstance(n, int) for n in w_shape):
        raise NotImplementedError("a convolution with symbolic channels or kernel sizes")
    if root.name == "lamina.depthwise_conv":
        (*kernel, outputs), channels, own = w_shape, 1, len(w_shape) - 1
    else:
        (outputs, *kernel, _), own = w_shape, 0
    windows, space = windows_of(root, sizes, kernel), tuple(d for d in range(len(w_shape)) if d != own)
    product = Product(
        root=root,
        a=PatchRows(x, (), (), (), strided_view(x, shapes), groups=1, channels=channels, windows=windows),  # type: ignore[arg-type]
        b=Side(w, (), (own,), space, strided_view(w, shapes)),
        bias=root.operands[2] if len(root.operands) > 2 else None,
        batch=(),
        rows=(images, *(w.out for w in windows)),
        k=dims.product(w_shape[d] for d in space),
        n=outputs,
        dtype=str(ir.RankedTensorType(x.type).element_type),
        result=(images, *(w.out for w in windows), outputs),
    )
    graph.declare(root.results[0], product.result)
    return product
