"""What a stage of rows is to do: its results and reductions, its threads, and which row a thread has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ...loops.loop_nest import Loop, Space
from ...loops.tensor_graph import TensorGraph
from ..gpu_kernel import WARP, GpuStage
from ..hopper import cluster
from .joint_reductions import Joint, joint_of

WARP_ROW, WARP_VECTORS = 512, 4  # elements, or vectors for each of 32 lanes, up to which one wave takes a row
HELD_VECTORS, HELD = 4, 16  # vectors of a longer row a thread should hold; elements, where those are taken one by one
REGISTER_ROW = 32 * 1024  # the longest row that stays in registers: 32 elements in each of 1024 threads
LOOP_THREADS = 512
FEW_ROWS = 264  # up to two blocks for each of 132 multiprocessors: what counts is how soon a row is done
FEW_THREADS = 256  # so such a row has a block, whatever its length
BLOCK = 128  # threads of a block that takes several short rows
# A row that a cluster takes: 8192 losses and their targets 0.2 us sooner than one block does on an H200, 32768 1.4 us sooner than
# two stages. As many clusters as there are at once, and what their threads can load at once: 64 KB a block.
CLUSTER_ROW, CLUSTERS, CLUSTER_VECTORS = 4096, 16, 4


@dataclass
class RowPlan:
    """Results `full` with an element for each of `length` positions of each row, results `rows` with one per row.

    `flat` is the position in a full result over the variables of `outer` and `inner` loops.
    """

    space: Space
    outer: list[Loop]
    inner: list[Loop]
    length: Dim
    passes: list[list[ir.Value]]  # the reductions that the row's threads do together, by their last arguments
    full: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    @property
    def keys(self) -> list[ir.Value]:
        """The reductions of all passes."""
        return [key for keys in self.passes for key in keys]

    def joints(self, graph: TensorGraph) -> list[Joint]:
        """The reductions of each pass."""
        return [joint_of(graph, keys) for keys in self.passes]

    @property
    def count(self) -> Dim:
        """How many rows there are."""
        return dims.product(l.extent for l in self.outer)

    def substitute(self, sizes: Mapping[str, Dim]) -> RowPlan:
        """The same with symbols replaced by what is known of them."""
        outer, inner = (
            [replace(l, extent=dims.substitute(l.extent, sizes)) for l in x] for x in (self.outer, self.inner)
        )
        values = {n: dims.substitute(v, sizes) for n, v in self.space.values.items()}
        return replace(
            self,
            space=Space([*outer, *inner], values),
            outer=outer,
            inner=inner,
            length=dims.substitute(self.length, sizes),
        )

    def flat(self, ranges: Ranges, row: Dim, column: Dim) -> Dim:
        """The position in a full result of `column` of `row`."""
        values = dict(zip((l.name for l in self.outer), ranges.delinearize(row, [l.extent for l in self.outer])))
        if self.inner:
            extents = [l.extent for l in self.inner]
            values.update(zip((l.name for l in self.inner), ranges.delinearize(column, extents)))
        return ranges.simplify(dims.substitute(self.space.values["f"], values))


def threads_for(length: Dim, width: int, wave: int, count: Dim) -> tuple[int, int]:
    """Threads of each of `count` rows, and how many vectors each holds (0: more than fit into registers).

    Threads of more than a wave hold HELD_VECTORS or HELD elements, up to twice as many: with fewer, most of the time goes
    into combining what they hold.
    """
    if not isinstance(length, int) or length > REGISTER_ROW:
        return LOOP_THREADS, 0
    vectors, held = -(-length // width), HELD_VECTORS * width if width > 1 else HELD
    if length <= WARP_ROW or width > 1 and vectors <= WARP_VECTORS * WARP:
        threads = min(wave, _power_up(vectors))
    else:
        threads = min(1024, max(2 * WARP, _power_up(length // held // 2 + 1)))
    if isinstance(count, int) and count <= FEW_ROWS:
        threads = max(threads, min(FEW_THREADS, _power_up(vectors)))
    return threads, -(-vectors // threads)


def cluster_threads(count: Dim, length: Dim, width: int) -> tuple[int, int] | None:
    """Threads of each block of a cluster for each of `count` rows, and the vectors that each holds; None: clusters are no gain."""
    if not isinstance(count, int) or not isinstance(length, int) or count > CLUSTERS or length <= CLUSTER_ROW:
        return None
    least, most = cluster.THREADS
    vectors = -(-length // (width * cluster.BLOCKS))
    threads = min(most, max(least, _power_up(-(-vectors // 2))))
    held = -(-vectors // threads)
    return (threads, held) if held <= CLUSTER_VECTORS else None


def rows_per_block(threads: int, wave: int) -> int:
    """Rows of a block: several where each belongs to lanes of one wave; those of more waves meet at barriers."""
    return max(1, BLOCK // threads) if threads <= wave else 1


def _power_up(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


@dataclass
class RowForm:
    """What one branch of a stage knows of its rows: they are whole vectors of `width` elements; `shifted`: they begin
    anywhere in one; `arms`: what is stored has a branch for each place where they may.
    """

    plan: RowPlan
    graph: TensorGraph
    width: int
    shifted: bool = False
    arms: bool = False


def place(stage: GpuStage, threads: int, per_block: int, count: Dim) -> tuple[Dim, ir.Value, ir.Value | None]:
    """The row of this thread (bound to symbol `r`), its number in the row, and a mask where rows may be missing."""
    b = stage.b
    if per_block == 1:
        return b.bind("r", stage.block()), stage.thread(), None
    size = b.constant(threads, b.index)
    first = b.binary("arith.muli", stage.block(), b.constant(per_block, b.index))
    at = b.binary("arith.addi", first, b.binary("arith.divui", stage.thread(), size))
    lane = b.binary("arith.remui", stage.thread(), size)
    if isinstance(count, int) and count % per_block == 0:
        return b.bind("r", at), lane, None
    end = b.dim(count)
    inside = b.compare("ult", at, end)
    last = b.binary("arith.subi", end, b.constant(1, b.index))
    return b.bind("r", b.value("arith.minsi", (at, last), b.index)), lane, inside
