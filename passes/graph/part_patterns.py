"""A small language for what a composite looks like in its parts, matched against the ops that make a value.

    product(number(0.5), any_value("x"), total(number(1), op("erf", product(any_value("x"), number(0.5**0.5)))))

matches `x * 0.5 * (1 + erf(x / sqrt(2)))` in any order and grouping. A pattern is a function of the matched op, a value
and what is bound so far, and gives every way in which it fits: names that are equal must be equal values, and a choice
that turns out wrong is taken back. Sums and products of floats round differently when regrouped, by less than the
composite's own rounding: patterns are for tensors that are computed as wide as they are stored (f32 and f64).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from mlir import ir

from ...dialects.mlir_types import type_of
from ...dialects.op import normalize_dim
from .canonicalize_values import scalar_of
from .rewriter import Match

_ROUNDING = {"f64": 2.0**-52}  # numbers are equal within a rounding of their type
_F32_ROUNDING = 2.0**-23


@dataclass(frozen=True)
class Found:
    """What is bound so far: values and numbers by name, and the ops that the match explains."""

    bound: dict[str, Any] = field(default_factory=dict)
    ops: tuple[ir.Operation, ...] = ()

    def bind(self, name: str, value: Any) -> Found | None:
        """Also `name`; None if it is bound to something else."""
        if name in self.bound:
            return self if self.bound[name] == value else None
        return Found({**self.bound, name: value}, self.ops)

    def explain(self, *made_by: Match) -> Found:
        """Also these ops."""
        return Found(self.bound, (*self.ops, *(m.op for m in made_by)))


Part = Callable[[Match, ir.Value, Found], Iterator[Found]]


def find(m: Match, pattern: Part) -> dict[str, Any] | None:
    """What `pattern` binds at the result of `m`; None unless it fits and nothing else reads the values inside."""
    for found in pattern(m, m.op.results[0], Found()):
        if _is_closed(m, found.ops):
            return found.bound
    return None


def _is_closed(m: Match, ops: Sequence[ir.Operation]) -> bool:
    inside = {op.results[0] for op in ops}
    results = (r for op in ops if op.results[0] != m.op.results[0] for r in op.results)
    return all(
        use.owner.name != "func.return" and use.owner.operation.results[0] in inside for r in results for use in r.uses
    )


def any_value(name: str) -> Part:
    """Any tensor, the same wherever the name stands."""

    def match(m: Match, value: ir.Value, found: Found) -> Iterator[Found]:
        bound = found.bind(name, value)
        if bound:
            yield bound

    return match


def number(wanted: float) -> Part:
    """A tensor of this one value, as its type rounds it."""

    def match(m: Match, value: ir.Value, found: Found) -> Iterator[Found]:
        given = scalar_of(m, value)
        rounding = _ROUNDING.get(type_of(value).dtype, _F32_ROUNDING)
        if given is not None and math.isclose(given, wanted, rel_tol=rounding):
            yield found

    return match


def scalar(name: str) -> Part:
    """A tensor of one value, which is bound as a number."""

    def match(m: Match, value: ir.Value, found: Found) -> Iterator[Found]:
        given = scalar_of(m, value)
        bound = found.bind(name, float(given)) if given is not None else None
        if bound:
            yield bound

    return match


def op(name: str, *operands: Part, **attributes: Any) -> Part:
    """The op `name` with these operands in order, and these attributes."""

    def match(m: Match, value: ir.Value, found: Found) -> Iterator[Found]:
        made = m.made_by(name, value)
        if made and all(made.attributes[k] == v for k, v in attributes.items()):
            yield from _all(m, list(zip(operands, made.operands)), found.explain(made))

    return match


def either(*parts: Part) -> Part:
    """One of several forms."""

    def match(m: Match, value: ir.Value, found: Found) -> Iterator[Found]:
        for part in parts:
            yield from part(m, value, found)

    return match


def divided(a: Part, b: Part) -> Part:
    """`a / b`."""
    return op("div", a, b, rounding="none")


def total(*terms: Part) -> Part:
    """A sum of these terms, in any order and grouping."""
    return _grouped("add", terms)


def product(*factors: Part, over: Part | None = None) -> Part:
    """A product of these factors in any order and grouping, divided by `over` at any place."""
    return _grouped("mul", factors, over)


def _grouped(name: str, parts: Sequence[Part], over: Part | None = None) -> Part:
    def match(m: Match, value: ir.Value, found: Found) -> Iterator[Found]:
        if len(parts) == 1 and over is None:
            yield from parts[0](m, value, found)
            return
        made = m.producer(value)
        if made is None:
            return
        if made.cls.name == name:
            a, b = made.operands
            for left, right in _splits(parts):
                for first, second in ((a, b), (b, a)):
                    for over_left, over_right in ((over, None), (None, over)) if over else ((None, None),):
                        sides = [(_grouped(name, left, over_left), first), (_grouped(name, right, over_right), second)]
                        yield from _all(m, sides, found.explain(made))
        elif made.cls.name == "div" and over and made.attributes["rounding"] == "none":
            sides = [(over, made.operands[1]), (_grouped(name, parts), made.operands[0])]
            yield from _all(m, sides, found.explain(made))

    return match


def _splits(parts: Sequence[Part]) -> Iterator[tuple[list[Part], list[Part]]]:
    """The ways to split into two groups, each way once; the first part, the most telling one, is in the first."""
    rest = range(1, len(parts))
    for size in range(len(parts) - 1):
        for chosen in combinations(rest, size):
            yield (
                [parts[0], *(parts[i] for i in chosen)],
                [parts[i] for i in rest if i not in chosen],
            )


def row(name: str, x: Part, dims: str = "dims", result: int = 0, **attributes: Any) -> Part:
    """A reduction of `x` seen with its dims kept as 1; the dims are bound by name, as a tuple."""

    def match(m: Match, value: ir.Value, found: Found) -> Iterator[Found]:
        views = []
        made = m.producer(value)
        while made and made.cls.name in ("reshape", "expand") and len(views) < 2:
            views.append(made)
            value = made["x"]
            made = made.producer(value)
        if not made or made.cls.name != name or value != made.op.results[result]:
            return
        if any(made.attributes[k] != v for k, v in attributes.items()):
            return
        shape = type_of(made.operands[0]).shape  # type: ignore[arg-type]
        reduced = tuple(sorted(normalize_dim(d, len(shape)) for d in made.attributes["dims"]))
        kept = tuple(1 if d in reduced else n for d, n in enumerate(shape))
        if not made.attributes["keepdim"] and not any(v.type.shape == kept for v in views):
            return
        bound = found.explain(made, *views).bind(dims, reduced)
        if bound:
            yield from x(m, made.operands[0], bound)  # type: ignore[arg-type]

    return match


def _all(m: Match, pairs: list[tuple[Part, Any]], found: Found) -> Iterator[Found]:
    """Every way in which all parts fit their values."""
    if not pairs:
        yield found
        return
    (part, value), *rest = pairs
    if value is None:
        return
    for step in part(m, value, found):
        yield from _all(m, rest, step)
