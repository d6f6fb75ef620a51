"""What is known of the masks of attention scores: whether they are causal, and whether they can mask a whole row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mlir import ir

from ...dialects.dims import Dim
from ...dialects.dtypes import is_float
from ...dialects.mlir_types import type_of
from .fold_constants import evaluate
from .rewriter import Match

_LARGEST = 1 << 20  # elements of masks that are evaluated: the causal mask of 1024 tokens takes some milliseconds
# Adding this to a score gives it alone, in f32 and f64: no score is larger than a rounding of it (1e22, 1e14).
_OVERWHELMING = -1e30
# Sums of integers too: transformers derives masks from positions.
_EVALUATED = ("creation", "view", "pointwise", "gather", "direct")


@dataclass(frozen=True)
class Mask:
    """One step on the way from scores to the softmax: `scores + value`, or `fill` where a bool `value` is not `keep`."""

    value: ir.Value
    keep: bool | None = None  # None: a float mask that is added
    fill: float = -math.inf


@dataclass(frozen=True)
class Combined:
    """All masks as operands of the op; `empty_rows` if there may be rows with everything masked."""

    value: ir.Value | None = None
    causal: bool = False
    empty_rows: bool = False


def combine(m: Match, masks: Sequence[Mask], dtype: str, shape: Sequence[Dim]) -> Combined | None:
    """Make one mask for scores of `shape`; None where a fill is neither -inf nor as good as that."""
    triangles = [mask for mask in masks if is_causal(m, mask, shape)]
    others = [mask for mask in masks if mask not in triangles]
    if triangles and all(mask.keep is None and is_finite(m, mask.value) for mask in others[:1]) and len(others) < 2:
        return Combined(others[0].value if others else None, causal=True)
    kept: list[ir.Value] = []
    added: list[ir.Value] = []
    for mask in masks:
        if mask.keep is None:
            added.append(mask.value)
        elif mask.fill == -math.inf or mask in triangles:
            kept.append(mask.value if mask.keep else m.build("logical_not", [mask.value]))
        elif mask.fill <= _OVERWHELMING and dtype in ("f32", "f64"):
            zero, fill = (m.build("full", [], shape=(), value=v, dtype=dtype) for v in (0.0, mask.fill))
            added.append(m.build("where", [mask.value, *((zero, fill) if mask.keep else (fill, zero))]))
        else:
            return None
    finite = not kept and (not added or (len(added) == 1 and is_finite(m, added[0])))
    value = _all(m, "add", added)
    if kept:
        keep = _all(m, "logical_and", kept)
        nothing = m.build("full", [], shape=(), value=-math.inf, dtype=dtype)
        value = keep if value is None else m.build("where", [keep, value, nothing])
    return Combined(value, empty_rows=not finite)


def _all(m: Match, name: str, values: list[ir.Value]) -> ir.Value | None:
    result = values[0] if values else None
    for value in values[1:]:
        result = m.build(name, [result, value])
    return result


def is_causal(m: Match, mask: Mask, shape: Sequence[Dim]) -> bool:
    """True if the mask is known to keep just the columns `j <= i`, and to leave these as they are."""
    rows, columns = shape[-2:]
    if not (isinstance(rows, int) and isinstance(columns, int)) or rows * columns > _LARGEST or rows < 2:
        return False
    known = known_array(m, mask.value)
    if known is None or known.ndim < 2 or known.shape[-2:] != (rows, columns):
        return False
    triangle = np.tri(rows, columns, dtype=bool)
    if mask.keep is not None:
        return bool((known == (triangle if mask.keep else ~triangle)).all())
    dropped = known <= _OVERWHELMING
    return bool((dropped == ~triangle).all() and (known[..., triangle] == 0).all())


def is_finite(m: Match, value: ir.Value) -> bool:
    """True if the float mask `value` is known to hold neither -inf nor NaN."""
    made = m.producer(value)
    if made is None:
        return False
    if made.cls.name == "where":
        return all(x is not None and is_finite(m, x) for x in made.operands[1:])
    if made.cls.category == "view":
        return is_finite(m, made["x"])
    known = known_array(m, value)
    return known is not None and bool(np.isfinite(known.astype(np.float64)).all())


def known_array(m: Match, value: ir.Value) -> np.ndarray | None:
    """The elements of a tensor that literals and exact ops make; None if it is not so, or is large."""
    if value not in m.facts:  # all layers of a model have one mask
        m.facts[value] = _evaluated(m, value)
    return m.facts[value]


def _evaluated(m: Match, value: ir.Value) -> np.ndarray | None:
    made = m.producer(value)
    if made is None or made.cls.category not in _EVALUATED or len(made.op.results) != 1:
        return None
    if made.cls.numerics != "exact" and is_float(made.type.dtype):
        return None
    count = made.type.numel
    if not isinstance(count, int) or count > _LARGEST:
        return None
    operands = [None if x is None else known_array(m, x) for x in made.operands]
    if any(x is not None and y is None for x, y in zip(made.operands, operands)):
        return None
    arrays = evaluate(made.cls, operands, made.attributes, [made.type])
    return arrays[0] if arrays else None


def row_is_kept(m: Match, mask: ir.Value) -> ir.Value:
    """True for each row of which the mask leaves something."""
    if is_float(type_of(mask).dtype):
        nothing = m.build("full", [], shape=(), value=-math.inf, dtype=type_of(mask).dtype)
        mask = m.build("ne", [mask, nothing])
    return m.build("any", [mask], dims=(type_of(mask).rank - 1,), keepdim=True)


def fits(mask: Mask, shape: Sequence[Dim]) -> bool:
    """True if the mask broadcasts to scores of `shape`."""
    given = type_of(mask.value).shape
    return len(given) <= len(shape) and all(a in (1, b) for a, b in zip(given[::-1], tuple(shape)[::-1]))
