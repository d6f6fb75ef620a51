"""Convolution in any number of spatial dims, grouped, dilated, and transposed."""

from __future__ import annotations

from itertools import product
from typing import Any

from ..dims import floordiv
from ..dtypes import is_float
from ..lazy import np, pt, wide
from ..op import Attr, Ints, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType


class Conv(Op, name="conv", category="conv"):
    """`y[n, o, p] = bias[o] + sum_{c, k} x[n, g·C/G + c, p·stride - padding + k·dilation] * w[o, c, k]` on `[N, C, spatial…]`.

    `g = o // (O/G)` is the group of an output channel; positions outside `x` count as zero. `w` is `[O, C/G, kernel…]`.
    Transposed (the gradient of that with respect to `x`), `w` is `[C, O/G, kernel…]` and
    `y[n, o, p] = bias[o] + sum_{c, k} x[n, c, (p + padding - k·dilation) / stride] * w[c, o, k]` where the division is exact.
    """

    x: Operand
    w: Operand
    bias: OptionalOperand
    stride: Attr[Ints]
    padding: Attr[Ints]
    dilation: Attr[Ints]
    groups: Attr[int] = 1
    transposed: Attr[bool] = False
    output_padding: Attr[Ints] = ()
    y: Result

    numerics = "order"
    samples = (
        sample((2, 3, 7, 6), (4, 3, 3, 2), (4,), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
        sample((1, 4, 5, 5), (6, 2, 3, 3), None, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=2),
        sample((1, 3, 6, 6), (3, 1, 3, 3), (3,), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=3),
        sample((2, 3, 9), (4, 3, 4), (4,), stride=(3,), padding=(2,), dilation=(1,)),
        sample((1, 2, 4, 3, 4), (3, 2, 2, 2, 2), None, stride=(1, 1, 1), padding=(0, 1, 0), dilation=(1, 1, 1)),
        sample((2, 4, 5), (4, 3, 3), (6,), stride=(2,), padding=(1,), dilation=(2,), groups=2, transposed=True, output_padding=(1,)),
        sample((1, 2, 4, 3), (2, 3, 3, 2), None, stride=(2, 1), padding=(1, 0), dilation=(1, 1), transposed=True, output_padding=(1, 0)),
        sample(("bf16", (1, 3, 5, 5)), ("bf16", (2, 3, 3, 3)), ("bf16", (2,)), stride=(1, 1), padding=(1, 1), dilation=(1, 1)),
    )  # fmt: skip

    @staticmethod
    def infer(x, w, bias, stride, padding, dilation, groups, transposed, output_padding):
        check(is_float(x.dtype) and x.dtype == w.dtype, f"takes float tensors of one type, got {x.dtype} and {w.dtype}")
        spatial = x.rank - 2
        check(
            spatial >= 1 and w.rank == x.rank, f"takes x [N, C, …] and w of equal rank ≥ 3, got {x.rank} and {w.rank}"
        )
        for name, value in (("stride", stride), ("padding", padding), ("dilation", dilation)):
            check(len(value) == spatial, f"{name} has {len(value)} values for {spatial} spatial dims")
        check(len(output_padding) in (0, spatial), f"output_padding has {len(output_padding)} values")
        check(all(v > 0 for v in (*stride, *dilation)), "stride and dilation must be positive")
        static = all(isinstance(k, int) for k in w.shape[2:])
        check(static or not transposed, "a transposed convolution needs a kernel of static size")
        outputs = w.shape[1] * groups if transposed else w.shape[0]
        inputs = w.shape[0] if transposed else w.shape[1] * groups
        check(x.shape[1] == inputs, f"x has {x.shape[1]} channels, w asks for {inputs}")
        check(groups > 0 and w.shape[0] % groups == 0, f"{w.shape[0]} channels of w do not divide into {groups} groups")
        check(bias is None or bias.shape == (outputs,), f"bias must have shape [{outputs}]")
        sizes = _output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation, transposed, output_padding)
        check(all(not isinstance(s, int) or s > 0 for s in sizes), f"the output would have spatial size {list(sizes)}")
        return TensorType(x.dtype, (x.shape[0], outputs, *sizes))

    @staticmethod
    def torch(x, w, bias, stride, padding, dilation, groups=1, transposed=False, output_padding=()):
        extra = output_padding or (0,) * len(stride)
        return pt.ops.aten.convolution(x, w, bias, stride, padding, dilation, transposed, extra, groups)

    @staticmethod
    def reference(x, w, bias, stride, padding, dilation, groups, transposed, output_padding):
        kernel = w.shape[2:]
        sizes = _output_sizes(x.shape[2:], kernel, stride, padding, dilation, transposed, output_padding)
        n, c, g = x.shape[0], x.shape[1], groups
        outputs = w.shape[1] * g if transposed else w.shape[0]
        # w as [G, O/G, C/G, kernel…] in both forms
        v = wide(w).reshape(g, -1, *w.shape[1:])
        v = np.swapaxes(v, 1, 2) if transposed else v
        xs = wide(x).reshape(n, g, c // g, *x.shape[2:])
        y = np.zeros((n, g, outputs // g, *sizes))
        for offset in product(*map(range, kernel)):
            tap = v[(..., *offset)]
            sources, targets = [], []
            for i, k in enumerate(offset):
                p = np.arange(sizes[i])
                at = p + padding[i] - k * dilation[i] if transposed else p * stride[i] - padding[i] + k * dilation[i]
                exact = (at % stride[i] == 0) if transposed else np.ones_like(at, bool)
                at = at // stride[i] if transposed else at
                valid = exact & (at >= 0) & (at < x.shape[2 + i])
                sources.append(at[valid])
                targets.append(p[valid])
            here = (slice(None),) * 3
            y[(*here, *np.ix_(*targets))] += np.einsum("goc,ngc...->ngo...", tap, xs[(*here, *np.ix_(*sources))])
        y = y.reshape(n, outputs, *sizes)
        y = y if bias is None else y + wide(bias).reshape(-1, *([1] * len(kernel)))
        return y.astype(x.dtype)

    @staticmethod
    def lower(b, x, w, bias, stride, padding, dilation, groups, transposed, output_padding):
        n, channels, *spatial = x.shape
        sizes = _output_sizes(spatial, w.shape[2:], stride, padding, dilation, transposed, output_padding)
        outputs = w.shape[1] * groups if transposed else w.shape[0]
        rank, acc = len(sizes), b.accumulator(x.dtype)
        grid = _upsampled(b, x, w, sizes, stride, padding, dilation) if transposed else _padded(b, x, padding)
        grid = b.reshape(grid, (n, groups, channels // groups, *grid.shape[2:]))
        taps = b.reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
        # loops: n, group, output channel, positions, input channel, taps
        c, positions, offsets = 3 + rank, range(3, 3 + rank), range(4 + rank, 4 + 2 * rank)
        if transposed:
            ends = [dilation[i] * (w.shape[2 + i] - 1) for i in range(rank)]
            where = [(((p, 1), (k, -dilation[i])), ends[i]) for i, (p, k) in enumerate(zip(positions, offsets))]
        else:
            where = [(((p, stride[i]), (k, dilation[i])), 0) for i, (p, k) in enumerate(zip(positions, offsets))]
        shape = (n, groups, outputs // groups, *sizes)
        y = b.generic(
            (*shape, channels // groups, *w.shape[2:]),
            [(grid, (0, 1, c, *where)), (taps, (1, c, 2, *offsets) if transposed else (1, 2, c, *offsets))],
            [acc],
            lambda s, v, u, total: s.add(total, s.mul(s.cast(v, acc), s.cast(u, acc))),
            reduced=tuple(range(c, c + 1 + rank)),
            inits=[b.fill(shape, 0, acc)],
        )
        y = b.reshape(y, (n, outputs, *sizes))
        if bias is not None:
            y = b.add(y, b.reshape(b.cast(bias, acc), (outputs, *([1] * rank))))
        return b.cast(y, x.dtype)


def _padded(b, x, padding):
    """`x` with `padding` zeros on both sides of each spatial dim."""
    if not any(padding):
        return x
    sizes = [s + 2 * p for s, p in zip(x.shape[2:], padding)]

    def body(s, at):
        return _read_inside(s, x, at[:2], [s.sub(a, p) for a, p in zip(at[2:], padding)])

    return b.generate((*x.shape[:2], *sizes), x.dtype, body)


def _upsampled(b, x, w, sizes, stride, padding, dilation):
    """`x` with `stride - 1` zeros between its elements, so aligned that a transposed convolution reads `p + reach - k·dilation`."""
    reach = [d * (k - 1) for d, k in zip(dilation, w.shape[2:])]

    def body(s, at):
        places, exact = [], None
        for a, r, p, t in zip(at[2:], reach, padding, stride):
            shifted = s.add(s.sub(a, r), p)
            divides = s.eq(s.remainder(shifted, t), 0)
            exact = divides if exact is None else s.bitwise_and(exact, divides)
            places.append(s.div(shifted, t, rounding="floor"))
        return s.select(exact, _read_inside(s, x, at[:2], places), 0)

    return b.generate((*x.shape[:2], *(s + r for s, r in zip(sizes, reach))), x.dtype, body)


def _read_inside(s, x, front, places):
    """The element of `x` at `(*front, *places)`, zero outside."""
    inside, safe = None, []
    for place, size in zip(places, x.shape[2:]):
        ok = s.bitwise_and(s.ge(place, 0), s.lt(place, s.size(size)))
        inside = ok if inside is None else s.bitwise_and(inside, ok)
        safe.append(s.select(ok, place, 0))
    return s.select(inside, s.read(x, [*front, *safe]), 0)


def _output_sizes(x, kernel, stride, padding, dilation, transposed, output_padding) -> tuple[Any, ...]:
    """Spatial sizes of the result from those of `x`."""
    extra = output_padding or (0,) * len(x)
    if transposed:
        return tuple(
            (x[i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + extra[i] + 1
            for i in range(len(x))
        )
    return tuple(
        floordiv(x[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1, stride[i]) + 1 for i in range(len(x))
    )
