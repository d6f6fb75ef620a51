"""Embedding bag: rows of a table looked up and combined, bag by bag."""

from __future__ import annotations

from ..dtypes import is_float, is_int
from ..lazy import np, pt, wide
from ..op import Attr, Op, Operand, OptionalOperand, Result, check, sample
from ..record import TensorType

MODES = ("sum", "mean", "max")


def _indices(size, count):
    return lambda rng: rng.integers(0, size, count)


def _offsets(*values):
    return lambda rng: np.array(values, np.int64)


class EmbeddingBag(Op, name="embedding_bag", category="direct"):
    """`y[b] = combine(weight[indices[i]] * scales[i] for i in offsets[b] .. offsets[b + 1])`, zeros for an empty bag.

    The last bag ends with `indices`; with `include_last_offset` the last offset is an end and starts no bag.
    `mode` is sum, mean or max; entries equal to `padding_idx` (if it is not negative) are left out, of the count too.
    """

    weight: Operand
    indices: Operand
    offsets: Operand
    scales: OptionalOperand
    mode: Attr[str] = "sum"
    padding_idx: Attr[int] = -1
    include_last_offset: Attr[bool] = False
    y: Result

    numerics = "order"
    samples = (
        sample((7, 5), _indices(7, 9), _offsets(0, 4, 4, 6), None),
        sample((7, 5), _indices(7, 9), _offsets(0, 4, 4, 6), (9,)),
        sample((7, 5), _indices(7, 9), _offsets(0, 4, 4, 6), None, mode="mean"),
        sample((7, 5), _indices(7, 9), _offsets(0, 4, 4, 6), None, mode="max"),
        sample((3, 5), _indices(3, 9), _offsets(0, 4, 4, 6), None, mode="mean", padding_idx=1),
        sample((3, 5), _indices(3, 9), _offsets(0, 2, 6, 9), None, mode="max", padding_idx=1, include_last_offset=True),
        sample(("bf16", (7, 5)), _indices(7, 9), _offsets(0, 4, 6), None),
    )

    @staticmethod
    def infer(weight, indices, offsets, scales, mode, padding_idx, include_last_offset):
        check(weight.rank == 2 and is_float(weight.dtype), f"weight must be a float matrix, got {weight}")
        check(indices.rank == 1 == offsets.rank, "indices and offsets must be 1-D")
        check(is_int(indices.dtype) and is_int(offsets.dtype), "indices and offsets must be integer tensors")
        check(mode in MODES, f"mode '{mode}' is not one of {', '.join(MODES)}")
        check(
            scales is None or (mode == "sum" and scales.shape == indices.shape),
            "scales need mode 'sum' and one per index",
        )
        check(scales is None or scales.dtype == weight.dtype, "scales must have the type of weight")
        return TensorType(weight.dtype, (offsets.shape[0] - int(include_last_offset), weight.shape[1]))

    @staticmethod
    def torch(weight, indices, offsets, scales, mode="sum", padding_idx=-1, include_last_offset=False):
        call = pt.ops.aten._embedding_bag_forward_only
        return call(
            weight, indices, offsets, False, MODES.index(mode), False, scales, include_last_offset, padding_idx
        )[0]

    @staticmethod
    def reference(weight, indices, offsets, scales, mode, padding_idx, include_last_offset):
        ends = [*offsets[1:], *([] if include_last_offset else [len(indices)])]
        y = np.zeros((len(ends), weight.shape[1]))
        for bag, (start, end) in enumerate(zip(offsets, ends)):
            members = [i for i in range(start, end) if indices[i] != padding_idx]
            rows = wide(weight)[indices[members].astype(np.int64)]
            rows = rows if scales is None else rows * wide(scales)[members, None]
            if members:
                y[bag] = rows.max(0) if mode == "max" else rows.sum(0) / (len(members) if mode == "mean" else 1)
        return y.astype(weight.dtype)
