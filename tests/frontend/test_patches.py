"""Convolutions of patches side by side are products where what reads them has the channels last; values are eager's."""

import pytest
import torch
import torch.nn.functional as F
from support.samples import from_torch, to_torch
from torch.fx.experimental.proxy_tensor import make_fx

from lamina.dialects import interpret
from lamina.frontend import dynamo  # noqa: F401
from lamina.frontend.convert import convert


def converted(fn, args):
    """The converted part of `fn` on `args`, and its values in eager's layout."""
    traced = make_fx(fn)(*args)
    (output,) = traced.graph.output_node().all_input_nodes
    nodes = [n for n in traced.graph.nodes if n.op == "call_function" and isinstance(n.meta["val"], torch.Tensor)]
    part = convert(nodes, [output])
    given = dict(zip((n for n in traced.graph.nodes if n.op == "placeholder"), args))
    (made,) = interpret.run(part.graph, [from_torch(given[n]) for n in part.inputs])
    expected = fn(*args)
    return part.graph, to_torch(made).reshape(-1).as_strided(expected.shape, expected.stride()), expected


def tokens(y):
    return y.flatten(2).transpose(1, 2)


@pytest.mark.parametrize(
    "fn, x, w",
    [
        (lambda x, w, b: tokens(F.conv2d(x, w, b, 4)), (2, 3, 9, 14), (5, 3, 4, 4)),
        (lambda x, w, b: F.conv2d(x, w, None, 4).permute(0, 2, 3, 1) + b, (2, 3, 8, 8), (5, 3, 4, 4)),
        (lambda x, w, b: F.conv1d(x, w, b, 5).transpose(0, 1) * 2, (3, 17), (4, 3, 5)),
        (lambda x, w, b: tokens(F.conv3d(x, w, b, (2, 3, 4))), (1, 2, 4, 6, 9), (3, 2, 2, 3, 4)),
    ],
)
def test_read_by_places(fn, x, w):
    args = [torch.randn(x), torch.randn(w), torch.randn(w[0])]
    graph, made, expected = converted(fn, args)
    names = [n.op for n in graph.nodes]
    assert "linear" in names and "conv" not in names
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "fn, w",
    [
        (lambda x, w: F.conv2d(x, w, None, 4).relu(), (5, 3, 4, 4)),  # read as it is
        (lambda x, w: tokens(F.conv2d(x, w, None, 4).relu()), (5, 3, 4, 4)),
        (lambda x, w: tokens(F.conv2d(x, w, None, 2)), (5, 3, 2, 2)),  # rows of two elements
        (lambda x, w: tokens(F.conv2d(x, w, None, 4, padding=1)), (5, 3, 4, 4)),
        (lambda x, w: tokens(F.conv2d(x, w, None, 3)), (5, 3, 4, 4)),
        (lambda x, w: tokens(F.conv2d(x, w, None, 4, groups=3)), (3, 1, 4, 4)),
    ],
)
def test_others_stay_convolutions(fn, w):
    graph, made, expected = converted(fn, [torch.randn(2, 3, 8, 8), torch.randn(w)])
    assert "conv" in [n.op for n in graph.nodes]
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


def test_sizes_of_images_may_be_symbolic(monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    patches = torch.nn.Conv2d(3, 5, 4, 4)
    compiled = torch.compile(lambda x: tokens(patches(x)), backend="lamina", dynamic=True)
    with torch.no_grad():
        for size in ((2, 3, 8, 13), (3, 3, 12, 9)):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x), tokens(patches(x)), rtol=1e-4, atol=1e-4)
