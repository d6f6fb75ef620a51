"""What stages of `cumsum` and `cumprod` share, along rows (`scan_rows`) or columns (`scan_columns`), whole or in chunks.

Sums are those of the CPU's form (f64 for f32, f32 for halves), in an order that is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import GpuKernel, GpuStage
from .scan_chunks import Chunks, cut_scan

OPS = {"cumsum": ("add", 0), "cumprod": ("mul", 1)}  # and the value that changes nothing


class Scan:
    """The scan `root` in `kernel`, along a dim with `rows` positions before it, `length` of its own, and `columns` after it."""

    stage: GpuStage
    threads: int  # of a block
    blocks: Dim  # that have all lines: rows, or columns
    rounds: Dim  # of a block along the dim
    readers: int  # threads that share a line,
    reader: Dim  # the number of this one among them,
    line: Dim  # the line
    exists: ir.Value | None = None  # and whether there is one

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.graph = kernel, kernel.graph
        self.x = root.operands[0]
        self.shape = self.graph.shape(self.x)
        dim = ir.IntegerAttr(root.attributes["dim"]).value % len(self.shape)
        before, after = self.shape[:dim], self.shape[dim + 1 :]
        self.rows, self.length, self.columns = dims.product(before), self.shape[dim], dims.product(after)
        self.lines = self.rows * self.columns
        self.element = ir.RankedTensorType(self.x.type).element_type
        wider = {"f32": ir.F64Type.get(), "f16": ir.F32Type.get(), "bf16": ir.F32Type.get()}
        self.acc: ir.Type = wider.get(str(self.element), self.element)
        name, self._neutral = OPS[root.name.removeprefix("lamina.")]
        self._op = f"arith.{name}{'i' if isinstance(self.acc, ir.IntegerType) else 'f'}"

    # -- what rows and columns do in their own way -------------------------------------------------------------------
    def place(self) -> None:
        """Say where this thread of the stage that was begun is."""
        raise NotImplementedError

    def walk(self, start: ir.Value, first: Dim, end: Dim) -> None:
        """Write the results of rounds `first` to `end`, what is before which has `start`."""
        raise NotImplementedError

    def own(self, first: Dim, end: Dim, unroll: int) -> ir.Value:
        """What this thread has of rounds `first` to `end`, a multiple of `unroll`."""
        raise NotImplementedError

    def everything(self, mine: ir.Value, turn: Dim) -> ir.Value:
        """What all readers of a line have, in all of them; `turn`: through this half of shared memory."""
        raise NotImplementedError

    # -- the stages ------------------------------------------------------------------------------------------------
    def emit(self) -> None:
        """Write the stages."""
        chunks = cut_scan(self.blocks, self.threads, self.rounds) if self._is_cut() else Chunks(0, 1, self.rounds, 1)
        if chunks.when != 1:
            self._open((self.blocks * (1 - chunks.when), 1, 1))
            self.walk(self.neutral, 0, self.rounds)
            self.stage.finish()
        if chunks.when != 0:
            self._emit_chunks(chunks)

    def _is_cut(self) -> bool:
        """True for what chunks keep: the product of floats of one may be infinite where a zero is before them."""
        return self._op != "arith.mulf"

    def _emit_chunks(self, chunks: Chunks) -> None:
        several = self.kernel.new_scratch(self.acc, (chunks.count - 1) * self.lines)
        for count, is_last in ((chunks.count - 1, False), (chunks.count, True)):
            self._open((self.blocks * chunks.when, count, 1))
            totals, chunk = self.stage.scratch[several], self.b.bind("chunk", self.stage.block("y"))
            first, end = (
                self.b.bind(n, self.b.dim(chunks.begin(c, self.rounds)))
                for n, c in (("first", chunk), ("end", chunk + 1))
            )
            if is_last:
                self.walk(self._earlier(totals, chunk, first), first, end)
            else:
                self._store_total(totals, chunk, self.everything(self.own(first, end, chunks.unroll), 0))
            self.stage.finish()

    def _store_total(self, totals: ir.Value, chunk: Dim, total: ir.Value) -> None:
        """Write the total of a chunk."""
        b = self.b

        def store() -> list[ir.Value]:
            b.op("memref.store", (total, totals, b.dim(chunk * self.lines + self.line)))
            return []

        b.under([self.exists, b.compare("eq", self.reader, 0)], store)

    def _earlier(self, totals: ir.Value, chunk: Dim, first: Dim) -> ir.Value:
        """What the chunks before `chunk`, whose first round is `first`, have."""
        b = self.b

        def one(step: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            c = b.bind_unique("c", b.dim(step * self.readers + self.reader))
            load = lambda: [b.value("memref.load", (totals, b.dim(c * self.lines + self.line)), self.acc)]
            inside = b.compare("slt", c, chunk)
            return [self.both(carried[0], b.branch(inside, [self.acc], load, lambda: [self.neutral])[0])]

        mine = b.loop_carried("step", 0, dims.ceildiv(chunk, self.readers), [self.neutral], one)[0]
        return self.everything(mine, dims.mod(first + 1, 2))  # in the half that the first round does not use

    def _open(self, grid: Sequence[Dim]) -> None:
        self.stage = self.kernel.stage(self.threads, grid)
        self.b = self.stage.b
        self.neutral = self.b.constant(self._neutral, self.acc)
        self.place()

    # -- values ----------------------------------------------------------------------------------------------------
    def both(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Two parts of a sum (or product), `x` before `y`."""
        return self.b.value(self._op, (x, y), self.acc)

    def running(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums up to each of a thread's values."""
        sums = [values[0]]
        for value in values[1:]:
            sums.append(self.both(sums[-1], value))
        return sums

    def widened(self, value: ir.Value) -> ir.Value:
        """An element as it is summed."""
        return value if value.type == self.acc else self.b.value("arith.extf", (value,), self.acc)

    def rounded(self, value: ir.Value) -> ir.Value:
        """A sum as it is stored."""
        return value if value.type == self.element else self.b.value("arith.truncf", (value,), self.element)

    def from_parts(self, parts: Sequence[ir.Value], mine: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What the parts before number `mine` have, and what all have."""
        b, earlier, everything = self.b, self.neutral, self.neutral
        for number, value in enumerate(parts):
            is_earlier = b.compare("slt", number, mine)
            earlier = b.select(is_earlier, self.both(earlier, value), earlier)
            everything = self.both(everything, value)
        return earlier, everything
