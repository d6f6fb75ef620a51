"""The part of a convolution's input that a block of output positions reads, padded with zeros, in scratch.

Output positions are row-major over the spatial dims; a block of them spans whole slices of the first (blocked) spatial
dim. The patch holds the input of those slices for the channels of one group: `[channel][first][..., last]`, where the last
dim is split by phase, `[phase][column]` with input column = column * stride + phase - padding, so that the input of
consecutive output columns lies side by side whatever the stride.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..conv_window import Window
from .code import Code, Index

Read = Callable[[Index, list[Index], int], ir.Value]  # channel, position, lanes: one element, or lanes of the last dim


class Taps:
    """The kernel positions of `windows`, and where they are in memory: in a patch, or in the image itself."""

    next_column: Index = 1  # from where an output position starts to where the next one in its row does

    def __init__(self, code: Code, windows: Sequence[Window]):
        self.code, self.windows = code, tuple(windows)

    def tap(self, taps: Sequence[Index]) -> Index:
        """The offset that a kernel position adds."""
        raise NotImplementedError

    def each_tap(self, body: Callable[[Index, Index], None]) -> None:
        """`body(number, offset)` for each kernel position: loops over all dims but the last, which is unrolled."""
        self._walk_taps(0, [], 0, [], lambda number, offset: body(number, offset) or [])

    def fold_taps(self, init: list[ir.Value], body: Callable[..., list[ir.Value]]) -> list[ir.Value]:
        """The values carried through `values = body(number, offset, *values)` for each kernel position."""
        return self._walk_taps(0, [], 0, init, body)

    def _walk_taps(
        self, d: int, taps: list[Index], number: Index, carried: list[ir.Value], body: Callable[..., list[ir.Value]]
    ) -> list[ir.Value]:
        code, kernel = self.code, self.windows[d].kernel
        if d < len(self.windows) - 1:
            inner = lambda i, *now: self._walk_taps(
                d + 1, [*taps, i], code.add(code.mul(number, kernel), i), list(now), body
            )
            return code.loop(0, kernel, 1, carried, inner)
        for x in range(kernel):
            carried = body(code.add(code.mul(number, kernel), x), self.tap([*taps, x]), *carried)
        return carried


class Patch(Taps):
    """Layout of the patch, and code to fill it and to find things in it; `windows` are the spatial dims, first to last.

    A block is `block` positions, or `slices` whole output slices of the first dim. A single spatial dim is its own row.
    """

    def __init__(
        self, code: Code, windows: Sequence[Window], channels: int, block: int, slack: int, slices: int | None = None
    ):
        super().__init__(code, windows)
        self.channels = channels
        first, last = windows[0], windows[-1]
        self.inner = dims.product(w.out for w in windows[1:])  # output positions of one slice
        most = dims.dim_min(first.out, self._most_slices(block) if slices is None else slices)
        self.extents: list[Dim] = [w.padded for w in windows]
        self.extents[0] = (most - 1) * first.stride + first.reach
        self.columns = dims.ceildiv(self.extents[-1], last.stride)  # of one phase
        self.row = self.columns * last.stride
        self.strides: list[Dim] = [dims.product(self.extents[d + 1 : -1]) * self.row for d in range(len(windows) - 1)]
        self.channel = dims.product(self.extents[:-1]) * self.row
        self.size = self.channel * channels + slack

    def _most_slices(self, block: int) -> int:
        """Output slices that `block` consecutive positions can touch."""
        if len(self.windows) == 1:
            return block
        return block if not isinstance(self.inner, int) else (block - 2) // max(1, self.inner) + 2

    # -- filling ----------------------------------------------------------------------------------------------
    def fill(
        self, buffer: ir.Value, start: Index, count: Index, width: int, read: Read,
        channels: Index | None = None, at: Index = 0,
    ) -> None:  # fmt: skip
        """Copy the input of output slices `start .. start + count`, by vectors of `width` where the layout allows.

        The patch is at `buffer[at]`; of its channels the first `channels` are copied, or all.
        """
        code, first = self.code, self.windows[0]
        low = code.sub(code.mul(start, first.stride), first.padding)
        zero = code.constant(0, ir.MemRefType(buffer.type).element_type)
        extents = [code.size(e) for e in self.extents]
        extents[0] = code.add(code.mul(code.sub(count, 1), first.stride), first.reach)

        def walk(d: int, at: Index, position: list[Index], inside: ir.Value | None) -> None:
            window = self.windows[d]
            origin = low if d == 0 else -window.padding
            if d == len(self.windows) - 1:
                element = lambda x, lanes: read(position[0], [*position[1:], x], lanes)
                self._fill_row(buffer, at, origin, extents[d], width, element, inside, zero)
                return

            def step(i: Index) -> None:
                x = code.add(i, origin)
                ok = code.within(x, window.size)
                walk(
                    d + 1, code.add(at, code.mul(i, code.size(self.strides[d]))), [*position, x], code.both(inside, ok)
                )

            code.loop(0, extents[d], 1, [], step)

        def channel(c: Index) -> None:
            walk(0, code.add(at, code.mul(c, code.size(self.channel))), [c], None)

        code.loop(0, self.channels if channels is None else channels, 1, [], channel)

    def _fill_row(
        self, buffer: ir.Value, at: Index, origin: Index, extent: Index, width: int,
        element: Callable[[Index, int], ir.Value], inside: ir.Value | None, zero: ir.Value,
    ) -> None:  # fmt: skip
        """One line of the last dim: zeros, input, zeros; all zeros where the line lies outside."""
        code, window = self.code, self.windows[-1]
        columns = code.size(self.columns)

        def place(i: Index) -> Index:
            return code.add(at, code.mul(code.rem(i, window.stride), columns), code.div(i, window.stride))

        def put(i: Index) -> None:
            code.store(element(code.add(i, origin), 1), buffer, place(i))

        def put_vectors(i: Index) -> None:
            parts = [element(code.add(i, origin, v * width), width) for v in range(window.stride)]
            for phase, part in enumerate(parts if window.stride == 1 else _split(code, *parts)):
                code.vstore(part, buffer, code.add(place(i), code.mul(phase, columns)))

        # input positions origin .. origin + extent; those inside are begin .. end
        begin = code.min(extent, code.max(0, code.sub(0, origin)))
        end = code.max(begin, code.min(extent, code.sub(code.size(window.size), origin)))

        def clear(low: Index, high: Index) -> None:
            code.loop(low, high, 1, [], lambda i: code.store(zero, buffer, place(i)))

        def copy() -> None:
            clear(0, begin)
            rest = begin
            if width > 1 and window.stride <= 2:  # vectors begin at phase 0
                start = code.min(end, code.mul(code.ceildiv(begin, window.stride), window.stride))
                group = width * window.stride
                if window.stride > 1:
                    code.loop(begin, start, 1, [], put)
                rest = self._copy_vectors(start, end, group, put_vectors)
            code.loop(rest, end, 1, [], put)
            clear(end, extent)

        if inside is None:
            copy()
        else:
            code.branch(inside, copy, lambda: clear(0, extent))

    def _copy_vectors(self, start: Index, end: Index, group: int, put: Callable[[Index], None]) -> Index:
        """Copy whole groups of vectors from `start` on; returns where they end. Of known sizes the last may overlap."""
        code = self.code
        if isinstance(start, int) and isinstance(end, int) and end - start >= group:
            code.loop(start, end - group + 1, group, [], put)
            last = end - (end - start) % self.windows[-1].stride  # so that all phases are there
            if (last - start) % group:
                put(last - group)
            return last
        whole = code.add(start, code.mul(code.div(code.sub(end, start), group), group))
        code.loop(start, whole, group, [], put)
        return whole

    # -- finding ----------------------------------------------------------------------------------------------
    def slices(self, first: Index, count: Index) -> tuple[Index, Index]:
        """The first output slice of positions `first .. first + count`, and how many they touch."""
        code, inner = self.code, self.code.size(self.inner)
        start = code.div(first, inner)
        return start, code.add(code.sub(code.div(code.add(first, code.sub(count, 1)), inner), start), 1)

    def offset(self, position: Index, start: Index) -> tuple[Index, Index]:
        """Where output `position` starts in the patch whose first slice is `start`, and its place in its row."""
        code, index = self.code, []
        for window in reversed(self.windows[1:]):
            extent = code.size(window.out)
            index.append(code.rem(position, extent))
            position = code.div(position, extent)
        index = [code.sub(position, start), *reversed(index)]
        at: Index = index[-1]
        for i, window, stride in zip(index[:-1], self.windows, self.strides):
            at = code.add(at, code.mul(i, code.mul(code.size(stride), window.stride)))
        return at, index[-1]

    def tap(self, taps: Sequence[Index]) -> Index:
        code, at = self.code, 0
        for i, window, stride in zip(taps[:-1], self.windows, self.strides):
            at = code.add(at, code.mul(code.mul(i, window.dilation), code.size(stride)))
        x = code.mul(taps[-1], self.windows[-1].dilation)
        stride = self.windows[-1].stride
        return code.add(at, code.mul(code.rem(x, stride), code.size(self.columns)), code.div(x, stride))


def _split(code: Code, a: ir.Value, b: ir.Value) -> list[ir.Value]:
    """The elements at even and at odd places of two vectors side by side."""
    width = ir.VectorType(a.type).shape[0]
    masks = (ir.DenseI64ArrayAttr.get(list(range(odd, 2 * width, 2))) for odd in (0, 1))
    return [code.op("vector.shuffle", [a.type], [a, b], mask=mask) for mask in masks]
