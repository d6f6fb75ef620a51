"""Size expressions: their values, what is refused, and that a collection in their midst does no harm."""

import ast

import pytest
from support.amid import amid

from lamina.runtime.errors import ArtifactError
from lamina.runtime.sizes import compile_sizes


@pytest.mark.parametrize(
    "text, value",
    [
        ("7", 7),
        ("s0", 5),
        ("2*s0*n + floordiv(s0, 2)", 2 * 5 * 3 + 2),
        ("-s0 + n*-2", -11),
        ("-(s0 - 2*n)*(n + 1)", 4),
        ("1 - 2 - 3", -4),
        ("max(s0, min(n, 2)) - mod(s0, 3)", 3),
        ("floordiv(-s0, 2)", -3),  # towards minus infinity
        ("floordiv(s0, 0) + mod(n, n - 3)", 5),  # a divisor of 0 counts as 1
    ],
)
def test_values(text, value):
    assert compile_sizes([text, 4], ["s0", "n"])(5, 3) == (value, 4)


def test_no_expressions_and_no_symbols():
    assert compile_sizes([], [])() == ()
    assert compile_sizes([3, "2*2"], [])() == (3, 4)


def test_symbols_may_have_any_name():
    assert compile_sizes(["lambda*max + max(max, 1)"], ["lambda", "max"])(2, 3) == (9,)


@pytest.mark.parametrize(
    "text",
    ["", "s0 +", "2s0", "2 3", "s0**2", "(s0", "s0)", "max(s0)", "max(1, 2, 3)", "max(*s0, 1)", "s0.real", "s0[0]", "1.5", "True"]
    + ["f(s0, 1)", "__import__('os')", "s0 if s0 else 1", "(1, 2)", "s0, s0", "s0 # 1", "\x00", "²", None, 1.5, ["s0"]]
    + ["(" * 300 + "s0" + ")" * 300, "-" * 100_000 + "s0", "9" * 10_000],
    ids=lambda e: str(e)[:12],
)  # fmt: skip
def test_what_is_no_size_expression(text):
    with pytest.raises(ArtifactError, match="size"):
        compile_sizes([text], ["s0"])


def test_an_unknown_symbol_is_named_with_the_known():
    with pytest.raises(ArtifactError, match=r"size '2\*s1' uses 's1', which is no symbol; symbols: n, s0"):
        compile_sizes(["2*s1"], ["s0", "n"])


def test_a_parser_that_runs_in_a_collection_does_no_harm():
    """A finalizer may parse, or let another thread do so; Python 3.11's `ast.parse` is not made for that."""

    with amid(lambda: ast.parse("a*(b + c)")):
        f = compile_sizes(["2*s0*n + floordiv(s0, 2) + max(n, mod(s0, n))"] * 20, ["s0", "n"])
    assert f(5, 3) == (2 * 5 * 3 + 2 + 3,) * 20
