"""Convolutions with channels last, and what lies between them: layout propagation over a graph.

Tensor cores multiply rows of channels, `[N, H, W, C]`; torch's images are `[N, C, H, W]`. A walk over the graph gives each
value that a convolution makes, or that is computed from such values, a twin with channels last. Who has no form for that
reads the twin through a permutation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.families.channels_last_conv import UNIT, Folding, folding, has_short_patches, suits_channels_last
from ...dialects.mlir_ops import attributes_of, build
from ...dialects.mlir_types import type_of
from ...dialects.op import normalize_dim
from ..registry import register
from .dataflow import Dataflow, Node, entry_functions, read_function
from .dce import dce
from .kernel_costs import WINDOWED


@register
def channels_last(module: ir.Module) -> None:
    """Compute convolutions of 16-bit floats, and pointwise ops, pools and sums between them, with channels last.

    A kernel of one element with stride 1 becomes a linear layer on channels. Of images of few channels short patches are
    written out by the convolution's kernel; else they are first taken apart into squares of stride x stride positions, whose
    elements are the channels of a convolution of stride 1. Other images that come with channels first are copied, results
    of the function are copied back.

    Before:
    ```mlir
    func.func @main(%x: tensor<2x64x8x8xbf16>, %w: tensor<32x64x1x1xbf16>) -> tensor<2x32x8x8xbf16> {
      %0 = "lamina.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64>, padding = array<i64: 0, 0>, stride = array<i64: 1, 1>, transposed = false} : (tensor<2x64x8x8xbf16>, tensor<32x64x1x1xbf16>) -> tensor<2x32x8x8xbf16>
      %1 = "lamina.relu"(%0) : (tensor<2x32x8x8xbf16>) -> tensor<2x32x8x8xbf16>
      return %1 : tensor<2x32x8x8xbf16> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<2x64x8x8xbf16>, %w: tensor<32x64x1x1xbf16>) -> tensor<2x32x8x8xbf16> {
      %0 = "lamina.permute"(%x) {dims = array<i64: 0, 2, 3, 1>} : (tensor<2x64x8x8xbf16>) -> tensor<2x8x8x64xbf16>
      %1 = "lamina.materialize"(%0) : (tensor<2x8x8x64xbf16>) -> tensor<2x8x8x64xbf16>
      %2 = "lamina.reshape"(%w) {shape = ["32", "64"]} : (tensor<32x64x1x1xbf16>) -> tensor<32x64xbf16>
      %3 = "lamina.linear"(%1, %2) : (tensor<2x8x8x64xbf16>, tensor<32x64xbf16>) -> tensor<2x8x8x32xbf16>
      %4 = "lamina.relu"(%3) : (tensor<2x8x8x32xbf16>) -> tensor<2x8x8x32xbf16>
      %5 = "lamina.permute"(%4) {dims = array<i64: 0, 3, 1, 2>} : (tensor<2x8x8x32xbf16>) -> tensor<2x32x8x8xbf16>
      %6 = "lamina.materialize"(%5) : (tensor<2x32x8x8xbf16>) -> tensor<2x32x8x8xbf16>
      return %6 : tensor<2x32x8x8xbf16> }
    ```
    """
    with module.context:
        for function in entry_functions(module):
            flow = read_function(function)
            walk = Walk(flow)
            if any(n.name == "conv" and walk.suits(n) for n in flow.nodes):
                walk.run()
    drop_copies(module)


def to_last(rank: int) -> tuple[int, ...]:
    """`[N, C, spatial…]` to `[N, spatial…, C]`."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """And back."""
    return (0, rank - 1, *range(1, rank - 1))


def drop_copies(module: ir.Module) -> None:
    """Drop what a walk left unused, and copies of copies."""
    with module.context:
        dce(module)
        for function in entry_functions(module):
            for node in read_function(function).nodes:
                if node.name == "materialize" and _is_copied(node.op.operands[0]):
                    node.op.results[0].replace_all_uses_with(node.op.operands[0])
                    node.op.erase()


def _is_copied(value: ir.Value) -> bool:
    """True for what one op reads, a copy itself or such a copy in another shape: to copy it again would change nothing."""
    maker = value.owner
    if isinstance(maker, ir.Block) or len(list(value.uses)) != 1:
        return False
    return maker.name == "lamina.materialize" or maker.name == "lamina.reshape" and _is_copied(maker.operands[0])


class Walk:
    """One function; `last[v]` is the twin of value `v`, or in `copied` a copy of it; `first[v]` the twin seen with channels first.

    `turned` are the values that come in one order where the other is read. `node` is the op whose twin is built.
    """

    node: Node

    def __init__(self, flow: Dataflow):
        self.flow = flow
        self.turned: list[int] = []
        self.last: dict[int, ir.Value] = {}
        self.copied: dict[int, ir.Value] = {}
        self.first: dict[int, ir.Value] = {}

    def suits(self, node: Node) -> bool:
        """True for a `conv` that is computed with channels last."""
        x, w = (self.flow.types[v] for v in node.inputs[:2])
        return suits_channels_last(x, w, node.attributes)

    def run(self) -> None:
        """Build the twins, and let who has none read theirs."""
        for node in self.flow.nodes:
            self.node = node
            twin = self._twin(node)
            if twin is not None:
                self.last[node.results[0]] = twin
                continue
            if not any(list(r.uses) for r in node.op.results):
                continue  # what replaces it reads the twin
            for number, v in enumerate(node.inputs):
                if v in self.last:
                    self.turned.append(v)
                    node.op.operands[number] = self._seen_first(v)
        self._return()

    def _return(self) -> None:
        """Copy what is returned to the order that the caller expects."""
        block = self.flow.function.regions[0].blocks[0]
        terminator = block.operations[len(block.operations) - 1].operation
        for number, v in enumerate(self.flow.returned):
            if v in self.last:
                self.turned.append(v)
                made, ip = self.last[v], ir.InsertionPoint(terminator)
                rank = self.flow.types[v].rank
                back = build("permute", [made], {"dims": to_first(rank)}, made.owner.location, ip).results[0]
                copy = build("materialize", [back], location=made.owner.location, ip=ip)
                terminator.operands[number] = copy.results[0]

    # -- values ------------------------------------------------------------------------------------------------
    def build(self, name: str, *operands: ir.Value | None, **attributes: Any) -> ir.Value:
        """The first result of a new op before the node."""
        op = self.node.op
        return build(name, operands, attributes, op.location, ir.InsertionPoint(op)).results[0]

    def permute(self, value: ir.Value, dims: Sequence[int]) -> ir.Value:
        """`value` with its dims in another order; a reshape where only dims of size 1 move."""
        shape = type_of(value).shape
        moved = [d for d in dims if shape[d] != 1]
        if moved == sorted(moved):
            return self.reshape(value, [shape[d] for d in dims])
        return self.build("permute", value, dims=tuple(dims))

    def reshape(self, value: ir.Value, shape: Sequence[Dim]) -> ir.Value:
        """`value` in another shape."""
        maker = value.owner
        if not isinstance(maker, ir.Block) and maker.name == "lamina.reshape":
            value = maker.operands[0]  # only the last shape counts
        return value if type_of(value).shape == tuple(shape) else self.build("reshape", value, shape=tuple(shape))

    def _seen_first(self, v: int) -> ir.Value:
        """The twin of `v` with channels first: a view."""
        if v not in self.first:
            self.first[v] = self.permute(self.last[v], to_first(self.flow.types[v].rank))
        return self.first[v]

    def stored_last(self, v: int) -> ir.Value:
        """The twin of `v`, or a copy of it with channels last."""
        if v not in self.last and v not in self.copied:
            self.turned.append(v)
            self.copied[v] = self.copy_last(self.flow.values[v])
        return self.last.get(v) or self.copied[v]

    def copy_last(self, value: ir.Value) -> ir.Value:
        """A copy of `value` with channels last, if it does not lie so."""
        maker = value.owner
        if not isinstance(maker, ir.Block) and maker.name == "lamina.permute":
            if attributes_of(maker)["dims"] == to_first(type_of(value).rank):
                return maker.operands[0]  # it lies so
        turned = self.permute(value, to_last(type_of(value).rank))
        return self.build("materialize", turned) if turned.owner.name == "lamina.permute" else turned

    # -- ops ---------------------------------------------------------------------------------------------------
    def _twin(self, node: Node) -> ir.Value | None:
        """The first result of `node` with channels last; None if it keeps its form."""
        if node.name == "conv":
            return self.conv(node) if self.suits(node) else None
        if node.name == "permute" and node.attributes["dims"] == to_first(self.flow.types[node.inputs[0]].rank):
            return node.op.operands[0]
        if not any(v in self.last for v in node.inputs):
            return None
        if node.category == "pointwise" and node.name != "materialize":
            return self._pointwise(node)
        if node.name in WINDOWED:
            return self._pool(node)
        if node.name == "permute" and node.attributes["dims"] == to_last(self.flow.types[node.inputs[0]].rank):
            self._replace(node, self.last[node.inputs[0]])
        if node.name == "index":
            return self._index(node)
        if node.category == "concat":
            return self._concat(node)
        if node.category == "reduction":
            self._reduction(node)
        return None

    def conv(self, node: Node) -> ir.Value:
        """The twin of what a convolution makes."""
        x, w = node.inputs[:2]
        types, a = self.flow.types, node.attributes
        weights, bias = self.flow.values[w], self.flow.values[node.inputs[2]] if len(node.inputs) > 2 else None
        windows = {k: a[k] for k in ("stride", "padding", "dilation")}
        if a["groups"] > 1:
            channels, _, *kernel = types[w].shape
            taps = self.permute(self.reshape(weights, (channels, *kernel)), (*range(1, len(kernel) + 1), 0))
            taps = self.build("materialize", taps)
            return self.build("depthwise_conv", self.stored_last(x), taps, bias, **windows)
        if has_short_patches(types[w]):
            image = self.last.get(x) or self.permute(self.flow.values[x], to_last(types[x].rank))
            weights = self._in_whole_rows(self.permute(weights, to_last(types[w].rank)))
        elif fold := folding(types[x], types[w], a):
            image = self._squares(self.flow.values[x], a["padding"], fold)
            short = [t * fold.step - k for t, k in zip(fold.taps, types[w].shape[2:])]
            weights = self._squares(weights, (0, 0), replace(fold, rows=fold.taps, high=tuple(short)))
            windows = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
        else:
            image, weights = self.stored_last(x), self.copy_last(weights)
        shape = type_of(weights).shape
        if dims.product(shape[1:-1]) == 1 and set(windows["stride"]) == {1} and not any(windows["padding"]):
            return self.build("linear", image, self.reshape(weights, (shape[0], shape[-1])), bias)
        if more := -shape[0] % UNIT:  # whole vectors are written, of which the results are a view
            weights = self._with_zeros(weights, more)
            bias = None if bias is None else self._with_zeros(bias, more)
        made = self.build("channels_last_conv", image, weights, bias, **windows)
        size = (*type_of(made).shape[:-1], shape[0])
        return (
            made if not more else self.build("slice", made, starts=(0,) * len(size), sizes=size, steps=(1,) * len(size))
        )

    def _with_zeros(self, value: ir.Value, more: Dim) -> ir.Value:
        """`value` with `more` zeros behind its first dim."""
        none = (0,) * (type_of(value).rank - 1)
        value = self.build("pad", value, low=(0, *none), high=(more, *none), value=0.0, mode="constant")
        return self.build("materialize", value)

    def _in_whole_rows(self, weights: ir.Value) -> ir.Value:
        """`[O, kernel…, C]` in rows that begin where the copy engine reads, with zeros between them."""
        shape = type_of(weights).shape
        outputs, length = shape[0], dims.product(shape[1:])
        rows = self.reshape(weights, (outputs, length))
        rows = self.build("pad", rows, low=(0, 0), high=(0, -length % UNIT), value=0.0, mode="constant")
        rows = self.build("materialize", rows)
        return self.reshape(self.build("slice", rows, starts=(0, 0), sizes=(outputs, length), steps=(1, 1)), shape)

    def _squares(self, value: ir.Value, padding: Sequence[int], fold: Folding) -> ir.Value:
        """`[N, C, H, W]` as `[N, rows, columns, (i, j, c)]`: squares of positions with zeros around them, side by side."""
        n, channels, *_ = type_of(value).shape
        more = fold.channels - channels
        value = self.build("pad", value, low=(0, 0, *padding), high=(0, more, *fold.high), value=0.0, mode="constant")
        (rows, columns), step = fold.rows, fold.step
        value = self.build("reshape", value, shape=(n, fold.channels, rows, step, columns, step))
        value = self.build("permute", value, dims=(0, 2, 4, 3, 5, 1))
        return self.reshape(self.build("materialize", value), (n, rows, columns, step * step * fold.channels))

    def _pointwise(self, node: Node) -> ir.Value | None:
        """The same op on twins; None if it reads something else that is as large as its result."""
        result = self.flow.types[node.results[0]]
        full = [v for v in node.inputs if self.flow.types[v].shape == result.shape]
        if len(node.results) != 1 or result.rank < 3 or not any(v in self.last for v in full):
            return None
        if any(v not in self.last and v not in self.copied for v in full):
            return None
        operands = [None if v is None else self._broadcast(v, result.rank) for v in node.operands]
        return self.build(node.name, *operands, **node.attributes)

    def _broadcast(self, v: int, rank: int) -> ir.Value:
        """An operand of a pointwise op with channels last, as it broadcasts to a result of `rank` dims."""
        shape = self.flow.types[v].shape
        if len(shape) == rank and (v in self.last or v in self.copied):
            return self.stored_last(v)
        if not shape:
            return self.flow.values[v]
        given = self._seen_first(v) if v in self.last else self.flow.values[v]
        return self.permute(self.reshape(given, (1,) * (rank - len(shape)) + shape), to_last(rank))

    def _pool(self, node: Node) -> ir.Value | None:
        """A pool reads its operand through a permutation, and is copied as it is computed."""
        x = node.inputs[0]
        if x not in self.last or any(self.flow.users[r] or r in self.flow.returned for r in node.results[1:]):
            return None
        y = self.build(node.name, self._seen_first(x), **node.attributes)
        return self.build("materialize", self.permute(y, to_last(type_of(y).rank)))

    def _index(self, node: Node) -> ir.Value | None:
        """Rows and columns of a twin, taken by number: an image that is resized."""
        x, *indices = node.inputs
        taken = node.attributes["dims"]
        if x not in self.last or any(v in self.last for v in indices):
            return None
        if taken[0] < 2 or taken != tuple(range(taken[0], taken[-1] + 1)):
            return None
        places = {**node.attributes, "dims": tuple(d - 1 for d in taken)}
        return self.build("index", self.last[x], *(self.flow.values[v] for v in indices), **places)

    def _concat(self, node: Node) -> ir.Value:
        """Of twins, and of copies of what has none: what reads the result is most likely a convolution."""
        rank = self.flow.types[node.results[0]].rank
        dim = to_last(rank).index(normalize_dim(node.attributes["dim"], rank))
        return self.build("concat", *map(self.stored_last, node.inputs), dim=dim)

    def _reduction(self, node: Node) -> None:
        """A reduction over the spatial dims, which leaves the others in order, reads the twin itself."""
        (x,) = node.inputs
        rank, a = self.flow.types[x].rank, node.attributes
        if len(node.results) != 1 or "keepdim" not in a or not isinstance(a.get("dims"), tuple):
            return
        reduced = {normalize_dim(d, rank) for d in a["dims"]}
        kept = [d for d in to_last(rank) if d not in reduced]
        if not reduced or kept != sorted(kept):
            return
        places = tuple(sorted(to_last(rank).index(d) for d in reduced))
        made = self.build(node.name, self.last[x], **{**a, "dims": places, "keepdim": False})
        self._replace(node, self.reshape(made, self.flow.types[node.results[0]].shape))

    def _replace(self, node: Node, value: ir.Value) -> None:
        """Let `value` be what `node` makes."""
        node.op.results[0].replace_all_uses_with(value)
        self.flow.values[node.results[0]] = value
