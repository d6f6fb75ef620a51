"""Views: index maps of their operand. They move nothing; a kernel reads its inputs through them."""

from __future__ import annotations

from ..dims import product
from ..lazy import np, pt
from ..op import Attr, Dims, Ints, Op, Operand, Result, check, normalize_dim, sample
from ..record import TensorType


class Reshape(Op, name="reshape", category="view"):
    """The elements of `x` in row-major order under another shape."""

    x: Operand
    shape: Attr[Dims]
    y: Result

    samples = (
        sample((2, 3, 4), shape=(6, 4)),
        sample((6, 4), shape=(2, 3, 4)),
        sample((4, 6), shape=(8, 3)),
        sample((), shape=(1, 1)),
        sample((1, 1), shape=()),
        sample((0, 3), shape=(3, 0, 2)),
        sample((1, 5, 1), shape=(5,)),
        sample(("bool", (2, 3)), shape=(3, 2)),
    )

    @staticmethod
    def infer(x, shape):
        check(product(shape) == x.numel, f"cannot reshape {x} to [{', '.join(map(str, shape))}]")
        return TensorType(x.dtype, shape)

    @staticmethod
    def torch(x, shape):
        return pt.reshape(x, shape)

    @staticmethod
    def reference(x, shape):
        return x.reshape(shape)

    @staticmethod
    def lower(b, x, shape):
        return b.reshape(x, shape)


class Permute(Op, name="permute", category="view"):
    """Dimension `i` of the result is dimension `dims[i]` of `x`."""

    x: Operand
    dims: Attr[Ints]
    y: Result

    samples = (sample((2, 3, 4), dims=(2, 0, 1)), sample(("bf16", (2, 3)), dims=(1, 0)), sample((), dims=()))

    @staticmethod
    def infer(x, dims):
        check(sorted(dims) == list(range(x.rank)), f"dims {list(dims)} do not permute a rank-{x.rank} tensor")
        return TensorType(x.dtype, tuple(x.shape[d] for d in dims))

    @staticmethod
    def torch(x, dims):
        return x.permute(dims).contiguous()

    @staticmethod
    def reference(x, dims):
        return np.ascontiguousarray(x.transpose(dims)).reshape([x.shape[d] for d in dims])

    @staticmethod
    def lower(b, x, dims):
        return b.permute(x, dims)


class Expand(Op, name="expand", category="view"):
    """`x` repeated along new leading dimensions and dimensions of size 1."""

    x: Operand
    shape: Attr[Dims]
    y: Result

    samples = (sample((3, 1), shape=(2, 3, 4)), sample((), shape=(2,)), sample((1,), shape=(0,)))

    @staticmethod
    def infer(x, shape):
        skip = len(shape) - x.rank
        fits = skip >= 0 and all(d == 1 or d == shape[skip + i] for i, d in enumerate(x.shape))
        check(fits, f"cannot expand {x} to [{', '.join(map(str, shape))}]")
        return TensorType(x.dtype, shape)

    @staticmethod
    def torch(x, shape):
        return x.expand(shape).contiguous()

    @staticmethod
    def reference(x, shape):
        return np.broadcast_to(x, shape).copy()

    @staticmethod
    def lower(b, x, shape):
        return b.expand(x, shape)


class Slice(Op, name="slice", category="view"):
    """In every dimension, `sizes[i]` elements from `starts[i]` on, every `steps[i]`-th."""

    x: Operand
    starts: Attr[Dims]
    sizes: Attr[Dims]
    steps: Attr[Ints]
    y: Result

    samples = (
        sample((5, 6), starts=(1, 0), sizes=(2, 6), steps=(2, 1)),
        sample((4,), starts=(4,), sizes=(0,), steps=(1,)),
        sample(("i64", (3, 4)), starts=(2, 1), sizes=(1, 2), steps=(1, 1)),
    )

    @staticmethod
    def infer(x, starts, sizes, steps):
        check(len(starts) == len(sizes) == len(steps) == x.rank, f"starts, sizes and steps of a rank-{x.rank} tensor")
        check(all(s >= 1 for s in steps), f"steps are positive, got {list(steps)}")
        for start, size, step, have in zip(starts, sizes, steps, x.shape):
            if all(isinstance(v, int) for v in (start, size, have)):
                inside = 0 <= start and 0 <= size and (size == 0 or start + (size - 1) * step < have)
                check(inside, f"{size} elements from {start} by {step} do not fit in {have}")
        return TensorType(x.dtype, sizes)

    @staticmethod
    def torch(x, starts, sizes, steps):
        return x[tuple(slice(a, a + n * s, s) for a, n, s in zip(starts, sizes, steps))].contiguous()

    @staticmethod
    def reference(x, starts, sizes, steps):
        return x[tuple(slice(a, a + n * s, s) for a, n, s in zip(starts, sizes, steps))].copy()

    @staticmethod
    def lower(b, x, starts, sizes, steps):
        return b.slice(x, starts, sizes, steps)


class AsStrided(Op, name="as_strided", category="view"):
    """Element `i` of the result is element `offset + sum(i * strides)` of the flat, one-dimensional `x`."""

    x: Operand
    shape: Attr[Dims]
    strides: Attr[Dims]
    offset: Attr[Dims] = (0,)
    y: Result

    samples = (
        sample((24,), shape=(3, 4), strides=(6, 1), offset=(2,)),
        sample((10,), shape=(5, 4), strides=(1, 1), offset=(0,)),
        sample((9,), shape=(3,), strides=(4,), offset=(0,)),
        sample((3,), shape=(), strides=(), offset=(2,)),
        sample((9,), shape=(7, 2), strides=(1, 0), offset=(0,)),
    )

    @staticmethod
    def infer(x, shape, strides, offset):
        check(x.rank == 1, f"takes a flat tensor, got {x}")
        check(len(shape) == len(strides), f"{len(shape)} sizes and {len(strides)} strides")
        check(len(offset) == 1, f"offset is one size, got {len(offset)}")
        if all(isinstance(v, int) for v in (*shape, *strides, *offset, x.numel)) and 0 not in shape:
            last = offset[0] + sum((n - 1) * s for n, s in zip(shape, strides))
            check(min(offset[0], *strides, 0) >= 0 and last < x.numel, f"element {last} is outside {x}")
        return TensorType(x.dtype, shape)

    @staticmethod
    def torch(x, shape, strides, offset):
        return x.as_strided(shape, strides, offset[0]).contiguous()

    @staticmethod
    def reference(x, shape, strides, offset):
        at = np.full((), offset[0], np.int64)
        for _i, (n, stride) in enumerate(zip(shape, strides)):
            at = at[..., None] + np.arange(n) * stride
        return x[at] if at.size else np.empty(shape, x.dtype)

    @staticmethod
    def lower(b, x, shape, strides, offset):
        return b.as_strided(x, shape, strides, offset[0])


class Flip(Op, name="flip", category="gather"):
    """`x` with the order of elements reversed along `dims`."""

    x: Operand
    dims: Attr[Ints]
    y: Result

    samples = (sample((2, 3), dims=(1,)), sample((2, 3), dims=(0, 1)), sample((), dims=()))

    @staticmethod
    def infer(x, dims):
        for d in dims:
            check(0 <= d < max(x.rank, 1), f"dim {normalize_dim(d, x.rank)} of {x} is not normalised")
        return x

    @staticmethod
    def torch(x, dims):
        return pt.flip(x, dims)

    @staticmethod
    def reference(x, dims):
        return np.flip(x, dims).copy()

    @staticmethod
    def lower(b, x, dims):
        return b.flip(x, dims)
