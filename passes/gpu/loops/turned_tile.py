"""The tile of an operand that is read across its rows: how it comes from memory into shared memory, and lies there.

Rows may begin anywhere (4097 columns). Then they are read from the aligned address before on, in one vector more, and
lie in the tile with what is before them: column `c` of row `l` is element `shift(l) + c` there, where `shift` is what the
row's address leaves, divided by a vector.

Rows of the tile follow each other without gaps, but for one vector after each `V` rows: so lanes of a warp, which read
rows `V` apart, meet different banks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ...loops.loop_nest import Loop
from ...loops.loops_builder import LoopsBuilder
from ..gpu_kernel import GpuStage, element_bytes
from ..unaligned_loads import aligned_load
from .stored import Stored


@dataclass(frozen=True)
class Shape:
    """The positions of a tile: `across` of the loop `cross`, along which operands are contiguous, `along` of the last."""

    across: int
    along: int


@dataclass
class Tile:
    """An operand read across rows: `rest + cross + step * last` is the address.

    It is loaded in vectors of `vector` elements, with `shifts` from whole ones, which begin before the row.
    """

    argument: ir.Value
    step: Dim
    rest: Dim
    vector: int = 1
    shifts: bool = False
    shape: Shape = Shape(0, 0)
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


@dataclass
class Block:
    """A block's part of the loops: it begins at position `top` of `cross` and `left` of `last`.

    `covered`: tiles have no position out of these loops, by their names.
    """

    stage: GpuStage
    stored: Stored
    others: list[Loop]
    cross: Loop
    last: Loop
    top: Dim
    left: Dim
    covered: dict[str, bool]

    def inside(self, loop: Loop, position: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """`position` of a loop, or 0 where it is out of it, and the mask; no mask where none is."""
        if self.covered[loop.name]:
            return position, None
        b = self.stage.b
        ok = b.compare("ult", position, loop.extent)
        return b.select(ok, position, 0), ok

    def deal(self, lanes: int) -> tuple[ir.Value, ir.Value]:
        """This thread's place among `lanes` side by side, and its row."""
        b = self.stage.b
        count = b.constant(lanes, b.index)
        return b.binary("arith.remui", self.stage.thread(), count), b.binary("arith.divui", self.stage.thread(), count)


def fill(block: Block, tile: Tile) -> None:
    """Load a tile by vectors along `cross`, all before the first is written to shared memory."""
    b, vectors = block.stage.b, tile.shape.across // tile.vector
    tile.room = block.stage.shared(tile.element, tile.size)
    x, y = block.deal(vectors)
    load = _loader(block, tile, x)
    rows = block.stage.threads // vectors
    loaded = []
    for u in range(tile.shape.along // rows):
        row = b.binary("arith.addi", y, b.constant(u * rows, b.index))
        loaded.append((row, load(_position(block, row))))
    keep_last = _load_last(block, tile) if tile.shifts else None
    for row, value in loaded:
        _keep(b, tile, row, x, value)
    if keep_last is not None:
        keep_last()


def _load_last(block: Block, tile: Tile) -> Callable[[], Any]:
    """Load the last vectors of rows that begin anywhere, one a thread; returns what writes them to the tile."""
    b, row = block.stage.b, block.stage.thread()
    x, type = b.constant(tile.line - 1, b.index), ir.VectorType.get([tile.vector], tile.element)
    end = b.constant(tile.shape.along, b.index)
    own = b.compare("ult", row, end)

    def load() -> list[ir.Value]:
        return [_loader(block, tile, x)(_position(block, row))]

    def keep() -> list[ir.Value]:
        _keep(b, tile, row, x, value)
        return []

    value = b.branch(own, [type], load, lambda: [b.constant(0, type)])[0]
    return lambda: b.branch(own, [], keep)


def _position(block: Block, row: ir.Value) -> Dim:
    """The position along last of a row of the tile, as a symbol."""
    b = block.stage.b
    position, _ = block.inside(block.last, b.binary("arith.addi", b.dim(block.left), row))
    return b.bind_unique("row", position)


def _loader(block: Block, tile: Tile, x: ir.Value) -> Callable[[Dim], ir.Value]:
    """What loads vector `x` of the row at a position along last."""
    b, width, buffer = block.stage.b, tile.vector, block.stage.inputs[tile.argument]
    if tile.shifts:
        # a tile of one column of 4097 reads it alone: what is beyond the row's end stands at its last vector
        last = dims.floordiv(block.cross.extent - block.top + width - 2, width)
        covered = block.covered[block.cross.name]
        number = b.bind_unique("x", x if covered else b.value("arith.minsi", (x, b.dim(last)), b.index))

        def shifted(position: Dim) -> ir.Value:
            at = dims.floordiv(tile.rest + block.top + tile.step * position, width) + number
            return aligned_load(b, buffer, ir.MemRefType(buffer.type).shape[0], b.dim(width * at))

        return shifted
    local = b.binary("arith.muli", x, b.constant(width, b.index))
    at, _ = block.inside(block.cross, b.binary("arith.addi", b.dim(block.top), local))
    w = b.bind_unique("from", b.binary("arith.divui", at, b.constant(width, b.index)))
    ranges = Ranges({l.name: l.extent for l in block.others})
    ranges.add(str(w), dims.floordiv(block.cross.extent, width))
    ev = block.stored.evaluator(block.stage, ranges, width)

    def whole(position: Dim) -> ir.Value:
        ev.ranges.add(str(position), block.last.extent)
        return ev.load_at(buffer, ev.ranges.simplify(tile.rest + ev.flat(w) + tile.step * position))

    return whole


def _keep(b: LoopsBuilder, tile: Tile, row: ir.Value, x: ir.Value, value: ir.Value) -> None:
    """Write vector `x` of a row of the tile."""
    assert tile.room is not None
    at = b.binary("arith.addi", tile.place(b, row), b.binary("arith.muli", x, b.constant(tile.vector, b.index)))
    if tile.vector == 1:
        b.op("memref.store", (value, tile.room, at))
        return
    alignment = ir.IntegerAttr.get(b.i64, tile.vector * element_bytes(tile.element))
    b.op("vector.store", (value, tile.room, at), attributes={"alignment": alignment})
