"""Laws of symbolic sizes: every operation commutes with putting in numbers, and text goes there and back."""

import ast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from support.amid import amid

from lamina.dialects import dims
from lamina.dialects.dim_fold import fold
from lamina.dialects.dims import symbol
from lamina.runtime.sizes import compile_sizes

NAMES = ("s0", "s1", "s2")
VALUES = st.fixed_dictionaries({n: st.integers(1, 50) for n in NAMES})


@st.composite
def expressions(draw, depth=3):
    """Sizes built with `+ - * // % max min` from symbols and small numbers."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(st.sampled_from([symbol(n) for n in NAMES]), st.integers(-4, 9)))
    op = draw(st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]))
    a = draw(expressions(depth - 1))
    if op in ("//", "%"):
        b = draw(st.one_of(st.integers(1, 6), st.sampled_from([symbol(n) for n in NAMES])))
        return dims.floordiv(a, b) if op == "//" else dims.mod(a, b)
    b = draw(expressions(depth - 1))
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}.get(op, lambda: dims.apply(op, a, b))()


@settings(max_examples=200)
@given(expressions(), expressions(), VALUES)
def test_operations_commute_with_evaluation(a, b, values):
    x, y = dims.evaluate(a, values), dims.evaluate(b, values)
    assert dims.evaluate(a + b, values) == x + y
    assert dims.evaluate(a - b, values) == x - y
    assert dims.evaluate(a * b, values) == x * y
    assert dims.evaluate(dims.dim_max(a, b), values) == max(x, y)
    assert dims.evaluate(dims.dim_min(a, b), values) == min(x, y)


@settings(max_examples=300)
@given(expressions(), st.one_of(st.integers(1, 12), st.sampled_from([symbol(n) for n in NAMES])), VALUES)
def test_division_commutes_with_evaluation(a, b, values):
    x, y = dims.evaluate(a, values), dims.evaluate(b, values)
    ranges = {n: (1, 50) for n in NAMES}
    assert dims.evaluate(dims.floordiv(a, b), values) == x // y
    assert dims.evaluate(dims.mod(a, b), values) == x % y
    assert dims.evaluate(dims.floordiv(a, b, ranges), values) == x // y
    assert dims.evaluate(dims.mod(a, b, ranges), values) == x % y
    assert dims.evaluate(dims.ceildiv(a, b), values) == -(-x // y)


@settings(max_examples=200)
@given(expressions())
def test_text_parses_back_to_an_equal_expression(a):
    assert dims.parse(str(a)) == a
    assert str(dims.parse(str(a))) == str(a)


@settings(max_examples=200)
@given(expressions(), VALUES)
def test_the_runtime_reads_what_is_printed(a, values):
    """It has a parser of its own, for it imports nothing of the compiler."""
    assert compile_sizes([str(a)], NAMES)(*(values[n] for n in NAMES)) == (dims.evaluate(a, values),)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-s0 + s1*-2", -11),
        ("1 - 2 - 3", -4),
        ("-(s0 - 2*s1)*(s1 + 1)", 4),
        ("2*s0//3*4 + s0 % 3", 14),  # from left to right, as Python reads it
        ("max(s0, min(s1, 2)) - mod(floordiv(s0, 2), 3)", 3),
        ("max*mod", 6),  # symbols may be called so
    ],
)
def test_text_has_the_value_that_python_gives_it(text, value):
    assert dims.evaluate(dims.parse(text), {"s0": 5, "s1": 3, "max": 2, "mod": 3}) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends early"),
        ("s0 +", "ends early"),
        ("2s0", "unexpected 's0'"),
        ("(s0", r"'\)' is missing"),
        ("max(s0)", r"unexpected '\)', not ','"),
        ("f(s0, 1)", r"unexpected '\('"),
        ("s0.real", r"unexpected '\.'"),
        ("²", "unexpected '²'"),
        ("(" * 5000 + "s0" + ")" * 5000, "too deep"),
    ],
    ids=lambda text: text[:8],
)
def test_what_is_no_size_expression_says_why(text, message):
    with pytest.raises(ValueError, match=f"is not a size expression: .*{message}"):
        dims.parse(text)


def test_a_collection_may_parse_amid_a_parse():
    """`ast.parse` fails so on Python 3.11, whoever called it."""
    with amid(lambda: ast.parse("a*(b + c)")):
        for _ in range(20):
            assert str(dims.parse("2*s0*s1 + floordiv(s0, 2)")) == "2*s0*s1 + floordiv(s0, 2)"


@settings(max_examples=200)
@given(expressions(), VALUES)
def test_bounds_hold(a, values):
    low, high = dims.bounds(a, {n: (1, 50) for n in NAMES})
    x = dims.evaluate(a, values)
    assert low is None or low <= x
    assert high is None or x <= high


@settings(max_examples=100)
@given(expressions(), expressions(), VALUES)
def test_substitution_commutes_with_evaluation(a, b, values):
    inner = dims.evaluate(b, values)
    if inner < 1:
        return  # sizes are positive; a divisor must be
    replaced = dims.substitute(a, {"s0": b})
    assert dims.evaluate(replaced, values) == dims.evaluate(a, {**values, "s0": inner})


@settings(max_examples=100)
@given(expressions(), expressions())
def test_equal_polynomials_are_equal_objects(a, b):
    assert a + b == b + a and hash(a + b) == hash(b + a)
    assert a * b == b * a
    assert (a + b) * 2 == a * 2 + b * 2
    assert a - a == 0


def test_nested_divisions_are_one():
    """Chains of strided convolutions give nested divisions; torch folds them, so must we to compare sizes."""
    s = dims.symbol("s0")
    nested = dims.floordiv(dims.floordiv(s + 1, 2) + 1, 2)
    assert nested == dims.floordiv(s + 3, 4)
    for value in range(20):
        assert dims.evaluate(nested, {"s0": value}) == ((value + 1) // 2 + 1) // 2


def test_a_fold_is_a_sum_of_products_from_left_to_right():
    dim = dims.parse("3*s0*s0*s1 + floordiv(s1, 4) + 5")
    text = fold(
        dim, str, lambda name, a, b: f"{name}({a}, {b})", lambda a, b: f"({a} + {b})", lambda a, b: f"({a} * {b})"
    )
    assert text == "(((((3 * s0) * s0) * s1) + floordiv(s1, 4)) + 5)"


@settings(max_examples=200)
@given(expressions(), VALUES)
def test_a_fold_over_numbers_is_the_value(a, values):
    def value(dim):
        return fold(dim, leaf, function, int.__add__, int.__mul__)

    def leaf(x):
        return x if isinstance(x, int) else values[x]

    def function(name, x, y):
        return dims.apply(name, value(x), value(y))

    assert value(a) == dims.evaluate(a, values)
