"""GPU kernels of sums over columns and everything, simulated on the CPU and compared with numpy.

Few and very long rows in chunks, columns in chunks, several reductions in one pass.
"""

import numpy as np
import pytest
from support.graph_kernel import graph_of
from support.simulated import ALIGNED, check, random

from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, TensorType
from lamina.passes.gpu.loops import emit_reductions
from lamina.passes.gpu.loops.rounds import even_unroll


@pytest.mark.parametrize("over", [0, 1])
def test_terms_of_a_sum_that_are_products_are_added_in_one_instruction(over):
    g = Graph()
    x, y = (g.add_input(n, TensorType("f32", (300, 500))) for n in "xy")
    g.add_output(g.add("sum", g.add("mul", x, y), dims=(over,), keepdim=False, dtype="f32"))
    text = check(g, random(("f32", (300, 500)), ("f32", (300, 500))), 2e-4)
    assert "math.fma" in text


SUMS = [((70000,), (0,)), ((300, 257), (0,)), ((4096, 64), (0,)), ((20, 30, 44), (0, 2)), ((6, 500, 8), (1,)), ((2, 90001), (1,)), ((6, 1280), (1,)), ((5000, 3), (0, 1))]  # fmt: skip


@pytest.mark.parametrize("op", ["sum", "argmax", "amax", "var_mean"])
@pytest.mark.parametrize(("shape", "over"), SUMS, ids=str)
def test_reductions(op, shape, over):
    if op == "argmax" and len(over) > 1:
        over = over[:1]
    extra = {"correction": 1.0} if op == "var_mean" else {}
    check(graph_of(op, ("f32", shape), dims=over, keepdim=False, **extra), random(("f32", shape)), 2e-4)


