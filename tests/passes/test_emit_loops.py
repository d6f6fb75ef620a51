"""The loop emitter on fused programs, against the interpreter of graph records, torch and float64."""

import numpy as np
import pytest
import torch
from mlir import ir
from support.graph_kernel import graph_kernel, graph_module, run_both
from support.random_graph import random_graph

from lamina.dialects import dims
from lamina.dialects.dtypes import DTYPES
from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.record import Graph, Symbol, TensorType
from lamina.passes.loops.emit_loops import emit_loops


def _graph(name, types, build, symbols=()):
    g = Graph(name, [Symbol(s, input=i, dim=d) for s, i, d in symbols])
    made = build(g, *(g.add_input(f"x{i}", t) for i, t in enumerate(types)))
    for v in made if isinstance(made, tuple) else (made,):
        g.add_output(v)
    return g


def _f32(*shape):
    return TensorType("f32", shape)


def _close(graph, inputs, rtol=2e-5):
    got, expected = run_both(graph, inputs)
    for a, e in zip(got, expected):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("seed", range(16))
def test_random_programs(seed):
    _close(*random_graph(seed, dynamic=seed % 2 == 1), rtol=3e-5)


def test_a_row_sum_and_its_softmax_share_one_nest():
    g = _graph("s", [_f32(6, 40)], lambda g, x: (g.add("softmax", x, dim=1), g.add("sum", x, dims=(1,), dtype="f32")))
    kernel = graph_kernel(g)
    assert kernel.llvm_ir.count("fadd reassoc float") == 2  # each sum has one loop
    _close(g, [np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)])


def test_softmax_computes_each_exponential_once():
    text = graph_kernel(_graph("s", [_f32(6, 40)], lambda g, x: g.add("softmax", x, dim=1))).llvm_ir
    assert text.count("float 0x4168000000000000") == 1  # the constant that rounds: one expansion
    assert text.count("fdiv") == 1


def test_softmax_reaches_denormals_and_zero():
    row = np.float32([0, -1, -86, -88, -95, -100, -103.2, -104.5, -1e30, -np.inf])
    x = np.stack([row, row + np.float32(50), row[::-1]])
    got = graph_kernel(_graph("s", [_f32(*x.shape)], lambda g, x: g.add("softmax", x, dim=1)))(x)
    exact = torch.softmax(torch.tensor(x, dtype=torch.float64), 1).numpy()
    np.testing.assert_allclose(got, exact, rtol=3e-7, atol=1.5e-45)  # the least denormal is 1.4e-45
    assert (got[0, 7:] == 0).all() and 0 < got[0, 6] < 1e-44


@pytest.mark.parametrize("shape, dim", [((7, 33), 0), ((7, 64), 0), ((3, 5, 40), 1), ((2, 9, 4), 1), ((1, 8), 0)])
def test_softmax_along_columns(shape, dim):
    g = _graph("s", [_f32(*shape)], lambda g, x: g.add("softmax", x, dim=dim))
    _close(g, [np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 5])


@pytest.mark.parametrize("d", [dims.symbol("d0"), 50])
def test_layer_norm_with_weights(d):
    symbols = [("d0", 0, 0)] if not isinstance(d, int) else []
    g = _graph(
        "ln",
        [_f32(d, 96), _f32(96), _f32(96)],
        lambda g, x, w, b: g.add("layer_norm", x, w, b, dims=1, eps=1e-5)[0],
        symbols,
    )
    rng = np.random.default_rng(0)
    _close(g, [rng.standard_normal(s).astype(np.float32) for s in ((50, 96), (96,), (96,))])


@pytest.mark.parametrize("op", ["amax", "amin"])
def test_extremes_of_one_sign_and_of_zeros(op):
    rng = np.random.default_rng(0)
    positive = (rng.random(40) + 1e-40).astype(np.float32)
    zeros = np.where(rng.random(40) < 0.5, 0, -0.0).astype(np.float32)
    tiny = np.full(40, -1e-45, np.float32)
    x = np.stack([positive, np.abs(zeros), zeros, -np.abs(zeros), -positive, tiny])
    got, _ = run_both(_graph(op, [_f32(6, 40)], lambda g, x: g.add(op, x, dims=(1,))), [x])
    expected = {"amax": np.max, "amin": np.min}[op](x, axis=1)
    np.testing.assert_array_equal(got[0], expected)
    assert np.signbit(got[0]).tolist() == [False, False, op == "amin", True, True, True]  # -0 is below +0


