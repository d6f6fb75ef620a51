"""Groups of ops that become kernels, and the order between them.

Each group knows the groups that must run before it as a bit set (a Python int), so that "would joining make a cycle?"
is one `and`, and a graph of thousands of ops is grouped in a fraction of a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .dataflow import Node
from .kernel_spaces import Axes, Shape

ROOTS = ("matmul", "conv", "attention")


@dataclass(eq=False)
class Group:
    """Ops that run as one kernel over one space.

    `kind` is "pointwise", "rows" (with `reduced` dims; None where the op reduces in a form of its own), "matmul",
    "conv", "attention", "concat" (on GPUs it is "pointwise", too) or "direct". `axes` has the values that live in the space; members whose results are not there
    are computed at whatever index their reader asks for, and are never stored.
    """

    number: int
    kind: str
    space: Shape
    reduced: frozenset[int] | None = frozenset()
    members: list[Node] = field(default_factory=list)
    axes: dict[int, Axes] = field(default_factory=dict)
    inputs: set[int] = field(default_factory=set)
    rows_only: bool = False  # takes no member that stores the whole space

    @property
    def bit(self) -> int:
        return 1 << self.number

    @property
    def concats(self) -> int:
        """How many members make elements of one tensor or another."""
        return sum(n.category == "concat" for n in self.members)


class Groups:
    """All groups, and which must precede which."""

    def __init__(self) -> None:
        self.alive: dict[int, Group] = {}
        self.of: dict[Node, Group] = {}
        self._before: dict[int, int] = {}  # transitively
        self._direct: dict[int, int] = {}
        self._made = 0

    def new(self, kind: str, space: Shape, reduced: frozenset[int] | None = frozenset()) -> Group:
        """Start an empty group."""
        group = Group(self._made, kind, space, reduced)
        self._made += 1
        self.alive[group.number] = group
        self._before[group.number] = self._direct[group.number] = 0
        return group

    def can_add(self, group: Group, before: list[Group]) -> bool:
        """True if a node that needs `before` can join `group` without a cycle."""
        return all(g is group or not self._before[g.number] & group.bit for g in before)

    def add(self, group: Group, node: Node, before: list[Group]) -> None:
        """Put `node`, which needs the groups `before`, into `group`."""
        group.members.append(node)
        self.of[node] = group
        direct = 0
        for g in before:
            direct |= g.bit
        self._precede(group, direct & ~group.bit)

    def can_merge(self, a: Group, b: Group) -> bool:
        """True if no third group must run between `a` and `b`."""
        return not self._between(a, b) and not self._between(b, a)

    def merge(self, kept: Group, gone: Group) -> None:
        """Move the members of `gone` into `kept`; the caller says what their axes are."""
        kept.members += gone.members
        for node in gone.members:
            self.of[node] = kept
        del self.alive[gone.number]
        direct = (self._direct.pop(gone.number) | self._direct[kept.number]) & ~(kept.bit | gone.bit)
        before = self._before.pop(gone.number)
        for number in self.alive:
            if self._direct[number] & gone.bit:
                self._direct[number] = self._direct[number] & ~gone.bit | kept.bit
            if self._before[number] & gone.bit:
                self._before[number] = self._before[number] & ~gone.bit | kept.bit | before & ~gone.bit
        self._direct[kept.number] = self._before[kept.number] = 0
        self._precede(kept, direct)

    def ordered(self) -> list[Group]:
        """The groups in an order that respects all dependences: as their last members come, each after what it needs.

        What nobody needs yet waits for its turn, so that results do not lie in memory for longer than they must.
        """
        ordered, done, begun = list[Group](), 0, 0
        for last in sorted(self.alive.values(), key=_place):
            stack = [last]
            while stack:
                group = stack[-1]
                missing = self._direct[group.number] & ~done
                if done & group.bit:
                    stack.pop()
                elif missing:
                    assert not missing & begun, "the kernels depend on each other in a cycle"
                    begun |= group.bit
                    stack += sorted((self.alive[n] for n in _bits(missing)), key=_place, reverse=True)
                else:
                    ordered.append(stack.pop())
                    done |= group.bit
        return ordered

    def _between(self, a: Group, b: Group) -> bool:
        """True if a path leads from `a` to `b` through another group."""
        if not self._before[b.number] & a.bit:
            return False
        direct = self._direct[b.number] & ~a.bit
        return any(self._before[n] & a.bit for n in _bits(direct))

    def _precede(self, group: Group, direct: int) -> None:
        self._direct[group.number] |= direct
        before = self._before[group.number] | direct
        for n in _bits(direct):
            before |= self._before[n]
        if before == self._before[group.number]:
            return
        self._before[group.number] = before
        for number in self.alive:
            if self._before[number] & group.bit:
                self._before[number] |= before


def _place(group: Group) -> int:
    """Where in the program the group's last member is."""
    return max(n.index for n in group.members)


def _bits(mask: int):
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
