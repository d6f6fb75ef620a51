"""ATen's structured ops and their gradients: traced, converted to a record, and interpreted, they give eager's values."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.samples import from_torch
from torch.fx.experimental.proxy_tensor import make_fx

from lamina.dialects import interpret
from lamina.frontend.aten.registry import Unsupported
from lamina.frontend.convert import convert

aten = torch.ops.aten


def x(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def positions(high, *shape):
    return torch.randint(high, shape)


def converted(fn, args):
    """The values of `fn(*args)` through the record: trace, convert, interpret."""
    return interpreted(_traced(fn, args), args)


def _traced(fn, args):
    traced = make_fx(torch.func.functionalize(lambda *a: fn(*a)))(*args)
    traced.graph.eliminate_dead_code()
    return traced.graph


def interpreted(graph, args):
    """Convert a graph and run it; the numbers of its outputs that are there, and their values."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    outputs = graph.output_node().args[0]
    outputs = [outputs] if isinstance(outputs, torch.fx.Node) else list(outputs)
    wanted = [i for i, o in enumerate(outputs) if o is not None]
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    part = convert(nodes, [outputs[i] for i in wanted])
    given = dict(zip(placeholders, args))
    made = interpret.run(part.graph, [from_torch(given[n]) for n in part.inputs])
    return wanted, [logical(buffer, spec) for buffer, spec in zip(made, part.outputs)]


def logical(buffer, spec):
    """A result as torch sees it: sizes and strides over its buffer."""
    strides = [n * buffer.itemsize for n in spec.stride]
    return np.lib.stride_tricks.as_strided(np.ascontiguousarray(buffer).reshape(-1), spec.size, strides)


CASES = {}


def case(name, fn, *args, tolerance=2e-5):
    CASES[name] = (fn, args, tolerance)


def gradients(fn, args, count):
    """`fn` and its gradients with respect to the first `count` float arguments, as one function of plain tensors."""
    floats = [i for i, a in enumerate(args) if a.is_floating_point()][:count]

    def of_floats(others, *leaves):
        given = dict(zip(floats, leaves)) | others
        return fn(*(given[i] for i in range(len(args))))

    def both(*tensors):
        others = {i: t for i, t in enumerate(tensors) if i not in floats}
        y, pull = torch.func.vjp(partial(of_floats, others), *(tensors[i] for i in floats))
        return y, *pull(torch.cos(y))

    return both


def gradient_case(name, fn, *args, tolerance=5e-5, count=None):
    CASES[name] = (gradients(fn, args, count), args, tolerance)


torch.manual_seed(0)
BF16 = torch.bfloat16

case("linear", F.linear, x(3, 4, 5), x(6, 5), x(6))
case("addmm", torch.addmm, x(6), x(4, 5), x(5, 6))
case("addmm_scaled", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), x(4, 6), x(4, 5), x(5, 6))
case("addmm_beta_0", lambda c, a, b: torch.addmm(c, a, b, beta=0), torch.full((4, 6), torch.nan), x(4, 5), x(5, 6))
case(
    "baddbmm_bf16",
    torch.baddbmm,
    x(2, 4, 6, dtype=BF16),
    x(2, 4, 5, dtype=BF16),
    x(2, 5, 6, dtype=BF16),
    tolerance=2e-2,
)
case(
    "addmv_addbmm", lambda v, a, b, c: (torch.addmv(v, a, b), torch.addbmm(a, c, c.mT)), x(4), x(4, 4), x(4), x(3, 4, 4)
)
case("matmul_ranks", lambda a, b, v: (a @ b, a @ v, v @ v, a[0] @ b), x(2, 3, 4, 4), x(4, 4), x(4))
case("matmul_broadcast", torch.matmul, x(2, 1, 3, 4), x(5, 4, 2))
case("einsum", lambda a, b: torch.einsum("bik,bjk->ij", a, b), x(2, 3, 4), x(2, 5, 4))

