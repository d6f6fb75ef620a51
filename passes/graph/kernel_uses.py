"""Who reads a value for good: uses seen through views and other ops that every reader computes for itself."""

from __future__ import annotations

from ...dialects.record import TensorType
from .dataflow import Dataflow, Node
from .kernel_costs import grows, is_cheap, is_creation, is_leaf, is_widening, reads_buffer
from .kernel_groups import ROOTS
from .stacked_weights import is_stacked

_RECOMPUTE_READERS = 2
_RECOMPUTE_OPS = 4
_MOST_BEFORE_ROWS = 12  # pointwise ops between a product and a reduction of its rows; and before the cast
_CHAIN_READERS, _CHAIN_OPS, _CHAIN_LEAVES = 4, 6, 2  # of what a GPU computes again for sums over rows and over columns
_REDUCING = ("reduction", "row")
_SUMMED = ("pointwise", "reduction")


class Uses:
    """Facts of one function: free ops, the ops that get a kernel, and their readers; `stacked` and `gpu` as of `form_kernels`.

    `strict[v]` are the grouped ops that read `v`, directly or through free ops; `returned` are the values that the
    function returns directly or through views.
    """

    def __init__(self, flow: Dataflow, stacked: bool = False, gpu: bool = False):
        self.flow = flow
        self._stacks = {n for n in flow.nodes if is_stacked(flow, n)} if stacked else set[Node]()
        self._free: set[Node] = set()
        self._sources: dict[Node, list[int]] = {}
        self._recomputed: dict[Node, int] = {}  # free pointwise ops: how many ops computing one again takes
        self.strict: list[list[Node]] = [[] for _ in flow.types]
        self.returned: set[int] = set()
        self._stored: set[Node] = set()  # creation ops that some reader needs in memory
        for node in flow.nodes:
            type = flow.types[node.results[0]] if node.results else TensorType("f32", ())
            if node.category == "view" or is_creation(node, type):
                self._free.add(node)
        self._free |= self._stacks
        self._find_returned()
        self._find_recomputed()
        self._find_widened()
        if gpu:
            self._find_normalised()
        self._find_strict()

    def is_grouped(self, node: Node) -> bool:
        """True if `node` belongs to a kernel: it is not free, or must be in memory somewhere."""
        return node in self._stored or not (node in self._free or is_leaf(node))

    def sources(self, node: Node) -> list[int]:
        """The values in memory or of other ops that `node` reads, through free ops."""
        if node not in self._sources:
            found: dict[int, None] = {}
            for i, v in enumerate(node.operands):
                if v is None:
                    continue
                if reads_buffer(node, i):
                    base = self.flow.base(v)
                    producer = self.flow.producer[base]
                    found.update(dict.fromkeys(producer.inputs if producer in self._stacks else [base]))  # type: ignore[union-attr]
                    continue
                producer = self.flow.producer[v]
                if producer is None or producer not in self._free:
                    found[v] = None
                else:
                    found.update(dict.fromkeys(self.sources(producer)))
            self._sources[node] = list(found)
        return self._sources[node]

    def reads_from(self, value: int, members: list[Node]) -> bool:
        """True if `value` is, or is computed by free ops from, a result of one of `members`."""
        producer = self.flow.producer[value]
        if producer is None:
            return False
        if producer in self._free:
            return any(self.reads_from(v, members) for v in producer.inputs)
        return producer in members

    def stretches(self, value: int, members: list[Node], result: TensorType) -> bool:
        """True if reading `value` for `result` computes elements of `members` more than once."""
        producer = self.flow.producer[value]
        if producer is None or not self.reads_from(value, members):
            return False
        if producer in self._free:
            return any(self.stretches(v, members, result) for v in producer.inputs)
        return grows(self.flow.types[value], result)

    # -- building ---------------------------------------------------------------------------------------------
    def _find_returned(self) -> None:
        stack = list(self.flow.returned)
        while stack:
            v = stack.pop()
            if v in self.returned:
                continue
            self.returned.add(v)
            producer = self.flow.producer[v]
            if producer is not None and producer in self._free:
                if producer.category == "view":
                    stack += producer.inputs
                else:
                    self._stored.add(producer)

    def _find_recomputed(self) -> None:
        """Make cheap ops on inputs with at most two readers free: reading again costs no more than storing."""
        flow = self.flow
        for node in flow.nodes:
            if not is_cheap(node) or node.results[0] in self.returned:
                continue
            users = flow.users[node.results[0]]
            if not 2 <= len(users) <= _RECOMPUTE_READERS or any(u.category == "view" for u in users):
                continue
            if any(reads_buffer(u, i) for u in users for i, v in enumerate(u.operands) if v == node.results[0]):
                continue
            cost, leaves = 1, set()
            for v in self._through_views(node):
                producer = flow.producer[v]
                if producer in self._recomputed:
                    cost += self._recomputed[producer]
                    leaves.update(self.sources(producer))
                elif is_leaf(producer):
                    leaves.add(v)
                elif producer is not None and producer not in self._free:
                    cost = _RECOMPUTE_OPS + 1
            if cost <= _RECOMPUTE_OPS and len(leaves) <= 2:
                self._recomputed[node] = cost
                self._free.add(node)

    def _find_widened(self) -> None:
        """Make casts to a wider type free with which, behind a product, the computation of rows begins.

        In the epilogue of the product, logits would be stored in twice the bytes; and the gradient that a norm passes on, times
        its weight and times what it has normalised, would be three results of the product in f32 instead of one in bf16.
        """
        flow = self.flow
        for node in flow.nodes:
            if not is_widening(node, flow.types) or node.results[0] in self.returned:
                continue
            if self._is_behind_root(node.inputs[0]) and self._begins_rows(node):
                self._recomputed[node] = 1
                self._free.add(node)

    def _is_behind_root(self, value: int) -> bool:
        """True if `value` is a product's, or pointwise ops in its type and of its size lead there: an epilogue."""
        type, todo, seen = self.flow.types[value], [value], 0
        while todo and seen <= _MOST_BEFORE_ROWS:
            producer = self.flow.producer[self.flow.base(todo.pop())]
            if producer is None or producer.category not in (*ROOTS, "pointwise"):
                continue
            if producer.category in ROOTS:
                return True
            seen += 1
            todo += [v for v in producer.inputs if self.flow.types[v].numel == type.numel]
        return False

    def _begins_rows(self, node: Node) -> bool:
        """True if pointwise ops in its type lead from `node` to a reduction."""
        todo, seen = [node], {node}
        while todo and len(seen) <= _MOST_BEFORE_ROWS:
            for reader in self._readers(todo.pop()):
                if reader.category in _REDUCING:
                    return True
                if reader.category == "pointwise" and reader.name != "cast" and reader not in seen:
                    seen.add(reader)
                    todo.append(reader)
        return False

    def _readers(self, node: Node) -> list[Node]:
        """Who reads results of `node`, through views."""
        found: list[Node] = []
        for user in (u for r in node.results for u in self.flow.users[r]):
            found += self._readers(user) if user.category == "view" else [user]
        return found

    def _find_normalised(self) -> None:
        """Make short chains on inputs free that are read both along rows and for a sum over other dims.

        `(x - mean) * rstd` of a norm's backward pass: one kernel sums along rows, another the gradient of the weight over
        them, and both read `x` faster than the chain's result in f32. So is the gradient in f32, whose own sum is the bias's.
        """
        for node in self.flow.nodes:
            if not is_cheap(node) or node in self._free or node.results[0] in self.returned:
                continue
            readers = self._readers(node)
            if not 2 <= len(readers) <= _CHAIN_READERS or any(r.category not in _SUMMED for r in readers):
                continue
            ways = [
                [r.category] if r.category == "reduction" else [u.category for u in self._readers(r)] for r in readers
            ]
            if not any(w == ["reduction"] for w in ways) or all(w == ["reduction"] for w in ways):
                continue
            chain, leaves = self._chain(node)
            large = [v for v in leaves if not grows(self.flow.types[v], self.flow.types[node.results[0]])]
            if len(chain) <= _CHAIN_OPS and len(large) <= _CHAIN_LEAVES:
                self._free |= chain

    def _chain(self, node: Node) -> tuple[set[Node], set[int]]:
        """The cheap ops from what is in memory to `node`, at least as many as are too many if there are others, and the former."""
        ops, leaves, todo = {node}, set[int](), [node]
        while todo:
            for v in self._through_views(todo.pop()):
                producer = self.flow.producer[v]
                if is_leaf(producer) or v in self.returned:
                    leaves.add(v)
                elif producer is not None and is_cheap(producer) and len(ops) <= _CHAIN_OPS:
                    ops.add(producer)
                    todo.append(producer)
                elif producer is None or producer.category != "creation":
                    return set(self.flow.nodes), leaves
        return ops, leaves

    def _through_views(self, node: Node):
        for v in node.inputs:
            producer = self.flow.producer[v]
            if producer is not None and producer.category == "view":
                yield from self._through_views(producer)
            else:
                yield v

    def _find_strict(self) -> None:
        for node in self.flow.nodes:
            if node in self._free or is_leaf(node):
                continue
            for i, v in enumerate(node.operands):
                if v is not None and reads_buffer(node, i):
                    self._require_memory(v)
        for node in self.flow.nodes:
            if self.is_grouped(node):
                for v in self.sources(node):
                    self.strict[v].append(node)

    def _require_memory(self, value: int) -> None:
        producer = self.flow.producer[self.flow.base(value)]
        if producer is not None and producer in self._free and producer not in self._stacks:
            self._stored.add(producer)
