"""Writes of a strided block: into a copy of a tensor (in place, where the reinplace pass ties them), or as a choice of each element."""

from __future__ import annotations

from ..op import Attr, Dims, Ints, Op, Operand, Result, check, sample


class SliceScatter(Op, name="slice_scatter", category="direct"):
    """`y = x; y[starts[d] + steps[d] · i[d], …] = src[i]`: writes a whole strided block, one start and step per dim."""

    x: Operand
    src: Operand
    starts: Attr[Dims]
    steps: Attr[Ints]
    y: Result

    samples = (
        sample((5, 6), (2, 6), starts=(1, 0), steps=(1, 1)),
        sample((5, 6), (5, 2), starts=(0, 1), steps=(1, 3)),
        sample((4,), (0,), starts=(4,), steps=(1,)),
        sample((), (), starts=(), steps=()),
        sample(("bool", (5, 6)), ("bool", (2, 6)), starts=(3, 0), steps=(1, 1)),
    )

    @staticmethod
    def infer(x, src, starts, steps):
        check(x.dtype == src.dtype, f"x and src have types {x.dtype} and {src.dtype}; cast one")
        check(x.rank == src.rank == len(starts) == len(steps), f"needs a start and a step for each of {x.rank} dims")
        check(all(s > 0 for s in steps), "steps must be positive")
        for d, (size, start, step) in enumerate(zip(src.shape, starts, steps)):
            last = start + (size - 1) * step
            if isinstance(last, int) and isinstance(x.shape[d], int) and size != 0:
                check(
                    0 <= start and last < x.shape[d], f"writes {start}..{last} of dim {d}, which has size {x.shape[d]}"
                )
        return x

    @staticmethod
    def torch(x, src, starts, steps):
        y = x.clone()
        y[tuple(slice(s, s + n * t, t) for s, n, t in zip(starts, src.shape, steps))] = src
        return y

    @staticmethod
    def reference(x, src, starts, steps):
        y = x.copy()
        y[tuple(slice(s, s + n * t, t) for s, n, t in zip(starts, src.shape, steps))] = src
        return y

    @staticmethod
    def lower(b, x, src, starts, steps):
        empty = any(d == 0 for d in src.shape)  # MLIR refuses a block that starts at the end
        return b.map(lambda s, v: v, x) if empty else b.insert(src, x, starts, steps)


class Insert(SliceScatter, name="insert", category="concat"):
    """`slice_scatter` as a choice of each element from one tensor or the other: computed with them, never in place."""
