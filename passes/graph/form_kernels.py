"""Fusion: decide which ops become one kernel. `outline` then makes the kernels.

Views and creation ops (`full`, `iota`) are free: every kernel that reads one has its own copy. All other ops are put into
groups in program order, so that each joins the kernels that produce its operands where that works:

* a pointwise op joins a matmul, convolution or attention whose result it reads (epilogue), a row kernel, or other
  pointwise ops of the same shape;
* a reduction or row op (softmax, layer_norm …) joins the pointwise ops that feed it, and reductions over the same rows;
* on GPUs, a concatenation is a pointwise op, which others of its shape join;
* what does not share the space but is read by this kernel alone is computed inside it (through views), for products only
  where their tiles pack the operand (`packed_operands.py`);
* what alone reads a product in equal parts of its columns joins it, on CPUs (`column_parts.py`).

A kernel has at most one matmul, convolution, attention, concat or direct op, and stays small; kernels never wait for each
other in a cycle. The rules are in `kernel_rules.py`, spaces in `kernel_spaces.py`, costs in `kernel_costs.py`.
"""

from __future__ import annotations

from mlir import ir

from ..registry import register
from .column_parts import read_in_parts
from .dataflow import Dataflow, Node, entry_functions, read_function
from .kernel_costs import WINDOWED
from .kernel_groups import ROOTS, Group, Groups
from .kernel_rules import Rules
from .kernel_spaces import Axes, full_axes, reduction_space
from .kernel_uses import Uses
from .packed_operands import is_packed

# Beyond these a kernel gains nothing more, and compile time and register pressure grow.
MAX_MEMBERS = 64
MAX_INPUTS = 12
_RANK = {"rows": 1, "pointwise": 2}  # roots come first


@register
def form_kernels(
    module: ir.Module, turned: bool = False, packed: tuple[str, ...] = (), gpu: bool = False, stacked: bool = False
) -> None:
    """Give every op that computes something the number of its kernel, in an order that can run.

    `turned`: the emitter of attention can store its result with the dims permuted. `packed`: the dtypes whose operands
    products pack, and may compute at that. `gpu`: short chains on small tensors are computed again by who reads them, what reads concatenations joins them, and
    sums over columns, or over few and long rows, join others over the same space: they are done in one pass.
    `stacked`: products read weights one below another where each lies (`stacked_weights.py`).

    Before:
    ```mlir
    func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> tensor<4x4xf32> {
      %0 = "lamina.matmul"(%a, %b) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
      %1 = "lamina.relu"(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      return %1 : tensor<4x4xf32> }
    ```
    After:
    ```mlir
    func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> tensor<4x4xf32> {
      %0 = "lamina.matmul"(%a, %b) {lamina.kernel = 0 : i64} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
      %1 = "lamina.relu"(%0) {lamina.kernel = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
      return %1 : tensor<4x4xf32> }
    ```
    """
    with module.context:
        i64 = ir.IntegerType.get_signless(64)
        for function in entry_functions(module):
            groups = group_ops(read_function(function), turned, frozenset(packed), gpu, stacked)
            for number, group in enumerate(groups.ordered()):
                for node in group.members:
                    node.op.attributes["lamina.kernel"] = ir.IntegerAttr.get(i64, number)


def group_ops(
    flow: Dataflow, turned: bool = False, packed: frozenset[str] = frozenset(), gpu: bool = False, stacked: bool = False
) -> Groups:
    """Group the ops of one function; options as of `form_kernels`."""
    former = _Former(flow, turned, packed, gpu, stacked)
    for node in flow.nodes:
        if former.uses.is_grouped(node):
            former.place(node)
    former.join_siblings()
    if not gpu:
        former.join_parts()
    return former.groups


