"""Elements of rows as entries, numbers of their order and position (`passes/direct/keys.py`), in stages that sort or select."""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.mlir_ops import attributes_of
from ....dialects.record import TensorType
from ...direct.kernel import Scalars, root_result
from ...direct.keys import entry, entry_position
from ...linalg.ir_cache import IrCache
from ...linalg.scalar_core import Scalar
from ...loops.kernel_functions import strings
from ...loops.tensor_graph import TensorGraph
from ..thread_values import ThreadValues

NONE = -1  # an entry after all others


def operand_type(graph: TensorGraph, root: ir.Operation) -> TensorType:
    """The type of the operand of `root`."""
    return TensorType(strings(root.attributes["lamina.operand_dtypes"])[0], graph.shape(root.operands[0]))


class RowEntries:
    """The entries of row number `row`, a symbol, of the operand of `root`, as the thread of `ev` sees them."""

    def __init__(self, ev: ThreadValues, graph: TensorGraph, root: ir.Operation, row: dims.Expr):
        self.ev, self.b, self.graph, self.root = ev, ev.b, graph, root
        self.x, self.descending = root.operands[0], bool(attributes_of(root)["largest"])
        self.type = operand_type(graph, root)
        *front, self.length = self.type.shape
        self.front = tuple(ev.ranges.delinearize(row, front))
        self.cache = IrCache(ev.b.context)

    def entry(self, place: dims.Expr) -> ir.Value:
        """The entry of the element at `place`, a symbol."""
        return entry(self._scalars(), self._read(place), Scalar(self.b.dim(place), "index"), self.descending)[0].value

    def store(self, made: ir.Value, to: dims.Dim) -> list[ir.Value]:
        """Write the element of an entry, and where it is, as element `to` of the results."""
        b = self.b
        place = b.bind_unique("found", entry_position(self._scalars(), [Scalar(made, "u64")]).value)
        for result, buffer in zip(self.graph.results, self.ev.stage.outputs):
            if root_result(self.graph, self.root, result) == 0:
                value = self._read(place).value
            else:
                value = b.value("arith.index_cast", (b.dim(place),), ir.IntegerType.get_signless(64))
            self.ev.store(buffer, to, value)
        return []

    def _read(self, place: dims.Expr) -> Scalar:
        self.ev.ranges.add(str(place), self.length)
        return Scalar(self.ev.at(self.x, (*self.front, place)), self.type.dtype)

    def _scalars(self) -> Scalars:
        """Arithmetic at the end of the innermost scope."""
        return Scalars(self.b, self.cache)
