"""Weights one below another that a product reads where each lies, as if they were one matrix.

    %w = "lamina.concat"(%q, %k, %v) {dim = 0 : i64}      weights [N, K] in memory
    %y = "lamina.linear"(%x, %w)                          one product, no copy of the three

A copy engine reads tiles of a matrix; where none reaches from one matrix into the next, a tile only has to know which it is of
(`passes/gpu/matmul/stack.py`). A copy of all would take as much memory again as the weights.
"""

from __future__ import annotations

from .dataflow import Dataflow, Node

ROWS = 128  # which each matrix has a multiple of: tiles have as many, or a part of them
UNIT = 8  # elements of 16 bits, of which rows are a multiple: where the copy engine can begin
LEAST = 1 << 18  # elements of all: with fewer, products go to other code, and a copy is small
MOST = 8  # matrices, each of which has a descriptor


def is_stacked(flow: Dataflow, node: Node) -> bool:
    """True for a concatenation of weights that nothing but linear layers reads, as their matrix."""
    if node.name != "concat" or node.attributes["dim"] != 0 or not 2 <= len(node.inputs) <= MOST:
        return False
    result = flow.types[node.results[0]]
    if result.dtype not in ("bf16", "f16") or result.rank != 2:
        return False
    if not isinstance(result.numel, int) or result.numel < LEAST or result.shape[1] % UNIT:  # type: ignore[operator]
        return False
    for v in node.inputs:
        producer = flow.producer[v]
        if producer is None or producer.name != "weight" or flow.types[v].shape[0] % ROWS:  # type: ignore[operator]
            return False
    (y,) = node.results
    users = flow.users[y]
    return bool(users) and y not in flow.returned and all(_is_matrix(user, y) for user in users)


def _is_matrix(user: Node, value: int) -> bool:
    return user.name == "linear" and user.operands[1] == value and user.inputs.count(value) == 1
