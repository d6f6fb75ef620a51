"""Pooling to a given size: the windows of `[N, C, spatial…]` follow from it, and are of several sizes."""

from __future__ import annotations

from itertools import product

from ..dtypes import is_float
from ..lazy import np, pt, wide
from ..op import Attr, Ints, Op, Operand, Result, check, sample
from ..record import TensorType
from .lowering import fold_window
from .pool_windows import keep_larger, lowest_of, read_place


class AdaptiveAvgPool(Op, name="adaptive_avg_pool", category="gather"):
    """The mean over window `floor(p·I/O) .. ceil((p+1)·I/O)` of each spatial dim, `I` sizes in, `O = output` sizes out."""

    x: Operand
    output: Attr[Ints]
    y: Result

    numerics = "order"
    samples = (
        sample((2, 3, 7, 6), output=(3, 4)),
        sample((1, 2, 5), output=(2,)),
        sample((1, 2, 13, 14), output=(2, 2)),  # not unrolled
        sample((1, 2, 3, 3), output=(5, 1)),
        sample(("bf16", (1, 2, 5, 5)), output=(3, 3)),
    )

    @staticmethod
    def infer(x, output):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        _check_adaptive(x, output)
        return TensorType(x.dtype, (*x.shape[:2], *output))

    @staticmethod
    def torch(x, output):
        return _pool("avg", x)(x, output)

    @staticmethod
    def reference(x, output):
        y = np.zeros((*x.shape[:2], *output))
        for p in product(*map(range, output)):
            y[(..., *p)] = wide(x)[(..., *_adaptive_window(p, x.shape[2:], output))].mean(tuple(range(2, x.ndim)))
        return y.astype(x.dtype)

    @staticmethod
    def lower(b, x, output):
        window, acc = _largest_windows(x.shape[2:], output), b.accumulator(x.dtype)

        def step(s, p, k, total):
            places, inside = _adaptive_places(s, p, k, x.shape[2:], output)
            return (s.add(total, s.cast(read_place(s, x, p, places, inside, 0), acc)),)

        def finish(s, p, total):
            size = s.const(1, "index")
            for a, extent, o in zip(p[2:], x.shape[2:], output):
                size = s.mul(size, s.sub(*_adaptive_ends(s, a, extent, o)[::-1]))
            return (s.cast(s.div(total, s.cast(size, acc)), x.dtype),)

        return fold_window(b, (*x.shape[:2], *output), window, [(0, acc)], step, finish, (x.dtype,))[0]


class AdaptiveMaxPool(Op, name="adaptive_max_pool", category="gather"):
    """The maximum over the windows of `adaptive_avg_pool` and its flat position in the spatial plane; NaN wins."""

    x: Operand
    output: Attr[Ints]
    y: Result
    indices: Result

    samples = (
        sample((2, 3, 7, 6), output=(3, 4)),
        sample((1, 2, 5), output=(2,)),
        sample((1, 2, 3, 3), output=(5, 1)),
    )

    @staticmethod
    def infer(x, output):
        check(is_float(x.dtype), f"takes a float tensor, got {x.dtype}")
        _check_adaptive(x, output)
        shape = (*x.shape[:2], *output)
        return TensorType(x.dtype, shape), TensorType("i64", shape)

    @staticmethod
    def torch(x, output):
        return _pool("max", x)(x, output, return_indices=True)

    @staticmethod
    def reference(x, output):
        y = np.zeros((*x.shape[:2], *output), x.dtype)
        indices = np.zeros(y.shape, np.int64)
        positions = np.arange(np.prod(x.shape[2:])).reshape(x.shape[2:])
        for p in product(*map(range, output)):
            window = _adaptive_window(p, x.shape[2:], output)
            values = x[(..., *window)].reshape(*x.shape[:2], -1)
            best = values.argmax(-1)[..., None]
            y[(..., *p)] = np.take_along_axis(values, best, -1)[..., 0]
            indices[(..., *p)] = positions[window].reshape(-1)[best[..., 0]]
        return y, indices

    @staticmethod
    def lower(b, x, output):
        def step(s, p, k, best, at):
            places, inside = _adaptive_places(s, p, k, x.shape[2:], output)
            return keep_larger(s, x, p, places, inside, best, at)

        window, inits = _largest_windows(x.shape[2:], output), [(lowest_of(x.dtype), x.dtype), (-1, "i64")]
        shape = (*x.shape[:2], *output)
        return fold_window(b, shape, window, inits, step, lambda s, p, v, at: (v, at), (x.dtype, "i64"))


def _pool(kind, x):
    """Torch's function for the spatial dims of `x`."""
    return getattr(pt.nn.functional, f"adaptive_{kind}_pool{x.ndim - 2}d")


def _check_adaptive(x, output):
    check(x.rank == len(output) + 2, f"takes [N, C, spatial…] with {len(output)} spatial dims, got rank {x.rank}")
    check(all(isinstance(s, int) for s in x.shape[2:]), "needs static spatial sizes")
    check(all(s > 0 for s in x.shape[2:]), "needs spatial sizes that are not 0")


def _adaptive_window(p, spatial, output):
    return tuple(slice(a * i // o, -(-(a + 1) * i // o)) for a, i, o in zip(p, spatial, output))


def _adaptive_ends(s, a, extent, output):
    """First and last-but-one index of window `a` of `output` over `extent` elements."""
    start = s.div(s.mul(a, extent), output, rounding="floor")
    return start, s.div(s.add(s.mul(s.add(a, 1), extent), output - 1), output, rounding="floor")


def _adaptive_places(s, p, k, spatial, output):
    """The position of element `k` of window `p`, and whether the window is that large."""
    places, inside = [], None
    for a, i, extent, o in zip(p[2:], k, spatial, output):
        start, end = _adaptive_ends(s, a, extent, o)
        places.append(s.add(start, i))
        ok = s.lt(places[-1], end)
        inside = ok if inside is None else s.bitwise_and(inside, ok)
    return places, inside


def _largest_windows(spatial, output):
    """The size of the largest window of each dim."""
    sizes = []
    for i, o in zip(spatial, output):
        sizes.append(max((-(-(a + 1) * i // o) - a * i // o for a in range(o)), default=1))
    return sizes
