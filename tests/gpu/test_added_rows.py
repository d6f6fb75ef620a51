"""Rows that are added at positions (the gradient of an embedding) on GPUs: sorted, then summed, without atomics."""

import numpy as np
import pytest
import torch
from support.fake_program import run_on_fake
from support.samples import type_of

from lamina.compiler.api import show_ir
from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.record import Graph, TensorType
from lamina.frontend.aten.registry import Unsupported
from lamina.frontend.devices import check_kernels

# dtype, rows, columns, the index; whole vectors or not, several tiles of columns
CASES = {
    "few": ("f32", 9, (8,), [3, 1, 3]),
    "numbers": ("f32", 9, (), [3, 1, 3, 8] * 20),
    "one_row": ("f32", 3, (33,), [1] * 300),
    "two_rows_of_many_chunks": ("bf16", 2, (24,), [0, 1, 1] * 150),
    "all_different": ("f32", 100, (4, 5), list(range(99, -1, -1))),
    "runs_that_end_with_a_chunk": ("f32", 5, (16,), [4] * 32 + [0] * 64 + [2] * 31 + [3]),
    "several_tiles": ("f32", 70, (5,), [i * i % 61 for i in range(2500)]),
    "tiles_of_one_row": ("f32", 3, (4,), [2] * 1030 + [0] * 1100),
    "two_digits": ("f32", 1000, (4,), [i * i * 7919 % 1000 for i in range(1500)]),
    "one_update": ("f32", 300, (8,), [299]),
    "one_row_of_tiles": ("f32", 1, (4,), [0] * 1500),
    "from_the_end": ("f64", 7, (3,), [-1, 6, -7, 0] * 20),
    "many_columns": ("bf16", 6, (3000,), [5, 0, 5, 2] * 10),
    "no_update": ("f32", 6, (4,), []),
}


def whole(rng, dtype, shape):
    """Small integers, whose sums are exact."""
    return rng.integers(-4, 5, shape).astype(numpy_dtype(dtype))


def graph_of(x, value, index):
    graph = Graph()
    given = [graph.add_input(n, type_of(a)) for n, a in (("x", x), ("value", value), ("index", index))]
    graph.add_output(graph.add("index_put", *given, dims=(0,), accumulate=True))
    return graph


@pytest.mark.parametrize("case", CASES)
def test_sums_are_those_of_all_updates(case, monkeypatch):
    dtype, rows, columns, index = CASES[case]
    rng, index = np.random.default_rng(0), np.array(index, np.int64)
    x, value = whole(rng, dtype, (rows, *columns)), whole(rng, dtype, (len(index), *columns))
    (made,) = run_on_fake(graph_of(x, value, index), [x, value, index], monkeypatch)
    expected = x.astype(np.float64)
    np.add.at(expected, index, value.astype(np.float64))
    np.testing.assert_array_equal(made.astype(np.float64), expected.astype(made.dtype).astype(np.float64))


@pytest.mark.parametrize("count, rows", [(100, 7), (3000, 400)])
def test_the_order_of_sums(count, rows, monkeypatch):
    """Of each 32 updates in order of rows, those of a row in their own order; then such parts of a row; then the old value."""
    rng = np.random.default_rng(0)
    x, value = (rng.standard_normal((n, 8)).astype(np.float32) for n in (rows, count))
    index = rng.integers(0, rows, count)
    (made,) = run_on_fake(graph_of(x, value, index), [x, value, index], monkeypatch)
    order = np.argsort(index, kind="stable")
    sums: dict[int, list[np.ndarray]] = {}
    for first in range(0, count, 32):
        parts: dict[int, np.ndarray] = {}
        for t in order[first : first + 32]:
            parts[index[t]] = parts[index[t]] + value[t] if index[t] in parts else value[t]
        for row, part in parts.items():
            sums.setdefault(row, []).append(part)
    expected = x.copy()
    for row, summed in sums.items():
        expected[row] += sum(summed[1:], summed[0])
    np.testing.assert_array_equal(made, expected)


def test_an_index_of_two_dims_and_a_value_that_is_stretched(monkeypatch):
    rng = np.random.default_rng(0)
    x, value, index = whole(rng, "f32", (5, 12)), whole(rng, "f32", (7, 1)), rng.integers(0, 5, (10, 7))
    (made,) = run_on_fake(graph_of(x, value, index), [x, value, index], monkeypatch)
    np.add.at(x, index, np.broadcast_to(value, (10, 7, 12)))
    np.testing.assert_array_equal(made, x)


