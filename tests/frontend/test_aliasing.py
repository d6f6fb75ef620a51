"""Buffers and layouts under torch.compile: writes to arguments, views, results that share memory, strides as in eager."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lamina.frontend.stats import COUNTERS

from .conftest import check

pytestmark = pytest.mark.usefixtures("mode")
GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(4, 8, generator=GENERATOR), torch.randn(4, 8, generator=GENERATOR)


def test_input_is_written():
    def f(x):
        x.add_(1)
        return x * 2

    check(f, X)


def test_view_of_an_input_is_written():
    check(lambda x: x[1:].mul_(2).sum() + x.sum(), X)


def test_outputs_are_views():
    check(lambda x: ((x + 1).t(), x.t(), x[1], (x * 2)[1:]), X)


def test_two_views_of_one_intermediate():
    def f(x):
        z = x + 1
        return z[1:], z[:2], z

    check(f, X)


def test_views_follow_the_buffer_they_lie_in():
    def f(x):
        z = x + 1
        return z, z[0], z.t()

    check(f, X)


@pytest.mark.parametrize("size", [5, 20])
def test_row_results_beside_a_transposed_one(size):
    def f(x):
        y = torch.relu(x.t())
        return y, y.argmax(-1), y.sum(-1)

    check(f, torch.randn(size, size + 1), dynamic=True)


def test_same_output_twice():
    def f(x):
        z = x + 1
        return z, z

    check(f, X)


def test_input_is_returned():
    check(lambda x: (x, x + 1), X)


def test_written_input_is_returned():
    def f(x):
        x.add_(1)
        return x

    check(f, X)


def test_clone_of_an_input_is_fresh():
    check(lambda x: (x.clone(), x + 0, x.t().contiguous()), X)


def test_metadata_of_an_input_changes():
    check(lambda x: x.t_().mul(2), X)


def test_transposed_input_gives_transposed_output():
    check(lambda x: x.relu() + 1, X.t())


def test_channels_last_keeps_its_strides():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda x: (F.silu(x), x.sum(1), x + torch.ones(2, 3, 4, 5)), x)


def test_input_with_gaps():
    check(lambda x: x.relu().sum(0), torch.randn(6, 10)[::2, 1:7])


def test_expanded_input():
    check(lambda x: x * 2 + 1, torch.randn(4, 1).expand(4, 5))


def test_written_input_with_gaps():
    base = torch.randn(6, 10)

    def f(x):
        x.mul_(2)
        return x + 1

    with torch.no_grad():
        one, two = base.clone(), base.clone()
        expected = f(one[::2, 1:7])
        got = torch.compile(f, backend="lamina")(two[::2, 1:7])
    assert torch.equal(got, expected) and torch.equal(one, two)


def test_dynamic_views_of_one_buffer():
    def f(x):
        z = x + 1
        return z[1:], z.t(), z.shape[0]

    check(f, X, dynamic=True)


def test_parts_of_a_new_tensor_are_written_by_one_kernel():
    def f(x, y):
        joined, counts = x.new_empty(4, 16), torch.zeros(4, 8)
        joined[:, :8], joined[:, 8:] = x, y
        counts[:, 1] = x.sum(-1)
        counts[1:, 2:4][:, 0] += 1
        return joined, counts

    check(f, X, Y)
    found = COUNTERS.snapshot()
    assert not found["fallback"] and found["parts"] == 1


def test_cache_is_updated_in_place():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(6, 8))

        def forward(self, x, at):
            self.keys[at] = x
            return self.keys.sum(0)

    check(Cache(), X[:2], torch.tensor([3, 5]))


def test_overlapping_arguments_with_one_written():
    def f(a, b):
        a.add_(1)
        return b * 2

    one, two = torch.arange(12.0), torch.arange(12.0)
    with torch.no_grad():
        expected = f(one[:8], one[4:])
        got = torch.compile(f, backend="lamina")(two[:8], two[4:])
    assert torch.equal(got, expected) and torch.equal(one, two)


def test_arguments_that_overlap_only_later():
    def f(x, y):
        x.mul_(2)
        return x + y

    compiled = torch.compile(f, backend="lamina")
    with torch.no_grad():
        compiled(torch.ones(4), torch.ones(4))
        one, two = torch.ones(8), torch.ones(8)
        assert torch.equal(compiled(one[:4], one[2:6]), f(two[:4], two[2:6])) and torch.equal(one, two)


def test_overlapping_arguments_and_a_view_of_one_returned():
    def f(a, b):
        a.add_(100)
        return b[0]

    one, two = torch.arange(24.0).reshape(4, 6), torch.arange(24.0).reshape(4, 6)
    assert torch.equal(torch.compile(f, backend="lamina")(one, one[1:]), f(two, two[1:]))


def test_write_through_unfold():
    def f(x):
        v = x.unfold(1, 1, 5)
        v.add_(v)
        return x

    check(f, torch.arange(24).reshape(4, 6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64], ids=str)
def test_scalar_tensor_is_written(dtype):
    def f(x, y):
        x.add_(1)
        y.add_(x)
        x.mul_(3)
        return y * 2

    check(f, torch.tensor(3, dtype=dtype), torch.arange(4.0))


def test_a_write_beside_unfold_is_none_through_it():
    assert not check(lambda x: x.unfold(1, 2, 1).sum(-1) + torch.zeros(4).fill_(2.0).sum(), torch.rand(3, 5))[
        "failures"
    ]


def test_unfold_of_images_is_no_view():
    assert not check(lambda images_: F.unfold(images_, 2), torch.rand(1, 2, 5, 5))["failures"]


def test_as_strided_of_a_rolled_channels_last_tensor():
    x = torch.arange(100).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last)
    check(lambda x: torch.as_strided(torch.roll(x, -1, 0), (5, 10), (4, 1), 0), x)


AS_STRIDED = {
    "copy": lambda x: torch.as_strided_copy(x, (2, 2), (2, 1)),
    "scatter": lambda x: torch.as_strided_scatter(x, torch.zeros(2, 2), (2, 2), (2, 1)),
    "scatter of a computed tensor": lambda x: torch.as_strided_scatter(x * 1, torch.zeros(2, 2), (2, 2), (2, 1)),
    "write": lambda x: x.as_strided((2, 2), (2, 1)).mul_(10).sum() + x,
}


@pytest.mark.parametrize("name", AS_STRIDED)
def test_as_strided_goes_by_memory_whatever_the_order_of_dims(name):
    """Copies and writes took the elements in the order of the dims."""
    for x in (torch.arange(9.0).view(3, 3), torch.arange(9.0).view(3, 3).t(), torch.arange(24.0).view(4, 6)[:, ::2]):
        check(AS_STRIDED[name], x)
