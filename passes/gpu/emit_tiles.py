"""Stages for results that read some operand across their rows, such as a transpose: tiles through shared memory.

A block takes `across` positions of the loop `cross`, along which the operand is contiguous, by `along` positions of the
loop `last`, along which the results are. Both global accesses then run along memory; the turn is made in shared memory:

    load   x[.. + last * s + cross]   vectors along cross  ->  tile[last][cross]
    barrier
    store  y[.. + cross * m + last]   vectors along last   <-  tile[last][cross]

Rows of the operand may begin anywhere (4097 columns). Then they are read from the aligned address before on, in one
vector more, and lie in the tile with what is before them: column `c` of row `l` is element `shift(l) + c` there, where
`shift` is what the row's address leaves, divided by a vector.

Rows of the tile follow each other without gaps, but for one vector after each `V` rows: so lanes of a warp, which read
rows `V` apart, meet different banks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..loops.index_algebra import Ranges
from ..loops.loop_nest import Loop, Space
from ..loops.loops_builder import LoopsBuilder
from ..loops.tensor_graph import TensorGraph
from .gpu_kernel import GpuKernel, GpuStage, element_bytes
from .probe import Probe, choose_width
from .stored import Stored
from .thread_values import LANE, ThreadValues, divisible
from .unaligned_loads import MANY_PARTS, VECTOR_BYTES, are_whole

SIDE = 64
SMALL_SIDE = 32  # where larger tiles would be too few
ENOUGH_TILES = 264  # two for each of 132 multiprocessors
THREADS = 256
SHARED = 48 * 1024  # bytes without asking for more
SHORTEST = 32  # a loop of fewer elements makes tiles that are mostly empty


@dataclass(frozen=True)
class Shape:
    """The positions of a tile: `across` of the loop `cross`, `along` the last loop."""

    across: int
    along: int

    @property
    def size(self) -> int:
        return self.across * self.along


@dataclass
class Tile:
    """An operand read across rows: `rest + cross + step * last` is the address.

    It is loaded in vectors of `vector` elements, with `shifts` from whole ones, which begin before the row.
    """

    argument: ir.Value
    step: Dim
    rest: Dim
    shape: Shape = Shape(0, 0)
    vector: int = 1
    shifts: bool = False
    room: ir.Value | None = None

    @property
    def element(self) -> ir.Type:
        return ir.RankedTensorType(self.argument.type).element_type

    @property
    def line(self) -> int:
        """The vectors of a row of the tile."""
        return self.shape.across // self.vector + self.shifts

    @property
    def size(self) -> int:
        """The elements of the tile in shared memory."""
        return (self.shape.along * self.line + self.shape.along // self.vector) * self.vector

    def place(self, b: LoopsBuilder, row: ir.Value) -> ir.Value:
        """Where row `row` begins in shared memory."""
        vector = b.constant(self.vector, b.index)
        gaps = b.binary("arith.divui", row, vector)
        vectors = b.binary("arith.addi", b.binary("arith.muli", row, b.constant(self.line, b.index)), gaps)
        return b.binary("arith.muli", vectors, vector)


def find_cross(space: Space, accesses: Probe, aligned: bool) -> tuple[Loop, list[Tile]] | None:
    """The loop to cut into tiles with the last one, and the operands to turn; None where plain threads do as well.

    `aligned`: the machine loads vectors from multiples of their size only.
    """
    loops = space.loops
    if len(loops) < 2 or accesses.reductions or accesses.branches or _short(loops[-1]):
        return None
    last = loops[-1].name
    for loop in reversed(loops[:-1]):
        found: dict[tuple[ir.Value, Dim], Tile] = {}
        for argument, offset in accesses.loads:
            step = dims.linear_coefficient(offset, last)
            if step in (0, 1, None) or dims.linear_coefficient(offset, loop.name) != 1:
                continue
            if dims.symbols(step) & {l.name for l in loops} if not isinstance(step, int) else False:
                continue
            if argument not in accesses.graph.inputs or not isinstance(offset, dims.Expr):
                continue
            rest = offset - loop.variable - step * loops[-1].variable  # type: ignore[operator]
            tile = Tile(argument, step, rest)  # type: ignore[arg-type]
            tile.vector, tile.shifts = _loads(tile, loop, dims.product(accesses.graph.shape(argument)), aligned)
            found[argument, offset] = tile
        if found and not _short(loop) and _shaped(list(found.values()), loops, loop):
            return loop, list(found.values())
    return None


def _shaped(tiles: list[Tile], loops: list[Loop], cross: Loop) -> bool:
    """Give the tiles of `cross` by the last loop their shape; False if there is no room for them."""
    others = [l.extent for l in loops if l not in (cross, loops[-1])]
    count = dims.product([*others, *(dims.ceildiv(l.extent, SIDE) for l in (cross, loops[-1]))])
    side = SMALL_SIDE if isinstance(count, int) and count < ENOUGH_TILES else SIDE
    # the lines at the ends of rows that begin anywhere are read twice, less often where these are longer
    wide = [Shape(2 * side, side)] if side == SIDE and any(t.shifts for t in tiles) else []
    for shape in (*wide, Shape(side, side)):
        for tile in tiles:
            tile.shape = shape
        if sum(t.size * element_bytes(t.element) for t in tiles) <= SHARED:
            return True
    return False


def _short(loop: Loop) -> bool:
    return isinstance(loop.extent, int) and loop.extent < SHORTEST


def _loads(tile: Tile, cross: Loop, count: Dim, aligned: bool) -> tuple[int, bool]:
    """Lanes of the loads of a tile's operand, which has `count` elements, and if they begin before its rows."""
    size = element_bytes(tile.element)
    whole = width = max(1, VECTOR_BYTES // size)
    while width > 1 and not (
        isinstance(cross.extent, int)
        and cross.extent % width == 0
        and divisible(tile.rest, width)
        and divisible(tile.step, width)
    ):
        width //= 2
    shifts = aligned and whole // width >= MANY_PARTS and are_whole(count, size)
    return (whole, True) if shifts else (width, False)


class TileValues(ThreadValues):
    """Reads the turned operands from shared memory: `row` is the place in the tile of the position along cross."""

    tiles: dict[tuple[ir.Value, Dim], Tile]
    row: ir.Value
    top: Dim  # the tile's first position along cross
    column: ir.Value  # of lane 0
    cross: str
    position: Dim  # along last

    def load(self, argument: ir.Value, offset: Dim) -> ir.Value:
        for tile in self.tiles.values():
            here = tile.rest + dims.symbol(self.cross) + tile.step * self.position
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
class Turn:
    """Results that share the loops of `space`, of which `cross` and the last are cut into tiles."""

    graph: TensorGraph
    stored: Stored
    results: list[int]
    space: Space
    cross: Loop

    def __post_init__(self) -> None:
        self.last = self.space.loops[-1]
        self.others = [l for l in self.space.loops if l.name not in (self.cross.name, self.last.name)]
        self.values = [self.graph.results[i] for i in self.results]

    def flat(self, position: Dim) -> Dim:
        """The place in a result of `position` of the last loop."""
        return dims.substitute(self.space.values["f"], {self.last.name: position})

    def width(self) -> int:
        """The lanes of the stores."""

        def probe(width: int) -> Probe:
            ranges = Ranges({l.name: l.extent for l in [*self.others, self.cross]})
            ranges.add("w", dims.floordiv(self.last.extent, width))
            ranges.add(LANE, width)
            position = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            accesses = Probe(self.graph, ranges, self.stored.values)
            for v in self.values:
                accesses.at(v, ranges.delinearize(ranges.simplify(self.flat(position)), self.graph.shape(v)))
            return accesses

        extent = self.last.extent
        return choose_width(self.values, probe, lambda w: isinstance(extent, int) and extent % w == 0)

    def counts(self, shape: Shape) -> list[Dim]:
        """How many tiles there are along each loop: the others, cross, last."""
        tiles = [dims.ceildiv(self.cross.extent, shape.across), dims.ceildiv(self.last.extent, shape.along)]
        return [*(l.extent for l in self.others), *tiles]

    def place(self, stage: GpuStage, shape: Shape) -> tuple[Dim, ir.Value]:
        """Where this block's tile begins, along cross (a symbol) and along last; binds the other loops."""
        b, counts = stage.b, self.counts(shape)
        place = Ranges({"block": dims.product(counts)}).delinearize(b.bind("block", stage.block()), counts)
        for loop, position in zip(self.others, place):
            b.bind(loop.name, b.dim(position))
        return b.bind("top", b.dim(place[-2] * shape.across)), b.dim(place[-1] * shape.along)

    def fill(self, stage: GpuStage, tile: Tile, top: Dim, left: ir.Value) -> None:
        """Load the tile's operand by vectors along `cross` into shared memory."""
        b, vectors, along = stage.b, tile.shape.across // tile.vector, tile.shape.along
        tile.room = stage.shared(tile.element, tile.size)
        x = b.binary("arith.remui", stage.thread(), b.constant(vectors, b.index))
        y = b.binary("arith.divui", stage.thread(), b.constant(vectors, b.index))
        load = self._loader(stage, tile, top, x)
        rows = stage.threads // vectors
        loaded = []
        for u in range(along // rows):
            row = b.binary("arith.addi", y, b.constant(u * rows, b.index))
            loaded.append((row, load(self._row(stage, left, row, along))))
        keep_last = self._load_last(stage, tile, top, left) if tile.shifts else None
        for row, value in loaded:
            self._keep(stage, tile, row, x, value)
        if keep_last is not None:
            keep_last()

    def _load_last(self, stage: GpuStage, tile: Tile, top: Dim, left: ir.Value) -> Callable[[], Any]:
        """Load the last vectors of rows that begin anywhere, one a thread; returns what writes them to the tile."""
        b, row, along = stage.b, stage.thread(), tile.shape.along
        x = b.constant(tile.line - 1, b.index)
        type = ir.VectorType.get([tile.vector], tile.element)
        own = b.value("arith.cmpi", (row, b.constant(along, b.index)), b.i1, predicate=b.number(6, b.i64))

        def load() -> list[ir.Value]:
            return [self._loader(stage, tile, top, x)(self._row(stage, left, row, along))]

        def keep() -> list[ir.Value]:
            self._keep(stage, tile, row, x, value)
            return []

        value = b.branch(own, [type], load, lambda: [b.constant(0, type)])[0]
        return lambda: b.branch(own, [], keep)

    def _row(self, stage: GpuStage, left: ir.Value, row: ir.Value, along: int) -> Dim:
        """The position along last of a row of the tile, as a symbol."""
        b = stage.b
        position, _ = _inside(stage, b.binary("arith.addi", left, row), self.last.extent, along)
        return b.bind_unique("row", position)

    def _loader(self, stage: GpuStage, tile: Tile, top: Dim, x: ir.Value) -> Callable[[Dim], ir.Value]:
        """What loads vector `x` of the row at a position along last."""
        b, width = stage.b, tile.vector
        buffer = stage.inputs[tile.argument]
        if tile.shifts:
            end = ir.MemRefType(buffer.type).shape[0] - width

            def shifted(position: Dim) -> ir.Value:
                at = dims.floordiv(tile.rest + top + tile.step * position, width) + b.bind_unique("x", x)
                alignment, type = ir.IntegerAttr.get(b.i64, VECTOR_BYTES), ir.VectorType.get([width], tile.element)
                return b.value("vector.load", (buffer, b.dim(dims.dim_min(width * at, end))), type, alignment=alignment)

            return shifted
        local = b.binary("arith.muli", x, b.constant(width, b.index))
        at, _ = _inside(stage, b.binary("arith.addi", b.dim(top), local), self.cross.extent, tile.shape.across)
        w = b.bind_unique("from", b.binary("arith.divui", at, b.constant(width, b.index)))
        ranges = Ranges({l.name: l.extent for l in self.others})
        ranges.add(str(w), dims.floordiv(self.cross.extent, width))
        ev = self.stored.evaluator(stage, ranges, width)

        def whole(position: Dim) -> ir.Value:
            ev.ranges.add(str(position), self.last.extent)
            return ev.load_at(buffer, ev.ranges.simplify(tile.rest + ev.flat(w) + tile.step * position))

        return whole

    def _keep(self, stage: GpuStage, tile: Tile, row: ir.Value, x: ir.Value, value: ir.Value) -> None:
        """Write vector `x` of a row of the tile."""
        b = stage.b
        assert tile.room is not None
        at = b.binary("arith.addi", tile.place(b, row), b.binary("arith.muli", x, b.constant(tile.vector, b.index)))
        if tile.vector == 1:
            b.op("memref.store", (value, tile.room, at))
            return
        alignment = ir.IntegerAttr.get(b.i64, tile.vector * element_bytes(tile.element))
        b.op("vector.store", (value, tile.room, at), attributes={"alignment": alignment})

    def store(self, stage: GpuStage, tiles: list[Tile], width: int, top: Dim, left: ir.Value) -> None:
        """Write the results, `width` lanes along the last loop at a time."""
        b, shape, last = stage.b, tiles[0].shape, self.last
        lanes = shape.along // width
        x = b.binary("arith.remui", stage.thread(), b.constant(lanes, b.index))
        y = b.binary("arith.divui", stage.thread(), b.constant(lanes, b.index))
        column = b.binary("arith.muli", x, b.constant(width, b.index))
        at, fits = _inside(stage, b.binary("arith.addi", left, column), last.extent, shape.along)
        w = b.bind("w", b.binary("arith.divui", at, b.constant(width, b.index)))
        ranges = Ranges({l.name: l.extent for l in self.others})
        ranges.add("w", dims.floordiv(last.extent, width))
        ev = self.stored.evaluator(stage, ranges, width, TileValues)
        assert isinstance(ev, TileValues)
        ev.tiles = {(t.argument, t.rest): t for t in tiles}
        ev.column, ev.position, ev.top = column, ev.flat(w), top
        rows = stage.threads // lanes
        for u in range(shape.across // rows):
            ev.row = b.binary("arith.addi", y, b.constant(u * rows, b.index))
            position, ok = _inside(stage, b.binary("arith.addi", b.dim(top), ev.row), self.cross.extent, shape.across)
            self._store_row(ev, f"{self.cross.name}_{u}", position, [c for c in (ok, fits) if c is not None])

    def _store_row(self, ev: TileValues, name: str, position: ir.Value, conditions: list[ir.Value]) -> None:
        """Write this thread's vector at `position` along cross, which gets the symbol `name`, where `conditions` hold."""
        b, stage = ev.b, ev.stage
        ev.cross = name
        ev.ranges.add(name, self.cross.extent)
        index = dims.substitute(self.flat(ev.position), {self.cross.name: b.bind(name, position)})
        index = ev.ranges.simplify(index)
        made = [ev.at(v, ev.ranges.delinearize(index, self.graph.shape(v))) for v in self.values]

        def store() -> list[ir.Value]:
            for i, value in zip(self.results, made):
                ev.store(stage.outputs[i], index, value)
            return []

        if not conditions:
            store()
            return
        b.branch(conditions[0] if len(conditions) == 1 else b.value("arith.andi", conditions, b.i1), [], store)


def emit_tiles(
    kernel: GpuKernel, stored: Stored, results: list[int], space: Space, cross: Loop, tiles: list[Tile]
) -> None:
    """Write the results with these numbers, which share the loops of `space`."""
    turn = Turn(kernel.graph, stored, results, space, cross)
    width, shape = turn.width(), tiles[0].shape
    widest = max(width, *(t.vector for t in tiles))
    stage = kernel.stage(min(THREADS, shape.size // widest), (dims.product(turn.counts(shape)), 1, 1))
    top, left = turn.place(stage, shape)
    for tile in tiles:
        turn.fill(stage, tile, top, left)
    stage.barrier()
    turn.store(stage, tiles, width, top, left)
    stage.finish()


def _inside(stage: GpuStage, position: ir.Value, extent: Dim, side: int) -> tuple[ir.Value, ir.Value | None]:
    """`position`, or 0 where it is beyond the end, and the mask; no mask where the tiles divide the extent."""
    if isinstance(extent, int) and extent % side == 0:
        return position, None
    b = stage.b
    ok = b.value("arith.cmpi", (position, b.dim(extent)), b.i1, predicate=b.number(6, b.i64))
    return b.value("arith.select", (ok, position, b.constant(0, b.index)), b.index), ok
