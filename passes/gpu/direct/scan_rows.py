"""Stages of `cumsum` and `cumprod` along the last dim: a block walks along a row, its threads a round of it at once.

    round r:   each thread V neighbours:      s_0 = x_0,  s_j = s_{j-1} op x_j
               lanes, waves:                  before = what threads before it have, all = what all have
               y_j = carry op before op s_j   carry = carry op all

Lanes combine what they have in `block_scan`.
"""

from __future__ import annotations

from functools import reduce

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..block_reduce import reduce_block
from ..block_scan import scan_lanes
from ..gpu_kernel import WARP, GpuKernel
from ..lane_places import LANE
from ..probe import Probe, choose_width
from ..thread_values import ThreadValues
from .scan import Scan

MOST_THREADS = 256


class RowScan(Scan):
    """A scan along the last dim as stages."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        super().__init__(kernel, root)
        self.width = self._width()
        self.threads, self.blocks = self._threads(), self.rows
        self.readers = self.threads
        self.rounds = dims.ceildiv(self.length, self.threads * self.width)

    def _width(self) -> int:
        """Neighbouring elements that a thread takes."""
        length = self.length

        def probe(width: int) -> Probe:
            ranges = Ranges({"row": self.rows, "w": dims.floordiv(length, width), LANE: width})
            at = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            accesses = Probe(self.graph, ranges, set())
            accesses.at(self.x, ranges.delinearize(dims.symbol("row") * length + at, self.shape))
            return accesses

        return choose_width([self.x], probe, lambda width: isinstance(length, int) and length % width == 0)

    def _threads(self) -> int:
        threads = WARP
        while threads < MOST_THREADS and not (isinstance(self.length, int) and threads * self.width >= self.length):
            threads *= 2
        return threads

    def place(self) -> None:
        self.line = self.b.bind("row", self.stage.block())
        self.reader = self.b.bind("thread", self.stage.thread())

    def walk(self, start: ir.Value, first: Dim, end: Dim) -> None:
        b, waves = self.b, self.threads // WARP
        self.lane, self.wave = (b.dim(f(self.reader, WARP)) for f in (dims.mod, dims.floordiv))
        self.room = self.stage.shared(self.acc, 2 * waves) if waves > 1 else None

        def one(number: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            w, inside, read = self._read(number)
            sums = self.running(read)
            before, total = scan_lanes(b, self.lane, WARP, sums[-1], self.neutral, self.both)
            if self.room is not None:
                before, total = self._waves(before, total, dims.mod(number, 2))
            before = self.both(carried[0], before)
            b.branch(inside, [], lambda: self._write(w, [self.both(before, s) for s in sums]))
            return [self.both(carried[0], total)]

        b.loop_carried("round", first, end, [start], one)

    def own(self, first: Dim, end: Dim, unroll: int) -> ir.Value:
        def some(group: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            read = [self._read(first + group * unroll + u)[2] for u in range(unroll)]
            return [reduce(self.both, (v for values in read for v in values), carried[0])]

        return self.b.loop_carried("group", 0, dims.ceildiv(end - first, unroll), [self.neutral], some)[0]

    def everything(self, mine: ir.Value, turn: Dim) -> ir.Value:
        return reduce_block(self.stage, [mine], self.threads, lambda x, y: [self.both(x[0], y[0])])[0]

    # -- memory ----------------------------------------------------------------------------------------------------
    def _evaluator(self, w: Dim) -> tuple[ThreadValues, Dim]:
        """An evaluator, and the position of this thread's elements among all."""
        ranges = Ranges({"row": self.rows, str(w): dims.floordiv(self.length, self.width)})
        ev = ThreadValues(self.stage, ranges, self.width)
        return ev, dims.symbol("row") * self.length + ev.flat(w)

    def _read(self, number: Dim) -> tuple[Dim, ir.Value, list[ir.Value]]:
        """The number of this thread's elements in a round, whether there are such, and their values."""
        w = self.b.bind_unique("w", self.b.dim(number * self.threads + self.reader))
        inside = self.b.compare("slt", w, dims.floordiv(self.length, self.width))
        none = lambda: [self.neutral] * self.width
        return w, inside, self.b.branch(inside, [self.acc] * self.width, lambda: self._elements(w), none)

    def _elements(self, w: Dim) -> list[ir.Value]:
        ev, flat = self._evaluator(w)
        value = ev.at(self.x, ev.ranges.delinearize(flat, self.shape))
        if self.width == 1:
            return [self.widened(value)]
        vector = ev.vector(value)
        return [self.widened(self.b.extract(vector, k)) for k in range(self.width)]

    def _write(self, w: Dim, values: list[ir.Value]) -> list[ir.Value]:
        ev, flat = self._evaluator(w)
        values = [self.rounded(v) for v in values]
        type = ir.VectorType.get([self.width], self.element)
        made = values[0] if self.width == 1 else self.b.value("vector.from_elements", values, type)
        for buffer in self.stage.outputs:  # the one result
            ev.store(buffer, flat, made)
        return []

    # -- threads ---------------------------------------------------------------------------------------------------
    def _waves(self, before: ir.Value, total: ir.Value, turn: Dim) -> tuple[ir.Value, ir.Value]:
        """The same over all waves, through one half of shared memory in turn: one barrier a round."""
        b, waves = self.b, self.threads // WARP
        first = b.compare("eq", self.lane, 0)
        slot = b.binary("arith.addi", b.dim(turn * waves), self.wave)

        def store() -> list[ir.Value]:
            b.op("memref.store", (total, self.room, slot))
            return []

        b.branch(first, [], store)
        self.stage.barrier()
        slots = (b.dim(turn * waves + number) for number in range(waves))
        parts = [b.value("memref.load", (self.room, at), self.acc) for at in slots]
        earlier, everything = self.from_parts(parts, self.wave)
        return self.both(earlier, before), everything
