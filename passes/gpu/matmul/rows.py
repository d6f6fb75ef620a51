"""Products of few rows, whose time is that of reading B: a warp computes a few columns, its lanes share K.

    lane l: for vectors l, l + 32, … of K: one vector of each of `columns` rows of B, one of each row of A
    then the lanes' sums are added by a butterfly, in the same order in every run

Needs B's elements side by side along K; `suits` says so.
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.index_algebra import Ranges
from ..block_reduce import shuffle_xor
from ..gpu_kernel import WARP, GpuKernel
from ..hopper.ptx import Ptx
from ..lane_places import divisible
from ..thread_values import ThreadValues
from .outputs import Outputs
from .problem import Product

WARPS = 4  # of a block
MOST_ROWS = 16
LOADS = 8  # of B that a lane starts at once


def suits(p: Product) -> bool:
    """True for few rows, floats, and vectors of B along K."""
    strides = p.b.strides()
    floats = p.dtype in ("f16", "bf16", "f32", "f64")
    return isinstance(p.m, int) and p.m <= MOST_ROWS and floats and strides is not None and strides.k == 1


class RowsProduct:
    """One product as a stage of `kernel`."""

    def __init__(self, kernel: GpuKernel, product: Product):
        self.kernel, self.product = kernel, product
        assert isinstance(product.m, int)
        self.m = product.m
        self.columns = 2 if self.m <= 4 else 4
        self.columns = self.columns if divisible(product.n, self.columns) else 1
        size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[product.dtype]
        widths = (16 // size, 8 // size, 4 // size, 2, 1) if product.a.vectors else (1,)
        self.width = next(v for v in widths if v and divisible(product.k, v))
        vectors = dims.floordiv(product.k, self.width)
        most = max(1, LOADS // self.columns)
        self.unroll = next(u for u in (4, 2, 1) if u <= most and divisible(vectors, u * WARP) or u == 1)
        self.vectors = vectors
        self.groups = dims.floordiv(product.n, self.columns)
        blocks = dims.ceildiv(self.groups, WARPS) * product.batches
        self.stage = kernel.stage(WARPS * WARP, (blocks, 1, 1))
        self.b, self.ptx = self.stage.b, Ptx(self.stage)
        self.stored = ir.RankedTensorType(product.root.results[0].type).element_type
        self.halves = str(self.stored) in ("f16", "bf16")
        self.computed = self.b.f32 if self.halves else self.stored

    def emit(self) -> None:
        """Write the stage."""
        b, p, stage = self.b, self.product, self.stage
        b.bind("thread", stage.thread())
        b.bind("block", stage.block())
        per_batch = dims.ceildiv(self.groups, WARPS)
        block, thread = dims.symbol("block"), dims.symbol("thread")
        b.bind("batch", b.dim(0 if p.batches == 1 else dims.floordiv(block, per_batch)))
        inside = block if p.batches == 1 else dims.mod(block, per_batch)
        own = WARPS * inside + dims.floordiv(thread, WARP)
        b.bind("group", b.dim(dims.dim_min(own, self.groups - 1)))  # warps too many repeat the last, and write nothing
        b.bind("in_warp", b.dim(dims.mod(thread, WARP)))
        self.writes = self.b.all_of(
            [self.b.compare("eq", dims.symbol("in_warp"), 0), self.b.compare("slt", own, self.groups)]
        )
        self._write([self._together(s) for s in self._sums()])
        stage.finish()

    def _sums(self) -> list[ir.Value]:
        """This lane's sums, for each row and each column."""
        b, step = self.b, WARP * self.unroll
        zero = b.constant(0.0, self.computed)

        def block(w: Dim, sums: list[ir.Value]) -> list[ir.Value]:
            for u in range(self.unroll):
                sums = self._multiply(w + WARP * u, sums)
            return sums

        low = b.dim(dims.symbol("in_warp"))
        return b.loop_carried("k", low, self.vectors, [zero] * (self.m * self.columns), block, step=step)

    def _multiply(self, vector: Dim, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the products of vector `vector` of K."""
        b, p = self.b, self.product
        w = b.bind_unique("w", b.dim(vector))
        ranges = Ranges({"batch": p.batches, "group": self.groups, str(w): self.vectors})
        ev = ThreadValues(self.stage, ranges, self.width)

        def read(side_is_b: bool, row: Dim) -> ir.Value:
            value = ev.vector((p.b if side_is_b else p.a).at(ev, dims.symbol("batch"), row, ev.flat(w)))
            return b.value("arith.extf", (value,), self._like(self.computed)) if self.halves else value

        columns = [read(True, self.columns * dims.symbol("group") + j) for j in range(self.columns)]
        made = list(sums)
        for i in range(self.m):
            row = read(False, i)
            for j, column in enumerate(columns):
                for x, y in zip(self._parts(row), self._parts(column)):
                    at = i * self.columns + j
                    made[at] = b.value("math.fma", (x, y, made[at]), self.computed)
        return made

    def _like(self, element: ir.Type) -> ir.Type:
        return ir.VectorType.get([self.width], element) if self.width > 1 else element

    def _parts(self, value: ir.Value) -> list[ir.Value]:
        return self.b.elements(value) if self.width > 1 else [value]

    def _together(self, value: ir.Value) -> ir.Value:
        """The sum over the lanes of the warp, in all of them."""
        b, distance = self.b, WARP // 2
        while distance:
            value = b.value("arith.addf", (value, shuffle_xor(b, value, distance)), value.type)
            distance //= 2
        return value

    def _write(self, sums: list[ir.Value]) -> None:
        """The first lane writes the results."""
        b, p, width = self.b, self.product, self.columns
        like = lambda t: ir.VectorType.get([width], t) if width > 1 else t

        def write() -> list[ir.Value]:
            for i in range(self.m):
                ranges = Ranges({"batch": p.batches, "group": self.groups})
                ev = ThreadValues(self.stage, ranges, width)
                value = sums[i * width]
                if width > 1:
                    value = b.value("vector.from_elements", sums[i * width : (i + 1) * width], like(self.computed))
                if p.bias is not None:
                    bias = ev.vector(p.bias_at(ev, dims.symbol("batch"), i, ev.flat(dims.symbol("group"))))
                    bias = b.value("arith.extf", (bias,), value.type) if self.halves else bias
                    value = b.value("arith.addf", (value, bias), value.type)
                if self.halves:
                    value = b.value("arith.truncf", (value,), like(self.stored))
                Outputs(self.stage, p).write(ev, dims.symbol("batch"), i, dims.symbol("group"), value)
            return []

        b.branch(self.writes, [], write)
