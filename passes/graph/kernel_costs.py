"""What fusion needs to know of single ops: which are free or cheap to compute again, and which read whole buffers."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.dtypes import DTYPES
from ...dialects.record import TensorType
from .dataflow import Node

# Computed again rather than stored: about the price of the load that it saves.
CHEAP = frozenset(
    "add sub mul neg abs sign cast where clamp maximum minimum relu logical_not logical_and logical_or logical_xor "
    "bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right eq ne lt le gt ge isnan isinf isfinite".split()
)
# A few instructions in f32 and narrower floats on a GPU.
_QUICK = frozenset("sqrt rsqrt reciprocal div".split())
# Windows over spatial dims: their result is pointwise in the output, each element a reduction.
WINDOWED = frozenset({"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"})
_INLINE_CONSTANT = 16  # elements; more are a buffer, since a kernel would carry the data in its code


def is_leaf(node: Node | None) -> bool:
    """True for what is in memory already: arguments, weights, results of `@init` and of launches."""
    return node is None or node.cls is None or node.name in ("weight", "persistent")


def is_creation(node: Node, type: TensorType) -> bool:
    """True for an op that makes values from nothing and is computed again by every reader."""
    if node.category != "creation":
        return False
    return node.name != "constant" or (isinstance(type.numel, int) and type.numel <= _INLINE_CONSTANT)


def is_cheap(node: Node) -> bool:
    """True for a pointwise op that may be computed again."""
    return node.category == "pointwise" and node.name in CHEAP


def is_quick(node: Node, types: Sequence[TensorType]) -> bool:
    """True for a pointwise op that a GPU computes in a few instructions."""
    wide = any(types[v].dtype in ("f64", "i64", "u64") for v in (*node.inputs, *node.results))
    return node.category == "pointwise" and (node.name in CHEAP or (node.name in _QUICK and not wide))


def is_widening(node: Node, types: Sequence[TensorType]) -> bool:
    """True for a cast that changes no value: to a wider type of the same kind."""
    if node.name != "cast":
        return False
    old, new = DTYPES[types[node.inputs[0]].dtype], DTYPES[types[node.results[0]].dtype]
    return old.kind == new.kind and old.bytes < new.bytes


def reads_buffer(node: Node, operand: int) -> bool:
    """True if the emitter of `node` needs its operand number `operand` in memory (views of memory are fine).

    Direct ops read through the evaluator, so that `full` and cheap ops on inputs need no buffer for them.
    """
    if node.category in ("matmul", "conv", "attention") or node.name in WINDOWED:
        return True
    return node.category == "gather" and operand == 0 and node.name != "flip"


def grows(value: TensorType, result: TensorType) -> bool:
    """True if computing `value` at every element of `result` computes elements more than once."""
    a, b = value.numel, result.numel
    return a != b and not (isinstance(a, int) and isinstance(b, int) and a >= b)
