"""Stages of reductions along columns: the results are contiguous in what is read.

A block is `lanes` of neighbouring results by `slices` of what is reduced, of which it takes a chunk:

    partial[chunk, column] = combination over the slices of the reduction of rows slice, slice + slices, ... of the chunk

and another stage combines the chunks. Where rows begin anywhere, slices are aligned each in its way (aligned_slices.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import WARP, element_bytes
from ..lane_places import LANE
from ..probe import Probe, choose_width
from ..streamed_loads import StreamedLoads
from ..thread_values import ThreadValues
from .aligned_slices import AlignedSlices, SliceValues, end_whole, find_base
from .column_block import across_slices, place_column, split_block
from .reduction_stages import ReductionStages, is_first
from .rounds import Rounds, all_at_once, even_unroll, rest_names

COLUMN_THREADS = 256  # of a block: lanes by slices
SLICES = 8  # at most
ENOUGH_THREADS = 1 << 18  # with so many lanes there are fewer slices
SCALAR_BLOCK = 128, 4  # lanes and slices where lanes have one f32: rows that begin anywhere are read in long runs
COLUMN_UNROLL = 8  # rows of a slice that are read at once, at most
# ptxas lets loads sink, two or three under way, to save registers, unless it is told how many it may use: four blocks of
# COLUMN_THREADS and one of the next launch have room. That is where accumulators have at most so many bytes, and elements are
# no functions (sines of eight rows at a time would spill)
REGISTERS, ACCUMULATORS = 56, 32
# blocks that keep 132 multiprocessors busy: four for each, sixteen where lanes have one element and read little
COLUMN_BLOCKS, SCALAR_BLOCKS = 528, 2112
FINAL_SLICES = 8  # of the stage that combines chunks
MOST_CHUNKS = 132  # of what is reduced along columns
LEAST_ANYWHERE = 256  # results of a row that is no whole number of vectors and is taken in such


def _column_block(vectors: Dim, width: int, size: int) -> tuple[int, int]:
    """Lanes and slices of a block that reads `vectors` columns of `width` elements of `size` bytes."""
    slices = SLICES
    while isinstance(vectors, int) and slices > 1 and vectors * slices > ENOUGH_THREADS:
        slices //= 2
    if width == 1 and size >= 4 and slices == SLICES and isinstance(vectors, int) and vectors >= 8 * SCALAR_BLOCK[0]:
        return SCALAR_BLOCK
    return COLUMN_THREADS // slices, slices


def _column_chunks(blocks: Dim, most: int, slices: int, length: Dim) -> int:
    """Chunks of what is reduced: with `most` blocks in all, of which each slice takes some rows."""
    rows = length // (slices * COLUMN_UNROLL) if isinstance(length, int) else 16
    return max(1, min(most // (max(blocks, 1) if isinstance(blocks, int) else 64), rows, MOST_CHUNKS))


class ColumnStages(ReductionStages):
    """The stages of such reductions."""

    def form(self) -> tuple[int, int]:
        """The results of a thread, and the length of their rows where these begin anywhere (aligned_slices.py), else 0."""
        count = self.count

        def fits(width: int) -> bool:
            return isinstance(count, int) and count % width == 0 and count >= width * WARP

        width = choose_width([], self.probe_columns, fits)
        if not self.kernel.aligned or not isinstance(count, int):
            return width, 0
        for row in dict.fromkeys((count, *self.shape[-1:])):  # all results may lie in one row
            if not isinstance(row, int) or row < LEAST_ANYWHERE:
                continue
            probe = partial(self.probe_columns, row=row)
            wider = choose_width([], probe, lambda width, probe=probe: find_base(probe(width), width) is not None)
            if wider > width:
                return wider, row
        return width, 0

    def probe_columns(self, width: int, row: int = 0) -> Probe:
        """What neighbouring results read for one element: whole vectors of all results, or such as begin anywhere in a `row`."""
        ranges = Ranges({LANE: width, "c": self.length})
        lane = dims.symbol(LANE) if width > 1 else 0
        if row:
            first = row * ranges.add("row", self.count // row) if self.count != row else 0
            results = first + ranges.add("column", row - (width - 1)) + lane
        else:
            results = width * ranges.add("w", dims.floordiv(self.count, width)) + lane
        return self.probe(results, dims.symbol("c"), ranges)

    def width(self) -> int:
        """The results of a thread."""
        return self.form()[0]

    def emit(self) -> None:
        """Each chunk of neighbouring results by lanes x slices threads."""
        width, n = self.form()
        if n:
            self.aligned_slices(width, n)
            return
        count, length, joint = self.count, self.length, self.joint
        vectors = count // width if isinstance(count, int) else count
        probed = self.probe_columns(width)
        read = [element_bytes(ir.RankedTensorType(a.type).element_type) for a, _ in probed.loads]
        lanes, slices = block = _column_block(vectors, width, max(read, default=4))
        blocks = dims.ceildiv(vectors, lanes)
        chunks = _column_chunks(blocks, SCALAR_BLOCKS if width == 1 else COLUMN_BLOCKS, slices, length)
        parts = self.scratch(chunks) if chunks != 1 else self.finals()
        stage = self.kernel.stage(lanes * slices, (blocks, chunks, 1))
        x, y = split_block(stage, lanes)
        w, inside = place_column(stage, x, lanes, vectors, "w")
        ev = self.stored.evaluator(stage, probed.ranges, width)
        row = ev.flat(w)
        made = self.accumulate(ev, row, y, slices, chunks, length)
        made = across_slices(ev, stage, joint, made, x, y, block)
        self.leave(ev, parts, made, row, [inside, is_first(stage, y)], chunks)

    def aligned_slices(self, width: int, n: int) -> None:
        """The same of results in rows of `n` that begin anywhere (aligned_slices.py)."""
        probed = self.probe_columns(width, n)
        base = find_base(probed, width)
        assert base is not None and isinstance(self.count, int)
        block = AlignedSlices(width, COLUMN_THREADS, n, self.count // n, base)
        chunks = _column_chunks(block.blocks, COLUMN_BLOCKS, width, self.length)
        parts = self.scratch(chunks) if chunks != 1 else self.finals()
        stage = self.kernel.stage(block.threads, (block.blocks, chunks, 1))
        x, y = split_block(stage, block.lanes)
        ev = self.stored.evaluator(stage, probed.ranges, width, SliceValues)
        single = self.stored.evaluator(stage, Ranges(), 1)
        assert isinstance(ev, SliceValues)
        whole = end_whole(probed, width)
        made = self.accumulate(ev, block.place(ev, x, y), y, width, chunks, self.length if whole else self.length - 1)
        made, row, inside = block.combine(ev, single, self.joint, made)
        if not whole:
            made = self.with_last(single, row, made, chunks)
        self.leave(single, parts, made, row, [inside], chunks)

    def with_last(self, ev: ThreadValues, row: Dim, made: list[Any], chunks: int) -> list[Any]:
        """Accumulators with the last element of result `row`, in the last chunk."""
        b, joint = ev.b, self.joint
        joint.inits(ev, self.row(ev.ranges, row))

        def last() -> list[ir.Value]:
            return joint.step(ev, self.loops(ev.ranges, row, self.length - 1), made)

        if chunks == 1:
            return last()
        ev.ranges.add("chunk", chunks)
        chunk, end = b.dim(dims.symbol("chunk")), b.dim(chunks - 1)
        mine = b.compare("eq", chunk, end)
        return b.branch(mine, [m.type for m in made], last, lambda: made)

    def accumulate(self, ev: ThreadValues, row: Dim, y: ir.Value, slices: int, chunks: int, length: Dim) -> list[Any]:
        """The accumulators of results `row` over every `slices`-th of `length` elements, from `y` on, of the block's chunk."""
        b, joint = ev.b, self.joint
        ev.streamed = StreamedLoads(ev.stage)
        low, high = y, b.dim(length)
        unroll = even_unroll(dims.ceildiv(length, slices * chunks), COLUMN_UNROLL)
        if chunks != 1:
            chunk = b.bind("chunk", ev.stage.block("y"))
            ev.ranges.add("chunk", chunks)
            rows = dims.ceildiv(length, slices)  # of a slice; `more` chunks have one more than the others
            least, more = dims.floordiv(rows, chunks), dims.mod(rows, chunks)
            begin, end = (slices * (c * least + dims.dim_min(c, more)) for c in (chunk, chunk + 1))
            low = b.binary("arith.addi", y, b.dim(begin))
            high = b.value("arith.minsi", (b.dim(end), b.dim(length)), b.index)
        inits = [ev.vector(v) for v in joint.inits(ev, self.row(ev.ranges, row))]
        for name in ("c", *rest_names("c", unroll)):
            ev.ranges.add(name, length)
            if "c" in ev.begins:
                ev.begins[name] = ev.begins["c"]
        if self.kernel.aligned and ev.stage.threads == COLUMN_THREADS and self.are_light(ev, row):
            ev.stage.registers = REGISTERS

        def step(c: Dim, carried: list[Any]) -> list[Any]:
            return joint.step(ev, self.loops(ev.ranges, row, c), carried)

        def load(places: Sequence[Dim]) -> None:
            for c in places:
                for argument, offset in self.ahead(ev, row, c):
                    ev.load(argument, offset)

        return Rounds(b, "c", low, high, slices, unroll).run_masked(inits, step, load)

    def are_light(self, ev: ThreadValues, row: Dim) -> bool:
        """True if registers are mostly for elements that are loaded ahead."""
        c = dims.symbol("c")
        few = sum(map(element_bytes, self.elements)) * ev.width <= ACCUMULATORS
        return few and bool(self.ahead(ev, row, c)) and self.probe(row, c, ev.ranges.copy()).functions == 0

    def ahead(self, ev: ThreadValues, row: Dim, c: Dim) -> list[tuple[ir.Value, Dim]]:
        """The input that element `c` of results `row` is of, to be loaded before others are used; nothing where there are more."""
        probe = self.probe(row, c, ev.ranges.copy())
        loads = list(dict.fromkeys(l for l in probe.loads if dims.symbols(c) & dims.symbols(l[1])))
        alone = len(loads) == 1 and loads[0][0] in ev.graph.inputs and not probe.branches
        return loads if alone else []

    def leave(
        self,
        ev: ThreadValues,
        parts: list[int],
        made: list[Any],
        row: Dim,
        conditions: list[ir.Value | None],
        chunks: int,
    ) -> None:
        """End the stage with the results `row`, or with those of a chunk, which another stage combines."""
        if chunks == 1:
            self.deliver(ev, parts, made, row, conditions)
            ev.stage.finish()
            return
        self.keep(ev, parts, made, dims.symbol("chunk") * self.count + row, conditions)
        ev.stage.finish()
        self.finish(chunks, parts)

    def finish(self, chunks: int, parts: list[int]) -> None:
        """The last stage: result[r] = combination of all chunks, by blocks of 32 results by slices of the chunks."""
        joint, finals = self.joint, self.finals()
        stage = self.kernel.stage(WARP * FINAL_SLICES, (dims.ceildiv(self.count, WARP), 1, 1))
        x, y = split_block(stage, WARP)
        r, inside = place_column(stage, x, WARP, self.count)
        ev = self.stored.evaluator(stage, Ranges({"r": self.count}), 1)
        inits, step = (
            joint.inits(ev, [0] * len(joint.first.extents)),
            self.adding(ev, parts, lambda k: k * self.count + r),
        )
        made = all_at_once(stage.b, "k", y, chunks, FINAL_SLICES, inits, step)
        made = across_slices(ev, stage, joint, made, x, y, (WARP, FINAL_SLICES))
        self.deliver(ev, finals, made, r, [inside, is_first(stage, y)])
        stage.finish()
