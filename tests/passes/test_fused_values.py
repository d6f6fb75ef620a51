"""Whole graphs through kernel formation to machine code: fused kernels give the interpreter's values."""

import base64

import numpy as np
import pytest
from support.run_graph import run_graph, run_program

from lamina.compiler.api import compile_graph
from lamina.dialects import interpret
from lamina.dialects.record import Graph, TensorType

from .random_graphs import random_graph


@pytest.mark.parametrize("seed", [3, 9, 14])
def test_random_graph(seed):
    graph, inputs, weights, _ = random_graph(seed)
    names = [i.name for i in graph.inputs if i.kind == "input"]
    arrays = dict(zip(names, inputs)) | weights
    expected = interpret.run(graph, [arrays[i.name] for i in graph.inputs])
    for made, e in zip(run_graph(graph, arrays), expected, strict=True):
        np.testing.assert_allclose(made, e, rtol=1e-4, atol=1e-5)


def test_direct_ops_read_what_is_computed_nowhere_else():
    graph = Graph()
    index = graph.add_input("index", TensorType("i64", (5, 3)))
    src = graph.add_input("src", TensorType("f32", (5, 3)))
    zeros = graph.add("full", shape=(4, 3), value=0.0, dtype="f32")
    doubled = graph.add("add", src, src)
    graph.add_output(graph.add("scatter", zeros, index, doubled, dim=0, reduce="add"))
    graph.add_output(graph.add("cumsum", doubled, dim=1))
    rng = np.random.default_rng(0)
    arrays = {"index": rng.integers(0, 4, (5, 3)), "src": rng.normal(size=(5, 3)).astype(np.float32)}
    expected = interpret.run(graph, [arrays["index"], arrays["src"]])
    for made, e in zip(run_graph(graph, arrays), expected, strict=True):
        np.testing.assert_allclose(made, e, rtol=1e-6)


def test_a_cache_is_updated_in_place():
    graph = Graph()
    cache = graph.add_input("cache", TensorType("f32", (6, 4)))
    x = graph.add_input("x", TensorType("f32", (2, 4)))
    at = graph.add_input("at", TensorType("i64", (2,)))
    first = graph.add("index_put", cache, graph.add("neg", x), at, dims=(0,))
    second = graph.add("slice_scatter", first, x, starts=(4, 0), steps=(1, 1))
    graph.add_output(second, mutates="cache")
    graph.add_output(graph.add("sum", second, dims=(1,)))
    arrays = {
        "cache": np.arange(24, dtype=np.float32).reshape(6, 4),
        "x": np.full((2, 4), 7, np.float32),
        "at": np.array([3, 0]),
    }
    expected = interpret.run(graph, [arrays[n].copy() for n in ("cache", "x", "at")])
    made = run_graph(graph, arrays)
    np.testing.assert_array_equal(arrays["cache"], expected[0])
    np.testing.assert_array_equal(made[1], expected[1])


def test_old_values_are_read_before_a_cache_is_updated():
    graph = Graph()
    cache = graph.add_input("cache", TensorType("f32", (6, 4)))
    x = graph.add_input("x", TensorType("f32", (2, 4)))
    new = graph.add("slice_scatter", cache, x, starts=(4, 0), steps=(1, 1))
    graph.add_output(new, mutates="cache")
    graph.add_output(graph.add("softmax", cache, dim=1))
    graph.add_output(graph.add("sum", new, dims=(1,)))
    arrays = {"cache": np.arange(24, dtype=np.float32).reshape(6, 4), "x": np.full((2, 4), 7, np.float32)}
    expected = interpret.run(graph, [arrays[n].copy() for n in ("cache", "x")])
    program = compile_graph(graph)
    assert not program.manifest["plan"]["before"] + program.manifest["plan"]["after"]  # no copies
    made = run_program(program, arrays)
    np.testing.assert_array_equal(arrays["cache"], expected[0])
    for i in (1, 2):
        np.testing.assert_allclose(made[i], expected[i], rtol=1e-6)


def _literal(graph, array, dtype):
    return graph.add("constant", dtype=dtype, shape=array.shape, data=base64.b64encode(array.tobytes()).decode())


def test_a_product_reads_literals_in_its_operands_and_in_what_follows():
    rng = np.random.default_rng(0)
    rows, columns, bias = (rng.normal(size=n).astype(np.float32) for n in (7, 33, (5, 33)))
    mask = rng.integers(0, 2, (5, 33)).astype(np.bool_)
    graph = Graph()
    x = graph.add_input("x", TensorType("f32", (5, 7)))
    w = graph.add_input("w", TensorType("f32", (7, 33)))
    product = graph.add(
        "matmul",
        graph.add("mul", x, _literal(graph, rows, "f32")),
        graph.add("mul", w, _literal(graph, columns, "f32")),
    )
    shifted = graph.add("add", product, _literal(graph, bias, "f32"))
    graph.add_output(graph.add("where", _literal(graph, mask, "bool"), shifted, product))
    arrays = {n: rng.normal(size=s).astype(np.float32) for n, s in (("x", (5, 7)), ("w", (7, 33)))}
    program = compile_graph(graph)
    assert not any(k["reason"] for k in program.manifest["kernels"].values())
    wide = (arrays["x"].astype(np.float64) * rows) @ (arrays["w"].astype(np.float64) * columns)
    np.testing.assert_allclose(run_program(program, arrays)[0], np.where(mask, wide + bias, wide), rtol=1e-5, atol=1e-5)
