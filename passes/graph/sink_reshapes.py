"""Move reshapes below pointwise and row ops and reductions, which then have the shape of the matmul or row op that feeds them."""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.mlir_types import type_of
from ...dialects.op import all_ops, normalize_dim
from ..registry import register
from .canonicalize_views import VIEWS
from .dataflow import entry_functions
from .dce import dce
from .rewriter import Match, Patterns, Replacement

_ALL = Patterns()
Shape = tuple[Dim, ...]
# What it is worth to be in the shape of an op of these categories: with the first three an op is an epilogue.
_BELOW = {"matmul": 2, "conv": 2, "attention": 2, "pointwise": 1, "row": 1, "gather": 1}
_REDUCTIONS = ("sum", "mean", "amax", "amin")  # of any dims at a time, whatever the order of their elements


@register
def sink_reshapes(module: ir.Module) -> None:
    """Compute pointwise and row ops before a reshape of their operand rather than after it, where the shapes allow.

    A linear layer on flattened rows followed by ops on [batch, sequence, features] is one kernel only then.

    Before:
    ```mlir
    func.func @main(%a: tensor<6x8xf32>, %x: tensor<2x3x8xf32>) -> tensor<2x3x8xf32> {
      %0 = "lamina.neg"(%a) : (tensor<6x8xf32>) -> tensor<6x8xf32>
      %1 = "lamina.reshape"(%0) {shape = ["2", "3", "8"]} : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
      %2 = "lamina.add"(%1, %x) : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
      return %2 : tensor<2x3x8xf32> }
    ```
    After:
    ```mlir
    func.func @main(%a: tensor<6x8xf32>, %x: tensor<2x3x8xf32>) -> tensor<2x3x8xf32> {
      %0 = "lamina.neg"(%a) : (tensor<6x8xf32>) -> tensor<6x8xf32>
      %1 = "lamina.reshape"(%x) {shape = ["6", "8"]} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
      %2 = "lamina.add"(%0, %1) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
      %3 = "lamina.reshape"(%2) {shape = ["2", "3", "8"]} : (tensor<6x8xf32>) -> tensor<2x3x8xf32>
      return %3 : tensor<2x3x8xf32> }
    ```
    """
    with module.context:
        for function in entry_functions(module):
            _ALL.apply(function)
    dce(module)


def dim_groups(old: Shape, new: Shape) -> list[tuple[range, range]] | None:
    """Split two shapes of one size into the shortest groups of adjacent dims with equal products, from the left.

    `[2, 3, 8]` and `[6, 8]`: `[(0..1, 0..0), (2..2, 1..1)]`; dims of size 1 are groups of their own. None where there are
    no elements, or symbolic products cannot be compared.
    """
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        a, b = i, j
        if i < len(old) and old[i] == 1:
            i += 1
        elif j < len(new) and new[j] == 1:
            j += 1
        elif i == len(old) or j == len(new) or 0 in (old[i], new[j]):
            return None
        else:
            left, right, i, j = old[i], new[j], i + 1, j + 1
            while left != right:
                if i < len(old) and (_is_behind(left, right) or j == len(new)):
                    left, i = left * old[i], i + 1
                elif j < len(new):
                    right, j = right * new[j], j + 1
                else:
                    return None
        groups.append((range(a, i), range(b, j)))
    return groups


def _is_behind(a: Dim, b: Dim) -> bool:
    """True if `a` should grow to meet `b`: it is a divisor, or smaller, or neither is known."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return dims.mod(b, a) == 0 or dims.mod(a, b) != 0


def before_reshape(shape: Shape, old: Shape, new: Shape) -> Shape | None:
    """The shape over `old` of an operand that broadcasts to `new = reshape(old)`; None if it does not follow groups."""
    groups = dim_groups(old, new)
    if groups is None:
        return None
    padded = (1,) * (len(new) - len(shape)) + shape
    result: list[Dim] = []
    for before, after in groups:
        given = tuple(padded[j] for j in after)
        if given == tuple(new[j] for j in after):
            result += [old[i] for i in before]
        elif all(d == 1 for d in given):
            result += [1] * len(before)
        else:
            return None
    if len(shape) == len(new):
        return tuple(result)
    return tuple(result[next((i for i, d in enumerate(result) if d != 1), len(result)) :])


def _worth(m: Match, value: ir.Value) -> int:
    """What `m` gains by having the shape of `value`, one of its operands' sources."""
    maker = m.producer(value)
    return _BELOW.get(maker.cls.category, 0) if maker else 0


