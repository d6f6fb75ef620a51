"""Matrix products. Sums are in f32 for f16, bf16 and f8…, and are rounded once; integers wrap."""

from __future__ import annotations

from string import ascii_lowercase

from ..dtypes import FLOAT8, is_float
from ..lazy import np, pt, wide
from ..op import Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType


class Matmul(Op, name="matmul", category="matmul"):
    """`y[…, m, n] = sum_k a[…, m, k] * b[…, k, n]`; the leading dims are equal (the frontend expands them).

    Floats of 8 bits, of two formats or one, have a result of f32.
    """

    a: Operand
    b: Operand
    y: Result

    numerics = "order"
    samples = (
        sample((5, 7), (7, 9)),
        sample((2, 3, 4, 5), (2, 3, 5, 6)),
        sample((1, 16), (16, 3)),
        sample((3, 0), (0, 2)),
        sample(("bf16", (4, 33)), ("bf16", (33, 5))),
        sample(("f16", (4, 6)), ("f16", (6, 5))),
        sample(("f64", (3, 4)), ("f64", (4, 2))),
        sample(("i32", (3, 4)), ("i32", (4, 2)), low=-9, high=9),
        sample(("u8", (3, 4)), ("u8", (4, 2)), low=0, high=200),
        sample(("f8E4M3FN", (3, 40)), ("f8E5M2", (40, 5))),
        sample(("f8E4M3FNUZ", (2, 3, 4)), ("f8E4M3FNUZ", (2, 4, 2))),
    )

    @staticmethod
    def infer(a, b):
        float8 = a.dtype in FLOAT8 and b.dtype in FLOAT8
        check(a.dtype == b.dtype or float8, f"operands have types {a.dtype} and {b.dtype}; cast one")
        check(a.dtype != "bool", "is not defined on bool")
        check(a.rank >= 2 and a.rank == b.rank, f"takes tensors of equal rank ≥ 2, got ranks {a.rank} and {b.rank}")
        check(a.shape[:-2] == b.shape[:-2], f"leading dims {list(a.shape[:-2])} and {list(b.shape[:-2])} differ")
        check(a.shape[-1] == b.shape[-2], f"contracts size {a.shape[-1]} with size {b.shape[-2]}")
        return TensorType("f32" if float8 else a.dtype, (*a.shape[:-1], b.shape[-1]))

    @staticmethod
    def torch(a, b):
        return pt.matmul(a.float(), b.float()) if a.itemsize == 1 and a.is_floating_point() else pt.matmul(a, b)

    @staticmethod
    def reference(a, b):
        return np.matmul(wide(a), wide(b)).astype(np.float32 if a.dtype.name.startswith("float8") else a.dtype)

    @staticmethod
    def lower(builder, a, b):
        batch = ascii_lowercase[: a.rank - 2]
        dtype = "f32" if a.dtype in FLOAT8 else a.dtype
        return builder.contract(f"{batch}xz,{batch}zy->{batch}xy", a, b, dtype)


class Linear(Op, name="linear", category="matmul"):
    """`y[…, n] = sum_k x[…, k] * w[n, k] + bias[n]`."""

    x: Operand
    w: Operand
    bias: OptionalOperand
    y: Result

    numerics = "order"
    samples = (
        sample((5, 7), (9, 7), (9,)),
        sample((2, 3, 8), (4, 8), None),
        sample((6,), (4, 6), (4,)),
        sample(("bf16", (3, 17)), ("bf16", (5, 17)), ("bf16", (5,))),
    )

    @staticmethod
    def infer(x, w, bias):
        check(x.dtype == w.dtype, f"operands have types {x.dtype} and {w.dtype}; cast one")
        check(x.rank >= 1 and w.rank == 2, f"takes x [..., K] and w [N, K], got ranks {x.rank} and {w.rank}")
        check(x.shape[-1] == w.shape[1], f"contracts size {x.shape[-1]} with size {w.shape[1]}")
        check(bias is None or bias.shape == w.shape[:1], f"bias must have shape [{w.shape[0]}]")
        check(bias is None or bias.dtype == x.dtype, "bias must have the type of x")
        return TensorType(x.dtype, (*x.shape[:-1], w.shape[0]))

    @staticmethod
    def torch(x, w, bias):
        return pt.nn.functional.linear(x, w, bias)

    @staticmethod
    def reference(x, w, bias):
        y = wide(x) @ wide(w).T
        return (y if bias is None else y + wide(bias)).astype(x.dtype)

    @staticmethod
    def lower(b, x, w, bias):
        rows = ascii_lowercase[: x.rank - 1]
        acc = b.accumulator(x.dtype)
        y = b.contract(f"{rows}z,yz->{rows}y", x, w, acc)
        return b.cast(y if bias is None else b.add(y, b.cast(bias, acc)), x.dtype)