@pytest.mark.parametrize("nan", [np.nan, -np.nan])
@pytest.mark.parametrize("op, dims", [("amax", (1,)), ("amin", (1,)), ("amax", (0,)), ("amin", (0,))])
def test_nan_wins_in_extremes(op, dims, nan):
    x = np.random.default_rng(0).standard_normal((9, 40)).astype(np.float32)
    x[2, 5], x[3, :], x[4, 0] = nan, np.inf, -np.inf
    g = _graph(op, [_f32(9, 40)], lambda g, x: g.add(op, x, dims=dims))
    got, _ = run_both(g, [x])
    expected = getattr(torch, op)(torch.tensor(x), dims).numpy()
    np.testing.assert_array_equal(got[0], expected)


@pytest.mark.parametrize(
    "shape, dims", [((300000,), (0,)), ((2000, 16), (0,)), ((3, 70000), (1,)), ((40, 8, 900), (0, 2))]
)
def test_long_sums_are_as_accurate_as_eager(shape, dims):
    x = np.random.default_rng(0).uniform(0, 1, shape).astype(np.float32)
    g = _graph("sum", [_f32(*shape)], lambda g, v: g.add("sum", v, dims=dims, dtype="f32"))
    got = graph_kernel(g)(x)
    exact = x.sum(axis=dims, dtype=np.float64)
    eager = torch.tensor(x).sum(dims).numpy()
    worst = np.abs(got - exact).max()
    assert worst <= 2 * np.abs(eager - exact).max() + np.spacing(np.float32(exact.max()))


def test_results_of_two_sizes_without_a_common_row():
    g = _graph("two", [_f32(5, 7), _f32(11)], lambda g, x, y: (g.add("exp", x), g.add("neg", y)))
    rng = np.random.default_rng(0)
    _close(g, [rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal(11).astype(np.float32)])


def test_concat_of_computed_parts():
    g = _graph("cat", [_f32(4, 3, 5), _f32(4, 2, 5)], lambda g, x, y: g.add("concat", g.add("exp", x), y, dim=1))
    rng = np.random.default_rng(0)
    _close(g, [rng.standard_normal(s).astype(np.float32) for s in ((4, 3, 5), (4, 2, 5))])


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_permuted_pointwise(order):
    g = _graph("p", [_f32(6, 10, 24)], lambda g, x: g.add("relu", g.add("permute", x, dims=order)))
    _close(g, [np.random.default_rng(0).standard_normal((6, 10, 24)).astype(np.float32)])


@pytest.mark.parametrize("shape", [(0, 5), (5, 0)])
def test_empty_dimensions(shape):
    g = _graph("e", [_f32(*shape)], lambda g, x: (g.add("exp", x), g.add("sum", x, dims=(1,), dtype="f32")))
    got = graph_kernel(g)(np.zeros(shape, np.float32))
    assert got[0].shape == shape
    np.testing.assert_array_equal(got[1], np.zeros(shape[0], np.float32))


@pytest.mark.parametrize("rows, columns", [(40, 70), (5, 7), (17, 32), (64, 16)])
def test_dynamic_sizes_take_blocks_where_they_fit(rows, columns):
    d0, d1 = dims.symbol("d0"), dims.symbol("d1")
    symbols = [("d0", 0, 0), ("d1", 0, 1)]
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    sums = _graph("sum", [_f32(d0, d1)], lambda g, x: g.add("sum", x, dims=(0,), dtype="f32"), symbols)
    _close(sums, [x])
    _close(_graph("softmax", [_f32(d0, d1)], lambda g, x: g.add("softmax", x, dim=0), symbols), [x])
    turned = _graph("t", [_f32(d0, d1)], lambda g, x: g.add("exp", g.add("permute", x, dims=(1, 0))), symbols)
    _close(turned, [x])


@pytest.mark.parametrize("parts, size, columns", [(2, 8, 12), (3, 8, 20), (2, 6, 12), (2, 8, 16)])
def test_lanes_over_the_seam_of_a_merged_dim(parts, size, columns):
    def build(g, x, y):  # columns of x are (part, position): the last lanes begin between two multiples of their number
        x = g.add("reshape", g.add("permute", x, dims=(1, 0, 2)), shape=(40, parts * size))
        x = g.add("slice", x, starts=(0, 0), sizes=(40, columns), steps=(1, 1))
        return g.add("sum", g.add("add", x, y), dims=(0,))

    shapes = (parts, 40, size), (40, columns)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    _close(_graph("k", [_f32(*s) for s in shapes], build), inputs)


@pytest.mark.parametrize("shape", [(16, 16), (33, 50), (3, 20, 18)])
def test_transposed_operand_of_a_pointwise_op(shape):
    other = (*shape[:-2], shape[-1], shape[-2])
    last = tuple(range(len(shape) - 2)) + (len(shape) - 1, len(shape) - 2)
    build = lambda g, x, y: g.add("add", g.add("permute", x, dims=last), y)
    rng = np.random.default_rng(0)
    _close(
        _graph("t", [_f32(*shape), _f32(*other)], build),
        [rng.standard_normal(s).astype(np.float32) for s in (shape, other)],
    )


