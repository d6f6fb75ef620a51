"""Writes into parts of a tensor on GPUs: computed with it where that is as good, else a copy and what is written over it."""

import numpy as np
import pytest
import torch
from support.fake_program import run_on_fake
from support.samples import from_torch

from lamina.compiler.api import show_ir
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType
from lamina.frontend.values import torch_dtype


def tensor(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def slices(starts, steps, shape):
    return tuple(slice(a, a + n * s, s) for a, n, s in zip(starts, shape, steps))


# vectors of one tensor or the other; lanes of both, by turns and at a place within a vector; a strided block of rows; all; none
BLOCKS = [
    ((20, 64), (20, 16), (0, 8), (1, 1)),
    ((20, 64), (20, 32), (0, 1), (1, 2)),
    ((20, 64), (20, 1), (0, 63), (1, 1)),
    ((33, 37), (33, 21), (0, 5), (1, 1)),
    ((3, 50, 24), (3, 16, 24), (0, 2, 0), (1, 3, 1)),
    ((7, 9), (7, 9), (0, 0), (1, 1)),
    ((7, 9), (0, 9), (7, 0), (1, 1)),
]


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("shape, block, starts, steps", BLOCKS, ids=str)
def test_a_block_is_chosen_as_the_tensor_is_computed(shape, block, starts, steps, target, monkeypatch):
    x, y = tensor(*shape), tensor(*block, seed=1)
    graph = Graph()
    a, b = graph.add_input("x", TensorType("f32", shape)), graph.add_input("y", TensorType("f32", block))
    made = graph.add("slice_scatter", graph.add("relu", a), graph.add("neg", b), starts=starts, steps=steps)
    graph.add_output(graph.add("add", made, a))
    assert len(kernels(graph)) == 1
    (result,) = run_on_fake(graph, [x.numpy(), y.numpy()], monkeypatch, target)
    expected = x.relu()
    expected[slices(starts, steps, block)] = -y
    np.testing.assert_array_equal(result, (expected + x).numpy())


def test_a_symbolic_place(monkeypatch):
    graph, n = Graph(symbols=[Symbol("n", input=0, dim=0)]), symbol("n")
    x = graph.add_input("x", TensorType("f32", (n, 8)))
    y = graph.add_input("y", TensorType("f32", (1, 8)))
    graph.add_output(graph.add("slice_scatter", x, y, starts=(n - 1, 0), steps=(1, 1)))
    given = tensor(5, 8), tensor(1, 8, seed=1)
    (made,) = run_on_fake(graph, [t.numpy() for t in given], monkeypatch, sizes=[5])
    np.testing.assert_array_equal(made, torch.cat([given[0][:4], given[1]]).numpy())


def test_more_than_two_blocks_of_a_tensor_are_written_over_it(monkeypatch):
    """Two are computed with it; each other one that reads and writes all of it would be slower."""
    graph, parts = Graph(), 5
    value = graph.add_input("x", TensorType("f32", (6, 40)))
    given = [graph.add_input(f"y{i}", TensorType("f32", (6, 3))) for i in range(parts)]
    for i, y in enumerate(given):
        value = graph.add("slice_scatter", value, y, starts=(0, 7 * i), steps=(1, 1))
    graph.add_output(value)
    assert [k for k, _ in kernels(graph)] == ["concat", *["slice_scatter"] * 3]
    assert show_ir(graph, "kernels", "sm_90a").count("inplace") == 3
    expected, written = tensor(6, 40), [tensor(6, 3, seed=i) for i in range(parts)]
    (made,) = run_on_fake(graph, [expected.numpy(), *(w.numpy() for w in written)], monkeypatch)
    for i, w in enumerate(written):
        expected[:, 7 * i : 7 * i + 3] = w
    np.testing.assert_array_equal(made, expected.numpy())


@pytest.mark.parametrize("start, steps", [((0, 3, 0), (1, 1, 1)), ((0, 1, 1), (1, 2, 3))])
def test_a_cache_is_written_in_place(start, steps, monkeypatch):
    """An argument that gets a new value; the caller's old value is kept where it is returned, too."""
    shape, block = (2, 12, 16), (2, 4, 16 if steps[2] == 1 else 4)
    cache, new = tensor(*shape), tensor(*block, seed=1)
    for returns_old in (False, True):
        graph = Graph()
        x, y = graph.add_input("x", TensorType("f32", shape)), graph.add_input("y", TensorType("f32", block))
        graph.add_output(graph.add("slice_scatter", x, y, starts=start, steps=steps), mutates="x")
        if returns_old:
            graph.add_output(graph.add("neg", x))
        assert ("slice_scatter" in dict(kernels(graph))) and "inplace" in show_ir(graph, "kernels", "sm_90a")
        made, *old = run_on_fake(graph, [cache.numpy(), new.numpy()], monkeypatch)
        expected = cache.clone()
        expected[slices(start, steps, block)] = new
        np.testing.assert_array_equal(made, expected.numpy())
        assert not old or np.array_equal(old[0], -cache.numpy())


def test_tokens_are_scattered_into_a_cache_in_place(monkeypatch):
    """`cache.index_copy_(2, position, keys)`, twice."""
    cache, new = tensor(2, 3, 40, 8), tensor(2, 3, 1, 8, seed=1)
    graph = Graph()
    value, token = graph.add_input("cache", TensorType("f32", (2, 3, 40, 8))), graph.add_input("new", TensorType("f32", (2, 3, 1, 8)))  # fmt: skip
    for k in range(2):
        place = graph.add("reshape", graph.add_input(f"i{k}", TensorType("i64", (1,))), shape=(1, 1, 1, 1))
        place = graph.add("expand", place, shape=(2, 3, 1, 8))
        value = graph.add("scatter", value, place, token, dim=2, index_error=True)
    graph.add_output(value, mutates="cache")
    assert show_ir(graph, "kernels", "sm_90a").count("inplace") == 2
    (made,) = run_on_fake(graph, [cache.numpy(), new.numpy(), np.array([7]), np.array([31])], monkeypatch)
    cache[:, :, [7, 31]] = new
    np.testing.assert_array_equal(made, cache.numpy())


@pytest.mark.parametrize("dtype", ["f32", "u8"])
def test_a_copy_takes_several_rounds(dtype, monkeypatch):
    """More elements than threads have vectors in a round, of which the last are no whole one."""
    count = 4 * 264 * 256 + 264 * 256 + 7
    x = np.arange(count).astype({"f32": np.float32, "u8": np.uint8}[dtype])
    graph = Graph()
    given = graph.add_input("x", TensorType(dtype, (count,))), graph.add_input("y", TensorType(dtype, (3,)))
    index = graph.add_input("i", TensorType("i64", (3,)))
    graph.add_output(graph.add("index_put", *given, index, dims=(0,)))
    (made,) = run_on_fake(graph, [x, -x[1:4], np.array([0, count - 1, 5])], monkeypatch)
    x[[0, count - 1, 5]] = -x[1:4]
    np.testing.assert_array_equal(made, x)


SCATTERS = {
    "elements": ((9, 20), 0, (4, 17)),
    "rows": ((9, 20), 1, (9, 11)),
    "middle": ((3, 9, 8), 1, (3, 9, 8)),
}


@pytest.mark.parametrize("reduce", ["none", "add", "mul", "amax"])
@pytest.mark.parametrize("dtype, shape, dim, count", [("f32", (9, 40), 1, 3), ("i64", (12, 5), 0, 8), ("bf16", (3, 40, 16), 1, 1)])  # fmt: skip
def test_a_few_updates_of_a_line_are_chosen_in_their_order(dtype, shape, dim, count, reduce, monkeypatch):
    rng = np.random.default_rng(0)
    few = tuple(count if d == dim else n for d, n in enumerate(shape))
    index = rng.integers(0, 4, few)  # some meet
    x, src = ((10 * tensor(*s, seed=n)).to(torch_dtype(dtype)) for n, s in enumerate((shape, few)))
    graph = Graph()
    a, s = graph.add_input("x", TensorType(dtype, shape)), graph.add_input("s", TensorType(dtype, few))
    made = graph.add("scatter", graph.add("neg", a), graph.add_input("i", TensorType("i64", few)), s, dim=dim, reduce=reduce)  # fmt: skip
    graph.add_output(graph.add("neg", made))
    assert [kind for kind, _ in kernels(graph)] == ["loops"]
    (result,) = run_on_fake(graph, [from_torch(x), from_torch(src), index], monkeypatch)
    y = -x
    for k in range(count):  # torch's order is that of the updates where they meet
        part = (slice(None),) * dim + (slice(k, k + 1),)
        at, new = torch.from_numpy(index)[part], src[part]
        old = y.gather(dim, at)
        combined = {"none": new, "add": old + new, "mul": old * new, "amax": torch.maximum(old, new)}
        y = y.scatter(dim, at, combined[reduce])
    np.testing.assert_array_equal(result.astype(np.float64), from_torch(-y).astype(np.float64))


def test_the_gradient_of_a_choice_is_part_of_what_reads_it(monkeypatch):
    """`log_softmax(x).gather(1, i)` backwards: no tensor of zeros is made, and nothing is added to it."""
    x, i, g = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 300))), torch.arange(5)[:, None] * 7, tensor(5, 1)  # fmt: skip
    x = x.float().requires_grad_()
    y = x.log_softmax(1)
    y.gather(1, i).backward(g)
    graph = Graph()
    out = graph.add_input("y", TensorType("f32", (5, 300)))
    at, grad = graph.add_input("i", TensorType("i64", (5, 1))), graph.add_input("g", TensorType("f32", (5, 1)))
    zeros = graph.add("full", shape=(5, 300), value=0.0, dtype="f32")
    full = graph.add("scatter", zeros, at, grad, dim=1, reduce="add")
    total = graph.add("sum", full, dims=(1,), keepdim=True)
    graph.add_output(graph.add("sub", full, graph.add("mul", graph.add("exp", out), total)))
    assert [kind for kind, _ in kernels(graph)] == ["loops"]
    (made,) = run_on_fake(graph, [y.detach().numpy(), i.numpy(), g.numpy()], monkeypatch)
    np.testing.assert_allclose(made, x.grad.numpy(), rtol=1e-5, atol=1e-7)
    with pytest.raises(RuntimeError, match="out of bounds"):
        run_on_fake(graph, [y.detach().numpy(), i.numpy() + 280, g.numpy()], monkeypatch)


