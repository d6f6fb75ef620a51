"""Stages that leave one reduction's results in scratch memory, for whatever reads them next.

Along rows (what is reduced is contiguous), a row is cut into chunks, each done by a block, if there are few rows:

    partial[row, chunk] = reduction of the chunk      then      result[row] = combination of partial[row, :]

Along columns (the results are contiguous), a block is 32 lanes of neighbouring results by 8 slices of what is reduced:

    partial[chunk, column] = combination over the slices of the reduction of rows slice, slice + 8, ... of the chunk

All orders are fixed, so results do not change from run to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..loops.index_algebra import Ranges
from ..loops.tensor_graph import Generic
from .block_reduce import reduce_block
from .emit_rows import place, threads_for
from .gpu_kernel import WARP, GpuKernel, GpuStage
from .probe import Probe, choose_width
from .row_values import Row, combined
from .stored import Stored, from_scratch, scratch_type, to_scratch
from .thread_values import LANE, ThreadValues

SLICES = 8
WAVES = 1056  # blocks that keep 132 multiprocessors busy: eight for each
LEAST_CHUNK = 2048  # elements of a row that are worth a block
SINGLE = 8192  # elements of a row that one block takes rather than starting another stage


def emit_reduction(kernel: GpuKernel, stored: Stored, generic: Generic) -> None:
    """Append the stages that compute `generic` and add its results to `stored`."""
    shape = [generic.extents[t[1]] if t[0] == "d" else 1 for t in generic.maps[len(generic.inputs)]]
    count, length = dims.product(shape), dims.product(generic.extents[d] for d in generic.reductions)
    types = [scratch_type(ir.RankedTensorType(v.type).element_type) for v in generic.op.results]
    results = list(generic.op.results)
    if _along_columns(kernel, stored, generic, shape, length):
        chunks = _column_chunks(count, length)
        buffers = [kernel.new_scratch(t, count * chunks) for t in types]
        _columns(kernel, stored, generic, shape, length, chunks, buffers)
        layout = "columns"
    else:
        chunks = _row_chunks(count, length)
        buffers = [kernel.new_scratch(t, count * chunks) for t in types]
        _rows(kernel, stored, generic, shape, length, chunks, buffers)
        layout = "rows"
    if chunks != 1:
        finals = [kernel.new_scratch(t, count) for t in types]
        _finish(kernel, stored, generic, count, chunks, layout, buffers, finals)
        buffers = finals
    for value, buffer in zip(results, buffers):
        stored.add(value, buffer)


def _probe(
    kernel: GpuKernel, stored: Stored, g: Generic, shape: list[Dim], row: Dim, column: Dim, ranges: Ranges
) -> Probe:
    probe = Probe(kernel.graph, ranges, stored.values)
    probe.body(g, _loops(g, ranges, shape, row, column), [None] * len(g.outs))
    return probe


def _loops(g: Generic, ranges: Ranges, shape: list[Dim], row: Dim, column: Dim) -> list[Dim]:
    """The loop positions of element `column` of what result `row` (flat) reduces."""
    loops: list[Dim] = [0] * len(g.extents)
    for t, i in zip(g.maps[len(g.inputs)], ranges.delinearize(row, shape)):
        if t[0] == "d":
            loops[t[1]] = i
    for d, i in zip(g.reductions, ranges.delinearize(column, [g.extents[d] for d in g.reductions])):
        loops[d] = i
    return loops


def _along_columns(kernel: GpuKernel, stored: Stored, g: Generic, shape: list[Dim], length: Dim) -> bool:
    """True if more of what is read is contiguous along the results than along what is reduced."""
    count = dims.product(shape)
    if isinstance(count, int) and count < 16:
        return False
    scores = []
    for along in ("r", "c"):
        ranges = Ranges({"r": count, "c": length})
        probe = _probe(kernel, stored, g, shape, dims.symbol("r"), dims.symbol("c"), ranges)
        last = dims.symbol(along)
        fine = [_contiguous(o, str(last)) for _, o in probe.loads if str(last) in dims.symbols(o)]  # type: ignore[arg-type]
        scores.append(sum(fine))
    return scores[0] > scores[1]


def _contiguous(offset: Dim, name: str) -> bool:
    """True if `offset` grows by 1 with `name`, nearly everywhere."""
    step = dims.linear_coefficient(offset, name)
    if step is not None:
        return step == 1
    # mod(name, k) with factor 1 is contiguous in runs of k
    assert isinstance(offset, dims.Expr)
    return any(
        c == 1 and len(m) == 1 and not isinstance(m[0][0], str) and m[0][0][0] == "mod" and str(m[0][0][1]) == name
        for m, c in offset.terms.items()
    )


def _row_chunks(count: Dim, length: Dim) -> Dim:
    if isinstance(length, int) and length <= SINGLE:
        return 1
    if isinstance(count, int) and isinstance(length, int):
        return max(1, min(WAVES // max(count, 1), length // LEAST_CHUNK))
    if isinstance(length, int):
        return 1 if length < 16 * SINGLE else min(64, length // LEAST_CHUNK)
    return 64 if isinstance(count, int) and count <= 64 else 1


def _column_chunks(count: Dim, length: Dim) -> Dim:
    blocks = -(-count // (WARP * 4)) if isinstance(count, int) else 64
    most = length // (SLICES * 8) if isinstance(length, int) else 16
    return max(1, min(WAVES // max(blocks, 1), most, 64))


def _rows(
    kernel: GpuKernel, stored: Stored, g: Generic, shape: list[Dim], length: Dim, chunks: Dim, buffers: list[int]
) -> None:
    """partial[row * chunks + chunk], each by one row of threads."""
    count = dims.product(shape)

    def probe(width: int) -> Probe:
        ranges = Ranges({"r": count, "w": dims.floordiv(length, width), LANE: width})
        column = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
        return _probe(kernel, stored, g, shape, dims.symbol("r"), column, ranges)

    width = choose_width(kernel.graph, stored.values, [], probe, lambda w: isinstance(length, int) and length % w == 0)
    vectors = length // width if isinstance(length, int) else length
    threads, unroll = threads_for(length, width)
    if chunks != 1:
        threads, unroll = 256, 0
    per_block = max(1, 128 // threads)
    total = count * chunks
    stage = kernel.stage(threads * per_block, (dims.ceildiv(total, per_block), 1, 1))
    b = stage.b
    item, lane, inside = place(stage, threads, per_block, total)
    low = high = None
    ranges = Ranges({"r": total})
    position = item
    if chunks != 1:
        position = dims.floordiv(item, chunks)
        size = dims.ceildiv(vectors, chunks)
        chunk = ranges.simplify(dims.mod(item, chunks))
        low = b.dim(chunk * size)
        high = b.value("arith.minsi", (b.dim(chunk * size + size), b.dim(vectors)), b.index)
    row = Row(stage, threads, lane, vectors, unroll, low, high)
    ev = stored.evaluator(stage, ranges, width)
    index = ev.ranges.delinearize(ev.ranges.simplify(position), shape)
    made = row.reduce(ev, g, index)
    _store(ev, stage, buffers, made, item, lane, inside)
    stage.finish()


def _store(
    ev: ThreadValues,
    stage: GpuStage,
    buffers: list[int],
    values: list[Any],
    offset: Dim,
    lane: ir.Value | None,
    inside: ir.Value | None,
) -> None:
    """Write accumulators to scratch: by the first thread (`lane` 0) where it is inside."""
    b = stage.b
    conditions = [inside] if inside is not None else []
    if lane is not None:
        conditions.append(b.value("arith.cmpi", (lane, b.constant(0, b.index)), b.i1, predicate=b.number(0, b.i64)))

    def store() -> list[ir.Value]:
        for buffer, value in zip(buffers, values):
            ev.store(stage.scratch[buffer], offset, to_scratch(ev, value, stage.scratch[buffer]))
        return []

    if not conditions:
        store()
        return
    condition = conditions[0] if len(conditions) == 1 else b.value("arith.andi", conditions, b.i1)
    b.branch(condition, [], store)


def _columns(
    kernel: GpuKernel, stored: Stored, g: Generic, shape: list[Dim], length: Dim, chunks: Dim, buffers: list[int]
) -> None:
    """partial[chunk * count + column], each by SLICES threads."""
    count = dims.product(shape)

    def probe(width: int) -> Probe:
        ranges = Ranges({"w": dims.floordiv(count, width), LANE: width, "c": length})
        row = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
        return _probe(kernel, stored, g, shape, row, dims.symbol("c"), ranges)

    fits: Callable[[int], bool] = lambda w: isinstance(count, int) and count % w == 0 and count >= w * WARP  # noqa: E731
    width = choose_width(kernel.graph, stored.values, [], probe, fits)
    vectors = count // width if isinstance(count, int) else count
    stage = kernel.stage(WARP * SLICES, (dims.ceildiv(vectors, WARP), chunks, 1))
    b = stage.b
    warp = b.constant(WARP, b.index)
    x = b.binary("arith.remui", stage.thread(), warp)
    y = b.binary("arith.divui", stage.thread(), warp)
    at = b.binary("arith.addi", b.binary("arith.muli", stage.block(), warp), x)
    end = b.dim(vectors)
    inside = None
    if not (isinstance(vectors, int) and vectors % WARP == 0):
        inside = b.value("arith.cmpi", (at, end), b.i1, predicate=b.number(6, b.i64))
        at = b.value("arith.minsi", (at, b.binary("arith.subi", end, b.constant(1, b.index))), b.index)
    w = b.bind("w", at)
    ev = stored.evaluator(stage, Ranges({"w": vectors}), width)
    low, high = y, b.dim(length)
    chunk: Dim = 0
    if chunks != 1:
        size = dims.ceildiv(length, chunks)
        chunk = b.bind("chunk", stage.block("y"))
        ev.ranges.add("chunk", chunks)
        low = b.binary("arith.addi", y, b.dim(chunk * size))
        high = b.value("arith.minsi", (b.dim(chunk * size + size), b.dim(length)), b.index)
    row = ev.flat(w)
    inits = [ev.vector(ev.at(out, ev.ranges.delinearize(row, shape))) for out in g.outs]

    def step(c: Dim, carried: list[Any]) -> list[Any]:
        ev.ranges.add("c", length)
        return ev.body(g, _loops(g, ev.ranges, shape, row, c), carried)

    made = b.loop_carried("c", low, high, inits, step, SLICES)
    made = _across_slices(ev, stage, g, made, x, y)
    first = b.value("arith.cmpi", (y, b.constant(0, b.index)), b.i1, predicate=b.number(0, b.i64))
    inside = first if inside is None else b.value("arith.andi", (first, inside), b.i1)
    _store(ev, stage, buffers, made, chunk * count + row, None, inside)
    stage.finish()


def _across_slices(
    ev: ThreadValues, stage: GpuStage, g: Generic, values: list[Any], x: ir.Value, y: ir.Value
) -> list[Any]:
    """Combine the accumulators of threads with the same `x`: through shared memory, slice 0 gets the results."""
    b, width = stage.b, ev.width
    elements = [ir.VectorType(v.type).element_type if isinstance(v.type, ir.VectorType) else v.type for v in values]
    rooms = [stage.shared(scratch_type(t), WARP * SLICES * width) for t in elements]
    place = b.binary("arith.addi", b.binary("arith.muli", y, b.constant(WARP, b.index)), x)
    place = b.binary("arith.muli", place, b.constant(width, b.index))

    def write(room: ir.Value, value: ir.Value) -> None:
        value = to_scratch(ev, value, room)
        if isinstance(value.type, ir.VectorType):
            b.op("vector.store", (value, room, place))
        else:
            b.op("memref.store", (value, room, place))

    for room, value in zip(rooms, values):
        write(room, value)
    stage.barrier()
    made = list(values)
    for s in range(1, SLICES):
        offset = b.binary(
            "arith.addi", b.binary("arith.muli", x, b.constant(width, b.index)), b.constant(s * WARP * width, b.index)
        )
        other = []
        for room, value, element in zip(rooms, values, elements):
            stored = ir.MemRefType(room.type).element_type
            if isinstance(value.type, ir.VectorType):
                loaded = b.value("vector.load", (room, offset), ir.VectorType.get([width], stored))
            else:
                loaded = b.value("memref.load", (room, offset), stored)
            other.append(from_scratch(ev, loaded, element))
        made = combined(ev, g, made, other)
    return made


def _finish(
    kernel: GpuKernel,
    stored: Stored,
    g: Generic,
    count: Dim,
    chunks: Dim,
    layout: str,
    partial: list[int],
    finals: list[int],
) -> None:
    """result[i] = combination of the partial results of all chunks."""
    threads = WARP if layout == "rows" else 1
    per_block = 128 // threads
    stage = kernel.stage(128, (dims.ceildiv(count, per_block), 1, 1))
    b = stage.b
    r, lane, inside = place(stage, threads, per_block, count)
    ev = stored.evaluator(stage, Ranges({"r": count}), 1)
    elements = [ir.RankedTensorType(v.type).element_type for v in g.op.results]

    def load(k: Dim) -> list[Any]:
        offset = r * chunks + k if layout == "rows" else k * count + r
        return [from_scratch(ev, ev.load_at(stage.scratch[n], offset), t) for n, t in zip(partial, elements)]

    # every thread has a first chunk or repeats chunk 0, whose combination is then dropped
    inits = [ev.at(out, [0] * len(ir.RankedTensorType(out.type).shape)) for out in g.outs]
    made = b.loop_carried(
        "k",
        lane if threads > 1 else 0,
        chunks if not isinstance(chunks, ir.Value) else chunks,
        inits,
        lambda k, acc: combined(ev, g, acc, load(k)),
        threads,
    )
    made = reduce_block(stage, made, threads, lambda x, y: combined(ev, g, x, y))
    _store(ev, stage, finals, made, r, lane if threads > 1 else None, inside)
    stage.finish()