class _Former:
    def __init__(self, flow: Dataflow, turned: bool, packed: frozenset[str], gpu: bool, stacked: bool):
        self.flow, self.packed = flow, packed
        self.uses = Uses(flow, stacked, gpu)
        self.groups = Groups()
        self.rules = Rules(flow, self.uses, self.groups, turned, gpu)

    def place(self, node: Node) -> None:
        """Put `node` into a kernel of a producer, or into a new one; then let that take in other producers."""
        before = self._producers(node)
        candidates = self._fusable(before)
        target, axes = self._join(node, candidates, before) or self._start(node)
        self.groups.add(target, node, before)
        target.axes.update(axes)
        target.inputs.update(v for v in self.uses.sources(node) if self._group_of(v) is not target)
        for group in candidates:
            if group is not target and group.number in self.groups.alive:
                self._take_in(target, group, node)

    def _join(self, node: Node, candidates: list[Group], before: list[Group]) -> tuple[Group, dict[int, Axes]] | None:
        """The first group that `node` can join, changed to have room for it, and the axes of its results there."""
        for group in candidates:
            if not self.groups.can_add(group, before) or len(group.members) >= MAX_MEMBERS:
                continue
            if (
                len(group.inputs.union(v for v in self.uses.sources(node) if self._group_of(v) is not group))
                > MAX_INPUTS
            ):
                continue
            axes = self.rules.joined_axes(node, group)
            if axes is None:
                continue
            if node.category in ("reduction", "row"):
                reduced = reduction_space(node, group.space)
                assert reduced is not None
                group.kind, group.reduced = "rows", reduced
                group.rows_only |= self.rules.is_rows_only(node, group.space, reduced)
            return group, axes
        return None

    def _start(self, node: Node) -> tuple[Group, dict[int, Axes]]:
        """A new group with `node` as its root, and the axes of the results."""
        result = self.rules.shape(node.results[0])
        if node.category in ("reduction", "row"):
            space = self.rules.shape(node.inputs[0])
            reduced = reduction_space(node, space)
            if reduced is not None:
                group = self.groups.new("rows", space, reduced)
                group.rows_only = self.rules.is_rows_only(node, space, reduced)
                return group, self.rules.row_results(node, space, reduced)
        if node.category in ("reduction", "row") or node.name in WINDOWED:
            group = self.groups.new("rows", result, None)  # a reduction in a form of its own
        elif node.category in ("pointwise", "gather", "creation") or (self.rules.gpu and node.category == "concat"):
            group = self.groups.new("pointwise", result)
        else:
            group = self.groups.new(node.category, result)
        return group, {r: full_axes(result) for r in node.results if self.rules.shape(r) == result}

    def _take_in(self, target: Group, group: Group, node: Node) -> None:
        """Merge the producer `group` of `node` into `target` if they share a space, or if only `target` reads it."""
        if not self._are_small(target, group) or not self.groups.can_merge(target, group):
            return
        if self.rules.shares_space(target, group, node):
            self._merge_spaces(target, group)
        elif self.rules.can_recompute(target, group, node) or is_packed(self.rules, target, group, node, self.packed):
            self._merge(target, group)

    def _producers(self, node: Node) -> list[Group]:
        groups = (self._group_of(v) for v in self.uses.sources(node))
        return list(dict.fromkeys(g for g in groups if g is not None))

    def _group_of(self, value: int) -> Group | None:
        producer = self.flow.producer[value]
        return None if producer is None else self.groups.of.get(producer)

    @staticmethod
    def _fusable(groups: list[Group]) -> list[Group]:
        """Roots first (an epilogue in registers), then rows, then pointwise; the latest first."""
        found = [g for g in groups if g.kind in ROOTS or g.kind in _RANK]
        return sorted(found, key=lambda g: (_RANK.get(g.kind, 0), -g.number))

    @staticmethod
    def _are_small(a: Group, b: Group) -> bool:
        return len(a.members) + len(b.members) <= MAX_MEMBERS and len(a.inputs | b.inputs) <= MAX_INPUTS

    def _merge_spaces(self, target: Group, group: Group) -> None:
        if group.kind == "rows" and target.kind == "pointwise":
            target.kind, target.reduced = "rows", group.reduced
        target.axes.update(group.axes)
        self._merge(target, group)

    def _merge(self, target: Group, group: Group) -> None:
        self.groups.merge(target, group)
        target.members.sort(key=lambda n: n.index)
        made = {r for n in target.members for r in n.results}
        target.inputs = (target.inputs | group.inputs) - made

    # -- independent kernels over the same data ---------------------------------------------------------------
    def join_siblings(self) -> None:
        """Merge kernels that do not need each other but read one buffer over one space (two sums of one tensor)."""
        readers: dict[tuple, list[Group]] = {}
        for group in list(self.groups.alive.values()):
            if group.kind not in ("pointwise", "rows") or group.reduced is None or group.concats:
                continue
            if group.rows_only and not self.rules.gpu:
                continue
            whole = [v for v in sorted(group.inputs) if self.rules.shape(v) == group.space]
            others = [g for v in whole for g in readers.get((v, group.space), []) if self._are_siblings(g, group)]
            if others:
                self._merge_spaces(others[0], group)
                group = others[0]
            for v in whole:
                readers.setdefault((v, group.space), []).append(group)

    # -- products and who reads them in parts -----------------------------------------------------------------
    def join_parts(self) -> None:
        """Merge a product with the kernel that alone reads it, in equal parts of its columns."""
        for product in [g for g in self.groups.alive.values() if g.kind == "matmul"]:
            reader = read_in_parts(self.rules, product)
            if reader and self._are_small(product, reader) and self.groups.can_merge(product, reader):
                self._merge(product, reader)

    def _are_siblings(self, a: Group, b: Group) -> bool:
        if a.number not in self.groups.alive or a.rows_only != b.rows_only:
            return False
        if a.kind == b.kind == "rows" and a.reduced != b.reduced:
            return False
        made_a, made_b = ({r for n in g.members for r in n.results} for g in (a, b))
        if made_a & b.inputs or made_b & a.inputs:
            return False  # a direct need was looked at before, and refused
        return self._are_small(a, b) and self.groups.can_merge(a, b)