@pytest.mark.parametrize("shape", [(2, 24, 40), (2, 5, 7), (1, 12, 16)])
def test_norm_over_channels_that_come_first(shape):
    def build(g, x, w):
        y, mean, _ = g.add("layer_norm", g.add("permute", x, dims=(0, 2, 1)), w, w, dims=1, eps=1e-5)
        return y, mean

    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in (shape, shape[1:2])]
    _close(_graph("ln", [_f32(*shape), _f32(shape[1])], build), inputs)


def test_a_tile_does_not_outlive_the_branch_that_read_it():
    build = lambda g, x, y: g.add("concat", x, g.add("permute", y, dims=(0, 2, 1)), dim=1)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in ((1, 1, 24), (1, 24, 16))]
    _close(_graph("cat", [_f32(1, 1, 24), _f32(1, 24, 16)], build), inputs)


@pytest.mark.parametrize(
    "op, attributes, columns, wide",
    [
        ("sum", {"dims": (1,), "dtype": "f32"}, 1024, 1),
        ("sum", {"dims": (1,), "dtype": "f32"}, 5000, 1),  # in blocks
        ("sum", {"dims": (1,), "dtype": "f32"}, 100, 0),
        ("mean", {"dims": (1,)}, 1024, 1),
        ("amax", {"dims": (1,)}, 1024, 0),
        ("softmax", {"dim": 1}, 1024, 0),  # exponentials need the registers
    ],
)
def test_long_cheap_sums_have_eight_accumulators(op, attributes, columns, wide):
    with ir.Context(), ir.Location.unknown():
        module = graph_module(_graph("s", [_f32(3, columns)], lambda g, x: g.add(op, x, **attributes)))
        emit_loops(module)
        notes: list[str] = []

        def note(op):
            notes.append(str(op.attributes["loop_annotation"]) if "loop_annotation" in op.attributes else "")
            return ir.WalkResult.ADVANCE

        module.operation.walk(note)
    assert sum("interleave = <count = 8" in n for n in notes) == wide


@pytest.mark.parametrize(
    "shape, dtype, rows",
    [
        ((7, 1024), "f32", 1),
        ((5, 1000), "f32", 1),  # blocks of 256, 256, 256 and 232
        ((2, 3, 300), "f32", 1),
        ((5, 2304), "f32", 0),  # with the next row and the result it would not stay in a first-level cache
        ((5, 2304), "bf16", 1),
        ((9, 96), "f32", 0),
    ],
)
def test_a_norm_asks_for_its_next_row(shape, dtype, rows):
    columns = shape[-1]
    types = [TensorType(dtype, s) for s in (shape, shape, (columns,))]

    def build(g, x, y, w):
        return g.add("layer_norm", g.add("add", x, y), w, None, dims=1, eps=1e-5)[0]

    g = _graph("ln", types, build)
    assert graph_kernel(g).llvm_ir.count("call void @llvm.prefetch") == 2 * rows  # x and y, not the weight
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape).astype(numpy_dtype(dtype)) for t in types]
    _close(g, inputs, rtol=2e-5 if dtype == "f32" else 2e-2)


@pytest.mark.parametrize("op, attributes", [("exp", {}), ("sum", {"dims": (1,), "dtype": "f32"})])
def test_what_reads_a_row_once_asks_for_nothing(op, attributes):
    g = _graph("k", [_f32(7, 1024)], lambda g, x: g.add(op, x, **attributes))
    assert "llvm.prefetch" not in graph_kernel(g).llvm_ir


def test_a_mean_of_a_small_window_stays_a_loop_for_the_vectoriser():
    text = graph_kernel(_graph("m", [_f32(64, 49)], lambda g, x: g.add("mean", x, dims=(1,)))).llvm_ir
    assert "llvm.loop.unroll.disable" in text


def test_gelu_is_more_accurate_than_eager():
    x = np.linspace(-12, 12, 40001).astype(np.float32)
    got = graph_kernel(_graph("gelu", [_f32(40001)], lambda g, x: g.add("gelu", x)))(x)
    exact = torch.nn.functional.gelu(torch.tensor(x, dtype=torch.float64)).numpy()
    eager = torch.nn.functional.gelu(torch.tensor(x)).numpy()
    assert np.abs(got - exact).max() <= 1.1 * np.abs(eager - exact).max()
    middle = np.abs(x) < 5  # in float64, torch's gelu itself cancels below
    np.testing.assert_allclose(got[middle], exact[middle], rtol=4e-6, atol=1e-40)


