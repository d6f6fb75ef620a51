"""Symbolic integers: sizes, strides and index expressions over named symbols.

A `Dim` is a Python `int` or an `Expr`. An `Expr` is a polynomial with integer coefficients over *atoms*: symbols
(`s0`), and the opaque functions `floordiv(a, b)`, `mod(a, b)`, `max(a, b)`, `min(a, b)` of other expressions.
The form is canonical: equal polynomials are equal objects in `==` and `hash`, and print alike, so a `Dim` can be
kept as a string in an attribute and compared there.

    >>> s = symbol("s0")
    >>> (s * 4 + s) // 5, str(2 * s + 3)
    (Expr(s0), '2*s0 + 3')

The same class serves as the algebra of index expressions in code emission, where loop variables are symbols with a
known range (`floordiv` and `mod` fold when the ranges allow it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Union

from .dim_bounds import bounds as bounds
from .dim_bounds import within
from .dim_parser import DimParser

Dim = Union[int, "Expr"]
# A monomial is a sorted tuple of (atom, power); an atom is a symbol's name or a tuple (function, Dim, Dim).
_FUNCTIONS = ("floordiv", "mod", "max", "min")


class Expr:
    """A canonical integer polynomial over symbols; immutable. Build with `symbol`, `parse` and operators."""

    __slots__ = ("terms", "_hash", "_text")

    def __init__(self, terms: Mapping[tuple, int]):
        self.terms = {m: c for m, c in terms.items() if c}
        self._hash: int | None = None
        self._text: str | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __str__(self) -> str:
        if self._text is None:
            self._text = _print(self)
        return self._text

    def __add__(self, other: Dim) -> Dim:
        terms = dict(self.terms)
        for m, c in _terms(other).items():
            terms[m] = terms.get(m, 0) + c
        return _normal(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _normal({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        terms: dict[tuple, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in _terms(other).items():
                m = _times(m1, m2)
                terms[m] = terms.get(m, 0) + c1 * c2
        return _normal(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of the symbolic size '{self}' is not known; compare it with a number, or ask for its bounds"
        )


def symbol(name: str) -> Expr:
    """Return the symbol `name` (an identifier) as an expression."""
    return Expr({((name, 1),): 1})


def floordiv(a: Dim, b: Dim, ranges: Mapping[str, tuple[int, int | None]] | None = None) -> Dim:
    """`a // b` (towards minus infinity, b > 0), folded where division is exact or `ranges` decide it."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    if a == b:
        return 1
    exact, rest = _split_multiple(a, b)
    if rest == 0:
        return exact
    if exact != 0:
        return exact + floordiv(rest, b, ranges)
    if isinstance(b, int):
        g = math.gcd(b, *(abs(c) for c in _terms(a).values()))
        if g > 1:
            return floordiv(_divide_terms(a, g), b // g, ranges)
        if inner := _inner_division(a, b):
            return floordiv(*inner, ranges)
    if within(a, b, ranges):
        return 0
    return _atom("floordiv", a, b)


def mod(a: Dim, b: Dim, ranges: Mapping[str, tuple[int, int | None]] | None = None) -> Dim:
    """`a mod b` with the sign of `b` (Python's), folded where `a` is a multiple of `b` or `ranges` decide it."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if b == 1 or a == b:
        return 0
    _, rest = _split_multiple(a, b)
    if isinstance(rest, int) and isinstance(b, int):
        return rest % b
    if rest == 0 or within(rest, b, ranges):
        return rest
    return _atom("mod", rest, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """`-(-a // b)`."""
    return floordiv(a + b - 1, b)


def dim_max(a: Dim, b: Dim) -> Dim:
    """The larger of two sizes."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else a if a == b else _atom("max", *_ordered(a, b))


def dim_min(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else a if a == b else _atom("min", *_ordered(a, b))


def product(dims: Iterable[Dim]) -> Dim:
    """The product of `dims` (1 for none)."""
    result: Dim = 1
    for d in dims:
        result = result * d
    return result


def symbols(dim: Dim) -> set[str]:
    """The names of the symbols in `dim`."""
    if isinstance(dim, int):
        return set()
    found: set[str] = set()
    for monomial in dim.terms:
        for atom, _ in monomial:
            found |= {atom} if isinstance(atom, str) else symbols(atom[1]) | symbols(atom[2])
    return found


def substitute(dim: Dim, values: Mapping[str, Dim], ranges: Mapping[str, tuple[int, int | None]] | None = None) -> Dim:
    """Replace symbols by `values`; symbols without a value stay."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms.items():
        term: Dim = coefficient
        for atom, power in monomial:
            if isinstance(atom, str):
                value = values.get(atom, symbol(atom))
            else:
                value = apply(atom[0], substitute(atom[1], values, ranges), substitute(atom[2], values, ranges), ranges)
            for _ in range(power):
                term = term * value
        total = total + term
    return total


def apply(function: str, a: Dim, b: Dim, ranges: Mapping[str, tuple[int, int | None]] | None = None) -> Dim:
    """Apply one of the named functions `floordiv`, `mod`, `max`, `min`."""
    match function:
        case "floordiv":
            return floordiv(a, b, ranges)
        case "mod":
            return mod(a, b, ranges)
        case "max":
            return dim_max(a, b)
        case "min":
            return dim_min(a, b)
    raise ValueError(f"unknown size function '{function}'; known: {', '.join(_FUNCTIONS)}")


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The value of `dim` when every symbol has one; a missing symbol is a KeyError that names it."""
    result = substitute(dim, values)
    if isinstance(result, int):
        return result
    missing = sorted(symbols(result))
    raise KeyError(f"size '{dim}' needs a value for {', '.join(missing)}")


def linear_coefficient(dim: Dim, name: str) -> Dim | None:
    """The coefficient of symbol `name` if `dim` is linear in it (0 if absent), else None."""
    if isinstance(dim, int):
        return 0
    total: Dim = 0
    for monomial, c in dim.terms.items():
        rest = []
        power = 0
        for atom, p in monomial:
            if atom == name:
                power = p
            elif not isinstance(atom, str) and name in symbols(atom[1]) | symbols(atom[2]):
                return None
            else:
                rest.append((atom, p))
        if power > 1:
            return None
        if power == 1:
            total = total + _normal({tuple(rest): c})
    return total


def parse(text: str | int) -> Dim:
    """Parse what `str` of a `Dim` prints: `3`, `s0`, `2*s0 + 3`, `floordiv(s0, 2)`, also Python's `//` and `%`."""
    if isinstance(text, int):
        return text
    try:
        return DimParser(text, symbol, apply, _FUNCTIONS).parse()
    except ValueError as error:
        raise ValueError(f"'{text}' is not a size expression: {error}") from None


def _terms(dim: Dim) -> Mapping[tuple, int]:
    return dim.terms if isinstance(dim, Expr) else {(): dim}


def _normal(terms: Mapping[tuple, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Expr(kept)


def _key(item: tuple) -> tuple:
    atom = item[0]
    return (0, atom) if isinstance(atom, str) else (1, atom[0], str(atom[1]), str(atom[2]))


def _times(m1: tuple, m2: tuple) -> tuple:
    if not m1 or not m2:
        return m1 or m2
    powers: dict = dict(m1)
    for atom, p in m2:
        powers[atom] = powers.get(atom, 0) + p
    return tuple(sorted(powers.items(), key=_key))


def _atom(function: str, a: Dim, b: Dim) -> Expr:
    return Expr({(((function, a, b), 1),): 1})


def _ordered(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    return (a, b) if str(a) <= str(b) else (b, a)


def _divide_terms(a: Dim, g: int) -> Dim:
    return _normal({m: c // g for m, c in _terms(a).items()})


def _split_multiple(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Write `a = q * b + r` with every term of `a` that is visibly a multiple of `b` in `q`."""
    if b == 0:
        raise ZeroDivisionError(f"'{a}' divided by zero in a size expression")
    q: dict[tuple, int] = {}
    r: dict[tuple, int] = {}
    b_terms = list(_terms(b).items())
    if len(b_terms) != 1:
        # b is a sum: only an exact integer multiple of the whole sum folds
        lead, c = b_terms[0]
        ratio, left = divmod(_terms(a).get(lead, 0), c)
        if ratio and not left and a - ratio * b == 0:
            return ratio, 0
        return 0, a
    b_monomial, b_coefficient = b_terms[0]
    for monomial, c in _terms(a).items():
        powers = dict(monomial)
        fits = all(powers.get(atom, 0) >= p for atom, p in b_monomial)
        if fits and c % b_coefficient == 0:
            for atom, p in b_monomial:
                powers[atom] -= p
            m = tuple(sorted(((x, p) for x, p in powers.items() if p), key=_key))
            q[m] = q.get(m, 0) + c // b_coefficient
        elif not monomial and not b_monomial:
            q[()], r[()] = divmod(c, b_coefficient)
        else:
            r[monomial] = r.get(monomial, 0) + c
    return _normal(q), _normal(r)


def _inner_division(a: Dim, b: int) -> tuple[Dim, int] | None:
    """For `a = n + x // p` with one division by a positive int: `(n*p + x, p*b)`, as `a // b == (n*p + x) // (p*b)`."""
    divisions = [
        (m, m[0][0])
        for m, c in _terms(a).items()
        if c == 1 and len(m) == 1 and m[0][1] == 1 and not isinstance(m[0][0], str) and m[0][0][0] == "floordiv"
    ]
    if b <= 0 or len(divisions) != 1:
        return None
    monomial, (_, x, p) = divisions[0]
    if not isinstance(p, int) or p <= 0:
        return None
    return (a - Expr({monomial: 1})) * p + x, p * b


def _print(e: Expr) -> str:
    parts: list[str] = []
    for monomial, c in sorted(e.terms.items(), key=lambda t: (-len(t[0]), [_key(i) for i in t[0]])):
        factors = []
        for atom, power in monomial:
            text = atom if isinstance(atom, str) else f"{atom[0]}({atom[1]}, {atom[2]})"
            factors += [text] * power
        size = abs(c)
        body = "*".join(([str(size)] if size != 1 or not factors else []) + factors)
        parts.append(("- " if c < 0 else "+ ") + body)
    text = " ".join(parts)
    return text[2:] if text.startswith("+ ") else "-" + text[2:]
