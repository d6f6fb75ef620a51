"""Fusion: decide which ops become one kernel. `outline` then makes the kernels.

Views and creation ops (`full`, `iota`) are free: every kernel that reads one has its own copy. All other ops are put into
groups in program order, so that each joins the kernels that produce its operands where that works:

* a pointwise op joins a matmul, convolution or attention whose result it reads (epilogue), a row kernel, or other
  pointwise ops of the same shape;
* a reduction or row op (softmax, layer_norm …) joins the pointwise ops that feed it, and reductions over the same rows;
* what does not share the space but is read by this kernel alone is computed inside it (through views).

Groups never contain a matmul, convolution, attention or direct op twice, never make a cycle, and stay small.
"""

from __future__ import annotations

from mlir import ir

from ..dialects.record import TensorType
from .dataflow import Dataflow, Node, entry_functions, read_function
from .kernel_costs import is_cheap, reads_buffer
from .kernel_groups import ROOTS, Group, Groups
from .kernel_spaces import (
    Axes,
    covers_rows,
    covers_space,
    full_axes,
    is_trailing,
    pointwise_axes,
    reduced_axes,
    reduction_space,
    through_view,
)
from .kernel_uses import Uses
from .registry import register

MAX_MEMBERS = 64
MAX_INPUTS = 12
_FEW_ROWS, _LONG_ROW = 8, 32768  # with fewer rows that are longer, rows alone do not fill the machine


@register
def form_kernels(module: ir.Module) -> None:
    """Give every op that computes something the number of its kernel, in an order that can run.

    Before:
    ```mlir
    %0 = "lamina.matmul"(%a, %b) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %1 = "lamina.relu"(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    ```
    After:
    ```mlir
    %0 = "lamina.matmul"(%a, %b) {lamina.kernel = 0 : i64} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %1 = "lamina.relu"(%0) {lamina.kernel = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    ```
    """
    for function in entry_functions(module):
        with module.context:
            i64 = ir.IntegerType.get_signless(64)
            for number, group in enumerate(group_ops(read_function(function)).ordered()):
                for node in group.members:
                    node.op.attributes["lamina.kernel"] = ir.IntegerAttr.get(i64, number)


def group_ops(flow: Dataflow) -> Groups:
    """Group the ops of one function."""
    former = _Former(flow)
    for node in flow.nodes:
        if former.uses.is_grouped(node):
            former.place(node)
    former.join_siblings()
    return former.groups


