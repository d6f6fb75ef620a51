"""Stages of reductions whose results are not rows of what the kernel writes: sums over columns, over everything.

Along rows (what is reduced is contiguous), a row is cut into chunks, each done by a block, if there are few rows:

    partial[row, chunk] = reduction of the chunk      then      result[row] = combination of partial[row, :]

Along columns (the results are contiguous), a block is `lanes` of neighbouring results by `slices` of what is reduced:

    partial[chunk, column] = combination over the slices of the reduction of rows slice, slice + slices, ... of the chunk

All orders are fixed, so results do not change from run to run. The last stage writes the kernel's results where they
are functions of the reduction's result at the same place, else it leaves the reduction in scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..block_reduce import reduce_block
from ..gpu_kernel import WARP, GpuKernel, GpuStage, element_bytes
from ..lane_places import LANE
from ..probe import Probe, choose_width
from ..streamed_loads import StreamedLoads
from ..thread_values import ThreadValues
from .column_block import OverlappingColumns, across_slices, place_column, split_block
from .emit_rows import place, rows_per_block, threads_for
from .joint_reductions import Joint
from .row_values import UNROLL, Row, strided
from .stored import Stored, from_scratch, scratch_type, to_scratch

COLUMN_THREADS = 256  # of a block: lanes by slices
SLICES = 8  # at most
ENOUGH_THREADS = 1 << 18  # with so many lanes there are fewer slices
SCALAR_BLOCK = 128, 4  # lanes and slices where lanes have one f32: rows that begin anywhere are read in long runs
COLUMN_UNROLL = 8  # rows of a slice that are read at once
# blocks that keep 132 multiprocessors busy: four for each, sixteen where lanes have one element and read little
COLUMN_BLOCKS, SCALAR_BLOCKS = 528, 2112
FINAL_SLICES, FINAL_THREADS = 16, 256  # of the stage that combines chunks, along columns and along rows
ROW_THREADS = 256  # of a block that takes a chunk of a row
WAVES = 2112  # blocks along rows: sixteen for each of 132 multiprocessors
# results of a row that is no whole number of vectors and is taken in such, of so many
LEAST_OVERLAPPING, OVERLAPPING = 256, 8
LEAST_CHUNK = 2048  # elements of a row that are worth a block
SINGLE = 8192  # elements of a row that one block takes rather than starting another stage


def emit_reductions(kernel: GpuKernel, stored: Stored, joint: Joint, results: Sequence[int] = ()) -> None:
    """Append the stages that compute `joint`, and with it the results with these numbers, or add it to `stored`.

    `results` must have the shape of the reductions' results up to reshapes, and need them at their own place only.
    """
    stages = _Stages(kernel, stored, joint, list(results))
    if stages.along_columns():
        stages.columns()
    else:
        stages.rows(_row_chunks(stages.count, stages.length))


def fits(kernel: GpuKernel, stored: Stored, joint: Joint) -> bool:
    """True if `joint` is read the same way, and in vectors as wide, as its reductions by themselves."""
    whole, *alone = (_Stages(kernel, stored, j, []) for j in (joint, *(Joint((g,)) for g in joint.generics)))
    columns = whole.along_columns()
    if any(stages.along_columns() != columns for stages in alone):
        return False
    width = lambda stages: stages.column_width()[0] if columns else stages.row_width()
    return width(whole) == max(map(width, alone))


def _row_chunks(count: Dim, length: Dim) -> int:
    if isinstance(length, int) and length <= SINGLE:
        return 1
    if isinstance(count, int) and isinstance(length, int):
        return max(1, min(WAVES // max(count, 1), length // LEAST_CHUNK))
    if isinstance(length, int):
        return 1 if length < 16 * SINGLE else min(64, length // LEAST_CHUNK)
    return 64 if isinstance(count, int) and count <= 64 else 1


def _row_vectors(vectors: Dim, chunks: int) -> Dim:
    """Vectors of a chunk of a row: whole rounds of what the threads have under way, but in the last chunk."""
    size, whole = dims.ceildiv(vectors, chunks), ROW_THREADS * UNROLL
    return dims.ceildiv(size, whole) * whole if isinstance(size, int) and size >= whole else size


def _column_block(vectors: Dim, width: int, size: int) -> tuple[int, int]:
    """Lanes and slices of a block that reads `vectors` columns of `width` elements of `size` bytes."""
    slices = SLICES
    while isinstance(vectors, int) and slices > 1 and vectors * slices > ENOUGH_THREADS:
        slices //= 2
    if width == 1 and size >= 4 and slices == SLICES and isinstance(vectors, int) and vectors >= 8 * SCALAR_BLOCK[0]:
        return SCALAR_BLOCK
    return COLUMN_THREADS // slices, slices


def _column_chunks(vectors: Dim, width: int, lanes: int, run: int, length: Dim) -> int:
    blocks = -(-vectors // lanes) if isinstance(vectors, int) else 64
    most = length // run if isinstance(length, int) else 16
    chunks = max(1, min((SCALAR_BLOCKS if width == 1 else COLUMN_BLOCKS) // max(blocks, 1), most, 128))
    size = _column_rows(length, chunks, run)
    return -(-length // size) if isinstance(length, int) and isinstance(size, int) else chunks


def _column_rows(length: Dim, chunks: int, run: int) -> Dim:
    """Rows of a chunk: whole runs of what all slices read at once, but in the last chunk."""
    return dims.ceildiv(dims.ceildiv(length, chunks), run) * run


@dataclass
class _Stages:
    """Reductions in one pass: `count` results of `shape` each, of `length` elements."""

    kernel: GpuKernel
    stored: Stored
    joint: Joint
    results: list[int]

    def __post_init__(self) -> None:
        g = self.joint.first
        self.shape: list[Dim] = [g.extents[t[1]] if t[0] == "d" else 1 for t in g.maps[len(g.inputs)]]
        self.length = dims.product(g.extents[d] for d in g.reductions)
        self.count = dims.product(self.shape)
        self.elements = [ir.RankedTensorType(v.type).element_type for v in self.joint.results]

    def row(self, ranges: Ranges, row: Dim) -> list[Dim]:
        """The loop positions of result `row` (flat); those that are reduced are 0."""
        g = self.joint.first
        loops: list[Dim] = [0] * len(g.extents)
        for t, i in zip(g.maps[len(g.inputs)], ranges.delinearize(row, self.shape)):
            if t[0] == "d":
                loops[t[1]] = i
        return loops

    def loops(self, ranges: Ranges, row: Dim, column: Dim) -> list[Dim]:
        """The loop positions of element `column` of what result `row` reduces."""
        g, loops = self.joint.first, self.row(ranges, row)
        for d, i in zip(g.reductions, ranges.delinearize(column, [g.extents[d] for d in g.reductions])):
            loops[d] = i
        return loops

    def probe(self, row: Dim, column: Dim, ranges: Ranges) -> Probe:
        """What one element of one result reads."""
        probe = Probe(self.kernel.graph, ranges, self.stored.values)
        for g in self.joint.generics:
            probe.body(g, self.loops(ranges, row, column), [None] * len(g.outs))
        return probe

    def along_columns(self) -> bool:
        """True if more of what is read is contiguous along the results than along what is reduced."""
        if isinstance(self.count, int) and self.count < 16:
            return False
        row, column = dims.symbol("r"), dims.symbol("c")
        probe = self.probe(row, column, Ranges({"r": self.count, "c": self.length}))
        offsets = [o for _, o in probe.loads]
        large = [o for o in offsets if {"r", "c"} <= dims.symbols(o)] or offsets  # others are a row or a column of it
        scores = [sum(_contiguous(o, name) for o in large) for name in ("r", "c")]
        return scores[0] > scores[1]

    def scratch(self, chunks: int) -> list[int]:
        """New buffers for the accumulators of `chunks` parts of each result."""
        return [self.kernel.new_scratch(scratch_type(t), self.count * chunks) for t in self.elements]

    # -- along rows ------------------------------------------------------------------------------------------------
    def row_width(self) -> int:
        """The elements of a row that a thread reads at once."""
        length = self.length

        def probe(width: int) -> Probe:
            ranges = Ranges({"r": self.count, "w": dims.floordiv(length, width), LANE: width})
            column = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            return self.probe(dims.symbol("r"), column, ranges)

        return choose_width([], probe, lambda w: isinstance(length, int) and length % w == 0)

    def rows(self, chunks: int) -> None:
        """Each chunk of each row by one row of threads."""
        length, width = self.length, self.row_width()
        vectors = length // width if isinstance(length, int) else length
        size = _row_vectors(vectors, chunks)
        if isinstance(vectors, int) and isinstance(size, int):
            chunks = -(-vectors // size)
        total = self.count * chunks
        threads, unroll = threads_for(length, width, self.kernel.wave, total) if chunks == 1 else (ROW_THREADS, 0)
        per_block = rows_per_block(threads, self.kernel.wave)
        partial = self.scratch(chunks) if chunks != 1 else self.finals()
        stage = self.kernel.stage(threads * per_block, (dims.ceildiv(total, per_block), 1, 1))
        b = stage.b
        item, lane, inside = place(stage, threads, per_block, total)
        low = high = None
        ranges = Ranges({"r": total})
        position = item
        if chunks != 1:
            position = dims.floordiv(item, chunks)
            chunk = ranges.simplify(dims.mod(item, chunks))
            low = b.dim(chunk * size)
            high = b.value("arith.minsi", (b.dim(chunk * size + size), b.dim(vectors)), b.index)
        row = Row(stage, threads, lane, vectors, unroll, low, high)
        ev = self.stored.evaluator(stage, ranges, width)
        ev.streamed = StreamedLoads(stage)
        made = row.reduce(ev, self.joint, self.row(ev.ranges, ev.ranges.simplify(position)))
        conditions = [inside, _is_first(stage, lane)]
        if chunks != 1:
            self.keep(ev, partial, made, item, conditions)
            stage.finish()
            self.finish(chunks, partial, columns=False)
            return
        self.deliver(ev, partial, made, item, conditions)
        stage.finish()

    # -- along columns ---------------------------------------------------------------------------------------------
    def column_width(self) -> tuple[int, bool]:
        """The results of a thread, and whether they are vectors of which the last in a row overlaps the one before."""
        count, row = self.count, self.shape[-1] if self.shape else 1

        def fits(width: int) -> bool:
            return isinstance(count, int) and count % width == 0 and count >= width * WARP

        width = choose_width([], self.probe_columns, fits)
        if not isinstance(count, int) or not isinstance(row, int) or row < LEAST_OVERLAPPING or len(self.elements) > 1:
            return width, False
        wider = choose_width([], partial(self.probe_columns, overlapping=True), lambda _: True)
        return (wider, True) if wider >= OVERLAPPING * width else (width, False)

    def column_vectors(self, width: int, overlapping: bool) -> Dim:
        """The vectors of all results."""
        if not overlapping:
            return self.count // width if isinstance(self.count, int) else self.count
        return self.count // self.shape[-1] * dims.ceildiv(self.shape[-1], width)

    def probe_columns(self, width: int, overlapping: bool = False) -> Probe:
        """What neighbouring results read for one element."""
        ranges = Ranges({LANE: width, "c": self.length})
        lane = dims.symbol(LANE) if width > 1 else 0
        if overlapping:
            row, n = ranges.add("row", self.count // self.shape[-1]), self.shape[-1]
            results = row * n + ranges.add("column", n - (width - 1)) + lane
        else:
            results = width * ranges.add("w", dims.floordiv(self.count, width)) + lane
        return self.probe(results, dims.symbol("c"), ranges)

    def columns(self) -> None:
        """Each chunk of neighbouring results by lanes x slices threads."""
        count, length, joint = self.count, self.length, self.joint
        width, overlapping = self.column_width()
        vectors = self.column_vectors(width, overlapping)
        probed = self.probe_columns(width, overlapping)
        read = [element_bytes(ir.RankedTensorType(a.type).element_type) for a, _ in probed.loads]
        lanes, slices = block = _column_block(vectors, width, max(read, default=4))
        unroll = COLUMN_UNROLL // 2 if overlapping else COLUMN_UNROLL
        chunks = _column_chunks(vectors, width, lanes, slices * unroll, length)
        parts = self.scratch(chunks) if chunks != 1 else self.finals()
        stage = self.kernel.stage(lanes * slices, (dims.ceildiv(vectors, lanes), chunks, 1))
        b = stage.b
        x, y = split_block(stage, lanes)
        w, inside = place_column(stage, x, lanes, vectors, "w")
        ev = self.stored.evaluator(stage, probed.ranges, width, OverlappingColumns if overlapping else ThreadValues)
        row = ev.place(w, self.shape[-1]) if isinstance(ev, OverlappingColumns) else ev.flat(w)
        ev.streamed = StreamedLoads(stage)
        low, high = y, b.dim(length)
        chunk: Dim = 0
        if chunks != 1:
            size = _column_rows(length, chunks, slices * unroll)
            chunk = b.bind("chunk", stage.block("y"))
            ev.ranges.add("chunk", chunks)
            low = b.binary("arith.addi", y, b.dim(chunk * size))
            high = b.value("arith.minsi", (b.dim(chunk * size + size), b.dim(length)), b.index)
        inits = [ev.vector(v) for v in joint.inits(ev, self.row(ev.ranges, row))]
        for name in ("c", "crest"):
            ev.ranges.add(name, length)

        def step(c: Dim, carried: list[Any]) -> list[Any]:
            return joint.step(ev, self.loops(ev.ranges, row, c), carried)

        made = strided(b, "c", low, high, slices, inits, step, unroll)
        made = across_slices(ev, stage, joint, made, x, y, block)
        conditions = [inside, _is_first(stage, y)]
        if chunks != 1:
            self.keep(ev, parts, made, chunk * count + row, conditions)
            stage.finish()
            self.finish(chunks, parts, columns=True)
            return
        self.deliver(ev, parts, made, row, conditions)
        stage.finish()

    # -- the last stage --------------------------------------------------------------------------------------------
    def finish(self, chunks: int, partial: list[int], columns: bool) -> None:
        """result[r] = combination of the partial results of all chunks, by neighbouring threads.

        Where they lie along columns, a block is 32 results by slices of the chunks.
        """
        joint, wave = self.joint, self.kernel.wave
        finals = self.finals()
        threads = FINAL_SLICES if columns else WARP
        while not columns and 4 * threads < chunks and threads < FINAL_THREADS:
            threads *= 2
        per_block = WARP if columns else rows_per_block(threads, wave)
        stage = self.kernel.stage(threads * per_block, (dims.ceildiv(self.count, per_block), 1, 1))
        b = stage.b
        if columns:
            x, lane = split_block(stage, WARP)
            r, inside = place_column(stage, x, WARP, self.count)
        else:
            r, lane, inside = place(stage, threads, per_block, self.count)
        ev = self.stored.evaluator(stage, Ranges({"r": self.count}), 1)

        def load(k: Dim) -> list[Any]:
            offset = k * self.count + r if columns else r * chunks + k
            return [from_scratch(ev, ev.load_at(stage.scratch[n], offset), t) for n, t in zip(partial, self.elements)]

        def step(k: Dim, carried: list[Any]) -> list[Any]:
            return joint.combined(ev, carried, load(k))

        inits = joint.inits(ev, [0] * len(joint.first.extents))
        made = strided(b, "k", lane, b.dim(chunks), threads, inits, step, COLUMN_UNROLL)
        if columns:
            made = across_slices(ev, stage, joint, made, x, lane, (WARP, FINAL_SLICES))
        else:
            made = reduce_block(stage, made, threads, lambda x, y: joint.combined(ev, x, y))
        self.deliver(ev, finals, made, r, [inside, _is_first(stage, lane)])
        stage.finish()

    def finals(self) -> list[int]:
        """Scratch for the reduction's results, where nothing else is made of them at once."""
        return [] if self.results else self.scratch(1)

    def deliver(
        self, ev: ThreadValues, finals: list[int], made: list[Any], flat: Dim, conditions: list[ir.Value | None]
    ) -> None:
        """Write what is made of the reduction's results `made` at `flat`, or the results themselves to scratch."""
        if not self.results:
            self.keep(ev, finals, made, flat, conditions)
            for value, buffer in zip(self.joint.results, finals):
                self.stored.add(value, buffer)
            return
        graph, stage = self.kernel.graph, ev.stage
        for g in self.joint.generics:
            ev.together[g.arguments[-1]] = lambda generic, index: self.joint.of(generic, made)
        flat = ev.ranges.simplify(flat)
        values = [graph.results[i] for i in self.results]
        written = [ev.at(v, ev.ranges.delinearize(flat, graph.shape(v))) for v in values]

        def store() -> list[ir.Value]:
            for i, value in zip(self.results, written):
                ev.store(stage.outputs[i], flat, value)
            return []

        _under(stage, conditions, store)

    def keep(
        self, ev: ThreadValues, buffers: list[int], values: list[Any], offset: Dim, conditions: list[ir.Value | None]
    ) -> None:
        """Write accumulators to scratch."""
        stage = ev.stage

        def store() -> list[ir.Value]:
            for buffer, value in zip(buffers, values):
                ev.store(stage.scratch[buffer], offset, to_scratch(ev, value, stage.scratch[buffer]))
            return []

        _under(stage, conditions, store)


def _is_first(stage: GpuStage, lane: ir.Value) -> ir.Value:
    b = stage.b
    return b.value("arith.cmpi", (lane, b.constant(0, b.index)), b.i1, predicate=b.number(0, b.i64))


def _under(stage: GpuStage, conditions: Sequence[ir.Value | None], do: Any) -> None:
    """`do()` where all conditions that there are hold."""
    b = stage.b
    given = [c for c in conditions if c is not None]
    if not given:
        do()
        return
    condition = given[0]
    for c in given[1:]:
        condition = b.value("arith.andi", (condition, c), b.i1)
    b.branch(condition, [], do)


def _contiguous(offset: Dim, name: str) -> bool:
    """True if `offset` grows by 1 with `name`, nearly everywhere."""
    if isinstance(offset, int) or name not in dims.symbols(offset):
        return False
    step = dims.linear_coefficient(offset, name)
    if step is not None:
        return step == 1
    # mod(name, k) with factor 1 is contiguous in runs of k
    return any(
        c == 1 and len(m) == 1 and not isinstance(m[0][0], str) and m[0][0][0] == "mod" and str(m[0][0][1]) == name
        for m, c in offset.terms.items()
    )
