"""ATen's pointwise, view, creation, gather and reduction ops: traced, converted and interpreted, they give eager's values.

Each case is traced with static and with symbolic sizes; programs that other compilers got wrong are among them.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from support.samples import from_torch, to_torch
from torch.fx.experimental.proxy_tensor import make_fx

from lamina.dialects import interpret
from lamina.frontend.convert import convert

I64, I32, U8, BOOL, BF16 = torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16
INF, NAN = math.inf, math.nan


def x(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def ints(high, *shape, dtype=I64):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def run(fn, args, mode):
    """The values of `fn(*args)` through a record."""
    traced = make_fx(fn, tracing_mode=mode)(*args)
    outputs = traced.graph.output_node().args[0]
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    nodes = [n for n in traced.graph.nodes if n.op in ("call_function", "get_attr")]
    nodes = [n for n in nodes if isinstance(n.meta.get("val"), (torch.Tensor, list, tuple))]
    part = convert(nodes, outputs)
    given = dict(zip((n for n in traced.graph.nodes if n.op == "placeholder"), args))
    assert not part.symbols, "every size is read from an input"
    return interpret.run(part.graph, [from_torch(given[n]) for n in part.inputs])


def compare(fn, args, mode, tolerance=1e-5):
    want = fn(*args)
    want = list(want) if isinstance(want, (list, tuple)) else [want]
    for got, expected in zip(run(fn, args, mode), want, strict=True):
        got = to_torch(got).reshape(-1).as_strided(expected.shape, expected.stride())  # a buffer in eager's layout
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


SIGNED = (torch.tensor([-7, 7, -7, 7, -8, 8, -1, 1, 0]), torch.tensor([3, -3, -3, 3, 3, -3, 5, -5, 2]))
SPECIAL = torch.tensor([NAN, 4.6, 1.0, 7.0, -INF, INF, -0.0, 0.0])

CASES = {
    # promotion
    "int_plus_float": (lambda a: (a + 1.5, a / 2, a * True, 2 - a), ints(9, 4, dtype=I32)),
    "zero_dim_keeps_dtype": (lambda a, b: a + b, x(3, dtype=BF16), torch.tensor(2.5, dtype=torch.float64)),
    "bool_sum": (lambda a: (a + a, a.sum(), a * 3), torch.tensor([True, False, True])),
    "half_times_number_rounds_once": (lambda a: (a * 0.1, a + 0.1, a / 3), x(64, dtype=BF16)),
    "uint8_wraps": (lambda a: (a + a, -a, a.abs(), a - 200), torch.tensor([200, 7, 128], dtype=U8)),
    "comparisons": (lambda a, b: (a < b, a == 1, a.ne(0.5), b >= 0), ints(3, 5), x(5)),
    # products
    "groups_of_rows": (
        lambda a, b, ends: torch._grouped_mm(a, b, offs=ends),
        ints(5, 9, 8, dtype=BF16),
        ints(9, 3, 8, 16, dtype=BF16),
        torch.tensor([4, 4, 9], dtype=I32),
    ),
    "pairs_of_matrices": (torch._grouped_mm, ints(5, 3, 4, 8, dtype=BF16), ints(9, 3, 8, 16, dtype=BF16)),
    "lists_of_tensors": (
        lambda a, b: (
            *torch._foreach_add([a, b], [b, a], alpha=2),
            *torch._foreach_mul([a, b], [2.0, 3.0]),
            *torch._foreach_pow(2.0, [a, b]),
            *torch._foreach_norm([a, b]),
            *torch._foreach_lerp([a, b], [b, a], 0.3),
            *torch._foreach_maximum([a, b], 0.5),
            *torch._foreach_addcdiv([a, b], [b, a], [a, b], [1.0, 2.0]),
            *torch._foreach_sqrt([a, b]),
        ),
        x(3, 4).abs() + 0.5,
        x(3, 4, seed=1).abs() + 0.5,
    ),
    # arithmetic
    "integer_division": (
        lambda a, b: (a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc")),
        *SIGNED,
    ),
    "lowest_by_minus_one": (
        lambda a: torch.floor_divide(a, -torch.ones_like(a)),
        torch.tensor([-(2**31)] * 3, dtype=I32),
    ),
    "float_modulo": (lambda a: (a % 0.75, a // 0.75, torch.fmod(a, 0.75), a % -0.75), x(9)),
    "powers": (lambda a: (a**2, a**3, a**0.5, a**-1, a**-2, a**1.7, 2**a, a**0), x(5).abs() + 0.1),
    "integer_powers": (lambda a: (a**2, a**5, 3**a), ints(7, 5)),
    "alpha": (
        lambda a, b: (torch.add(a, b, alpha=2), torch.sub(a, b, alpha=0.5), torch.rsub(a, b, alpha=3)),
        x(4),
        x(4),
    ),
    "shifts": (lambda a: (a << 3, a >> 1, a >> 70, a << 64), torch.tensor([5, -8])),
    # special values
    "clamp_keeps_nan": (lambda a: (a.clamp(-1, 2), a.clamp_min(0.5), a.clamp(max=1.5), F.hardtanh(a)), SPECIAL),
    "clamp_ints_by_floats": (lambda a: (torch.clamp_min(a, 0.5), torch.clamp(a, max=1.5)), torch.arange(-3, 6)),
    "extremes_with_nan": (lambda a: (a.max(), a.min(), a.argmax(), a.argmin(), *a.max(0), *a.min(0)), SPECIAL),
    "first_of_equals": (lambda a: (a.argmax(1), a.argmin(0), a.max(1).indices), ints(3, 4, 9)),
    "bool_max": (lambda a: (*a.max(0), *a.min(0)), ints(2, 7, 5, dtype=BOOL)),
    "classify": (lambda a: (a.isnan(), a.isinf(), a.isfinite(), a.sign(), a.signbit(), a.isposinf()), SPECIAL),
    "replace_nan": (lambda a: (torch.nan_to_num(a), torch.nan_to_num(a, 1.0, 2.0, 3.0)), SPECIAL),
    "fmax": (lambda a, b: (torch.fmax(a, b), torch.fmin(a, b), torch.maximum(a, b)), SPECIAL, SPECIAL.flip(0)),
    # activations
    "activations": (
        lambda a: (
            F.gelu(a),
            F.gelu(a, approximate="tanh"),
            F.silu(a),
            F.mish(a),
            F.softplus(a),
            F.elu(a),
            F.selu(a),
            F.celu(a, 1.3),
            F.leaky_relu(a),
            F.hardswish(a),
            F.hardsigmoid(a),
            F.relu6(a),
            F.logsigmoid(a),
            F.softsign(a),
            F.tanhshrink(a),
            F.softshrink(a),
            F.hardshrink(a),
            F.threshold(a, 0.1, 20.0),
            F.glu(a),
        ),
        x(3, 8) * 4,
    ),
    "prelu": (lambda a, w, v: (F.prelu(a, w), F.prelu(a, v)), x(2, 3, 4), x(1), x(3)),
    "lerp": (lambda a, b, w: (torch.lerp(a, b, 0.3), torch.lerp(a, b, w)), x(5), x(5, seed=1), x(5, seed=2)),
    "addcmul": (
        lambda a, b, d: (torch.addcmul(a, b, d, value=2), torch.addcdiv(a, b, d)),
        x(5),
        x(5, seed=1),
        x(5, seed=2),
    ),
    "where": (
        lambda m, a: (torch.where(m, a, 0), torch.where(m, 1, a), a.masked_fill(m, -INF)),
        ints(2, 5, dtype=BOOL),
        x(5),
    ),
    "casts": (
        lambda a: (a.to(I32), a.to(BF16), a.to(BOOL), a.byte(), a.to(torch.int8)),
        torch.tensor([-1.5, 250.2, 0.3]),
    ),
    "histogram": (
        lambda a: (torch.histc(a, 4, -1, 2), torch.histc(a, 6, 0, 5)),
        torch.tensor([-1.0, -0.26, -0.25, 0.5, 1.9, 2.0, 2.1, 5.0, NAN, INF, -INF, 0.0, 3.0]),
    ),
    "weight_norm": (
        lambda v, g, h: (*torch._weight_norm_interface(v, g, 0), *torch._weight_norm_interface(v, h, 2)),
        x(4, 3, 5),
        x(4, 1, 1, seed=1),
        x(1, 1, 5, seed=2),
    ),
    # encoder layers of torch.nn without gradients
    "encoder_layer": (
        lambda a, m, *w: (
            torch._transformer_encoder_layer_fwd(a, 8, 2, *w[:4], True, False, 1e-5, *w[4:], m, 1)
            + torch._transformer_encoder_layer_fwd(a, 8, 2, *w[:4], False, True, 1e-5, *w[4:])
        ),
        x(2, 5, 8),
        torch.tensor([[0, 0, 0, 0, 0], [0, 0, 1, 1, 1]], dtype=BOOL),
        *(x(*s, seed=i) for i, s in enumerate(((24, 8), (24,), (8, 8), (8,), (8,), (8,), (8,), (8,)))),
        *(x(*s, seed=i) for i, s in enumerate(((12, 8), (12,), (8, 12), (8,)))),
    ),
    "attention_of_pairs": (
        lambda a, b, m, *w: torch._native_multi_head_attention(a, b, b, 8, 2, *w, m, True, False, 0),
        x(2, 5, 8),
        x(2, 5, 8, seed=1),
        torch.ones(5, 5, dtype=BOOL).tril(-1),
        *(x(*s, seed=i) for i, s in enumerate(((24, 8), (24,), (8, 8), (8,)))),
    ),
    # views
    "reshapes": (
        lambda a: (a.view(-1), a.flatten(1), a.unsqueeze(1), a[None].squeeze(0), a.reshape(4, -1)),
        x(2, 4, 6),
    ),
    "transposes": (lambda a: (a.T.contiguous(), a.transpose(0, 1) + 1, a.movedim(0, 1) * 2), x(3, 5)),
    "slices": (lambda a: (a[1:-1] + 0, a[:, ::2] + 0, a[-2] + 0, a[..., 3] + 0, a[:0] + 1, a[:, -3:] + 0), x(5, 6)),
    "splits": (
        lambda a: [p + 0 for p in (*a.split(2, 1), *a.chunk(3, 1), *a.unbind(0), *a.split([1, 4, 1], 1))],
        x(2, 6),
    ),
    "expand": (lambda a: (a.expand(3, -1) + 0, a[:, None] + a), x(4)),
    "windows_added_up": (
        lambda a: (
            torch.ops.aten.unfold_backward(a.unfold(1, 3, 2), a.shape, 1, 3, 2),
            torch.ops.aten.unfold_backward(a.unfold(0, 2, 3), a.shape, 0, 2, 3),
            torch.ops.aten.unfold_backward(a.unfold(1, 4, 1), a.shape, 1, 4, 1),
        ),
        x(5, 8),
    ),
    "folded_image": (
        lambda a: (
            F.fold(
                (a[:, :, None] * torch.arange(1.0, 7)[:, None]).flatten(1, 2),
                (5, 6),
                (3, 2),
                padding=(1, 0),
                stride=(2, 2),
            ),
            F.fold((a[:, :, None] * torch.arange(1.0, 7)[:, None]).flatten(1, 2)[..., :3], (3, 4), (3, 2)),
        ),
        x(2, 4, 9),
    ),
    "windows": (lambda a: (a.unfold(1, 3, 2) + 0, a.diagonal() + 0, a.diagonal(-1) + 0, a.diagonal(2) + 0), x(5, 8)),
    "rearranged": (
        lambda a: (a.flip(1), a.roll(2, 1), a.roll(-3), a.repeat(2, 1, 3), a.rot90(), a.tile((2,))),
        x(3, 4),
    ),
    "pixel_shuffle": (lambda a: (F.pixel_shuffle(a, 2), F.channel_shuffle(a, 2)), x(1, 8, 3, 2)),
    # creation
    "ranges": (
        lambda a: (
            torch.arange(7),
            torch.arange(2, 9, 3) + 0,
            torch.arange(0, 1, 0.25),
            torch.linspace(0, 1, 5),
            a + 0,
        ),
        x(1),
    ),
    "filled": (lambda a: (torch.zeros_like(a), torch.full_like(a, 2), a.new_ones(3), torch.eye(3), a + 0), x(2, 3)),
    "triangles": (
        lambda a: (a.tril(), a.triu(1), torch.tril(a, -1), torch.tril_indices(3, 3), torch.diag_embed(a)),
        x(4, 4),
    ),
    # gather
    "index": (lambda a, i: (a[i], a[:, i], a[i, i], a[i - 3], a[i[:, None], i]), x(5, 5), ints(3, 4)),
    "select_rows": (
        lambda a, i: (a.index_select(1, i), F.embedding(i, a), a.take(i), a.gather(0, i[None])),
        x(5, 5),
        ints(3, 4),
    ),
    "joined": (lambda a, b: (torch.cat([a, b], 1), torch.stack([a, a * 2], 1), torch.hstack([a, a])), x(2, 3), x(2, 1)),
    "padded_by_less_than_nothing": (
        lambda a: (F.pad(a, (-3, 2), mode="replicate"), F.pad(a, (2, -3), mode="reflect")),
        x(1, 2, 3),
    ),
    "joined_dtypes": (lambda a, b: torch.cat([a, b]), ints(3, 2), x(3)),
    "padded": (
        lambda a: (
            F.pad(a, (1, 2)),
            F.pad(a, (1, 0, 0, 2), value=3.0),
            F.pad(a, (-1, 1)),
            F.pad(a, (2, 1), mode="reflect"),
            F.pad(a, (2, 3), mode="replicate"),
        ),
        x(1, 3, 4),
    ),
    # reductions
    "sums": (lambda a: (a.sum(), a.sum(1), a.sum((0, 2), keepdim=True), a.mean(), a.mean(-1), a.prod(1)), x(2, 3, 4)),
    "half_sums": (lambda a: (a.sum(1), a.mean(1), a.sum(1, dtype=torch.float32)), x(3, 50, dtype=BF16)),
    "variance": (
        lambda a: (a.var(), a.std(1), a.var(1, unbiased=False), *torch.var_mean(a, 0), a.var(1, correction=0)),
        x(3, 9),
    ),
    "truth": (lambda a: (a.any(), a.all(1), (a > 0).any(0), a.byte().any()), ints(2, 3, 4)),
    "norms": (
        lambda a: (a.norm(), torch.linalg.vector_norm(a, 1, 1), torch.linalg.vector_norm(a, INF), a.norm(3, 0)),
        x(3, 4),
    ),
    "logsumexp": (lambda a: (a.logsumexp(1), torch.full_like(a, -INF).logsumexp(0)), x(3, 4)),
    "zero_dims": (
        lambda a: (a.sum(0), a.mean(0), a.amax(0), a.argmax(0), a.flip(0), a.var(0, unbiased=False)),
        torch.tensor(3.14),
    ),
}
STATIC = (
    "encoder_layer",
    "attention_of_pairs",
    "zero_dims",
    "rearranged",
    "pixel_shuffle",
    "windows",
    "reshapes",
    "splits",
    "triangles",
    "padded",
)
IMAGES = {
    "nearest": lambda a: (F.interpolate(a, scale_factor=2), F.interpolate(a, size=(5, 7)), F.interpolate(a, (2, 2))),
    "bilinear": lambda a: (
        F.interpolate(a, scale_factor=2, mode="bilinear"),
        F.interpolate(a, size=(5, 7), mode="bilinear", align_corners=True),
    ),
    "bicubic": lambda a: F.interpolate(a, size=(7, 5), mode="bicubic"),
}


@pytest.mark.parametrize("name", CASES)
def test_static_sizes(name):
    fn, *args = CASES[name]
    compare(fn, args, "fake")


@pytest.mark.parametrize("name", [n for n in CASES if n not in STATIC])
def test_symbolic_sizes(name):
    fn, *args = CASES[name]
    compare(fn, args, "symbolic")


@pytest.mark.parametrize("name", IMAGES)
def test_resizing(name):
    compare(IMAGES[name], [x(1, 2, 3, 4)], "fake", 1e-4)


def gradient(fn):
    def both(v):
        leaf = v.detach().requires_grad_()
        y = fn(leaf)
        return torch.autograd.grad((y * y.detach().cos()).sum(), leaf)[0]

    return both


@pytest.mark.parametrize(
    "name",
    "gelu silu mish softplus elu selu leaky_relu hardswish hardsigmoid relu6 hardtanh logsigmoid softshrink hardshrink glu".split(),
)
def test_gradient(name):
    compare(gradient(getattr(F, name)), [x(3, 8) * 3], "real")


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "abs", "exp", "log1p", "rsqrt", "erf", "atan"])
def test_gradient_of_a_function(name):
    compare(gradient(getattr(torch, name)), [x(3, 8).abs()], "real")


def test_a_new_tensor_of_unknown_contents_is_the_same_every_time():
    assert not run(lambda a: torch.empty_like(a), [x(3)], "fake")[0].any()
