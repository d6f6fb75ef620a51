"""Decide which loops compute which results of a kernel: the plan that `emit_nests` follows.

A nest starts as one loop over the positions of a result and is split where addresses need it (`loop_nest.refine`).
Then its loops are ordered. Loops that a reduction's index depends on are the *outer* ones: what a row needs once is
computed there, once, since the evaluator hoists. If memory is contiguous along one of these and not along the reduced
dimension, as in the sum over dimension 0, `lanes` consecutive positions of it are taken at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from .evaluate_accesses import Accesses, Reduction
from .index_algebra import Ranges
from .kept_rows import KeptRow, find_kept
from .loop_nest import SMALLEST_SPLIT, Loop, Space, refine, small_split
from .next_row import rows_read_again
from .reduction_loops import is_small
from .tensor_graph import TensorGraph
from .transposed_tiles import BLOCK, crossing_loop

MOST_IN_TURN = 4  # LLVM knows how to store 2, 3 or 4 vectors so that their elements alternate
SHORT_LOOP = 32  # an innermost loop of fewer elements takes the next loop in with it
# Polynomials are chains of dependent multiply-adds, longer than the processor looks ahead: it needs other vectors beside
# (tanh takes 1.25 times as long with one vector). LLVM's own rule is to interleave short bodies only.
INTERLEAVE = 4
LANES = 32  # elements of a row that a column reduction takes at once: two cache lines of f32
# Of wide rows, where there are items for 8 threads still: half the steps from page to page, which are not prefetched.
WIDE_LANES = 64


@dataclass
class Nest:
    """Loops that write the results `full` at position `flat`, and the results `rows` once per item at `row_flat`.

    One work item is one position of the loops `outer` (of which the last advances by `lanes`); `inner` loops run in it.
    """

    full: list[int]
    flat: Dim
    outer: list[Loop]
    inner: list[Loop]
    rows: list[int] = field(default_factory=list)
    row_flat: Dim = 0
    memory_order: list[Loop] = field(default_factory=list)  # the outer loops, in the order of the results' dimensions
    lanes: int = 1
    kept: list[KeptRow] = field(default_factory=list)
    in_turn: tuple[str, int] | None = None  # an innermost loop that is unrolled: its elements come from other tensors
    cross: Loop | None = None  # this outer loop and the innermost one are walked in square tiles
    work: float = 1.0  # of one element, in scalar operations
    interleave: int = 0  # vectors that the innermost loop should work on at once; 0: as LLVM thinks
    ahead: list[tuple[ir.Value, Dim]] = field(default_factory=list)  # arguments and offsets whose next row to ask for
    terms: Dim = 1  # elements that are read for one, where an item is one result of a reduction

    @property
    def blocks(self) -> dict[str, int]:
        """The outer loops of which an item takes several positions, and how many."""
        blocks = {self.cross.name: BLOCK} if self.cross else {}
        return {**blocks, self.outer[-1].name: self.lanes} if self.lanes > 1 else blocks

    @property
    def extents(self) -> list[Dim]:
        """How many items there are along each outer loop."""
        blocks = self.blocks
        return [dims.ceildiv(l.extent, blocks[l.name]) if l.name in blocks else l.extent for l in self.outer]

    @property
    def items(self) -> Dim:
        return dims.product(self.extents)

    @property
    def item_work(self) -> tuple[float, Dim]:
        """The work of one item as a factor and a size."""
        elements = self.lanes * (BLOCK if self.cross else 1) * len(self.last_positions())
        return self.work * elements, self.terms * dims.product(l.extent for l in self.inner)

    def last_positions(self) -> list[dict[str, int]]:
        """The positions of the loop that is unrolled, as values of its variable."""
        return [{self.in_turn[0]: i} for i in range(self.in_turn[1])] if self.in_turn else [{}]


def results_by_size(graph: TensorGraph) -> list[tuple[Dim, list[int]]]:
    """The results with as many elements each, but those without any; the largest first: others may be rows of it."""
    groups: dict[Dim, list[int]] = {}
    for i, value in enumerate(graph.results):
        numel = dims.product(graph.shape(value))
        if numel != 0:
            groups.setdefault(numel, []).append(i)
    return sorted(
        groups.items(), key=lambda g: (isinstance(g[0], int), -g[0] if isinstance(g[0], int) else -len(str(g[0])))
    )


def plan_nests(graph: TensorGraph) -> list[Nest]:
    """Nests that together write every result; results without elements need none."""
    nests: list[Nest] = []
    for numel, results in results_by_size(graph):
        if not any(_join(graph, n, numel, results) for n in nests):
            nests.append(_plan(graph, numel, results))
    return nests


def _join(graph: TensorGraph, nest: Nest, numel: Dim, results: list[int]) -> bool:
    """Let `nest` write results of its row size too; square tiles have no rows."""
    if not nest.inner or nest.cross or not any(_reduces(graph, i) for i in results):
        return False
    if dims.product(l.extent for l in nest.outer) != numel:
        return False
    nest.rows += results
    nest.row_flat = _flat(nest.memory_order)
    return True


def _reduces(graph: TensorGraph, result: int) -> bool:
    accesses = Accesses(graph, Space.of([("f", 1, False)]).ranges())
    accesses.at(graph.results[result], [0] * len(graph.shape(graph.results[result])))
    return bool(_rows(accesses))


def _flat(loops: Sequence[Loop]) -> Dim:
    flat: Dim = 0
    for l in loops:
        flat = flat * l.extent + l.variable
    return flat


A = TypeVar("A", bound=Accesses)


def result_loops(
    graph: TensorGraph, numel: Dim, results: Sequence[int], look: Callable[[Ranges], A], has_rows: Callable[[A], bool]
) -> tuple[Space, A]:
    """The loops over the `numel` positions of results, split where addresses need it, and what is read in them.

    `look` makes what notes the accesses; where it then `has_rows`, loops are split down to size 2.
    """
    space = Space.of([("f", numel, False)])
    accesses = _refined(graph, space, results, look)
    if has_rows(accesses):  # rows must be told apart from what runs in them
        accesses = _refined(graph, space, results, look, smallest=2)
    return space, accesses


def _refined(
    graph: TensorGraph,
    space: Space,
    results: Sequence[int],
    look: Callable[[Ranges], A],
    smallest: int = SMALLEST_SPLIT,
) -> A:
    """Split the loops of `space` where addresses need it; what is read in them."""
    last: list[A] = []

    def expressions(space: Space) -> list[Dim]:
        accesses = look(space.ranges())
        for i in results:
            value = graph.results[i]
            accesses.at(value, accesses.ranges.delinearize(space.values["f"], graph.shape(value)))
        last[:] = [accesses]
        return accesses.expressions()

    refine(space, expressions, smallest)
    return last[0]


def _plan(graph: TensorGraph, numel: Dim, results: list[int]) -> Nest:
    look = lambda ranges: Accesses(graph, ranges)
    space, accesses = result_loops(graph, numel, results, look, lambda a: bool(_rows(a)))
    in_turn = None
    if not accesses.reductions and (split := small_split(space, accesses.conditions, MOST_IN_TURN)):
        space.split(*split)
        accesses = _refined(graph, space, results, look)
        in_turn = space.loops.pop().name, split[1]
    cross = None if in_turn else crossing_loop(space.loops, accesses)
    if cross is not None:
        nest = Nest(results, space.values["f"], space.loops[:-1], space.loops[-1:], cross=cross)
        nest.work = _work(accesses)
        return nest
    outer, inner, lanes = _order(space.loops, accesses)
    memory_order = [l for l in space.loops if any(l is o for o in outer)]
    nest = Nest(results, space.values["f"], outer, inner, memory_order=memory_order, lanes=lanes, in_turn=in_turn)
    nest.work = _work(accesses)
    if accesses.functions:
        nest.interleave = INTERLEAVE
    if not inner:
        nest.terms = _terms(accesses)
    if lanes == 1:
        nest.ahead = rows_read_again(accesses, outer, inner)
    nest.kept = [k for k in find_kept(accesses) if _fixed_in_row(k, inner)]
    return nest


def _work(accesses: Accesses) -> float:
    """The work of one element, in scalar operations."""
    return 1 + 0.25 * accesses.operations + 4 * accesses.functions + 0.5 * len(accesses.loads)


def _terms(accesses: Accesses) -> Dim:
    """The terms of the longest reduction: a symbolic one counts as longer than any number."""
    totals = [dims.product(r.generic.extents[d] for d in r.names) for r in accesses.reductions]
    symbolic = [t for t in totals if not isinstance(t, int)]
    return symbolic[0] if symbolic else max((t for t in totals if isinstance(t, int)), default=1)


def _rows(accesses: Accesses) -> list[Reduction]:
    """The reductions that are loops."""
    return [r for r in accesses.reductions if not is_small(r.generic)]


def _order(loops: list[Loop], accesses: Accesses) -> tuple[list[Loop], list[Loop], int]:
    """The outer loops, the inner loops, and how many positions of the last outer loop an item takes."""
    names = {l.name for l in loops}
    rows: set[str] = set()
    for r in _rows(accesses):
        used = {s for i in r.index if not isinstance(i, int) for s in dims.symbols(i)}
        if not any(s.startswith("q") for s in used):  # not inside another reduction
            rows |= used & names
    if rows:
        outer = [l for l in loops if l.name in rows]
        inner = [l for l in loops if l.name not in rows]
        lane = _lane_loop(outer, accesses)
        if lane is None:
            return outer, inner, 1
        outer = [l for l in outer if l is not lane] + [lane]
        return outer, inner, LANES if not isinstance(lane.extent, int) else _lanes(lane.extent)
    count = 1
    while count < len(loops) - 1 and _short(loops[-count:]):
        count += 1
    return (loops[:-count], loops[-count:], 1) if len(loops) > 1 else (loops, [], 1)


def _lane_loop(outer: Sequence[Loop], accesses: Accesses) -> Loop | None:
    """The outer loop along which memory is contiguous where the reductions stride over it, or None."""
    for r in _rows(accesses):
        last = r.names[max(r.names)]
        for _, offset in accesses.loads:
            if dims.linear_coefficient(offset, last) in (0, 1, None):
                continue
            for l in outer:
                if dims.linear_coefficient(offset, l.name) == 1 and _wide(l.extent):
                    return l
    return None


def _wide(extent: Dim) -> bool:
    return not isinstance(extent, int) or extent >= 8


def _lanes(extent: int) -> int:
    lanes = WIDE_LANES if extent >= 8 * WIDE_LANES else LANES
    while lanes > extent:
        lanes //= 2
    return lanes


def _short(loops: Sequence[Loop]) -> bool:
    total = dims.product(l.extent for l in loops)
    return isinstance(total, int) and total < SHORT_LOOP


def _fixed_in_row(kept: KeptRow, inner: list[Loop]) -> bool:
    """True if the row of `kept` is the nest's row: its fixed loops do not depend on inner loops."""
    names = {l.name for l in inner}
    return not any(
        dims.symbols(r) & names for r, d in zip(kept.row, kept.positions) if d is None and not isinstance(r, int)
    )
