"""Which ops a GPU runs by kernels of ours: decided from the graph record, so without a GPU."""

import pytest
import torch

from lamina.compiler import api
from lamina.dialects.record import Graph, TensorType
from lamina.frontend.aten.registry import Unsupported
from lamina.frontend.calls import cuda_launcher
from lamina.frontend.devices import check_kernels

CUDA = torch.device("cuda", 0)


def product(dtype, rows):
    g = Graph()
    x, w = (g.add_input(n, TensorType(dtype, s)) for n, s in (("x", (rows, 64)), ("w", (32, 64))))
    g.add_output(g.add("linear", x, w, None))
    return g


@pytest.mark.parametrize("dtype, rows", [("bf16", 300), ("f32", 300), ("f64", 16)])
def test_products_are_ours(dtype, rows):
    g = product(dtype, rows)
    check_kernels(g.nodes, g.types, CUDA)


def test_large_products_in_f64_are_torchs_on_a_gpu_only():
    g = product("f64", 300)
    with pytest.raises(Unsupported, match="library is faster at products in f64"):
        check_kernels(g.nodes, g.types, CUDA)
    check_kernels(g.nodes, g.types, torch.device("cpu"))


def attention(dtype, width, queries=16):
    g = Graph()
    q, k, v = (g.add_input(n, TensorType(dtype, (2, 4, queries if n == "q" else 16, width))) for n in "qkv")
    g.add_output(g.add("attention", q, k, v, None)[0])
    return g


@pytest.mark.parametrize(
    "target, dtype, width, ours",
    [
        ("sm_90a", "bf16", 128, True),
        ("sm_90a", "f16", 40, True),
        ("sm_90a", "f32", 64, False),
        ("sm_90a", "bf16", 512, False),
        ("sm_80", "bf16", 128, True),
        ("gfx942", "bf16", 128, True),
    ],
)
def test_attention_is_ours_on_tensor_cores(monkeypatch, target, dtype, width, ours):
    monkeypatch.setattr(cuda_launcher, "target_for", lambda index: target)
    decide_attention(attention(dtype, width), ours)


@pytest.mark.parametrize("width, queries, ours", [(64, 1, True), (128, 1, True), (256, 1, False), (64, 2, False)])
def test_attention_of_one_query_in_f32_is_ours(monkeypatch, width, queries, ours):
    monkeypatch.setattr(cuda_launcher, "target_for", lambda index: "sm_90a")
    decide_attention(attention("f32", width, queries), ours)


def decide_attention(g, ours):
    if ours:
        check_kernels(g.nodes, g.types, CUDA)
        return
    with pytest.raises(Unsupported, match="attention"):
        check_kernels(g.nodes, g.types, CUDA)


@pytest.mark.parametrize("width, mask, ours", [(64, (16, 16), False), (128, (16, 16), True), (64, (2, 1, 1, 16), True)])
def test_masks_of_floats_on_narrow_heads_are_torchs(monkeypatch, width, mask, ours):
    monkeypatch.setattr(cuda_launcher, "target_for", lambda index: "sm_90a")
    g = Graph()
    q, k, v = (g.add_input(n, TensorType("bf16", (2, 4, 16, width))) for n in "qkv")
    g.add_output(g.add("attention", q, k, v, g.add_input("m", TensorType("bf16", mask)))[0])
    if ours:
        check_kernels(g.nodes, g.types, CUDA)
        return
    with pytest.raises(Unsupported, match="narrow heads"):
        check_kernels(g.nodes, g.types, CUDA)


@pytest.mark.parametrize("of_bools", [True, False])
def test_masks_that_torch_makes_of_bools_are_ours(monkeypatch, of_bools):
    """In training torch's dispatch hands attention -65504 where a bool mask is false; only a choice between floats is not read."""
    monkeypatch.setattr(cuda_launcher, "target_for", lambda index: "sm_90a")
    g = Graph()
    q, k, v = (g.add_input(n, TensorType("bf16", (2, 4, 16, 64))) for n in "qkv")
    keep = g.add("expand", g.add_input("keep", TensorType("bool", (2, 1, 1, 16))), shape=(2, 1, 16, 16))
    zero, least = (g.add("full", shape=(), value=x, dtype="bf16") for x in (0.0, -65504.0))
    other = zero if of_bools else g.add_input("bias", TensorType("bf16", (16, 16)))
    mask = g.add("expand", g.add("where", g.add("logical_not", keep), least, other), shape=(2, 4, 16, 16))
    g.add_output(g.add("attention", q, k, v, mask)[0])
    if of_bools:
        check_kernels(g.nodes, g.types, CUDA)
        return
    with pytest.raises(Unsupported, match="narrow heads"):
        check_kernels(g.nodes, g.types, CUDA)


