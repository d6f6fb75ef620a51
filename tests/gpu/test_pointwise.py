"""Pointwise GPU kernels, gathers and concatenations, simulated on the CPU and compared with numpy.

Vectors and their tails, vectors of rows that begin anywhere, windows and steps cut out of whole loads.
"""

import re

import numpy as np
import pytest
from support.graph_kernel import graph_of
from support.simulated import ALIGNED, check, random

from lamina.dialects.record import Graph, TensorType
from lamina.passes.gpu.loops import emit_gathers, emit_pointwise

WINDOW = dict(kernel=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1))


@pytest.mark.parametrize(("dtype", "outputs"), [("f32", 2), ("bf16", 4)])
def test_windows_share_whole_loads(dtype, outputs, monkeypatch):
    monkeypatch.setattr(emit_pointwise, "ENOUGH", 1)
    text = check(graph_of("max_pool", (dtype, (2, 3, 10, 32)), **WINDOW), random((dtype, (2, 3, 10, 32))))
    loads = [line.split(" : ")[-1] for line in text.splitlines() if ".load " in line]
    assert (
        len(loads) == 6 and sum("vector<" in line for line in loads) == 3
    )  # of each row of a window: one, and one element
    assert f"vector<{outputs}x{dtype}>" in next(line for line in text.splitlines() if "vector.store" in line)


@pytest.fixture
def wide_vectors(monkeypatch):
    """Few elements are taken as many are: in whole vectors, two a thread, if rows have 16 elements and more."""
    for name, value in (("ENOUGH", 1), ("UNROLL_ABOVE", 1), ("LEAST_ROW", 16)):
        monkeypatch.setattr(emit_pointwise, name, value)


@pytest.mark.parametrize("columns", [101, 21, 104, 33])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_that_begin_anywhere_are_stored_in_vectors(dtype, columns, wide_vectors):
    wide, column, row = (dtype, (40, columns)), (dtype, (40, 1)), (dtype, (columns,))
    for other in (column, row):  # what lies as the result does is read in the same vectors
        text = check(graph_of("mul", wide, other), random(wide, other), options=ALIGNED)
        assert "remui" not in text.split("scf.if")[1].split("else")[0]
    text = check(graph_of("concat", wide, wide, dim=1), random(wide, wide), options=ALIGNED)
    assert f"vector<{16 // (4 if dtype == 'f32' else 2)}x{dtype}>" in text


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("rows", [40, 41])  # of 41 rows the last vector is no whole one
def test_vectors_of_rows_out_of_a_table(dtype, rows, wide_vectors):
    g = graph_of("embedding", (dtype, (56, 37)), ("i64", (rows,)))
    arrays = [*random((dtype, (56, 37))), np.random.default_rng(0).integers(0, 56, rows)]
    text = check(g, arrays, options=ALIGNED)
    assert "llvm.intr.fshr" in text or dtype == "f32"
    assert "llvm.intr.fshr" not in check(g, arrays)
    whole, first_failure, *_ = text.split("scf.if")[1:]  # of two vectors, whose rows may not be there
    assert whole.count("memref.load %arg1") == 2 and "memref.store" in first_failure


def test_pieces_of_rows_that_begin_anywhere(wide_vectors):
    parts = [("bf16", (9, 3, n)) for n in (37, 5, 22)]
    check(graph_of("concat", *parts, dim=2), random(*parts), options=ALIGNED)
    x = ("f32", (5, 61))
    check(graph_of("slice", x, sizes=(5, 57), starts=(0, 3), steps=(1, 1)), random(x), options=ALIGNED)
    check(graph_of("pad", x, low=(1, 3), high=(2, 4), value=2.0), random(x), options=ALIGNED)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_results_of_lanes_that_read_here_and_there_are_stored_in_vectors(dtype, monkeypatch):
    monkeypatch.setattr(emit_pointwise, "ENOUGH", 1)
    x, column = (dtype, (24, 13)), (dtype, (24, 1))
    padded = graph_of("pad", x, low=(1, 1), high=(0, 2), value=2.0)
    parts = graph_of("concat", x, (dtype, (24, 8)), dim=1)
    for g, types in ((padded, (x,)), (parts, (x, (dtype, (24, 8)))), (graph_of("mul", x, column), (x, column))):
        assert f"vector<{4 if dtype == 'f32' else 8}x{dtype}>" in check(g, random(*types))


