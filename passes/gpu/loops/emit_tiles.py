"""Stages for results that read some operand across their rows, such as a transpose: tiles through shared memory.

A block takes `across` positions of the loop `cross`, along which the operand is contiguous, by `along` positions of the
loop `last`, along which the results are. Both global accesses then run along memory; the turn is made in shared memory:

    load   x[.. + last * s + cross]   vectors along cross  ->  tile[last][cross]      turned_tile.py
    barrier
    store  y[.. + cross * m + last]   vectors along last   <-  tile[last][cross]      tile_stores.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ...loops.loop_nest import Loop, Space
from ..gpu_kernel import GpuKernel, element_bytes
from ..lane_places import LANE, divisible
from ..probe import Probe, choose_width
from ..unaligned_loads import MANY_PARTS, VECTOR_BYTES
from .stored import Stored
from .tile_stores import RunStores, ShiftedStores, TileStores
from .turned_tile import Block, Shape, Tile, fill

SIDE = 64
SMALL_SIDE = 32  # where larger tiles would be too few
ENOUGH_TILES = 264  # two for each of 132 multiprocessors
THREADS, MORE_THREADS = 256, 512  # more where the results' rows begin anywhere
SHARED = 48 * 1024  # bytes without asking for more
SHORTEST = 8  # a loop of fewer elements makes tiles that are mostly empty


def find_cross(space: Space, accesses: Probe, aligned: bool) -> tuple[Loop, list[Tile]] | None:
    """The loop to cut into tiles with the last one, and the operands to turn; None where plain threads do as well.

    `aligned`: the machine loads vectors from multiples of their size only.
    """
    loops = space.loops
    if len(loops) < 2 or accesses.reductions or accesses.branches or _short(loops[-1]):
        return None
    last = loops[-1].name
    for loop in reversed(loops[:-1]):
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
            tile = Tile(argument, step, rest)  # type: ignore[arg-type]
            tile.vector, tile.shifts = _loads(tile, loop, dims.product(accesses.graph.shape(argument)), aligned)
            tiles[argument, offset] = tile
        found = list(tiles.values())
        if found and not _short(loop) and _room(found, Shape(SIDE, SIDE)) <= SHARED:
            return loop, found
    return None


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
    shifts = aligned and whole // width >= MANY_PARTS and isinstance(count, int) and count >= whole
    return (whole, True) if shifts else (width, False)


def _side(extent: Dim, most: int) -> int:
    """The power of two that holds a loop, at most `most`."""
    while isinstance(extent, int) and most // 2 >= max(extent, SHORTEST):
        most //= 2
    return most


def _room(tiles: Sequence[Tile], shape: Shape) -> int:
    """Bytes of shared memory of the tiles, which get this shape."""
    for tile in tiles:
        tile.shape = shape
    return sum(t.size * element_bytes(t.element) for t in tiles)


class Turn:
    """Results that share the loops of `space`, of which `cross` and the last are cut into tiles."""

    def __init__(
        self, kernel: GpuKernel, stored: Stored, results: list[int], space: Space, cross: Loop, tiles: list[Tile]
    ):
        self.kernel, self.stored, self.results, self.space = kernel, stored, results, space
        self.cross, self.last, self.tiles = cross, space.loops[-1], tiles
        self.others = [l for l in space.loops if l.name not in (cross.name, self.last.name)]
        extent = self.last.extent
        self.width = self._width(lambda w: isinstance(extent, int) and extent % w == 0)
        wide = self._width(lambda w: isinstance(extent, int), anywhere=True)
        self.runs = wide // self.width >= MANY_PARTS and self._are_runs(wide)
        # the results' rows begin anywhere
        self.shifts = kernel.aligned and wide // self.width >= MANY_PARTS and not self.runs
        if self.shifts or self.runs:
            self.width = wide
        self.shape = self._shape()
        # with shifts the blocks' rows overlap by a vector, so that each can begin where it is aligned
        self.advance, self.before = (self.shape.along - wide, wide - 1) if self.shifts else (self.shape.along, 0)

    def flat(self, position: Dim) -> Dim:
        """The place in a result of `position` of the last loop."""
        return dims.substitute(self.space.values["f"], {self.last.name: position})

    def _width(self, fits: Callable[[int], bool], anywhere: bool = False) -> int:
        """The lanes of the stores, which are whole vectors of the last loop or begin `anywhere`."""
        graph = self.kernel.graph
        values = [graph.results[i] for i in self.results]

        def probe(width: int) -> Probe:
            ranges = Ranges({l.name: l.extent for l in [*self.others, self.cross]})
            ranges.add(LANE, width)
            ends = self.last.extent - width + 1 if anywhere else dims.floordiv(self.last.extent, width)
            first = ranges.add("w", ends) if anywhere else width * ranges.add("w", ends)
            position = first + (dims.symbol(LANE) if width > 1 else 0)
            accesses = Probe(graph, ranges, self.stored.values)
            for v in values:
                accesses.at(v, ranges.delinearize(ranges.simplify(self.flat(position)), graph.shape(v)))
            turned = self._turned(ranges, position)
            accesses.loads = [load for load in accesses.loads if load not in turned]  # the tile has them, in any order
            return accesses

        return choose_width(values, probe, fits)

    def _are_runs(self, width: int) -> bool:
        """True if a tile makes short rows that follow one another in the results, of turned operands alone.

        Their elements are stored as one run, of whole vectors whatever the rows' length is.
        """
        cross, last, flat = self.cross, self.last, self.space.values["f"]
        if not isinstance(last.extent, int) or not width <= last.extent <= SIDE:
            return False
        if dims.linear_coefficient(flat, cross.name) != last.extent or dims.linear_coefficient(flat, last.name) != 1:
            return False
        begin = dims.substitute(flat, {cross.name: 0, last.name: 0})
        if not divisible(begin, width) or not divisible(cross.extent * last.extent, width):
            return False
        graph = self.kernel.graph
        probe = Probe(graph, Ranges({l.name: l.extent for l in self.space.loops}), self.stored.values)
        for i in self.results:
            value = graph.results[i]
            probe.at(value, probe.ranges.delinearize(flat, graph.shape(value)))
        return set(probe.loads) <= self._turned(probe.ranges, last.variable)

    def _turned(self, ranges: Ranges, position: Dim) -> set[tuple[ir.Value, Dim]]:
        """What is read of the tiles' operands at `position` of the last loop."""
        return {(t.argument, ranges.simplify(t.rest + self.cross.variable + t.step * position)) for t in self.tiles}

    def _shape(self) -> Shape:
        """The shape of tiles, which they get: longer where rows begin anywhere, so that their ends count less.

        Not in both directions where both begin anywhere: bf16 of odd rows to odd rows took 37.8 µs, 40.1 in tiles of 128 x 128.
        """
        cross, last = self.cross.extent, self.last.extent
        counts = [*(l.extent for l in self.others), dims.ceildiv(cross, SIDE), dims.ceildiv(last, SIDE)]
        count = dims.product(counts)
        if isinstance(count, int) and count < ENOUGH_TILES:
            shape = Shape(SMALL_SIDE, _side(last, SIDE) if self.runs else SMALL_SIDE)
        else:
            wide = not self.shifts and any(t.shifts for t in self.tiles)
            across, along = _side(cross, SIDE * (1 + wide)), _side(last, SIDE * (1 + self.shifts))
            # a short loop is in one tile, which has more of the other one
            shape = Shape(
                max(across, _side(cross, SIDE * SIDE // along)), max(along, _side(last, SIDE * SIDE // across))
            )
        if _room(self.tiles, shape) > SHARED:
            shape = Shape(_side(cross, SIDE), _side(last, SIDE))
            _room(self.tiles, shape)
        return shape

    def emit(self) -> None:
        """Write the stage."""
        shape, extent = self.shape, self.last.extent
        along = dims.ceildiv(extent + self.before, self.advance)
        counts = [*(l.extent for l in self.others), dims.ceildiv(self.cross.extent, shape.across), along]
        widest = max(self.width, *(t.vector for t in self.tiles))
        threads = min(MORE_THREADS if self.shifts else THREADS, shape.across * shape.along // widest)
        stage = self.kernel.stage(threads, (dims.product(counts), 1, 1))
        b = stage.b
        place = Ranges({"block": dims.product(counts)}).delinearize(b.bind("block", stage.block()), counts)
        for loop, position in zip(self.others, place):
            b.bind(loop.name, b.dim(position))
        top = b.bind("top", b.dim(place[-2] * shape.across))
        left = b.bind("left", b.dim(place[-1] * self.advance - self.before))
        covered = {
            l.name: isinstance(l.extent, int) and l.extent % n == 0
            for l, n in ((self.cross, shape.across), (self.last, self.advance))
        }
        covered[self.last.name] &= not self.shifts
        block = Block(stage, self.stored, self.others, self.cross, self.last, top, left, covered)
        for tile in self.tiles:
            fill(block, tile)
        stage.barrier()
        stores = ShiftedStores if self.shifts else RunStores if self.runs else TileStores
        stores(block, self.flat, self.results, self.tiles, self.width).store()
        stage.finish()
