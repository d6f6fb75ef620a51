"""Floats of 8 bits: torch moves them, compares them for equality, casts them, and multiplies matrices with scales.

Other ops on them are eager's, which has few and refuses most.
"""

from __future__ import annotations

from typing import Any

from ...dialects.dtypes import FLOAT8
from .registry import Value, aten, require
from .tensor_math import T

# Packets of ops that take and give floats of 8 bits as eager does: they move or convert elements.
MOVES = frozenset(
    (
        *("alias", "clone", "contiguous", "copy", "detach", "lift_fresh", "lift_fresh_copy", "_to_copy", "convert_element_type"),
        *("_reshape_alias", "_unsafe_view", "as_strided", "diagonal", "expand", "permute", "repeat", "reshape"),
        *("roll", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold"),
        *("unsqueeze", "view", "cat", "stack", "constant_pad_nd", "embedding", "index", "index_select", "where"),
        *("empty", "empty_like", "full", "full_like", "new_full", "new_zeros", "zeros", "zeros_like", "ones", "ones_like"),
        *("index_put", "select_scatter", "slice_scatter", "eq", "ne", "isnan", "_scaled_mm"),
    )
)  # fmt: skip


def check_float8(node: Any, types: Any) -> None:
    """Raise Unsupported for an op on floats of 8 bits that torch has rules of its own for; `types` are its results'."""
    tensors = [a.meta.get("val") for a in node.all_input_nodes]
    given = {str(t.dtype) for t in tensors if hasattr(t, "dtype")}
    made = {t.dtype for t in (types if isinstance(types, tuple) else (types,)) if t is not None}
    narrow = made & set(FLOAT8) or any("float8" in name for name in given)
    require(not narrow or node.target._opname in MOVES, "an op on floats of 8 bits")


@aten("_scaled_mm")
def scaled_mm(
    c: Any, a: Value, b: Value, scale_a: Value, scale_b: Value, bias: Value | None = None,
    scale_result: Value | None = None, out_dtype: str | None = None, use_fast_accum: bool = False,
) -> Value:  # fmt: skip
    """`a @ b * scale_a * scale_b + bias`, in f32 and rounded once; scales of the tensors, or of rows and columns.

    `use_fast_accum` allows sums of less than f32's precision, which only some GPUs' eager kernels have.
    """
    m, n = c.type(a).shape[0], c.type(b).shape[1]
    require(scale_result is None, "a scale of the result")
    dtype = out_dtype or c.type(a).dtype
    require(dtype not in FLOAT8 or dtype == "f8E4M3FN", "a result of 8 bits that overflows as the device has it")
    y = T(c, a).matmul(T(c, b))
    for scale, rows in ((scale_a, (m, 1)), (scale_b, (1, n))):
        s = T(c, scale)
        require(s.dtype == "f32", f"scales of {s.dtype}")
        require(s.numel(*range(s.rank)) == 1 or s.shape == rows, "scales of blocks")
        y = y * (s if s.shape == rows else s.reshape())
    if bias is not None:
        y = y + T(c, bias).to("f32")
    return c.op("cast", y.value, dtype=dtype) if dtype != "f32" else y.value
