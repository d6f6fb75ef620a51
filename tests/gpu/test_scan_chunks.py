"""Scans of few rows or columns on GPUs: cut into chunks, whose totals are combined in one order."""

import numpy as np
import pytest
import torch
from support.fake_program import run_on_fake
from support.samples import from_torch

from lamina.compiler.api import show_ir
from lamina.dialects.dims import evaluate, symbol
from lamina.dialects.record import Graph, Symbol, TensorType
from lamina.passes.gpu.direct.scan_chunks import cut_scan

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64}


def graph_of(op, dtype, shape, dim, symbols=()):
    graph = Graph(symbols=list(symbols))
    x = graph.add_input("x", TensorType(dtype, shape))
    graph.add_output(graph.add(op, x, dim=dim))
    return graph


# a row of whole vectors and of single elements; several rows; chunks of three rounds and of eight, the last one short; columns
# of one block and of several, of one segment's lanes and of more; chunks of several rounds
CASES = [
    ("cumsum", "f32", (9000,), 0),
    ("cumsum", "i64", (20011,), 0),
    ("cumprod", "i64", (3, 5000), 1),
    ("cumsum", "bf16", (1, 20000), 1),
    ("cumsum", "f64", (264, 5000), 1),
    ("cumsum", "f32", (250, 4999), 1),
    ("cumsum", "f32", (1200, 16), 0),
    ("cumsum", "i64", (2, 1100, 37), 1),
    ("cumsum", "f64", (5000, 1, 3), 0),
    ("cumsum", "bf16", (1300, 2100), 0),
]


@pytest.mark.parametrize("op, dtype, shape, dim", CASES, ids=str)
def test_chunks_follow_one_another(op, dtype, shape, dim, monkeypatch):
    graph, rng = graph_of(op, dtype, shape, dim), np.random.default_rng(0)
    assert show_ir(graph, "loops", "sm_90a").count("gpu.func") == 2
    x = rng.integers(-9, 9, shape) if dtype == "i64" else rng.uniform(0.0, 1.0, shape)
    x = torch.from_numpy(x).to(DTYPES[dtype])
    (made,) = run_on_fake(graph, [from_torch(x)], monkeypatch)
    expected = getattr(x if dtype == "i64" else x.double(), op)(dim)
    if dtype == "i64":
        np.testing.assert_array_equal(made, expected.numpy())
    else:
        rtol = {"f32": 1.2e-7, "bf16": 5e-3, "f64": 1e-12}[dtype]
        np.testing.assert_allclose(made.astype(np.float64), expected.numpy(), rtol=rtol)


@pytest.mark.parametrize("shape, dim", [(("n",), 0), (("n", "m"), 0), (("n", "m"), 1), ((3, "n"), 1), (("n", 9000), 1)])
def test_sizes_of_a_call_say_whether_there_are_chunks(shape, dim, monkeypatch):
    names = sorted({n for n in shape if isinstance(n, str)})
    symbols = [Symbol(n, input=0, dim=shape.index(n)) for n in names]
    graph = graph_of("cumsum", "f32", tuple(symbol(n) if isinstance(n, str) else n for n in shape), dim, symbols)
    assert show_ir(graph, "loops", "sm_90a").count("gpu.func") == 3
    for n, m in ((20000, 7), (3, 20001), (300, 5), (270, 2100), (1, 1), (0, 4)):
        if n > 5000 and dim == 1 or n > 270 and 9000 in shape:
            continue  # many blocks, that are like others
        values = {"n": n, "m": m}
        given = np.random.default_rng(0).random([values[s] if isinstance(s, str) else s for s in shape], np.float32)
        sizes = [values[name] for name in names]
        (made,) = run_on_fake(graph, [given], monkeypatch, sizes=sizes)
        np.testing.assert_allclose(made, np.cumsum(given.astype(np.float64), dim), rtol=3e-7)


def test_products_of_floats_have_no_chunks(monkeypatch):
    """The part of one may be infinite where what is before it is zero."""
    x = np.full((1, 40000), 3.0, np.float32)
    x[0, 0] = 0
    graph = Graph()
    graph.add_output(graph.add("cumprod", graph.add_input("x", TensorType("f32", x.shape)), dim=1))
    assert show_ir(graph, "loops", "sm_90a").count("gpu.func") == 1


@pytest.mark.parametrize("threads", [32, 256, 512])
@pytest.mark.parametrize("blocks", [1, 7, 132, 500])
def test_each_round_is_in_one_chunk(blocks, threads):
    for rounds in (1, 7, 8, 9, 63, 100, 1023, 9999, 100_000):
        known = cut_scan(blocks, threads, rounds)
        unknown = cut_scan(symbol("b"), threads, symbol("r"))
        sizes = {"b": blocks, "r": rounds}
        assert known.when == evaluate(unknown.when, sizes)
        for chunks in (known, unknown):
            each = evaluate(chunks.rounds, sizes)
            assert each % chunks.unroll == 0
            assert each * chunks.count >= rounds
        if isinstance(known.rounds, int) and known.when:
            assert known.rounds * (known.count - 1) < rounds  # the last chunk has some
