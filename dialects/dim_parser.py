"""The grammar of size expressions; `dims.parse` gives it its values.

    sum     = product {("+" | "-") product}
    product = factor {("*" | "//" | "%") factor}
    factor  = "-" factor | number | symbol | function "(" sum "," sum ")" | "(" sum ")"

Python's `ast.parse` would read the same, but fails where a collection or another thread parses meanwhile (CPython's issue
106905, up to 3.12), and this runs in users' processes. `runtime/sizes.py` reads what is printed, too: it imports nothing of
the compiler, and makes Python functions of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

_TOKEN = re.compile(r"//|\d+|\w+|\S")


class DimParser:
    """A recursive descent through `text`; `parse` returns its value, or a ValueError says what is wrong.

    `symbol(name)` is the value of a symbol, `apply(function, a, b)` that of one of `functions`; the rest is arithmetic.
    """

    def __init__(
        self,
        text: str,
        symbol: Callable[[str], Any],
        apply: Callable[[str, Any, Any], Any],
        functions: Collection[str],
    ):
        self._symbol, self._apply, self._functions = symbol, apply, functions
        self._tokens = _TOKEN.findall(text)[::-1]

    def parse(self) -> Any:
        """The value of the whole text."""
        try:
            value = self._sum()
        except RecursionError:
            raise ValueError("it is too deep") from None
        if self._tokens:
            raise ValueError(f"unexpected '{self._tokens[-1]}'")
        return value

    def _sum(self) -> Any:
        value = self._product()
        while self._next() in ("+", "-"):
            plus, other = self._tokens.pop() == "+", self._product()
            value = value + other if plus else value - other
        return value

    def _product(self) -> Any:
        value = self._factor()
        while self._next() in ("*", "//", "%"):
            sign, other = self._tokens.pop(), self._factor()
            value = value * other if sign == "*" else value // other if sign == "//" else value % other
        return value

    def _factor(self) -> Any:
        token = self._take()
        if token == "-":
            return -self._factor()
        if token == "(":
            value = self._sum()
            self._take(")")
            return value
        if token in self._functions and self._next() == "(":
            self._take("(")
            first = self._sum()
            self._take(",")
            second = self._sum()
            self._take(")")
            return self._apply(token, first, second)
        if token.isidentifier():
            return self._symbol(token)
        if token.isascii() and token.isdigit():
            return int(token)
        raise ValueError(f"unexpected '{token}'")

    def _next(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _take(self, expected: str = "") -> str:
        token = self._tokens.pop() if self._tokens else ""
        if expected and token != expected:
            raise ValueError(f"unexpected '{token}', not '{expected}'" if token else f"'{expected}' is missing")
        if not token:
            raise ValueError("it ends early")
        return token
