"""What torch.compile users can see: values, gradients, dynamic sizes, random numbers, errors, eager ops between."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

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


def test_dynamic_sizes_in_arithmetic():
    check(lambda x: x.view(x.shape[0] // 2, 2, -1).sum(1) * (x.shape[1] % 5), X, dynamic=True)


def test_size_that_depends_on_data():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(lambda x: x.nonzero() * 2 + 1, X, fullgraph=True)


def test_graph_break():
    check(lambda x: x[x > 0] * 2 + 1, X)


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


def test_gradients_of_what_comes_of_a_buffer_before_it_is_written():
    """torch's own partitioner lets the backward graph compute `scale + 1` again, of the new scale."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((8,), 0.5))
            self.register_buffer("scale", torch.arange(8.0))

        def forward(self, x):
            old = self.scale.view(2, 4).t().exp().reshape(8)
            self.scale.add_(1)
            return (x * self.weight * self.scale).sin() * old.cos() * self.weight

    check(Net(), X, grad=True)


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


def test_inference_mode():
    with torch.inference_mode():
        x = torch.randn(4, 8)
        got = torch.compile(lambda x: F.linear(x, x).softmax(-1), backend="lamina")(x)
        assert got.is_inference()
        torch.testing.assert_close(got, F.linear(x, x).softmax(-1))


def test_sine_and_cosine_of_one_number():
    assert not check(lambda x: torch.polygamma(4, x), X.double())["failures"]


def test_bf16_kept_across_blocks():
    row = torch.tensor([1.5, torch.nan, -2.0, torch.inf]).bfloat16()
    assert not check(lambda x, s: torch.diagonal_scatter(x, s), X[:, :4].bfloat16(), row, tolerance=0)["failures"]


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
