"""Stages of `topk` of long rows (of the words that a language model may choose): chunks of them, then what is left of these.

    stage s:  a warp has 512 entries, 16 a lane, order and position as one number (`passes/direct/keys.py`): runs of KEPT in order,
              of which the least KEPT of two are kept until one run is left (`bitonic`); so are the runs of a block's warps
    last:     one block a row has all that is left; its first k entries say where values are

KEPT is the power of two from k on. No step depends on values: ties are broken by position, and any row takes the same time.
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim, Expr
from ....dialects.families.sorting import takes_long_rows
from ....dialects.mlir_ops import attributes_of
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import TensorGraph
from ..gpu_kernel import GpuKernel
from ..thread_values import ThreadValues
from .bitonic import WARP, Bitonic
from .row_entries import NONE, RowEntries, operand_type

HELD = 16  # entries of a lane
THREADS = 256
LEAST_KEPT = WARP


def takes_long(graph: TensorGraph, root: ir.Operation) -> bool:
    """True if `root` is a `topk` of sizes and a type that these stages are for."""
    return root.name == "lamina.topk" and takes_long_rows(operand_type(graph, root), attributes_of(root))


class TopLongRows:
    """The first `k` entries of rows, as stages of `kernel`, which `takes_long` holds for."""

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.root = kernel, root
        attributes = attributes_of(root)
        self.count, self.largest = attributes["k"], bool(attributes["largest"])
        self.kept = max(LEAST_KEPT, 1 << (self.count - 1).bit_length())
        self.type = operand_type(kernel.graph, root)
        *front, length = self.type.shape
        assert isinstance(length, int)
        self.length, self.rows = length, dims.product(front)
        self.word = ir.IntegerType.get_signless(64)

    def emit(self) -> None:
        """Write the stages."""
        left, found = self.length, -1  # entries of a row, and the scratch that has them; first the row itself
        while True:
            threads = min(THREADS, max(WARP, 1 << (-(-left // HELD) - 1).bit_length()))
            chunks = -(-left // (threads * HELD))
            to = self.kernel.new_scratch(self.word, self.rows * chunks * self.kept) if chunks > 1 else -1
            self._stage(threads, chunks, left, found, to)
            if chunks == 1:
                return
            left, found = chunks * self.kept, to

    def _stage(self, threads: int, chunks: int, left: int, found: int, to: int) -> None:
        """Keep the least entries of each chunk of the `left` ones of a row."""
        stage = self.stage = self.kernel.stage(threads, (self.rows * chunks, 1, 1))
        b = self.b = stage.b
        block, thread = b.bind("block", stage.block()), b.bind("thread", stage.thread())
        row, chunk = (b.bind(n, b.dim(f(block, chunks))) for n, f in (("row", dims.floordiv), ("chunk", dims.mod)))
        self.ev = ThreadValues(stage, Ranges({"row": self.rows}), 1)
        self.entries = RowEntries(self.ev, self.kernel.graph, self.root, row)
        self.lane = b.bind("lane", b.dim(dims.mod(thread, WARP)))
        self.warp = b.bind("warp", b.dim(dims.floordiv(thread, WARP)))
        self.network = Bitonic(b, b.dim(self.lane))
        first = chunk * (threads * HELD) + thread
        none = b.constant(NONE, self.word)

        def entry(at: Expr) -> list[ir.Value]:
            if found < 0:
                return [self.entries.entry(at)]
            return [b.value("memref.load", (stage.scratch[found], b.dim(row * left + at)), self.word)]

        held: list[ir.Value] = []
        for r in range(HELD):
            at = b.bind_unique("at", b.dim(first + r * threads))
            held += b.branch(b.compare("slt", at, left), [self.word], lambda at=at: entry(at), lambda: [none])
        held = self.network.merge(self.network.sort(held, self.kept), self.kept, WARP * HELD)
        room = self._share(held, threads // WARP)
        end = self.count if to < 0 else self.kept
        for j in range(-(-end // threads)):
            at = b.bind_unique("result", b.dim(thread + j * threads))

            def store(at: Dim = at) -> list[ir.Value]:
                made = b.value("memref.load", (room, b.dim(at)), self.word)
                if to < 0:
                    return self.entries.store(made, row * self.count + at)
                b.op("memref.store", (made, stage.scratch[to], b.dim(block * self.kept + at)))
                return []

            b.branch(b.compare("slt", at, end), [], store)
        stage.finish()

    def _share(self, held: list[ir.Value], warps: int) -> ir.Value:
        """The least entries of all warps in order, in shared memory."""
        b, kept = self.b, self.kept
        while True:
            room = self.stage.shared(self.word, warps * kept)
            is_mine = b.compare("slt", self.lane, max(1, kept // HELD))
            is_mine = b.all_of([is_mine, b.compare("slt", self.warp, warps)])
            places = [b.dim(self.warp * kept + self.lane * HELD + r) for r in range(HELD)]

            def put(
                room: ir.Value = room, held: list[ir.Value] = held, places: list[ir.Value] = places
            ) -> list[ir.Value]:
                for value, at in zip(held, places):
                    b.op("memref.store", (value, room, at))
                return []

            b.branch(is_mine, [], put)
            self.stage.barrier()
            if warps == 1:
                return room
            held, warps = self._merged(room, warps * kept)

    def _merged(self, room: ir.Value, count: int) -> tuple[list[ir.Value], int]:
        """What `count` shared entries in runs leave in the first warps, and how many these are."""
        b, slots = self.b, min(count, WARP * HELD)
        warps = count // slots
        # a lane without entries of its own has those of another, so that all take part in shuffles
        first = b.bind_unique("shared", b.dim(self.warp * slots + dims.mod(self.lane * HELD, slots)))
        types = [self.word] * HELD

        def merge() -> list[ir.Value]:
            read = [b.value("memref.load", (room, b.dim(first + r)), self.word) for r in range(HELD)]
            return self.network.merge(read, self.kept, slots)

        none = b.constant(NONE, self.word)
        return b.branch(b.compare("slt", self.warp, warps), types, merge, lambda: [none] * HELD), warps