@pytest.mark.parametrize(
    "dtype, groups, convolves, ours",
    [
        ("bf16", 1, True, True),
        ("f32", 1, True, False),
        ("bf16", 2, True, False),
        ("bf16", 1, False, False),
    ],
)
def test_convolutions_are_ours_with_channels_last(monkeypatch, dtype, groups, convolves, ours):
    monkeypatch.setattr(cuda_launcher, "target_for", lambda index: "sm_90a")
    monkeypatch.setattr(api, "target_convolves", lambda target: convolves)
    g = Graph()
    x, w = (g.add_input(n, TensorType(dtype, s)) for n, s in (("x", (1, 64, 8, 8)), ("w", (64, 64 // groups, 3, 3))))
    geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
    g.add_output(g.add("conv", x, w, None, **geometry))
    if ours:
        check_kernels(g.nodes, g.types, CUDA)
        return
    with pytest.raises(Unsupported, match="faster than torch's library at this convolution"):
        check_kernels(g.nodes, g.types, CUDA)


@pytest.mark.parametrize("kernel, stride, dilation, ours", [(2, 2, 1, True), (4, 2, 1, True), (3, 1, 2, True), (3, 2, 1, False), (2, 2, 2, False)])  # fmt: skip
def test_transposed_convolutions_are_ours_where_they_are_one(monkeypatch, kernel, stride, dilation, ours):
    """Phases with different numbers of taps are convolutions of their own, with a pass that joins them."""
    monkeypatch.setattr(cuda_launcher, "target_for", lambda index: "sm_90a")
    g = Graph()
    x, w = (g.add_input(n, TensorType("bf16", s)) for n, s in (("x", (1, 64, 8, 8)), ("w", (64, 32, kernel, kernel))))
    geometry = {"stride": (stride,) * 2, "padding": (0, 0), "dilation": (dilation,) * 2, "output_padding": (0, 0)}
    g.add_output(g.add("conv", x, w, None, groups=1, transposed=True, **geometry))
    if ours:
        check_kernels(g.nodes, g.types, CUDA)
        return
    with pytest.raises(Unsupported, match="faster than torch's library at this convolution"):
        check_kernels(g.nodes, g.types, CUDA)


@pytest.mark.parametrize(
    "dtype, dims, count, accumulate, ours",
    [
        ("bf16", (1,), 1 << 20, False, True),
        ("bf16", (0,), 1 << 17, True, True),
        ("bf16", (0,), 1 << 18, True, False),
        ("bf16", (1,), 2, True, False),
        ("i64", (0,), 2, True, False),
    ],
)
def test_additions_at_positions_are_ours_where_few_rows_of_floats_are_added(dtype, dims, count, accumulate, ours):
    g = Graph()
    x, value = g.add_input("x", TensorType(dtype, (4, 8))), g.add_input("value", TensorType(dtype, (1, 1)))
    index = g.add_input("i", TensorType("i64", (count,)))
    g.add_output(g.add("index_put", x, value, index, dims=dims, accumulate=accumulate))
    if ours:
        check_kernels(g.nodes, g.types, CUDA)
        return
    with pytest.raises(Unsupported, match="adds at positions"):
        check_kernels(g.nodes, g.types, CUDA)


@pytest.mark.parametrize("op, ours", [("cumsum", True), ("cumprod", True), ("logcumsumexp", False)])
def test_scans_that_add_or_multiply_are_ours(op, ours):
    for shape, dim in (((4, 8), 1), ((4, 8, 1), -2), ((4, 8), 0)):
        g = Graph()
        g.add_output(g.add(op, g.add_input("x", TensorType("f32", shape)), dim=dim))
        if ours:
            check_kernels(g.nodes, g.types, CUDA)
            continue
        with pytest.raises(Unsupported, match="no GPU kernel of"):
            check_kernels(g.nodes, g.types, CUDA)


@pytest.mark.parametrize("reduce, ours", [("none", True), ("add", False), ("amax", False)])
def test_scatters_that_combine_are_torchs(reduce, ours):
    g = Graph()
    x, i, s = (g.add_input(n, TensorType("i64" if n == "i" else "f32", (8, 4))) for n in "xis")
    g.add_output(g.add("slice_scatter", x, s, starts=(0, 0), steps=(1, 1)))
    g.add_output(
        g.add("scatter", x, g.add("slice", i, starts=(0, 0), sizes=(2, 4), steps=(1, 1)), s, dim=0, reduce=reduce)
    )
    check_kernels(g.nodes, g.types, CUDA)  # few updates of each column
    wide = g.add_input("w", TensorType("f32", (2000, 4)))
    g.add_output(g.add("scatter", wide, i, s, dim=0, reduce=reduce))
    if ours:
        check_kernels(g.nodes, g.types, CUDA)
        return
    with pytest.raises(Unsupported, match="combines at positions"):
        check_kernels(g.nodes, g.types, CUDA)


@pytest.mark.parametrize("shape, dim, k, ours", [((9, 1025), 1, 8, True), ((9, 640), 1, 256, True), ((9, 640), 1, 257, False), ((128, 131072), 1, 50, True), ((129, 131072), 1, 50, False), ((1 << 20, 1024), 1, 8, True), ((64, 9), 0, 2, False)])  # fmt: skip
def test_a_few_of_rows_in_order_are_ours(shape, dim, k, ours):
    g = Graph()
    g.add_output(g.add("topk", g.add_input("x", TensorType("bf16", shape)), k=k, dim=dim)[0])
    if ours:
        check_kernels(g.nodes, g.types, CUDA)
        return
    with pytest.raises(Unsupported, match="in order"):
        check_kernels(g.nodes, g.types, CUDA)


def test_searches_are_ours_and_sorts_torchs():
    g = Graph()
    edges, values = (g.add_input(n, TensorType("f32", s)) for n, s in (("edges", (9,)), ("values", (4, 8))))
    g.add_output(g.add("searchsorted", edges, values, right=False))
    check_kernels(g.nodes, g.types, CUDA)
    g.add_output(g.add("sort", values, dim=1, descending=False, stable=True)[0])
    with pytest.raises(Unsupported, match="no GPU kernel of 'sort'"):
        check_kernels(g.nodes, g.types, CUDA)
