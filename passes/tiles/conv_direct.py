"""Convolution with few output channels per group (depthwise): vectors of output positions, straight from the patch.

for item:  (image, output channel, block of positions)
    copy the patch of the channel's group                      padded, so that taps need no checks
    for each group of vectors of positions:  acc += w[tap] * patch[tap]  over channels and kernel positions
    epilogue

A group is several output rows where rows are short, so that there are enough sums to hide FMA's latency. Where the last
vector of a row is longer than the row, its lanes beyond are junk that the next row overwrites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.dtypes import DTYPES
from . import numeric
from .blocks import block_size
from .code import Index, delinearize
from .conv_problem import ConvProblem, input_reader, weight_at
from .epilogue import Epilogue, needs_scalars
from .frame import Frame
from .gemm import grain
from .micro import LATENCY, Rows, Tile, choose_tile
from .patch import Patch
from .patch_vectors import Load, Loader, PatchVectors

ENOUGH = 2 * LATENCY  # vectors of sums that keep both FMA units busy
POSITION_BLOCK = 2048  # output positions of an item, at most: their patch stays in L1 or L2
LEAST_BITS = 128  # of vectors
SLOW = 4  # an FMA here counts as so many of the register tile's


class DirectConv:
    """One kernel."""

    def __init__(self, frame: Frame, problem: ConvProblem, vector_bits: int, registers: int):
        self.frame, self.code, self.problem = frame, frame.code, problem
        self.channels = problem.in_channels // problem.groups
        out = problem.windows[-1].out
        tile = choose_tile(numeric.compute_dtype(problem.dtype), vector_bits, registers)
        self.tile = for_rows(tile, out) if len(problem.windows) > 1 else tile
        # a row of the output, if vectors go along it, else 0
        self.row = out if len(problem.windows) > 1 and isinstance(out, int) and 2 * out >= self.tile.width else 0
        self.most = registers * 3 // 4  # vectors of sums; an FMA takes its patch from memory
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
        if p.weight_stride is None:
            self.weights = code.scratch(self.channels * self.taps, element, bytes)
        self.positions = code.size(p.positions)
        self.vectors = PatchVectors(code, self.patch, self.buffer, tile.width, self.positions)
        code.loop(self.frame.begin, self.frame.end, 1, [], self._item)
        work = 2 * SLOW * self.block * self.channels * self.taps
        self.frame.close(p.batch * p.out_channels * self.blocks, grain(work, tile.width))

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
        self.row_of_weights = self._weights(channel)

        if self.row:
            self._rows(first, count, start)
        else:
            self.vectors.emit(start, lambda loader: self._over_rows(first, count, loader))
        self.epilogue.emit([image, channel], first, count, self.sums, 0)

    def _rows(self, first: Index, count: Index, start: Index) -> None:
        """The sums of positions `first .. first + count`, which are whole rows, by groups of rows."""
        code, row = self.code, self.row
        rows = count // row if isinstance(count, int) else self.block // row
        group = rows_at_once(rows, -(-row // self.tile.width), self.most) * row
        several = lambda at: self._group(at, first, group // row, start)
        if isinstance(count, int):
            code.loop(0, count - group + 1, group, [], several)
            if count % group:
                several(count - group)
            return
        whole = code.mul(code.div(count, group), group)
        code.loop(0, whole, group, [], several)
        code.loop(whole, count, row, [], lambda at: self._group(at, first, 1, start))

    def _group(self, at: Index, first: Index, rows: int, start: Index) -> None:
        """The sums of so many output rows from position `first + at` on, which go to `at`."""
        code, width, row = self.code, self.tile.width, self.row
        targets = [code.add(at, r * row) for r in range(rows)]
        lines = [self.patch.offset(code.add(first, at), start)[0]]
        if len(self.patch.windows) == 2:
            step = code.mul(code.size(self.patch.strides[0]), self.patch.windows[0].stride)
            lines += [code.add(lines[0], code.mul(step, r)) for r in range(1, rows)]
        else:
            lines += [self.patch.offset(code.add(first, to), start)[0] for to in targets[1:]]

        def vectors(columns: list[Index]) -> None:
            load = lambda line, x: lambda source: code.vload(self.buffer, code.add(source, line, x), width)
            places = [code.add(to, x) for to in targets for x in columns]
            self._vectors(places, [load(line, x) for line in lines for x in columns])

        in_row = -(-row // width)
        many = -(-in_row // -(-in_row // self.most))  # vectors at a time, in equal parts
        whole = (in_row - 1) // many * many * width
        code.loop(0, whole, many * width, [], lambda x: vectors([code.add(x, i * width) for i in range(many)]))
        vectors([max(0, min(x, row - width)) for x in range(whole, row, width)])

    def _over_rows(self, first: Index, count: Index, loader: Loader) -> None:
        code, width = self.code, self.tile.width

        def pair(i: Index) -> None:
            places = [code.add(i, v * width) for v in range(self.tile.vectors)]
            self._vectors(places, [loader(code.add(first, place)) for place in places])

        code.loop(0, count, self.tile.columns, [], pair)

    def _weights(self, channel: Index) -> Rows:
        """Where the weights of one output channel are: in place, or copied in the compute dtype."""
        code, view, stride = self.code, self.problem.w_view, self.problem.weight_stride
        if view is not None and stride is not None:
            start = code.add(code.size(view.offset), code.mul(channel, code.size(view.strides[0])))
            return Rows(self.frame.inputs[view.base].memref, [start], code.size(stride))

        def element(k: Index) -> None:
            code.store(weight_at(self.frame, self.problem, channel, k, self.tile.dtype), self.weights, k)

        code.loop(0, self.channels * self.taps, 1, [], element)
        return Rows(self.weights, [0])

    def _vectors(self, places: Sequence[Index], loads: Sequence[Load]) -> None:
        """The sums of several vectors of positions, each to its place."""
        code, width = self.code, self.tile.width
        zero = code.constant(0, ir.VectorType.get([width], numeric.element_type(self.tile.dtype)))

        def channel(c: Index, *acc: ir.Value) -> list[ir.Value]:
            base, row = code.mul(c, code.size(self.patch.channel)), code.mul(c, self.taps)

            def tap(number: Index, offset: Index, *totals: ir.Value) -> list[ir.Value]:
                weight = numeric.broadcast(code, self.row_of_weights.loads(code, code.add(row, number))[0](), width)
                source = code.add(base, offset)
                return [numeric.multiply_add(code, weight, load(source), t) for load, t in zip(loads, totals)]

            return self.patch.fold_taps(list(acc), tap)

        for place, total in zip(places, code.loop(0, self.channels, 1, [zero] * len(loads), channel)):
            code.vstore(total, self.sums, place)


def for_rows(tile: Tile, row: Dim) -> Tile:
    """`tile` with vectors that a row of the output fills by half at least: 8 lanes for rows of 7, where there are 16.

    A vector that touches several rows is put together lane by lane: on AVX-512 that took six times as long for 7 x 7.
    """
    narrowest = LEAST_BITS // (8 * DTYPES[tile.dtype].bytes)
    while isinstance(row, int) and 2 * row < tile.width and tile.width > narrowest:
        tile = replace(tile, width=tile.width // 2)
    return tile


def rows_at_once(rows: int, vectors: int, most: int) -> int:
    """The number of rows of so many vectors to sum at once, of which there are `rows`: at most `most` vectors, or one row.

    A group takes a cycle for every two vectors, but as long as a multiply-add at least; a last group overlaps the one before.
    """
    time = lambda group: -(-rows // group) * max(group * vectors, ENOUGH)
    return min(range(1, max(1, min(rows, most // vectors)) + 1), key=time)
