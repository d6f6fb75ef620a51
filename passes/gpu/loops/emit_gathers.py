"""Stages for results whose rows are gathered out of a row each, by numbers that all rows share: `x[:, i]`.

A block takes some whole rows, and a thread the same columns of all of them:

    number[u] = i[u * threads + thread]                                   once
    for row of the block
        y[row, u * threads + thread] = x[row, number[u]]                  u = 0 ... UNROLL - 1

So a row comes from memory once, wherever the numbers go, for what one warp leaves of a line another one finds in L1; each
load and store of a warp is of neighbouring results, whose numbers may be near each other. Vectors of flat memory instead
read a row of 16 KB four times, in four blocks, and the numbers of 8 bytes for each element of 4: 98.9 µs where a copy takes
65.6 (8192 x 4096 of f32, each fifth column, H200).
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ...loops.loop_nest import Space
from ..gpu_kernel import GpuKernel
from ..probe import Probe
from .stored import Stored

THREADS, UNROLL = 512, 8  # a block has a row of 4096 results
LEAST_ROW, LEAST_ROWS = 1024, 1024  # elements of a row, and rows, from which on it pays
ROWS = 8  # of a block, which share their numbers


def are_gathered_columns(kernel: GpuKernel, stored: Stored, results: Sequence[int], space: Space) -> bool:
    """True if results are gathered along their rows, by numbers that belong to columns."""
    *outer, last = space.loops
    count = dims.product(l.extent for l in outer)
    if not isinstance(count, int) or not isinstance(last.extent, int):
        return False
    if count < LEAST_ROWS or last.extent < LEAST_ROW:
        return False
    graph, ranges = kernel.graph, space.ranges()
    probe = Probe(graph, ranges, stored.values)
    for i in results:
        value = graph.results[i]
        probe.at(value, ranges.delinearize(space.values["f"], graph.shape(value)))
    rows, gathered = {l.name for l in outer}, False
    for argument, offset in probe.loads:
        names = dims.symbols(offset)
        if any(n.startswith("v") for n in names):
            if last.name in names or not rows & names:
                return False
            gathered = True
        elif rows & names and isinstance(ir.RankedTensorType(argument.type).element_type, ir.IntegerType):
            return False  # numbers of each row's own
    return gathered and not probe.reductions and not probe.branches


def emit_gathers(kernel: GpuKernel, stored: Stored, results: Sequence[int], space: Space) -> None:
    """Write the results with these numbers."""
    *outer, last = space.loops
    length, rows, graph = last.extent, dims.product(l.extent for l in outer), kernel.graph
    assert isinstance(length, int) and isinstance(rows, int)
    stage = kernel.stage(THREADS, (dims.ceildiv(length, THREADS * UNROLL), dims.ceildiv(rows, ROWS), 1))
    b, ranges = stage.b, Ranges({"r": rows})
    left = b.binary("arith.muli", stage.block(), b.constant(THREADS * UNROLL, b.index))
    left = b.binary("arith.addi", left, stage.thread())
    columns: list[tuple[Dim, ir.Value | None]] = []
    for u in range(UNROLL):
        at, mask = b.binary("arith.addi", left, b.constant(u * THREADS, b.index)), None
        if length % (THREADS * UNROLL):
            mask = b.compare("slt", at, length)
            at = b.value("arith.minsi", (at, b.dim(length - 1)), b.index)
        ranges.add(f"c{u}", length)
        columns.append((b.bind(f"c{u}", at), mask))
    top = b.binary("arith.muli", stage.block("y"), b.constant(ROWS, b.index))
    end = b.binary("arith.addi", top, b.constant(ROWS, b.index))
    ev = stored.evaluator(stage, ranges, 1)
    with b.loop("r", top, b.value("arith.minsi", (end, b.dim(rows)), b.index)) as r:
        places = dict(zip((l.name for l in outer), ranges.delinearize(r, [l.extent for l in outer])))
        made = []
        for column, mask in columns:
            flat = ranges.simplify(dims.substitute(space.values["f"], {**places, last.name: column}))
            values = [ev.at(v, ranges.delinearize(flat, graph.shape(v))) for v in (graph.results[i] for i in results)]
            made.append((flat, mask, values))
        for flat, mask, values in made:

            def store(flat: Dim = flat, values: list[ir.Value] = values) -> list[ir.Value]:
                for i, value in zip(results, values):
                    ev.store(stage.outputs[i], flat, value)
                return []

            if mask is None:
                store()
            else:
                b.branch(mask, [], store)
    stage.finish()
