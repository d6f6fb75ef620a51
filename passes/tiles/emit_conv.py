"""Emit convolution kernels: an implicit matrix product, or direct loops where groups leave nothing to multiply.

    y[n, o, p] = sum_{c, t} w[o, (c, t)] * x[n, c, p * stride - padding + t * dilation]

Rows are output channels of one group, read in place from the weights; K is (input channel, kernel position); columns are
output positions. B is packed per block of columns from a padded patch of the input (`patch`): a vector of it is
one load, or two blended where it runs over the end of an output row. No im2col matrix ever exists.
Depthwise convolutions, with few output channels per group, go plane by plane (`conv_direct`); with weights packed ahead of
time rows and columns change places (`packed_conv`).
"""

from __future__ import annotations

from mlir import ir

from ...dialects.dims import Dim
from ..loops.strided_view import merge
from ..registry import register
from . import numeric
from .code import Index
from .conv_direct import DirectConv
from .conv_problem import ConvProblem, input_reader, read_conv, read_few_positions, weight_at
from .epilogue import Epilogue, needs_scalars
from .few_positions import FewPositions
from .frame import Frame, kernels, open_frame
from .gemm import Gemm, Item
from .micro import Rows, choose_tile
from .pack import Matrix, pack_panels
from .packed_conv import PackedConv
from .packed_last_conv import PackedLastConv
from .patch import Patch
from .patch_vectors import Loader, PatchVectors

ROW_BLOCK = 48  # output channels of an item: few, because deep layers have few positions to share out among threads

DIRECT_BELOW = 4  # output channels per group; with fewer, packing costs more than it saves


@register
def emit_conv(module: ir.Module, vector_bits: int = 256, registers: int = 16, by_lane: bool = False) -> None:
    """Replace each kernel of kind `conv` by loops over register tiles.

    Before: `%y = "lamina.conv"(%x, %w)` and a `linalg.generic` epilogue on tensors.
    After: a function on flat memrefs: patch copy, packing, and the loop nest of `gemm`.
    """
    with module.context:
        for function in kernels(module, "conv"):
            with open_frame(function) as frame:
                tile = lambda dtype: choose_tile(numeric.compute_dtype(dtype), vector_bits, registers)
                if few := read_few_positions(frame, DIRECT_BELOW):
                    FewPositions(frame, few, tile(few.dtype)).emit()
                    continue
                problem = read_conv(frame)
                if problem.last:
                    PackedLastConv(frame, problem, tile(problem.dtype)).emit()
                elif problem.panel:
                    PackedConv(frame, problem, tile(problem.dtype)).emit()
                elif problem.out_channels // problem.groups < DIRECT_BELOW:
                    DirectConv(frame, problem, vector_bits, registers).emit()
                else:
                    _Conv(frame, problem, vector_bits, registers, by_lane).emit()


