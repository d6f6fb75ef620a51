"""Emit attention kernels: scores of a few query rows at a time, softmax in place, times V; nothing else is stored.

    for item:  (batch and head, block of query rows)
        pack K transposed (and V, where it has no unit-stride rows of whole panels)   when the head changes
        for each tile of query rows:
            q * scale to scratch;  scores = q kT   (register tiles, K = D)
            softmax of each row:   mask, max, exp and sum; the row stays in L1 or L2
            out = scores v / sum   (register tiles, K = keys), fused epilogue

A whole row of scores is in scratch at once, so no running maximum has to be corrected. With `causal`, keys after the
tile's last row are never touched. A row with everything masked gives zeros (and lse 0), as torch's fused kernels do.
"""

from __future__ import annotations

import math

from mlir import ir

from ..dialects import dims
from . import tiles_numeric as numeric
from .attention_problem import AttentionProblem, read_attention
from .attention_softmax import Softmax
from .registry import register
from .tiles_code import Index, delinearize
from .tiles_copy import copy_line
from .tiles_epilogue import Epilogue
from .tiles_frame import Frame, kernels, open_frame
from .tiles_gemm import CHUNK_WORK, block_size, row_cases
from .tiles_micro import Panel, Rows, choose_tile, multiply, store_tile, zeros
from .tiles_pack import Matrix, pack_panel
from .tiles_problem import element_offset

ROW_BLOCK = 48  # query rows of an item, at most


@register
def emit_attention(module: ir.Module, vector_bits: int = 256, registers: int = 16) -> None:
    """Replace each kernel of kind `attention` by loops over register tiles.

    Before: `%y, %lse = "lamina.attention"(%q, %k, %v)` on tensors.
    After: a function on flat memrefs that holds the scores of one tile of query rows at a time.
    """
    with module.context:
        for function in kernels(module, "attention"):
            with open_frame(function) as frame:
                _Attention(frame, read_attention(frame), vector_bits, registers).emit()


