"""The outputs of a product's kernel: fused ops on the root's result, evaluated and stored.

The fused ops are evaluated by the evaluator of all stages, `V` columns at a time, on the root's result at that place,
which the caller has: the sum plus bias, rounded to the root's dtype as eager rounds it. An output may have the root's
elements with dims, or parts of dims, in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.evaluate_accesses import TOKEN, Accesses
from ...loops.evaluate_walk import Index, Known
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuStage
from ..thread_values import ThreadValues
from .problem import Product


@dataclass(frozen=True)
class Order:
    """How an output has the root's elements: these are `shape` row by row, and dim `i` of the output is number `dims[i]` of it.

    None is for a dim of size 1.
    """

    shape: tuple[Dim, ...]
    dims: tuple[int | None, ...]


def _parts(place: Dim, sizes: Mapping[str, Dim]) -> list[str]:
    """The dims of an output that make a dim of the root, outermost first: `a * 16 + b` for a size of `b` of 16."""
    names = dims.symbols(place) if isinstance(place, dims.Expr) else ()
    inner, found, rest = 1, [], {n: dims.linear_coefficient(place, n) for n in names}
    while rest:
        name = next(n for n, step in rest.items() if step == inner)
        found.insert(0, name)
        inner, _ = inner * sizes[name], rest.pop(name)
    return found


class Outputs:
    """Writes the outputs of `stage`'s kernel, whose root is `product`'s; all but `apart`, which its caller writes."""

    def __init__(self, stage: GpuStage, product: Product, apart: ir.Value | None = None):
        self.outputs = [o for o in zip(stage.kernel.graph.results, stage.outputs) if apart is None or o[0] != apart]
        self.stage, self.product, self.b = stage, product, stage.b
        self.element = ir.RankedTensorType(product.root.results[0].type).element_type
        self.halves = str(self.element) in ("f16", "bf16")
        self.reads = False  # outputs read anything but the root's result
        self.orders = {result: self._order(result) for result, _ in self.outputs}

    def write(self, ev: ThreadValues, batch: Dim, row: Dim, position: Dim, value: ir.Value) -> None:
        """Evaluate and store all outputs, given the root's result at vector `position` of a row."""
        self.store(ev, self.evaluated(ev, batch, row, position, value))

    def store(self, ev: ThreadValues, made: Sequence[tuple[ir.Value, Dim, ir.Value]]) -> None:
        """Store values at places of buffers."""
        for buffer, place, value in made:
            ev.store(buffer, place, value)

    def evaluated(
        self, ev: ThreadValues, batch: Dim, row: Dim, position: Dim, value: ir.Value
    ) -> list[tuple[ir.Value, Dim, ir.Value]]:
        """All outputs there: buffers, places and values."""
        graph, made = self.stage.kernel.graph, []
        flat = self.root_at(ev, batch, row, position, value)
        for result, buffer in self.outputs:
            index = self.index(ev.ranges, result, flat)
            place = flat if self.orders[result] is None else ev.ranges.linearize(index, graph.shape(result))
            made.append((buffer, place, ev.at(result, index)))
        return made

    def root_at(self, ev: ThreadValues, batch: Dim, row: Dim, position: Dim, value: ir.Value) -> Dim:
        """Let `ev` know the root's result at vector `position` of a row; the number of its first element."""
        p = self.product
        flat = ev.ranges.simplify((batch * p.m + row) * p.n + ev.flat(position))
        ev.known[p.root.results[0]] = self._known(ev, flat, value)
        return flat

    def index(self, ranges: Ranges, result: ir.Value, flat: Dim) -> list[Dim]:
        """Where an output has the root's element number `flat`."""
        order = self.orders[result]
        if order is None:
            return list(ranges.delinearize(flat, self.stage.kernel.graph.shape(result)))
        place = ranges.delinearize(flat, order.shape)
        return [0 if d is None else place[d] for d in order.dims]

    def _order(self, result: ir.Value) -> Order | None:
        """For an output with the root's dims, or parts of them, in another order, which they are."""
        graph, root = self.stage.kernel.graph, self.product.root.results[0]
        shape = graph.shape(result)
        names = [f"dim{d}" for d in range(len(shape))]
        walk = Accesses(graph, Ranges(dict(zip(names, shape))))
        found: list[Index] = []
        walk.known[root] = lambda index: found.append(index) or TOKEN
        walk.at(result, [dims.symbol(n) for n in names])
        self.reads |= bool(walk.loads)
        if not found:
            return None
        sizes = dict(zip(names, shape))
        parts = [n for d in found[0] for n in _parts(d, sizes)]
        order = tuple(parts.index(n) if n in parts else None for n in names)
        sized = [d for d in order if d is not None]
        return Order(tuple(sizes[n] for n in parts), order) if sized != sorted(sized) else None

    def _known(self, ev: ThreadValues, flat: Dim, value: ir.Value) -> Known:
        def known(index: Index) -> ir.Value | None:
            return value if ev.ranges.linearize(index, self.product.result) == flat else None

        return known
