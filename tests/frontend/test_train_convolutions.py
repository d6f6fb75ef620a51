"""Convolutions trained with batches and sizes that change: every kernel is an optimised one, gradients are float64's."""

import copy

import pytest
import torch
from torch import nn

import lamina


def relative(a, b):
    return float((a.double() - b).norm() / b.norm())


@pytest.mark.parametrize(
    "layer, shapes, changing",
    [
        (nn.Conv2d(4, 6, 3, padding=1), [(3, 4, 8, 9), (5, 4, 10, 7)], (0, 2, 3)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1), [(3, 4, 8, 9), (5, 4, 8, 9)], (0,)),
        (nn.Conv2d(4, 4, 3, padding=1, groups=4), [(3, 4, 8, 9), (5, 4, 10, 7)], (0, 2, 3)),
        (nn.Conv2d(4, 8, (3, 1), groups=2), [(3, 4, 8, 9), (5, 4, 10, 7)], (0, 2, 3)),
        (nn.Conv1d(4, 6, 5, dilation=2), [(3, 4, 20), (5, 4, 31)], (0, 2)),
        (nn.ConvTranspose2d(4, 6, 2, stride=2), [(3, 4, 8, 9), (5, 4, 10, 7)], (0, 2, 3)),
    ],
)
def test_symbolic_batch_and_sizes(layer, shapes, changing):
    torch.manual_seed(1)
    layer = copy.deepcopy(layer)
    layer.reset_parameters()
    exact = copy.deepcopy(layer).double()
    compiled = torch.compile(layer, backend="lamina")
    for shape in shapes:
        x = torch.randn(shape)
        for dim in changing:
            torch._dynamo.mark_dynamic(x, dim)
        x.requires_grad_()
        wide = x.detach().double().requires_grad_()
        layer.zero_grad()
        exact.zero_grad()
        compiled(x).square().sum().backward()
        exact(wide).square().sum().backward()
        for a, b in zip([x, *layer.parameters()], [wide, *exact.parameters()]):
            assert relative(a.grad, b.grad) < 1e-6
    found = lamina.stats()
    assert found["training_graphs"] == 2  # one for all sizes, forward and backward
    assert not found["plain_kernels"] and not found["fallback"] and not found["failures"]


@pytest.mark.parametrize(
    "kernel, stride, padding, dilation, size",
    [
        (3, 2, 1, 1, (8, 9)),  # nothing behind the last column that is met, and zeros
        (1, 2, 0, 1, (8, 9)),
        (7, 2, 3, 1, (16, 20)),
        (3, 4, 0, 1, (9, 14)),  # what is behind is left out
        (3, 5, 1, 1, (12, 9)),
        (2, 3, 1, 2, (11, 12)),
        ((3, 1), (2, 1), (1, 0), 1, (10, 7)),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_weights_where_a_stride_ends_before_the_border(
    kernel, stride, padding, dilation, size, transposed
):
    torch.manual_seed(1)
    form = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
    layer = form(4, 6, kernel, stride, padding, dilation=dilation, bias=False)
    x = torch.randn(2, 4, *size)
    exact = copy.deepcopy(layer).double()

    def gradient(x, w):
        y = torch.convolution(x, w, None, layer.stride, layer.padding, layer.dilation, transposed, (0, 0), 1)
        return torch.autograd.grad(y.square().sum(), w)[0]

    compiled = torch.compile(layer, backend="lamina")
    compiled(x).square().sum().backward()
    assert relative(layer.weight.grad, gradient(x.double(), exact.weight)) < 1e-6
    assert not lamina.stats()["plain_kernels"] and not lamina.stats()["fallback"]