class _Conv(Gemm):
    """One kernel as a product per image and group: (channels out) x (channels in, taps) x (positions)."""

    def __init__(self, frame: Frame, problem: ConvProblem, vector_bits: int, registers: int, by_lane: bool):
        self.problem = p = problem
        self.taps = 1
        for w in p.windows:
            self.taps *= w.kernel
        tile = choose_tile(numeric.compute_dtype(p.dtype), vector_bits, registers, by_lane)
        super().__init__(
            frame, p.dtype, (p.batch, p.groups), p.out_channels // p.groups, p.in_channels // p.groups * self.taps,
            p.positions, tile, row_block=ROW_BLOCK,
        )  # fmt: skip
        self.a_in_place = p.weight_stride is not None
        lead = (p.batch, p.out_channels)
        self.epilogue = Epilogue(frame, p.root, p.dtype, self.tile, lead, [w.out for w in p.windows], p.bias, 1)
        self.pointwise = self._pointwise_stride()
        if self.pointwise is None:
            self.patch = Patch(
                self.code, p.windows, p.in_channels // p.groups, self.column_block, 2 * self.tile.columns
            )
            self.patch_buffer = self.code.scratch(self.code.size(self.patch.size), self.element, self.bytes)
            self.vectors = PatchVectors(self.code, self.patch, self.patch_buffer, self.tile.width, self.n)

    def _pointwise_stride(self) -> Dim | None:
        """The stride from position to position if the kernel is 1 x 1 and reads x in place, else None."""
        p = self.problem
        if p.x_view is None or any((w.kernel, w.stride, w.padding) != (1, 1, 0) for w in p.windows):
            return None
        one = merge(p.x_view.shape[2:], p.x_view.strides[2:])
        return None if one is None else one[1]

    def pack(self, item: Item) -> None:
        code, p, tile = self.code, self.problem, self.tile
        image, group = item.batch
        channels = p.in_channels // p.groups
        first_channel = code.mul(group, channels)
        if self.pointwise is not None:
            view = p.x_view
            assert view is not None
            buffer = self.frame.inputs[view.base]
            offset = code.add(
                code.size(view.offset), code.mul(image, code.size(view.strides[0])),
                code.mul(first_channel, code.size(view.strides[1])),
            )  # fmt: skip
            k_stride, n_stride = code.size(view.strides[1]), code.size(self.pointwise)
            matrix = Matrix(buffer.memref, buffer.dtype, offset, k_stride, n_stride)
            pack_panels(code, tile, matrix, self.k, self.n, item.column, item.panels, self.packed)
            return
        start, count = self.patch.slices(item.column, item.columns)
        read = input_reader(self.frame, p, image, first_channel, tile.dtype)
        self.patch.fill(self.patch_buffer, start, count, 1 if needs_scalars(self.frame) else tile.width, read)

        def panel(j: Index) -> None:
            first, at = code.mul(j, tile.columns), code.mul(code.mul(j, self.k), tile.columns)
            self.vectors.emit(start, lambda loader: self._pack_vectors(code.add(item.column, first), at, loader))

        code.loop(0, item.panels, 1, [], panel)

    def _pack_vectors(self, first: Index, at: Index, loader: Loader) -> None:
        """Pack the panel of positions `first ...`. Lanes past the last position hold junk, whose sums are not stored."""
        code, tile = self.code, self.tile
        loads = [loader(code.add(first, q * tile.width)) for q in range(tile.vectors)]

        def channel(c: Index) -> None:
            base, row = code.mul(c, code.size(self.patch.channel)), code.mul(c, self.taps)

            def tap(number: Index, offset: Index) -> None:
                to = code.add(at, code.mul(code.add(row, number), tile.columns))
                for q, load in enumerate(loads):
                    code.vstore(load(code.add(base, offset)), self.packed, code.add(to, q * tile.width))

            self.patch.each_tap(tap)

        code.loop(0, self.problem.in_channels // self.problem.groups, 1, [], channel)

    def _channel(self, item: Item, m: Index) -> Index:
        """The output channel of row `m`."""
        return self.code.add(self.code.mul(item.batch[1], self.problem.out_channels // self.problem.groups), m)

    def a_rows(self, item: Item, m: Index) -> Rows:
        code, view, stride = self.code, self.problem.w_view, self.problem.weight_stride
        if view is None or stride is None:
            return super().a_rows(item, m)
        starts = []
        for r in range(self.tile.rows):
            row = code.mul(self._channel(item, code.add(m, r)), code.size(view.strides[0]))
            starts.append(code.add(code.size(view.offset), row))
        return Rows(self.frame.inputs[view.base].memref, starts, code.size(stride))

    def a_copy(self, item: Item, m: Index, low: Index, size: Index, at: Index) -> None:
        code, channel = self.code, self._channel(item, m)

        def element(k: Index) -> None:
            weight = weight_at(self.frame, self.problem, channel, code.add(low, k), self.tile.dtype)
            code.store(weight, self.a_block, code.add(at, k))

        code.loop(0, size, 1, [], element)

    def lead_index(self, item: Item, m: Index) -> list[Index]:
        image, _ = item.batch
        return [image, self._channel(item, m)]
