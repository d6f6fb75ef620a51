"""Emit attention kernels: scores of a few query rows and a block of keys at a time; nothing else is stored.

    for item:  (batch and head, block of query rows)
        pack K transposed, and V            when the head changes; not for a few query rows, which read both in place
        for each block of keys:             K and V of the block stay in L2, the scores of a tile in L1
            for each tile of query rows:
                scores = (q * scale) kT     register tiles, K = depth
                softmax of each row         mask, running maximum, exp, running sum (`attention_softmax`)
                out = out * correction + scores v       register tiles, K = keys
        out / sum, fused epilogue

With `causal`, keys after the tile's last row are never touched. A row with everything masked gives zeros (and lse 0), as
torch's fused kernels do.
"""

from __future__ import annotations

import math

from mlir import ir

from ...dialects import dims
from ..loops.strided_view import View
from ..registry import register
from . import numeric
from .attention_problem import AttentionProblem, read_attention
from .attention_softmax import Softmax
from .blocks import block_size, divides, row_cases
from .code import Index, delinearize
from .computed import Computed, computed_matrix
from .copy_line import Line, Place, copy_line
from .dot import dot_tile
from .epilogue import Epilogue
from .frame import Frame, kernels, open_frame
from .gemm import grain
from .micro import Panel, Rows, Tile, choose_tile, load_tile, multiply, store_tile, zeros
from .pack import Matrix, pack_panels
from .problem import element_offset

ROW_BLOCK = 96  # query rows of an item, at most: so often are K and V read from L2
KEY_BLOCK = 512  # keys at a time: their scores for one tile of rows stay in L1, their K and V in L2
FEW_ROWS = 4  # query rows up to which K and V are read in place


@register
def emit_attention(
    module: ir.Module, vector_bits: int = 256, registers: int = 16, by_lane: bool = False
) -> None:  # fmt: skip
    """Replace each kernel of kind `attention` by loops over register tiles.

    Before: `%y, %lse = "lamina.attention"(%q, %k, %v)` on tensors.
    After: a function on flat memrefs that holds the scores of one tile of query rows at a time.
    """
    with module.context:
        for function in kernels(module, "attention"):
            with open_frame(function) as frame:
                _Attention(frame, read_attention(frame), vector_bits, registers, by_lane).emit()


