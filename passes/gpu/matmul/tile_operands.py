"""An operand of a matrix product on its way through shared memory: tiles of `count` rows x `depth`.

    load    global memory -> registers, by vectors along K or, where the operand is contiguous there, along its rows;
            where there are no vectors, so many elements along K that they are a chunk in shared memory
    store   registers -> shared memory, always with K last
    read    shared memory -> what the matrix unit takes

Rows lie side by side, but their chunks of 16 bytes trade places: chunk `c` of a row in line `l` of 128 bytes is at
`c ^ (l mod 8)`. So eight neighbouring rows have their chunks of one k in all 32 banks, and no room is lost to padding.
`padded` rows are one chunk longer instead: their chunks are at the same distances, so that a lane needs one address for all.

Values come from the evaluator, so an operand may be any view or be computed. Rows beyond the end repeat the last one
(their results are not stored); k beyond the end are zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim, Expr
from ...loops.evaluate_walk import Walk
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuStage, element_bytes
from ..lane_places import LANE
from ..loops.stored import Stored
from ..probe import Probe, choose_width
from ..scalar_bases import ScalarBases
from ..thread_values import ThreadValues
from .conv_product import Patches
from .problem import Product, Side

CHUNK = 16  # bytes that one instruction moves
LINE = 128  # bytes of all banks


def tile_size(count: int, depth: int, bytes: int, padded: bool = False) -> int:
    """The elements of a tile in shared memory, of `bytes` each."""
    return count * (depth + (CHUNK // bytes if padded else 0))


@dataclass(frozen=True)
class Loaded:
    """What a thread has loaded: vectors with neighbouring k, each zero where its mask, if it has one, is false."""

    values: list[ir.Value]
    masks: list[ir.Value | None]


class TileOperand:
    """One side of `product`, batch `batch` of it (a bound symbol): tiles in `room`, a buffer of shared memory.

    `scalars`: what threads share of addresses goes to scalar registers.
    """

    def __init__(
        self, stage: GpuStage, product: Product, side: Side, count: int, depth: int, batch: Dim, room: ir.Value,
        padded: bool = False, scalars: bool = False,
    ):  # fmt: skip
        self.stage, self.product, self.side, self.count, self.depth = stage, product, side, count, depth
        self.batch, self.room, self.padded = batch, room, padded
        self.extent = product.m if side is product.a else product.n
        self.element = ir.RankedTensorType(side.value.type).element_type
        along_k, along_rows = self._width(True), self._width(False)
        self.along_k = along_k >= along_rows and along_k > 1
        self.width = along_k if self.along_k else along_rows
        self.chunk = CHUNK // element_bytes(self.element)
        # vectors along rows: so many neighbouring k that what goes to shared memory is a word
        word = max(1, 4 // element_bytes(self.element))
        self.together = 1 if self.along_k else word if self.width > 1 else self.chunk
        self.size = tile_size(count, depth, element_bytes(self.element), padded)
        self._places: dict[int, tuple[Expr, Expr]] = {}
        values = ScalarBases if scalars else ThreadValues
        self.ev = Stored().evaluator(stage, self._ranges(self.along_k, self.width), self.width, values)
        self.share(batch, product.batches)

    def _ranges(self, along_k: bool, width: int) -> Ranges:
        ranges = Ranges({str(self.batch): self.product.batches})
        ranges.add("row", self.extent if along_k else dims.floordiv(self.extent, width))
        ranges.add("k", dims.floordiv(self.product.k, width) if along_k else self.product.k)
        return ranges

    def _at(self, ev: Walk, along_k: bool, width: int, row: Dim, k: Dim) -> Any:
        """A vector of the operand: `row` or `k` counts vectors, whichever they lie along."""
        lane = dims.symbol(LANE) if width > 1 else 0
        row, k = (row, width * k + lane) if along_k else (width * row + lane, k)
        return self.side.at(ev, self.batch, row, k)

    def _width(self, along_k: bool) -> int:
        """The lanes of vectors along K or along the rows."""
        if not self.side.vectors:
            return 1

        def probe(width: int) -> Probe:
            ranges = self._ranges(along_k, width)
            ranges.add(LANE, width)
            accesses = Probe(self.stage.kernel.graph, ranges, set())
            self._at(accesses, along_k, width, dims.symbol("row"), dims.symbol("k"))
            return accesses

        extent = self.product.k if along_k else self.extent
        most = self.depth if along_k else self.count

        def fits(width: int) -> bool:
            whole = isinstance(extent, int) and extent % width == 0 and most % width == 0
            return whole and all(dims.linear_coefficient(at, LANE) in (0, 1) for _, at in probe(width).loads)

        return choose_width([self.side.value], probe, fits)

    def share(self, symbol: Dim, end: Dim) -> None:
        """State that `symbol`, of the places that loads begin at, is below `end` and equal in all threads of a block."""
        self.ev.ranges.add(str(symbol), end)
        if isinstance(self.ev, ScalarBases):
            self.ev.shared.add(str(symbol))

    # -- global memory -> registers -> shared memory ---------------------------------------------------------------
    def load(self, first: Dim, k0: Dim) -> list[Loaded]:
        """This thread's vectors of the tile from row `first` and `k0` on."""
        return [self._load(first, k0, unit) for unit in range(self._units())]

    def _units(self) -> int:
        size = self.width * self.together
        return -(-self.count * self.depth // size // self.stage.threads)

    @property
    def _steps(self) -> tuple[int, int]:
        """The rows and k that a thread loads at once."""
        return (1, self.width) if self.along_k else (self.width, self.together)

    def _place(self, unit: int) -> tuple[Expr, Expr]:
        """A thread's row and k in the tile, in `_steps`: neighbouring threads take neighbouring k, of patches rows."""
        if unit in self._places:
            return self._places[unit]
        b, threads = self.stage.b, self.stage.threads
        rows, across = (n // step for n, step in zip((self.count, self.depth), self._steps))
        at = b.binary("arith.addi", self.stage.thread(), b.constant(unit * threads, b.index))
        if (unit + 1) * threads > rows * across:  # too many threads: the last ones do the same
            at = b.dim(dims.dim_min(b.bind_unique("at", at, b.value_level(at)), rows * across - 1))
        inner = b.constant(across if self.side.vectors else rows, b.index)
        parts = b.binary("arith.divui", at, inner), b.binary("arith.remui", at, inner)
        row, k = parts if self.side.vectors else parts[::-1]
        self._places[unit] = self._symbol("own", row, rows), self._symbol("own", k, across)
        return self._places[unit]

    def _load(self, first: Dim, k0: Dim, unit: int) -> Loaded:
        row, k = self._place(unit)
        row = self._within(dims.floordiv(first, self._steps[0]) + row)
        each, size = (1, self.width) if self.along_k else (self.together, 1)
        k = dims.floordiv(k0, size) + each * k
        if isinstance(self.product.k, int) and self.product.k % each == 0:  # all of them exist, or none
            k, mask = self._before_end(k, size, each)
            made = [self._element(row, k + j, mask) for j in range(each)]
        else:
            made = [self._element(row, *self._before_end(k + j, size)) for j in range(each)]
        return Loaded([value for value, _ in made], [mask for _, mask in made])

    def _before_end(self, k: Dim, size: int, each: int = 1) -> tuple[Dim, ir.Value | None]:
        """`k` (counted in steps of `size`, a multiple of `each`), 0 beyond the end, and whether it is before the end."""
        b, end = self.stage.b, dims.floordiv(self.product.k, size)
        if isinstance(self.product.k, int) and self.product.k % self.depth == 0:
            return k, None
        at = b.dim(k)
        mask = b.compare("ult", at, end)
        at = b.select(mask, at, 0)
        at = b.binary("arith.divui", at, b.constant(each, b.index)) if each > 1 else at
        return each * self._symbol("k", at, dims.floordiv(end, each)), mask

    def _symbol(self, name: str, value: ir.Value, end: Dim) -> Expr:
        """A new symbol for a place below `end`."""
        b = self.stage.b
        symbol = b.bind_unique(name, value, b.value_level(value))
        self.ev.ranges.add(str(symbol), end)
        return symbol

    def _element(self, row: Dim, k: Dim, mask: ir.Value | None) -> tuple[ir.Value, ir.Value | None]:
        """The operand's vector, and where it is zero: where `mask` is false or, of patches, outside the image."""
        b, ev = self.stage.b, self.ev
        if isinstance(self.side, Patches):
            value, inside = self.side.clamped(ev, self.batch, row, k)
            if inside:
                exists = ev.remember("inside", tuple(inside), lambda: ev.all_nonnegative(inside))
                mask = exists if mask is None else b.value("arith.andi", (mask, exists), b.i1)
        else:
            value = self._at(ev, self.along_k, self.width, row, k)
        return ev.vector(value) if self.width > 1 else value, mask

    def _masked(self, value: ir.Value, mask: ir.Value | None) -> ir.Value:
        """`value`, zero where `mask` is false."""
        b = self.stage.b
        return value if mask is None else b.select(mask, value, b.constant(0, value.type))

    def _within(self, row: Dim) -> Dim:
        """`row`, counted in steps, or the last one beyond the end."""
        if isinstance(self.extent, int) and self.extent % self.count == 0:
            return row
        end = dims.floordiv(self.extent, self._steps[0])
        return self._symbol("row", self.stage.b.dim(dims.dim_min(row, end - 1)), end)

    def store(self, vectors: list[Loaded], start: int) -> None:
        """Write what `load` gave, which is waited for only here, to a tile from element `start` of the room on."""
        b, (row_step, k_step) = self.stage.b, self._steps
        for unit, group in enumerate(vectors):
            places = self._place(unit)
            row, k = b.dim(row_step * places[0]), b.dim(k_step * places[1])
            if self.along_k:
                self._write(self._masked(group.values[0], group.masks[0]), self._address(start, row, k))
                continue
            for lane in range(self.width):
                below = b.binary("arith.addi", row, b.constant(lane, b.index))
                self._write(self._column(group, lane), self._address(start, below, k))

    def _column(self, group: Loaded, lane: int) -> ir.Value:
        """Element `lane` of each vector of a group."""
        b, together = self.stage.b, len(set(group.masks)) == 1
        made = group.values if together else [self._masked(v, m) for v, m in zip(group.values, group.masks)]
        if self.width > 1:
            made = [b.extract(v, lane) for v in made]
        value = made[0]
        if len(made) > 1:
            value = b.value("vector.from_elements", made, ir.VectorType.get([len(made)], self.element))
        return self._masked(value, group.masks[0]) if together else value

    def _write(self, value: ir.Value, at: ir.Value) -> None:
        b = self.stage.b
        if not isinstance(value.type, ir.VectorType):
            b.op("memref.store", (value, self.room, at))
            return
        size = ir.VectorType(value.type).shape[0] * element_bytes(self.element)
        b.op("vector.store", (value, self.room, at), attributes={"alignment": ir.IntegerAttr.get(b.i64, size)})

    # -- shared memory -> matrix unit ------------------------------------------------------------------------------
    def read(self, start: int, row: ir.Value, k: ir.Value, count: int) -> ir.Value:
        """`count` elements along K of a row of the tile at `start`, in pieces of up to 16 bytes."""
        b, pieces = self.stage.b, []
        size = min(count, self.chunk)
        for first in range(0, count, size):
            at = self._address(start, row, b.binary("arith.addi", k, b.constant(first, b.index)))
            alignment = ir.IntegerAttr.get(b.i64, size * element_bytes(self.element))
            type = ir.VectorType.get([size], self.element)
            pieces.append(b.value("vector.load", (self.room, at), type, alignment=alignment))
        if len(pieces) == 1:
            return pieces[0]
        order = ir.DenseI64ArrayAttr.get(list(range(count)))
        return b.value("vector.shuffle", pieces, ir.VectorType.get([count], self.element), mask=order)

    def _address(self, start: int, row: ir.Value, k: ir.Value) -> ir.Value:
        """Where element (row, k) of the tile at `start` lies."""
        b, size = self.stage.b, self.stage.b.constant(self.chunk, self.stage.b.index)
        if self.padded:
            row = b.binary("arith.muli", row, b.constant(self.depth + self.chunk, b.index))
            return b.binary("arith.addi", b.dim(start), b.binary("arith.addi", row, k))
        chunks = self.depth // self.chunk
        rows = max(1, LINE // CHUNK // chunks)  # of a line
        turn = b.binary("arith.divui", row, b.constant(rows, b.index))
        turn = b.binary("arith.remui", turn, b.constant(min(chunks, LINE // CHUNK), b.index))
        chunk = b.value("arith.xori", (b.binary("arith.divui", k, size), turn), b.index)
        at = b.binary("arith.addi", b.binary("arith.muli", chunk, size), b.binary("arith.remui", k, size))
        at = b.binary("arith.addi", b.binary("arith.muli", row, b.constant(self.depth, b.index)), at)
        return b.binary("arith.addi", b.dim(start), at)
