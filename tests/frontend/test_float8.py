"""Programs with floats of 8 bits under `torch.compile`: moved, compared, cast and multiplied with eager's values."""

import pytest
import torch
import torch.nn.functional as F

FORMATS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def compiled(fn, *args):
    """Results of `fn` by Lamina, all compiled."""
    torch._dynamo.reset()
    return torch.compile(fn, backend="lamina", fullgraph=True)(*args)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", FORMATS)
def test_what_moves_and_casts_is_bitwise_eagers(dtype):
    def fn(x):
        return (
            x.t().contiguous(), x[2:5], torch.cat([x, x]), torch.where(x == x.roll(1), x, x.roll(2, 1)), x != x.roll(1),
            x.float() * 2, (x.float() + 1).to(dtype), x.bfloat16(), x.isnan(), F.pad(x, (1, 1)), x.to(torch.int32),
            x[torch.tensor([1, 0])], torch.zeros_like(x), x.reshape(12, 8).permute(1, 0).clone(),
        )  # fmt: skip

    x = random(8, 12, dtype=dtype)
    for made, expected in zip(compiled(fn, x), fn(x), strict=True):
        assert (made.dtype, made.shape, made.stride()) == (expected.dtype, expected.shape, expected.stride())
        assert torch.equal(made.double(), expected.double())


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.float16, None])
@pytest.mark.parametrize("kind", ["tensors", "rows"])
def test_scaled_products_are_as_exact_as_eagers(kind, out):
    a, b = random(48, 300, dtype=FORMATS[0]), random(40, 300, dtype=FORMATS[1], seed=1).t()
    scales = (torch.tensor(0.3), torch.tensor([0.1]))
    if kind == "rows":
        scales = (random(48, 1, seed=2).abs() + 0.1, random(1, 40, seed=3).abs() + 0.1)
    bias = random(40, dtype=out if out is not None else torch.bfloat16, seed=4)

    def fn(a, b, s, t, bias):
        return torch._scaled_mm(a, b, s, t, bias=bias, out_dtype=out)

    exact = a.double() @ b.double() * scales[0].double() * scales[1].double() + bias.double()
    made, eager = compiled(fn, a, b, *scales, bias), fn(a, b, *scales, bias)
    assert made.dtype == eager.dtype
    error, bar = ((y.double() - exact).abs().max() for y in (made, eager))
    assert error <= 2 * bar


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_weights_are_packed_once_and_follow_their_changes(rows):
    layer = torch.nn.Module()
    layer.w = torch.nn.Parameter(random(72, 100, dtype=FORMATS[0]), requires_grad=False)
    layer.forward = lambda a: torch._scaled_mm(a, layer.w.t(), torch.tensor(0.5), torch.tensor(2.0))
    a, model = random(rows, 100, dtype=FORMATS[1], seed=1), torch.compile(layer, backend="lamina")
    for seed in (2, 3):
        exact = a.double() @ layer.w.double().t()
        error, bar = ((y.double() - exact).abs().max() for y in (model(a), layer(a)))
        assert error <= 2 * bar
        layer.w.copy_(random(72, 100, dtype=FORMATS[0], seed=seed))


def test_what_overflows_is_as_this_torch_has_it(monkeypatch):
    """Torch before 2.13 makes NaN of what is too large for e4m3fn; 2.13 saturates."""
    from lamina.frontend import compat

    x = torch.tensor([448.0, 464.0, 464.1, 1e9, -1e9, torch.inf, torch.nan, -465.0])
    fn = lambda x: x.to(FORMATS[0])
    assert torch.equal(compiled(fn, x).double().nan_to_num(1e3), fn(x).double().nan_to_num(1e3))
    monkeypatch.setattr(compat, "float8_saturates", lambda: False)
    expected = torch.tensor([448.0, 448.0, *[torch.nan] * 6])
    assert torch.equal(compiled(fn, x).float().nan_to_num(1e3), expected.nan_to_num(1e3))


@pytest.mark.parametrize("fn", [lambda a: a + a, lambda a: a.neg(), lambda a: a.sum()])
def test_what_eager_refuses_is_refused(fn):
    x = random(4, 4, dtype=FORMATS[0])
    with pytest.raises(NotImplementedError):
        fn(x)
    with pytest.raises(NotImplementedError):
        torch._dynamo.reset()
        torch.compile(fn, backend="lamina")(x)
