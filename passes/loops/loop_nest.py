"""Choose the loops of a nest: as few as the addresses allow.

A nest starts as one loop over all positions of its outputs. Where an address takes the position apart
(`floordiv(f, 768)`, `mod(f, 768)` for a bias of 768 elements) the loop is split there, and the addresses are looked at
again, until every address is linear in the loop variables or cannot be made so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...dialects import dims
from ...dialects.dims import Dim, Expr
from .index_algebra import Ranges

SMALLEST_SPLIT = 8  # an inner loop of fewer elements costs more than the division it saves
MOST_SPLITS = 10
_numbers = itertools.count()


@dataclass
class Loop:
    """One loop: its variable, its end, and whether it runs over reduced dimensions."""

    name: str
    extent: Dim
    reduced: bool = False

    @property
    def variable(self) -> Expr:
        return dims.symbol(self.name)


@dataclass
class Space:
    """Loops from outermost to innermost; `values` gives each original variable in terms of the loops' variables."""

    loops: list[Loop]
    values: dict[str, Dim] = field(default_factory=dict)

    @staticmethod
    def of(extents: Sequence[tuple[str, Dim, bool]]) -> Space:
        """A space with one loop per `(name, extent, reduced)`."""
        loops = [Loop(*e) for e in extents]
        return Space(loops, {l.name: l.variable for l in loops})

    def ranges(self) -> Ranges:
        """The facts `0 <= variable < extent` of all loops."""
        return Ranges({l.name: l.extent for l in self.loops})

    def split(self, name: str, k: Dim) -> None:
        """Replace loop `name` by two: `name = outer * k + inner` with `inner < k`."""
        at = next(i for i, l in enumerate(self.loops) if l.name == name)
        old = self.loops[at]
        a, b = (Loop(f"i{next(_numbers)}", e, old.reduced) for e in (dims.floordiv(old.extent, k), k))
        self.loops[at : at + 1] = [a, b]
        self.substitute({name: a.variable * k + b.variable})

    def substitute(self, values: dict[str, Dim]) -> None:
        """Express the original variables in new loop variables."""
        self.values = {n: dims.substitute(v, values) for n, v in self.values.items()}


def refine(space: Space, expressions: Callable[[Space], Iterable[Dim]], smallest: int = SMALLEST_SPLIT) -> None:
    """Split loops of `space` until the index expressions, which are a function of it, need no more splits.

    No loop of fewer than `smallest` elements is split off.
    """
    for _ in range(MOST_SPLITS):
        found = _best_split(space, expressions(space), smallest)
        if found is None:
            return
        space.split(*found)


def small_split(space: Space, conditions: Iterable[Dim], largest: int) -> tuple[str, int] | None:
    """The innermost loop and by what to split it, at most `largest`, to decide `conditions` by the new inner loop."""
    last = space.loops[-1]
    candidates: dict[tuple[str, Dim], None] = {}
    seen: set[Expr] = set()
    for e in conditions:
        if isinstance(e, Expr):
            _collect(e, {last.name: last.extent}, candidates, seen, 2)
    found = [k for _, k in candidates if isinstance(k, int) and k <= largest]
    return (last.name, max(found)) if found and all(max(found) % k == 0 for k in found) else None


def _best_split(space: Space, expressions: Iterable[Dim], smallest: int) -> tuple[str, Dim] | None:
    """The loop to split and by what: the largest divisor first, so that smaller ones split its inner part."""
    extents = {l.name: l.extent for l in space.loops}
    candidates: dict[tuple[str, Dim], None] = {}
    seen: set[Expr] = set()
    for e in expressions:
        if isinstance(e, Expr):
            _collect(e, extents, candidates, seen, smallest)
    for name, k in candidates:
        if not any(n == name and other != k and dims.mod(other, k) == 0 for n, other in candidates):
            return name, k
    return None


def _collect(
    e: Expr, extents: dict[str, Dim], candidates: dict[tuple[str, Dim], None], seen: set[Expr], smallest: int
) -> None:
    if e in seen:
        return
    seen.add(e)
    for monomial in e.terms:
        for atom, _ in monomial:
            if isinstance(atom, str):
                continue
            _, x, k = atom
            for part in (x, k):
                if isinstance(part, Expr):
                    _collect(part, extents, candidates, seen, smallest)
            name = _variable(x)
            if name in extents and not (isinstance(k, int) and k < smallest):
                if any(s in extents for s in dims.symbols(k)):
                    continue
                extent = extents[name]
                if extent != k and dims.floordiv(extent, k) * k == extent:
                    candidates[name, k] = None


def _variable(e: Dim) -> str:
    """The name of the symbol that `e` is, or ''."""
    if isinstance(e, Expr) and len(e.terms) == 1:
        (monomial, c), *_ = e.terms.items()
        if c == 1 and len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], str):
            return monomial[0][0]
    return ""
