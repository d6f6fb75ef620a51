"""What torch.compile users can see: values, strides, views, mutation, gradients, dynamic sizes, eager ops between."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lamina.frontend.stats import COUNTERS

from .conftest import check

pytestmark = pytest.mark.usefixtures("mode")
GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(4, 8, generator=GENERATOR), torch.randn(4, 8, generator=GENERATOR)


def test_pointwise():
    check(lambda x, y: torch.relu(x * 2 + y), X, Y)


def test_composites_of_one_graph():
    check(lambda x, w: F.linear(x, w).softmax(-1), X, torch.randn(5, 8))


def test_eager_op_between_compiled_parts():
    check(lambda x, y: (torch.linalg.inv(x[:, :4] * 2 + 1) + y[:, :4]).softmax(0) * 3, X, Y)


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


def test_empty():
    check(lambda x: (x * 2 + 1, x.sum()), torch.randn(0, 3))


def test_scalar_tensor():
    check(lambda x: x * 2 + 1, torch.tensor(3.0))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float64, torch.bfloat16])
def test_element_types(dtype):
    check(lambda x: (x + x, x * 2, x > 1), torch.tensor([0, 1, 3, 5]).to(dtype))


def test_results_that_are_no_tensors():
    check(lambda x: (x > 0, None, 7), X)


def test_dynamic_sizes():
    def f(x):
        return torch.relu(x * 2 + x) + x.shape[0]

    compiled = torch.compile(f, backend="lamina", dynamic=True)
    with torch.no_grad():
        for n in (3, 4, 7, 3, 64):
            x = torch.randn(n, 8)
            torch.testing.assert_close(compiled(x), f(x))


def test_dynamic_reshape():
    check(lambda x: x.reshape(-1) * 2, X, dynamic=True)


def test_dynamic_views_of_one_buffer():
    def f(x):
        z = x + 1
        return z[1:], z.t(), z.shape[0]

    check(f, X, dynamic=True)


def test_dynamic_sizes_in_arithmetic():
    check(lambda x: x.view(x.shape[0] // 2, 2, -1).sum(1) * (x.shape[1] % 5), X, dynamic=True)


def test_size_that_depends_on_data():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(lambda x: x.nonzero() * 2 + 1, X, fullgraph=True)


def test_graph_break():
    check(lambda x: x[x > 0] * 2 + 1, X)


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


def test_item():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(lambda x: x * x.sum().item(), X, fullgraph=True)


def test_random_numbers_follow_eager():
    check(lambda x: F.dropout(x, 0.5) * 2 + torch.rand(4, 8) + torch.rand_like(x), X)


def test_condition():
    check(lambda x: torch.cond(x.sum() > 0, lambda x: x * 2 + 1, lambda x: x - 1, (x,)), X)


def test_constants():
    check(lambda x: x + torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8]) * torch.ones(4, 8), X)


def test_gradients_of_pointwise():
    check(lambda x, y: torch.relu(x * 2 + y), X.clone().requires_grad_(), Y, grad=True)


def test_gradients_through_views():
    check(lambda x: ((x * 2).t(), x.relu()), X.clone().requires_grad_(), grad=True)


def test_gradients_of_composites():
    """linear, attention and rms_norm have no backward when kept whole: they must not be in a training graph."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.norm = nn.Linear(8, 8), nn.RMSNorm(8)

        def forward(self, x):
            y = self.norm(self.q(x)).view(1, 4, 2, 4).transpose(1, 2)
            return F.scaled_dot_product_attention(y, y, y)

    check(Net(), X, grad=True)


@pytest.mark.parametrize("batch, tokens, heads", [(1, 4, 2), (2, 4, 4), (3, 5, 1)])
def test_attention_of_turned_heads_has_the_layout_of_eager(batch, tokens, heads):
    """Heads are a view of [batch, tokens, heads, width], and eager's result lies in memory in that order."""
    x = torch.randn(batch, tokens, heads, 8)
    check(lambda x: F.scaled_dot_product_attention(*[x.transpose(1, 2)] * 3), x)
    check(lambda x: F.scaled_dot_product_attention(*[x.transpose(1, 2)] * 3).transpose(1, 2).flatten(2).exp(), x)


def test_gradients_wanted_inside_no_grad():
    model = nn.Linear(8, 3)

    def f(x):
        with torch.enable_grad():
            return model(x).square().sum()

    with torch.no_grad():
        torch.compile(f, backend="lamina")(X).backward()
    got = model.weight.grad.clone()
    model.zero_grad()
    model(X).square().sum().backward()
    torch.testing.assert_close(got, model.weight.grad)


