"""Conditions of a thread: comparisons of indices, and what is done where several hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlir import ir

from ...dialects.dims import Dim
from ..loops.loops_builder import LoopsBuilder


def less(b: LoopsBuilder, x: Dim | ir.Value, y: Dim | ir.Value) -> ir.Value:
    """Whether one index is less than another."""
    return b.compare("slt", x, y)


def all_of(b: LoopsBuilder, conditions: Sequence[ir.Value]) -> ir.Value:
    """Whether all conditions hold, of which there is one at least."""
    made, *others = conditions
    for condition in others:
        made = b.value("arith.andi", (made, condition), b.i1)
    return made


def under(b: LoopsBuilder, conditions: Sequence[ir.Value | None], do: Callable[[], Any]) -> None:
    """`do()` where all conditions that there are hold."""
    given = [c for c in conditions if c is not None]
    if given:
        b.branch(all_of(b, given), [], do)
    else:
        do()