class _Former:
    def __init__(self, flow: Dataflow):
        self.flow = flow
        self.uses = Uses(flow)
        self.groups = Groups()

    # -- placing one op ---------------------------------------------------------------------------------------
    def place(self, node: Node) -> None:
        """Put `node` into a kernel of a producer, or into a new one that takes in producers of its own."""
        before = self._producers(node)
        target = None
        for group in self._candidates(before):
            axes = self._joined_axes(node, group)
            if axes is not None and self.groups.can_add(group, before) and self._small(group, node):
                target = group
                self._extend(group, node)
                break
        if target is None:
            target, axes = self._start(node)
        assert axes is not None
        self.groups.add(target, node, before)
        target.axes.update(axes)
        self._add_inputs(target, node)
        for group in self._candidates(before):
            if group is not target and group.number in self.groups.alive:
                self._take_in(target, group, node)

    def _producers(self, node: Node) -> list[Group]:
        found = {}
        for v in self.uses.sources(node):
            producer = self.flow.producer[v]
            if producer is not None and producer in self.groups.of:
                group = self.groups.of[producer]
                found[group.number] = group
        return list(found.values())

    def _candidates(self, groups: list[Group]) -> list[Group]:
        """Roots first (an epilogue in registers), then rows, then pointwise; the latest first."""
        order = {"rows": 1, "pointwise": 2}
        fusable = [g for g in groups if g.kind in ROOTS or g.kind in order]
        return sorted(fusable, key=lambda g: (order.get(g.kind, 0), -g.number))

    def _start(self, node: Node) -> tuple[Group, dict[int, Axes]]:
        """A new group with `node` as its root."""
        result = self.flow.types[node.results[0]].shape
        if node.category in ("reduction", "row"):
            space = self.flow.types[node.inputs[0]].shape
            reduced = reduction_space(node, space)
            if reduced is not None:
                group = self.groups.new("rows", space, reduced)
                group.rows_only = node.category == "reduction" and self._is_crosswise(space, reduced)
                return group, self._row_results(node, group)
        if node.category in ("reduction", "row") or self.uses.is_windowed(node):
            group = self.groups.new("rows", result, None)
        elif node.category in ("pointwise", "gather", "creation"):
            group = self.groups.new("pointwise", result)
        else:
            group = self.groups.new(node.category, result)
        same = [r for r in node.results if self.flow.types[r].shape == result]
        return group, {r: full_axes(result) for r in same}

    def _extend(self, group: Group, node: Node) -> None:
        """Turn a pointwise group into a row group when a reduction joins it."""
        if node.category in ("reduction", "row") and group.kind == "pointwise":
            group.kind = "rows"
            group.reduced = reduction_space(node, group.space)

    # -- may an op join? --------------------------------------------------------------------------------------
    def _joined_axes(self, node: Node, group: Group) -> dict[int, Axes] | None:
        """The axes of the results of `node` in `group`, or None if it does not share the group's space."""
        if node.category in ("reduction", "row"):
            return self._joined_reduction(node, group)
        if node.category not in ("pointwise", "gather") or self.uses.is_windowed(node):
            return None
        result = self.flow.types[node.results[0]].shape
        if node.category == "gather":
            # Only `gather` reads its index where it writes its result; the others place or move elements.
            inside = [v for v in node.inputs if self.uses.reads_from(v, group.members)]
            if group.kind in ROOTS or node.name != "gather" or any(self.flow.types[v].shape != result for v in inside):
                return None
        operands = []
        for i, v in enumerate(node.operands):
            if v is None:
                continue
            axes = self._axes(v, group)
            if axes is None or (reads_buffer(node, i) and self.uses.reads_from(v, group.members)):
                return None
            if axes != ():
                operands.append((axes, self.flow.types[v].shape))
        merged = pointwise_axes(operands, result)
        if merged is None:
            return None
        if covers_space(merged, group.space, result) and not group.rows_only:
            return {r: full_axes(result) for r in node.results}
        rows = group.kind == "rows" and bool(group.reduced)
        if rows and group.reduced and covers_rows(merged, group.space, group.reduced, result):
            return {r: merged for r in node.results}
        return None

    def _joined_reduction(self, node: Node, group: Group) -> dict[int, Axes] | None:
        space = self.flow.types[node.inputs[0]].shape
        reduced = reduction_space(node, space)
        if space != group.space or reduced is None or group.kind not in ("pointwise", "rows"):
            return None
        if group.kind == "rows" and group.reduced != reduced:
            return None
        axes = [self._axes(v, group) for v in node.inputs]
        if any(a is None for a in axes) or not covers_space(axes[0] or (), space, space):
            return None
        if any(axes[1:]):  # weights of a norm come from elsewhere
            return None
        if node.category == "reduction" and self._is_crosswise(space, reduced):
            # Such kernels have no place to store the whole space.
            if not group.rows_only and not self._only_read_by(group, node, group):
                return None
            group.rows_only = True
        return self._row_results(node, group, reduced)

    def _row_results(self, node: Node, group: Group, reduced: frozenset[int] | None = None) -> dict[int, Axes]:
        reduced = group.reduced if reduced is None else reduced
        found = {}
        for r in node.results:
            shape = self.flow.types[r].shape
            if node.category == "row" and shape == group.space:
                found[r] = full_axes(shape)
            else:
                axes = reduced_axes(group.space, reduced or frozenset(), shape)
                if axes is not None:
                    found[r] = axes
        return found

    def _is_crosswise(self, space: tuple, reduced: frozenset[int]) -> bool:
        """True if rows are not contiguous, or too few to share the work by rows."""
        if not is_trailing(space, reduced):
            return True
        rows = TensorType("f32", tuple(d for i, d in enumerate(space) if i not in reduced)).numel
        length = TensorType("f32", tuple(d for i, d in enumerate(space) if i in reduced)).numel
        return isinstance(rows, int) and rows < _FEW_ROWS and isinstance(length, int) and length >= _LONG_ROW

    def _axes(self, value: int, group: Group) -> Axes | None:
        """The axes of a value in the group's space; () if it does not come from the group, None if it moved."""
        if value in group.axes:
            return group.axes[value] or ()
        producer = self.flow.producer[value]
        if producer is None or not self.uses.is_free(producer):
            inside = producer is not None and self.groups.of.get(producer) is group
            return None if inside else ()
        for v in producer.inputs:
            axes = self._axes(v, group)
            if axes is None or axes == ():
                if axes is None:
                    return None
                continue
            types = self.flow.types
            if producer.category != "view":
                return None
            return through_view(producer, axes, types[v].shape, types[value].shape)
        return ()

    # -- taking producers in ----------------------------------------------------------------------------------
    def _take_in(self, target: Group, group: Group, node: Node) -> None:
        """Merge the producer `group` of `node` into `target` if they share a space, or if only `target` reads it."""
        if len(target.members) + len(group.members) > MAX_MEMBERS or not self.groups.can_merge(target, group):
            return
        if len(target.inputs | group.inputs) > MAX_INPUTS:
            return
        shared = self._shares_space(target, group, node)
        if not shared and not self._can_recompute(target, group, node):
            return
        if shared and group.kind == "rows" and target.kind == "pointwise":
            target.kind, target.reduced = "rows", group.reduced
        if shared:
            target.axes.update(group.axes)
        self.groups.merge(target, group)
        target.members.sort(key=lambda n: n.index)
        made = {r for n in target.members for r in n.results}
        target.inputs = (target.inputs | group.inputs) - made

    def _shares_space(self, target: Group, group: Group, node: Node) -> bool:
        if target.space != group.space or target.rows_only or group.rows_only:
            return False
        kinds = {target.kind, group.kind}
        if target.kind in ROOTS:
            if group.kind != "pointwise" or not self._only_read_by(group, node, target):
                return False
        elif not kinds <= {"pointwise", "rows"}:
            return False
        if target.kind == group.kind == "rows" and target.reduced != group.reduced:
            return False
        if None in (target.reduced, group.reduced):
            return False
        if any(n.category == "gather" for n in group.members) and target.kind in ROOTS:
            return False
        return all(self._reads_in_place(n, group) for n in target.members)

    def _reads_in_place(self, node: Node, group: Group) -> bool:
        """True if `node` reads values of `group`, if any, at the point of the space that it writes."""
        inside = [i for i, v in enumerate(node.operands) if v is not None and self.uses.reads_from(v, group.members)]
        if not inside:
            return True
        if any(reads_buffer(node, i) for i in inside) or (node.category == "gather" and node.name != "gather"):
            return False
        read = []
        for i in inside:
            v = node.operands[i]
            axes = self._axes(v, group)  # type: ignore[arg-type]
            if axes is None:
                return False
            read.append((axes, self.flow.types[v].shape))  # type: ignore[index]
        result = self.flow.types[node.results[0]].shape
        if node.category in ("reduction", "row"):
            return inside == [0] and covers_space(*read[0][:1], group.space, read[0][1])
        merged = pointwise_axes(read, result)
        return merged is not None and covers_space(merged, group.space, result)

    def _can_recompute(self, target: Group, group: Group, node: Node) -> bool:
        """True if `group` can be computed inside `target` wherever it is read, at no more than a little cost."""
        if group.kind != "pointwise" or target.kind in (*ROOTS, "direct"):
            return False
        if not self._only_read_by(group, node, target):
            return False
        for i, v in enumerate(node.operands):
            if v is not None and reads_buffer(node, i) and self.uses.reads_from(v, group.members):
                return False
        if target.kind == "concat":
            return True
        stretched = any(
            self.uses.stretches(v, group.members, self.flow.types[node.results[0]])
            for v in node.inputs
        )
        return not stretched or (len(group.members) <= 4 and all(map(is_cheap, group.members)))

    def _only_read_by(self, group: Group, node: Node, target: Group) -> bool:
        """True if all results of `group` are read by `node`, `target` and the group itself alone."""
        for member in group.members:
            for r in member.results:
                if r in self.uses.returned:
                    return False
                for user in self.uses.strict[r]:
                    if user is not node and self.groups.of.get(user) not in (group, target):
                        return False
        return True

    # -- sizes ------------------------------------------------------------------------------------------------
    def _small(self, group: Group, node: Node) -> bool:
        more = {v for v in self.uses.sources(node) if v not in group.axes}
        return len(group.members) < MAX_MEMBERS and len(group.inputs | more) <= MAX_INPUTS

    def _add_inputs(self, group: Group, node: Node) -> None:
        group.inputs.update(
            v for v in self.uses.sources(node) if self.groups.of.get(self.flow.producer[v]) is not group  # type: ignore[arg-type]
        )

    # -- independent kernels over the same data ---------------------------------------------------------------
    def join_siblings(self) -> None:
        """Merge kernels without a dependence that read the same buffer over the same space (two sums of one tensor)."""
        readers: dict[tuple, list[Group]] = {}
        for group in list(self.groups.alive.values()):
            if group.kind not in ("pointwise", "rows") or group.reduced is None or group.rows_only:
                continue
            for v in sorted(group.inputs):
                if self.flow.types[v].shape != group.space:
                    continue
                for other in readers.setdefault((v, group.space), []):
                    if self._are_siblings(other, group):
                        if group.kind == "rows":
                            other.kind, other.reduced = "rows", group.reduced
                        other.axes.update(group.axes)
                        other.inputs |= group.inputs
                        self.groups.merge(other, group)
                        other.members.sort(key=lambda n: n.index)
                        break
                else:
                    readers[v, group.space].append(group)
                    continue
                break

    def _are_siblings(self, a: Group, b: Group) -> bool:
        if a is b or a.number not in self.groups.alive or b.number not in self.groups.alive:
            return False
        if a.kind == b.kind == "rows" and a.reduced != b.reduced:
            return False
        if len(a.members) + len(b.members) > MAX_MEMBERS or len(a.inputs | b.inputs) > MAX_INPUTS:
            return False
        made_a = {r for n in a.members for r in n.results}
        made_b = {r for n in b.members for r in n.results}
        # A direct dependence was looked at before, and refused.
        return not made_a & b.inputs and not made_b & a.inputs and self.groups.can_merge(a, b)
