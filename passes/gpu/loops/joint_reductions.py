"""Reductions over one space in one pass: a mean and its count, the gradients of a norm's weight and bias.

Accumulators of all of them are carried side by side, so that what they share is read once, and a chain of stages (chunks,
then their combination) or a barrier is there once:

    (a, b) = (f(a, x[k]), g(b, x[k], y[k]))   for all k of the space that both reduce
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects.dims import Dim
from ...loops.evaluate_accesses import TOKEN, Reduction
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import BodyOp, Generic, TensorGraph
from ..combine import combine
from ..machine_functions import sums_of
from ..probe import Probe
from ..thread_values import ThreadValues


@dataclass(frozen=True)
class Joint:
    """Reductions with the same loops, of which none needs another; the accumulators of all of them are one list."""

    generics: tuple[Generic, ...]

    @property
    def first(self) -> Generic:
        """The one by whose loops the others go, too."""
        return self.generics[0]

    @property
    def results(self) -> list[ir.Value]:
        """The tensors that the accumulators become."""
        return [r for g in self.generics for r in g.op.results]

    def of(self, generic: Generic, values: Sequence[Any]) -> list[Any]:
        """Those of `values`, one for each accumulator, that belong to `generic`."""
        return next(part for g, part in self._parts(values) if g.arguments[-1] == generic.arguments[-1])

    def inits(self, ev: ThreadValues, loops: Sequence[Dim]) -> list[Any]:
        """What the accumulators begin with, at a position of the loops that are not reduced."""
        ev.sums.update(*map(sums_of, self.generics))
        return [ev.at(out, index_of(g, loops)) for g in self.generics for out in g.outs]

    def step(self, ev: ThreadValues, loops: Sequence[Dim], carried: Sequence[Any]) -> list[Any]:
        """The accumulators after the element at `loops`."""
        return [made for g, part in self._parts(carried) for made in ev.body(g, loops, part)]

    def combined(self, ev: ThreadValues, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        """Partial results `a` and `b` combined."""

        def apply(op: BodyOp, operands: list[Any]) -> list[Any]:
            return ev.apply(op, operands)

        pairs = zip(self._parts(a), self._parts(b))
        return [made for (g, x), (_, y) in pairs for made in combine(g, x, y, apply, ev.scalar)]

    def across_lanes(self, ev: ThreadValues, values: Sequence[Any]) -> list[Any]:
        """The lanes of vector accumulators combined, neighbours first."""
        return ev.across_lanes(values, lambda a, b: self.combined(ev, a, b))

    def _parts(self, values: Sequence[Any]) -> list[tuple[Generic, list[Any]]]:
        """`values`, one for each accumulator, by reduction."""
        found, at = [], 0
        for g in self.generics:
            found.append((g, list(values[at : at + len(g.outs)])))
            at += len(g.outs)
        return found


def joint_of(graph: TensorGraph, keys: Iterable[ir.Value]) -> Joint:
    """The reductions with these last arguments."""
    return Joint(tuple(graph.generic(key.owner.owner.results[0]) for key in keys))


def index_of(g: Generic, loops: Sequence[Dim]) -> list[Dim]:
    """The index of a reduction's result at a position of its loops."""
    return [loops[t[1]] if t[0] == "d" else 0 for t in g.maps[len(g.inputs)]]


def passes(
    graph: TensorGraph,
    stored: set[ir.Value],
    reductions: Iterable[Reduction],
    fits: Callable[[Joint], bool] = lambda joint: True,
) -> list[Joint]:
    """`reductions` in as few passes as they can be done in, in an order that can run; `stored` values are in memory already.

    Those of one pass have the same loops and are asked for at the same position of them; `fits` may refuse more.
    """
    left = {r.generic.arguments[-1]: r for r in reversed(list(reductions))}
    needed = {key: _needed(graph, stored, r) for key, r in left.items()}
    made: list[Joint] = []
    while left:
        ready = [r for key, r in left.items() if not needed[key] & left.keys()]
        joint = Joint((ready[0].generic,))
        for r in ready[1:]:
            wider = Joint((*joint.generics, r.generic))
            if _alike(graph, ready[0], r) and fits(wider):
                joint = wider
        made.append(joint)
        for g in joint.generics:
            del left[g.arguments[-1]]
    return made


def position(graph: TensorGraph, r: Reduction) -> list[Dim]:
    """Where in its loops a reduction is asked for; those that it reduces are 0."""
    return r.generic.loops_of(r.index)


def _alike(graph: TensorGraph, a: Reduction, b: Reduction) -> bool:
    same = (a.generic.extents, a.generic.reduced) == (b.generic.extents, b.generic.reduced)
    return same and position(graph, a) == position(graph, b)


def _needed(graph: TensorGraph, stored: set[ir.Value], r: Reduction) -> set[ir.Value]:
    """The reductions that the elements of `r` depend on, by their last arguments."""
    g, probe = r.generic, Probe(graph, Ranges(), stored)
    loops = g.loops_of(r.index)
    for d in g.reductions:
        loops[d] = probe.ranges.add(f"k{d}", g.extents[d])
    probe.body(g, loops, [TOKEN] * len(g.outs))
    return {inner.generic.arguments[-1] for inner in probe.reductions}
