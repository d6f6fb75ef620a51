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