def _sunk_source(m: Match) -> ir.Value | None:
    """The source of the reshape to move below `m`: one to the result's shape, of the value most worth being next to."""
    full = [x for x in m.operands if x is not None and type_of(x).shape == m.type.shape]
    sources = [reshape["x"] for x in full if (reshape := m.made_by("reshape", x))]
    source = max(sources, key=lambda s: _worth(m, s), default=None)
    if source is None or not _worth(m, source):
        return None
    # The full operands that have the new shape already, and those that will need a reshape of their own. A sink has to
    # gain by that measure, or else lower the rank, so that none undoes another.
    old = type_of(source).shape
    near = sum(_worth(m, s) for s in sources if type_of(s).shape == old)
    far = sum(_worth(m, x) for x in full if not m.made_by("reshape", x))
    return source if (near, len(m.type.shape)) > (far, len(old)) else None


def sink_below_pointwise(m: Match) -> Replacement:
    """`f(reshape(a), b)` is `reshape(f(a, reshape(b)))`."""
    source = _sunk_source(m)
    if source is None or len(m.op.results) != 1:
        return None
    old, new = type_of(source).shape, m.type.shape
    operands: list[ir.Value | None] = []
    for x in m.operands:
        if x is None:
            operands.append(None)
            continue
        shape = before_reshape(type_of(x).shape, old, new)
        if shape is None:
            return None
        inner = m.made_by("reshape", x)
        base = inner["x"] if inner else x
        operands.append(base if type_of(base).shape == shape else m.build("reshape", [base], shape=shape))
    made = m.build(m.cls.name, operands, **m.attributes)
    if type_of(made).shape != old:
        return None  # no operand has the full shape
    return m.build("reshape", [made], shape=new)


def sink_below_softmax(m: Match) -> Replacement:
    """`softmax(reshape(a))` is `reshape(softmax(a))` if the reshape leaves the softmax dim alone."""
    source = _sunk_source(m)
    if source is None:
        return None
    old, new = type_of(source).shape, m.type.shape
    dim = normalize_dim(m.attributes["dim"], len(new))
    for before, after in dim_groups(old, new) or []:
        if dim in after and len(before) == len(after) == 1:
            made = m.build(m.cls.name, [source], dim=before[0])
            return m.build("reshape", [made], shape=new)
    return None


def sink_below_reduction(m: Match) -> Replacement:
    """`sum(reshape(a))` is `reshape(sum(a))` if it sums whole dims of `a`: all of a group that the reshape merges, or none."""
    reshape = m.made_by("reshape", m["x"])
    if reshape is None or not _worth(m, reshape["x"]):
        return None
    old, new = type_of(reshape["x"]).shape, type_of(m["x"]).shape
    reduced = {normalize_dim(d, len(new)) for d in m.attributes["dims"]}
    dims_of_old: list[int] = []
    for before, after in dim_groups(old, new) or []:
        taken = {d in reduced for d in after if new[d] != 1}
        if len(taken) > 1:
            return None
        dims_of_old += before if taken == {True} else ()
    if not dims_of_old:
        return None
    made = m.build(m.cls.name, [reshape["x"]], **{**m.attributes, "dims": tuple(dims_of_old)})
    return m.build("reshape", [made], shape=m.type.shape)


def _register() -> None:
    for name, cls in all_ops().items():
        if cls.category == "pointwise" and name != "materialize":
            _ALL.pattern(name)(sink_below_pointwise)
    for name in ("softmax", "log_softmax"):
        _ALL.pattern(name)(sink_below_softmax)
    for name in _REDUCTIONS:
        _ALL.pattern(name)(sink_below_reduction)
    for name in ("reshape", "expand", "permute"):
        for pattern in VIEWS.by_name[name]:
            _ALL.pattern(name)(pattern)


_register()
