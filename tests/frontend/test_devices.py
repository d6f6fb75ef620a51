"""Which ops a GPU runs by kernels of ours: decided from the graph record, so without a GPU."""

import pytest
import torch

from lamina.dialects.record import Graph, TensorType
from lamina.frontend.aten.registry import Unsupported
from lamina.frontend.devices import check_kernels

CUDA = torch.device("cuda", 0)


def product(dtype, rows):
    g = Graph()
    x, w = (g.add_input(n, TensorType(dtype, s)) for n, s in (("x", (rows, 64)), ("w", (32, 64))))
    g.add_output(g.add("linear", x, w, None))
    return g


@pytest.mark.parametrize("dtype, rows", [("bf16", 300), ("f32", 300), ("f64", 16)])
def test_products_are_ours(dtype, rows):
    g = product(dtype, rows)
    check_kernels(g.nodes, g.types, CUDA)


def test_large_products_in_f64_are_torchs_on_a_gpu_only():
    g = product("f64", 300)
    with pytest.raises(Unsupported, match="cuBLAS is faster"):
        check_kernels(g.nodes, g.types, CUDA)
    check_kernels(g.nodes, g.types, torch.device("cpu"))


def test_convolutions_are_torchs_on_a_gpu():
    g = Graph()
    x, w = (g.add_input(n, TensorType("bf16", s)) for n, s in (("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3))))
    geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    g.add_output(g.add("conv", x, w, None, **geometry, transposed=False, output_padding=()))
    with pytest.raises(Unsupported, match="no GPU kernel of 'conv'"):
        check_kernels(g.nodes, g.types, CUDA)
