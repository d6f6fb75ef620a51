"""Matrix products with weights packed ahead of time, in the order in which register tiles read them.

    packed[p, k, c] = w[p * columns + c, k]                               0 where p * columns + c >= N
    packed[p, g, c * depth + i] = w[p * columns + c, g * depth + i]       in groups of `depth`, for i8; 0 where beyond K

Instructions that multiply `depth` elements of i8 along K take the groups from a register. K is then padded to a multiple of
`UNIT`, a register of a row of A.

`passes/graph/pack_weights.py` makes these ops; the packing itself moves to `@init` and runs once per version of the weights.
"""

from __future__ import annotations

from string import ascii_lowercase

from ..dims import Dim, ceildiv
from ..dtypes import FLOAT8
from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType
from .matmul import GroupedMatmul

UNIT = 16
BYTES = ("i8", "u8")  # 8-bit integers: products with packed i8 are summed in i32, exactly


class Pack(Op, name="pack", category="matmul"):
    """`y[p, k, c] = w[p * columns + c, k]`, 0 past the last row of `w`: a weight in panels of `columns` outputs.

    With a `depth` above 1: `y[p, g, c * depth + i] = w[p * columns + c, g * depth + i]`, K padded to a multiple of 16.
    """

    w: Operand
    columns: Attr[int]
    depth: Attr[int] = 1
    y: Result

    samples = (
        sample((5, 7), columns=4),
        sample((8, 3), columns=4),
        sample(("bf16", (3, 2)), columns=8),
        sample(("i8", (5, 19)), columns=4, depth=4, low=-128, high=127),
        sample(("i8", (8, 32)), columns=8, depth=2, low=-128, high=127),
    )

    @staticmethod
    def infer(w, columns, depth):
        check(w.rank == 2, f"takes w [N, K], got rank {w.rank}")
        check(columns > 0, f"columns is {columns}")
        check(depth > 0 and UNIT % depth == 0, f"depth is {depth}, not a divisor of {UNIT}")
        return TensorType(w.dtype, (ceildiv(w.shape[0], columns), *_lines(w.shape[1], columns, depth)))

    @staticmethod
    def torch(w, columns, depth):
        n, k = w.shape
        w = pt.nn.functional.pad(w, (0, -k % UNIT if depth > 1 else 0, 0, -n % columns))
        y = w.reshape(-1, columns, w.shape[1] // depth, depth).transpose(1, 2)
        return y.reshape(*y.shape[:2], columns * depth)

    @staticmethod
    def reference(w, columns, depth):
        n, k = w.shape
        y = np.zeros((-(-n // columns) * columns, k + (-k % UNIT if depth > 1 else 0)), w.dtype)
        y[:n, :k] = w
        y = np.ascontiguousarray(y.reshape(-1, columns, y.shape[1] // depth, depth).swapaxes(1, 2))
        return y.reshape(*y.shape[:2], columns * depth)

    @staticmethod
    def lower(b, w, columns, depth):
        n, k = w.shape
        panels, (lines, width) = ceildiv(n, columns), _lines(k, columns, depth)

        def element(s, index):
            inside = s.logical_and(s.lt(index[0], s.size(n)), s.lt(index[1], s.size(k)))
            row, column = (s.select(inside, i, s.const(0, "index")) for i in index)
            return s.select(inside, s.read(w, [row, column]), s.const(0, w.dtype))

        y = b.generate((panels * columns, lines * depth), w.dtype, element)
        y = b.permute(b.reshape(y, (panels, columns, lines, depth)), (0, 2, 1, 3))
        return b.reshape(y, (panels, lines, width))


class PackedLinear(Op, name="packed_linear", category="matmul"):
    """`y[…, n] = sum_k x[…, k] * w[n, k] + bias[n]` for `n < size`, where `packed` holds `w` as `pack` leaves it.

    The result of `x` in i8 or u8 and a packed i8 is i32, that of `x` in f8… and a packed bf16, which holds all of these, f32.
    """

    x: Operand
    packed: Operand
    bias: OptionalOperand
    size: Attr[int]
    depth: Attr[int] = 1
    y: Result

    numerics = "order"
    samples = (
        sample((5, 7), (3, 7, 4), (9,), size=9),
        sample((2, 3, 8), (1, 8, 4), None, size=4),
        sample(("bf16", (3, 17)), ("bf16", (2, 17, 8)), ("bf16", (12,)), size=12),
        sample(("i8", (3, 17)), ("i8", (2, 8, 16)), None, size=7, depth=4, low=-128, high=127),
        sample(("u8", (2, 5, 32)), ("i8", (1, 32, 8)), None, size=6, low=-128, high=127),
        sample(("f8E4M3FN", (3, 17)), ("bf16", (2, 17, 8)), None, size=12),
    )

    @staticmethod
    def infer(x, packed, bias, size, depth):
        check(
            x.rank >= 1 and packed.rank == 3,
            f"takes x [..., K] and packed [P, K, C], got ranks {x.rank}, {packed.rank}",
        )
        if x.dtype in BYTES:
            check(packed.dtype == "i8" and bias is None, f"{x.dtype} takes packed i8 and no bias")
        elif x.dtype in FLOAT8:
            check(packed.dtype == "bf16" and bias is None, f"{x.dtype} takes packed bf16 and no bias")
        else:
            check(x.dtype == packed.dtype, f"operands have types {x.dtype} and {packed.dtype}; cast one")
        columns = packed.shape[2] // depth
        check(packed.shape[1:] == _lines(x.shape[-1], columns, depth), f"contracts size {x.shape[-1]} with {packed.shape[1]} groups of {depth}")  # fmt: skip
        check(packed.shape[0] == ceildiv(size, columns), f"{packed.shape[0]} panels do not hold {size} columns")
        check(bias is None or (bias.shape == (size,) and bias.dtype == x.dtype), f"bias must be {x.dtype}[{size}]")
        return TensorType(_result(x.dtype), (*x.shape[:-1], size))

    @staticmethod
    def torch(x, packed, bias, size, depth):
        panels, lines, width = packed.shape
        w = packed.reshape(panels, lines, width // depth, depth).transpose(1, 2).reshape(-1, lines * depth)
        w = w[:size, : x.shape[-1]]
        if x.dtype.is_floating_point and x.itemsize == 1:
            return x.float() @ w.float().T
        if x.dtype.is_floating_point:
            return pt.nn.functional.linear(x, w, bias)
        return x.to(pt.int32) @ w.to(pt.int32).T

    @staticmethod
    def reference(x, packed, bias, size, depth):
        panels, lines, width = packed.shape
        w = packed.reshape(panels, lines, width // depth, depth).swapaxes(1, 2).reshape(-1, lines * depth)
        w = w[:size, : x.shape[-1]]
        if x.dtype.kind in "iu":
            return x.astype(np.int32) @ w.astype(np.int32).T
        y = wide(x) @ wide(w).T
        result = np.float32 if x.dtype.name.startswith("float8") else x.dtype
        return (y if bias is None else y + wide(bias)).astype(result)

    @staticmethod
    def lower(b, x, packed, bias, size, depth):
        rows = ascii_lowercase[: x.rank - 1]
        panels, lines, width = packed.shape
        w = b.permute(b.reshape(packed, (panels, lines, width // depth, depth)), (0, 2, 1, 3))
        w = b.reshape(w, (panels * (width // depth), lines * depth))
        w = b.slice(w, (0, 0), (size, x.shape[-1]), (1, 1))
        out = _result(x.dtype)
        acc = b.accumulator(out)
        y = b.contract(f"{rows}z,yz->{rows}y", x, w, acc)
        return b.cast(y if bias is None else b.add(y, b.cast(bias, acc)), out)


class PackedGroupedMatmul(Op, name="packed_grouped_matmul", category="matmul"):
    """`grouped_matmul` of `x`, `w` and `ends`, where `packed[g, p, k, c] = w[g, k, p * columns + c]`, with no column past N."""

    x: Operand
    packed: Operand
    ends: Operand
    y: Result

    numerics = "order"
    samples = (
        sample((10, 5), (3, 2, 5, 4), lambda rng: np.array([3, 3, 8])),
        sample(("bf16", (9, 17)), ("bf16", (2, 1, 17, 8)), lambda rng: np.array([4, 9], np.int32)),
    )

    @staticmethod
    def infer(x, packed, ends):
        check(packed.rank == 4, f"takes packed [G, P, K, C], got rank {packed.rank}")
        groups, panels, k, columns = packed.shape
        return GroupedMatmul.infer(x, TensorType(packed.dtype, (groups, k, panels * columns)), ends)

    @staticmethod
    def torch(x, packed, ends):
        return GroupedMatmul.torch(x, packed.transpose(1, 2).flatten(2), ends)

    @staticmethod
    def reference(x, packed, ends):
        w = packed.swapaxes(1, 2)
        return GroupedMatmul.reference(x, w.reshape(*w.shape[:2], -1), ends)

    @staticmethod
    def lower(b, x, packed, ends):
        groups, panels, k, columns = packed.shape
        w = b.reshape(b.permute(packed, (0, 2, 1, 3)), (groups, k, panels * columns))
        return GroupedMatmul.lower(b, x, w, ends)


def _result(dtype: str) -> str:
    """The dtype of the result for an `x` of this one."""
    return "i32" if dtype in BYTES else "f32" if dtype in FLOAT8 else dtype


def _lines(k: Dim, columns: int, depth: int) -> tuple[Dim, int]:
    """The lines of a panel of `columns` for `k` elements of K, and the elements of a line."""
    return (k, columns) if depth == 1 else (ceildiv(k, UNIT) * UNIT // depth, columns * depth)
