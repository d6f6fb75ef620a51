"""Stages for results that read some operand across their rows, such as a transpose: tiles through shared memory.

A block takes `side` x `side` positions of the loops `cross` (along which the operand is contiguous) and `last` (along which
the results are). Both global accesses then run along memory; the turn is made in shared memory, whose rows are padded
by a word, so that neither way of going through it meets one bank with many threads:

    load   x[.. + last * s + cross]   vectors along cross  ->  tile[cross][last]
    barrier
    store  y[.. + cross * m + last]   vectors along last   <-  tile[cross][last]
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..loops.index_algebra import Ranges
from ..loops.loop_nest import Loop, Space
from ..loops.tensor_graph import TensorGraph
from .gpu_kernel import GpuKernel, GpuStage, element_bytes
from .probe import Probe, choose_width
from .stored import Stored
from .thread_values import LANE, ThreadValues, divisible

SIDE = 64
SMALL_SIDE = 32  # where larger tiles would be too few
ENOUGH_TILES = 264  # two for each of 132 multiprocessors
THREADS = 256
SHARED = 48 * 1024  # bytes without asking for more
SHORTEST = 32  # a loop of fewer elements makes tiles that are mostly empty


@dataclass
class Tile:
    """An operand read across rows: `rest + cross + step * last` is the address."""

    argument: ir.Value
    step: Dim
    rest: Dim
    side: int
    room: ir.Value | None = None

    @property
    def pitch(self) -> int:
        """Elements from one row of the tile to the next: one 4-byte word more than `side`."""
        return self.side + max(1, 4 // element_bytes(ir.RankedTensorType(self.argument.type).element_type))


def find_cross(space: Space, accesses: Probe) -> tuple[Loop, list[Tile]] | None:
    """The loop to cut into tiles with the last one, and the operands to turn; None where plain threads do as well."""
    loops = space.loops
    if len(loops) < 2 or accesses.reductions or accesses.branches or _short(loops[-1]):
        return None
    last = loops[-1].name
    for loop in reversed(loops[:-1]):
        side = _side(loops, loop)
        tiles: dict[tuple[ir.Value, Dim], Tile] = {}
        for argument, offset in accesses.loads:
            step = dims.linear_coefficient(offset, last)
            if step in (0, 1, None) or dims.linear_coefficient(offset, loop.name) != 1:
                continue
            if dims.symbols(step) & {l.name for l in loops} if not isinstance(step, int) else False:
                continue
            if argument not in accesses.graph.inputs or not isinstance(offset, dims.Expr):
                continue
            rest = offset - loop.variable - step * loops[-1].variable  # type: ignore[operator]
            tiles[argument, offset] = Tile(argument, step, rest, side)  # type: ignore[arg-type]
        found = list(tiles.values())
        size = sum(side * t.pitch * element_bytes(ir.RankedTensorType(t.argument.type).element_type) for t in found)
        if found and not _short(loop) and size <= SHARED:
            return loop, found
    return None


def _side(loops: list[Loop], cross: Loop) -> int:
    """The side of tiles of `cross` by the last loop."""
    others = [l.extent for l in loops if l not in (cross, loops[-1])]
    count = dims.product([*others, *(dims.ceildiv(l.extent, SIDE) for l in (cross, loops[-1]))])
    return SMALL_SIDE if isinstance(count, int) and count < ENOUGH_TILES else SIDE


def _short(loop: Loop) -> bool:
    return isinstance(loop.extent, int) and loop.extent < SHORTEST


class TileValues(ThreadValues):
    """Reads the turned operands from shared memory: `row` is the place in the tile of the position along cross."""

    tiles: dict[tuple[ir.Value, Dim], Tile]
    row: ir.Value
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
        first = b.binary("arith.muli", self.row, b.constant(tile.pitch, b.index))
        first = b.binary("arith.addi", first, self.column)
        element = ir.MemRefType(tile.room.type).element_type
        lanes = [
            b.value("memref.load", (tile.room, b.binary("arith.addi", first, b.constant(k, b.index))), element)
            for k in range(self.width)
        ]
        return (
            lanes[0]
            if self.width == 1
            else b.value("vector.from_elements", lanes, ir.VectorType.get([self.width], element))
        )


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

    def counts(self, side: int) -> list[Dim]:
        """How many tiles there are along each loop: the others, cross, last."""
        return [l.extent for l in self.others] + [dims.ceildiv(l.extent, side) for l in (self.cross, self.last)]

    def place(self, stage: GpuStage, side: int) -> tuple[ir.Value, ir.Value]:
        """Where this block's tile begins, along cross and along last; binds the other loops."""
        b, counts = stage.b, self.counts(side)
        place = Ranges({"block": dims.product(counts)}).delinearize(b.bind("block", stage.block()), counts)
        for loop, position in zip(self.others, place):
            b.bind(loop.name, b.dim(position))
        top, left = (b.dim(p * side) for p in place[-2:])
        return top, left

    def fill(self, stage: GpuStage, tile: Tile, top: ir.Value, left: ir.Value) -> None:
        """Load the tile's operand by vectors along `cross` into shared memory."""
        b, side, width = stage.b, tile.side, _load_width(tile, self.cross)
        element = ir.RankedTensorType(tile.argument.type).element_type
        tile.room = stage.shared(element, side * tile.pitch)
        across = side // width
        x = b.binary("arith.remui", stage.thread(), b.constant(across, b.index))
        y = b.binary("arith.divui", stage.thread(), b.constant(across, b.index))
        local = b.binary("arith.muli", x, b.constant(width, b.index))
        at, _ = _inside(stage, b.binary("arith.addi", top, local), self.cross.extent, side)
        b.fresh += 1
        name = f"from{b.fresh}"
        w = b.bind(name, b.binary("arith.divui", at, b.constant(width, b.index)))
        ranges = Ranges({l.name: l.extent for l in self.others})
        ranges.add(name, dims.floordiv(self.cross.extent, width))
        ev = self.stored.evaluator(stage, ranges, width)
        rows = stage.threads // across
        loaded = []
        for u in range(side // rows):
            row = b.binary("arith.addi", y, b.constant(u * rows, b.index))
            position, _ = _inside(stage, b.binary("arith.addi", left, row), self.last.extent, side)
            b.bind(f"{name}_{u}", position)
            ev.ranges.add(f"{name}_{u}", self.last.extent)
            offset = ev.ranges.simplify(tile.rest + ev.flat(w) + tile.step * dims.symbol(f"{name}_{u}"))
            loaded.append((row, ev.load_at(stage.inputs[tile.argument], offset)))
        for row, value in loaded:
            for k in range(width):
                lane = value
                if width > 1:
                    position = ir.DenseI64ArrayAttr.get([k])
                    lane = b.value("vector.extract", (value,), element, static_position=position)
                at = b.binary(
                    "arith.muli", b.binary("arith.addi", local, b.constant(k, b.index)), b.constant(tile.pitch, b.index)
                )
                b.op("memref.store", (lane, tile.room, b.binary("arith.addi", at, row)))

    def store(self, stage: GpuStage, tiles: list[Tile], width: int, top: ir.Value, left: ir.Value) -> None:
        """Write the results, `width` lanes along the last loop at a time."""
        b, side, last = stage.b, tiles[0].side, self.last
        across = side // width
        x = b.binary("arith.remui", stage.thread(), b.constant(across, b.index))
        y = b.binary("arith.divui", stage.thread(), b.constant(across, b.index))
        column = b.binary("arith.muli", x, b.constant(width, b.index))
        at, fits = _inside(stage, b.binary("arith.addi", left, column), last.extent, side)
        w = b.bind("w", b.binary("arith.divui", at, b.constant(width, b.index)))
        ranges = Ranges({l.name: l.extent for l in self.others})
        ranges.add("w", dims.floordiv(last.extent, width))
        ev = self.stored.evaluator(stage, ranges, width, TileValues)
        assert isinstance(ev, TileValues)
        ev.tiles = {(t.argument, t.rest): t for t in tiles}
        ev.column, ev.position = column, ev.flat(w)
        rows = stage.threads // across
        for u in range(side // rows):
            ev.row = b.binary("arith.addi", y, b.constant(u * rows, b.index))
            position, ok = _inside(stage, b.binary("arith.addi", top, ev.row), self.cross.extent, side)
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
    width, side = turn.width(), tiles[0].side
    widest = max(width, *(_load_width(t, cross) for t in tiles))
    stage = kernel.stage(min(THREADS, side * side // widest), (dims.product(turn.counts(side)), 1, 1))
    top, left = turn.place(stage, side)
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


def _load_width(tile: Tile, cross: Loop) -> int:
    """Lanes of the loads of a tile's operand."""
    width = max(1, 16 // element_bytes(ir.RankedTensorType(tile.argument.type).element_type))
    while width > 1 and not (
        isinstance(cross.extent, int)
        and cross.extent % width == 0
        and divisible(tile.rest, width)
        and divisible(tile.step, width)
    ):
        width //= 2
    return width
