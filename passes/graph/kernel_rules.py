"""When an op or a group may become part of a kernel: the rules of fusion, without the order in which they are tried."""

from __future__ import annotations

from ...dialects.dims import product
from .dataflow import Dataflow, Node
from .kernel_costs import WINDOWED, is_cheap, is_quick, reads_buffer
from .kernel_groups import ROOTS, Group, Groups
from .kernel_spaces import (
    Axes,
    Shape,
    covers_rows,
    covers_space,
    full_axes,
    is_trailing,
    parts_of,
    parts_through_view,
    pointwise_axes,
    reduced_axes,
    reduction_space,
    through_view,
    turns_space,
)
from .kernel_uses import Uses

_REDUCING = ("reduction", "row")
_VECTOR = 8  # elements of 16 bits that products store at once
_STRETCHED_MEMBERS = 4  # cheap ops that may be computed more than once per element
_SCALES, _SCALE_MEMBERS = 1 << 14, 12  # elements, and quick ops of each, that save a launch on GPUs
_MOST_CONCATS = 2  # one in the other: each doubles what code there is for an element
_FEW_ROWS, _LONG_ROW = 8, 32768  # with fewer rows that are longer, rows alone do not fill the machine


class Rules:
    """Questions about ops of one function and its groups so far; nothing is changed here."""

    def __init__(self, flow: Dataflow, uses: Uses, groups: Groups, turned: bool, gpu: bool):
        self.flow, self.uses, self.groups = flow, uses, groups
        self.gpu = gpu  # a launch costs more than what little is computed again
        self.turned = turned  # roots can store their results with the dims permuted

    # -- an op and a group ------------------------------------------------------------------------------------
    def joined_axes(self, node: Node, group: Group) -> dict[int, Axes] | None:
        """The axes of the results of `node` as a member of `group`, or None if it does not share the group's space."""
        if node.category in _REDUCING:
            return self._joined_reduction(node, group)
        if node.category not in ("pointwise", "gather") or node.name in WINDOWED:
            return None
        if node.category == "gather" and group.kind in ROOTS:
            return None
        if self.turned and node.name == "materialize" and self._puts_in_place(node, group):
            return {}
        merged = self._read_axes(node, group)
        if merged is None:
            return None
        result = self.shape(node.results[0])
        if covers_space(merged, group.space, result) and not group.rows_only:
            return {r: full_axes(result) for r in node.results}
        if self.turned and group.kind == "attention" and node.name == "materialize":
            return {r: merged for r in node.results} if turns_space(merged, group.space, result) else None
        if group.kind == "rows" and group.reduced and covers_rows(merged, group.space, group.reduced, result):
            return {r: merged for r in node.results}
        return None

    def _puts_in_place(self, node: Node, group: Group) -> bool:
        """True if `node` copies what a product makes with parts of its dims in another order, by whole vectors.

        So a transposed convolution puts its phases between each other: `[N, H, W, (p, q, O)]` to `[N, H, p, W, q, O]`.
        """
        if group.kind not in ("matmul", "conv"):
            return False
        views, value = [], node.inputs[0]
        while value not in group.axes:
            producer = self.flow.producer[value]
            if producer is None or producer.category != "view":
                return False
            views.append(producer)
            value = producer.inputs[0]
        parts = parts_of(group.space)
        if not views or self.shape(value) != group.space or group.axes[value] != full_axes(group.space):
            return False
        for view in reversed(views):
            parts = parts and parts_through_view(view, parts, self.shape(view.results[0]))
        if not parts or any(len(dim) > 1 for dim in parts) or not parts[-1]:
            return False
        return parts[-1][0].distance == 1 and parts[-1][0].size % _VECTOR == 0

    def _joined_reduction(self, node: Node, group: Group) -> dict[int, Axes] | None:
        space = self.shape(node.inputs[0])
        reduced = reduction_space(node, space)
        if space != group.space or reduced is None or group.kind not in ("pointwise", "rows"):
            return None
        if group.kind == "rows" and group.reduced != reduced or group.concats:
            return None
        inside = self.inside(node, group)
        axes = self.axes(node.inputs[0], group)
        # The weights of a norm come from elsewhere.
        if inside not in ([], [0]) or axes is None or not covers_space(axes, space, space):
            return None
        if (
            self.is_rows_only(node, space, reduced)
            and not group.rows_only
            and not self.only_read_by(group, node, group)
        ):
            return None  # such a kernel has no place to store the whole space
        return self.row_results(node, space, reduced)

    def row_results(self, node: Node, space: Shape, reduced: frozenset[int]) -> dict[int, Axes]:
        """The axes of the results of a reduction or row op over `space`; other results are left out."""
        found: dict[int, Axes] = {}
        for r in node.results:
            whole = node.category == "row" and self.shape(r) == space
            axes = full_axes(space) if whole else reduced_axes(space, reduced, self.shape(r))
            if axes is not None:
                found[r] = axes
        return found

    def is_rows_only(self, node: Node, space: Shape, reduced: frozenset[int]) -> bool:
        """True for a reduction whose rows are not contiguous, or too few and long to share the work by rows."""
        if node.category != "reduction":
            return False
        if not is_trailing(space, reduced):
            return True
        rows = product(d for i, d in enumerate(space) if i not in reduced)
        length = product(d for i, d in enumerate(space) if i in reduced)
        return isinstance(rows, int) and rows < _FEW_ROWS and isinstance(length, int) and length >= _LONG_ROW

    # -- two groups -------------------------------------------------------------------------------------------
    def shares_space(self, target: Group, group: Group, node: Node) -> bool:
        """True if `group`, which feeds `node` of `target`, can live in the space of `target`."""
        if target.space != group.space or target.rows_only != group.rows_only:
            return False
        if target.rows_only and not self.gpu:
            return False
        if target.reduced is None or group.reduced is None:
            return False
        if (target.concats or group.concats) and not target.kind == group.kind == "pointwise":
            return False  # threads of a row read it in order
        if target.kind in ROOTS:
            if group.kind != "pointwise" or any(n.category == "gather" for n in group.members):
                return False
            if not self.only_read_by(group, node, target):
                return False
        elif not {target.kind, group.kind} <= {"pointwise", "rows"}:
            return False
        if target.kind == group.kind == "rows" and target.reduced != group.reduced:
            return False
        return all(self._reads_in_place(n, group) for n in target.members)

    def _reads_in_place(self, node: Node, group: Group) -> bool:
        """True if `node` reads values of `group`, if any, at the point of the space (or the row) that it writes."""
        inside = self.inside(node, group)
        if not inside:
            return True
        if node.category in _REDUCING:
            axes = self.axes(node.inputs[0], group)
            return inside == [0] and axes is not None and covers_space(axes, group.space, self.shape(node.inputs[0]))
        merged, result = self._read_axes(node, group), self.shape(node.results[0])
        if merged is None:
            return False
        rows = group.kind == "rows" and group.reduced and covers_rows(merged, group.space, group.reduced, result)
        return bool(rows) or covers_space(merged, group.space, result)

    def can_recompute(self, target: Group, group: Group, node: Node) -> bool:
        """True if `group` can be computed inside `target` wherever it is read, at no more than a little cost."""
        if target.kind in (*ROOTS, "direct") or not self.only_read_by(group, node, target):
            return False
        result = self.flow.types[node.results[0]]
        if node.name == "materialize" and all(n.name in WINDOWED for n in group.members):  # in another order of dims
            return not any(self.uses.stretches(v, group.members, result) for v in node.inputs)
        if group.kind != "pointwise":
            return False
        if any(reads_buffer(node, i) for i in self.inside(node, group)):
            return False
        if node.category == "concat":
            return target.concats + group.concats <= _MOST_CONCATS
        if group.concats:
            return node.name == "materialize" and self._keeps_rows(node.inputs[0])
        stretched = any(self.uses.stretches(v, group.members, result) for v in node.inputs)
        if not stretched or (len(group.members) <= _STRETCHED_MEMBERS and all(map(is_cheap, group.members))):
            return True
        size = product(group.space)  # as the scales and shifts that a norm of inference makes of its statistics
        few = isinstance(size, int) and size <= _SCALES and len(group.members) <= _SCALE_MEMBERS
        return self.gpu and few and all(is_quick(n, self.flow.types) for n in group.members)

    def _keeps_rows(self, value: int) -> bool:
        """True if `value` is an op's result, or that with its dims but the last in another order, or in other dims."""
        producer = self.flow.producer[value]
        while producer is not None and producer.category == "view":
            keeps = producer.name == "reshape"
            if producer.name == "permute":
                keeps = producer.attributes["dims"][-1] == len(producer.attributes["dims"]) - 1
            if not keeps:
                return False
            producer = self.flow.producer[producer.inputs[0]]
        return True

    def only_read_by(self, group: Group, node: Node, target: Group) -> bool:
        """True if all results of `group` are read by `node`, `target` and the group itself alone."""
        for member in group.members:
            for r in member.results:
                if r in self.uses.returned:
                    return False
                for user in self.uses.strict[r]:
                    if user is not node and self.groups.of.get(user) not in (group, target):
                        return False
        return True

    # -- axes of what an op reads -----------------------------------------------------------------------------
    def shape(self, value: int) -> Shape:
        return self.flow.types[value].shape

    def inside(self, node: Node, group: Group) -> list[int]:
        """The numbers of the operands of `node` that come from `group`."""
        operands = enumerate(node.operands)
        return [i for i, v in operands if v is not None and self.uses.reads_from(v, group.members)]

    def _read_axes(self, node: Node, group: Group) -> Axes | None:
        """How the result of a pointwise op or gather lies in the group's space, by what it reads; None if it does not."""
        result = self.shape(node.results[0])
        read: list[tuple[Axes, Shape]] = []
        for i in self.inside(node, group):
            v = node.operands[i]
            assert v is not None
            # Only `gather` reads its index where it writes its result; other gathers place or move elements.
            if reads_buffer(node, i) or (
                node.category == "gather" and (node.name != "gather" or self.shape(v) != result)
            ):
                return None
            axes = self.axes(v, group)
            if axes is None:
                return None
            read.append((axes, self.shape(v)))
        return pointwise_axes(read, result)

    def axes(self, value: int, group: Group) -> Axes | None:
        """The axes in the group's space of a value that comes from the group; None if it moved on the way."""
        if value in group.axes:
            return group.axes[value]
        producer = self.flow.producer[value]
        if producer is None or producer.category != "view":
            return None
        axes = self.axes(producer.inputs[0], group)
        return None if axes is None else through_view(producer, axes, self.shape(producer.inputs[0]), self.shape(value))
