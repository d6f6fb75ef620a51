"""Rewrites of view ops: identities go away, chains become one view, views of `full` are `full`."""

from __future__ import annotations

from ...dialects.mlir_types import type_of
from .rewriter import Match, Patterns, Replacement

VIEWS = Patterns()


@VIEWS.pattern("reshape", "expand")
def same_shape(m: Match) -> Replacement:
    """A reshape or expand to the same shape."""
    return m["x"] if type_of(m["x"]) == m.type else None


@VIEWS.pattern("permute")
def identity_permute(m: Match) -> Replacement:
    """A permutation that moves nothing."""
    dims = m.attributes["dims"]
    return m["x"] if dims == tuple(range(len(dims))) else None


@VIEWS.pattern("slice")
def whole_slice(m: Match) -> Replacement:
    """A slice of everything."""
    steps_one = all(s == 1 for s in m.attributes["steps"])
    return m["x"] if type_of(m["x"]) == m.type and steps_one and all(s == 0 for s in m.attributes["starts"]) else None


@VIEWS.pattern("reshape")
def reshape_of_reshape(m: Match) -> Replacement:
    """Only the last shape counts."""
    inner = m.made_by("reshape", m["x"])
    return m.build("reshape", [inner["x"]], shape=m.type.shape) if inner else None


@VIEWS.pattern("permute")
def permute_of_permute(m: Match) -> Replacement:
    """`permute(permute(x, p), q)` is one permutation."""
    inner = m.made_by("permute", m["x"])
    if inner is None:
        return None
    first = inner.attributes["dims"]
    return m.build("permute", [inner["x"]], dims=tuple(first[d] for d in m.attributes["dims"]))


@VIEWS.pattern("permute")
def permute_of_ones(m: Match) -> Replacement:
    """A permutation that keeps the order of all dims other than 1 moves nothing in memory: it is a reshape."""
    shape = type_of(m["x"]).shape
    moved = [d for d in m.attributes["dims"] if shape[d] != 1]
    return m.build("reshape", [m["x"]], shape=m.type.shape) if moved == sorted(moved) else None


@VIEWS.pattern("expand")
def expand_of_expand(m: Match) -> Replacement:
    """Only the last shape counts."""
    inner = m.made_by("expand", m["x"])
    return m.build("expand", [inner["x"]], shape=m.type.shape) if inner else None


@VIEWS.pattern("expand")
def expand_by_ones(m: Match) -> Replacement:
    """An expand that only adds dims of size 1 is a reshape."""
    shape = type_of(m["x"]).shape
    more = m.type.rank - len(shape)
    same = m.type.shape == (1,) * more + shape
    return m.build("reshape", [m["x"]], shape=m.type.shape) if same else None


@VIEWS.pattern("slice")
def slice_of_slice(m: Match) -> Replacement:
    """`x[a + b*i][c + d*j]` is `x[(a + b*c) + (b*d)*j]`."""
    inner = m.made_by("slice", m["x"])
    if inner is None:
        return None
    a, b = inner.attributes["starts"], inner.attributes["steps"]
    c, d = m.attributes["starts"], m.attributes["steps"]
    return m.build(
        "slice",
        [inner["x"]],
        starts=tuple(p + q * r for p, q, r in zip(a, b, c)),
        sizes=m.attributes["sizes"],
        steps=tuple(p * q for p, q in zip(b, d)),
    )


@VIEWS.pattern("reshape", "expand", "permute", "slice", "flip")
def view_of_full(m: Match) -> Replacement:
    """Every view of a tensor of one value is such a tensor."""
    full = m.made_by("full", m["x"])
    if full is None:
        return None
    return m.build("full", [], shape=m.type.shape, value=full.attributes["value"], dtype=m.type.dtype)


@VIEWS.pattern("concat")
def concat_of_one(m: Match) -> Replacement:
    """Empty operands add nothing; one operand alone is the result."""
    dim = m.attributes["dim"]
    filled = [x for x in m["xs"] if type_of(x).shape[dim] != 0]
    if len(filled) == 1 and type_of(filled[0]) == m.type:
        return filled[0]
    return m.build("concat", filled, dim=dim) if filled and len(filled) < len(m["xs"]) else None


@VIEWS.pattern("slice")
def slice_of_concat(m: Match) -> Replacement:
    """A slice that is exactly one operand of a concat."""
    inner = m.made_by("concat", m["x"])
    if inner is None or any(s != 1 for s in m.attributes["steps"]):
        return None
    dim = inner.attributes["dim"] % m.type.rank
    if any(s != 0 for i, s in enumerate(m.attributes["starts"]) if i != dim):
        return None
    start = 0
    for x in inner["xs"]:
        if start == m.attributes["starts"][dim] and type_of(x) == m.type:
            return x
        start = start + type_of(x).shape[dim]
    return None
