"""From the sums of a product in registers to the kernel's outputs: bias, rounding, exchanges between lanes, stores.

The root's result at a point is its sum plus bias, rounded to the root's dtype as eager rounds it; `outputs` evaluates the
fused ops on that. Threads hold pairs of columns (`fragment` says where). 16-bit pairs are first exchanged among four
lanes, so that each has eight columns: one 16-byte store, and 16-byte loads of a residual. Where the root is of f32 and
all outputs are of 16 bits (`narrows`), outputs are exchanged. Of several eights all loads are under way before the first
store, past which none moves up: a load from memory takes the time of many stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuStage
from ..hopper.ptx import Ptx
from ..lane_places import LANE, divisible
from ..thread_values import ThreadValues
from .outputs import Outputs
from .problem import Product
from .unaligned_rows import UnalignedRows


@dataclass(frozen=True)
class Limits:
    """The part of a tile along one dimension that is written: from `first` on and below `end`; None: no limit there.

    The last tile of a size that is no multiple of the tile's starts earlier than its part.
    """

    first: Dim | None = None
    end: Dim | None = None


class Epilogue(Outputs):
    """Writes the outputs from sums that threads hold in pairs of columns.

    The loads of `ahead` groups of 32 columns, in two rows each, are under way together.
    """

    def __init__(self, stage: GpuStage, product: Product, apart: ir.Value | None = None, ahead: int = 2):
        super().__init__(stage, product, apart)
        self.ahead = ahead
        self.ptx = Ptx(stage)
        self.width = next(w for w in (8 if self.halves else 2, 2, 1) if divisible(product.n, w))
        self.shifts = self._shifts()
        self.ranges = Ranges()
        self.narrows = self._narrows()

    def fragment(
        self, batch: Dim, row: Dim, column: Dim, sums: Sequence[ir.Value], rows: Limits, columns: Limits
    ) -> None:
        """Write the sums of one thread: of rows `row` and `row + 8`, of two columns in every eight from `column` on.

        `column` is a multiple of 8. Sum `4 j + 2 h + e` is of row `row + 8 h` and column `column + 8 j + 2 quad + e`,
        where `quad` is the symbol of the thread's number among four.
        """
        self.column, self.row_limits, self.column_limits = column, rows, columns
        self.batch = self._symbol("batch", batch, self.product.batches)
        self.rows = [self._symbol("row", row + 8 * h, self.product.m) for h in range(2)]
        self.evaluators: dict[int, ThreadValues] = {}
        groups = len(sums) // 16
        self.biases = self._load_biases(len(sums) // 4)
        if self.shifts:
            words = [self._words(group, sums) for group in range(groups)]
            for h in range(2):
                self._shifted(h, [pair[h] for pair in words])
            return
        if self.narrows:
            for first in range(0, groups, self.ahead):
                self._narrowed(range(first, min(first + self.ahead, groups)), sums)
            return
        if self.width == 8:
            step = self.ahead if self.reads and rows.end is None and columns.end is None else 1
            for first in range(0, groups, step):
                self._eights(range(first, min(first + step, groups)), sums)
            return
        for j in range(len(sums) // 4):
            biases = self._biases(j)
            for h in range(2):
                i = 4 * j + 2 * h
                self._pair(j, h, self._rounded(sums[i : i + 2], biases[h]))

    def _eights(self, groups: range, sums: Sequence[ir.Value]) -> None:
        """Write some groups of 32 columns, eight of each row and group, which several read within the tensor first."""
        root, ev, stores = self.product.root.results[0], self._evaluator(8), []
        eights = [
            (group, h, self._eight(words, root)) for group in groups for h, words in enumerate(self._words(group, sums))
        ]
        if len(groups) == 1:
            for group, h, value in eights:
                self._write(8, self._eighth(group), h, value)
            return
        for group, h, value in eights:
            row, place = self.rows[h], self._symbol("w", self._eighth(group), dims.floordiv(self.product.n, 8))
            stores.append((self._conditions(row, place, 8), self.evaluated(ev, self.batch, row, place, value)))
        for conditions, made in stores:
            self._where(conditions, lambda made=made: self.store(ev, made))

    # -- one store -------------------------------------------------------------------------------------------------
    def _words(self, group: int, sums: Sequence[ir.Value]) -> list[list[ir.Value]]:
        """Of both rows the eight columns that this lane has of a group of 32, after an exchange: four i32."""
        made = []
        biases = [self._biases(4 * group + j) for j in range(4)]
        for h in range(2):
            words = []
            for j, bias in enumerate(biases):
                i = 4 * (4 * group + j) + 2 * h
                words.append(self._word(self._rounded(sums[i : i + 2], bias[h])))
            made.append(self.ptx.quad_transpose(words, self.ptx.i32(dims.symbol("quad"))))
        return made

    def _word(self, pair: ir.Value) -> ir.Value:
        """Two 16-bit elements as an i32."""
        word = self.b.value("vector.bitcast", (pair,), ir.VectorType.get([1], self.b.i32))
        return self.b.extract(word, 0)

    def _eight(self, words: Sequence[ir.Value], like: ir.Value) -> ir.Value:
        """Four i32 as eight of the 16-bit elements of tensor `like`."""
        element = ir.RankedTensorType(like.type).element_type
        made = self.b.value("vector.from_elements", words, ir.VectorType.get([4], self.b.i32))
        return self.b.value("vector.bitcast", (made,), ir.VectorType.get([8], element))

    def _eighth(self, group: int) -> Dim:
        """Which eight columns of the result this lane has of a group of 32, after an exchange."""
        return dims.floordiv(self.column, 8) + 4 * group + dims.symbol("quad")

    def _narrows(self) -> bool:
        """True if all outputs are of 16 bits, the root is not, and both have their elements in the same order."""
        elements = {str(ir.RankedTensorType(result.type).element_type) for result, _ in self.outputs}
        in_order = all(order is None for order in self.orders.values())
        return not self.halves and in_order and divisible(self.product.n, 8) and elements <= {"f16", "bf16"}

    def _narrowed(self, groups: range, sums: Sequence[ir.Value]) -> None:
        """Evaluate the outputs for a thread's pairs in some groups of 32 columns; exchange, and store eight of each row.

        They are evaluated within the tensor, stored or not: so no load of theirs is behind a branch.
        """
        p, wide, quad = self.product, self._evaluator(8), self.ptx.i32(dims.symbol("quad"))
        evaluated = [(group, h, self._narrow_words(group, h, sums)) for group in groups for h in range(2)]
        for group, h, words in evaluated:
            row, place = self.rows[h], self._symbol("w", self._eighth(group), dims.floordiv(p.n, 8))
            at = (self.batch * p.m + row) * p.n + wide.flat(place)
            made = [
                (buffer, at, self._eight(self.ptx.quad_transpose(w, quad), result))
                for w, (result, buffer) in zip(words, self.outputs)
            ]
            self._where(self._conditions(row, place, 8), lambda made=made: self.store(wide, made))

    def _narrow_words(self, group: int, h: int, sums: Sequence[ir.Value]) -> list[list[ir.Value]]:
        """Of each output the four pairs of row `h` that this lane has of a group before the exchange."""
        p, ev, row = self.product, self._evaluator(2), self.rows[h]
        inside = row if self.row_limits.end is None else self._symbol("row", dims.dim_min(row, p.m - 1), p.m)
        words: list[list[ir.Value]] = [[] for _ in self.outputs]
        for j in range(4 * group, 4 * group + 4):
            i = 4 * j + 2 * h
            pair = self._rounded(sums[i : i + 2], self._biases(j)[h])
            flat = self.root_at(ev, self.batch, inside, self._pair_place(j), pair)
            for found, (result, _) in zip(words, self.outputs):
                found.append(self._word(ev.vector(ev.at(result, self.index(ev.ranges, result, flat)))))
        return words

    def _shifts(self) -> bool:
        """True if rows begin anywhere, and all that is written is the root's result itself."""
        itself = [result for result, _ in self.outputs] == [self.product.root.results[0]]
        return self.halves and itself and self.width < 8

    def _shifted(self, h: int, words: Sequence[Sequence[ir.Value]]) -> None:
        """Store row `h` by 16 bytes from where its memory is aligned."""
        p, row, limits = self.product, self.rows[h], self.column_limits
        conditions = self.ptx.within(row, self.row_limits.first, self.row_limits.end)
        column = self.column if limits.first is None else dims.dim_max(self.column, limits.first)
        end = self.column + 32 * len(words)
        end = end if limits.end is None else dims.dim_min(end, limits.end)
        rows = UnalignedRows(self.stage, self.ptx, self.outputs[0][1])
        rows.write((self.batch * p.m + row) * p.n, self.column, words, conditions, column, end)

    def _pair_place(self, j: int) -> Dim:
        """Which pair of columns this lane has in group `j` of eight; past the end the last one."""
        place = dims.floordiv(self.column, 2) + 4 * j + dims.symbol("quad")
        pairs = dims.floordiv(self.product.n, 2)
        return self._symbol("w", place if self.column_limits.end is None else dims.dim_min(place, pairs - 1), pairs)

    def _pair(self, j: int, h: int, pair: ir.Value) -> None:
        place = dims.floordiv(self.column, 2) + 4 * j + dims.symbol("quad")
        if self.width == 2:
            self._write(2, place, h, pair)
            return
        for e in range(2):
            self._write(1, 2 * place + e, h, self.b.extract(pair, e))

    def _write(self, width: int, place: Dim, h: int, value: ir.Value) -> None:
        """Evaluate and store the outputs at vector `place` of row `h`."""
        row, position = self.rows[h], self._symbol("w", place, dims.floordiv(self.product.n, width))

        write = lambda: self.write(self._evaluator(width), self.batch, row, position, value)
        self._where(self._conditions(row, position, width), write)

    def _where(self, conditions: list[ir.Value], do: Callable[[], None]) -> None:
        """Do something where all conditions hold."""
        if not conditions:
            do()
            return
        self.b.branch(self.b.all_of(conditions), [], lambda: do() or [])

    def _conditions(self, row: Dim, position: Dim, width: int) -> list[ir.Value]:
        """That vector `position` of `row` is written."""
        limits = self.column_limits
        scaled = [None if x is None else dims.floordiv(x, width) for x in (limits.first, limits.end)]
        return self.ptx.within(row, self.row_limits.first, self.row_limits.end) + self.ptx.within(position, *scaled)

    def _symbol(self, name: str, place: Dim, end: Dim) -> Dim:
        """A new symbol for a place that is below `end` wherever it is used."""
        symbol = self.b.bind_unique(name, self.b.dim(place))
        self.ranges.add(str(symbol), end)
        return symbol

    # -- values ----------------------------------------------------------------------------------------------------
    def _evaluator(self, width: int) -> ThreadValues:
        if width not in self.evaluators:
            self.evaluators[width] = ThreadValues(self.stage, self.ranges, width)
        if width > 1:
            self.ranges.add(LANE, width)
        return self.evaluators[width]

    def _load_biases(self, pairs: int) -> list[ir.Value]:
        """The bias of both rows, or of this thread's pairs of columns: all before the first store."""
        if self.product.bias is None:
            return []
        if self.product.bias_by_rows:
            return [self._row_bias(row) for row in self.rows]
        return [self._column_bias(j) for j in range(pairs)]

    def _biases(self, j: int) -> list[ir.Value | None]:
        """The bias of this thread's pair of columns in group `j` of eight, in f32, for both rows."""
        if not self.biases:
            return [None, None]
        if self.product.bias_by_rows:
            return [self._wide(value) for value in self.biases]
        return [self._wide(self.biases[j])] * 2

    def _row_bias(self, row: Dim) -> ir.Value:
        """The bias of a row, twice; past the end that of the last row."""
        p, pair = self.product, ir.VectorType.get([2], self.element)
        if self.row_limits.end is not None:
            row = self._symbol("row", dims.dim_min(row, p.m - 1), p.m)
        value = p.bias_at(self._evaluator(1), self.batch, row, 0)
        return self.b.value("vector.broadcast", (value,), pair)

    def _column_bias(self, j: int) -> ir.Value:
        """The bias of a pair of columns; past the end some other one."""
        p, b = self.product, self.b
        assert p.bias is not None
        if divisible(p.n, 2):
            ev = self._evaluator(2)
            return ev.vector(ev.at(p.bias, [ev.flat(self._pair_place(j))]))
        ones, pair = [], ir.VectorType.get([2], self.element)
        place = dims.floordiv(self.column, 2) + 4 * j + dims.symbol("quad")
        for e in range(2):
            c = self._symbol("w", dims.dim_min(2 * place + e, p.n - 1), p.n)
            ones.append(self._evaluator(1).at(p.bias, [c]))
        return b.value("vector.from_elements", ones, pair)

    def _wide(self, value: ir.Value) -> ir.Value:
        return self.b.value("arith.extf", (value,), ir.VectorType.get([2], self.b.f32)) if self.halves else value

    def _rounded(self, sums: Sequence[ir.Value], bias: ir.Value | None) -> ir.Value:
        """A pair of sums with bias as the root's elements."""
        b, wide = self.b, ir.VectorType.get([2], self.b.f32)
        value = b.value("vector.from_elements", sums, wide)
        if bias is not None:
            value = b.value("arith.addf", (value, bias), wide)
        return b.value("arith.truncf", (value,), ir.VectorType.get([2], self.element)) if self.halves else value
