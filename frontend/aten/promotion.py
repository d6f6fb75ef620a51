"""torch's type promotion over tensors, 0-d tensors and Python numbers.

Operands fall into three ranks: tensors with dims, 0-d tensors, numbers. Within a rank dtypes promote as
`torch.promote_types`; a lower rank changes the result only if its category (bool < int < float) is higher.

    f32[3] + 2.5 -> f32     i64[3] + 2.5 -> f32     u8[3] + 300 -> u8     bf16[3] + f64[] -> bf16
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dialects import dtypes
from ...dialects.dims import Expr
from .registry import Value

DEFAULT_FLOAT = "f32"


def number_dtype(number: bool | int | float | Expr) -> str:
    """The dtype a Python number takes part in promotion with."""
    if isinstance(number, bool):
        return "bool"
    return DEFAULT_FLOAT if isinstance(number, float) else "i64"


def combine(higher: str | None, lower: str | None) -> str | None:
    """The dtype of two ranks: `lower` counts only if its category is higher."""
    if higher is None or lower is None:
        return higher or lower
    if dtypes.is_float(higher):
        return higher
    if higher == "bool" or dtypes.is_float(lower):
        return dtypes.promote(higher, lower)
    return higher


def result_type(c: Any, args: Sequence[Any]) -> str:
    """torch.result_type of Values and Python numbers."""
    ranks: list[str | None] = [None, None, None]
    for arg in args:
        if isinstance(arg, Value):
            type = c.type(arg)
            rank, dtype = (0 if type.rank else 1), type.dtype
        else:
            rank, dtype = 2, number_dtype(arg)
        have = ranks[rank]
        ranks[rank] = dtype if have is None else dtypes.promote(have, dtype)
    found = combine(ranks[0], combine(ranks[1], ranks[2]))
    assert found is not None, "promotion of nothing"
    return found


def promote(c: Any, *args: Any) -> tuple[tuple[Value, ...], str]:
    """`args` as Values of their common dtype, and that dtype; numbers become 0-d tensors."""
    dtype = result_type(c, args)
    return tuple(as_value(c, a, dtype) for a in args), dtype


def as_value(c: Any, arg: Any, dtype: str) -> Value:
    """A Value cast to `dtype`, or a number as a 0-d tensor of it (integers wrap around, as in eager)."""
    return c.cast(arg, dtype) if isinstance(arg, Value) else c.scalar(number(arg, dtype), dtype)


def number(value: Any, dtype: str) -> Any:
    """A Python number as one of `dtype`."""
    if isinstance(value, Expr) or dtypes.is_float(dtype):
        return value if isinstance(value, Expr) else float(value)
    return bool(value) if dtype == "bool" else int(value)


def opmath(dtype: str) -> str:
    """The dtype eager computes in: f32 for f16 and bf16."""
    return "f32" if dtype in ("f16", "bf16") else dtype


def is_half(dtype: str) -> bool:
    """True for f16 and bf16."""
    return dtype in ("f16", "bf16")