case("conv2d", lambda *a: F.conv2d(*a, stride=2, padding=1), x(2, 3, 7, 6), x(4, 3, 3, 3), x(4))
case("conv2d_unbatched", F.conv2d, x(3, 7, 6), x(4, 3, 3, 3))
case("conv1d_same", lambda *a: F.conv1d(*a, padding="same", dilation=3), x(2, 3, 9), x(4, 3, 2))
case(
    "conv_transpose2d",
    lambda *a: F.conv_transpose2d(*a, stride=2, output_padding=1),
    x(1, 4, 3, 3),
    x(4, 2, 3, 3),
    x(2),
)
gradient_case("conv_backward", lambda *a: F.conv2d(*a, stride=(2, 1), padding=1, dilation=(1, 2), groups=2),
              x(2, 4, 7, 8), x(6, 2, 3, 2), x(6))  # fmt: skip
gradient_case("conv_transpose_backward", lambda *a: F.conv_transpose1d(*a, stride=2, padding=1, groups=2, output_padding=1),
              x(2, 4, 5), x(4, 3, 3), x(6))  # fmt: skip

case("batch_norm", lambda *a: F.batch_norm(*a, eps=1e-3), x(2, 3, 4), x(3), x(3).abs(), x(3), x(3))
gradient_case(
    "batch_norm_train", lambda v, w, b: F.batch_norm(v, None, None, w, b, training=True), x(4, 3, 5), x(3), x(3)
)
case(
    "batch_norm_functional_eval",
    lambda *a: aten._native_batch_norm_legit_functional(*a, False, 0.1, 1e-5),
    x(2, 3, 4),
    x(3),
    x(3),
    x(3),
    x(3).abs(),
)
case(
    "batch_norm_with_update",
    lambda *a: aten._batch_norm_with_update_functional(*a, 0.1, 1e-5),
    x(2, 3, 4),
    x(3),
    x(3),
    x(3),
    x(3).abs(),
)
case("batch_norm_functional", lambda *a: aten._native_batch_norm_legit_functional(*a, True, 0.1, 1e-5),
     x(4, 3, 5), x(3), x(3), x(3), x(3).abs())  # fmt: skip
gradient_case("layer_norm", lambda v, w, b: F.layer_norm(v, (5,), w, b), x(3, 4, 5), x(5), x(5))
gradient_case("group_norm", lambda v, w, b: F.group_norm(v, 2, w, b), x(3, 4, 5), x(4), x(4))
gradient_case("rms_norm", lambda v, w: F.rms_norm(v, (5,), w), x(3, 5), x(5))
gradient_case("softmax", lambda v: F.softmax(v, 1), x(3, 5, 2))
gradient_case("log_softmax", lambda v: F.log_softmax(v, -1), x(3, 5))
case("safe_softmax", lambda v: aten._safe_softmax(v, 1), torch.tensor([[1.0, -torch.inf], [-torch.inf, -torch.inf]]))

gradient_case("max_pool2d", lambda v: F.max_pool2d(v, 3, 2, 1), x(2, 3, 7, 8))
case("max_pool2d_unbatched", lambda v: F.max_pool2d(v, 2, ceil_mode=True, return_indices=True), x(3, 7, 8))
gradient_case("avg_pool2d", lambda v: F.avg_pool2d(v, 3, 2, 1), x(2, 3, 7, 8))
gradient_case(
    "avg_pool2d_ceil", lambda v: F.avg_pool2d(v, 3, 2, 1, ceil_mode=True, count_include_pad=False), x(2, 3, 8, 7)
)
case("avg_pool1d", lambda v: F.avg_pool1d(v, 3), x(2, 3, 9))
gradient_case("avg_pool2d_touching", lambda v: F.avg_pool2d(v, 2), x(2, 3, 7, 8))
gradient_case("avg_pool2d_of_a_divisor", lambda v: F.avg_pool2d(v, (3, 2), divisor_override=5), x(2, 3, 7, 8))
gradient_case("adaptive_avg_pool2d", lambda v: F.adaptive_avg_pool2d(v, (2, 4)), x(2, 3, 6, 8))
case("adaptive_uneven", lambda v: (F.adaptive_avg_pool2d(v, (3, 1)), F.adaptive_avg_pool2d(v, 1)), x(2, 3, 7, 8))
case("adaptive_max_pool2d", lambda v: F.adaptive_max_pool2d(v, (2, 3), return_indices=True), x(2, 3, 6, 8))

