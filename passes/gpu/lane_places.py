"""Where the elements of a vector's lanes lie: `LANE` is the symbol of a lane in addresses.

An address is known to be in an aligned load of `V` elements if all of it but a constant is a multiple of `V`.
"""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim, Expr
from .gpu_kernel import element_bytes

LANE = "lane"
LOAD_BYTES = 16  # of the longest load


def divisible(e: Dim, k: int) -> bool:
    """True if `e` is a multiple of `k` whatever its symbols are."""
    return e % k == 0 if isinstance(e, int) else all(c % k == 0 for c in e.terms.values())


def whole_load(element: ir.Type, count: int) -> int:
    """The elements of an aligned load of LOAD_BYTES; 0 where `count` elements are no whole number of such loads."""
    lanes = LOAD_BYTES // element_bytes(element)
    return lanes if count % lanes == 0 and not _is_i1(element) else 0


def whole_place(offset: Dim, lanes: int) -> tuple[Dim, int] | None:
    """The first element of the load of `lanes` elements that `offset` is in, and its place there; None if unknown."""
    constant = offset if isinstance(offset, int) else offset.terms.get((), 0)
    if not lanes or not divisible(offset - constant, lanes):
        return None
    place = constant % lanes
    return offset - place, place


def shared_place(offset: Dim, lanes: int) -> tuple[Dim, int, int] | None:
    """As `whole_place`, of the longest load of at most `lanes` elements in which it is known, and how many it has."""
    while lanes > 1:
        place = whole_place(offset, lanes)
        if place is not None:
            return *place, lanes
        lanes //= 2
    return None


def _is_i1(type: ir.Type) -> bool:
    return isinstance(type, ir.IntegerType) and ir.IntegerType(type).width == 1


def vector_expression(e: Dim) -> bool:
    """True if the lanes of `e` do not follow a step: it needs one address per lane."""
    return isinstance(e, Expr) and LANE in dims.symbols(e) and dims.linear_coefficient(e, LANE) is None
