"""Convolution with few output channels per group (depthwise): vectors of output positions, straight from the patch.

for item:  (image, output channel, block of positions)
    copy the patch of the channel's group                      padded, so that taps need no checks
    for each vector of positions:  acc += w[tap] * patch[tap]  over channels and kernel positions
    epilogue
"""

from __future__ import annotations

from mlir import ir

from ..dialects import dims
from . import tiles_numeric as numeric
from .conv_problem import ConvProblem, input_reader
from .tiles_code import Index, delinearize
from .tiles_epilogue import Epilogue
from .tiles_frame import EmitError, Frame
from .tiles_gemm import CHUNK_WORK, block_size
from .tiles_micro import choose_tile
from .tiles_patch import Patch
from .tiles_patch_vectors import Loader, PatchVectors

POSITION_BLOCK = 2048  # output positions of an item, at most: their patch stays in L1 or L2
SLOW = 4  # an FMA here counts as so many of the register tile's


class DirectConv:
    """One kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, vector_bits: int, registers: int):
        self.frame, self.code, self.problem = frame, frame.code, problem
        if problem.w_view is None:
            raise EmitError(f"the weights of kernel '{frame.name}' are computed")
        self.tile = choose_tile(numeric.compute_dtype(problem.dtype), vector_bits, registers)
        self.channels = problem.in_channels // problem.groups
        self.block = block_size(problem.positions, POSITION_BLOCK, self.tile.columns)
        self.blocks = dims.ceildiv(problem.positions, self.block)
        self.patch = Patch(self.code, problem.windows, self.channels, self.block, 2 * self.tile.columns)
        columns = [w.out for w in problem.windows]
        lead = (problem.batch, problem.out_channels)
        self.epilogue = Epilogue(frame, problem.root, problem.dtype, self.tile, lead, columns, problem.bias, 1)

    def emit(self) -> None:
        """Emit the whole body and close the frame."""
        code, p, tile = self.code, self.problem, self.tile
        element, bytes = numeric.element_type(tile.dtype), 8 if tile.dtype == "f64" else 4
        self.taps = dims.product(w.kernel for w in p.windows)
        self.buffer = code.scratch(code.size(self.patch.size), element, bytes)
        self.sums = code.scratch(self.block, element, bytes)
        self.weights = code.scratch(self.channels * self.taps, element, bytes)
        self.positions = code.size(p.positions)
        self.vectors = PatchVectors(code, self.patch, self.buffer, tile.width, self.positions)
        code.loop(self.frame.begin, self.frame.end, 1, [], self._item)
        work = 2 * SLOW * self.block * self.channels * self.taps
        self.frame.close(p.batch * p.out_channels * self.blocks, max(1, CHUNK_WORK // max(1, work)))

    def _item(self, number: ir.Value) -> None:
        code, p = self.code, self.problem
        image, channel, block = delinearize(code, number, (p.batch, p.out_channels, self.blocks))
        first = code.mul(block, self.block)
        count = code.min(self.block, code.sub(self.positions, first))
        start, slices = self.patch.slices(first, count)
        group = code.div(channel, p.out_channels // p.groups)
        self.patch.fill(
            self.buffer,
            start,
            slices,
            input_reader(self.frame, p, image, code.mul(group, self.channels), self.tile.dtype),
        )
        self._copy_weights(channel)

        def vectors(loader: Loader) -> None:
            code.loop(0, count, self.tile.width, [], lambda i: self._vector(i, loader(code.add(first, i))))

        self.vectors.emit(start, vectors)
        self.epilogue.emit([image, channel], first, count, self.sums, 0)

    def _copy_weights(self, channel: Index) -> None:
        """The weights of one output channel, in the compute dtype."""
        code, p, view = self.code, self.problem, self.problem.w_view
        assert view is not None
        buffer = self.frame.inputs[view.base]

        def element(k: Index) -> None:
            at = code.size(view.offset)
            for i, stride in zip([channel, *delinearize(code, k, view.shape[1:])], view.strides):
                at = code.add(at, code.mul(i, code.size(stride)))
            value = numeric.convert(code, code.load(buffer.memref, at), p.dtype, self.tile.dtype)
            code.store(value, self.weights, k)

        code.loop(0, self.channels * self.taps, 1, [], element)

    def _vector(self, at: Index, load) -> None:  # noqa: ANN001
        code, width = self.code, self.tile.width
        zero = code.constant(0, ir.VectorType.get([width], numeric.element_type(self.tile.dtype)))

        def channel(c: Index, acc: ir.Value) -> list[ir.Value]:
            base, row = code.mul(c, code.size(self.patch.channel)), code.mul(c, self.taps)

            def tap(number: Index, offset: Index, total: ir.Value) -> ir.Value:
                weight = numeric.broadcast(code, code.load(self.weights, code.add(row, number)), width)
                return numeric.multiply_add(code, weight, load(code.add(base, offset)), total)

            return [self.patch.fold_taps(acc, tap)]

        (total,) = code.loop(0, self.channels, 1, [zero], channel)
        code.vstore(total, self.sums, at)
