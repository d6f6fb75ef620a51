"""Sums of rows whose keys are in order (`added_rows`): chunks of them, then what lies in several chunks.

A row that a chunk begins with and the one before has, too, is a part of this chunk, the first of two; a row that begins in it and
goes on in the next is the second. A row that fills a chunk between two others is a first part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import element_bytes
from ..thread_values import ThreadValues

if TYPE_CHECKING:
    from .added_rows import AddedRows

CHUNK = 32
MOST_THREADS = 128
WANTED, MOST_BLOCKS = 1024, 32  # threads of a multiprocessor at once, where their registers are enough, and blocks
UNROLL = 8  # rows, or parts, that are under way together


class SortedSums:
    """Stages in which a block has a chunk, and a thread `width` neighbouring columns."""

    def __init__(self, rows: AddedRows, width: int):
        self.added, self.kernel, self.width = rows, rows.kernel, width
        self.chunks, self.vectors = -(-rows.count // CHUNK), rows.columns // width
        element = ir.RankedTensorType(rows.x.type).element_type
        self.wide = wide = ir.F32Type.get() if isinstance(element, (ir.F16Type, ir.BF16Type)) else element
        self.add = "arith.addf" if isinstance(wide, (ir.F32Type, ir.F64Type)) else "arith.addi"
        self.parts = self.kernel.new_scratch(wide, 2 * self.chunks * rows.columns)
        self.element, self.acc = (e if width == 1 else ir.VectorType.get([width], e) for e in (element, wide))

    def emit_sums(self) -> None:
        """Write the stage that sums chunks."""
        self._begin()
        # rows under way, and their sums, are half of the registers
        if isinstance(self.wide, ir.F32Type) and self.width <= 4:
            self.stage.blocks_per_sm = min(MOST_BLOCKS, WANTED // self.stage.threads)
        self._finish(partial(self._sum, self._share_words()))

    def emit_joins(self) -> None:
        """Write the stage that sums the parts of rows."""
        self._begin()
        self._finish(self._join)

    def _begin(self) -> None:
        threads = min(MOST_THREADS, 1 << (self.vectors - 1).bit_length())
        stage = self.stage = self.kernel.stage(threads, (self.chunks, dims.ceildiv(self.vectors, threads), 1))
        b = self.b = stage.b
        self.chunk = b.bind("chunk", stage.block())
        self.thread = b.bind("thread", stage.thread())
        self.vector = b.bind("w", b.dim(b.bind("tile", stage.block("y")) * threads + self.thread))
        self.ev = ThreadValues(stage, Ranges({"w": self.vectors}), self.width)
        self.flat = self.ev.flat(self.vector)
        self.rest = tuple(self.ev.ranges.delinearize(self.flat, self.added.shape[1:]))

    def _finish(self, body: Callable[[], list[ir.Value]]) -> None:
        self.b.branch(self.b.compare("slt", self.vector, self.vectors), [], body)
        self.stage.finish()

    def _share_words(self) -> ir.Value:
        """The words of the chunk in shared memory: what a round of rows waits for is one read of memory, not two."""
        b, word, threads = self.b, self.added.word, self.stage.threads
        room, each = self.stage.shared(word, CHUNK), max(1, CHUNK // threads)
        first, type = self.thread * each, ir.VectorType.get([each], word)
        alignment = {"alignment": b.number(min(16, each * element_bytes(word)), b.i64)}

        def copy() -> list[ir.Value]:
            order, at = self.stage.scratch[self.added.order], b.dim(self.chunk * CHUNK + first)
            words = b.op("vector.load", (order, at), [type], alignment).result
            b.op("vector.store", (words, room, b.dim(first)), attributes=alignment)
            return []

        b.under([b.compare("slt", self.thread, CHUNK) if threads > CHUNK else None], copy)
        self.stage.barrier()
        return room

    # -- the stages ------------------------------------------------------------------------------------------------
    def _sum(self, words: ir.Value) -> list[ir.Value]:
        b = self.b
        before, after = self._neighbours()

        def some(round: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            total, row = carried
            keys = [self._key_of(word) for word in self._words(words, round * UNROLL)]
            values = [self._update(t) for _, t in keys]
            ended: list[tuple[ir.Value, ir.Value, ir.Value]] = []
            for (new, _), value in zip(keys, values):
                ends = b.compare("ne", new, row)
                ended.append((ends, row, total))
                total = b.select(ends, value, self._plus(total, value))
                row = b.dim(new)

            def flush() -> list[ir.Value]:
                for ends, row, total in ended:
                    b.branch(ends, [], lambda row=row, total=total: self._flush(row, total, before, after))
                return []

            # one branch after all sums: LLVM would move each row's load below a branch that is between it and its use
            b.branch(reduce(lambda x, y: b.value("arith.ori", (x, y), b.i1), (e for e, _, _ in ended)), [], flush)
            return [total, row]

        first = b.dim(self._key_of(b.value("memref.load", (words, b.dim(0)), self.added.word))[0])
        total, row = b.loop_carried("round", 0, CHUNK // UNROLL, [self._zero(), first], some)
        return self._flush(row, total, before, after)

    def _flush(self, row: ir.Value, total: ir.Value, before: ir.Value, after: ir.Value) -> list[ir.Value]:
        """The end of a row in this chunk: its sum, or a part of it."""
        b = self.b
        number = b.bind_unique("row", row)
        from_before, goes_on = b.compare("eq", row, before), b.compare("eq", row, after)

        def part() -> list[ir.Value]:
            slot = b.select(from_before, 0, 1)
            self.ev.store(self._parts(), self._place(self.chunk, b.bind_unique("slot", slot)), total)
            return []

        def known() -> list[ir.Value]:
            is_part = b.value("arith.ori", (from_before, goes_on), b.i1)
            return b.branch(is_part, [], part, lambda: self._write(number, total))

        return b.branch(b.compare("slt", number, self.added.rows), [], known)

    def _join(self) -> list[ir.Value]:
        b = self.b
        before, after = self._neighbours()
        number, _ = self._key(self.chunk * CHUNK + (CHUNK - 1))
        row = b.dim(number)
        begins, goes_on = b.compare("ne", row, before), b.compare("eq", row, after)
        both = b.value("arith.andi", (begins, goes_on), b.i1)
        both = b.value("arith.andi", (both, b.compare("slt", number, self.added.rows)), b.i1)
        return b.branch(both, [], lambda: self._write(number, self._joined(row)))

    def _joined(self, row: ir.Value) -> ir.Value:
        """The sum of all parts of `row`, which begins in this chunk."""
        b = self.b
        inits = [self._part(self.chunk, 1), b.dim(self.chunk + 1), b.constant(1, b.i1)]
        types = [v.type for v in inits]
        op = b.op("scf.while", inits, types, regions=2)
        check, step = (r.blocks.append(*types, arg_locs=[b.location] * 3) for r in op.regions)
        with b.scope(op, check):
            b.op("scf.condition", [check.arguments[2], *check.arguments])
        with b.scope(op, step):
            total, chunk, here = step.arguments[0], b.bind_unique("next", step.arguments[1]), step.arguments[2]
            for u in range(UNROLL):
                at = b.bind_unique("at", b.dim(dims.dim_min(chunk + u, self.chunks - 1)))
                here = b.compare("eq", self._key(at * CHUNK)[0], row)
                here = b.value("arith.andi", (here, b.compare("slt", chunk + u, self.chunks)), b.i1)
                part = b.select(here, self._part(at, 0), self._zero())
                total = self._plus(total, part)
            b.op("scf.yield", [total, b.dim(chunk + UNROLL), here])
        return op.results[0]

    # -- keys ------------------------------------------------------------------------------------------------------
    def _words(self, words: ir.Value, position: Dim) -> list[ir.Value]:
        """UNROLL words of the chunk."""
        b, type = self.b, ir.VectorType.get([UNROLL], self.added.word)
        loaded = b.value("vector.load", (words, b.dim(position)), type, alignment=b.number(16, b.i64))
        return b.elements(loaded)

    def _key(self, position: Dim) -> tuple[Dim, Dim]:
        """The row and the update at a position in order."""
        order = self.stage.scratch[self.added.order]
        return self._key_of(self.b.value("memref.load", (order, self.b.dim(position)), self.added.word))

    def _key_of(self, word: ir.Value) -> tuple[Dim, Dim]:
        """The row and the update of a word."""
        b, added, type = self.b, self.added, self.added.word
        row = b.value("arith.shrui", (word, b.constant(added.low, type)), type) if added.low else word
        update = b.value("arith.andi", (word, b.constant((1 << added.low) - 1, type)), type)
        made = [
            b.bind_unique(n, b.value("arith.index_castui", (x,), b.index)) for n, x in (("row", row), ("t", update))
        ]
        self.ev.ranges.add(str(made[1]), added.count)
        return made[0], made[1]

    def _neighbours(self) -> tuple[ir.Value, ir.Value]:
        """The rows of the keys before this chunk and after it; -1 where there is none."""
        b, last = self.b, self.added.padded - 1
        begin, end = self.chunk * CHUNK, self.chunk * CHUNK + CHUNK
        before = b.dim(self._key(dims.dim_max(begin - 1, 0))[0])
        after = b.dim(self._key(dims.dim_min(end, last))[0])
        choose = lambda ok, row: b.select(ok, row, -1)
        return choose(b.compare("slt", 0, self.chunk), before), choose(b.compare("slt", end, self.added.padded), after)

    # -- values ----------------------------------------------------------------------------------------------------
    def _update(self, t: Dim) -> ir.Value:
        at = tuple(self.ev.ranges.delinearize(t, self.added.updates))
        return self._wide(self.ev.at(self.added.value, self.added.source_index(at, self.rest)))

    def _write(self, row: Dim, total: ir.Value) -> list[ir.Value]:
        """`y = x + total` in a row."""
        b, ev = self.b, self.ev
        ev.ranges.add(str(row), self.added.rows)
        made = self._plus(self._wide(ev.at(self.added.x, (row, *self.rest))), total)
        if made.type != self.element:
            made = b.value("arith.truncf", (made,), self.element)
        for buffer in self.stage.outputs:  # the one result
            ev.store(buffer, row * self.added.columns + self.flat, made)
        return []

    def _parts(self) -> ir.Value:
        return self.stage.scratch[self.parts]

    def _place(self, chunk: Dim, slot: Dim) -> Dim:
        return (2 * chunk + slot) * self.added.columns + self.flat

    def _part(self, chunk: Dim, slot: int) -> ir.Value:
        return self.ev.load_at(self._parts(), self._place(chunk, slot))

    def _wide(self, value: ir.Value) -> ir.Value:
        value = self.ev.vector(value)
        return value if value.type == self.acc else self.b.value("arith.extf", (value,), self.acc)

    def _plus(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.value(self.add, (x, y), self.acc)

    def _zero(self) -> ir.Value:
        element = self.acc if self.width == 1 else ir.VectorType(self.acc).element_type
        return self.ev.vector(self.b.constant(0, element))
