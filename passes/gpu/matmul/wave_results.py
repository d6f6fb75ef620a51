"""From fragments of a wave (matrix_units) to outputs: bias, rounding, fused ops, stores.

A result is rounded to the root's dtype, as eager rounds it, and the fused ops are evaluated on that, for as many
neighbouring columns of a lane as it can store at once.
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuStage
from ..lane_places import LANE
from ..loops.stored import Stored
from ..probe import Probe, choose_width
from .matrix_units import Unit
from .outputs import Outputs
from .problem import Product


class WaveResults:
    """Writes fragments of `product` in batch `batch` (a bound symbol); `tile` is the rows and columns of a block.

    `apart` is a result that its caller writes.
    """

    def __init__(
        self, stage: GpuStage, product: Product, unit: Unit, lane: ir.Value, tile: tuple[int, int],
        apart: ir.Value | None = None,
    ):  # fmt: skip
        self.stage, self.b, self.product, self.unit, self.lane, self.tile = stage, stage.b, product, unit, lane, tile
        self.outputs = Outputs(stage, product, apart)
        self.width = self._width()
        self.ev = Stored().evaluator(stage, Ranges({"batch": product.batches}), self.width)

    def store(self, row: ir.Value, column: ir.Value, sums: ir.Value) -> None:
        """Write the 16 x 16 results from `row` and `column` on, of which this lane has `sums`."""
        b = self.b
        sums = self.unit.in_order(b, self.lane, self.unit.settled(b, sums))
        inner, right = self.unit.place(b, self.lane)
        row, column = b.binary("arith.addi", row, inner), b.binary("arith.addi", column, right)
        for first in range(0, self.unit.results, self.width):
            self._piece(row, b.binary("arith.addi", column, b.constant(first, b.index)), sums, first)

    def _width(self) -> int:
        """Neighbouring columns that a lane writes at once."""
        product, graph = self.product, self.stage.kernel.graph
        results = [result for result, _ in self.outputs.outputs]

        def probe(width: int) -> Probe:
            ranges = Ranges(
                {"batch": product.batches, "m": product.m, "w": dims.floordiv(product.n, width), LANE: width}
            )
            column = width * dims.symbol("w") + (dims.symbol(LANE) if width > 1 else 0)
            accesses = Probe(graph, ranges, {product.root.results[0]})
            flat = (dims.symbol("batch") * product.m + dims.symbol("m")) * product.n + column
            for value in results:
                accesses.at(value, self.outputs.index(ranges, value, flat))
            if product.bias is not None:
                product.bias_at(accesses, dims.symbol("batch"), dims.symbol("m"), column)
            return accesses

        n = product.n
        width = choose_width(results, probe, lambda w: isinstance(n, int) and n % w == 0)
        return min(width, self.unit.results)

    def _piece(self, row: ir.Value, column: ir.Value, sums: ir.Value, first: int) -> None:
        """Results `first .. first + width` of a lane, which are of `row` and from `column` on."""
        b, product, width = self.b, self.product, self.width
        m = b.bind_unique("m", row)
        w = b.bind_unique("w", b.binary("arith.divui", column, b.constant(width, b.index)))
        self.ev.ranges.add(str(m), product.m)
        self.ev.ranges.add(str(w), dims.floordiv(product.n, width))

        def store() -> list[ir.Value]:
            self.outputs.write(self.ev, dims.symbol("batch"), m, w, self._root(sums, first, m, self.ev.flat(w)))
            return []

        masks = [
            b.compare("ult", at, end)
            for at, end, tile in ((row, product.m, self.tile[0]), (column, product.n, self.tile[1]))
            if not (isinstance(end, int) and end % tile == 0)
        ]
        if not masks:
            store()
            return
        b.branch(masks[0] if len(masks) == 1 else b.value("arith.andi", masks, b.i1), [], store)

    def _root(self, sums: ir.Value, first: int, row: Dim, column: Dim) -> ir.Value:
        """The root's elements: sums and bias, rounded."""
        b, width, ev = self.b, self.width, self.ev
        lanes = [b.extract(sums, first + k) for k in range(width)]
        type: ir.Type = b.f32 if width == 1 else ir.VectorType.get([width], b.f32)
        total = lanes[0] if width == 1 else b.value("vector.from_elements", lanes, type)
        element = self.outputs.element
        if self.product.bias is not None:
            bias = ev.vector(self.product.bias_at(ev, dims.symbol("batch"), row, column))
            bias = bias if element == b.f32 else b.value("arith.extf", (bias,), type)
            total = b.value("arith.addf", (total, bias), type)
        if element == b.f32:
            return total
        narrow = element if width == 1 else ir.VectorType.get([width], element)
        return b.value("arith.truncf", (total,), narrow)
