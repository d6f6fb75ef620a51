"""Find attention in its parts: `softmax(q kT * scale + mask) v`, however scale and mask are written.

Read from the end: the product with `v`, the softmax (also torch's safe one, which gives zeros for a row with everything
masked), then masks, scales and reshapes down to the product of `q` and `kT`. Keys and values that are repeated over
heads become fewer heads. Masks that are known when compiling and causal are no operands.

The op gives zeros where a whole row is masked, where softmax gives NaN: such rows are put right behind it, unless the
mask cannot have any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.dtypes import is_float
from ...dialects.mlir_types import type_of
from ...dialects.op import OpError
from ...dialects.strides import View, ViewError
from .attention_masks import Mask, combine, fits, row_is_kept
from .canonicalize_attention import share_heads
from .canonicalize_values import scalar_of
from .rewriter import Match, Replacement

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Scores:
    """`q kT * scale` and its masks, which broadcast to `[*batch, rows, columns]`; `inside` are the ops that make it."""

    q: ir.Value
    k_transposed: ir.Value
    batch: Shape
    inside: tuple[Match, ...]
    scale: float = 1.0
    masks: tuple[Mask, ...] = ()


def recognize_attention(m: Match) -> Replacement:
    """The attention op for a product whose first operand is a softmax of masked scores."""
    weights, inside = _below_reshapes(m, m.operands[0])
    softmax, safe = _softmax(m, weights, inside)
    if softmax is None or softmax.attributes["dim"] % softmax.type.rank != softmax.type.rank - 1:
        return None
    scores = read_scores(m, softmax["x"])
    if scores is None or not _is_closed(m, (*inside, *scores.inside)):
        return None
    v = m.operands[1]
    dtype, batch = type_of(scores.q).dtype, _batch(m, scores, v)
    shape = (*batch, *softmax.type.shape[-2:])
    if m.type.dtype != dtype or dims.product(batch) != dims.product(m.type.shape[:-2]) or shape[-1] == 0:
        return None
    if not all(fits(mask, shape) for mask in scores.masks):
        return None
    q, q_scale = _unscaled(m, scores.q)
    k, k_scale = _unscaled(m, scores.k_transposed)
    q, k, v = (_in_batch(m, t, batch) for t in (q, _transposed(m, k), v))
    groups, k, v = share_heads(m, k, v)
    mask = combine(m, scores.masks, softmax.type.dtype, shape)
    if mask is None or not (_has_strides(m, k) and _has_strides(m, v)):
        return None
    scale = scores.scale * q_scale * k_scale
    out = m.build("attention", [q, k, v, mask.value], causal=mask.causal, scale=scale, gqa=groups)
    if mask.empty_rows and mask.value is not None and not safe:
        if not isinstance(shape[-1], int):
            return None  # without keys there is nothing masked, and eager gives zeros
        nan = m.build("full", [], shape=(), value=math.nan, dtype=dtype)
        out = m.build("where", [row_is_kept(m, mask.value), out, nan])
    return out if type_of(out) == m.type else m.build("reshape", [out], shape=m.type.shape)


# -- from the end to the product --------------------------------------------------------------------------------
def _below_reshapes(m: Match, value: ir.Value | None) -> tuple[ir.Value | None, list[Match]]:
    """The value under reshapes of leading dims and casts, and these ops."""
    found: list[Match] = []
    made = m.producer(value)
    while made and (made.cls.name == "cast" or (made.cls.name == "reshape" and _keeps_matrix(made))):
        found.append(made)
        value = made["x"]
        made = made.producer(value)
    return value, found


def _keeps_matrix(reshape: Match) -> bool:
    return type_of(reshape["x"]).shape[-2:] == reshape.type.shape[-2:]


def _softmax(m: Match, value: ir.Value | None, inside: list[Match]) -> tuple[Match | None, bool]:
    """The softmax that makes `value`, and whether it is `where(not any(x != -inf), 0, softmax(x))`; adds to `inside`."""
    softmax = m.made_by("softmax", value)
    if softmax:
        inside.append(softmax)
        return softmax, False
    choice = m.made_by("where", value)
    lost = m.made_by("logical_not", choice.operands[0]) if choice else None
    some = m.made_by("any", lost.operands[0]) if lost else None
    differs = m.made_by("ne", some["x"]) if some else None
    softmax = m.made_by("softmax", choice.operands[2]) if choice else None
    if not (choice and lost and some and differs and softmax):
        return None, False
    whole = differs.operands[0] == softmax["x"] and scalar_of(m, differs.operands[1]) == -math.inf
    if (
        not whole
        or scalar_of(m, choice.operands[1]) != 0
        or [d % softmax.type.rank for d in some.attributes["dims"]] != [softmax.type.rank - 1]
    ):
        return None, False
    inside += [choice, lost, some, differs, softmax]
    return softmax, True


def read_scores(m: Match, value: ir.Value) -> Scores | None:
    """Read the steps that make scores, the last one first."""
    made = m.producer(value)
    if made is None or not is_float(made.type.dtype):
        return None
    match made.cls.name:
        case "matmul":
            return Scores(made.operands[0], made.operands[1], made.type.shape[:-2], (made,))  # type: ignore[arg-type]
        case "cast":
            inner = read_scores(m, made["x"])
            return inner and replace(inner, inside=(*inner.inside, made))
        case "reshape":
            inner = read_scores(m, made["x"]) if _keeps_matrix(made) else None
            if inner is None:
                return None
            batch = inner.batch if inner.masks else made.type.shape[:-2]
            return replace(inner, batch=batch, inside=(*inner.inside, made))
        case "mul" | "div":
            return _scaled(m, made)
        case "add" | "where":
            return _masked(m, made)
    return None


def _scaled(m: Match, made: Match) -> Scores | None:
    found = _factor(m, made)
    inner = read_scores(m, found[0]) if found else None
    if found is None or inner is None or inner.masks:
        return None
    return replace(inner, scale=inner.scale * found[1], inside=(*inner.inside, made))


def _masked(m: Match, made: Match) -> Scores | None:
    operands = made.operands
    is_sum = made.cls.name == "add"
    for i in range(len(operands) - 2, len(operands)):
        x, other = operands[i], operands[len(operands) - 1 - i + (0 if is_sum else 1)]
        assert x is not None and other is not None and operands[0] is not None
        fill = None if is_sum else scalar_of(m, other)
        if type_of(x) != made.type or (fill is None and not is_sum):
            continue
        inner = read_scores(m, x)
        if inner is None or (inner.masks and inner.batch != made.type.shape[:-2]):
            continue
        mask = Mask(other) if is_sum else Mask(operands[0], keep=i == 1, fill=float(fill))  # type: ignore[arg-type]
        masks = (*inner.masks, mask)
        return replace(inner, batch=made.type.shape[:-2], masks=masks, inside=(*inner.inside, made))
    return None


def _factor(m: Match, made: Match | None) -> tuple[ir.Value, float] | None:
    """`(x, c)` of `x * c`, `c * x` and `x / c`."""
    if made is None or made.cls.name not in ("mul", "div") or made.attributes.get("rounding", "none") != "none":
        return None
    a, b = made.operands
    sides = ((a, b), (b, a)) if made.cls.name == "mul" else ((a, b),)
    for x, c in sides:
        value = scalar_of(m, c)
        if x is not None and value and type_of(x) == made.type:
            return x, float(value) if made.cls.name == "mul" else 1 / value
    return None


def _is_closed(m: Match, inside: tuple[Match, ...]) -> bool:
    """True if nothing but these ops and `m` reads what they make."""
    known = {m.op.results[0], *(i.op.results[0] for i in inside)}
    users = (use.owner.operation for i in inside for r in i.op.results for use in r.uses)
    return all(user.name != "func.return" and user.results[0] in known for user in users)


# -- q, k and v -------------------------------------------------------------------------------------------------
def _batch(m: Match, scores: Scores, v: ir.Value | None) -> Shape:
    """The dims of batches and heads: those that `v` had before they were merged, where the masks allow; at least one."""
    made = m.made_by("reshape", v)
    if len(scores.batch) != 1 or any(type_of(mask.value).rank > 2 for mask in scores.masks):
        return scores.batch or (1,)
    if made is None or not _keeps_matrix(made) or type_of(made["x"]).rank < 3:
        return scores.batch
    return type_of(made["x"]).shape[:-2]


def _reshaped(m: Match, value: ir.Value, shape: Shape) -> ir.Value:
    """`value` in another shape, read through the reshapes that made it."""
    made = m.made_by("reshape", value)
    while made and type_of(value).shape != shape:
        value = made["x"]
        made = m.made_by("reshape", value)
    return value if type_of(value).shape == shape else m.build("reshape", [value], shape=shape)


def _in_batch(m: Match, value: ir.Value, batch: Shape) -> ir.Value:
    return _reshaped(m, value, (*batch, *type_of(value).shape[-2:]))


def _unscaled(m: Match, value: ir.Value) -> tuple[ir.Value, float]:
    """`(x, c)` with `value = x * c`, also where views were taken after the product."""
    made = m.producer(value)
    found = _factor(m, made)
    if found:
        x, c = _unscaled(m, found[0])
        return x, c * found[1]
    if made is None or made.cls.name not in ("reshape", "permute"):
        return value, 1.0
    x, c = _unscaled(m, made["x"])
    return (value, 1.0) if x == made["x"] else (m.build(made.cls.name, [x], **made.attributes), c)


def _transposed(m: Match, value: ir.Value) -> ir.Value:
    """`value` with its last two dims exchanged."""
    made = m.producer(value)
    if made and made.cls.name == "permute":
        *lead, a, b = made.attributes["dims"]
        order = (*lead, b, a)
        return made["x"] if order == tuple(range(len(order))) else m.build("permute", [made["x"]], dims=order)
    if made and made.cls.name == "reshape" and _keeps_matrix(made) and made.type.rank > 1:
        *batch, rows, columns = made.type.shape
        return _reshaped(m, _transposed(m, made["x"]), (*batch, columns, rows))
    rank = type_of(value).rank
    return m.build("permute", [value], dims=(*range(rank - 2), rank - 1, rank - 2))


def _has_strides(m: Match, value: ir.Value) -> bool:
    """True if `value` is a view with strides of a tensor in memory, which the emitters read in place."""
    try:
        return _view(m, value) is not None
    except (ViewError, OpError):
        return False


def _view(m: Match, value: ir.Value) -> View:
    made = m.producer(value)
    if made is None or made.cls.category != "view":
        return View.whole(type_of(value).shape)
    return _view(m, made["x"]).apply(made.cls.name, made.attributes)
