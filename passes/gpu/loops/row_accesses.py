"""What a thread reads of a row."""

from __future__ import annotations

from collections.abc import Iterable

from mlir import ir

from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ...loops.tensor_graph import TensorGraph
from ..probe import Probe
from .row_plan import RowPlan


class RowAccesses(Probe):
    """Accesses of the results of `plan`, whose reductions run over position `columns`."""

    def __init__(
        self, plan: RowPlan, graph: TensorGraph, ranges: Ranges, columns: Dim, stored: Iterable[ir.Value] = ()
    ):
        super().__init__(graph, ranges, set(stored), columns)
        self.plan, self.only = plan, set(plan.keys)

    def read_full(self, r: Dim, column: Dim) -> None:
        """Note what the elements at `column` of row `r` need."""
        flat = self.plan.flat(self.ranges, r, column)
        for i in self.plan.full:
            self._read(i, flat)

    def read_own(self, r: Dim) -> None:
        """Note what the results of one element of row `r` need."""
        for i in self.plan.rows:
            self._read(i, r)

    def _read(self, number: int, flat: Dim) -> None:
        value = self.graph.results[number]
        self.at(value, self.ranges.delinearize(flat, self.graph.shape(value)))
