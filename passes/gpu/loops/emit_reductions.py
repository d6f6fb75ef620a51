"""Stages of reductions whose results are not rows of what the kernel writes: sums over columns, over everything.

Along rows (what is reduced is contiguous), a row is cut into chunks, each done by a block, if there are few rows:

    partial[row, chunk] = reduction of the chunk      then      result[row] = combination of partial[row, :]

A row that the threads of a cluster of blocks can hold is one stage where the machine has clusters (hopper/cluster.py).
Along columns (the results are contiguous) they are those of emit_columns.py.

All orders are fixed, so results do not change from run to run. The last stage writes the kernel's results where they
are functions of the reduction's result at the same place, else it leaves the reduction in scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..block_reduce import reduce_block
from ..gpu_kernel import WARP, GpuKernel
from ..hopper.cluster import BLOCKS, Cluster
from ..lane_places import LANE
from ..probe import Probe, choose_width
from ..streamed_loads import StreamedLoads
from .emit_columns import ColumnStages
from .joint_reductions import Joint
from .reduction_stages import ReductionStages, is_first
from .rounds import Rounds, all_at_once, even_unroll, rest_names
from .row_plan import cluster_threads, place, rows_per_block, threads_for
from .row_values import Row
from .stored import Stored

ROW_THREADS = 256  # of a block that takes a chunk of a row
# blocks where there are few rows, four for each of 132 multiprocessors, with rounds of up to eight vectors a thread: 32768 x 1024
# of bf16 17.7 us on an H200, 2048 blocks with rounds of four 18.1. More rows have more waves of blocks
ROW_BLOCKS, ROW_UNROLL = 528, 8
FUNCTIONS_UNROLL = 4  # where elements are functions: eight vectors of sines are 168 registers, four are 80
FEW_ROWS, ROW_WAVES = 66, 4  # so many rows have eight blocks each; more might leave some of one wave idle
LEAST_CHUNK = 2048  # elements of a row that are worth a block
FINAL_THREADS = 256  # at most, of the stage that combines chunks
LEAST_ROWS = 32  # that begin anywhere, of which a block's slices take columns together rather than a thread its own
SINGLE = 8192  # elements of a row that one block takes rather than starting another stage


def emit_reductions(kernel: GpuKernel, stored: Stored, joint: Joint, results: Sequence[int] = ()) -> None:
    """Append the stages that compute `joint`, and with it the results with these numbers, or add it to `stored`.

    `results` must have the shape of the reductions' results up to reshapes, and need them at their own place only.
    """
    _stages(kernel, stored, joint, list(results)).emit()


def fits(kernel: GpuKernel, stored: Stored, joint: Joint) -> bool:
    """True if `joint` is read the same way, and in vectors as wide, as its reductions by themselves."""
    whole, *alone = (_stages(kernel, stored, j, []) for j in (joint, *(Joint((g,)) for g in joint.generics)))
    if any(type(stages) is not type(whole) for stages in alone):
        return False
    return whole.width() == max(stages.width() for stages in alone)


def begin_anywhere(kernel: GpuKernel, stored: Stored, joint: Joint) -> bool:
    """True if `joint` is along columns of rows that begin anywhere, of which slices have several."""
    stages = _stages(kernel, stored, joint, [])
    several = isinstance(stages.length, int) and stages.length >= LEAST_ROWS
    return several and isinstance(stages, ColumnStages) and stages.form()[1] != 0


def _stages(kernel: GpuKernel, stored: Stored, joint: Joint, results: list[int]) -> RowStages | ColumnStages:
    columns = ColumnStages(kernel, stored, joint, results)
    return columns if _along_columns(columns) else RowStages(kernel, stored, joint, results)


def _along_columns(stages: ReductionStages) -> bool:
    """True if more of what is read is contiguous along the results than along what is reduced."""
    if isinstance(stages.count, int) and stages.count < 16:
        return False
    row, column = dims.symbol("r"), dims.symbol("c")
    probe = stages.probe(row, column, Ranges({"r": stages.count, "c": stages.length}))
    offsets = [o for _, o in probe.loads]
    large = [o for o in offsets if {"r", "c"} <= dims.symbols(o)] or offsets  # others are a row or a column of it
    scores = [sum(_contiguous(o, name) for o in large) for name in ("r", "c")]
    return scores[0] > scores[1]


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


def _row_chunks(count: Dim, length: Dim) -> int:
    if isinstance(length, int) and length <= SINGLE:
        return 1
    if isinstance(count, int) and isinstance(length, int):
        blocks = ROW_BLOCKS if count <= FEW_ROWS else ROW_BLOCKS * ROW_WAVES
        return max(1, min(blocks // max(count, 1), length // LEAST_CHUNK))
    if isinstance(length, int):
        return 1 if length < 16 * SINGLE else min(64, length // LEAST_CHUNK)
    return 64 if isinstance(count, int) and count <= 64 else 1


class RowStages(ReductionStages):
    """The stages of reductions along rows."""

    def width(self) -> int:
        """The elements of a row that a thread reads at once."""
        length = self.length
        return choose_width([], self.probe_rows, lambda w: isinstance(length, int) and length % w == 0)

    def probe_rows(self, width: int) -> Probe:
        """What a thread reads for one vector."""
        ranges = Ranges({"r": self.count, "w": dims.floordiv(self.length, width), LANE: width})
        column = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
        return self.probe(dims.symbol("r"), column, ranges)

    def emit(self) -> None:
        """Each row by a cluster, by one row of threads, or by some blocks."""
        length, count, wave, width = self.length, self.count, self.kernel.wave, self.width()
        if self.kernel.clusters and (form := cluster_threads(count, length, width)):
            self.by_clusters(width, *form)
            return
        vectors, chunks = length // width if isinstance(length, int) else length, _row_chunks(count, length)
        if chunks != 1:
            self.chunked(width, vectors, chunks)
            return
        threads, unroll = threads_for(length, width, wave, count)
        per_block, finals = rows_per_block(threads, wave), self.finals()
        stage = self.kernel.stage(threads * per_block, (dims.ceildiv(count, per_block), 1, 1))
        r, lane, inside = place(stage, threads, per_block, count)
        row = Row(stage, threads, lane, vectors, unroll)
        ev = self.stored.evaluator(stage, Ranges({"r": count}), width)
        ev.streamed = StreamedLoads(stage)
        made = row.reduce(ev, self.joint, self.row(ev.ranges, r))
        self.deliver(ev, finals, made, r, [inside, is_first(stage, lane)])
        stage.finish()

    def by_clusters(self, width: int, threads: int, unroll: int) -> None:
        """Each row by a cluster of blocks, whose threads hold `unroll` vectors each."""
        joint, finals, blocks = self.joint, self.finals(), self.count * BLOCKS
        stage = self.kernel.stage(threads, (blocks, 1, 1))
        cluster = Cluster(stage)
        item, ranges = stage.b.bind("r", stage.block()), Ranges({"r": blocks})
        ev = self.stored.evaluator(stage, ranges, width)
        ev.streamed = StreamedLoads(stage)
        position = ranges.simplify(dims.floordiv(item, BLOCKS))
        row = Row(stage, threads * BLOCKS, cluster.thread, self.length // width, unroll)
        made = row.own(ev, joint, self.row(ev.ranges, position))
        first = is_first(stage, cluster.thread)
        cluster.reduce(
            made, lambda x, y: joint.combined(ev, x, y), lambda all: self.deliver(ev, finals, all, position, [first])
        )
        stage.finish()

    def chunked(self, width: int, vectors: Dim, chunks: int) -> None:
        """Each row, of so many vectors, in rounds of neighbouring ones, of which each of `chunks` blocks takes every `chunks`-th."""
        joint, most = self.joint, ROW_UNROLL if self.probe_rows(width).functions == 0 else FUNCTIONS_UNROLL
        unroll = even_unroll(dims.ceildiv(vectors, chunks * ROW_THREADS), most)
        round = ROW_THREADS * unroll
        if isinstance(vectors, int):
            chunks = min(chunks, -(-vectors // round))
        parts, total = self.scratch(chunks), self.count * chunks
        stage = self.kernel.stage(ROW_THREADS, (total, 1, 1))
        b, lane, item = stage.b, stage.thread(), stage.b.bind("r", stage.block())
        ev = self.stored.evaluator(stage, Ranges({"r": total}), width)
        ev.streamed = StreamedLoads(stage)
        row, chunk = (ev.ranges.simplify(d) for d in (dims.floordiv(item, chunks), dims.mod(item, chunks)))
        for name in ("w", *rest_names("w", unroll)):
            ev.ranges.add(name, vectors)

        def step(w: Dim, carried: list[Any]) -> list[Any]:
            return joint.step(ev, self.loops(ev.ranges, row, ev.flat(w)), carried)

        first = b.binary("arith.addi", b.dim(round * chunk), lane)
        inits = [ev.vector(v) for v in joint.inits(ev, self.row(ev.ranges, row))]
        rounds = Rounds(b, "w", first, b.dim(vectors), ROW_THREADS, unroll, stride=chunks * round)
        made = rounds.run_masked(inits, step)
        made = joint.across_lanes(ev, made)
        made = reduce_block(stage, made, ROW_THREADS, lambda x, y: joint.combined(ev, x, y))
        self.keep(ev, parts, made, item, [is_first(stage, lane)])
        stage.finish()
        self.finish(chunks, parts)

    def finish(self, chunks: int, parts: list[int]) -> None:
        """The last stage: result[r] = combination of the partial results of all chunks, by neighbouring threads."""
        joint, wave, threads = self.joint, self.kernel.wave, WARP
        finals = self.finals()
        while 4 * threads < chunks and threads < FINAL_THREADS:
            threads *= 2
        per_block = rows_per_block(threads, wave)
        stage = self.kernel.stage(threads * per_block, (dims.ceildiv(self.count, per_block), 1, 1))
        r, lane, inside = place(stage, threads, per_block, self.count)
        ev = self.stored.evaluator(stage, Ranges({"r": self.count}), 1)
        inits, step = joint.inits(ev, [0] * len(joint.first.extents)), self.adding(ev, parts, lambda k: r * chunks + k)
        made = all_at_once(stage.b, "k", lane, chunks, threads, inits, step)
        made = reduce_block(stage, made, threads, lambda x, y: joint.combined(ev, x, y))
        self.deliver(ev, finals, made, r, [inside, is_first(stage, lane)])
        stage.finish()
