"""Sums over columns of rows that begin anywhere (4097 columns), in whole vectors that need no shifts.

Row `c` begins `n * c mod V` elements after a whole vector, and row `c + V` as many: of every V-th row all are aligned alike.
A block has V slices, each of which takes such rows in whole vectors that begin `shift` elements before the columns:

    slice 0    |--------|--------|-- ...     columns  0 ... 7, 8 ... 15, ...    of rows 0, 8, 16, ...    shift 0
    slice 1   |--------|--------|-- ...      columns -1 ... 6, 7 ... 14, ...    of rows 1, 9, 17, ...    shift 1

So accumulators of a lane are of other columns in each slice; they meet where slices are combined, in shared memory, for
element `shift + j` of each slice is column `j` there. Of V * lanes elements V * (lanes - 1) are columns that all slices have:
the next block begins with the last vector. What a vector has before or after its row is another row's, and nobody takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.loops_builder import LoopsBuilder
from ..gpu_kernel import element_bytes
from ..lane_places import LANE, divisible
from ..memory_types import from_memory, memory_type, to_memory
from ..probe import Probe
from ..thread_values import ThreadValues
from .joint_reductions import Joint


def known_of(base: Dim, width: int) -> dict[str, Dim]:
    """What is known of symbols `column` and `c` (of what is reduced) in a slice whose rows begin at `base`, V = `width`."""
    return {"column": width * dims.symbol("number") - base, "c": dims.symbol("slice") + width * dims.symbol("round")}


def find_base(probe: Probe, width: int) -> Dim | None:
    """Where slices begin, over symbols `row` and `slice`: by this all that lanes read is in whole vectors; None if it is not."""
    if probe.checks:  # of what belongs to other rows
        return None
    lane, base = dims.symbol(LANE), None
    for _, offset in probe.loads:
        step, names = dims.linear_coefficient(offset, LANE), dims.symbols(offset)
        if step == 0 or step == 1 and "c" not in names:  # SliceValues reads what belongs to a column
            continue
        along = dims.linear_coefficient(offset, "c")
        if step != 1 or not {"column", "c"} <= names <= {"column", "c", "row", LANE}:
            return None
        if not isinstance(along, int) or along < width:  # vectors of all rows but the last are in the buffer
            return None
        if base is None:
            base = dims.substitute(offset, {LANE: 0, "column": 0, "c": dims.symbol("slice")})
        if not divisible(dims.substitute(offset - lane, known_of(base, width)), width):
            return None
    return base


def end_whole(probe: Probe, width: int) -> bool:
    """True if the buffers of such operands end with a whole vector, so that the last row can be read in vectors, too."""
    counts = [dims.product(probe.graph.shape(a)) for a, o in probe.loads if {"c", LANE} <= dims.symbols(o)]
    return all(isinstance(n, int) and n % width == 0 for n in counts)


class SliceValues(ThreadValues):
    """The evaluator of a slice: vectors of symbol `column`, which may begin before their row and end behind it.

    What belongs to columns alone (the mean of each, where squares are summed) is read lane by lane, inside the row.
    """

    columns: list[Dim]  # those of the lanes, or the row's first or last

    def load_at(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        element = ir.MemRefType(buffer.type).element_type
        if self._step(offset) != 1 or self._alignment(offset, element).value == self.width * element_bytes(element):
            return super().load_at(buffer, offset)
        places = [dims.substitute(offset, {"column": at, LANE: 0}) for at in self.columns]
        lanes = [super(SliceValues, self).load_at(buffer, place) for place in places]
        return self.b.value("vector.from_elements", lanes, ir.VectorType.get([self.width], element))


@dataclass
class AlignedSlices:
    """Blocks of `width` slices by `threads // width` lanes, of results in `rows` rows of `length`; slices begin at `base`."""

    width: int
    threads: int
    length: int
    rows: int
    base: Dim

    @property
    def lanes(self) -> int:
        return self.threads // self.width

    @property
    def advance(self) -> int:
        """The columns of a block."""
        return self.width * (self.lanes - 1)

    @property
    def blocks(self) -> int:
        """Blocks for all results."""
        return self.rows * self.across

    @property
    def across(self) -> int:
        """Blocks for a row of results."""
        return -(-self.length // self.advance)

    def place(self, ev: SliceValues, x: ir.Value, y: ir.Value) -> Dim:
        """The results that lane `x` of slice `y` accumulates, for symbols of their row and their column.

        The column is -V + 1 at least and `length` - 1 at most: each vector has a column of its row.
        """
        b, width = ev.b, self.width
        block = b.bind("block", ev.stage.block())
        row = self._row(b, block)
        b.bind("slice", y)
        shift = dims.mod(self.base, width)
        first = b.dim(self.advance * (block - row * self.across) + width * b.bind("x", x))
        last = b.dim(width * dims.floordiv(self.length - 1 + shift, width))
        column = b.binary("arith.subi", b.value("arith.minsi", (first, last), b.index), b.dim(shift))
        ev.begins.update(known_of(self.base, width))
        ev.columns = [self._inside(ev, column, k) for k in range(width)]
        return row * self.length + b.bind("column", column) + dims.symbol(LANE)

    def _inside(self, ev: SliceValues, column: ir.Value, k: int) -> Dim:
        """The column of lane `k`, or the row's first or last one, as a symbol."""
        b = ev.b
        at = b.binary("arith.addi", column, b.constant(k, b.index))
        at = b.value("arith.maxsi", (at, b.constant(0, b.index)), b.index)
        at = b.value("arith.minsi", (at, b.constant(self.length - 1, b.index)), b.index)
        ev.ranges.add(f"column{k}", self.length)
        return b.bind(f"column{k}", at)

    def _row(self, b: LoopsBuilder, block: Dim) -> Dim:
        """The row of results of a block."""
        return b.bind("row", b.dim(dims.floordiv(block, self.across))) if self.rows != 1 else 0

    def combine(
        self, ev: ThreadValues, single: ThreadValues, joint: Joint, values: list[Any]
    ) -> tuple[list[Any], Dim, ir.Value]:
        """Combine accumulators of all slices, each thread those of one result: they, the result's place, and if it is there.

        `single` evaluates one element.
        """
        stage, b, room = ev.stage, ev.b, self.threads * self.width
        elements = [ir.VectorType(v.type).element_type for v in values]
        rooms = [stage.shared(memory_type(t), room) for t in elements]
        place = b.dim((dims.symbol("slice") * self.lanes + dims.symbol("x")) * self.width)
        for shared, value in zip(rooms, values):
            b.op("vector.store", (to_memory(b, value), shared, place))
        stage.barrier()
        thread, most = stage.thread(), b.constant(self.advance - 1, b.index)
        own = b.bind("own", b.value("arith.minsi", (thread, most), b.index))
        made: list[Any] = []
        for y in range(self.width):
            shift = dims.mod(dims.substitute(self.base, {"slice": y}), self.width)
            at = b.dim(own + y * self.lanes * self.width + shift)
            loads = [b.value("memref.load", (r, at), ir.MemRefType(r.type).element_type) for r in rooms]
            other = [from_memory(b, x, t) for x, t in zip(loads, elements)]
            made = joint.combined(single, made, other) if made else other
        block = dims.symbol("block")
        row = self._row(b, block)
        column = b.dim(self.advance * (block - row * self.across) + own)
        end = b.constant(self.length, b.index)
        inside = b.compare("slt", column, end)
        mine = b.compare("sle", thread, most)
        last = b.constant(self.length - 1, b.index)
        column = b.bind("result", b.value("arith.minsi", (column, last), b.index))
        single.ranges.add("row", self.rows)
        single.ranges.add("result", self.length)
        return made, row * self.length + column, b.value("arith.andi", (inside, mine), b.i1)
