"""Results out of turned tiles: lanes along the last loop, read from the tile's rows one by one, are stored as vectors.

Rows of results may begin anywhere, too. Then a block begins each where it is aligned, `ahead` positions (0 ... V - 1)
after the tile, and the tile's last vector is left to the next block, whose tile overlaps with this one. What of a row's
first or last vector is not in the row is another row's: there elements are stored one by one.

Short rows that follow one another (images of 7 x 7) are one run of whole vectors, whose lanes are in one row or the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import element_bytes
from ..lane_places import LANE
from ..thread_values import ThreadValues
from .turned_tile import Block, Tile


class TileValues(ThreadValues):
    """Reads the turned operands from shared memory: `row` is the place in the tile of the position along cross."""

    tiles: list[Tile]
    row: ir.Value
    cross: Dim  # the position along cross
    top: Dim  # that of the tile's first row
    column: ir.Value  # the place in the tile of lane 0's position along last
    position: Dim  # of the lanes along last

    def load(self, argument: ir.Value, offset: Dim) -> ir.Value:
        for tile in self.tiles:
            here = tile.rest + self.cross + tile.step * self.position
            if tile.argument == argument and offset == self.ranges.simplify(here):
                return self.remember(("tile", argument, offset), (offset,), lambda t=tile: self._from(t))
        return super().load(argument, offset)

    def _from(self, tile: Tile) -> ir.Value:
        b = self.b
        assert tile.room is not None
        lanes = []
        for k in range(self.width):
            at = b.binary("arith.addi", self.column, b.constant(k, b.index))
            first = tile.place(b, at)
            if tile.shifts:
                row = dims.substitute(self.position, {LANE: k})
                offset = b.dim(tile.rest + self.top + tile.step * row)
                shift = b.binary("arith.remui", offset, b.constant(tile.vector, b.index))
                first = b.binary("arith.addi", first, shift)
            lanes.append(b.value("memref.load", (tile.room, b.binary("arith.addi", first, self.row)), tile.element))
        if self.width == 1:
            return lanes[0]
        return b.value("vector.from_elements", lanes, ir.VectorType.get([self.width], tile.element))


@dataclass
class TileStores:
    """Writes the results with numbers `results`, whose elements are at `flat(position along last)`, in vectors of `width`."""

    block: Block
    flat: Callable[[Dim], Dim]
    results: list[int]
    tiles: list[Tile]
    width: int

    def __post_init__(self) -> None:
        self.stage, self.b = self.block.stage, self.block.stage.b
        self.lanes = self.tiles[0].shape.along // self.width
        self.x, self.y = self.block.deal(self.lanes)

    def store(self) -> None:
        """Write the block's part of the results."""
        b, block = self.b, self.block
        column = b.binary("arith.muli", self.x, b.constant(self.width, b.index))
        at, fits = block.inside(block.last, b.binary("arith.addi", b.dim(block.left), column))
        ev = self._values(self.width)
        w = b.bind("w", b.binary("arith.divui", at, b.constant(self.width, b.index)))
        ev.ranges.add("w", dims.floordiv(block.last.extent, self.width))
        ev.column, ev.position = column, ev.flat(w)
        for u in range(self._rows()):
            ok = self._take(ev, u)
            self.b.under((ok, fits), self._made(ev))

    def _rows(self) -> int:
        """How many rows a thread takes a vector of."""
        return self.tiles[0].shape.across // (self.stage.threads // self.lanes)

    def _values(self, width: int) -> TileValues:
        block = self.block
        ranges = Ranges({l.name: l.extent for l in block.others})
        ev = block.stored.evaluator(block.stage, ranges, width, TileValues)
        assert isinstance(ev, TileValues)
        ev.tiles, ev.top = self.tiles, block.top
        return ev

    def _take(self, ev: TileValues, u: int) -> ir.Value | None:
        """Let `ev` stand at row number `u` of this thread; a mask where there may be none."""
        b, block, name = self.b, self.block, f"{self.block.cross.name}_{u}"
        first = b.constant(u * (self.stage.threads // self.lanes), b.index)
        ev.row = b.binary("arith.addi", self.y, first)
        position, ok = block.inside(block.cross, b.binary("arith.addi", b.dim(block.top), ev.row))
        ev.cross = b.bind(name, position)
        ev.ranges.add(name, block.cross.extent)
        return ok

    def _computed(self, ev: TileValues) -> tuple[Dim, list[ir.Value]]:
        """The place of `ev` in the results, and what they are there."""
        graph = ev.graph
        index = ev.ranges.simplify(self._flat(ev, ev.position))
        values = [graph.results[i] for i in self.results]
        return index, [ev.at(v, ev.ranges.delinearize(index, graph.shape(v))) for v in values]

    def _made(self, ev: TileValues) -> Callable[[], list[ir.Value]]:
        """Compute the results where `ev` stands; returns what stores them."""
        index, made = self._computed(ev)

        def store() -> list[ir.Value]:
            for i, value in zip(self.results, made):
                ev.store(self.stage.outputs[i], index, value)
            return []

        return store

    def _single(self, row: ir.Value, cross: Dim, column: ir.Value, place: ir.Value) -> TileValues:
        """An evaluator of one element, at place `row` and `column` of the tile, `cross` and `place` of the loops."""
        ev = self._values(1)
        ev.row, ev.cross, ev.column = row, cross, column
        ev.position = self.b.bind_unique("place", place)
        ev.ranges.add(str(cross), self.block.cross.extent)
        ev.ranges.add(str(ev.position), self.block.last.extent)
        return ev

    def _flat(self, ev: TileValues, position: Dim) -> Dim:
        return dims.substitute(self.flat(position), {self.block.cross.name: ev.cross})


class ShiftedStores(TileStores):
    """The same of results whose rows begin anywhere."""

    def store(self) -> None:
        b, last = self.b, self.block.last
        own = self._below(self.x, self.lanes - 1)
        for u in range(self._rows()):
            ev = self._values(self.width)
            ok = self._take(ev, u)
            place = self._place(ev, u)
            whole = self._below(b.dim(place), last.extent - (self.width - 1))

            def store(ev: TileValues = ev, place: Dim = place, whole: ir.Value = whole) -> list[ir.Value]:
                return b.branch(whole, [], lambda: self._made(ev)(), lambda: self._one_by_one(ev, place))

            self.b.under((ok, own), store)

    def _place(self, ev: TileValues, u: int) -> Dim:
        """Where this thread's vector of the row is along last, as a symbol; it is aligned in the results."""
        b, width = self.b, self.width
        start = b.dim(self._flat(ev, self.block.left))
        back = b.binary("arith.subi", b.constant(0, b.index), start)
        ahead = b.value("arith.andi", (back, b.constant(width - 1, b.index)), b.index)
        ev.column = b.binary("arith.addi", ahead, b.binary("arith.muli", self.x, b.constant(width, b.index)))
        place = b.bind(f"place_{u}", b.binary("arith.addi", b.dim(self.block.left), ev.column))
        vectors = b.binary("arith.divui", b.binary("arith.addi", start, ahead), b.constant(width, b.index))
        number = b.bind(f"number_{u}", b.binary("arith.addi", vectors, self.x))
        ev.begins[str(place)] = width * number - self._flat(ev, 0)
        ev.ranges.add(str(place), self.block.last.extent - (width - 1))
        ev.position = place + dims.symbol(LANE)
        return place

    def _one_by_one(self, ev: TileValues, place: Dim) -> list[ir.Value]:
        """Those lanes of a vector that are in the row."""
        b, last = self.b, self.block.last
        with b.loop("edge", 0, self.width) as k:

            def one() -> list[ir.Value]:
                column = b.binary("arith.addi", ev.column, b.dim(k))
                return self._made(self._single(ev.row, ev.cross, column, b.dim(place + k)))()

            b.branch(self._below(b.dim(place + k), last.extent), [], one)
        return []

    def _below(self, value: ir.Value, end: Dim) -> ir.Value:
        """`0 <= value < end`."""
        b = self.b
        return b.compare("ult", value, end)


class RunStores(TileStores):
    """The same of results whose rows are short, whole in a tile, and follow one another."""

    def store(self) -> None:
        b, block, length = self.b, self.block, self.block.last.extent
        assert isinstance(length, int)
        count = self.tiles[0].shape.across * length // self.width
        end = dims.floordiv((block.cross.extent - block.top) * length, self.width)  # vectors of what is left
        for u in range(-(-count // self.stage.threads)):
            number = b.binary("arith.addi", self.stage.thread(), b.constant(u * self.stage.threads, b.index))
            w = b.bind_unique("w", number)
            own = [] if (u + 1) * self.stage.threads <= count else [self.b.compare("slt", number, count)]
            inside = [] if block.covered[block.cross.name] else [self.b.compare("slt", number, end)]
            self.b.under([*own, *inside], lambda w=w: self._vector(w, length))

    def _vector(self, w: Dim, length: int) -> list[ir.Value]:
        """Store vector `w` of the run: its first lane is `column` of `row`, and the last ones may be in the next row."""
        b, block, width, graph = self.b, self.block, self.width, self.stage.kernel.graph
        row = b.bind_unique("row", b.dim(dims.floordiv(width * w, length)))
        column = b.dim(width * w - length * row)
        lanes: list[list[ir.Value]] = []
        for k in range(width):
            at = b.binary("arith.addi", column, b.constant(k, b.index))
            after = self.b.compare("slt", b.constant(length - 1, b.index), at)
            back = b.binary("arith.subi", at, b.constant(length, b.index))
            at = b.select(after, back, at)
            place = b.binary("arith.addi", b.dim(row), b.value("arith.index_castui", (after,), b.index))
            cross = b.bind_unique(block.cross.name, b.binary("arith.addi", b.dim(block.top), place))
            lanes.append(self._computed(self._single(place, cross, at, at))[1])
        begin = dims.substitute(self.flat(0), {block.cross.name: block.top})
        for i, values in zip(self.results, zip(*lanes)):
            type = ir.VectorType.get([width], ir.RankedTensorType(graph.results[i].type).element_type)
            vector = b.value("vector.from_elements", values, type)
            bytes_ = ir.IntegerAttr.get(b.i64, width * element_bytes(type.element_type))
            at = b.dim(begin + width * w)
            b.op("vector.store", (vector, self.stage.outputs[i], at), attributes={"alignment": bytes_})
        return []
