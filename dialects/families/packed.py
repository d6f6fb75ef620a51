"""Matrix products with weights packed ahead of time, in the order in which register tiles read them.

    packed[p, k, c] = w[p * columns + c, k]        0 where p * columns + c >= N

`passes/graph/pack_weights.py` makes these ops; the packing itself moves to `@init` and runs once per version of the weights.
"""

from __future__ import annotations

from string import ascii_lowercase

from ..dims import ceildiv
from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType


class Pack(Op, name="pack", category="matmul"):
    """`y[p, k, c] = w[p * columns + c, k]`, 0 past the last row of `w`: a weight in panels of `columns` outputs."""

    w: Operand
    columns: Attr[int]
    y: Result

    samples = (sample((5, 7), columns=4), sample((8, 3), columns=4), sample(("bf16", (3, 2)), columns=8))

    @staticmethod
    def infer(w, columns):
        check(w.rank == 2, f"takes w [N, K], got rank {w.rank}")
        check(columns > 0, f"columns is {columns}")
        return TensorType(w.dtype, (ceildiv(w.shape[0], columns), w.shape[1], columns))

    @staticmethod
    def torch(w, columns):
        n, k = w.shape
        return pt.nn.functional.pad(w, (0, 0, 0, -n % columns)).reshape(-1, columns, k).transpose(1, 2)

    @staticmethod
    def reference(w, columns):
        n, k = w.shape
        y = np.zeros((-(-n // columns) * columns, k), w.dtype)
        y[:n] = w
        return np.ascontiguousarray(y.reshape(-1, columns, k).swapaxes(1, 2))

    @staticmethod
    def lower(b, w, columns):
        n, k = w.shape
        shape = (ceildiv(n, columns), k, columns)

        def element(s, index):
            row = s.add(s.mul(index[0], columns), index[2])
            inside = s.lt(row, s.size(n))
            value = s.read(w, [s.select(inside, row, s.const(0, "index")), index[1]])
            return s.select(inside, value, s.const(0, w.dtype))

        return b.generate(shape, w.dtype, element)


class PackedLinear(Op, name="packed_linear", category="matmul"):
    """`y[…, n] = sum_k x[…, k] * w[n, k] + bias[n]` for `n < size`, where `packed` holds `w` as `pack` leaves it."""

    x: Operand
    packed: Operand
    bias: OptionalOperand
    size: Attr[int]
    y: Result

    numerics = "order"
    samples = (
        sample((5, 7), (3, 7, 4), (9,), size=9),
        sample((2, 3, 8), (1, 8, 4), None, size=4),
        sample(("bf16", (3, 17)), ("bf16", (2, 17, 8)), ("bf16", (12,)), size=12),
    )

    @staticmethod
    def infer(x, packed, bias, size):
        check(x.dtype == packed.dtype, f"operands have types {x.dtype} and {packed.dtype}; cast one")
        check(
            x.rank >= 1 and packed.rank == 3,
            f"takes x [..., K] and packed [P, K, C], got ranks {x.rank}, {packed.rank}",
        )
        check(x.shape[-1] == packed.shape[1], f"contracts size {x.shape[-1]} with size {packed.shape[1]}")
        check(packed.shape[0] == ceildiv(size, packed.shape[2]), f"{packed.shape[0]} panels do not hold {size} columns")
        check(bias is None or (bias.shape == (size,) and bias.dtype == x.dtype), f"bias must be {x.dtype}[{size}]")
        return TensorType(x.dtype, (*x.shape[:-1], size))

    @staticmethod
    def torch(x, packed, bias, size):
        w = packed.transpose(1, 2).reshape(-1, packed.shape[1])[:size]
        return pt.nn.functional.linear(x, w, bias)

    @staticmethod
    def reference(x, packed, bias, size):
        w = wide(packed).swapaxes(1, 2).reshape(-1, packed.shape[1])[:size]
        y = wide(x) @ w.T
        return (y if bias is None else y + wide(bias)).astype(x.dtype)

    @staticmethod
    def lower(b, x, packed, bias, size):
        rows = ascii_lowercase[: x.rank - 1]
        panels, k, columns = packed.shape
        w = b.reshape(b.permute(packed, (0, 2, 1)), (panels * columns, k))
        w = b.slice(w, (0, 0), (size, k), (1, 1))
        acc = b.accumulator(x.dtype)
        y = b.contract(f"{rows}z,yz->{rows}y", x, w, acc)
        return b.cast(y if bias is None else b.add(y, b.cast(bias, acc)), x.dtype)
