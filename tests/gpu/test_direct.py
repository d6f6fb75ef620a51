"""Direct ops (sort, scan, scatter …) as GPU kernels: their samples, and large scratch, through the runtime on a fake driver."""

import numpy as np
import pytest
import torch
from support.fake_program import run_on_fake
from support.samples import assert_close, attributes, eager, from_torch, inferred, operands, type_of

from lamina.dialects.dims import symbol
from lamina.dialects.op import all_ops
from lamina.dialects.record import Graph, Symbol, TensorType

DIRECT = {n: op for n, op in all_ops().items() if op.category == "direct" and op.samples}


@pytest.mark.parametrize("name", DIRECT)
def test_samples(name, monkeypatch):
    op = DIRECT[name]
    graph, arrays, expected = Graph(name), [], []
    for number, sample in enumerate(op.samples):
        values = []
        for k, x in enumerate(operands(sample)):
            values.append(None if x is None else graph.add_input(f"x{number}_{k}", type_of(x)))
            arrays += [] if x is None else [x]
        made = graph.add(name, *values, **attributes(op, sample))
        for value in made if isinstance(made, tuple) else (made,):
            graph.add_output(value)
        expected += eager(op, sample)[: len(inferred(op, sample))]
    for made, wanted in zip(run_on_fake(graph, arrays, monkeypatch), expected):
        assert_close(made, wanted, "exact" if op.numerics == "exact" else "order")


SYMBOLIC = {
    "cumsum": ({"dim": 0}, lambda x, i, w: x.cumsum(0)),
    "cummax": ({"dim": 1}, lambda x, i, w: x.cummax(1)),
    "topk": ({"k": 2, "dim": 1, "largest": True, "sorted": True}, lambda x, i, w: x.topk(2, 1)),
    "sort": ({"dim": 0, "descending": False, "stable": True}, lambda x, i, w: x.sort(dim=0, stable=True)),
    "index_put": ({"dims": (0,), "accumulate": True}, lambda x, i, w: x.index_put((i,), w, accumulate=True)),
    "slice_scatter": ({"starts": (1, 0), "steps": (1, 1)}, lambda x, i, w: x.slice_scatter(w, 0, 1, 4)),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name, monkeypatch):
    """The root's result has a size that no op of the kernel says."""
    attributes, function = SYMBOLIC[name]
    x, i, w = torch.randn(9, 5), torch.tensor([3, 0, 3]), torch.randn(3, 5)
    graph = Graph(symbols=[Symbol("n", input=0, dim=0)])
    given = [graph.add_input("x", TensorType("f32", (symbol("n"), 5)))]
    more = [graph.add_input("w", TensorType("f32", (3, 5))), graph.add_input("i", TensorType("i64", (3,)))]
    given += {"index_put": more, "slice_scatter": more[:1]}.get(name, [])
    made = graph.add(name, *given, **attributes)
    for value in made if isinstance(made, tuple) else (made,):
        graph.add_output(value)
    expected = function(x, i, w)
    results = run_on_fake(graph, [x.numpy(), w.numpy(), i.numpy()], monkeypatch, sizes=[9])
    for got, wanted in zip(results, expected if isinstance(made, tuple) else (expected,)):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 150), (70, 66)])
def test_sort_has_room_for_every_row(shape, monkeypatch):
    graph = Graph()
    for value in graph.add(
        "sort", graph.add_input("x", TensorType("f32", shape)), dim=1, descending=False, stable=True
    ):
        graph.add_output(value)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    values, indices = run_on_fake(graph, [x], monkeypatch)
    np.testing.assert_array_equal(values, np.sort(x, 1))
    np.testing.assert_array_equal(indices, np.argsort(x, 1, kind="stable"))