class _Attention:
    """One kernel."""

    def __init__(self, frame: Frame, problem: AttentionProblem, vector_bits: int, registers: int, by_lane: bool):
        self.frame, self.code, self.problem = frame, frame.code, problem
        p, code = problem, frame.code
        self.tile = tile = choose_tile(numeric.compute_dtype(p.dtype), vector_bits, registers, by_lane)
        self.queries, self.keys, self.depth, self.width = (code.size(d) for d in (p.queries, p.keys, p.depth, p.width))
        few = isinstance(p.queries, int) and p.queries <= FEW_ROWS
        self.dots = few and p.k_view is not None and p.k_view.strides[-1] == 1
        self.value_tile = _widened(tile, p) if few else tile
        whole = divides(self.value_tile.columns, p.width)
        rows = p.v_view is not None and p.v_view.strides[-1] == 1
        self.v_in_place = few and whole and rows and p.dtype == tile.dtype
        self.row_block = block_size(p.queries, ROW_BLOCK, tile.rows)
        self.row_blocks = dims.ceildiv(p.queries, self.row_block)
        self.key_block = block_size(p.keys, KEY_BLOCK, tile.columns)
        self.one_block = isinstance(p.keys, int) and p.keys <= self.key_block
        self.cases = row_cases(p.queries, tile.rows)
        out, lse = p.root.results
        outputs = [(value, buffer) for value, buffer in frame.outputs if value != lse]
        self.lse = [buffer for value, buffer in frame.outputs if value == lse]
        self.epilogue = Epilogue(frame, p.root, p.dtype, tile, (*p.heads, p.queries), (p.width,), outputs=outputs)

    def emit(self) -> None:
        """Emit the whole body and close the frame."""
        code, p, tile = self.code, self.problem, self.tile
        element, bytes = numeric.element_type(tile.dtype), 8 if tile.dtype == "f64" else 4
        scratch = lambda size: code.scratch(size, element, bytes)
        if not self.dots:
            self.k_packed = scratch(code.mul(self._padded(self.keys), self.depth))
        if not self.v_in_place:
            self.v_packed = scratch(code.mul(self._padded(self.width), self.keys))
        self.out_row = self._padded(self.width)
        self.scores = scratch(self.key_block * tile.rows)
        self.q_block = scratch(code.mul(self.depth, self.row_block))
        self.sums = scratch(code.mul(self.out_row, self.row_block))
        states = [scratch(self.row_block) for _ in range(3)]
        self.softmax = Softmax(self.frame, p, tile, self.scores, self.key_block, states, self.lse, self.one_block)
        code.loop(self.frame.begin, self.frame.end, 1, [], self._item)
        work = 4 * self.row_block * math.prod(d if isinstance(d, int) else 64 for d in (p.keys, p.depth))
        self.frame.close(dims.product(p.heads) * self.row_blocks, grain(work, tile.width))

    def _padded(self, size: Index) -> Index:
        columns = self.value_tile.columns
        return self.code.mul(self.code.ceildiv(size, columns), columns)

    def _item(self, number: ir.Value) -> None:
        code, p = self.code, self.problem
        row_blocks = code.size(self.row_blocks)
        row = code.mul(code.rem(number, row_blocks), self.row_block)
        self.head = delinearize(code, code.div(number, row_blocks), p.heads)
        self.kv_head = [*self.head[:-1], code.div(self.head[-1], p.gqa)]
        new_head = code.either(code.compare("eq", number, self.frame.begin), code.compare("eq", row, 0))
        if not (self.dots and self.v_in_place):
            code.branch(new_head, self._pack)
        row_end = code.min(code.add(row, self.row_block), self.queries)

        def begin(i: Index) -> None:
            self.softmax.begin(code.sub(i, row))
            self._copy_query(i, code.mul(code.sub(i, row), self.depth))

        code.loop(row, row_end, 1, [], begin)
        keys = code.min(self.keys, row_end) if p.causal else self.keys
        code.loop(0, keys, self.key_block, [], lambda k: self._key_block(row, row_end, k))
        self._no_keys(row, row_end)
        code.loop(row, row_end, 1, [], lambda i: self._write(row, i))

    def _no_keys(self, row: Index, row_end: Index) -> None:
        """Without keys no block ran: the output is zero."""
        code = self.code
        if isinstance(self.keys, int) and self.keys > 0:
            return
        zero = code.constant(0, numeric.element_type(self.tile.dtype))
        size = code.mul(code.sub(row_end, row), self.out_row)

        def clear() -> None:
            code.loop(0, size, 1, [], lambda i: code.store(zero, self.sums, i))

        code.branch(code.compare("eq", self.keys, 0), clear)

    def _pack(self) -> None:
        p = self.problem
        if not self.dots:
            k = self._computed(p.k, True) if p.k_view is None else self._matrix(p.k_view, transposed=True)
            self._pack_panels(k, self.tile, self.depth, self.keys, self.k_packed)
        if not self.v_in_place:
            v = self._computed(p.v, False) if p.v_view is None else self._matrix(p.v_view, transposed=False)
            self._pack_panels(v, self.value_tile, self.keys, self.width, self.v_packed)

    def _computed(self, tensor: ir.Value, transposed: bool) -> Computed:
        return computed_matrix(self.frame, tensor, self.kv_head, by_k=transposed)

    def _pack_panels(self, matrix: Matrix | Computed, tile: Tile, k: Index, columns: Index, out: ir.Value) -> None:
        panels = self.code.ceildiv(columns, tile.columns)
        pack_panels(self.code, tile, matrix, k, columns, 0, panels, out)

    def _matrix(self, view: View, transposed: bool) -> Matrix:
        """K transposed, or V, of the item's head."""
        code = self.code
        buffer = self.frame.inputs[view.base]
        outer, inner = (code.size(s) for s in view.strides[-2:])
        k_stride, n_stride = (inner, outer) if transposed else (outer, inner)
        return Matrix(buffer.memref, buffer.dtype, element_offset(code, view, self.kv_head), k_stride, n_stride)

    def _copy_query(self, row: Index, at: Index) -> None:
        """One query row times the scale, in the compute dtype."""
        p, tile, code = self.problem, self.tile, self.code
        element = numeric.element_type(tile.dtype)
        if p.scale is not None:
            factor = code.constant(p.scale, element)
        elif isinstance(p.depth, int):
            factor = code.constant(max(p.depth, 1) ** -0.5, element)
        else:
            depth = code.op("arith.index_cast", [ir.IntegerType.get_signless(64)], [code.value(self.depth)])
            root = code.op("math.sqrt", [element], [code.op("arith.sitofp", [element], [depth])])
            factor = code.op("arith.divf", [element], [code.constant(1.0, element), root])
        line, to = Line(p.q, p.dtype, [*self.head, row]), Place(self.q_block, tile.dtype, at)
        copy_line(self.frame, line, to, self.depth, tile.width, factor)

    def _key_block(self, row: Index, row_end: Index, first_key: Index) -> None:
        code, tile = self.code, self.tile

        def row_tile(i: Index) -> None:
            count = tile.rows if divides(tile.rows, self.problem.queries) else code.min(tile.rows, code.sub(row_end, i))
            last_key = code.min(code.add(first_key, self.key_block), self.keys)
            if not self.problem.causal:
                self._scores(row, i, count, first_key, last_key)
                return
            last_key = code.min(last_key, code.add(i, count))
            code.branch(
                code.compare("lt", first_key, last_key), lambda: self._scores(row, i, count, first_key, last_key)
            )

        code.loop(row, row_end, tile.rows, [], row_tile)

    def _scores(self, row: Index, i: Index, count: Index, first_key: Index, last_key: Index) -> None:
        """One tile of query rows with keys `first_key .. last_key`."""
        code, tile = self.code, self.tile
        keys, local = code.sub(last_key, first_key), code.sub(i, row)
        q = Rows(self.q_block, [code.mul(code.add(local, r), self.depth) for r in range(tile.rows)])

        def panel(j: Index) -> None:
            at = code.mul(j, tile.columns)
            code.switch(count, self.cases, lambda height: self._score_tile(q.top(height), code.add(first_key, at), at))

        code.loop(0, code.ceildiv(keys, tile.columns), 1, [], panel)
        softmax = lambda r: self.softmax.row(self.head, code.add(i, r), r, code.add(local, r), first_key, last_key)
        code.loop(0, count, 1, [], softmax)

        def values(j: Index) -> None:
            at = code.mul(j, self.value_tile.columns)
            code.switch(count, self.cases, lambda height: self._value_tile(local, height, first_key, keys, at))

        code.loop(0, code.ceildiv(self.width, self.value_tile.columns), 1, [], values)

    def _score_tile(self, q: Rows, key: Index, at: Index) -> None:
        """The scores of keys `key ...`, to column `at` of the tile's scores."""
        code, tile = self.code, self.tile
        if self.dots:
            assert self.problem.k_view is not None
            matrix = self._matrix(self.problem.k_view, transposed=True)
            acc = dot_tile(code, tile, q, matrix, key, self.depth, last=code.sub(self.keys, 1))
        else:
            k = Panel(self.k_packed, code.mul(key, self.depth), tile.columns)
            acc = multiply(code, tile, q, k, 0, self.depth, zeros(code, tile, len(q.starts)))
        store_tile(code, tile, acc, self.scores, at, self.key_block)

    def _value_tile(self, local: Index, height: int, first_key: Index, keys: Index, at: Index) -> None:
        """`out = out * correction + weights v` for columns `at ...` of a tile of rows."""
        code, tile = self.code, self.value_tile
        weights = Rows(self.scores, [r * self.key_block for r in range(height)])
        if self.v_in_place:
            view = self.problem.v_view
            assert view is not None
            stride = code.size(view.strides[-2])
            start = code.add(element_offset(code, view, self.kv_head), code.mul(first_key, stride), at)
            v = Panel(self.frame.inputs[view.base].memref, start, stride)
        else:
            start = code.add(code.mul(at, self.keys), code.mul(first_key, tile.columns))
            v = Panel(self.v_packed, start, tile.columns)
        to = code.add(code.mul(local, self.out_row), at)
        acc = multiply(code, tile, weights, v, 0, keys, zeros(code, tile, height))
        if not self.one_block:
            fresh = acc
            corrected = lambda: self._corrected(local, height, to, fresh)
            acc = code.branch(code.compare("eq", first_key, 0), lambda: fresh, corrected, [x.type for x in fresh])
        store_tile(code, tile, acc, self.sums, to, self.out_row)

    def _corrected(self, local: Index, height: int, to: Index, acc: list[ir.Value]) -> list[ir.Value]:
        """`old * correction + acc`."""
        code, tile = self.code, self.value_tile
        old = load_tile(code, tile, self.sums, to, self.out_row, height)
        factors = [self.softmax.correction(code.add(local, r), tile.width) for r in range(height)]
        pairs = enumerate(zip(old, acc))
        return [numeric.multiply_add(code, x, factors[n // tile.vectors], total) for n, (x, total) in pairs]

    def _write(self, row: Index, i: Index) -> None:
        """Divide one row by its sum, and write it through the epilogue."""
        code, tile = self.code, self.tile
        local = code.sub(i, row)
        factor = numeric.broadcast(code, self.softmax.end(self.head, i, local), tile.width)
        at = code.mul(local, self.out_row)

        def scale(c: Index) -> None:
            x = code.vload(self.sums, code.add(at, c), tile.width)
            code.vstore(code.op("arith.mulf", [x.type], [x, factor]), self.sums, code.add(at, c))

        code.loop(0, self.out_row, tile.width, [], scale)
        self.epilogue.emit([*self.head, i], 0, self.width, self.sums, at)


def _widened(tile: Tile, problem: AttentionProblem) -> Tile:
    """A tile of more columns for few query rows, if that many divide V's width."""
    assert isinstance(problem.queries, int)
    rows = max(1, problem.queries)
    group = next(g for g in (4, 2, 1) if g == 1 or (g * rows <= tile.rows and divides(tile.columns * g, problem.width)))
    return Tile(tile.rows, tile.vectors * group, tile.width, tile.dtype)
