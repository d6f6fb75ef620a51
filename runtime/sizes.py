"""Size expressions of a plan as Python functions.

An expression is the text of a polynomial over symbols with `floordiv`, `mod`, `max` and `min`, as the compiler prints
it: `2*s0*s1 + floordiv(s0, 2)`. It is parsed and checked, never run as it came.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from .errors import ArtifactError

Size = int | str


def compile_sizes(expressions: Sequence[Size], symbols: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """Return `f(*values of symbols) -> values of expressions`. ArtifactError for what is no size expression."""
    known = frozenset(symbols)
    elements = [ast.Constant(e) if isinstance(e, int) else _parse(e, known) for e in expressions]
    parameters = ast.arguments(
        posonlyargs=[], args=[ast.arg(s) for s in symbols], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    function = ast.Expression(ast.Lambda(parameters, ast.Tuple(elements, ast.Load())))
    names = {"__builtins__": {}, "floordiv": _floordiv, "mod": _mod, "max": max, "min": min}
    return eval(compile(ast.fix_missing_locations(function), "<sizes>", "eval"), names)


def _floordiv(a: int, b: int) -> int:
    return a // (b or 1)  # a divisor of 0 belongs to an empty tensor; native code does the same


def _mod(a: int, b: int) -> int:
    return a % (b or 1)


def _parse(text: str, symbols: frozenset[str]) -> ast.expr:
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, TypeError):
        raise ArtifactError(f"'{text}' is not a size expression") from None
    _check(body, symbols, text)
    return body


def _check(node: ast.expr, symbols: frozenset[str], text: str) -> None:
    match node:
        case ast.Constant(value=int()):
            return
        case ast.Name(id=name) if name in symbols:
            return
        case ast.Name(id=name):
            raise ArtifactError(
                f"size '{text}' uses '{name}', which is no symbol; symbols: {', '.join(sorted(symbols))}"
            )
        case ast.UnaryOp(op=ast.USub(), operand=x):
            _check(x, symbols, text)
        case (
            ast.BinOp(left=a, op=ast.Add() | ast.Sub() | ast.Mult(), right=b)
            | ast.Call(func=ast.Name(id="floordiv" | "mod" | "max" | "min"), args=[a, b], keywords=[])
        ):
            _check(a, symbols, text)
            _check(b, symbols, text)
        case _:
            raise ArtifactError(f"'{text}' is not a size expression")