case("attention", aten._scaled_dot_product_flash_attention_for_cpu, x(1, 2, 4, 8), x(1, 2, 6, 8), x(1, 2, 6, 8))
gradient_case("attention_causal", lambda *a: F.scaled_dot_product_attention(*a, is_causal=True),
              x(2, 2, 5, 8), x(2, 2, 5, 8), x(2, 2, 5, 8))  # fmt: skip
case("attention_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > 0),
     x(1, 2, 4, 8), x(1, 2, 6, 8), x(1, 2, 6, 8), x(4, 6))  # fmt: skip

case("sort", lambda v: (*torch.sort(v, stable=True, descending=True), torch.argsort(v, 0)), x(4, 9))
case("topk", lambda v: torch.topk(v, 3, largest=False), x(4, 9))
case(
    "scans",
    lambda v, i: (v.cumsum(1), v.cumprod(0), i.cumsum(0), *v.cummax(1), v.logcumsumexp(1)),
    x(3, 5),
    positions(9, 4),
)
case("cumsum_bool", lambda v: (v > 0).cumsum(1, dtype=BF16), x(3, 5))
case(
    "searchsorted",
    lambda e, v: (torch.searchsorted(e, v), torch.bucketize(v, e, right=True)),
    torch.arange(5.0),
    x(3, 4),
)

case(
    "scatter",
    lambda v, i, s: (v.scatter(0, i, s), v.scatter(1, i, 2.5), v.scatter_add(0, i, s)),
    x(5, 5),
    positions(5, 3, 4),
    x(3, 4),
)
case("scatter_reduce", lambda v, i, s: (v.scatter_reduce(0, i, s, "amax", include_self=False), v.scatter_reduce(0, i, s, "prod")),
     x(4, 3), positions(4, 6, 3), x(6, 3))  # fmt: skip
case("index_ops", lambda v, i, s: (v.index_add(0, i, s, alpha=2), v.index_copy(1, i, s.mT), v.index_fill(0, i - 4, 7.0)),
     x(4, 4), positions(4, 6), x(6, 4))  # fmt: skip
case(
    "index_put",
    lambda v, i, j, s: (v.index_put((i, j), s, True), aten.index_put(v, (None, i), s[0])),
    x(4, 4),
    positions(4, 6),
    positions(4, 6),
    x(6),
)
case(
    "index_put_rows_by_mask",
    lambda v, row, rows: [v.index_put((v[:, 0] > 0,), s) for s in (row, row[None], row[:1], rows)],
    torch.tensor([[1.0, 2], [-1, 3], [2, 4]]),
    x(2),
    x(2, 1),
)
case("index_put_mask", lambda v: v.index_put((v > 0,), torch.tensor(9.0)), x(4, 4))
case(
    "masked_index_put",
    lambda v, m, i, s: aten._unsafe_masked_index_put_accumulate(v, m, [i, None], s),
    x(4, 3),
    positions(2, 5, 1) > 0,
    torch.tensor([1, 9, -7, 1, 3]),
    x(5, 3),
)
case("chunk_cat", lambda a, b: aten._chunk_cat([a, b], 1, 2), x(2, 3, 2), x(2, 4))
DEGREES, POINTS = (
    torch.arange(-1.0, 12.0)[:, None],
    torch.tensor([-3.0, -1.5, -1, -0.7, -0.2, 0, 0.4, 0.5, 0.9, 1, 2.5]),
)
for kind in "tuvw":
    case(f"chebyshev_{kind}", getattr(aten, f"special_chebyshev_polynomial_{kind}"), POINTS.double(), DEGREES)
    case(f"shifted_chebyshev_{kind}", getattr(aten, f"special_shifted_chebyshev_polynomial_{kind}"),
         POINTS.double(), DEGREES)  # fmt: skip
