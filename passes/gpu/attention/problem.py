"""The attention at the root of a GPU kernel, as two products with a softmax between them.

    out[head, i, :] = sum_j softmax_j(scale q[head, i, :] . k[head // gqa, j, :] + mask[head, i, j]) v[head // gqa, j, :]

All heads of all batches are counted as one. With one query a head, the `gqa` heads that share keys are the rows of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mlir import ir

from ....dialects.dims import Dim
from ...loops.evaluate_walk import Walk
from ...loops.strided_view import strided_view
from ...loops.tensor_graph import TensorGraph
from ..gpu_kernel import GpuKernel
from ..hopper.tma import Matrix
from ..matmul.operands import place_operand
from ..matmul.problem import Product, Side, graph_shapes
from ..matmul.wgmma import Operand
from .tiles import FEW_ROWS, depth_for


@dataclass(frozen=True)
class PackedRows(Side):
    """q of one row a head, with `count` neighbouring heads as rows of one batch."""

    count: int = 1

    def at(self, ev: Walk, batch: Dim, row: Dim, k: Dim) -> Any:
        return super().at(ev, self.count * batch + row, 0, k)


@dataclass(frozen=True)
class Attention:
    """One attention. `product` is `P v`, as epilogues see it: `m` query rows of `batches` heads, `n` wide."""

    root: ir.Operation
    product: Product
    operands: tuple[Product, Product, Product]  # q, k and v, each as the first operand of a product
    heads: tuple[Dim, ...]  # of the query
    queries: Dim
    keys: Dim
    depth: int  # of q, k and v in shared memory
    scale: float
    causal: bool
    mask: ir.Value | None
    gqa: int  # query heads of `product` that share keys
    packed: int  # query heads that are rows of one

    @property
    def few(self) -> bool:
        """True if keys may be split over blocks."""
        return not self.causal and isinstance(self.product.m, int) and self.product.m <= FEW_ROWS

    @property
    def rows_of_queries(self) -> Product:
        """q as the first operand of `product`, row by row."""
        q, p = self.operands[0], self.product
        if self.packed == 1:
            return q
        side = PackedRows(q.a.value, q.a.batch, q.a.rows, q.a.k, q.a.view, count=self.packed)
        return replace(q, a=side, b=side, batch=p.batch, rows=p.rows)

    def place(self, kernel: GpuKernel) -> tuple[Operand, Operand, Operand]:
        """q, k and v as the copy engine reads them, with the stages that copy them where they are not read in place."""
        q, k, v = (place_operand(kernel, p, p.a, p.m, may_turn=False) for p in self.operands)
        if self.packed > 1:
            q = replace(q, matrix=_packed(q.matrix, self.packed))
        return q, k, v


def read_attention(graph: TensorGraph) -> Attention | None:
    """The root of a kernel of kind `attention`; None for dtypes and heads that there is no code for."""
    (root,) = [op.operation for op in graph.block.operations if op.operation.name == "lamina.attention"]
    q, k, v, *masks = root.operands
    shapes = graph_shapes(graph)
    q_shape, k_shape, v_shape = (graph.shape(x) for x in (q, k, v))
    heads, queries, keys = q_shape[:-2], q_shape[-2], k_shape[-2]
    graph.declare(root.results[0], (*q_shape[:-1], v_shape[-1]))
    graph.declare(root.results[1], q_shape[:-1])
    dtype = str(ir.RankedTensorType(q.type).element_type)
    depth = _depth(q_shape[-1], v_shape[-1])
    if depth is None or dtype not in ("bf16", "f16", "f32") or 0 in (*q_shape, keys):
        return None
    rank = len(q_shape)
    lead = tuple(range(rank - 2))

    def operand(value: ir.Value) -> Product:
        shape = graph.shape(value)
        side = Side(value, lead, (rank - 2,), (rank - 1,), strided_view(value, shapes))
        return Product(root, side, side, None, shape[:-2], shape[-2:-1], shape[-1], shape[-1], dtype, shape)

    operands = (operand(q), operand(k), operand(v))
    gqa = ir.IntegerAttr(root.attributes["gqa"]).value
    causal = ir.BoolAttr(root.attributes["causal"]).value
    scale = root.attributes["scale"]
    packed = gqa if queries == 1 and not causal and gqa <= FEW_ROWS else 1
    batch, rows = (k_shape[:-2], (packed,)) if packed > 1 else (heads, (queries,))
    sides = operands[0].a, operands[2].a
    return Attention(
        root=root,
        product=Product(root, *sides, None, batch, rows, keys, v_shape[-1], dtype, (*q_shape[:-1], v_shape[-1])),
        operands=operands,
        heads=heads,
        queries=queries,
        keys=keys,
        depth=depth,
        scale=ir.FloatAttr(scale).value if isinstance(scale, ir.FloatAttr) else float(q_shape[-1]) ** -0.5,  # type: ignore[arg-type]
        causal=causal,
        mask=masks[0] if masks else None,
        gqa=1 if packed > 1 else gqa,
        packed=packed,
    )


def _depth(*widths: Dim) -> int | None:
    known = [w for w in widths if isinstance(w, int)]
    return depth_for(max(known)) if len(known) == len(widths) else None


def _packed(m: Matrix, count: int) -> Matrix:
    """A matrix of one row a head, with `count` neighbouring heads as rows of one."""
    *outer, heads = m.batch
    *strides, stride = m.batch_strides
    shared = heads // count if isinstance(heads, int) else heads
    return replace(
        m, batch=(*outer, shared), batch_strides=(*strides, count * stride), rows=count, row_stride=stride
    )  # fmt: skip
