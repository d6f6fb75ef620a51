"""Convolution with few output channels per group (depthwise): vectors of output positions, straight from the patch.

for item:  (image, output channel, block of positions)
    copy the patch of the channel's group                      padded, so that taps need no checks
    for each vector of positions:  acc += w[tap] * patch[tap]  over channels and kernel positions
    epilogue
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlir import ir

from ...dialects import dims
from . import numeric as numeric
from .code import Index, delinearize
from .conv_problem import ConvProblem, input_reader, weight_at
from .epilogue import Epilogue, needs_scalars
from .frame import Frame
from .gemm import CHUNK_WORK, block_size
from .micro import choose_tile
from .patch import Patch
from .patch_vectors import Load, Loader, PatchVectors

GROUP = 4  # vectors at a time: enough sums to hide FMA's latency
POSITION_BLOCK = 2048  # output positions of an item, at most: their patch stays in L1 or L2
SLOW = 4  # an FMA here counts as so many of the register tile's


class DirectConv:
    """One kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, vector_bits: int, registers: int):
        self.frame, self.code, self.problem = frame, frame.code, problem
        self.tile = choose_tile(numeric.compute_dtype(problem.dtype), vector_bits, registers)
        self.channels = problem.in_channels // problem.groups
        out = problem.windows[-1].out
        # a row of the output, if vectors go along it, else 0
        self.row = out if len(problem.windows) > 1 and isinstance(out, int) and out >= self.tile.width else 0
        unit = self.row or self.tile.columns
        self.block = block_size(problem.positions, max(POSITION_BLOCK, unit), unit)
        self.blocks = dims.ceildiv(problem.positions, self.block)
        self.patch = Patch(self.code, problem.windows, self.channels, self.block, 2 * self.tile.columns)
        columns = [w.out for w in problem.windows]
        lead = (problem.batch, problem.out_channels)
        self.epilogue = Epilogue(frame, problem.root, problem.dtype, self.tile, lead, columns, problem.bias, 1)

    def emit(self) -> None:
        """Emit the whole body and close the frame."""
        code, p, tile = self.code, self.problem, self.tile
        element, bytes = numeric.element_type(tile.dtype), 8 if tile.dtype == "f64" else 4
        self.taps = math.prod(w.kernel for w in p.windows)
        self.buffer = code.scratch(code.size(self.patch.size), element, bytes)
        self.sums = code.scratch(self.block + tile.columns, element, bytes)
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
        read = input_reader(self.frame, p, image, code.mul(group, self.channels), self.tile.dtype)
        width = 1 if needs_scalars(self.frame) else self.tile.width
        self.patch.fill(self.buffer, start, slices, width, read)
        self._copy_weights(channel)

        if self.row:
            code.loop(0, count, self.row, [], lambda at: self._row(at, code.add(first, at), start))
        else:
            self.vectors.emit(start, lambda loader: self._over_rows(first, count, loader))
        self.epilogue.emit([image, channel], first, count, self.sums, 0)

    def _row(self, at: Index, position: Index, start: Index) -> None:
        """One output row, whose sums go to `at`."""
        code, width = self.code, self.tile.width
        row = self.row
        base, _ = self.patch.offset(position, start)
        group = GROUP * width
        whole = row // group * group

        def vectors(places: list[Index]) -> None:
            load = lambda x: lambda source: code.vload(self.buffer, code.add(source, base, x), width)
            self._vectors([code.add(at, x) for x in places], [load(x) for x in places])

        code.loop(0, whole, group, [], lambda x: vectors([code.add(x, i * width) for i in range(GROUP)]))
        if whole < row:
            vectors([min(x, row - width) for x in range(whole, row, width)])

    def _over_rows(self, first: Index, count: Index, loader: Loader) -> None:
        code, width = self.code, self.tile.width

        def pair(i: Index) -> None:
            places = [code.add(i, v * width) for v in range(self.tile.vectors)]
            self._vectors(places, [loader(code.add(first, place)) for place in places])

        code.loop(0, count, self.tile.columns, [], pair)

    def _copy_weights(self, channel: Index) -> None:
        """The weights of one output channel, in the compute dtype."""
        code = self.code

        def element(k: Index) -> None:
            code.store(weight_at(self.frame, self.problem, channel, k, self.tile.dtype), self.weights, k)

        code.loop(0, self.channels * self.taps, 1, [], element)

    def _vectors(self, places: Sequence[Index], loads: Sequence[Load]) -> None:
        """The sums of several vectors of positions, each to its place."""
        code, width = self.code, self.tile.width
        zero = code.constant(0, ir.VectorType.get([width], numeric.element_type(self.tile.dtype)))

        def channel(c: Index, *acc: ir.Value) -> list[ir.Value]:
            base, row = code.mul(c, code.size(self.patch.channel)), code.mul(c, self.taps)

            def tap(number: Index, offset: Index, *totals: ir.Value) -> list[ir.Value]:
                weight = numeric.broadcast(code, code.load(self.weights, code.add(row, number)), width)
                source = code.add(base, offset)
                return [numeric.multiply_add(code, weight, load(source), t) for load, t in zip(loads, totals)]

            return self.patch.fold_taps(list(acc), tap)

        for place, total in zip(places, code.loop(0, self.channels, 1, [zero] * len(loads), channel)):
            code.vstore(total, self.sums, place)