def test_long_symbolic_rows_are_shared_between_threads():
    d0, d1 = dims.symbol("d0"), dims.symbol("d1")
    g = _graph("s", [_f32(d0, d1)], lambda g, x: g.add("sum", x, dims=(1,), dtype="f32"), [("d0", 0, 0), ("d1", 0, 1)])
    with ir.Context(), ir.Location.unknown():
        module = graph_module(g)
        emit_loops(module)
        grain = ir.StringAttr(module.body.operations[0].attributes["lamina.grain"]).value
    assert dims.evaluate(dims.parse(grain), {"d1": 1 << 20}) == 1


@pytest.mark.parametrize("dtype", ["f32", "i64", "u8"])
@pytest.mark.parametrize("shape, dim", [((5, 100), 1), ((100, 40), 0), (("d0", "d1"), 1)])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_of_an_extreme_is_the_first(name, shape, dim, dtype):
    sizes = [dims.parse(d) if isinstance(d, str) else d for d in shape]
    symbols = [(d, 0, i) for i, d in enumerate(shape) if isinstance(d, str)]
    g = _graph("a", [TensorType(dtype, tuple(sizes))], lambda g, x: g.add(name, x, dims=(dim,)), symbols)
    actual = tuple(70 if isinstance(d, str) else d for d in shape)
    x = np.random.default_rng(0).integers(0, 9, actual)  # many equal ones
    if dtype == "f32":
        x = np.where(x == 0, -0.0, np.where(x == 8, -np.inf if name == "argmax" else np.inf, x - 1.0))
        x[0] = np.nan
        x[1:3, 1] = x[2, 3] = np.nan
    (got,), (expected,) = run_both(g, [x.astype(DTYPES[dtype].numpy)])
    np.testing.assert_array_equal(got, expected)


def test_position_of_an_extreme_of_sums_reads_each_once():
    """Sums that are made twice may differ by rounding, and the extreme would not be found again."""
    build = lambda g, x: g.add("argmax", g.add("sum", x, dims=(2,), dtype="f32"), dims=(1,))
    _close(_graph("a", [_f32(3, 20, 50)], build), [np.random.default_rng(0).standard_normal((3, 20, 50), np.float32)])


@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("dtype, kind", [("f32", "u4"), ("f64", "u8")])
def test_extremes_of_infinities_and_nans_of_both_signs(name, dtype, kind):
    nan = np.array(np.nan, DTYPES[dtype].numpy)
    negative = (nan.view(kind) | (1 << nan.itemsize * 8 - 1)).astype(kind).view(nan.dtype)
    rows = np.array([[-np.inf, -np.inf], [np.inf, np.inf], [-np.inf, 3], [nan, 1], [negative, 1], [np.inf, nan]])
    x = np.repeat(rows.astype(nan.dtype), 20, axis=1)
    x[4, :20] = negative
    g = _graph("m", [TensorType(dtype, x.shape)], lambda g, x: g.add(name, x, dims=(1,)))
    np.testing.assert_array_equal(graph_kernel(g)(x), getattr(np, name)(x, axis=1))


@pytest.mark.parametrize("shape, dim", [((6, 40), 1), ((40, 64), 0)])
def test_a_sum_of_products_multiplies_and_adds_at_once(shape, dim):
    build = lambda g, x: g.add("sum", g.add("mul", x, x), dims=(dim,), dtype="f32")
    g = _graph("s", [_f32(*shape)], build)
    assert "llvm.fmuladd" in graph_kernel(g).llvm_ir
    _close(g, [np.random.default_rng(0).standard_normal(shape).astype(np.float32)])


def _interleaved(g, x, y):
    return g.add("concat", g.add("mul", x, x), g.add("sub", x, y), y, dim=2)


def test_elements_of_several_tensors_in_turn_are_stored_without_a_choice():
    g = _graph("c", [_f32(6, 40, 1), _f32(6, 40, 1)], _interleaved)
    text = graph_kernel(g).llvm_ir
    assert "select" not in text.split("define")[1] and "urem" not in text
    rng = np.random.default_rng(0)
    _close(g, [rng.standard_normal((6, 40, 1)).astype(np.float32) for _ in range(2)])


def test_elements_of_several_tensors_in_turn_of_a_symbolic_size():
    n = dims.symbol("d0")
    g = _graph("c", [_f32(n, 5, 1), _f32(n, 5, 1)], _interleaved, [("d0", 0, 0)])
    rng = np.random.default_rng(0)
    _close(g, [rng.standard_normal((7, 5, 1)).astype(np.float32) for _ in range(2)])