def test_the_gradient_of_an_embedding_makes_zeros_as_it_sums(monkeypatch):
    """The table of zeros is no buffer, and neither is the mask of the padding."""
    rng = np.random.default_rng(0)
    grad, index = whole(rng, "bf16", (90, 16)), rng.integers(0, 40, 90)
    graph = Graph()
    g, i = graph.add_input("g", TensorType("bf16", (90, 16))), graph.add_input("i", TensorType("i64", (90,)))
    table = graph.add("full", shape=(40, 16), value=0.0, dtype="bf16")
    graph.add_output(graph.add("index_put", table, g, i, dims=(0,), accumulate=True))
    assert show_ir(graph, "kernels", "sm_90a").count("lamina.launch") == 1
    (made,) = run_on_fake(graph, [grad, index], monkeypatch)
    expected = np.zeros((40, 16))
    np.add.at(expected, index, grad.astype(np.float64))
    np.testing.assert_array_equal(made.astype(np.float64), expected)


@pytest.mark.parametrize("columns", [(), (12,), (3, 4)])
def test_a_scatter_of_rows(columns, monkeypatch):
    """`index_add`, and one number a row."""
    rng = np.random.default_rng(0)
    x, value, index = (whole(rng, "f32", (n, *columns)) for n in (9, 70, 70))
    index = rng.integers(0, 9, 70)
    graph = Graph()
    given = [graph.add_input(n, type_of(a)) for n, a in (("x", x), ("value", value), ("index", index))]
    rows = graph.add("reshape", given[2], shape=(70, *(1 for _ in columns)))
    rows = graph.add("expand", rows, shape=value.shape) if columns else given[2]
    graph.add_output(graph.add("scatter", given[0], rows, given[1], dim=0, reduce="add"))
    check_kernels(graph.nodes, graph.types, torch.device("cuda", 0))
    assert "scf.while" in show_ir(graph, "loops", "sm_90a")  # the join
    (made,) = run_on_fake(graph, [x, value, index], monkeypatch)
    expected = x.copy()
    np.add.at(expected, index, value)
    np.testing.assert_array_equal(made, expected)
    for wrong in (-1, 9):
        with pytest.raises(RuntimeError, match="out of bounds"):
            run_on_fake(graph, [x, value, np.append(index[1:], wrong)], monkeypatch)


def test_a_scatter_of_elements_is_torchs():
    graph = Graph()
    types = TensorType("f32", (9, 12)), TensorType("i64", (70, 12)), TensorType("f32", (70, 12))
    given = [graph.add_input(f"x{k}", t) for k, t in enumerate(types)]
    graph.add_output(graph.add("scatter", *given, dim=0, reduce="add"))
    with pytest.raises(Unsupported, match="combines at positions"):
        check_kernels(graph.nodes, graph.types, torch.device("cuda", 0))
    assert "gpu.barrier" not in show_ir(graph, "loops", "sm_90a")


def test_rows_out_of_range_are_an_error(monkeypatch):
    x, value = np.zeros((4, 8), np.float32), np.ones((3, 8), np.float32)
    for wrong in (4, -5):
        index = np.array([0, wrong, 1])
        with pytest.raises(IndexError):
            run_on_fake(graph_of(x, value, index), [x, value, index], monkeypatch)


def test_an_index_is_checked_with_all_its_bits():
    """Where others have 32: of 2^32 + 1 these would be in range."""
    x, index = np.zeros((4, 8), np.float32), np.zeros(3, np.int64)
    ptx = show_ir(graph_of(x, x[:3], index), "asm", "sm_90a")
    assert "ld.global.b64" in ptx and "ld.global.b64" not in show_ir(
        graph_of(x, x[:3], index.astype(np.int32)), "asm", "sm_90a"
    )


@pytest.mark.parametrize("rows, width", [(1000, 32), (1 << 20, 64)])
def test_words_have_the_width_they_need(rows, width):
    graph = Graph()
    types = TensorType("f32", (rows, 64)), TensorType("f32", (1 << 14, 64)), TensorType("i64", (1 << 14,))
    given = [graph.add_input(f"x{k}", t) for k, t in enumerate(types)]
    graph.add_output(graph.add("index_put", *given, dims=(0,), accumulate=True))
    assert f"vector<8xi{width}>" in show_ir(graph, "loops", "sm_90a")


def test_rows_are_added_in_place(monkeypatch):
    """An argument that gets a new value: its rows are read before they are written."""
    rng = np.random.default_rng(0)
    x, value, index = whole(rng, "f32", (40, 12)), whole(rng, "f32", (200, 12)), rng.integers(0, 40, 200)
    graph = Graph()
    given = [graph.add_input(n, type_of(a)) for n, a in (("x", x), ("value", value), ("index", index))]
    graph.add_output(graph.add("index_put", *given, dims=(0,), accumulate=True), mutates="x")
    assert "inplace" in show_ir(graph, "kernels", "sm_90a")
    (made,) = run_on_fake(graph, [x, value, index], monkeypatch)
    np.add.at(x, index, value)
    np.testing.assert_array_equal(made, x)
