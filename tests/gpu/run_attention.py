"""On a machine with an NVIDIA GPU: attention against float64. `python tests/gpu/run_attention.py [sm_80]`.

Lengths, widths, layouts, shared heads, masks and log-sum-exps through the compiler and the runtime, outputs poisoned
before, two runs to the bit. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures, distance, run_graph

from lamina.dialects.record import Graph, TensorType
from lamina.frontend.values import torch_dtype

TOLERANCE = {"bf16": 4e-3, "f16": 5e-4, "f32": 2e-6}  # relative Frobenius distance: weights and results are rounded


@dataclass(frozen=True)
class Case:
    """`mask` is a dtype or `least`: a mask that holds the least float, in some rows everywhere."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    causal: bool = False
    shared: int = 0
    packed: bool = False  # slices of one projection
    mask: str = ""
    dtype: str = "bf16"
    scale: float | None = None

    @property
    def groups(self) -> int:
        return self.heads // (self.shared or self.heads)


def cases() -> list[Case]:
    """At each width what was a case of its own in some version of the kernel."""
    made = []
    for d in (64, 128, 256):
        made += [Case(2, 4, 1000, 1000, d, True), Case(2, 4, 777, 1300, d), Case(1, 8, 512, 512, d, True, shared=2)]
        made += [Case(3, 7, 2049, 2049, d, True, packed=True), Case(1, 1, 1, 2000, d), Case(1, 3, 1300, 130, d, True)]
        made += [Case(2, 4, 333, 333, d, mask="f32"), Case(2, 4, 130, 1300, d, True, mask="bool")]
        made += [Case(4, 32, 1, 4099, d, shared=8), Case(2, 8, 1, 555, d, shared=2, mask="bool")]
        made += [Case(40, 32, 1, 555, d, shared=8), Case(4, 16, 1500, 1500, d)]
    for d in (24, 64, 128):
        made += [Case(2, 4, 333, 333, d, True, dtype="f32"), Case(2, 4, 100, 777, d, shared=2, mask="f32", dtype="f32")]
        made += [Case(4, 32, 1, 2099, d, shared=8, dtype="f32"), Case(2, 8, 1, 555, d, mask="bool", dtype="f32")]
    made += [Case(2, 3, 300, 300, 80, True, dtype="f16"), Case(1, 2, 65, 65, 7), Case(1, 2, 200, 200, 96, scale=-0.1)]
    return [*made, Case(1, 4, 200, 200, 128, mask="least"), Case(3, 5, 500, 500, 128, True)]


def built(c: Case) -> Graph:
    """The graph of a case: q, k and v (or all in one) and the mask to the output and the log-sum-exp."""
    g = Graph("attention")
    if c.packed:
        x = g.add_input("x", TensorType(c.dtype, (c.batch, c.queries, 3, c.heads, c.width)))
        tensors = []
        for i in range(3):
            sizes = (c.batch, c.queries, 1, c.heads, c.width)
            part = g.add("slice", x, starts=(0, 0, i, 0, 0), sizes=sizes, steps=(1,) * 5)
            part = g.add("reshape", part, shape=(c.batch, c.queries, c.heads, c.width))
            tensors.append(g.add("permute", part, dims=(0, 2, 1, 3)))
    else:
        shapes = [(c.heads, c.queries), *[(c.shared or c.heads, c.keys)] * 2]
        tensors = [g.add_input(n, TensorType(c.dtype, (c.batch, *s, c.width))) for n, s in zip("qkv", shapes)]
    mask = None
    if c.mask:
        dtype = "f32" if c.mask == "least" else c.mask
        mask = g.add_input("m", TensorType(dtype, (c.batch, 1, c.queries, c.keys)))
    for value in g.add("attention", *tensors, mask, causal=c.causal, scale=c.scale, gqa=c.groups):
        g.add_output(value)
    return g


def operand(c: Case, type: TensorType) -> torch.Tensor:
    """A random input; masks have rows that keep nothing, or the least float everywhere."""
    x = torch.randn(type.shape, device="cuda")
    if type.dtype == "bool":
        kept = x < 0.5
        kept[:, :, : c.queries - 1 : 100] = False
        return kept
    if c.mask == "least" and type.dtype == "f32":
        x = torch.where(x < 0, torch.finfo(torch.float32).min, 0.0)
        x[:, :, 3] = torch.finfo(torch.float32).min
    return x.to(torch_dtype(type.dtype))


def exact(c: Case, given: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """In float64; a row that keeps nothing is 0."""
    tensors = given[0].permute(2, 0, 3, 1, 4).unbind(0) if c.packed else given[:3]
    q, k, v = (t.double() for t in tensors)
    k, v = (t.repeat_interleave(c.groups, 1) for t in (k, v))
    scores = q @ k.mT * (c.width**-0.5 if c.scale is None else c.scale)
    if c.mask == "bool":
        scores = scores.masked_fill(~given[-1], -math.inf)
    elif c.mask:  # the sum is rounded to f32, where a score vanishes beside the least float
        scores = (scores.float() + given[-1]).double() if c.mask == "least" else scores + given[-1].double()
    if c.causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    empty = scores.amax(-1).isneginf()
    weights = scores.masked_fill(empty[..., None], 0).softmax(-1).masked_fill(empty[..., None], 0)
    return weights @ v, scores.logsumexp(-1).masked_fill(empty, 0)


def check(c: Case, target: str = "") -> None:
    """One case, by the code of `target` (default: the GPU's own)."""
    graph = built(c)
    types = [graph.types[i.value] for i in graph.inputs]
    given = [operand(c, t) for t in types]
    first, second = (run_graph(graph, given, target) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second)), "two runs differ"
    out, lse = exact(c, given)
    error = distance(first[0], out)
    assert error <= TOLERANCE[c.dtype] or not out.any() and not first[0].any(), f"error {error:.1e}"
    torch.testing.assert_close(first[1].double(), lse, rtol=1e-5, atol=1e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    failures = Failures()
    for c in cases():
        failures.run(str(c), lambda c=c: check(c, *sys.argv[1:2]))
    failures.report("attention")
