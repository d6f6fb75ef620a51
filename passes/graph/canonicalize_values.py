"""Rewrites of ops that compute: neutral elements, casts, selections, expanded operands, and arithmetic on `full` tensors."""

from __future__ import annotations

import math

from mlir import ir

from ...dialects.dtypes import DTYPES, FLOAT8, is_float, is_int
from ...dialects.mlir_types import type_of
from .rewriter import Match, Patterns, Replacement

VALUES = Patterns()
_MANY = 16  # times as many elements as are picked, from which on they need not be stored for it
_MANTISSA = {"f8E4M3FN": 4, "f8E5M2": 3, "f8E4M3FNUZ": 4, "f8E5M2FNUZ": 3, "f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_EXPONENT = {"f8E4M3FN": 4, "f8E5M2": 5, "f8E4M3FNUZ": 4, "f8E5M2FNUZ": 5, "f16": 5, "bf16": 8, "f32": 8, "f64": 11}


def scalar_of(m: Match, value: ir.Value | None) -> bool | int | float | None:
    """The one value of a `full` tensor (also through expand and reshape), else None."""
    producer = m.producer(value)
    while producer is not None and producer.cls.name in ("expand", "reshape"):
        producer = producer.producer(producer["x"])
    return producer.attributes["value"] if producer is not None and producer.cls.name == "full" else None


def in_shape(m: Match, value: ir.Value) -> ir.Value:
    """`value` with the shape of the result of `m`, to which it broadcasts."""
    return value if type_of(value) == m.type else m.build("expand", [value], shape=m.type.shape)


def _sides(m: Match) -> tuple[ir.Value, ir.Value]:
    a, b = m.operands
    assert a is not None and b is not None
    return a, b


@VALUES.pattern("add")
def add_zero(m: Match) -> Replacement:
    """`x + 0` is `x` for integers; for floats only `x + -0.0` is, because `-0.0 + 0.0` is `0.0`."""
    for x, zero in (_sides(m), _sides(m)[::-1]):
        value = scalar_of(m, zero)
        if value is not None and value == 0 and (not is_float(m.type.dtype) or math.copysign(1, value) < 0):
            return in_shape(m, x) if m.type.dtype != "bool" else None
    return None


@VALUES.pattern("sub")
def subtract_zero(m: Match) -> Replacement:
    """`x - 0` is `x`; for floats `x - 0.0` is too, `x - -0.0` is not."""
    x, zero = _sides(m)
    value = scalar_of(m, zero)
    if value is None or value != 0 or (is_float(m.type.dtype) and math.copysign(1, value) < 0):
        return None
    return in_shape(m, x)


@VALUES.pattern("mul")
def multiply_by_one(m: Match) -> Replacement:
    """`x * 1` is `x`."""
    for x, one in (_sides(m), _sides(m)[::-1]):
        value = scalar_of(m, one)
        if value is not None and value == 1:
            return in_shape(m, x)
    return None


@VALUES.pattern("div")
def divide_by_one(m: Match) -> Replacement:
    """`x / 1` is `x` unless it is rounded."""
    x, one = _sides(m)
    value = scalar_of(m, one)
    exact = m.attributes["rounding"] == "none" or not is_float(m.type.dtype)
    return in_shape(m, x) if value is not None and value == 1 and exact and type_of(x).dtype == m.type.dtype else None


@VALUES.pattern("pow")
def small_powers(m: Match) -> Replacement:
    """`x ** 1` is `x`, `x ** 2` is `x * x`, as in eager."""
    x, exponent = _sides(m)
    value = scalar_of(m, exponent)
    if value is None or type_of(x) != m.type:
        return None
    if value == 1:
        return x
    return m.build("mul", [x, x]) if value == 2 else None


@VALUES.pattern("neg", "logical_not", "bitwise_not")
def twice(m: Match) -> Replacement:
    """`-(-x)` and `not not x`."""
    (x,) = m.operands
    inner = m.made_by(m.cls.name, x)
    if inner is None:
        return None
    (original,) = inner.operands
    return original if original is not None and type_of(original) == m.type else None


@VALUES.pattern("logical_not")
def not_equal(m: Match) -> Replacement:
    """`not (a == b)` is `a != b`, also for NaN. The ordered comparisons have no such inverse."""
    (x,) = m.operands
    for name, inverse in (("eq", "ne"), ("ne", "eq")):
        inner = m.made_by(name, x)
        if inner is not None:
            return m.build(inverse, inner.operands)
    return None


def is_exact_cast(source: str, target: str) -> bool:
    """True if every value of `source` is a value of `target`."""
    if source == target or source == "bool":
        return True
    if target in FLOAT8:  # no format of 8 bits has all values of another
        return False
    if is_float(source):
        return is_float(target) and _MANTISSA[source] <= _MANTISSA[target] and _EXPONENT[source] <= _EXPONENT[target]
    bits, unsigned = 8 * DTYPES[source].bytes, DTYPES[source].kind == "uint"
    if is_float(target):
        digits = bits if unsigned else bits - 1
        return digits <= _MANTISSA[target] and digits < 2 ** (_EXPONENT[target] - 1)
    if not is_int(target):
        return False
    wide = 8 * DTYPES[target].bytes
    return (
        wide > bits
        if unsigned and DTYPES[target].kind == "int"
        else wide >= bits and (unsigned == (DTYPES[target].kind == "uint"))
    )


@VALUES.pattern("cast")
def same_type(m: Match) -> Replacement:
    """A cast to the type that the value has."""
    return m["x"] if type_of(m["x"]) == m.type else None


@VALUES.pattern("cast")
def cast_of_exact_cast(m: Match) -> Replacement:
    """A cast that lost nothing need not have been; float to integer stays as eager does it."""
    inner = m.made_by("cast", m["x"])
    if inner is None:
        return None
    source, middle, target = type_of(inner["x"]).dtype, type_of(m["x"]).dtype, m.type.dtype
    if not is_exact_cast(source, middle) or (is_float(source) and is_int(target)):
        return None
    return inner["x"] if source == target else m.build("cast", [inner["x"]], dtype=target)


@VALUES.pattern("cast")
def cast_before_pad(m: Match) -> Replacement:
    """A cast to a narrower float of what zeros were put around: who makes it then stores less."""
    pad = m.made_by("pad", m["x"])
    if (
        pad is None
        or pad.attributes["mode"] != "constant"
        or pad.attributes["value"] != 0
        or len(list(m["x"].uses)) > 1
    ):
        return None
    wide, narrow = type_of(m["x"]).dtype, m.type.dtype
    if not (is_float(wide) and is_float(narrow)) or DTYPES[narrow].bytes >= DTYPES[wide].bytes:
        return None
    cast = m.build("cast", [pad["x"]], dtype=narrow)
    return m.build("pad", [cast], **pad.attributes)


@VALUES.pattern("index")
def pick_before_casting(m: Match) -> Replacement:
    """`index(view(cast(a)), …)` is `cast(index(view(a), …))` for a few elements."""
    x, *indices = m.operands
    views, maker = list[Match](), m.producer(x)
    while maker is not None and maker.cls.category == "view":
        views.append(maker)
        maker = m.producer(maker.operands[0])
    few, many = m.type.numel, type_of(x).numel  # type: ignore[arg-type]
    if not views or maker is None or maker.cls.name != "cast" or not isinstance(few, int) or not isinstance(many, int):
        return None
    if many < _MANY * few:
        return None
    value = maker["x"]
    for view in reversed(views):
        value = m.build(view.cls.name, [value], **view.attributes)
    return m.build("cast", [m.build("index", [value, *indices], **m.attributes)], dtype=m.type.dtype)


@VALUES.pattern("index")
def pick_before_computing(m: Match) -> Replacement:
    """A few elements of what is computed one by one are computed of a few elements: the loss of a row needs one of its classes.

    `index(f(a, b), i, j)` is `f(index(a, i, j), index(b, i))` where `b` is a column.
    """
    x, *indices = m.operands
    maker = m.producer(x)
    if maker is None or maker.cls.category != "pointwise" or maker.cls.name == "materialize":
        return None
    shape, rank = type_of(x).shape, type_of(x).rank  # type: ignore[arg-type]
    few, many = m.type.numel, type_of(x).numel  # type: ignore[arg-type]
    if (
        m.attributes["dims"] != tuple(range(rank))
        or not (isinstance(few, int) and isinstance(many, int))
        or many < _MANY * few
    ):
        return None
    operands: list[ir.Value | None] = []
    for operand in maker.operands:
        given = () if operand is None else type_of(operand).shape
        padded = (1,) * (rank - len(given)) + given
        kept = [d for d in range(rank) if padded[d] != 1]
        if any(padded[d] != shape[d] for d in kept):
            return None
        if operand is not None and given != tuple(padded[d] for d in kept):
            operand = m.build("reshape", [operand], shape=tuple(padded[d] for d in kept))
        if operand is not None and kept:
            fields = {**m.attributes, "dims": tuple(range(len(kept)))}
            operand = m.build("index", [operand, *(indices[d] for d in kept)], **fields)
        operands.append(operand)
    made = m.build(maker.cls.name, operands, **maker.attributes)
    return made if type_of(made) == m.type else None


@VALUES.pattern("where")
def known_condition(m: Match) -> Replacement:
    """`where` with a constant condition, or with equal branches."""
    condition, a, b = m.operands
    assert a is not None and b is not None
    value = scalar_of(m, condition)
    if value is not None:
        return in_shape(m, a if value else b)
    return in_shape(m, a) if a == b else None


@VALUES.pattern("logical_and", "logical_or", "bitwise_and", "bitwise_or")
def known_truth(m: Match) -> Replacement:
    """`x and true` is `x`, `x and false` is `false`; `or` likewise. Only for bool operands."""
    neutral = m.cls.name.endswith("and")
    for x, known in (_sides(m), _sides(m)[::-1]):
        value = scalar_of(m, known)
        if value is None or type_of(x).dtype != "bool" or type_of(known).dtype != "bool":
            continue
        if bool(value) == neutral:
            return in_shape(m, x)
        return m.build("full", [], shape=m.type.shape, value=not neutral, dtype="bool")
    return None


@VALUES.pattern("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "where")
def broadcast_by_itself(m: Match) -> Replacement:
    """Operands that are only expanded to the result's shape need not be, if another operand has it."""
    operands = m.operands
    shapes = [type_of(x).shape for x in operands if x is not None]
    for i, x in enumerate(operands):
        inner = m.made_by("expand", x)
        if inner is None or not any(s == m.type.shape for j, s in enumerate(shapes) if j != i):
            continue
        fewer = [inner["x"] if j == i else y for j, y in enumerate(operands)]
        return m.build(m.cls.name, fewer, **m.attributes)
    return None


@VALUES.pattern("embedding")
def rows_of_repeated_numbers(m: Match) -> Replacement:
    """The rows of expanded numbers are expanded rows: positions of a batch are looked up, and kept, once."""
    inner = m.made_by("expand", m["index"])
    return m.build("expand", [m.build("embedding", [m["weight"], inner["x"]])], shape=m.type.shape) if inner else None


@VALUES.pattern("attention")
def mask_of_nothing(m: Match) -> Replacement:
    """A mask of zeros adds nothing, a mask of true keeps all."""
    q, k, v, mask = m.operands
    value = scalar_of(m, mask)
    if value is None or value is False or (value is not True and value != 0):
        return None
    return tuple(m.build("attention", [q, k, v, None], **m.attributes).owner.results)