class GroupedMatmul(Op, name="grouped_matmul", category="matmul"):
    """`y[s, n] = sum_k x[s, k] * w[g, k, n]` for the rows `ends[g - 1] <= s < ends[g]` of group `g`; 0 past the last end.

    `ends` ascend. What a mixture of experts computes on tokens sorted by expert.
    """

    x: Operand
    w: Operand
    ends: Operand
    y: Result

    numerics = "order"
    samples = (
        sample((10, 5), (3, 5, 7), lambda rng: np.array([3, 3, 8])),
        sample((3, 33), (4, 33, 34), lambda rng: np.array([1, 1, 2, 3], np.int32)),
        sample(("bf16", (9, 17)), ("bf16", (2, 17, 5)), lambda rng: np.array([4, 9])),
        sample(("f64", (4, 3)), ("f64", (2, 3, 2)), lambda rng: np.array([0, 7])),
    )

    @staticmethod
    def infer(x, w, ends):
        check(x.dtype == w.dtype and is_float(x.dtype), f"x and w must be floats of one type, got {x.dtype}, {w.dtype}")
        check(ends.dtype in ("i32", "i64"), f"ends must be i32 or i64, got {ends.dtype}")
        check((x.rank, w.rank, ends.rank) == (2, 3, 1), "takes x [S, K], w [G, K, N] and ends [G]")
        check(x.shape[1] == w.shape[1], f"contracts size {x.shape[1]} with size {w.shape[1]}")
        check(ends.shape == w.shape[:1], f"{w.shape[0]} groups have {ends.shape[0]} ends")
        return TensorType(x.dtype, (x.shape[0], w.shape[2]))

    @staticmethod
    def torch(x, w, ends):
        limits = [0, *ends.clamp(max=len(x)).tolist(), len(x)]
        parts = [x[a:b] @ m for a, b, m in zip(limits, limits[1:], w)]
        return pt.cat([*parts, x.new_zeros(limits[-1] - limits[-2], w.shape[2])])

    @staticmethod
    def reference(x, w, ends):
        y = np.zeros((x.shape[0], w.shape[2]), wide(x).dtype)
        for start, end, matrix in zip([0, *ends], ends, w):
            y[start:end] = wide(x[start:end]) @ wide(matrix)
        return y.astype(x.dtype)

    @staticmethod
    def lower(b, x, w, ends):
        (rows, k), (groups, _, n), acc = x.shape, w.shape, b.accumulator(x.dtype)

        def passed(s, end, count):
            return s.add(count, s.cast(s.le(s.cast(end, "i64"), s.cast(s.index(0), "i64")), "i64"))

        def product(s, element, group, total):
            last = s.sub(s.size(groups), 1)
            matrix = s.maximum(s.minimum(s.cast(group, "index"), last), 0)
            factor = s.read(w, [matrix, s.index(2), s.index(1)])
            return s.add(total, s.mul(s.cast(element, acc), s.cast(factor, acc)))

        zero = b.fill((rows,), 0, "i64")
        group = b.generic((rows, groups), [(ends, (1,))], ["i64"], passed, (1,), [zero])
        sums = [b.fill((rows, n), 0, acc)]
        y = b.generic((rows, n, k), [(x, (0, 2)), (group, (0,))], [acc], product, (2,), sums)
        inside = b.lt(b.reshape(group, (rows, 1)), groups)
        return b.cast(b.where(inside, y, 0.0), x.dtype)
