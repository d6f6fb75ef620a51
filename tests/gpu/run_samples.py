"""On a machine with an NVIDIA GPU: the samples of every op against torch. `python tests/gpu/run_samples.py`.

Outputs are poisoned before each run. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures, run_graph
from support.samples import (
    assert_close,
    attributes,
    eager,
    from_torch,
    inferred,
    operands,
    to_torch,
    type_of,
)

from lamina.dialects.dtypes import FLOAT8
from lamina.dialects.op import all_ops
from lamina.dialects.record import Graph

LOOPS = ("pointwise", "view", "creation", "gather", "reduction", "row", "concat")


def check_op(name: str) -> None:
    """All samples of an op in one graph."""
    op = all_ops()[name]
    graph, tensors = Graph(name), []
    for number, s in enumerate(op.samples):
        values: list[int | None] = []
        for k, x in enumerate(operands(s)):
            if x is None:
                values.append(None)
                continue
            values.append(graph.add_input(f"x{number}_{k}", type_of(x)))
            tensors.append(to_torch(x).cuda())
        made = graph.add(name, *values, **attributes(op, s))
        for v in made if isinstance(made, tuple) else (made,):
            graph.add_output(v)
    actual = iter(run_graph(graph, tensors))
    for number, s in enumerate(op.samples):
        made = [from_torch(next(actual).cpu()) for _ in inferred(op, s)]
        try:
            all_close(op, s, made, eager(op, s))
        except AssertionError as error:
            try:  # the GPU's eager may differ: inf through tanh, say, or floats out of an integer's range
                all_close(op, s, made, on_device(op, s))
            except Exception:
                raise AssertionError(f"sample {number}: {error}") from None


def all_close(op: Any, s: Any, made: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Compare the results of one sample."""
    given = [x for x in operands(s) if x is not None]
    for m, e in zip(made, expected):
        if op.name == "matmul" and type_of(given[0]).dtype in FLOAT8:
            assert np.all(np.abs(m - e) <= float8_error(*given))
        else:
            assert_close(m, e, "exact" if op.numerics == "exact" else "order")


def float8_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How far Hopper's sums of products of 8-bit floats may be off.

    An instruction adds 32 products and the sum before after it has cut each at 2^-13 of the largest of them (DeepSeek-V3
    Technical Report, 3.3.2), which is at most the sum of all magnitudes.
    """
    wide = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    return -(-a.shape[-1] // 32) * 33 * 2.0**-13 * wide


def on_device(op: Any, s: Any) -> list[np.ndarray]:
    """What torch computes for a sample, on the GPU where it can."""
    given = [None if x is None else to_torch(x).cuda() for x in operands(s)]
    made = op.torch(*given, **attributes(op, s))
    return [from_torch(t.cpu()) for t in (made if isinstance(made, (tuple, list)) else (made,))]


def main() -> None:
    """Every op of the registry: those with loops kernels, direct ops, and the others."""
    groups: dict[str, list[str]] = {"loops": [], "direct": [], "others": []}
    for name, op in all_ops().items():
        group = "loops" if op.category in LOOPS else "direct" if op.category == "direct" else "others"
        if op.samples and op.torch is not None and (op.lower is not None or group == "direct"):
            groups[group].append(name)
    for title, names in groups.items():
        failures = Failures()
        for name in names:
            failures.run(name, lambda name=name: check_op(name))
        failures.report(f"op samples, {title}")


if __name__ == "__main__":
    main()
