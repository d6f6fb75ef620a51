"""Stages of an `index_put` or `scatter` that adds rows (an embedding's gradient, `index_add`): sorted by row, then summed.

    number   key[t] = row * T + t                  of each update t of T; rows out of range come last
    sort     tiles of TILE keys in order:  tile[how many of its keys are less] = key, by comparing all with all
    merge    order[how many keys of each tile are less] = key, by a search in each tile
    sum      a block has CHUNK keys in order: of rows that are all in there y = x + sum, of others a part (`sorted_sums`)
    join     where a row begins in a chunk and goes on in the next:  y = x + parts, in order

Sums are in f32 or wider, rounded once; every order is fixed, and no element is written by two threads.
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.families.scatter import scatters_rows, sorts_rows
from ....dialects.mlir_ops import attributes_of
from ....dialects.record import TensorType
from ....dialects.status import GATHER_OUT_OF_RANGE, INDEX_OUT_OF_RANGE
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import TensorGraph
from ..gpu_kernel import GpuKernel
from ..lane_places import LANE
from ..probe import Probe, choose_width
from ..thread_values import ThreadValues
from .copy_operand import copy_operand
from .sorted_sums import CHUNK, SortedSums
from .write_updates import aligned, checked_place

THREADS, LANES = 256, 32
TILE = 1024  # keys that are compared with each other; a power of two
SEARCHES = 16  # at most, in tiles, of a thread at once: each waits for one load after the other
SLICES, KEYS = THREADS // LANES, 4  # of all keys, that threads compare with theirs, and how many at once


def adds_rows(graph: TensorGraph, root: ir.Operation) -> bool:
    """True if `root` is an `index_put`, or a `scatter` of whole rows, of sizes and types that these stages are for."""
    type_of = lambda v: TensorType(str(ir.RankedTensorType(v.type).element_type), graph.shape(v))
    if root.name == "lamina.scatter":
        x, index = map(type_of, root.operands[:2])
        return scatters_rows(x, index, attributes_of(root)) and is_of_rows(graph, root.operands[1])
    if root.name != "lamina.index_put":
        return False
    x, _, *indices = map(type_of, root.operands)
    return sorts_rows(x, indices, tuple(ir.DenseI64ArrayAttr(root.attributes["dims"])))


def is_of_rows(graph: TensorGraph, index: ir.Value) -> bool:
    """True if `index` has one element for each row: it is read at the same place along all dims but the first."""
    names = [f"i{d}" for d in range(len(graph.shape(index)))]
    probe = Probe(graph, Ranges(dict(zip(names, graph.shape(index)))), set())
    probe.at(index, [dims.symbol(n) for n in names])
    return all(not dims.symbols(e) & set(names[1:]) for e in probe.expressions())


class AddedRows:
    """The additions of `root` in `kernel`, which `adds_rows` holds for."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.graph = kernel, kernel.graph
        self.scatters = root.name == "lamina.scatter"
        self.x, *others = root.operands
        self.index, self.value = others if self.scatters else reversed(others)
        shape = self.graph.shape(self.index)
        self.updates = shape[:1] if self.scatters else shape
        self.check = INDEX_OUT_OF_RANGE
        if self.scatters and not ir.BoolAttr(root.attributes["index_error"]).value:
            self.check = GATHER_OUT_OF_RANGE
        self.shape = self.graph.shape(self.x)
        sizes = self.shape[0], dims.product(self.shape[1:]), dims.product(self.updates)
        self.rows, self.columns, self.count = (n for n in sizes if isinstance(n, int))
        whole = TILE if self.count > TILE else CHUNK
        self.padded = whole * -(-self.count // whole)
        self.tile = min(self.padded, TILE)
        small = self.rows * self.count + self.padded < 1 << 31
        self.word = ir.IntegerType.get_signless(32 if small else 64)

    def emit(self) -> None:
        """Write the stages."""
        copy_operand(self.kernel, self.x)
        if self.count * self.columns == 0:
            return
        if self.word.width == 64:
            self.kernel.index_bits = 64
        self.keys, self.tiles = (self.kernel.new_scratch(self.word, self.padded) for _ in range(2))
        self._number()
        self._sort()
        self.order = self.tiles
        if self.padded > self.tile:
            self.order = self.keys
            self._merge()
        sums = SortedSums(self, self._width())
        sums.emit_sums()
        sums.emit_joins()

    def source_index(self, t: tuple[dims.Dim, ...], rest: tuple[dims.Dim, ...]) -> tuple[dims.Dim, ...]:
        """Where the value has column `rest` of update `t`."""
        return aligned((*t, *rest), self.graph.shape(self.value))

    def _number(self) -> None:
        """The key of each update; those that fill the last tile have rows out of range, too."""
        stage = self.kernel.stage(THREADS, (dims.ceildiv(self.padded, THREADS), 1, 1))
        b = stage.b
        t = b.bind("t", stage.global_thread())

        def key() -> list[ir.Value]:
            ev = ThreadValues(stage, Ranges({"t": self.count}), 1)
            place = tuple(ev.ranges.delinearize(t, self.updates))
            index = ev.at(self.index, (*place, *(0 for _ in self.shape[1:])) if self.scatters else place)
            place, ok = checked_place(ev, index, self.rows, not self.scatters, self.check)
            row = b.select(ok, place, self.rows)
            return [b.dim(b.bind_unique("row", row) * self.count + t)]

        def write() -> list[ir.Value]:
            beyond = lambda: [b.dim(t + self.rows * self.count)]
            (made,) = b.branch(b.compare("slt", t, self.count), [b.index], key, beyond)
            made = b.value("arith.index_cast", (made,), self.word)
            b.op("memref.store", (made, stage.scratch[self.keys], b.dim(t)))
            return []

        b.branch(b.compare("slt", t, self.padded), [], write)
        stage.finish()

    def _sort(self) -> None:
        """Each lane of a block has a key; each of its waves counts which of a part of the tile's keys are less."""
        stage = self.kernel.stage(THREADS, (self.padded // LANES, 1, 1))
        b, keys = stage.b, stage.scratch[self.keys]
        thread = b.bind("thread", stage.thread())
        lane, part = (b.bind(n, b.dim(f(thread, LANES))) for n, f in (("lane", dims.mod), ("part", dims.floordiv)))
        at = b.bind("block", stage.block()) * LANES
        first = b.bind("first", b.dim(dims.floordiv(at, self.tile) * self.tile))  # of the tile
        mine = b.value("memref.load", (keys, b.dim(at + lane)), self.word)
        several, counts = ir.VectorType.get([KEYS], self.word), ir.VectorType.get([KEYS], b.i32)
        every = b.value("vector.broadcast", (mine,), several)

        def count(round: dims.Dim, carried: list[ir.Value]) -> list[ir.Value]:
            at = b.dim(first + (round * SLICES + part) * KEYS)
            others = b.value("vector.load", (keys, at), several, alignment=b.number(16, b.i64))
            is_less = b.compare("slt", others, every)
            return [b.value("arith.addi", (carried[0], b.value("arith.extui", (is_less,), counts)), counts)]

        none = b.value("arith.constant", (), counts, value=b.attribute(f"dense<0> : {counts}"))
        (found,) = b.loop_carried("round", 0, self.tile // (SLICES * KEYS), [none], count)
        room = stage.shared(b.i32, THREADS)
        total = b.value("vector.reduction", (found,), b.i32, kind=b.attribute("#vector.kind<add>"))
        b.op("memref.store", (total, room, b.dim(thread)))
        stage.barrier()

        def place() -> list[ir.Value]:
            before = b.constant(0, b.i32)
            for s in range(SLICES):
                counted = b.value("memref.load", (room, b.dim(s * LANES + lane)), b.i32)
                before = b.value("arith.addi", (before, counted), b.i32)
            place = b.bind("place", b.value("arith.index_cast", (before,), b.index))
            b.op("memref.store", (mine, stage.scratch[self.tiles], b.dim(first + place)))
            return []

        b.branch(b.compare("slt", thread, LANES), [], place)
        stage.finish()

    def _merge(self) -> None:
        """Each thread has a key, and searches its place in all tiles."""
        stage = self.kernel.stage(THREADS, (self.padded // THREADS, 1, 1))
        b, tiles = stage.b, stage.scratch[self.tiles]
        t = b.bind("t", stage.global_thread())
        mine = b.value("memref.load", (tiles, b.dim(t)), self.word)

        count = self.padded // TILE
        searches = min(SEARCHES, count)

        def search(group: dims.Dim, carried: list[ir.Value]) -> list[ir.Value]:
            numbers = [group * searches + u for u in range(searches)]
            begins = [b.bind_unique("begin", b.dim(dims.dim_min(n, count - 1) * TILE)) for n in numbers]
            places: list[dims.Dim] = [0] * searches
            for step in (*(TILE >> k for k in range(1, TILE.bit_length())), 1):  # the last one may find all to be less
                offsets = [b.dim(begin + place + (step - 1)) for begin, place in zip(begins, places)]
                others = [b.value("memref.load", (tiles, at), self.word) for at in offsets]
                for u, other in enumerate(others):
                    further = b.bind_unique("further", b.select(b.compare("slt", other, mine), step, 0))
                    places[u] = b.bind_unique("place", b.dim(places[u] + further))
            found = b.bind_unique("found", carried[0])
            for number, place in zip(numbers, places):
                exists = b.select(b.compare("slt", number, count), place, 0)
                found = found + b.bind_unique("less", exists)
            return [b.dim(found)]

        (found,) = b.loop_carried("group", 0, dims.ceildiv(count, searches), [b.dim(0)], search)
        b.op("memref.store", (mine, stage.scratch[self.keys], found))
        stage.finish()

    def _width(self) -> int:
        """Neighbouring columns that a thread sums."""

        def probe(width: int) -> Probe:
            ranges = Ranges({"w": self.columns // width, LANE: width})
            flat = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            accesses = Probe(self.graph, ranges, set())
            t = tuple(dims.symbol(f"t{k}") for k in range(len(self.updates)))
            accesses.at(self.value, self.source_index(t, tuple(ranges.delinearize(flat, self.shape[1:]))))
            return accesses

        return choose_width([self.x], probe, lambda width: self.columns % width == 0)
