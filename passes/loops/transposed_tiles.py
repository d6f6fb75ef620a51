"""Tiles for nests that read across their rows, such as a transpose.

With the output walked along `j` and an input contiguous along `i`, a scalar loop touches a new cache line for every
element. A tile of T x T elements instead loads T vectors along `i`, transposes them in registers, and has T vectors
along `j`, one for each row of the tile, on which the body is evaluated:

    v[c] = load x[i .. i+T, j + c]        c = 0..T-1
    t = transpose(v)                       t[r] = x[i + r, j .. j+T]
    store y[i + r, j .. j+T] = body(t[r])  r = 0..T-1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from .evaluate_accesses import Accesses
from .evaluate_vector import Lanes, VectorEvaluator
from .index_algebra import Ranges
from .loop_nest import Loop
from .loops_builder import LoopsBuilder
from .tensor_graph import TensorGraph

BLOCK = 16  # rows and columns of an item's tiles: whole cache lines of f32 on both sides


def crossing_loop(loops: Sequence[Loop], accesses: Accesses) -> Loop | None:
    """The loop along which some input is contiguous while the last loop strides over it, or None.

    Not where elements are chosen from parts, which a vector does one by one. Both loops must have room for a block
    (a symbolic one is asked at run time).
    """
    if len(loops) < 2 or accesses.reductions or accesses.branches or not _has_room(loops[-1]):
        return None
    last = loops[-1].name
    for _, offset in accesses.loads:
        if dims.linear_coefficient(offset, last) in (0, 1, None):
            continue
        for loop in loops[:-1]:
            if dims.linear_coefficient(offset, loop.name) == 1 and _has_room(loop):
                return loop
    return None


def _has_room(loop: Loop) -> bool:
    return not isinstance(loop.extent, int) or loop.extent >= BLOCK


def transpose(b: LoopsBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Transpose a square of vectors: exchange off-diagonal blocks of halving size."""
    size = len(rows)
    type = rows[0].type
    half = size // 2
    while half:
        masks = []
        for shift in (0, half):
            mask = [c + shift if not c & half else size + c - half + shift for c in range(size)]
            masks.append(ir.DenseI64ArrayAttr.get(mask))
        made = list(rows)
        for r in range(size):
            if not r & half:
                pair = (rows[r], rows[r + half])
                made[r] = b.value("vector.shuffle", pair, type, mask=masks[0])
                made[r + half] = b.value("vector.shuffle", pair, type, mask=masks[1])
        rows = made
        half //= 2
    return rows


class TileEvaluator(VectorEvaluator):
    """Evaluates one row of a tile at a time: lanes along the last loop, the row at `cross + row`."""

    def __init__(
        self,
        graph: TensorGraph,
        b: LoopsBuilder,
        buffers: Mapping[ir.Value, ir.Value],
        ranges: Ranges,
        status: ir.Value | None,
        lanes: Lanes,
        cross: str,
    ):
        super().__init__(graph, b, buffers, ranges, status, lanes=lanes)
        self.cross = cross
        self.row = 0

    def load_at(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        step = self._step(offset)
        if step is None or step in (0, 1) or dims.linear_coefficient(offset, self.cross) != 1:
            return super().load_at(buffer, offset)
        first = offset - self.row
        key = (self, "tile", buffer, first)
        for scope in self.b.scopes:
            if key in scope.cache:
                return scope.cache[key][self.row]
        rows = self.b.scopes[-1].cache[key] = self._tile(buffer, first, step)
        return rows[self.row]

    def _tile(self, buffer: ir.Value, first: Dim, step: Dim) -> list[ir.Value]:
        """The rows of the tile whose first element is at `first`."""
        width = self.lanes.width
        type = ir.VectorType.get([width], ir.MemRefType(buffer.type).element_type)
        columns = [self.b.value("vector.load", (buffer, self.b.dim(first + c * step)), type) for c in range(width)]
        return transpose(self.b, columns)
