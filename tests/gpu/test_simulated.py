"""GPU kernels of pointwise, row, reduction and gather graphs, simulated on the CPU and compared with numpy.

The shapes reach what samples are too small for: rows in registers with a masked tail, rows of a warp, long rows in a
loop, few and very long rows in chunks, sums along columns in chunks, vectors and their tails, unrolled vectors.
"""

import re
import warnings

import ml_dtypes
import numpy as np
import pytest
from mlir import ir
from support.graph_kernel import graph_module
from support.random_graph import random_graph
from support.simulate_gpu import simulate

from lamina.dialects import interpret
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType
from lamina.passes.gpu.loops import emit_gathers, emit_pointwise
from lamina.passes.pass_manager import run


def storage(dtype):
    """How the elements of a dtype lie in memory, as the simulator has them: signless, bool as i8."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.dtype(np.int8)
    return np.dtype(dtype.str.replace("u", "i")) if dtype.kind == "u" else dtype


def run_simulated(graph, arrays, options=""):
    """The outputs of `graph` as one simulated kernel, and those of the interpreter."""
    expected = [np.asarray(x) for x in interpret.run(graph, arrays)]
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = graph_module(graph)
        run(module, "lamina-emit-gpu-loops" + options)
        symbols = interpret.symbol_values(graph, arrays)
        made, status = simulate(
            module,
            [np.ascontiguousarray(a).view(storage(a.dtype)) for a in arrays],
            [(e.shape, storage(e.dtype)) for e in expected],
            [symbols[s.name] for s in graph.symbols],
        )
        text = str(module)
    assert status == 0
    return [m.view(e.dtype) for m, e in zip(made, expected)], expected, text


def check(graph, arrays, tolerance=2e-5, options=""):
    made, expected, text = run_simulated(graph, arrays, options)
    for m, e in zip(made, expected):
        if e.dtype.kind in "biu":
            np.testing.assert_array_equal(m, e)
        else:
            scale = 1.6e-2 if e.dtype == ml_dtypes.bfloat16 else tolerance
            np.testing.assert_allclose(m.astype(np.float64), e.astype(np.float64), rtol=scale, atol=scale)
    return text


def graph_of(op, *types, outputs=1, **attributes):
    g = Graph()
    made = g.add(op, *(g.add_input(f"x{i}", TensorType(t, s)) for i, (t, s) in enumerate(types)), **attributes)
    for value in made if isinstance(made, tuple) else (made,):
        g.add_output(value)
    return g


TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64}


def random(*types):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype(TYPES[t]) for t, s in types]


ALIGNED = "{aligned=true}"  # of a machine that loads vectors from multiples of their size only
ROWS = [(8, 4096), (3, 4097), (5, 1000), (4, 1500), (70, 100), (6, 16384), (2, 40000), (300, 7), (2, 3, 5, 256)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_softmax(shape, dtype):
    check(graph_of("softmax", (dtype, shape), dim=len(shape) - 1), random((dtype, shape)))


@pytest.mark.parametrize("shape", [(8, 4096), (5, 1000), (3, 777), (2, 40000)], ids=str)
def test_layer_norm_and_its_statistics(shape):
    types = ("bf16", shape), ("bf16", shape[-1:]), ("bf16", shape[-1:])
    check(graph_of("layer_norm", *types, dims=1, eps=1e-5), random(*types))


def test_what_stores_need_is_loaded_before_the_first_barrier():
    types = ("f32", (8, 4096)), ("f32", (4096,)), ("f32", (4096,))
    text = check(graph_of("layer_norm", *types, dims=1, eps=1e-5), random(*types))
    assert text.rindex("vector.load") < text.index("gpu.barrier")


@pytest.mark.parametrize("over", [0, 1])
def test_terms_of_a_sum_that_are_products_are_added_in_one_instruction(over):
    g = Graph()
    x, y = (g.add_input(n, TensorType("f32", (300, 500))) for n in "xy")
    g.add_output(g.add("sum", g.add("mul", x, y), dims=(over,), keepdim=False, dtype="f32"))
    text = check(g, random(("f32", (300, 500)), ("f32", (300, 500))), 2e-4)
    assert "math.fma" in text


EXP2 = "{exp2=llvm.nvvm.ex2.approx.ftz.f}"


def test_exponentials_of_16_bits_and_those_that_are_only_summed_are_rough():
    softmax = {t: graph_of("softmax", (t, (5, 300)), dim=1) for t in ("f32", "bf16")}
    texts = {t: check(g, random((t, (5, 300))), options=EXP2) for t, g in softmax.items()}
    assert "math.exp" in texts["f32"] and "math.exp" not in texts["bf16"]

    def summed(largest: str, uses: int) -> str:
        """`sum(exp(x - largest(x)))`, with so many uses of the exponentials."""
        g = Graph()
        x = g.add_input("x", TensorType("f32", (5, 300)))
        e = g.add("exp", g.add("sub", x, g.add(largest, x, dims=(1,), keepdim=True)))
        g.add_output(g.add("sum", e, dims=(1,), keepdim=False))
        if uses > 1:
            g.add_output(e)
        return check(g, random(("f32", (5, 300))), 1e-6 if uses == 1 else 2e-5, options=EXP2)

    assert "math.exp" not in summed("amax", 1)
    assert "math.exp" in summed("amin", 1) and "math.exp" in summed("amax", 2)


def test_softmax_over_a_middle_dimension():
    check(graph_of("softmax", ("f32", (3, 200, 40)), dim=1), random(("f32", (3, 200, 40))))


SUMS = [((70000,), (0,)), ((300, 257), (0,)), ((4096, 64), (0,)), ((20, 30, 44), (0, 2)), ((6, 500, 8), (1,)), ((2, 90001), (1,)), ((6, 1280), (1,)), ((5000, 3), (0, 1))]  # fmt: skip


@pytest.mark.parametrize("op", ["sum", "argmax", "amax", "var_mean"])
@pytest.mark.parametrize(("shape", "over"), SUMS, ids=str)
def test_reductions(op, shape, over):
    if op == "argmax" and len(over) > 1:
        over = over[:1]
    extra = {"correction": 1.0} if op == "var_mean" else {}
    check(graph_of(op, ("f32", shape), dims=over, keepdim=False, **extra), random(("f32", shape)), 2e-4)


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
    assert "llvm.intr.fshr" in check(g, arrays, options=ALIGNED) or dtype == "f32"
    assert "llvm.intr.fshr" not in check(g, arrays)


def row_graph(dtype, shape):
    """A norm with a weight, and the sum of its rows: vectors of what begins anywhere, and of what does not."""
    g = Graph()
    over = tuple(range(1, len(shape)))
    x, w = g.add_input("x", TensorType(dtype, shape)), g.add_input("w", TensorType(dtype, shape[1:]))
    g.add_output(g.add("layer_norm", x, w, None, dims=len(over), eps=1e-5)[0])
    g.add_output(g.add("sum", x, dims=over, keepdim=False))
    return g, random((dtype, shape), (dtype, shape[1:]))


# every place in a vector to begin at; a part of a warp, a warp, a block; a last vector for some rows only; two dimensions
ANYWHERE = [(9, 257), (5, 301), (3, 1022), (3, 1031), (9, 2051), (3, 7, 43)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", ANYWHERE, ids=str)
def test_reduced_rows_that_begin_anywhere_are_vectors(shape, dtype):
    graph, arrays = row_graph(dtype, shape)
    text = check(graph, arrays, 2e-4, ALIGNED)
    lanes = {"f32": 4, "bf16": 8}[dtype]
    if (dtype, shape[-1]) == ("f32", 1022):
        lanes = 2  # whole ones: shifting weights would cost what four lanes gain
    assert f"vector<{lanes}x{dtype}>" in next(line for line in text.splitlines() if "vector.store" in line)
    assert "fshr" in text if dtype == "bf16" else "arith.select" in text  # weights are shifted to where the row begins


@pytest.mark.parametrize("op", ["argmax", "sum"])
@pytest.mark.parametrize("dtype", ["i8", "i64"])
def test_integers_in_rows_that_begin_anywhere(op, dtype):
    x = np.random.default_rng(1).integers(-100, 100, (9, 333)).astype({"i8": np.int8, "i64": np.int64}[dtype])
    check(graph_of(op, (dtype, x.shape), dims=(1,), keepdim=False), [x])


def test_any_number_of_rows_that_begin_anywhere():
    g = Graph(symbols=[Symbol("s0", input=0, dim=0)])
    g.add_output(g.add("softmax", g.add_input("x", TensorType("bf16", (symbol("s0"), 515))), dim=1))
    for rows in (1, 6):
        assert "vector<8xbf16>" in check(g, random(("bf16", (rows, 515))))


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


def test_symbolic_rows_and_columns():
    g = Graph(symbols=[Symbol("s0", input=0, dim=0), Symbol("s1", input=0, dim=1)])
    x = g.add_input("x", TensorType("f32", (symbol("s0"), symbol("s1"))))
    y = g.add("softmax", x, dim=1)
    g.add_output(y)
    g.add_output(g.add("sum", y, dims=(0,), keepdim=False))
    g.add_output(g.add("add", x, y))
    for shape in (
        (7, 1500),
        (130, 33),
        (3, 512),
        (3, 513),
        (2, 4096),
        (2, 4097),
        (1, 8192),
        (1, 8200),
        (1, 16392),
    ):  # held up to 4096 by a block, up to 8192 and 16384 by larger ones
        check(g, random(("f32", shape)), 2e-4)


# shorter than what is worth it, just so long, as many vectors as a block holds, and as a larger one holds, more, none
LENGTHS = [(5, 255), (5, 259), (2, 4103), (2, 4105), (1, 8209), (3, 1001), (3, 0)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", LENGTHS, ids=str)
def test_symbolic_rows_that_begin_anywhere(shape, dtype):
    g = Graph(symbols=[Symbol("s0", input=0, dim=0), Symbol("s1", input=0, dim=1)])
    rows, columns = symbol("s0"), symbol("s1")
    x = g.add_input("x", TensorType(dtype, (rows, columns)))
    w = g.add_input("w", TensorType(dtype, (columns,)))
    g.add_output(g.add("softmax", x, dim=1) if shape[1] % 2 else g.add("sum", x, dims=(1,), keepdim=False))
    g.add_output(g.add("rms_norm", x, w, dims=1, eps=1e-5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the interpreter's mean of nothing
        text = check(g, random((dtype, shape), (dtype, shape[1:])), 2e-4, ALIGNED)
    assert ("llvm.intr.fshr" in text) == (dtype == "bf16")  # f32 moves by whole words


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


def test_a_sum_over_a_row_needs_sums_over_the_same_row():
    """Loops over a row, written ahead of a loop over it: each has its own position in the row."""
    g = Graph(symbols=[Symbol("s0", input=0, dim=0), Symbol("s1", input=0, dim=1)])
    x = g.add_input("x", TensorType("f32", (symbol("s0"), symbol("s1"))))
    g.add_output(g.add("sum", g.add("mul", g.add("softmax", x, dim=1), x), dims=(1,), keepdim=True, dtype="f32"))
    for size in ((3, 5), (2, 5000), (2, 33000)):
        check(g, random(("f32", size)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed, dynamic):
    graph, arrays = random_graph(seed, dynamic)
    check(graph, arrays, 1e-3)