@pytest.mark.parametrize(("dtype", "loads"), [("f32", {4: 1, 2: 2}), ("bf16", {8: 1, 4: 2})])
def test_pairs_of_neighbours_are_computed_out_of_whole_loads(dtype, loads, monkeypatch):
    """A rotary embedding of neighbouring elements: lanes are of two tensors in turn, and read the same vector."""
    monkeypatch.setattr(emit_pointwise, "ENOUGH", 1)
    g = Graph()
    x, c, s = (g.add_input(n, TensorType(dtype, t)) for n, t in (("x", (8, 16, 64)), ("c", (16, 32)), ("s", (16, 32))))
    even, odd = (g.add("slice", x, starts=(0, 0, k), sizes=(8, 16, 32), steps=(1, 1, 2)) for k in (0, 1))
    product = lambda a, b: g.add("mul", a, b)
    made = g.add("sub", product(even, c), product(odd, s)), g.add("add", product(even, s), product(odd, c))
    pairs = g.add("concat", *(g.add("reshape", m, shape=(8, 16, 32, 1)) for m in made), dim=3)
    g.add_output(g.add("materialize", g.add("reshape", pairs, shape=(8, 16, 64))))
    text = check(g, random((dtype, (8, 16, 64)), (dtype, (16, 32)), (dtype, (16, 32))))
    assert "memref.load" not in text and "scf.if" not in text.split("vector.store")[0]
    for width, count in loads.items():
        assert len(re.findall(rf"vector.load .*vector<{width}x{dtype}>", text)) == count


@pytest.mark.parametrize(("start", "whole"), [(0, True), (1, True), (3, False)])  # 3 and 5 lie in two loads
def test_each_second_element_comes_from_whole_loads(start, whole, monkeypatch):
    monkeypatch.setattr(emit_pointwise, "ENOUGH", 1)
    view = graph_of("slice", ("f32", (6, 64)), sizes=(6, 16), starts=(0, start), steps=(1, 2))
    assert ("vector.load" in check(view, random(("f32", (6, 64))))) == whole


def test_reversed_rows_come_from_whole_loads(monkeypatch):
    monkeypatch.setattr(emit_pointwise, "ENOUGH", 1)
    text = check(graph_of("flip", ("bf16", (6, 64)), dims=(1,)), random(("bf16", (6, 64))))
    assert "vector.load" in text and "memref.load" not in text


def test_windows_are_read_side_by_side():
    window = WINDOW
    text = check(graph_of("max_pool", ("f32", (2, 3, 130, 66)), **window), random(("f32", (2, 3, 130, 66))))
    assert "vector<" not in text


@pytest.mark.parametrize("shape", [(1 << 17,), (300, 1001), (70001,), (4 << 20,)], ids=str)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_pointwise_vectors_and_tails(shape, dtype):
    if dtype == "f32" and shape[0] > 1 << 20:
        pytest.skip("large")
    check(graph_of("add", (dtype, shape), (dtype, shape)), random((dtype, shape), (dtype, shape)))


def test_a_bias_is_read_by_vectors():
    g = graph_of("add", ("f32", (512, 768)), ("f32", (768,)))
    text = check(g, random(("f32", (512, 768)), ("f32", (768,))))
    assert text.count("vector.load") == 2
    assert "alignment = 16" in text


def test_embedding_reads_rows_by_vectors():
    g = Graph()
    w, i = g.add_input("w", TensorType("f32", (100, 256))), g.add_input("i", TensorType("i64", (20, 30)))
    g.add_output(g.add("embedding", w, i))
    rng = np.random.default_rng(0)
    text = check(g, [*random(("f32", (100, 256))), rng.integers(0, 100, (20, 30))])
    assert "vector.load" in text


@pytest.mark.parametrize("shape", [(20, 90), (3, 7, 90)], ids=str)
def test_columns_out_of_each_row_are_read_for_some_rows_at_once(shape, monkeypatch):
    monkeypatch.setattr(emit_gathers, "LEAST_ROWS", 1)
    g, dim, made = Graph(), len(shape) - 1, (*shape[:-1], 5000)
    x, i, y = (
        g.add_input(n, TensorType(t, s)) for n, t, s in (("x", "f32", shape), ("i", "i64", (5000,)), ("y", "f32", made))
    )
    g.add_output(g.add("add", g.add("index", x, i, dims=(dim,)), y))
    numbers, (a, b) = np.random.default_rng(0).integers(-90, 90, 5000), random(("f32", shape), ("f32", made))
    assert "known_block_size = array<i32: 512, 1, 1>" in check(g, [a, numbers, b])
    own = graph_of("gather", ("f32", (20, 90)), ("i64", (20, 1500)), dim=1)  # each row has numbers of its own
    arrays = [*random(("f32", (20, 90))), np.random.default_rng(0).integers(0, 90, (20, 1500))]
    assert "known_block_size = array<i32: 512, 1, 1>" not in check(own, arrays)


def test_concat_chooses_for_whole_vectors():
    g = Graph()
    a, b = g.add_input("a", TensorType("f32", (300, 256))), g.add_input("b", TensorType("f32", (300, 512)))
    g.add_output(g.add("concat", a, b, dim=1))
    check(g, random(("f32", (300, 256)), ("f32", (300, 512))))
