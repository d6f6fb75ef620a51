"""Random graphs of many kinds of ops, with data: for passes that must keep a graph's values."""

from __future__ import annotations

import random

import numpy as np

from lamina.dialects import dims
from lamina.dialects.record import Graph, Symbol, TensorType

S = dims.symbol("s0")
SHAPES = [(S, 4, 6), (S, 4, 1), (S, 4), (6,), (4, 6), (S, 24), (), (6, 4, S), (S, 6)]
UNARY = ["neg", "relu", "abs", "exp", "tanh"]
BINARY = ["add", "mul", "sub", "maximum"]


def random_graph(seed: int, size: int = 25) -> tuple[Graph, list[np.ndarray], dict[str, np.ndarray], dict[str, int]]:
    """A graph in one symbol, its inputs (weights left out), weights and the symbol's value."""
    rng = random.Random(seed)
    graph = Graph(symbols=[Symbol("s0", 1, 64, 1, 0, 0)])
    values = [graph.add_input(f"x{i}", TensorType("f32", s)) for i, s in enumerate(SHAPES[:4])]
    weights = [graph.add_input(f"w{i}", TensorType("f32", s), "weight") for i, s in enumerate([(6,), (4, 6), (6, 6)])]
    values += weights
    for _ in range(size):
        made = _add(graph, values, rng)
        values += [v for v in (made if isinstance(made, tuple) else (made,)) if v is not None]
    made = [v for n in graph.nodes for v in n.results]
    unused = [v for v in made if not any(v in n.operands for n in graph.nodes)]
    for v in dict.fromkeys([*unused[-6:], *rng.sample(made, min(2, len(made))), values[0]]):
        graph.add_output(v)
    numbers = np.random.default_rng(seed)
    concrete = lambda t: numbers.uniform(-1, 1, [dims.evaluate(d, {"s0": 3}) for d in t.shape]).astype(np.float32)
    inputs = [concrete(graph.types[i.value]) for i in graph.inputs if i.kind == "input"]
    data = {i.name: concrete(graph.types[i.value]) for i in graph.inputs if i.kind == "weight"}
    return graph, inputs, data, {"s0": 3}


def _add(graph: Graph, values: list[int], rng: random.Random):
    """One op on random values, preferring recent ones; None where the choice does not fit."""
    x = rng.choice(values[-6:] if rng.random() < 0.7 else values)
    shape = graph.types[x].shape
    rank = len(shape)
    match rng.randrange(12):
        case 0 | 1:
            return graph.add(rng.choice(UNARY), x)
        case 2 | 3 | 4:
            fitting = [v for v in values if _broadcasts(graph.types[v].shape, shape)]
            return graph.add(rng.choice(BINARY), x, rng.choice(fitting))
        case 5 if rank:
            dims_ = tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))
            return graph.add(rng.choice(["sum", "amax"]), x, dims=dims_, keepdim=rng.random() < 0.5)
        case 6 if rank:
            return graph.add("softmax", x, dim=rng.choice([-1, -1, 0]))
        case 7 if rank > 1:
            return graph.add("permute", x, dims=tuple(rng.sample(range(rank), rank)))
        case 8:
            same = [s for s in [*SHAPES, (S, 1, 4, 6), (S * 4, 6)] if dims.product(s) == dims.product(shape)]
            return graph.add("reshape", x, shape=rng.choice(same)) if same else None
        case 9:
            wide = [s for s in SHAPES if _broadcasts(shape, s)]
            return graph.add("expand", x, shape=rng.choice(wide)) if wide else None
        case 10 if rank and shape[-1] == 6:
            w = next(i.value for i in graph.inputs if i.name == "w2")
            return graph.add("linear", x, w, None)
        case 11 if rank and shape[-1] == 6:
            starts = (0,) * (rank - 1) + (2,)
            return graph.add("slice", x, starts=starts, sizes=(*shape[:-1], 4), steps=(1,) * rank)
        case 11:
            return graph.add("concat", x, x, dim=0) if rank else graph.add("full", shape=(4,), value=2.0, dtype="f32")
    return None


def _broadcasts(a: tuple, b: tuple) -> bool:
    return len(a) <= len(b) and all(x in (1, y) for x, y in zip(a[::-1], b[::-1]))