class _Attention:
    """One kernel."""

    def __init__(self, frame: Frame, problem: AttentionProblem, vector_bits: int, registers: int):
        self.frame, self.code, self.problem = frame, frame.code, problem
        p, code = problem, frame.code
        self.tile = choose_tile(numeric.compute_dtype(p.dtype), vector_bits, registers)
        self.rows, self.keys, self.depth, self.width = (code.size(d) for d in (p.queries, p.keys, p.depth, p.width))
        self.row_block = block_size(p.queries, ROW_BLOCK, self.tile.rows)
        self.row_blocks = dims.ceildiv(p.queries, self.row_block)
        out, lse = p.root.results
        outputs = [(value, buffer) for value, buffer in frame.outputs if value != lse]
        self.lse = [buffer for value, buffer in frame.outputs if value == lse]
        self.epilogue = Epilogue(frame, p.root, p.dtype, self.tile, (*p.heads, p.queries), (p.width,), outputs=outputs)
        v_buffer = frame.inputs[p.v_view.base]
        whole = isinstance(p.width, int) and p.width % self.tile.columns == 0
        self.v_in_place = whole and p.v_view.strides[-1] == 1 and v_buffer.dtype == self.tile.dtype

    def emit(self) -> None:
        """Emit the whole body and close the frame."""
        code, p, tile = self.code, self.problem, self.tile
        element, bytes = numeric.element_type(tile.dtype), 8 if tile.dtype == "f64" else 4
        scratch = lambda size: code.scratch(size, element, bytes)
        self.row_length = code.mul(code.ceildiv(self.keys, tile.columns), tile.columns)
        self.k_packed = scratch(code.mul(self.row_length, self.depth))
        if not self.v_in_place:
            columns = code.mul(code.ceildiv(self.width, tile.columns), tile.columns)
            self.v_packed = scratch(code.mul(columns, self.keys))
        self.scores = scratch(code.mul(self.row_length, tile.rows))
        self.q_tile = scratch(code.mul(self.depth, tile.rows))
        self.factors = scratch(tile.rows)
        self.sums = scratch(tile.rows * tile.columns)
        self.softmax = Softmax(self.frame, p, tile, self.scores, self.row_length, self.factors, self.lse)
        code.loop(self.frame.begin, self.frame.end, 1, [], self._item)
        work = 4 * self.row_block * dims.product(d if isinstance(d, int) else 64 for d in (p.keys, p.depth))
        self.frame.close(dims.product(p.heads) * self.row_blocks, max(1, CHUNK_WORK // max(1, work)))

    def _item(self, number: ir.Value) -> None:
        code, p = self.code, self.problem
        row_blocks = code.size(self.row_blocks)
        row = code.mul(code.rem(number, row_blocks), self.row_block)
        head = delinearize(code, code.div(number, row_blocks), p.heads)
        self.kv_head = [*head[:-1], code.div(head[-1], p.gqa)]
        new_head = code.either(code.compare("eq", number, self.frame.begin), code.compare("eq", row, 0))
        code.branch(new_head, self._pack)
        row_end = code.min(code.add(row, self.row_block), self.rows)
        code.loop(row, row_end, self.tile.rows, [], lambda i: self._row_tile(head, i, row_end))

    def _pack(self) -> None:
        p = self.problem
        self._pack_panels(self._matrix(p.k_view, transposed=True), self.depth, self.keys, self.k_packed)
        if not self.v_in_place:
            self._pack_panels(self._matrix(p.v_view, transposed=False), self.keys, self.width, self.v_packed)

    def _pack_panels(self, matrix: Matrix, k: Index, columns: Index, out: ir.Value) -> None:
        code, width = self.code, self.tile.columns

        def panel(j: Index) -> None:
            first = code.mul(j, width)
            count = code.min(width, code.sub(columns, first))
            count = width if isinstance(columns, int) and columns % width == 0 else count
            pack_panel(code, self.tile, matrix, k, first, count, out, code.mul(first, k))

        code.loop(0, code.ceildiv(columns, width), 1, [], panel)

    def _matrix(self, view, transposed: bool) -> Matrix:  # noqa: ANN001
        """K transposed or V of the item's head."""
        code = self.code
        buffer = self.frame.inputs[view.base]
        outer, inner = (code.size(s) for s in view.strides[-2:])
        k_stride, n_stride = (inner, outer) if transposed else (outer, inner)
        return Matrix(buffer.memref, buffer.dtype, element_offset(code, view, self.kv_head), k_stride, n_stride)

    def _row_tile(self, head: list[Index], i: Index, row_end: Index) -> None:
        """Query rows `i ...` of one head."""
        code, p, tile = self.code, self.problem, self.tile
        count = code.min(tile.rows, code.sub(row_end, i))
        if isinstance(p.queries, int) and p.queries % tile.rows == 0:
            count = tile.rows
        cases = row_cases(p.queries, tile.rows)
        keys = code.min(self.keys, code.add(i, count)) if p.causal else self.keys
        code.loop(0, count, 1, [], lambda r: self._copy_query(head, code.add(i, r), code.mul(r, self.depth)))
        q = Rows(self.q_tile, [code.mul(r, self.depth) for r in range(tile.rows)])

        def score(j: Index) -> None:
            first = code.mul(j, tile.columns)
            k = Panel(self.k_packed, code.mul(first, self.depth), tile.columns)

            def compute(height: int) -> None:
                acc = multiply(code, tile, q.top(height), k, 0, self.depth, zeros(code, tile, height))
                store_tile(code, tile, acc, self.scores, first, self.row_length)

            code.switch(count, cases, compute)

        code.loop(0, code.ceildiv(keys, tile.columns), 1, [], score)
        code.loop(0, count, 1, [], lambda r: self.softmax.row(head, code.add(i, r), r, keys))
        weights = Rows(self.scores, [code.mul(r, self.row_length) for r in range(tile.rows)])

        def value(j: Index) -> None:
            first = code.mul(j, tile.columns)
            code.switch(count, cases, lambda height: self._value_tile(weights.top(height), first, keys, height))
            width = tile.columns
            if not (isinstance(self.width, int) and self.width % tile.columns == 0):
                width = code.min(tile.columns, code.sub(self.width, first))

            def write(r: Index) -> None:
                self.epilogue.emit([*head, code.add(i, r)], first, width, self.sums, code.mul(r, tile.columns))

            code.loop(0, count, 1, [], write)

        code.loop(0, code.ceildiv(self.width, tile.columns), 1, [], value)

    def _copy_query(self, head: list[Index], row: Index, at: Index) -> None:
        """One query row times the scale, in the compute dtype."""
        p, tile = self.problem, self.tile
        depth = p.depth if isinstance(p.depth, int) else None
        scale = p.scale
        if scale is None and depth is None:
            scale = "rsqrt"
        elif scale is None:
            scale = 1 / math.sqrt(depth) if depth else 1.0
        factor = (
            self._runtime_scale() if scale == "rsqrt" else self.code.constant(scale, numeric.element_type(tile.dtype))
        )
        copy_line(
            self.frame, p.q, p.dtype, [*head, row], 0, self.depth, self.q_tile, at, tile.dtype, tile.width, factor
        )

    def _runtime_scale(self) -> ir.Value:
        code, kind = self.code, numeric.element_type(self.tile.dtype)
        i64 = ir.IntegerType.get_signless(64)
        depth = code.op("arith.sitofp", [kind], [code.op("arith.index_cast", [i64], [code.value(self.depth)])])
        return code.op("arith.divf", [kind], [code.constant(1.0, kind), code.op("math.sqrt", [kind], [depth])])

    def _value_tile(self, weights: Rows, first: Index, keys: Index, height: int) -> None:
        """`sums = weights v / sum` for one register tile of output columns."""
        code, tile, p = self.code, self.tile, self.problem
        if self.v_in_place:
            start = code.add(element_offset(code, p.v_view, self.kv_head), first)
            v = Panel(self.frame.inputs[p.v_view.base].memref, start, code.size(p.v_view.strides[-2]))
        else:
            v = Panel(self.v_packed, code.mul(first, self.keys), tile.columns)
        acc = multiply(code, tile, weights, v, 0, keys, zeros(code, tile, height))
        scaled = []
        for n, total in enumerate(acc):
            factor = numeric.broadcast(code, code.load(self.factors, n // tile.vectors), tile.width)
            scaled.append(code.op("arith.mulf", [total.type], [total, factor]))
        store_tile(code, tile, scaled, self.sums, 0, tile.columns)
