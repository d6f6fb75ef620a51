"""Local rewrites: patterns on one op, applied until nothing changes.

    @pattern("neg")
    def neg_of_neg(m: Match) -> ir.Value | None:
        '''`-(-x)` is `x`.'''
        inner = m.made_by("neg", m["x"])
        return inner["x"] if inner else None

A pattern gives the value that replaces the op's result (a tuple for several results), or None. It builds ops through
`m.build`, which puts them before the matched op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from mlir import ir

from ...dialects.mlir_ops import PREFIX, attributes_of, build, op_class, operand_list
from ...dialects.mlir_types import type_of
from ...dialects.op import Op
from ...dialects.record import TensorType

Replacement = ir.Value | Sequence[ir.Value] | None
Pattern = Callable[["Match"], Replacement]
_MOST_REWRITES = 16  # per op: patterns that undo each other must not hang the compiler


class Match:
    """An op seen by a pattern: operands by `m["name"]`, attributes by `m.name`.

    `facts` is for what patterns find out about values; an erased op's are forgotten.
    """

    def __init__(self, op: ir.Operation, cls: type[Op], facts: dict[ir.Value, Any]):
        self.op, self.cls, self.facts = op, cls, facts
        self.built: list[ir.Operation] = []

    def __getitem__(self, operand: str) -> Any:
        return self._fields[operand]

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return self.cls.bind(self.operands)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return attributes_of(self.op)

    @cached_property
    def operands(self) -> list[ir.Value | None]:
        return operand_list(self.op)

    @cached_property
    def type(self) -> TensorType:
        """The type of the (first) result."""
        return type_of(self.op.results[0])

    def producer(self, value: ir.Value | None) -> Match | None:
        """The op of the registry that makes `value`, if one does."""
        op = value.owner if value is not None else None
        if op is None or isinstance(op, ir.Block):
            return None
        cls = op_class(op)
        return Match(op.operation, cls, self.facts) if cls else None

    def made_by(self, name: str, value: ir.Value | None) -> Match | None:
        """The op that makes `value` if it is `lamina.<name>`."""
        found = self.producer(value)
        return found if found and found.cls.name == name else None

    def build(self, name: str, operands: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        """Build an op with one result before the matched op, at its location."""
        op = build(name, operands, attributes, self.op.location, ir.InsertionPoint(self.op))
        self.built.append(op)
        return op.results[0]


class Patterns:
    """Patterns by op name."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[Pattern]] = {}

    def pattern(self, *names: str) -> Callable[[Pattern], Pattern]:
        """Register a pattern for ops of these names."""

        def add(function: Pattern) -> Pattern:
            for name in names:
                self.by_name.setdefault(name, []).append(function)
            return function

        return add

    def apply(self, function: ir.Operation) -> bool:
        """Rewrite the ops of `function`, and what is built on the way, until no pattern applies; True if any did."""
        # By first result: the hash of an operation changes with its operands.
        waiting: dict[ir.Value, ir.Operation] = {}

        def wait_for(op: ir.Operation) -> None:
            if op.name.startswith(PREFIX):
                waiting[op.results[0]] = op

        for view in function.regions[0].blocks[0].operations:
            wait_for(view.operation)
        left = _MOST_REWRITES * (len(waiting) + 8)
        changed = False
        facts: dict[ir.Value, Any] = {}
        while waiting and left:
            op = waiting.pop(next(iter(waiting)))
            patterns = self.by_name.get(op.name.removeprefix(PREFIX))
            cls = op_class(op) if patterns else None
            if not patterns or cls is None or is_unused(op):
                continue
            match = Match(op, cls, facts)
            replacement = next((r for p in patterns if (r := p(match)) is not None), None)
            if replacement is None:
                continue
            values = [replacement] if isinstance(replacement, ir.Value) else list(replacement)
            for built in match.built:
                wait_for(built)
            for old, new in zip(op.results, values, strict=True):
                for use in old.uses:
                    wait_for(use.owner.operation)
                old.replace_all_uses_with(new)
                facts.pop(old, None)
            op.erase()
            changed = True
            left -= 1
        return changed


def is_unused(op: ir.Operation) -> bool:
    """True if no result of `op` is read."""
    return all(next(iter(r.uses), None) is None for r in op.results)
