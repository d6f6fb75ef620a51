"""Random fused programs for the loop emitter: pointwise ops, views, reductions and softmaxes on small f32 tensors."""

from __future__ import annotations

import numpy as np

from lamina.dialects import dims
from lamina.dialects.op import OpError
from lamina.dialects.record import Graph, Symbol, TensorType

UNARY = ("neg", "abs", "relu", "sigmoid", "tanh", "exp", "gelu")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


def random_graph(seed: int, dynamic: bool = False, steps: int = 8) -> tuple[Graph, list[np.ndarray]]:
    """A graph and inputs for it; with `dynamic` the first input's leading sizes are symbols."""
    rng = np.random.default_rng(seed)
    g = Graph(f"random{seed}")
    rank = int(rng.integers(1, 4))
    sizes = [int(rng.choice([1, 2, 3, 5, 8, 16, 24, 33])) for _ in range(rank)]
    shape: list[dims.Dim] = list(sizes)
    if dynamic:
        for d in range(int(rng.integers(1, rank + 1))):
            if sizes[d] > 1:
                shape[d] = dims.symbol(f"d{d}")
                g.symbols.append(Symbol(f"d{d}", input=0, dim=d))
    inputs = [rng.uniform(-2, 2, sizes).astype(np.float32)]
    pool = [g.add_input("x", TensorType("f32", tuple(shape)))]
    if rng.random() < 0.5:
        keep = int(rng.integers(0, rank))
        pool.append(g.add_input("w", TensorType("f32", tuple(shape[keep:]))))
        inputs.append(rng.uniform(-2, 2, sizes[keep:]).astype(np.float32))
    for _ in range(steps):
        try:
            pool.append(_step(g, pool, rng))
        except OpError:
            continue
    outputs = {pool[-1]} | {v for v in rng.choice(pool, 2).tolist() if v >= len(inputs)}
    for v in sorted(outputs):
        g.add_output(v)
    return g, inputs


def _step(g: Graph, pool: list[int], rng: np.random.Generator) -> int:
    x = int(pool[int(rng.integers(max(0, len(pool) - 4), len(pool)))])
    shape = g.types[x].shape
    kind = rng.random()
    if kind < 0.3:
        return g.add(str(rng.choice(UNARY)), g.add("mul", x, _number(g, 0.5)))
    if kind < 0.6:
        y = int(pool[int(rng.integers(0, len(pool)))])
        return g.add(str(rng.choice(BINARY)), x, y)
    if kind < 0.8 and shape:
        d = int(rng.integers(0, len(shape)))
        keepdim = bool(rng.random() < 0.6)
        name = str(rng.choice(["sum", "amax", "mean", "softmax"]))
        if name == "softmax":
            return g.add("softmax", x, dim=d)
        more = {"dtype": "f32"} if name == "sum" else {}
        return g.add(name, x, dims=(d,), keepdim=keepdim, **more)
    if kind < 0.9 and len(shape) >= 2:
        return g.add("permute", x, dims=tuple(int(i) for i in rng.permutation(len(shape))))
    if kind < 0.95 and len(shape) >= 2:
        return g.add("reshape", x, shape=(shape[0] * shape[1], *shape[2:]))
    if shape and all(isinstance(d, int) for d in shape):
        starts = [int(rng.integers(0, d)) for d in shape]
        return g.add(
            "slice", x, starts=tuple(starts), sizes=tuple(d - s for d, s in zip(shape, starts)), steps=(1,) * len(shape)
        )
    return g.add("flip", x, dims=(0,)) if shape else g.add("neg", x)


def _number(g: Graph, value: float) -> int:
    return g.add("full", shape=(), value=value, dtype="f32")
