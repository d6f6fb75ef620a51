"""Products by the matrix instructions of waves: tiles in shared memory, fragments and the epilogue in registers.

A block computes `rows` x `columns` of the result, its waves parts of it, as 16 x 16 fragments (matrix_units):

    load tile 0, store it to buffer 0, barrier
    for t = 0 .. tiles:
        load tile t + 1 into registers               in flight during the products
        products of buffer t % 2
        store tile t + 1 to buffer (t + 1) % 2       last read before the barrier of the step before
        barrier

A result is rounded to the root's dtype, as eager rounds it, and the fused ops are evaluated on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, element_bytes
from ..probe import Probe, choose_width
from ..stored import Stored
from ..thread_values import LANE
from .epilogue import Epilogue
from .matrix_units import SIDE, Unit
from .problem import Product
from .tile_operands import TileOperand

DEPTH = 64  # bytes of K in a tile
BUSY = 96  # blocks that keep the smallest of the GPUs at work


@dataclass(frozen=True)
class Tile:
    """What a block computes, and how many waves share its rows and its columns."""

    rows: int
    columns: int
    row_waves: int
    column_waves: int


_SMALL, _MEDIUM = Tile(16, 64, 1, 4), Tile(64, 64, 2, 2)
_LARGE = {64: Tile(128, 128, 2, 2), 32: Tile(128, 128, 4, 2)}  # by the width of a wave: a lane's results fit


def choose_tile(m: Dim, n: Dim, batches: Dim, wave: int) -> Tile:
    """Large tiles where there are enough of them to keep the GPU busy."""
    if isinstance(m, int) and m <= SIDE:
        return _SMALL
    large = _LARGE[wave]
    if all(isinstance(x, int) for x in (m, n, batches)):
        blocks = dims.ceildiv(m, large.rows) * dims.ceildiv(n, large.columns) * batches
        if isinstance(blocks, int) and blocks >= BUSY:
            return large
    return _MEDIUM


class WaveProduct:
    """One product as a stage of `kernel`."""

    def __init__(self, kernel: GpuKernel, product: Product, unit: Unit):
        self.kernel, self.graph, self.product, self.unit = kernel, kernel.graph, product, unit
        self.tile = tile = choose_tile(product.m, product.n, product.batches, kernel.wave)
        self.fragments = (tile.rows // tile.row_waves // SIDE, tile.columns // tile.column_waves // SIDE)
        self.across = dims.ceildiv(product.n, tile.columns)
        grid = (self.across * dims.ceildiv(product.m, tile.rows), 1, product.batches)
        self.stage = kernel.stage(kernel.wave * tile.row_waves * tile.column_waves, grid)
        self.b = self.stage.b

    def emit(self) -> None:
        """Write the stage."""
        b, stage, tile = self.b, self.stage, self.tile
        thread, size = stage.thread(), b.constant(self.kernel.wave, b.index)
        self.lane = b.binary("arith.remui", thread, size)
        wave = b.binary("arith.divui", thread, size)
        waves = b.constant(tile.column_waves, b.index)
        part = [n * SIDE for n in self.fragments]
        self.part_row = b.binary("arith.muli", b.binary("arith.divui", wave, waves), b.constant(part[0], b.index))
        self.part_column = b.binary("arith.muli", b.binary("arith.remui", wave, waves), b.constant(part[1], b.index))
        place = b.bind("tile", stage.block())
        self.row = b.dim(dims.floordiv(place, self.across) * tile.rows)
        self.column = b.dim(dims.mod(place, self.across) * tile.columns)
        self.batch = b.bind("batch", stage.block("z"))
        self.epilogue = Epilogue(stage, self.product)
        self._store(self._products())
        stage.finish()

    def _products(self) -> list[ir.Value]:
        """The sums of all fragments, row by row."""
        b, stage, product, unit = self.b, self.stage, self.product, self.unit
        depth = DEPTH // element_bytes(ir.RankedTensorType(product.a.value.type).element_type)
        sides = []
        for side, count in ((product.a, self.tile.rows), (product.b, self.tile.columns)):
            room = stage.shared(ir.RankedTensorType(side.value.type).element_type, 2 * count * depth)
            sides.append(TileOperand(stage, product, side, count, depth, self.batch, room))
        firsts = self.row, self.column
        tiles = dims.ceildiv(product.k, depth)
        zero = b.constant(0.0, ir.VectorType.get([unit.results], b.f32))
        for side, first in zip(sides, firsts):
            side.store(side.load(first, b.constant(0, b.index)), 0)
        self._barrier()

        def step(t: Dim, sums: list[ir.Value]) -> list[ir.Value]:
            following = b.dim(dims.dim_min(t + 1, tiles - 1) * depth)  # the last step reads its tile again
            loaded = [side.load(first, following) for side, first in zip(sides, firsts)]
            self._keep_order()
            for k in range(0, depth, unit.step):
                sums = self._multiply(sides, dims.mod(t, 2), k, sums)
            self._keep_order()
            for side, vectors in zip(sides, loaded):
                side.store(vectors, side.size * dims.mod(t + 1, 2))
            self._barrier()
            return sums

        return b.loop_carried("t", 0, tiles, [zero] * (self.fragments[0] * self.fragments[1]), step)

    def _multiply(self, sides: Sequence[TileOperand], buffer: Dim, k0: int, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Add the products of `unit.step` of K from `k0` on."""
        b, unit = self.b, self.unit
        held = []
        for number, (side, first) in enumerate(zip(sides, (self.part_row, self.part_column))):
            for fragment in range(self.fragments[number]):

                def load(
                    row: ir.Value, k: ir.Value, rest: int, count: int, side=side, first=first, at=fragment
                ) -> ir.Value:
                    if side is sides[1]:
                        row = unit.column(b, row, 0, 1)
                    row = b.binary("arith.addi", row, b.constant(at * SIDE + rest, b.index))
                    k = b.binary("arith.addi", k, b.constant(k0, b.index))
                    return side.read(side.size * buffer, b.binary("arith.addi", first, row), k, count)

                held.append(unit.load(b, self.lane, load, number == 1))
        rows, columns = held[: self.fragments[0]], held[self.fragments[0] :]
        pairs = [(r, c) for r in rows for c in columns]
        return [unit.multiply(b, d, r, c) for d, (r, c) in zip(sums, pairs)]

    def _barrier(self) -> None:
        """Wait until what all waves have written to shared memory is there; loads from global memory stay under way."""
        self.b.op(self.unit.barrier, ())

    def _keep_order(self) -> None:
        """Let the scheduler move nothing across: it would wait for the loads between the first products."""
        if self.unit.barrier == "amdgpu.lds_barrier":  # an AMD GPU
            opts = self.b.attribute("#amdgpu.sched_barrier_opt<none>")
            self.b.op("amdgpu.sched_barrier", (), attributes={"opts": opts})

    # -- epilogue --------------------------------------------------------------------------------------------------
    def _store(self, sums: Sequence[ir.Value]) -> None:
        """Write the results that are made of the sums of all fragments."""
        width = self._width()
        ev = Stored().evaluator(self.stage, Ranges({"batch": self.product.batches}), width)
        for number, value in enumerate(sums):
            i, j = divmod(number, self.fragments[1])
            value = self.unit.in_order(self.b, self.lane, value)
            for first in range(0, self.unit.results, width):
                self._piece(ev, value, i, j, first, width)

    def _width(self) -> int:
        """Neighbouring columns that a lane writes at once."""
        product, graph = self.product, self.graph

        def probe(width: int) -> Probe:
            ranges = Ranges(
                {"batch": product.batches, "m": product.m, "w": dims.floordiv(product.n, width), LANE: width}
            )
            column = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            accesses = Probe(graph, ranges, {product.root.results[0]})
            flat = self._flat(dims.symbol("m"), column)
            for value in graph.results:
                accesses.at(value, ranges.delinearize(flat, graph.shape(value)))
            if product.bias is not None:
                accesses.at(product.bias, [column])
            return accesses

        n = product.n
        width = choose_width(graph.results, probe, lambda w: isinstance(n, int) and n % w == 0)
        return min(width, self.unit.results)

    def _flat(self, m: Dim, n: Dim) -> Dim:
        return (dims.symbol("batch") * self.product.m + m) * self.product.n + n

    def _piece(self, ev, sums: ir.Value, i: int, j: int, first: int, width: int) -> None:  # type: ignore[no-untyped-def]
        """Results `first .. first + width` of a lane in fragment (i, j)."""
        b, product, unit = self.b, self.product, self.unit
        inner, right = unit.place(b, self.lane)
        right = b.binary("arith.addi", right, b.constant(first, b.index))
        m = self._position(self.row, self.part_row, i, inner)
        n = self._position(self.column, self.part_column, j, right)
        b.fresh += 1
        names = f"m{b.fresh}", f"w{b.fresh}"
        row = b.bind(names[0], m)
        vector = b.bind(names[1], b.binary("arith.divui", n, b.constant(width, b.index)))
        ev.ranges.add(names[0], product.m)
        ev.ranges.add(names[1], dims.floordiv(product.n, width))

        def store() -> list[ir.Value]:
            root = self._root(ev, sums, first, width, ev.flat(vector))
            self.epilogue.write(ev, dims.symbol("batch"), row, vector, root)
            return []

        masks = [
            b.value("arith.cmpi", (at, b.dim(end)), b.i1, predicate=b.number(6, b.i64))
            for at, end, tile in ((m, product.m, self.tile.rows), (n, product.n, self.tile.columns))
            if not (isinstance(end, int) and end % tile == 0)
        ]
        if not masks:
            store()
            return
        b.branch(masks[0] if len(masks) == 1 else b.value("arith.andi", masks, b.i1), [], store)

    def _position(self, tile: ir.Value, part: ir.Value, fragment: int, inside: ir.Value) -> ir.Value:
        b = self.b
        at = b.binary("arith.addi", b.binary("arith.addi", tile, part), b.constant(fragment * SIDE, b.index))
        return b.binary("arith.addi", at, inside)

    def _root(self, ev, sums: ir.Value, first: int, width: int, column: Dim) -> ir.Value:  # type: ignore[no-untyped-def]
        """The root's elements: sums and bias, rounded."""
        b = self.b
        lanes = [
            b.value("vector.extract", (sums,), b.f32, static_position=ir.DenseI64ArrayAttr.get([first + k]))
            for k in range(width)
        ]
        type: ir.Type = b.f32 if width == 1 else ir.VectorType.get([width], b.f32)
        total = lanes[0] if width == 1 else b.value("vector.from_elements", lanes, type)
        element = ir.RankedTensorType(self.product.root.results[0].type).element_type
        if self.product.bias is not None:
            bias = ev.vector(ev.at(self.product.bias, [column]))
            bias = bias if element == b.f32 else b.value("arith.extf", (bias,), type)
            total = b.value("arith.addf", (total, bias), type)
        if element == b.f32:
            return total
        narrow = element if width == 1 else ir.VectorType.get([width], element)
        return b.value("arith.truncf", (total,), narrow)