case("spherical_bessel", torch.special.spherical_bessel_j0, torch.tensor([0, 0.3, -0.5, 0.6, 20, torch.inf]))
case("block_scatters", lambda v, s: (v.slice_scatter(s, 0, 1, 5, 2), v.select_scatter(s[0], 0, -1)), x(6, 4), x(2, 4))
gradient_case("diagonals", lambda v: v.diagonal(1, 0, 2) * v.diagonal(-1, 0, 2)[:, :1], x(4, 2, 3))
for mode in ("replicate", "reflect"):
    gradient_case(f"{mode}_pad", lambda v, m=mode: F.pad(v, (2, 1, -1, 2), mode=m), x(1, 2, 4, 3))
gradient_case("soft_margin_loss", lambda v, y: F.soft_margin_loss(v, y.detach().sign()), x(3, 4), x(3, 4), count=1)
gradient_case("select_and_slice_backward", lambda v: v[1, 1:4:2] * v[0, :2], x(3, 6))

case(
    "scatter_means",
    lambda v, i, s: (
        v.scatter_reduce(0, i, s, "mean"),
        v.scatter_reduce(0, i, s, "mean", include_self=False),
        (v * 9).long().scatter_reduce(0, i, (s * 9).long(), "mean"),
    ),
    x(4, 3),
    positions(4, 6, 3),
    x(6, 3),
)
case("index_add_0d", lambda v, i, s: (v.index_add(0, i, s), v.index_fill(0, i, 3.0)), x(), torch.tensor(0), x())
case(
    "masked_scatter",
    lambda v, s: (v.masked_scatter(v > 0, s), v[:, 0].masked_scatter(v[:, 0] > 0, s[0])),
    x(4, 4),
    x(4, 4),
)
case(
    "medians",
    lambda v: (v.median(), v.median(1, True).values, v.kthvalue(2).values),
    torch.tensor([[1.0, 3, 2], [torch.nan, 0, 1]]),
)
case("distances", lambda a, b: [torch.cdist(a, b, p) for p in (0.0, 1.0, 2.0, 3.0, torch.inf)], x(2, 3, 4), x(5, 4))
case("distances_in_one_matrix", lambda v: [F.pdist(v, p) for p in (0.0, 1.0, 2.0, 3.0, torch.inf)], x(5, 4))
case("bilinear_form", F.bilinear, x(4, 3), x(4, 5), x(2, 3, 5), x(2))
case(
    "nanmedian",
    lambda v: (torch.nanmedian(v), *(torch.nanmedian(v, d).values for d in (0, 1)), torch.nanmedian(v.long())),
    torch.where(x(5, 6) > 0.8, torch.nan, x(5, 6)),
)
case("max_unpool2d", lambda v: F.max_unpool2d(*F.max_pool2d(v, 2, return_indices=True), 2), x(2, 3, 4, 6))
gradient_case("avg_pool3d", lambda v: F.avg_pool3d(v, 2, 1, 1), x(1, 2, 3, 4, 5))
case(
    "embedding_bag",
    lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"),
    x(7, 4),
    positions(7, 9),
    torch.tensor([0, 3, 3]),
)
gradient_case("embedding", lambda w, i: F.embedding(i, w, padding_idx=2), x(7, 4), positions(7, 3, 5))

gradient_case("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), x(4, 3, 2), x(4, 1, 1))
gradient_case("weight_norm_last", lambda v, g: torch._weight_norm(v, g, 2), x(4, 3, 2), x(1, 1, 2))

TARGET = torch.tensor([1, 4, -100, 0])
gradient_case("cross_entropy", lambda v, t: F.cross_entropy(v, t), x(4, 5), TARGET)
gradient_case(
    "cross_entropy_sum_weight",
    lambda v, w: F.nll_loss(v, TARGET.clamp(0), w, reduction="sum"),
    x(4, 5),
    x(5).abs(),
    count=1,
)
gradient_case(
    "nll_none_2d", lambda v, t: F.nll_loss(v, t, reduction="none", ignore_index=1), x(2, 5, 3, 2), positions(5, 2, 3, 2)
)
for _loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits):
    gradient_case(_loss.__name__, lambda v, t, f=_loss: f(v, t), x(4, 5), x(4, 5), count=1)
