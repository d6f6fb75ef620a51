"""Convolutions of each channel by itself, with channels last: a thread has a few neighbouring channels of `P` outputs in a row.

    for the taps of all spatial dims but the last                                   a loop
      for the columns of the image that the P windows see in this row               unrolled
        read one vector of channels, zeros outside, and multiply it into each output that has a tap there

So an element of the image is read and widened once for P outputs, and so are weights. Neighbouring threads have
neighbouring channels, then neighbouring runs of P outputs. 16-bit floats are multiplied and added in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...conv_window import Window
from ...loops.index_algebra import Ranges
from ..gpu_kernel import GpuKernel, element_bytes
from ..lane_places import divisible
from ..thread_values import ThreadValues
from .conv_product import PatchRows
from .outputs import Outputs
from .problem import Product

THREADS = 128
BLOCKS = 3  # that share a multiprocessor: 168 registers a thread
MOST_RUN = 7  # outputs of a thread: with more, the sums of eight channels leave no registers for weights
LINE = 16  # bytes that a thread reads at once


class DepthwiseConv:
    """One convolution as a stage of `kernel`; `product` has its windows, columns are channels, K is the taps."""

    def __init__(self, kernel: GpuKernel, product: Product):
        assert isinstance(product.a, PatchRows)
        self.kernel, self.product, self.windows = kernel, product, product.a.windows
        self.stored = ir.RankedTensorType(product.root.results[0].type).element_type
        self.width = LINE // element_bytes(self.stored)
        while not divisible(product.n, self.width):
            self.width //= 2
        last = self.windows[-1]
        self.vectors = dims.floordiv(product.n, self.width)
        self.outer = (product.rows[0], *(w.out for w in self.windows[:-1]))
        self.run = best_run(last)
        self.runs = dims.ceildiv(last.out, self.run)
        self.count = dims.product(self.outer) * self.runs * self.vectors
        self.stage = kernel.stage(THREADS, (dims.ceildiv(self.count, THREADS), 1, 1))
        self.stage.blocks_per_sm = BLOCKS
        self.b = self.stage.b
        halves = str(self.stored) in ("f16", "bf16")
        self.computed = self.b.f32 if halves else self.stored

    def emit(self) -> None:
        """Write the stage."""
        b = self.b
        thread = b.bind("thread", self.stage.global_thread())

        def write() -> list[ir.Value]:
            ranges = Ranges({"thread": self.count})
            *outer, run, vector = ranges.delinearize(thread, [*self.outer, self.runs, self.vectors])
            names = [*(f"outer{i}" for i in range(len(outer))), "run", "w"]
            places = [b.bind(name, b.dim(place)) for name, place in zip(names, (*outer, run, vector))]
            bounds = dict(zip(names, (*self.outer, self.runs, self.vectors)))
            ev = ThreadValues(self.stage, Ranges({**bounds, "batch": 1}), self.width)
            self._write(ev, places[:-2], places[-2], places[-1], self._sums(ev, places[:-2], places[-2], places[-1]))
            return []

        if isinstance(self.count, int) and self.count % THREADS == 0:
            write()
        else:
            b.branch(self.b.compare("slt", thread, self.count), [], write)
        self.stage.finish()

    def _sums(self, ev: ThreadValues, outer: Sequence[Dim], run: Dim, vector: Dim) -> list[ir.Value]:
        """The sums of a thread's outputs, with bias, each a vector of channels."""
        b, p, channel, rows = self.b, self.product, ev.flat(vector), outer[1:]
        start = self._wide(ev, p.bias_at(ev, 0, 0, channel)) if p.bias is not None else b.constant(0, self._type)
        kernel = [w.kernel for w in self.windows[:-1]]

        def row(number: Dim, sums: list[ir.Value]) -> list[ir.Value]:
            taps = ev.ranges.delinearize(number, kernel)
            places = [o * w.stride + t * w.dilation - w.padding for o, t, w in zip(rows, taps, self.windows)]
            return self._row(ev, [outer[0], *places], taps, run, channel, sums)

        ev.ranges.add("tap", prod(kernel))
        return b.loop_carried("tap", 0, prod(kernel), [start] * self.run, row)

    def _row(
        self, ev: ThreadValues, places: Sequence[Dim], taps: Sequence[Dim], run: Dim, channel: Dim, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """Add the products with a row of taps, at `places` of the image but for the last dim."""
        last, made = self.windows[-1], list(sums)
        weights: dict[int, ir.Value] = {}  # read when they are first needed, which is for `run` columns
        for column in range((self.run - 1) * last.stride + (last.kernel - 1) * last.dilation + 1):
            users = [(o, t) for o in range(self.run) for t in range(last.kernel) if _meets(last, column, o, t)]
            if not users:
                continue
            place = run * (self.run * last.stride) + (column - last.padding)
            value = self._element(ev, places[0], [*places[1:], place], channel)
            for o, t in users:
                if t not in weights:
                    weights[t] = self._wide(ev, ev.at(self.product.b.value, [*taps, t, channel]))
                made[o] = self.b.value("math.fma", (value, weights[t], made[o]), self._type)
        return made

    def _element(self, ev: ThreadValues, image: Dim, places: Sequence[Dim], channel: Dim) -> ir.Value:
        """A vector of the image's channels, widened; zeros outside."""
        near: list[Dim] = []
        outside: list[Dim] = []
        for place, w in zip(places, self.windows):
            place = ev.ranges.simplify(place)
            beyond = [c for c in (place, w.size - 1 - place) if not ev.ranges.nonnegative(c)]
            near.append(dims.dim_max(dims.dim_min(place, w.size - 1), 0) if beyond else place)
            outside += beyond
        value = ev.vector(ev.at(self.product.a.value, [image, *near, channel]))
        if outside:
            value = self._or_zero(ev.all_nonnegative(outside), value)
        return self._wide(ev, value)

    def _write(self, ev: ThreadValues, outer: Sequence[Dim], run: Dim, vector: Dim, sums: Sequence[ir.Value]) -> None:
        """Store what the epilogue makes of the sums."""
        p, last, ragged = self.product, self.windows[-1], not divisible(self.windows[-1].out, self.run)
        first = ev.ranges.linearize([*outer, 0], [*self.outer, last.out])
        outputs = Outputs(self.stage, p)
        for o, total in enumerate(sums):
            column = run * self.run + o

            def write(total: ir.Value = total, column: Dim = column) -> list[ir.Value]:
                row = self.b.bind_unique("row", self.b.dim(first + column))
                ev.ranges.add(str(row), p.m)
                outputs.write(ev, 0, row, vector, self._narrow(total))
                return []

            if ragged and o:
                self.b.branch(self.b.compare("slt", column, last.out), [], write)
            else:
                write()

    # -- values ----------------------------------------------------------------------------------------------------
    @property
    def _type(self) -> ir.Type:
        """Of a thread's channels as they are computed."""
        return self._like(self.computed)

    def _like(self, element: ir.Type) -> ir.Type:
        return ir.VectorType.get([self.width], element) if self.width > 1 else element

    def _wide(self, ev: ThreadValues, value: ir.Value) -> ir.Value:
        value = ev.vector(value)
        return self.b.value("arith.extf", (value,), self._type) if self.computed != self.stored else value

    def _or_zero(self, condition: ir.Value, value: ir.Value) -> ir.Value:
        """`value` where the condition holds, else zeros; 16-bit elements are chosen two at a time."""
        b, type = self.b, value.type
        paired = self.width > 1 and element_bytes(self.stored) == 2
        if paired:
            value = b.value("vector.bitcast", (value,), ir.VectorType.get([self.width // 2], b.i32))
        value = b.select(condition, value, b.constant(0, value.type))
        return b.value("vector.bitcast", (value,), type) if paired else value

    def _narrow(self, value: ir.Value) -> ir.Value:
        if self.computed == self.stored:
            return value
        return self.b.value("arith.truncf", (value,), self._like(self.stored))


def best_run(last: Window) -> int:
    """How many outputs in a row a thread computes: what takes the fewest instructions for a row, few threads or many (H200)."""
    if not isinstance(last.out, int):
        return MOST_RUN // 2
    out = last.out

    def cost(run: int) -> int:
        columns = (run - 1) * last.stride + (last.kernel - 1) * last.dilation + 1
        return -(-out // run) * (2 * columns + last.kernel * (1 + run))  # two instructions a load, and products

    return min(range(1, min(MOST_RUN, last.out) + 1), key=lambda run: (cost(run), run))


def _meets(last: Window, column: int, output: int, tap: int) -> bool:
    """True if an output's tap reads this column, both counted from the first column that the run sees."""
    return output * last.stride + tap * last.dilation == column