def test_batch_norm_statistics():
    check(nn.BatchNorm1d(8), X)
    check(nn.BatchNorm1d(8), X, grad=True)


def test_cache_is_updated_in_place():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(6, 8))

        def forward(self, x, at):
            self.keys[at] = x
            return self.keys.sum(0)

    check(Cache(), X[:2], torch.tensor([3, 5]))


def test_autocast_region():
    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x.t()
        return y.float() + 1

    check(f, X, tolerance=2e-2)


def test_autocast_off_inside_on():
    def f(x):
        with torch.autocast("cpu", enabled=False):
            return torch.linalg.inv(x[:, :4]) @ x[:, :4]

    with torch.autocast("cpu", torch.bfloat16):
        check(f, torch.eye(4) + 0.1 * torch.randn(4, 4), tolerance=1e-5)


def test_overlapping_arguments_with_one_written():
    def f(a, b):
        a.add_(1)
        return b * 2

    one, two = torch.arange(12.0), torch.arange(12.0)
    with torch.no_grad():
        expected = f(one[:8], one[4:])
        got = torch.compile(f, backend="lamina")(two[:8], two[4:])
    assert torch.equal(got, expected) and torch.equal(one, two)


def test_inference_mode():
    with torch.inference_mode():
        x = torch.randn(4, 8)
        got = torch.compile(lambda x: F.linear(x, x).softmax(-1), backend="lamina")(x)
        assert got.is_inference()
        torch.testing.assert_close(got, F.linear(x, x).softmax(-1))


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


def test_unfold_of_images_is_no_view():
    assert not check(lambda images_: F.unfold(images_, 2), torch.rand(1, 2, 5, 5))["failures"]


def test_sine_and_cosine_of_one_number():
    assert not check(lambda x: torch.polygamma(4, x), X.double())["failures"]


def test_bf16_kept_across_blocks():
    row = torch.tensor([1.5, torch.nan, -2.0, torch.inf]).bfloat16()
    assert not check(lambda x, s: torch.diagonal_scatter(x, s), X[:, :4].bfloat16(), row, tolerance=0)["failures"]


def test_as_strided_of_a_rolled_channels_last_tensor():
    x = torch.arange(100).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last)
    check(lambda x: torch.as_strided(torch.roll(x, -1, 0), (5, 10), (4, 1), 0), x)


def test_errors_are_eagers():
    table, index = torch.rand(5, 2), torch.tensor([2, 7])
    with pytest.raises(IndexError):
        torch.compile(lambda i, w: F.embedding(i, w), backend="lamina")(index, table)
    with pytest.raises(RuntimeError, match="greater than 0"):
        torch.compile(lambda x: F.interpolate(x, size=(4, 4)), backend="lamina")(torch.rand(1, 3, 0, 5))


def test_target_out_of_range_is_an_index_error():
    with pytest.raises(IndexError):
        torch.compile(F.cross_entropy, backend="lamina")(X, torch.tensor([0, 8, 1, 2]))


def test_checks_in_an_epilogue_raise_their_own_errors(mode):
    f = torch.compile(lambda x, y, t, i: x @ y.t() + t.gather(0, i), backend="lamina")
    with pytest.raises((RuntimeError, IndexError)) as raised:
        f(X, Y, torch.rand(3, 4), torch.full((4, 4), 9))
    assert mode == "interpreted" or not isinstance(raised.value, IndexError)


def test_dynamo_does_not_look_into_backward():
    """Backward runs, and is compiled, between two compiled pieces of `f` here."""

    def f(x):
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((x**3).sum(), x)
        return g.sin()

    def seen(backend):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.testing.assert_close(torch.compile(f, backend=backend)(X), f(X))
        return torch._dynamo.utils.counters["frames"]["total"]

    assert seen("lamina") <= seen("aot_eager")


def test_tensors_made_in_the_function():
    check(lambda x: x[torch.tensor([1, 0])] + torch.tensor(2.5), X)


@pytest.mark.parametrize("f", [torch.argmax, torch.argmin, lambda x: x.topk(1)], ids=["argmax", "argmin", "topk"])
def test_bool_is_refused_where_eager_refuses_it(f):
    x = torch.tensor([True, False])
    for call in (f, torch.compile(f, backend="lamina")):
        with pytest.raises(RuntimeError, match="not support bool"):
            call(x)
