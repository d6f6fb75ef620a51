"""Triangular systems with gradients: both sides, both triangles, batches that broadcast, sizes that are not known."""

import itertools

import pytest
import torch

import lamina

from .conftest import check


def system(n, *batch):
    """A matrix with large numbers on its diagonal, and small ones in both triangles."""
    return (torch.randn(*batch, n, n) * 0.3 + 2 * torch.eye(n)).requires_grad_()


@pytest.mark.parametrize(("left", "upper", "unit"), itertools.product([True, False], repeat=3))
def test_gradients(left, upper, unit):
    b = torch.randn(3, 9, 70) if left else torch.randn(3, 70, 9)

    def solve(a, b):
        return torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)

    stats = check(solve, system(9, 2, 1), b.requires_grad_(), grad=True)
    assert not stats["fallback"] and not stats["failures"]


def test_program_with_a_size():
    """Ahead of time: decays and keys of linear attention are solved so."""
    n = torch.export.Dim("n", min=2, max=64)

    def solve(a, b):
        return torch.linalg.solve_triangular(a.tril(-1), b, upper=False, unitriangular=True)

    shapes = {"a": {1: n, 2: n}, "b": {1: n}}
    compiled = lamina.compile(solve, (system(8, 2).detach(), torch.randn(2, 8, 5)), dynamic_shapes=shapes)
    for size in (2, 33, 64):
        a, b = system(size, 2).detach(), torch.randn(2, size, 5)
        exact = solve(a.double(), b.double())
        torch.testing.assert_close(compiled(a, b).double(), exact, rtol=2e-5, atol=1e-6 * exact.abs().max().item())
