"""Stages of `cumsum` and `cumprod` along another dim than the last: a block has neighbouring columns, and walks down them.

    round r:   segment s of a block has ROWS rows, each lane a column:     s_0 = x_0,  s_j = s_{j-1} op x_j
               segments, by shared memory:    before = what those before it have, all = what all have
               y_j = carry op before op s_j   carry = carry op all

So all loads of a round are under way together, and all elements are read and written once.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel
from ..thread_values import ThreadValues
from .scan import OPS, Scan
from .scan_rows import RowScan

ROWS = 8  # of a thread in a round
LANES = 32  # columns that threads read side by side: two sectors of 32 bytes, of the narrowest floats
THREADS, MOST_SEGMENTS = 256, 16
FEW = 1 << 15  # columns with fewer of which a block has as many segments as fit: they are all the threads there are


def scan_stage(root: ir.Operation, shape: Sequence[Dim]) -> type[RowScan | ColumnScan] | None:
    """The stage for `root` on an operand of `shape`; None for what is no scan, or of no elements or dims."""
    name = root.name.removeprefix("lamina.")
    if name not in OPS or not shape or 0 in shape:
        return None
    dim = ir.IntegerAttr(root.attributes["dim"]).value
    return RowScan if dims.product(shape[dim % len(shape) + 1 :]) == 1 else ColumnScan


class ColumnScan(Scan):
    """A scan along another dim than the last as stages."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        super().__init__(kernel, root)
        self.lanes, self.readers = self._shape()
        self.threads, self.blocks = self.lanes * self.readers, dims.ceildiv(self.lines, self.lanes)
        self.rounds = dims.ceildiv(self.length, self.readers * ROWS)

    def place(self) -> None:
        b = self.b
        thread = b.bind("thread", self.stage.thread())
        self.lane, self.reader = (b.bind(n, b.dim(f(thread, self.lanes))) for n, f in _PARTS.items())
        number = b.bind("number", b.dim(b.bind("block", self.stage.block()) * self.lanes + self.lane))
        self.exists = b.compare("slt", number, self.lines)
        # threads beyond the last column read it, too: all meet at barriers
        self.line = b.bind("column", b.dim(dims.dim_min(number, self.lines - 1)))
        self.room = self.stage.shared(self.acc, 2 * self.readers * self.lanes) if self.readers > 1 else None

    def walk(self, start: ir.Value, first: Dim, end: Dim) -> None:
        b = self.b

        def one(round: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            row, whole, values = self._read_round(round)
            sums = self.running(values)  # what is beyond the last row is in no sum that is stored
            earlier, total = self._exchange(sums[-1], dims.mod(round, 2))
            before = self.both(carried[0], earlier)
            made = [self.both(before, s) for s in sums]
            b.branch(self.exists, [], lambda: self._write(row, whole, made))
            return [self.both(carried[0], total)]

        b.loop_carried("round", first, end, [start], one)

    def own(self, first: Dim, end: Dim, unroll: int) -> ir.Value:
        # rows beyond the last one are in totals that no chunk with a row sees
        some = lambda round, carried: [self.both(carried[0], self.running(self._read_round(round)[2])[-1])]
        return self.b.loop_carried("round", first, end, [self.neutral], some)[0]

    def everything(self, mine: ir.Value, turn: Dim) -> ir.Value:
        return self._exchange(mine, turn)[1]

    def _shape(self) -> tuple[int, int]:
        """The columns of a block and the segments of each: powers of two."""
        lanes = _power(self.lines, LANES)
        few = isinstance(self.lines, int) and self.lines < FEW
        segments = _power(dims.ceildiv(self.length, ROWS), MOST_SEGMENTS if few else THREADS // LANES)
        return max(lanes, min(_power(self.lines, THREADS), THREADS // segments)), segments

    # -- memory ----------------------------------------------------------------------------------------------------
    def _read_round(self, round: Dim) -> tuple[Dim, ir.Value, list[ir.Value]]:
        """The first of this thread's rows in a round, whether there are all of them, and their elements."""
        b = self.b
        first = b.bind_unique("first", b.dim((round * self.readers + self.reader) * ROWS))
        whole = b.compare("slt", first + (ROWS - 1), self.length)
        ends = [dims.dim_min(first + j, self.length - 1) for j in range(ROWS)]
        read = lambda rows: lambda: self._read(rows)
        return first, whole, b.branch(whole, [self.acc] * ROWS, read([first + j for j in range(ROWS)]), read(ends))

    def _read(self, rows: Sequence[Dim]) -> list[ir.Value]:
        b, ranges = self.b, Ranges({"column": self.lines})
        ev = ThreadValues(self.stage, ranges, 1)
        values = []
        for row in rows:
            at = b.bind_unique("row", b.dim(row))
            ranges.add(str(at), self.length)
            values.append(self.widened(ev.at(self.x, ranges.delinearize(self._flat(ranges, at), self.shape))))
        return values

    def _write(self, first: Dim, whole: ir.Value, values: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums of rows `first` …, as far as there are such."""
        b, ranges = self.b, Ranges({"column": self.lines})
        places = [(first + j, self.rounded(v)) for j, v in enumerate(values)]

        def store(row: Dim, value: ir.Value) -> list[ir.Value]:
            for buffer in self.stage.outputs:  # the one result
                b.op("memref.store", (value, buffer, b.dim(self._flat(ranges, row))))
            return []

        def all_rows() -> list[ir.Value]:
            for row, value in places:
                store(row, value)
            return []

        def some() -> list[ir.Value]:
            for row, value in places:
                inside = b.compare("slt", row, self.length)
                b.branch(inside, [], lambda row=row, value=value: store(row, value))
            return []

        b.branch(whole, [], all_rows, some)
        return []

    def _flat(self, ranges: Ranges, row: Dim) -> Dim:
        """The place of this thread's column in `row`, among all elements."""
        before, after = (f(self.line, self.columns) for f in (ranges.floordiv, ranges.mod))
        return (before * self.length + row) * self.columns + after

    # -- segments --------------------------------------------------------------------------------------------------
    def _exchange(self, total: ir.Value, turn: Dim) -> tuple[ir.Value, ir.Value]:
        """What the segments before this one have, and what all have, through one half of shared memory in turn: one barrier a round."""
        b, room = self.b, self.room
        if room is None:
            return self.neutral, total
        slot = lambda segment: b.dim((turn * self.readers + segment) * self.lanes + self.lane)
        b.op("memref.store", (total, room, slot(self.reader)))
        self.stage.barrier()
        parts = [b.value("memref.load", (room, slot(s)), self.acc) for s in range(self.readers)]
        return self.from_parts(parts, b.dim(self.reader))


_PARTS = {"lane": dims.mod, "segment": dims.floordiv}  # of a thread's number


def _power(count: Dim, most: int) -> int:
    """The least power of two that is not below `count`, or `most`, a power of two."""
    return min(most, 1 << (count - 1).bit_length()) if isinstance(count, int) else most
