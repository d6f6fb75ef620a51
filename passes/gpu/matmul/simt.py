"""Products without tensor cores: any dtype, any operand that the evaluator can read, any size.

A block of 16 x 16 threads computes a tile of `16 v` x `16 v` results, each thread `v` x `v` of them in registers:

    read the first tiles of A and B through the evaluator (zeros outside)
    for 16 of K at a time
      put the tiles into shared memory                                    barrier
      read the next tiles
      16 times: v elements of A, v of B, v * v multiply-adds              barrier

16-bit floats are multiplied and added in f32, everything else in its own type.
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel
from ..probe import Probe
from ..thread_values import ThreadValues, divisible
from .epilogue import Epilogue
from .problem import Product, Side

SIDE = 16  # threads along each dimension of a tile, and elements of K at a time
THREADS = SIDE * SIDE
PAD = 4  # elements between rows of a tile in shared memory
LONG = 256  # elements of K
SMALL = 132 * 64 * 64  # results up to which tiles are small: there are few of them


class SimtProduct:
    """One product as a stage of `kernel`."""

    def __init__(self, kernel: GpuKernel, product: Product):
        self.kernel, self.product = kernel, product
        results = product.batches * product.m * product.n
        self.each = (
            2 if isinstance(results, int) and results < SMALL else 4
        )  # results of a thread, along each dimension
        self.tile = SIDE * self.each
        self.rows_of_tiles = dims.ceildiv(product.m, self.tile)
        self.columns_of_tiles = dims.ceildiv(product.n, self.tile)
        blocks = self.rows_of_tiles * self.columns_of_tiles * product.batches
        self.stage = kernel.stage(THREADS, (blocks, 1, 1))
        self.b = self.stage.b
        self.stored = ir.RankedTensorType(product.root.results[0].type).element_type
        halves = str(self.stored) in ("f16", "bf16")
        self.computed = self.b.f32 if halves else self.stored
        self.is_float = isinstance(self.computed, ir.FloatType)
        # sums of sums, so that rounding errors grow with K / 16 + 16 terms, not with K
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
        pitch = self.tile + PAD
        shared = [stage.shared(self.computed, SIDE * pitch) for _ in range(2)]
        zero = b.constant(0, self.computed)

        sides = (
            (p.a, shared[0], self.tile * dims.symbol("rows"), p.m),
            (p.b, shared[1], self.tile * dims.symbol("columns"), p.n),
        )

        def read(k: Dim) -> list[ir.Value]:
            return [x for side, _, first, size in sides for x in self._read(side, first, size, k, zero)]

        def blocks(k: Dim, carried: list[ir.Value]) -> list[ir.Value]:
            sums, loaded = carried[: self.each**2], carried[self.each**2 :]
            for i, (side, buffer, _, _) in enumerate(sides):
                self._store(side, buffer, loaded[i * self.each : (i + 1) * self.each])
            stage.barrier()
            loaded = read(k + SIDE)  # under way during the products
            own = (dims.floordiv(thread, SIDE), dims.mod(thread, SIDE))
            parts = [zero] * len(sums) if self.long else sums
            for step in range(SIDE):
                x, y = (self._vector(buffer, step * pitch + self.each * place) for buffer, place in zip(shared, own))
                parts = [self._add(s, x[i // self.each], y[i % self.each]) for i, s in enumerate(parts)]
            stage.barrier()
            if self.long:
                parts = [b.value("arith.addf", pair, self.computed) for pair in zip(sums, parts)]
            return [*parts, *loaded]

        carried = b.loop_carried("k", 0, p.k, [*[zero] * self.each**2, *read(0)], blocks, step=SIDE)
        sums = carried[: self.each**2]
        self._write(sums)
        stage.finish()

    # -- tiles of operands -----------------------------------------------------------------------------------------
    def _read(self, side: Side, first: Dim, size: Dim, k: Dim, zero: ir.Value) -> list[ir.Value]:
        """This thread's elements of rows `first …` and of 16 of K from `k` on; zeros outside."""
        b, values = self.b, []
        for row, depth in self._places(side):
            r, d = b.bind_unique("r", b.dim(first + row)), b.bind_unique("d", b.dim(k + depth))

            def read(r: Dim = r, d: Dim = d) -> list[ir.Value]:
                ranges = Ranges({"batch": self.product.batches, str(r): size, str(d): self.product.k})
                return [self._wide(self._value(ThreadValues(self.stage, ranges, 1), side, r, d))]

            inside = self._inside([(r, size, self.tile), (d, self.product.k, 0)])
            assert inside is not None
            values.append(b.branch(inside, [self.computed], read, lambda: [zero])[0])
        return values

    def _store(self, side: Side, buffer: ir.Value, values: list[ir.Value]) -> None:
        """Put what `_read` gave into shared memory, as `buffer[k, row]`."""
        for (row, depth), value in zip(self._places(side), values):
            self.b.op("memref.store", (value, buffer, self.b.dim(depth * (self.tile + PAD) + row)))

    def _places(self, side: Side) -> list[tuple[Dim, Dim]]:
        """Row and depth in the tile of this thread's elements: neighbouring threads take neighbours in memory."""
        along_k, places = self._is_along_k(side), []
        for turn in range(self.each):
            number = dims.symbol("thread") + turn * THREADS
            if along_k:
                places.append((dims.floordiv(number, SIDE), dims.mod(number, SIDE)))
            else:
                places.append((dims.mod(number, self.tile), dims.floordiv(number, self.tile)))
        return places

    def _is_along_k(self, side: Side) -> bool:
        """True if neighbours in memory are neighbours along K."""
        ranges = Ranges({"batch": self.product.batches, "r": self.product.m, "d": self.product.k})
        probe = Probe(self.kernel.graph, ranges, set())
        self._value(probe, side, dims.symbol("r"), dims.symbol("d"))
        return any(dims.linear_coefficient(offset, "d") == 1 for _, offset in probe.loads)

    def _value(self, ev: ThreadValues | Probe, side: Side, row: Dim, depth: Dim) -> ir.Value:
        """The element of an operand in row `row` (of M or N) at place `depth` of K, in the block's batch."""
        return side.at(ev, dims.symbol("batch"), row, depth)

    def _inside(self, bounds: list[tuple[Dim, Dim, int]]) -> ir.Value | None:
        """True where each place is below its size; None if that is certain because tiles (0: none) are whole."""
        b, found = self.b, None
        for place, size, tile in bounds:
            if tile and isinstance(size, int) and size % tile == 0:
                continue
            less = b.value("arith.cmpi", (b.dim(place), b.dim(size)), b.i1, predicate=b.number(2, b.i64))
            found = less if found is None else b.value("arith.andi", (found, less), b.i1)
        return found

    def _vector(self, buffer: ir.Value, offset: Dim) -> list[ir.Value]:
        b = self.b
        type = ir.VectorType.get([self.each], self.computed)
        whole = b.value("vector.load", (buffer, b.dim(offset)), type)
        return [
            b.value("vector.extract", (whole,), self.computed, static_position=ir.DenseI64ArrayAttr.get([i]))
            for i in range(self.each)
        ]

    # -- values ----------------------------------------------------------------------------------------------------
    def _wide(self, value: ir.Value) -> ir.Value:
        return self.b.value("arith.extf", (value,), self.computed) if value.type != self.computed else value

    def _add(self, total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        b, type = self.b, self.computed
        if self.is_float:
            return b.value("math.fma", (x, y, total), type)
        return b.value("arith.addi", (total, b.value("arith.muli", (x, y), type)), type)

    # -- results ---------------------------------------------------------------------------------------------------
    def _write(self, sums: list[ir.Value]) -> None:
        b, p, each = self.b, self.product, self.each
        thread = dims.symbol("thread")
        row = self.tile * dims.symbol("rows") + each * dims.floordiv(thread, SIDE)
        column = self.tile * dims.symbol("columns") + each * dims.mod(thread, SIDE)
        width = each if divisible(p.n, each) else 1
        for i in range(each):
            r = b.bind_unique("r", b.dim(row + i))
            for j in range(0, each, width):
                w = b.bind_unique("w", b.dim(dims.floordiv(column + j, width)))
                values = sums[i * each + j : i * each + j + width]

                def write(values: list[ir.Value] = values, r: Dim = r, w: Dim = w) -> list[ir.Value]:
                    ranges = Ranges({"batch": p.batches, str(r): p.m, str(w): dims.floordiv(p.n, width)})
                    ev = ThreadValues(self.stage, ranges, width)
                    value = self._result(ev, values, r, w)
                    Epilogue(self.stage, p).write(ev, dims.symbol("batch"), r, w, value)
                    return []

                inside = self._inside([(r, p.m, self.tile), (w, dims.floordiv(p.n, width), self.tile // width)])
                if inside is None:
                    write()
                else:
                    b.branch(inside, [], write)

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
