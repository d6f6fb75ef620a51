"""Positions of extremes in rows that registers hold, simulated, against eager: NaN, equal elements, zeros of both signs, infinities."""

import numpy as np
import pytest
import torch
from mlir import ir
from support.graph_kernel import graph_module
from support.simulate_gpu import simulate

from lamina.dialects.record import Graph, TensorType
from lamina.passes.pass_manager import run

NAMES = {torch.float32: "f32", torch.float16: "f16", torch.float64: "f64", torch.int32: "i32", torch.int8: "i8"}


def positions(op, x):
    """What `op` gives along dim 1, and the kernel."""
    graph = Graph()
    made = graph.add(op, graph.add_input("x", TensorType(NAMES[x.dtype], tuple(x.shape))), dims=(1,), keepdim=False)
    for value in made if isinstance(made, tuple) else (made,):
        graph.add_output(value)
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = graph_module(graph)
        run(module, "lamina-emit-gpu-loops{aligned=true}")
        (made,), status = simulate(module, [x.numpy()], [((len(x),), np.dtype(np.int64))])
        return torch.from_numpy(made), str(module)


def rows(dtype, columns):
    """Random rows, and such in which several elements are the extreme, some or all are NaN, infinite or zero."""
    x = torch.randint(-90, 90, (12, columns), generator=torch.Generator().manual_seed(columns)).to(dtype)
    x[1] = 7
    x[2, columns // 2 :] = x[2].max()
    x[3, columns // 3 :] = x[3].min()
    if dtype.is_floating_point:
        x[4, columns - 2 :] = torch.nan
        x[5] = torch.nan
        x[6, 5::7] = torch.nan
        x[7], x[8] = -torch.inf, torch.inf
        x[9, ::2], x[9, 1::2] = -0.0, 0.0
        x[10, columns // 2], x[10, columns // 2 + 1] = torch.inf, torch.nan
        x[11, 3] = -torch.inf
    return x


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", NAMES, ids=str)
@pytest.mark.parametrize("columns", [96, 1024, 1027, 2048, 2051])
def test_positions_of_extremes(columns, dtype, op):
    x = rows(dtype, columns)
    made, text = positions(op, x)
    assert torch.equal(made, getattr(torch, op)(x, 1))
    lanes = 16 // x.element_size()
    assert columns < 1000 or columns % 2 or f"vector<{min(lanes, 8)}x" in text