@pytest.mark.parametrize("name", SCATTERS)
def test_scatter(name, monkeypatch):
    shape, dim, count = SCATTERS[name]
    rng = np.random.default_rng(0)
    order = rng.permuted(np.broadcast_to(np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape), axis=dim)  # fmt: skip
    index = order[tuple(slice(n) for n in count)].copy()  # no two updates meet
    x, src = tensor(*shape), tensor(*count, seed=1)
    graph = Graph()
    a = graph.add_input("x", TensorType("f32", shape))
    i, s = graph.add_input("i", TensorType("i64", count)), graph.add_input("s", TensorType("f32", count))
    graph.add_output(graph.add("scatter", a, i, s, dim=dim))
    (made,) = run_on_fake(graph, [x.numpy(), index, src.numpy()], monkeypatch)
    np.testing.assert_array_equal(made, x.scatter(dim, torch.from_numpy(index), src).numpy())


@pytest.mark.parametrize("width", [32, 30])
def test_whole_rows_are_scattered_by_vectors(width, monkeypatch):
    """`index_copy`: an index that is expanded along the row."""
    x, src, index = tensor(20, width), tensor(9, width, seed=1), np.array([7, 0, 3, 18, 1, 19, 12, 11, 10])
    graph = Graph()
    a = graph.add_input("x", TensorType("f32", (20, width)))
    i, s = graph.add_input("i", TensorType("i64", (9,))), graph.add_input("s", TensorType("f32", (9, width)))
    place = graph.add("expand", graph.add("reshape", i, shape=(9, 1)), shape=(9, width))
    graph.add_output(graph.add("scatter", a, place, s, dim=0, index_error=True))
    stage = show_ir(graph, "loops", "sm_90a").split("gpu.func")[-1]
    assert f"vector<{4 if width == 32 else 2}xf32>" in stage
    (made,) = run_on_fake(graph, [x.numpy(), index, src.numpy()], monkeypatch)
    np.testing.assert_array_equal(made, x.index_copy(0, torch.from_numpy(index), src).numpy())
    with pytest.raises(IndexError):
        run_on_fake(graph, [x.numpy(), index + 1, src.numpy()], monkeypatch)


def kernels(graph):
    """The kind and label of each kernel of the graph, in order."""
    lines = [line for line in show_ir(graph, "kernels", "sm_90a").splitlines() if "lamina.kind" in line]
    return [tuple(line.split(f'lamina.{key} = "')[1].split('"')[0] for key in ("kind", "label")) for line in lines]