@pytest.mark.parametrize("dims, indices", [((2,), [(5,)]), ((0, 2), [(3, 1), (4,)]), ((1,), [()])])
def test_index_put_of_many_positions_copies_then_writes(dims, indices, monkeypatch):
    """Operands larger than the threads that copy share, written at different positions."""
    rng = np.random.default_rng(0)
    shape = (3, 4, 40, 160)
    places = [rng.permutation(shape[d])[: max(1, int(np.prod(i)))].reshape(i) for d, i in zip(dims, indices)]
    x = rng.standard_normal(shape).astype(np.float32)
    at = [slice(None)] * 4
    for d, place in zip(dims, places):
        at[d] = place
    value = rng.standard_normal(x[tuple(at)].shape).astype(np.float32)
    graph = Graph()
    given = [graph.add_input(f"i{n}", TensorType("i64", i)) for n, i in enumerate(indices)]
    inputs = [graph.add_input("x", TensorType("f32", shape)), graph.add_input("value", TensorType("f32", value.shape))]
    graph.add_output(graph.add("index_put", *inputs, *given, dims=dims, accumulate=False))
    (made,) = run_on_fake(graph, [*places, x, value], monkeypatch)
    x[tuple(at)] = value
    np.testing.assert_array_equal(made, x)


def test_a_failed_check_is_not_written_over_by_threads_that_pass(monkeypatch):
    graph = Graph()
    inputs = [graph.add_input("x", TensorType("f32", (9, 8))), graph.add_input("value", TensorType("f32", (4, 8)))]
    place = graph.add_input("i", TensorType("i64", (4,)))
    graph.add_output(graph.add("index_put", *inputs, place, dims=(0,), accumulate=False))
    arrays = [np.zeros((9, 8), np.float32), np.ones((4, 8), np.float32), np.array([1, 9, 0, 2])]
    with pytest.raises(IndexError):
        run_on_fake(graph, arrays, monkeypatch)


# one round of one segment, of several; rounds of few columns and of many, ragged in both; segments that have no row
COLUMNS = [
    ("cumsum", "f32", (3, 7, 300)),
    ("cumsum", "bf16", (2, 30, 40)),
    ("cumprod", "f32", (1, 531, 3)),
    ("cumsum", "i64", (2, 300, 33)),
    ("cumsum", "f64", (33, 1000)),
    ("cumsum", "f32", (70, 40000)),
]


@pytest.mark.parametrize("op, dtype, shape", COLUMNS, ids=str)
def test_a_scan_of_columns_takes_segments_of_rows(op, dtype, shape, monkeypatch):
    graph, rng = Graph(), np.random.default_rng(0)
    dim = len(shape) - 2
    graph.add_output(graph.add(op, graph.add_input("x", TensorType(dtype, shape)), dim=dim))
    x = torch.from_numpy(rng.integers(-9, 9, shape) if dtype == "i64" else rng.uniform(0.9, 1.1, shape))
    x = x.to({"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64}[dtype])
    (made,) = run_on_fake(graph, [from_torch(x)], monkeypatch)
    wide = x if dtype == "i64" else x.double()
    expected = from_torch(getattr(wide, op)(dim).to(x.dtype))
    np.testing.assert_allclose(made.astype(np.float64), expected.astype(np.float64), rtol={"f32": 3e-7, "bf16": 8e-3}.get(dtype, 1e-12))  # fmt: skip


def test_a_scan_of_columns_of_symbolic_size(monkeypatch):
    graph = Graph(symbols=[Symbol("n", input=0, dim=0), Symbol("m", input=0, dim=1)])
    x = graph.add_input("x", TensorType("f32", (symbol("n"), symbol("m"))))
    graph.add_output(graph.add("cumsum", graph.add("mul", x, x), dim=0))
    for sizes in ((200, 37), (3, 65), (1, 1), (0, 4), (5, 0)):
        given = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
        (made,) = run_on_fake(graph, [given], monkeypatch, sizes=sizes)
        np.testing.assert_allclose(made, np.cumsum(np.square(given).astype(np.float64), 0), rtol=1e-6)


@pytest.mark.parametrize(
    "op, dtype, shape", [("cumsum", "i64", (2, 2100)), ("cumsum", "f32", (3, 1001)), ("cumprod", "f32", (2, 300))]
)
def test_a_scan_of_long_rows_takes_rounds_of_a_block(op, dtype, shape, monkeypatch):
    graph, rng = Graph(), np.random.default_rng(0)
    graph.add_output(graph.add(op, graph.add_input("x", TensorType(dtype, shape)), dim=1))
    x = rng.integers(-9, 9, shape) if dtype == "i64" else rng.uniform(0.9, 1.1, shape).astype(np.float32)
    (made,) = run_on_fake(graph, [x], monkeypatch)
    wide = x.astype(np.float64) if dtype == "f32" else x
    np.testing.assert_allclose(made, getattr(np, op)(wide, 1), rtol=1e-6)
