"""Transposing GPU kernels, simulated on the CPU and compared with numpy: tiles in shared memory, also of rows that begin anywhere."""

import re

import pytest
from support.graph_kernel import graph_of
from support.simulated import ALIGNED, check, random

from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", [(128, 192), (100, 37), (65, 640), (1100, 1000), (3, 96, 100)], ids=str)
@pytest.mark.parametrize("options", ["", ALIGNED])
def test_transposes_go_through_tiles(shape, dtype, options):
    g = Graph()
    x = g.add_input("x", TensorType(dtype, shape))
    swapped = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    turned = g.add("permute", g.add("neg", x), dims=swapped)
    y = g.add_input("y", TensorType(dtype, tuple(shape[d] for d in swapped)))
    g.add_output(g.add("mul", turned, y))
    arrays = random((dtype, shape), (dtype, tuple(shape[d] for d in swapped)))
    assert "gpu.barrier" in check(g, arrays, options=options)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize(
    "shape", [(128, 201), (64, 1001), (64, 993), (3, 96, 97), (201, 128), (1001, 64), (73, 45)], ids=str
)
def test_tiles_of_rows_that_begin_anywhere_are_moved_in_vectors(dtype, shape):
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    text = check(graph_of("permute", (dtype, shape), dims=order), random((dtype, shape)), options=ALIGNED)
    lines = [line for line in text.splitlines() if "address_space<global>>" in line]
    if dtype != "f64":  # two elements are as good as a vector of two
        assert any("vector.load" in line and "alignment = 16" in line for line in lines)
        assert any("vector.store" in line and "alignment = 16" in line for line in lines)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", [(3, 49, 128), (2, 9, 72), (5, 63, 8), (33, 64)], ids=str)
@pytest.mark.parametrize("options", ["", ALIGNED])
def test_short_rows_of_turned_tiles_are_stored_as_one_run(dtype, shape, options):
    *_, rows, columns = shape
    turned = tuple(range(len(shape) - 2)) + (len(shape) - 1, len(shape) - 2)
    g = Graph()
    x = g.add("permute", g.add_input("x", TensorType(dtype, shape)), dims=turned)
    g.add_output(g.add("relu", x))
    text = check(g, random((dtype, shape)), options=options)
    width = 4 if dtype == "f32" else 8
    assert (
        re.search(rf"vector.store .*alignment = 16 .*global.*vector<{width}x{dtype}>", text) and "scf.for" not in text
    )


def test_what_is_read_beside_a_tile_is_aligned_as_the_results_are():
    types = ("f32", (201, 132)), ("f32", (132, 201))
    g = Graph()
    x, y = (g.add_input(f"x{i}", TensorType(*t)) for i, t in enumerate(types))
    g.add_output(g.add("add", g.add("permute", x, dims=(1, 0)), y))
    text = check(g, random(*types), options=ALIGNED)
    assert re.search(r"vector.load %arg1\[.*\] {alignment = 16", text)


def test_a_transpose_of_symbolic_size():
    g = Graph(symbols=[Symbol("s0", input=0, dim=0), Symbol("s1", input=0, dim=1)])
    x = g.add_input("x", TensorType("f32", (symbol("s0"), symbol("s1"))))
    g.add_output(g.add("permute", g.add("exp", x), dims=(1, 0)))
    assert "gpu.barrier" in check(g, random(("f32", (70, 129))))
