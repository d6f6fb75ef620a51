"""Read the attention op at the root of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from ...dialects.dims import Dim
from ..loops.strided_view import View, strided_view
from .frame import Frame
from .problem import operand_shape


@dataclass(frozen=True)
class AttentionProblem:
    """`out[*heads, queries, width] = softmax(q k^T * scale + mask) v`; query head `h` reads head `h // gqa` of k and v."""

    root: ir.Operation
    q: ir.Value
    k: ir.Value
    v: ir.Value
    k_view: View | None  # None: the kernel computes it
    v_view: View | None
    mask: ir.Value | None
    mask_shape: tuple[Dim, ...]
    dtype: str
    heads: tuple[Dim, ...]
    queries: Dim
    keys: Dim
    depth: Dim
    width: Dim
    causal: bool
    scale: float | None
    gqa: int


def read_attention(frame: Frame) -> AttentionProblem:
    """The root of a kernel of kind `attention`."""
    root = frame.root("attention")
    q, k, v = root.operands[0], root.operands[1], root.operands[2]
    mask = root.operands[3] if len(root.operands) > 3 else None
    k_view, v_view = strided_view(k, frame.shapes), strided_view(v, frame.shapes)
    q_shape = operand_shape(frame, q)
    scale = root.attributes["scale"]
    return AttentionProblem(
        root=root,
        q=q,
        k=k,
        v=v,
        k_view=k_view,
        v_view=v_view,
        mask=mask,
        mask_shape=operand_shape(frame, mask) if mask is not None else (),
        dtype=str(ir.RankedTensorType(q.type).element_type),
        heads=q_shape[:-2],
        queries=q_shape[-2],
        keys=operand_shape(frame, k)[-2],
        depth=q_shape[-1],
        width=operand_shape(frame, v)[-1],
        causal=ir.BoolAttr(root.attributes["causal"]).value,
        scale=ir.FloatAttr(scale).value if isinstance(scale, ir.FloatAttr) else None,
        gqa=ir.IntegerAttr(root.attributes["gqa"]).value,
    )
