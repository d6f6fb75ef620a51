"""Matrix products. Sums are in f32 for f16 and bf16 and are rounded once; integers wrap."""

from __future__ import annotations

from string import ascii_lowercase

from ..lazy import np, pt, wide
from ..op import Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType


class Matmul(Op, name="matmul", category="matmul"):
    """`y[…, m, n] = sum_k a[…, m, k] * b[…, k, n]`; the leading dims are equal (the frontend expands them)."""

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
    )

    @staticmethod
    def infer(a, b):
        check(a.dtype == b.dtype, f"operands have types {a.dtype} and {b.dtype}; cast one")
        check(a.dtype != "bool", "is not defined on bool")
        check(a.rank >= 2 and a.rank == b.rank, f"takes tensors of equal rank ≥ 2, got ranks {a.rank} and {b.rank}")
        check(a.shape[:-2] == b.shape[:-2], f"leading dims {list(a.shape[:-2])} and {list(b.shape[:-2])} differ")
        check(a.shape[-1] == b.shape[-2], f"contracts size {a.shape[-1]} with size {b.shape[-2]}")
        return TensorType(a.dtype, (*a.shape[:-1], b.shape[-1]))

    @staticmethod
    def torch(a, b):
        return pt.matmul(a, b)

    @staticmethod
    def reference(a, b):
        return np.matmul(wide(a), wide(b)).astype(a.dtype)

    @staticmethod
    def lower(builder, a, b):
        batch = ascii_lowercase[: a.rank - 2]
        return builder.contract(f"{batch}xz,{batch}zy->{batch}xy", a, b)


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
