"""Size expressions of a plan as Python functions.

An expression is the text of a polynomial over symbols with `floordiv`, `mod`, `max` and `min`, as the compiler prints
it: `2*s0*s1 + floordiv(s0, 2)`. It is parsed here and written anew, never run as it came. `ast` fails on Python 3.11
where a collection or another thread parses at the same time (CPython's issue 106905).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from .errors import ArtifactError

Size = int | str

_FUNCTIONS = {
    "floordiv": lambda a, b: a // (b or 1),  # a divisor of 0 is an empty tensor's; native code does so
    "mod": lambda a, b: a % (b or 1),
    "max": max,
    "min": min,
}


def compile_sizes(expressions: Sequence[Size], symbols: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """Return `f(*values of symbols) -> values of expressions`. ArtifactError for what is no size expression."""
    names = {s: f"s{i}" for i, s in enumerate(symbols)}
    values = "".join(f"{e if isinstance(e, int) else _Parser(e, names).parse()}," for e in expressions)
    try:
        return eval(f"lambda {','.join(names.values())}: ({values})", {"__builtins__": {}, **_FUNCTIONS})
    except (SyntaxError, RecursionError, MemoryError):  # deeper than Python reads
        raise ArtifactError(f"a size expression is too deep: {values[:80]}") from None


class _Parser:
    """Recursive descent through one expression; methods return Python text of what they read."""

    def __init__(self, text: str, names: dict[str, str]):
        self.text, self.names = text, names
        self.tokens = re.findall(r"\d+|\w+|\S", text)[::-1] if isinstance(text, str) else []

    def parse(self) -> str:
        try:
            result = self.sum()
        except (RecursionError, ValueError):  # too deep; an integer of too many digits
            raise self.error() from None
        if self.tokens:
            raise self.error()
        return result

    def sum(self) -> str:
        result = self.product()
        while self.next() in ("+", "-"):
            result += self.tokens.pop() + self.product()
        return result

    def product(self) -> str:
        result = self.factor()
        while self.next() == "*":
            result += self.tokens.pop() + self.factor()
        return result

    def factor(self) -> str:
        token = self.tokens.pop() if self.tokens else ""
        if token == "-":
            return f"-{self.factor()}"
        if token == "(":
            return f"({self.sum()}{self.take(')')}"
        if token.isdecimal():
            return str(int(token))
        if token in _FUNCTIONS and self.next() == "(":
            return token + self.take("(") + self.sum() + self.take(",") + self.sum() + self.take(")")
        if token in self.names:
            return self.names[token]
        if token.isidentifier() and self.next() != "(":
            known = ", ".join(sorted(self.names))
            raise ArtifactError(f"size '{self.text}' uses '{token}', which is no symbol; symbols: {known}")
        raise self.error()

    def next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def take(self, token: str) -> str:
        if self.next() != token:
            raise self.error()
        return self.tokens.pop()

    def error(self) -> ArtifactError:
        return ArtifactError(f"'{self.text}' is not a size expression")