gradient_case(
    "binary_cross_entropy",
    lambda v, t: F.binary_cross_entropy(v.sigmoid(), t, reduction="sum"),
    x(4, 5),
    x(4, 5).sigmoid(),
    count=1,
)
case("mse_bf16", F.mse_loss, x(4, 5, dtype=BF16), x(4, 5, dtype=BF16), tolerance=2e-2)
case("dropout_backward_ints", lambda v, m: aten.native_dropout_backward(v, m, 2.0), positions(9, 5), x(5) > 0)
case("dropout_eval", lambda v: F.dropout(v, 0.5, False) + 1, x(3))


@pytest.mark.parametrize("name", CASES)
def test_converted_equals_eager(name):
    fn, args, tolerance = CASES[name]
    expected = fn(*args)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for i, value in zip(*converted(fn, args)):
        want = from_torch(expected[i])
        assert (value.shape, value.dtype) == (want.shape, want.dtype), i
        np.testing.assert_allclose(value.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)


def one_node(op, args, kwargs):
    """The graph of one op, as torch.export leaves composites; tensors among `args` become its inputs."""
    graph = torch.fx.Graph()
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    nodes = iter([graph.placeholder(f"x{i}") for i in range(len(tensors))])
    given = [next(nodes) if isinstance(a, torch.Tensor) else a for a in args]
    for node, tensor in zip(graph.nodes, tensors):
        node.meta["val"] = tensor
    made = graph.call_function(op, tuple(given), kwargs)
    made.meta["val"] = op(*args, **kwargs)
    graph.output([made])
    return graph, tensors


COMPOSITES = [
    (aten.matmul.default, (x(4), x(4, 5)), {}),
    (aten.matmul.default, (x(2, 3, 4), x(4)), {}),
    (aten.matmul.default, (x(2, 1, 3, 4), x(5, 4, 2)), {}),
    (aten.matmul.default, (x(2, 3, 4), x(4, 2)), {}),
    (aten.linear.default, (x(3, 4), x(5, 4), x(5)), {}),
    (aten.conv2d.default, (x(3, 7, 6), x(4, 3, 3, 3), x(4), [2], [1]), {}),
    (aten.conv1d.padding, (x(2, 3, 9), x(4, 3, 2), None, [1], "same", [3]), {}),
    (aten.layer_norm.default, (x(3, 4), [4], x(4)), {}),
    (aten.rms_norm.default, (x(3, 4, dtype=BF16), [4], x(4, dtype=BF16)), {}),
    (aten.group_norm.default, (x(2, 4, 3), 2), {}),
    (aten.batch_norm.default, (x(2, 4, 3), None, x(4), None, None, True, 0.1, 1e-5, False), {}),
    (aten.max_pool2d.default, (x(2, 3, 6, 6), [2, 2]), {}),
    (aten.scaled_dot_product_attention.default, (x(2, 4, 3, 8), x(2, 2, 5, 8), x(2, 2, 5, 8)), {"enable_gqa": True}),
    (aten.scaled_dot_product_attention.default, (x(3, 8), x(5, 8), x(5, 8)), {"scale": 0.5}),
    (aten.cross_entropy_loss.default, (x(4, 5), TARGET), {}),
    (aten.softmax.int, (x(3, 4), -1), {"dtype": torch.float64}),
    (aten.argsort.default, (x(3, 9), 1, True), {}),
]


@pytest.mark.parametrize("op,args,kwargs", COMPOSITES, ids=lambda v: str(v) if hasattr(v, "_schema") else "")
def test_composite_equals_eager(op, args, kwargs):
    graph, tensors = one_node(op, args, kwargs)
    ((_, value),) = zip(*interpreted(graph, tensors))
    want = from_torch(op(*args, **kwargs))
    tolerance = 2e-2 if want.dtype.itemsize == 2 else 2e-5
    assert (value.shape, value.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(value.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_dropout_that_draws_is_left_to_eager():
    graph, tensors = one_node(aten.dropout.default, (x(3), 0.5, True), {})
    with pytest.raises(Unsupported, match="random"):
        interpreted(graph, tensors)
