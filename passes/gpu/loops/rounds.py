"""Loops over memory of which some steps at a time are under way, also where fewer are left than that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.loops_builder import LoopsBuilder

Step = Callable[[Dim, list[Any]], list[Any]]  # the accumulators after an element
Load = Callable[[Sequence[Dim]], None]  # loads what steps need, before the first of them


@dataclass(frozen=True)
class Rounds:
    """`for name = first to end step step`, `unroll` steps at a time, so that as many loads are under way.

    Rounds begin `stride` apart, so that others can have those between them; 0: one after the other.
    """

    b: LoopsBuilder
    name: str
    first: ir.Value
    end: ir.Value
    step: int
    unroll: int
    stride: int = 0

    def run(self, inits: Sequence[Any], body: Step) -> list[Any]:
        """The accumulators after all steps; the last ones, fewer than `unroll`, are a loop over symbol `{name}rest`."""
        made, rest = self._whole(inits, body)
        return self.b.loop_carried(f"{self.name}rest", rest, self.end, made, body, self.step)

    def run_masked(self, inits: Sequence[Any], body: Step, load: Load = lambda _: None) -> list[Any]:
        """The same; the last steps are a round with masks, whose symbols are those of `rest_names`."""
        b = self.b
        made, rest = self._whole(inits, body, load)

        def fewer() -> list[ir.Value]:
            names = rest_names(self.name, self.unroll)
            places = [b.binary("arith.addi", rest, b.constant(u * self.step, b.index)) for u in range(self.unroll - 1)]
            masks = [masked(b, n, at, self.end, rest) for n, at in zip(names, places)]
            load([dims.symbol(n) for n in names])
            carried = list(made)
            for n, mask in zip(names, masks):
                carried = kept(b, mask, body(dims.symbol(n), carried), carried)
            return carried

        return b.branch(b.compare("slt", rest, self.end), [m.type for m in made], fewer, lambda: made)

    def _whole(self, inits: Sequence[Any], body: Step, load: Load = lambda _: None) -> tuple[list[Any], ir.Value]:
        """The accumulators after the rounds of `unroll` steps, and where the steps after them begin."""
        b, each = self.b, self.stride or self.unroll * self.step
        room = b.binary("arith.subi", self.end, b.constant((self.unroll - 1) * self.step, b.index))

        def several(at: Dim, carried: list[Any]) -> list[Any]:
            places = [at + u * self.step for u in range(self.unroll)]
            load(places)
            for place in places:
                carried = body(place, carried)
            return carried

        made = b.loop_carried(self.name, self.first, room, inits, several, each)
        # where the loop has stopped: first + whole rounds, none if there was no room for one
        span = b.value("arith.maxsi", (b.binary("arith.subi", room, self.first), b.constant(0, b.index)), b.index)
        count = b.binary(
            "arith.divui", b.binary("arith.addi", span, b.constant(each - 1, b.index)), b.constant(each, b.index)
        )
        return made, b.binary("arith.addi", self.first, b.binary("arith.muli", count, b.constant(each, b.index)))


def all_at_once(
    b: LoopsBuilder, name: str, first: ir.Value, end: int, step: int, inits: Sequence[Any], body: Step
) -> list[Any]:
    """`for name = first to end step step` without a loop, where `first` is less than `step`: all loads are under way at once.

    The symbols are `name` and a number.
    """
    made, size, last = list(inits), b.dim(end), b.dim(end - 1)
    for u in range(-(-end // step)):
        mask = masked(b, f"{name}{u}", b.binary("arith.addi", first, b.constant(u * step, b.index)), size, last)
        made = kept(b, mask, body(dims.symbol(f"{name}{u}"), made), made)
    return made


def even_unroll(steps: Dim, most: int) -> int:
    """The steps of a round, `most` at most, so that as few rounds as that takes are about equally long.

    8192 x 4097 of bf16, whose slices of columns have 33 rows, on an H200: by seven 18.2 us, by eight 18.7, the last round being
    of one row (19.8 if it reads that in place of the six that it lacks, as masks do).
    """
    if not isinstance(steps, int):
        return most
    return max(1, -(-steps // max(1, -(-steps // most))))


def rest_names(name: str, unroll: int) -> list[str]:
    """The symbols of the steps after the last whole round of `Rounds.run_masked`."""
    return [f"{name}rest{u}" for u in range(unroll - 1)]


def masked(b: LoopsBuilder, name: str, at: ir.Value, end: ir.Value, instead: ir.Value) -> ir.Value:
    """Bind symbol `name` to `at`, or to `instead` where that is not before `end`; returns where it is."""
    inside = b.compare("slt", at, end)
    b.bind(name, b.select(inside, at, instead))
    return inside


def kept(b: LoopsBuilder, mask: ir.Value, made: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    """`made` where the mask is, elsewhere `before`."""
    return [b.select(mask, x, a) for x, a in zip(made, before)]
