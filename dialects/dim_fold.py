"""A size computed in other terms than numbers: as code, as steps of a table, with other rules.

fold(parse("3*s0*s1 + 5"), str, …, lambda a, b: f"({a} + {b})", lambda a, b: f"({a} * {b})")     # "(((3 * s0) * s1) + 5)"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TypeVar

from .dims import Dim

T = TypeVar("T")


def fold(
    dim: Dim,
    leaf: Callable[[int | str], T],
    function: Callable[[str, Dim, Dim], T],
    add: Callable[[T, T], T],
    multiply: Callable[[T, T], T],
) -> T:
    """A sum of products, from left to right: `dim` with other leaves, functions, `add` and `multiply`.

    `leaf` gives the value of a number or a symbol, `function` that of one of the named functions of two expressions.
    """

    def factors(monomial: tuple, coefficient: int) -> Iterator[T]:
        if coefficient != 1 or not monomial:
            yield leaf(coefficient)
        for atom, power in monomial:
            value = leaf(atom) if isinstance(atom, str) else function(*atom)
            for _ in range(power):
                yield value

    if isinstance(dim, int):
        return leaf(dim)
    return reduce(add, (reduce(multiply, factors(m, c)) for m, c in dim.terms.items()))
