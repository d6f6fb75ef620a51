"""Products without tensor cores: any dtype, any operand that the evaluator can read, any size.

A block of 256 threads computes a tile of `tile` x `tile` results, each thread 4 x 4 of them in registers. Of few results
tiles are small, and four *slices* of 64 threads share K: each adds its quarter of what is in shared memory.

    read the first tiles of A and B through the evaluator (zeros outside)
    for `depth` of K at a time
      put the tiles into shared memory, K by rows                         barrier
      read the next tiles
      4 elements of A, 4 of B, 16 multiply-adds for each k of the slice   barrier
    add the slices' sums, always in the same order

16-bit floats are multiplied and added in f32, everything else in its own type.
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, element_bytes
from ..lane_places import divisible
from ..probe import Probe
from ..thread_values import ThreadValues
from .outputs import Outputs
from .problem import Product, Side

THREADS = 256
EACH = 4  # results of a thread, along each dimension
SUMS = EACH * EACH
PAD = 4  # elements between rows of a tile in shared memory
LONG = 256  # elements of K
SMALL = 132 * 64 * 64  # results up to which tiles are small: there are few of them
SLICES = 4  # of K, in a block with a small tile
LINE = 16  # bytes that a thread reads at once


class SimtProduct:
    """One product as a stage of `kernel`."""

    def __init__(self, kernel: GpuKernel, product: Product):
        self.kernel, self.product = kernel, product
        results = product.batches * product.m * product.n
        self.slices = SLICES if isinstance(results, int) and results < SMALL else 1
        self.side = 16 if self.slices == 1 else 8  # threads along each dimension of a tile
        self.slice_threads = self.side * self.side
        self.tile = self.side * EACH
        self.depth = 32 if self.slices == 1 else 64  # elements of K at a time
        self.rows_of_tiles = dims.ceildiv(product.m, self.tile)
        self.columns_of_tiles = dims.ceildiv(product.n, self.tile)
        blocks = self.rows_of_tiles * self.columns_of_tiles * product.batches
        self.stage = kernel.stage(THREADS, (blocks, 1, 1))
        self.b = self.stage.b
        self.stored = ir.RankedTensorType(product.root.results[0].type).element_type
        halves = str(self.stored) in ("f16", "bf16")
        self.computed = self.b.f32 if halves else self.stored
        self.is_float = isinstance(self.computed, ir.FloatType)
        # sums of sums, so that rounding errors grow with K / depth + depth terms, not with K
        self.long = self.is_float and not (isinstance(product.k, int) and product.k < LONG)

    def emit(self) -> None:
        """Write the stage."""
        b, p, stage = self.b, self.product, self.stage
        b.bind("thread", stage.thread())
        b.bind("block", stage.block())
        block, thread = dims.symbol("block"), dims.symbol("thread")
        tiles = self.rows_of_tiles * self.columns_of_tiles
        b.bind("batch", b.dim(0 if p.batches == 1 else dims.floordiv(block, tiles)))
        inside = block if p.batches == 1 else dims.mod(block, tiles)
        b.bind("rows", b.dim(dims.floordiv(inside, self.columns_of_tiles)))
        b.bind("columns", b.dim(dims.mod(inside, self.columns_of_tiles)))
        b.bind("slice", b.dim(dims.floordiv(thread, self.slice_threads)))
        b.bind("own", b.dim(dims.mod(thread, self.slice_threads)))
        pitch = self.tile + PAD
        shared = [stage.shared(self.computed, self.depth * pitch) for _ in range(2)]
        zero = b.constant(0, self.computed)
        sides = (
            _Tile(self, p.a, shared[0], self.tile * dims.symbol("rows"), p.m),
            _Tile(self, p.b, shared[1], self.tile * dims.symbol("columns"), p.n),
        )
        own = dims.symbol("own")
        places = (dims.floordiv(own, self.side), dims.mod(own, self.side))

        def read(k: Dim) -> list[ir.Value]:
            return [value for side in sides for value in side.read(k)]

        def blocks(k: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            sums, loaded = carried[:SUMS], carried[SUMS:]
            count = sides[0].count
            for side, values in zip(sides, (loaded[:count], loaded[count:])):
                side.store(values)
            stage.barrier()
            loaded = read(k + self.depth)  # under way during the products
            parts = [zero] * len(sums) if self.long else sums
            each = self.depth // self.slices
            for step in range(each):
                row = (each * dims.symbol("slice") + step) * pitch
                x, y = (self._vector(buffer, row + EACH * place) for buffer, place in zip(shared, places))
                parts = [self._add(s, x[i // EACH], y[i % EACH]) for i, s in enumerate(parts)]
            stage.barrier()
            if self.long:
                parts = [b.value("arith.addf", pair, self.computed) for pair in zip(sums, parts)]
            return [*parts, *loaded]

        carried = b.loop_carried("k", 0, p.k, [*[zero] * SUMS, *read(0)], blocks, step=self.depth)
        self._write(self._together(carried[:SUMS], shared[0]))
        stage.finish()

    def _together(self, sums: list[ir.Value], room: ir.Value) -> list[ir.Value]:
        """The sums of all slices, in the first one: half of the slices hand theirs to the other half, and again."""
        b, stage, slice_, own = self.b, self.stage, dims.symbol("slice"), dims.symbol("own")
        half = self.slices // 2
        while half:
            place = self.slice_threads * (slice_ - half) + own
            at = [i * half * self.slice_threads + place for i in range(SUMS)]

            def give(sums: list[ir.Value] = sums, at: list[Dim] = at) -> list[ir.Value]:
                for value, place in zip(sums, at):
                    b.op("memref.store", (value, room, b.dim(place)))
                return []

            def take(sums: list[ir.Value] = sums, at: list[Dim] = at, half: int = half) -> list[ir.Value]:
                add = "arith.addf" if self.is_float else "arith.addi"
                return [
                    b.value(add, (value, b.value("memref.load", (room, b.dim(place)), self.computed)), self.computed)
                    for value, place in zip(sums, [x + self.slice_threads * half for x in at])
                ]

            gives = [b.compare("slt", half - 1, slice_), b.compare("slt", slice_, 2 * half)]
            b.branch(b.all_of(gives), [], give)
            stage.barrier()
            sums = b.branch(b.compare("slt", slice_, half), [self.computed] * SUMS, take, lambda s=sums: s)
            stage.barrier()
            half //= 2
        return sums

    def inside(self, bounds: list[tuple[Dim, Dim, int]]) -> ir.Value | None:
        """True where each place is below its size; None if that is certain because tiles (0: none) are whole."""
        found = None
        for place, size, tile in bounds:
            if tile and isinstance(size, int) and size % tile == 0:
                continue
            below = self.b.compare("slt", place, size)
            found = below if found is None else self.b.all_of((found, below))
        return found

    def _vector(self, buffer: ir.Value, offset: Dim) -> list[ir.Value]:
        b = self.b
        type = ir.VectorType.get([EACH], self.computed)
        alignment = ir.IntegerAttr.get(b.i64, min(LINE, EACH * element_bytes(self.computed)))
        whole = b.value("vector.load", (buffer, b.dim(offset)), type, alignment=alignment)
        return b.elements(whole)

    # -- values ----------------------------------------------------------------------------------------------------
    def _add(self, total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        b, type = self.b, self.computed
        if self.is_float:
            return b.value("math.fma", (x, y, total), type)
        return b.value("arith.addi", (total, b.value("arith.muli", (x, y), type)), type)

    # -- results ---------------------------------------------------------------------------------------------------
    def _write(self, sums: list[ir.Value]) -> None:
        b, p, own = self.b, self.product, dims.symbol("own")
        row = self.tile * dims.symbol("rows") + EACH * dims.floordiv(own, self.side)
        column = self.tile * dims.symbol("columns") + EACH * dims.mod(own, self.side)
        width = EACH if divisible(p.n, EACH) else 1
        first = [b.compare("slt", dims.symbol("slice"), 1)] if self.slices > 1 else []
        for i in range(EACH):
            r = b.bind_unique("r", b.dim(row + i))
            for j in range(0, EACH, width):
                w = b.bind_unique("w", b.dim(dims.floordiv(column + j, width)))
                values = sums[i * EACH + j : i * EACH + j + width]

                def write(values: list[ir.Value] = values, r: Dim = r, w: Dim = w) -> list[ir.Value]:
                    ranges = Ranges({"batch": p.batches, str(r): p.m, str(w): dims.floordiv(p.n, width)})
                    ev = ThreadValues(self.stage, ranges, width)
                    value = self._result(ev, values, r, w)
                    Outputs(self.stage, p).write(ev, dims.symbol("batch"), r, w, value)
                    return []

                inside = self.inside([(r, p.m, self.tile), (w, dims.floordiv(p.n, width), self.tile // width)])
                b.under([*first, inside], write)

    def _result(self, ev: ThreadValues, values: list[ir.Value], r: Dim, w: Dim) -> ir.Value:
        """Sums of neighbouring columns as elements of the root, with bias."""
        b = self.b
        value = values[0]
        if len(values) > 1:
            value = b.value("vector.from_elements", values, ir.VectorType.get([len(values)], self.computed))
        like = lambda t: ir.VectorType.get([len(values)], t) if len(values) > 1 else t
        if self.product.bias is not None:
            bias = ev.vector(self.product.bias_at(ev, dims.symbol("batch"), r, ev.flat(w)))
            if self.stored != self.computed:
                bias = b.value("arith.extf", (bias,), like(self.computed))
            value = b.value("arith.addf" if self.is_float else "arith.addi", (value, bias), value.type)
        return b.value("arith.truncf", (value,), like(self.stored)) if self.stored != self.computed else value


class _Tile:
    """One side of a product on its way to shared memory: rows `first …` of `size`, `depth` of K, as `buffer[k, row]`.

    A thread reads vectors along K or along the rows, whichever are neighbours in memory.
    """

    def __init__(self, product: SimtProduct, side: Side, buffer: ir.Value, first: Dim, size: Dim):
        self.whole, self.side, self.buffer, self.first, self.size = product, side, buffer, first, size
        self.b, self.stage = product.b, product.stage
        self.element = ir.RankedTensorType(side.value.type).element_type
        self.along_k = self._is_along_k()
        inner = product.product.k if self.along_k else size
        self.width = LINE // element_bytes(self.element)
        while not (side.vectors and divisible(inner, self.width)) and self.width > 1:
            self.width //= 2
        self.width = min(self.width, 4)
        self.count = product.tile * product.depth // self.width // THREADS  # vectors of a thread

    def _is_along_k(self) -> bool:
        """True if neighbours in memory are neighbours along K."""
        product = self.whole.product
        ranges = Ranges({"batch": product.batches, "r": self.size, "d": product.k})
        probe = Probe(self.stage.kernel.graph, ranges, set())
        self.side.at(probe, dims.symbol("batch"), dims.symbol("r"), dims.symbol("d"))
        return any(dims.linear_coefficient(offset, "d") == 1 for _, offset in probe.loads)

    def _places(self) -> list[tuple[Dim, Dim]]:
        """Row and depth in the tile of this thread's vectors.

        Neighbouring threads take neighbours in memory; but vectors along K are taken in pairs, of neighbouring rows:
        side by side in memory as far as a sector, and in different banks when their elements are stored apart.
        """
        w, (tile, depth), places = self.width, (self.whole.tile, self.whole.depth), []
        for turn in range(self.count):
            number = dims.symbol("thread") + turn * THREADS
            if not self.along_k:
                across = tile // w
                places.append((w * dims.mod(number, across), dims.floordiv(number, across)))
            elif w == 1:
                places.append((dims.floordiv(number, depth), dims.mod(number, depth)))
            else:
                vector = dims.mod(number, 2) + 2 * dims.floordiv(number, 2 * tile)
                places.append((dims.mod(dims.floordiv(number, 2), tile), w * vector))
        return places

    def read(self, k: Dim) -> list[ir.Value]:
        """This thread's vectors of `depth` of K from `k` on; zeros outside."""
        b, whole, w, values = self.b, self.whole, self.width, []
        p = whole.product
        type = ir.VectorType.get([w], whole.computed) if w > 1 else whole.computed
        ends = (self.size, dims.floordiv(p.k, w)) if self.along_k else (dims.floordiv(self.size, w), p.k)
        for row, depth in self._places():
            row, depth = self.first + row, k + depth
            row, depth = (row, dims.floordiv(depth, w)) if self.along_k else (dims.floordiv(row, w), depth)
            r, d = b.bind_unique("r", b.dim(row)), b.bind_unique("d", b.dim(depth))

            def read(r: Dim = r, d: Dim = d) -> list[ir.Value]:
                ev = ThreadValues(self.stage, Ranges({"batch": p.batches, str(r): ends[0], str(d): ends[1]}), w)
                place = (r, ev.flat(d) if w > 1 else d) if self.along_k else (ev.flat(r) if w > 1 else r, d)
                value = self.side.at(ev, dims.symbol("batch"), *place)
                value = ev.vector(value) if w > 1 else value
                return [b.value("arith.extf", (value,), type) if value.type != type else value]

            tile = whole.tile if self.along_k else whole.tile // w
            inside = whole.inside([(r, ends[0], tile), (d, ends[1], 0)])
            assert inside is not None
            values.append(b.branch(inside, [type], read, lambda: [b.constant(0, type)])[0])
        return values

    def store(self, values: list[ir.Value]) -> None:
        """Put what `read` gave into shared memory."""
        b, pitch = self.b, self.whole.tile + PAD
        for (row, depth), value in zip(self._places(), values):
            at = depth * pitch + row
            if self.width == 1:
                b.op("memref.store", (value, self.buffer, b.dim(at)))
            elif self.along_k:
                for i, element in enumerate(b.elements(value)):
                    b.op("memref.store", (element, self.buffer, b.dim(at + i * pitch)))
            else:
                size = ir.IntegerAttr.get(b.i64, self.width * element_bytes(self.whole.computed))
                b.op("vector.store", (value, self.buffer, b.dim(at)), attributes={"alignment": size})