@pytest.mark.parametrize("options", ["", "{wave=64}", "{aligned=true clusters=true}"])
@pytest.mark.parametrize("op", ["any", "all", "amax", "amin", "argmax", "argmin"])
@pytest.mark.parametrize(("shape", "over"), [((70000,), 0), ((3, 9001), 1), ((300, 64), 0), ((9, 700), 1)], ids=str)
def test_bools_are_reduced_by_many_threads(op, shape, over, options):
    rare = np.zeros(shape, bool)
    rare[(shape[0] - 2, *(s // 3 for s in shape[1:]))] = True
    for x in (rare, ~rare, np.zeros_like(rare), ~np.zeros_like(rare)):
        text = check(graph_of(op, ("bool", shape), dims=(over,), keepdim=False), [x], options=options)
        assert "gpu.barrier" in text or "gpu.shuffle" in text or "nvvm.cluster" in text


@pytest.mark.parametrize(("shape", "over", "threads"), [((300, 1025), 0, 512), ((2, 4, 300000), 1, 256)], ids=str)
def test_blocks_of_column_sums(shape, over, threads):
    text = check(graph_of("sum", ("f32", shape), dims=(over,), keepdim=False), random(("f32", shape)), 2e-4)
    assert f"known_block_size = array<i32: {threads}, 1, 1>" in text
    assert ("gpu.barrier" in text) == (threads == 512)  # so many columns need no slices


# rows that begin anywhere: whose buffer ends with a vector or not, in chunks, of several rows of results, of all results
ANYWHERE = [
    ((72, 301), 0),
    ((531, 515), 0),
    ((3, 66, 257), 1),
    ((90, 258), 0),
    ((65, 260), 0),
    ((40, 3, 333), 0),
    ((33, 25, 41), 0),
]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("op", ["sum", "argmax"])
@pytest.mark.parametrize(("shape", "over"), ANYWHERE, ids=str)
def test_columns_of_rows_that_begin_anywhere_are_read_in_whole_vectors(op, shape, over, dtype):
    text = check(graph_of(op, (dtype, shape), dims=(over,), keepdim=False), random((dtype, shape)), 2e-4, ALIGNED)
    assert "alignment = 16 : i64" in text and "llvm.intr.fshr" not in text


@pytest.mark.parametrize("rows", [264, 265, 300, 527])
def test_chunks_of_column_sums_are_of_all_rows_once(rows):
    text = check(
        graph_of("sum", ("bf16", (rows, 515)), dims=(0,), keepdim=False), random(("bf16", (rows, 515))), 2e-4, ALIGNED
    )
    assert text.count("gpu.func @") == 2


@pytest.mark.parametrize(("steps", "most", "unroll"), [(34, 8, 7), (32, 8, 8), (3, 8, 3), (9, 8, 5), (0, 8, 1)])
def test_rounds_are_about_equally_long(steps, most, unroll):
    assert even_unroll(steps, most) == unroll
    assert even_unroll(symbol("n"), most) == most


@pytest.mark.parametrize("shape", [(300, 301), (129, 515)], ids=str)
def test_values_of_columns_are_read_inside_their_row(shape):
    """The squares of a variance: the means lie in scratch memory, aligned as their row is."""
    check(
        graph_of("var_mean", ("f32", shape), dims=(0,), keepdim=False, correction=1.0),
        random(("f32", shape)),
        2e-4,
        ALIGNED,
    )


def test_loads_of_short_sums_are_under_way_together():
    text = check(graph_of("sum", ("f32", (2, 24, 40000)), dims=(1,), keepdim=False), random(("f32", (2, 24, 40000))))
    assert text.count("memref.load") == 8 and "gpu.barrier" not in text


@pytest.mark.parametrize("columns", [301, 304])
def test_short_sums_of_rows_that_begin_anywhere_are_taken_by_blocks(columns):
    shape = (230, 40, columns)
    text = check(graph_of("sum", ("bf16", shape), dims=(1,), keepdim=False), random(("bf16", shape)), 2e-4, ALIGNED)
    assert text.count("gpu.func @") == 1 and ("gpu.barrier" in text) == (columns == 301)


def test_a_sum_of_everything_takes_two_stages():
    text = check(graph_of("sum", ("f32", (300, 500)), dims=(0, 1), keepdim=False), random(("f32", (300, 500))), 2e-4)
    assert text.count("gpu.func @") == 2


@pytest.mark.parametrize("op", ["sum", "argmax", "var_mean"])
@pytest.mark.parametrize(
    "length", [8192 * 9 + 2800, 8192 * 8, 30001]
)  # the last round a part of one, whole, of elements
@pytest.mark.parametrize("rows", [1, 2])
def test_chunks_take_rounds_in_turn(op, length, rows, monkeypatch):
    """Four blocks have more than one round each; positions of equal extremes are in chunks that are out of order."""
    monkeypatch.setattr(emit_reductions, "ROW_BLOCKS", 4)
    x = np.random.default_rng(length).integers(-9, 9, (rows, length)).astype(np.float32)
    text = check(graph_of(op, ("f32", x.shape), dims=(1,), keepdim=False), [x], 2e-4)
    assert text.count("gpu.func @") == (4 if op == "var_mean" else 2)


def sums_of_pairs(shape, over, dependent=False):
    """`sum(x * w)`, `max(y)` and the count of `y > 0`, or of y above the mean of x; their ratio, and the maximum."""
    g = Graph()
    x, y, w = (g.add_input(n, TensorType("f32", s)) for n, s in (("x", shape), ("y", shape), ("w", shape[-1:])))
    reduced = dict(dims=over, keepdim=False, dtype="f32")
    least = g.add("mean", x, dims=over, keepdim=True) if dependent else g.add("full", shape=(), value=0.0, dtype="f32")
    count = g.add("sum", g.add("cast", g.add("gt", y, least), dtype="f32"), **reduced)
    total = g.add("sum", g.add("mul", x, w), **reduced)
    g.add_output(g.add("div", total, count, rounding="none"))
    g.add_output(g.add("amax", y, dims=over, keepdim=False))
    return g


PAIRS = [
    ((300, 1025), (0,), 2),
    ((2, 40, 300), (1,), 1),
    ((300, 500), (0, 1), 2),
    ((30, 300), (1,), 1),
    ((9000,), (0,), 2),
]


@pytest.mark.parametrize("options", ["", "{wave=64}", ALIGNED], ids=["", "wave of 64", "aligned"])
@pytest.mark.parametrize(("shape", "over", "stages"), PAIRS, ids=str)
def test_reductions_over_one_space_are_one_pass(shape, over, stages, options):
    text = check(sums_of_pairs(shape, over), random(*(("f32", s) for s in (shape, shape, shape[-1:]))), 2e-4, options)
    assert text.count("gpu.func @") == stages


@pytest.mark.parametrize(("shape", "over"), [p[:2] for p in PAIRS], ids=str)
def test_a_reduction_waits_for_those_that_it_needs(shape, over):
    g, arrays = sums_of_pairs(shape, over, dependent=True), random(*(("f32", s) for s in (shape, shape, shape[-1:])))
    check(g, arrays, 2e-4)


def test_sums_over_rows_stay_along_columns_beside_values_of_a_row():
    """The gradient of a norm's weight: means and scales of rows are contiguous along what is summed, and small."""
    g = Graph()
    x, y = (g.add_input(n, TensorType("f32", (300, 128))) for n in "xy")
    m, r = (g.add_input(n, TensorType("f32", (300, 1))) for n in "mr")
    normal = g.add("mul", g.add("sub", x, m), r)
    for value in (y, g.add("mul", y, normal)):
        g.add_output(g.add("sum", value, dims=(0,), keepdim=False, dtype="f32"))
    text = check(g, random(*(("f32", s) for s in ((300, 128), (300, 128), (300, 1), (300, 1)))), 2e-4)
    assert text.count("gpu.func @") == 2 and "vector.load %arg0" in text


def test_reductions_that_are_read_another_way_have_stages_of_their_own():
    """The sum over columns of a transposed matrix is one along its rows."""
    g = Graph()
    x, y = (g.add_input(n, TensorType("f32", s)) for n, s in (("x", (300, 500)), ("y", (500, 300))))
    for value in (x, g.add("permute", y, dims=(1, 0))):
        g.add_output(g.add("sum", value, dims=(0,), keepdim=False, dtype="f32"))
    text = check(g, random(("f32", (300, 500)), ("f32", (500, 300))), 2e-4)
    assert text.count("gpu.func @") > 2
