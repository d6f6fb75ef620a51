"""Values that a row needs twice, kept in a scratch row.

In a softmax the exponentials are summed and then divided by their sum. Computing them twice is what inlining would
do; instead the loop that sums them also stores them, and the loop that divides loads them:

    for j: e = exp(x[i, j] - max);  sum += e;  scratch[j] = e
    for j: y[i, j] = scratch[j] / sum

`find_kept` looks for the results of costly bodies that one reduction reads at every position of its loops, and that
something else reads in the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from .evaluate_accesses import Accesses, Reduction
from .evaluate_walk import Known
from .reduction_loops import is_small
from .tensor_graph import Generic

if TYPE_CHECKING:
    from .evaluate import Evaluator


@dataclass
class KeptRow:
    """Tensor `value` (made by `maker`) is stored in a scratch row by the loops of `reduction`.

    Loop `i` of `maker` follows the reduction's loop `positions[i]`, or stands at `row[i]` where that is None.
    """

    value: ir.Value
    maker: Generic
    reduction: Reduction
    positions: list[int | None]
    row: list[Dim]
    scratch: ir.Value | None = None

    @property
    def size(self) -> Dim:
        """Elements of one row."""
        g = self.reduction.generic
        return dims.product(g.extents[d] for d in g.reductions)

    def store(self, ev: Evaluator, loops: Sequence[Dim]) -> None:
        """Emit the store of the value at position `loops` of the reduction, inside its loops."""
        assert self.scratch is not None
        mine = [r if d is None else loops[d] for d, r in zip(self.positions, self.row)]
        ev.store_row(self.scratch, self._flat(ev, mine), ev.at(self.value, _index_of(self.maker, mine)))

    def provider(self, ev: Evaluator) -> Known:
        """Load from the scratch row what belongs to the current row."""

        def known(index: tuple[Dim, ...]) -> ir.Value | None:
            loops = self.maker.loops_of(index)
            if any(d is None and i != r for d, i, r in zip(self.positions, loops, self.row)):
                return None
            assert self.scratch is not None
            return ev.load_row(self.scratch, self._flat(ev, loops))

        return known

    def _flat(self, ev: Evaluator, loops: Sequence[Dim]) -> Dim:
        """The element of the row that belongs to loop position `loops` of the maker."""
        g = self.reduction.generic
        order = {d: i for i, d in zip(loops, self.positions) if d is not None}
        return ev.ranges.linearize([order[d] for d in g.reductions], [g.extents[d] for d in g.reductions])


def _index_of(g: Generic, loops: Sequence[Dim]) -> list[Dim]:
    """The index of the results of a parallel generic at loop position `loops`."""
    return [loops[t[1]] if t[0] == "d" else t[1] for t in g.maps[len(g.inputs)]]


def is_costly(g: Generic) -> bool:
    """True for bodies that are worth a store and a load: functions of the math dialect and divisions."""
    cheap = ("math.absf", "math.fma", "math.copysign")
    return any(op.name == "arith.divf" or (op.name.startswith("math.") and op.name not in cheap) for op in g.body)


def find_kept(accesses: Accesses) -> list[KeptRow]:
    """The values of a walk that are worth keeping, in the order of their reductions."""
    uses: dict[ir.Value, list[tuple[Generic, tuple[Dim, ...]]]] = {}
    for (key, loops), g in accesses.generics.items():
        if is_costly(g) and len(g.outs) == 1:
            uses.setdefault(key, []).append((g, loops))
    found = []
    for places in uses.values():
        if len(places) < 2:
            continue
        for g, loops in places:
            kept = _match(accesses, g, loops)
            if kept is not None and any(_same_row(kept, other) for _, other in places if other != loops):
                found.append(kept)
                break
    return found


def _match(accesses: Accesses, g: Generic, loops: tuple[Dim, ...]) -> KeptRow | None:
    """The reduction whose loops run over `g` at `loops`: each of its variables is exactly one loop of `g`."""
    names = {n for i in loops if not isinstance(i, int) for n in dims.symbols(i) if n.startswith("q")}
    for reduction in accesses.reductions:
        if is_small(reduction.generic):
            continue
        if not names or names != set(reduction.names.values()):
            continue
        numbers = {name: d for d, name in reduction.names.items()}
        positions = [numbers.get(str(i)) for i in loops]
        if sorted(p for p in positions if p is not None) != sorted(reduction.names):
            return None
        if any(p is None and not isinstance(i, int) and dims.symbols(i) & names for i, p in zip(loops, positions)):
            return None
        value = g.op.results[0]
        return KeptRow(value, g, reduction, positions, list(loops))
    return None


def _same_row(kept: KeptRow, loops: tuple[Dim, ...]) -> bool:
    return all(d is not None or i == r for d, i, r in zip(kept.positions, loops, kept.row))
