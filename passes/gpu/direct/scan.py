"""What stages of `cumsum` and `cumprod` share, along rows (`scan_rows`) or columns (`scan_columns`).

Sums are those of the CPU's form (f64 for f32, f32 for halves), in an order that is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from ....dialects import dims
from ..gpu_kernel import GpuKernel, GpuStage

OPS = {"cumsum": ("add", 0), "cumprod": ("mul", 1)}  # and the value that changes nothing


class Scan:
    """The scan `root` in `kernel`, along a dim with `rows` positions before it, `length` of its own, and `columns` after it."""

    stage: GpuStage

    def __init__(self, kernel: GpuKernel, root: ir.Operation):
        self.kernel, self.graph = kernel, kernel.graph
        self.x = root.operands[0]
        self.shape = self.graph.shape(self.x)
        dim = ir.IntegerAttr(root.attributes["dim"]).value % len(self.shape)
        before, after = self.shape[:dim], self.shape[dim + 1 :]
        self.rows, self.length, self.columns = dims.product(before), self.shape[dim], dims.product(after)
        self.element = ir.RankedTensorType(self.x.type).element_type
        wider = {"f32": ir.F64Type.get(), "f16": ir.F32Type.get(), "bf16": ir.F32Type.get()}
        self.acc: ir.Type = wider.get(str(self.element), self.element)
        name, self._neutral = OPS[root.name.removeprefix("lamina.")]
        self._op = f"arith.{name}{'i' if isinstance(self.acc, ir.IntegerType) else 'f'}"

    def open(self, threads: int, blocks: dims.Dim) -> None:
        """Begin the stage."""
        self.stage = self.kernel.stage(threads, (blocks, 1, 1))
        self.b = self.stage.b
        self.neutral = self.b.constant(self._neutral, self.acc)

    def compare(self, predicate: int, x: ir.Value, y: ir.Value) -> ir.Value:
        """`x == y` (0), `x != y` (1) or `x < y` (2)."""
        return self.b.value("arith.cmpi", (x, y), self.b.i1, predicate=self.b.number(predicate, self.b.i64))

    def both(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Two parts of a sum (or product), `x` before `y`."""
        return self.b.value(self._op, (x, y), self.acc)

    def running(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums up to each of a thread's values."""
        sums = [values[0]]
        for value in values[1:]:
            sums.append(self.both(sums[-1], value))
        return sums

    def widened(self, value: ir.Value) -> ir.Value:
        """An element as it is summed."""
        return value if value.type == self.acc else self.b.value("arith.extf", (value,), self.acc)

    def rounded(self, value: ir.Value) -> ir.Value:
        """A sum as it is stored."""
        return value if value.type == self.element else self.b.value("arith.truncf", (value,), self.element)

    def from_parts(self, parts: Sequence[ir.Value], mine: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What the parts before number `mine` have, and what all have."""
        b, earlier, everything = self.b, self.neutral, self.neutral
        for number, value in enumerate(parts):
            is_earlier = self.compare(2, b.constant(number, b.index), mine)
            earlier = b.value("arith.select", (is_earlier, self.both(earlier, value), earlier), self.acc)
            everything = self.both(everything, value)
        return earlier, everything
