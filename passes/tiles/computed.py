"""An operand that the kernel computes, for packing: its elements are evaluated on their way into the panels.

    matrix = computed_matrix(frame, tensor, [batch, head], by_k=False)      # element (k, n) is tensor[batch, head, k, n]
    pack_panels(code, tile, matrix, ...)                                    # as for a `Matrix` in memory

`x @ relu(w)` so reads `w` once and writes panels; `relu(w)` is never in memory. Views without strides (repeated heads:
an expand and a reshape) are computed as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from ...dialects.dims import Dim
from . import numeric
from .code import Code, Index
from .frame import Frame
from .values import Lane, Values


@dataclass(frozen=True)
class Computed:
    """Element (k, n) is `tensor[*lead, k, n]`, or `tensor[*lead, n, k]` where it is stored `by_k`.

    `along` is the index along which neighbours are asked for together: "k", "n", or "" where neither follows memory.
    """

    frame: Frame
    tensor: ir.Value
    dtype: str
    lead: tuple[Index, ...]
    by_k: bool
    along: str

    @property
    def rows_in_place(self) -> bool:
        """True if `row` is cheap: neighbours along N are neighbours in memory."""
        return self.along == "n"

    @property
    def columns_in_place(self) -> bool:
        """True if `column` is cheap."""
        return self.along == "k"

    def row(self, code: Code, k: Index, n: Index, width: int) -> ir.Value:
        """Elements (k, n), (k, n + 1) ... as a vector."""
        return self._value(code, k, n, "n", width)

    def column(self, code: Code, k: Index, n: Index, width: int) -> ir.Value:
        """Elements (k, n), (k + 1, n) ... as a vector."""
        return self._value(code, k, n, "k", width)

    def element(self, code: Code, k: Index, n: Index) -> ir.Value:
        """Element (k, n)."""
        return self._value(code, k, n, "n", 1)

    def _value(self, code: Code, k: Index, n: Index, along: str, width: int) -> ir.Value:
        at, other = (k, n) if along == "k" else (n, k)
        lane = Lane(code, "@w", at, (1,), width)
        rest = code.register("@v", other)
        # the tensor's last dimension is K if it is stored by K, else N
        last = (along == "k") == self.by_k
        inner = (rest, *lane.index) if last else (*lane.index, rest)
        lead = [code.register(f"@b{d}", i) for d, i in enumerate(self.lead)]
        return numeric.spread(code, Values(self.frame, {}, lane).at(self.tensor, (*lead, *inner)), width)


def computed_matrix(frame: Frame, tensor: ir.Value, lead: Sequence[Index], by_k: bool) -> Computed:
    """The matrix in the last two dimensions of a tensor of the kernel, at the index `lead` of the others."""
    dtype = str(ir.RankedTensorType(tensor.type).element_type)
    names = ("n", "k") if by_k else ("k", "n")
    return Computed(frame, tensor, dtype, tuple(lead), by_k, _along(frame, tensor, names))


def _along(frame: Frame, tensor: ir.Value, names: tuple[str, str]) -> str:
    """The last or else the last but one dimension, as named, along which everything is read with stride 1 or 0."""
    rank = len(ir.RankedTensorType(tensor.type).shape)
    aside = ir.Operation.create("builtin.module", regions=1, ip=False)
    try:
        with ir.InsertionPoint(aside.regions[0].blocks.append()):  # what is emitted here is not used
            for dimension in (rank - 1, rank - 2):
                strides = _Strides(frame, rank, dimension)
                strides.at(tensor, strides.index)
                if all(s in (0, 1) for s in strides.found):
                    return names[dimension - rank]
    finally:
        aside.erase()
    return ""


class _Strides(Values):
    """Evaluates an element and notes the strides along one dimension of all that is read: `found`."""

    def __init__(self, frame: Frame, rank: int, dimension: int):
        super().__init__(frame, {}, Lane(frame.code, "@w", 0, (1,), 2))
        self.found: list[Dim | None] = []
        self.index = [frame.code.register(f"@b{d}", 0) for d in range(rank)]
        self.index[dimension] = self.lane.index[0]

    def _load(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        self.found.append(self.lane.flatten(offset)[1])
        return super()._load(buffer, offset)
