"""Convolution kernels against eager in float64: padding, stride, dilation, groups, ranks, dynamic sizes, fused ops."""

import numpy as np
import pytest
import torch
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

from lamina.dialects import dims
from lamina.dialects.mlir_context import context
from lamina.passes.tiles.conv_direct import for_rows
from lamina.passes.tiles.micro import Tile


def ints(values):
    return f"array<i64: {', '.join(map(str, values))}>"


def conv_op(x, w, y, stride, padding, dilation, groups, dtype="f32", bias=False):
    operands, types = ("%0, %1, %2", [x, w, (w[0],)]) if bias else ("%0, %1", [x, w])
    signature = ", ".join(tensor(dtype, t) for t in types)
    return (
        f'%y = "lamina.conv"({operands}) {{stride = {ints(stride)}, padding = {ints(padding)}, dilation = {ints(dilation)}, '
        f"groups = {groups} : i64, transposed = false, output_padding = array<i64>}} : ({signature}) -> {tensor(dtype, y)}"
    )


def run(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, dtype="f32"):
    n = x.dim() - 2
    spread = lambda v: list(v) if isinstance(v, tuple) else [v] * n
    options = (spread(stride), spread(padding), spread(dilation))
    double = [t.double() if t is not None else None for t in (x, w, bias)]
    exact = torch.convolution(*double, *options, False, [0] * n, groups)
    args = [(dtype, tuple(t.shape)) for t in (x, w, bias) if t is not None]
    y = tuple(exact.shape)
    root = conv_op(tuple(x.shape), tuple(w.shape), y, *options, groups, dtype, bias is not None)
    text = kernel("conv", args, [(dtype, y)], f"{root}\nreturn %y : {tensor(dtype, y)}")
    return compile_kernel(text, context=context())(*(t.numpy() for t in (x, w, bias) if t is not None)), exact.numpy()


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((1, 3, 8, 9), (7, 3, 3, 3), dict(padding=1)),
        ((2, 4, 7, 7), (16, 4, 3, 3), dict(padding=1)),
        ((1, 3, 23, 21), (8, 3, 7, 7), dict(padding=3, stride=2)),
        ((1, 5, 14, 14), (6, 5, 1, 1), dict()),
        ((1, 5, 14, 13), (6, 5, 1, 1), dict(stride=2)),
        ((1, 6, 12, 10), (9, 2, 3, 3), dict(padding=1, groups=3)),
        ((1, 2, 20, 40), (3, 2, 3, 2), dict(padding=(2, 1), dilation=(2, 3), stride=(1, 2))),
        ((2, 3, 50), (4, 3, 5), dict(padding=2, stride=3)),
        ((1, 2, 300), (4, 2, 3), dict(padding=1)),
        ((1, 2, 5, 6, 7), (3, 2, 2, 3, 3), dict(padding=(0, 1, 1), stride=(1, 2, 1))),
        ((1, 2, 6, 2), (3, 2, 3, 1), dict(padding=(1, 0))),
        ((1, 150, 6, 6), (5, 150, 3, 3), dict(padding=1)),
        ((2, 4, 9, 9), (4, 1, 3, 3), dict(padding=1, groups=4)),
        ((1, 3, 40, 70), (3, 1, 7, 7), dict(padding=3, groups=3)),
        ((1, 4, 15, 17), (8, 2, 3, 5), dict(padding=(1, 2), groups=2, stride=2)),
        ((1, 2, 30), (2, 1, 4), dict(padding=1, groups=2)),
        ((1, 1, 3, 7), (1, 1, 3, 1), dict(padding=(1, 0))),
        # several short rows at once: rows of less than a vector, of two that overlap, of the last group's overlap
        ((2, 3, 7, 7), (3, 1, 5, 5), dict(padding=2, groups=3)),
        ((1, 2, 14, 14), (2, 1, 3, 3), dict(padding=1, groups=2)),
        ((1, 2, 27, 28), (4, 1, 5, 5), dict(padding=2, groups=2, stride=2)),
        ((1, 2, 3, 4, 6), (2, 1, 2, 3, 3), dict(padding=1, groups=2)),
        ((2, 3, 9, 3), (3, 1, 3, 3), dict(padding=1, groups=3)),
        ((1, 2, 6, 2), (2, 1, 3, 3), dict(padding=1, groups=2)),
        ((1, 3, 5, 1), (3, 1, 3, 3), dict(padding=1, groups=3)),
        ((1, 1, 5, 230), (1, 1, 3, 3), dict(padding=1)),
    ],
)
def test_equals_float64(x, w, options):
    got, exact = run(normal(*x), normal(*w, seed=1), normal(w[0], seed=2), **options)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


def test_vectors_fit_short_rows():
    # rows of 7 on AVX-512 were put together lane by lane
    wide = Tile(8, 2, 16, "f32")
    widths = {row: for_rows(wide, row).width for row in (1, 2, 3, 4, 7, 8, 14, 100)}
    assert widths == {1: 4, 2: 4, 3: 4, 4: 8, 7: 8, 8: 16, 14: 16, 100: 16}
    assert for_rows(wide, dims.symbol("s0")) == wide
    assert for_rows(Tile(8, 2, 8, "f64"), 1).width == 2


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((24, 3, 9, 10), (8, 3, 8, 9), dict(padding=1)),
        ((20, 2, 15, 13), (12, 2, 7, 6), dict(padding=1, dilation=2)),
        ((10, 2, 9, 12), (6, 2, 4, 5), dict(padding=(0, 1), stride=(2, 3), dilation=2)),
        ((16, 4, 8, 8), (10, 2, 7, 7), dict(padding=1, groups=2)),
        ((50, 2, 12, 12), (70, 2, 10, 10), dict()),  # several blocks of rows, the last panel ragged
        ((40, 300, 3, 3), (20, 300, 3, 3), dict()),  # one position; several channels in a block of K, fewer in the last
        ((6, 2, 30, 50), (5, 2, 28, 48), dict()),  # several blocks of K in a channel, fewer slices in the last
        ((2, 2, 30, 30), (5, 2, 22, 21), dict()),  # more positions than are turned by vectors
        ((9, 2, 1400), (4, 2, 1398), dict()),
        ((5, 1, 3, 700), (4, 1, 2, 699), dict()),  # a slice of more lines than are summed at once
        ((7, 2, 4, 5, 6), (6, 2, 4, 4, 5), dict()),
    ],
)
def test_fewer_positions_than_kernel_elements(x, w, options):
    got, exact = run(normal(*x), normal(*w, seed=1), normal(w[0], seed=2), **options)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=2e-4)


def test_gradient_of_weights_for_symbolic_batch_and_sizes():
    """Of a 3 x 3 convolution: batch and channels change places, positions are the weights' nine."""
    x, w, y = (7, "d0", "d1", "d2"), (6, "d0", "d1", "d2"), (7, 6, 3, 3)
    root = conv_op(x, w, y, [1, 1], [1, 1], [1, 1], 1)
    text = kernel(
        "conv", [("f32", x), ("f32", w)], [("f32", y)], f"{root}\nreturn %y : {tensor('f32', y)}", ("d0", "d1", "d2")
    )
    compiled = compile_kernel(text, context=context())
    for n, height, width in [(0, 5, 5), (1, 1, 1), (3, 9, 6), (2, 20, 33)]:
        a, b = normal(7, n, height, width), normal(6, n, height, width, seed=1)
        exact = torch.zeros(y, dtype=torch.float64)
        if n:
            exact = torch.conv2d(a.double(), b.double(), padding=1)
        got = compiled(a.numpy(), b.numpy(), sizes={"d0": n, "d1": height, "d2": width})
        np.testing.assert_allclose(got, exact.numpy(), rtol=1e-4, atol=1e-4)


def test_what_is_not_in_a_gradient_does_not_reach_it():
    """Infinity at an edge meets no zero: only the taps that read it are not finite."""
    x, g = normal(20, 2, 7, 7), normal(4, 2, 7, 7, seed=1)
    x[3, 1, 0, 0] = torch.inf
    got, exact = run(x, g, padding=1)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(exact))
    assert np.isfinite(got[3, 0]).sum() == 5


def test_dynamic_batch_and_sizes():
    x, y = ("d0", 3, "d1", "d2"), ("d0", 5, "d1", "d2")
    root = conv_op(x, (5, 3, 3, 3), y, [1, 1], [1, 1], [1, 1], 1)
    text = kernel(
        "conv",
        [("f32", x), ("f32", (5, 3, 3, 3))],
        [("f32", y)],
        f"{root}\nreturn %y : {tensor('f32', y)}",
        ("d0", "d1", "d2"),
    )
    compiled = compile_kernel(text, context=context())
    w = normal(5, 3, 3, 3, seed=1)
    for n, h, width in [(1, 1, 1), (2, 5, 9), (1, 20, 30), (3, 4, 2)]:
        a = normal(n, 3, h, width)
        exact = torch.conv2d(a.double(), w.double(), padding=1).numpy()
        got = compiled(a.numpy(), w.numpy(), sizes={"d0": n, "d1": h, "d2": width})
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


def test_short_rows_of_symbolic_height():
    x = ("d0", 2, "d1", 7)
    root = conv_op(x, (2, 1, 3, 3), x, [1, 1], [1, 1], [1, 1], 2)
    types = [("f32", x), ("f32", (2, 1, 3, 3))]
    text = kernel("conv", types, [("f32", x)], f"{root}\nreturn %y : {tensor('f32', x)}", ("d0", "d1"))
    compiled, w = compile_kernel(text, context=context()), normal(2, 1, 3, 3, seed=1)
    for n, h in [(1, 1), (2, 5), (1, 40), (1, 300)]:
        a = normal(n, 2, h, 7)
        exact = torch.conv2d(a.double(), w.double(), padding=1, groups=2).numpy()
        got = compiled(a.numpy(), w.numpy(), sizes={"d0": n, "d1": h})
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


EPILOGUE = """
  ROOT
  %e = tensor.empty() : tensor<2x5x6x7xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (b)>,
      affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%y, %3, %4, %5 : tensor<2x5x6x7xf32>, tensor<5xf32>, tensor<2x5x6x7xf32>, tensor<2x5x7xf32>) outs(%e : tensor<2x5x6x7xf32>) {
  ^bb0(%a: f32, %s: f32, %b: f32, %c: f32, %o: f32):
    %z = arith.constant 0.0 : f32
    %1 = arith.mulf %a, %s : f32
    %2 = arith.addf %1, %b : f32
    %q = arith.addf %2, %c : f32
    %m = arith.maximumf %q, %z : f32
    linalg.yield %m : f32 } -> tensor<2x5x6x7xf32>
  return %r : tensor<2x5x6x7xf32>"""


def test_scale_residual_and_relu_are_fused():
    shapes = [(2, 3, 6, 7), (5, 3, 3, 3), (5,), (5,), (2, 5, 6, 7), (2, 5, 7)]
    x, w, bias, scale, residual, rows = tensors = [normal(*s, seed=i) for i, s in enumerate(shapes)]
    y = (2, 5, 6, 7)
    root = conv_op(shapes[0], shapes[1], y, [1, 1], [1, 1], [1, 1], 1, bias=True)
    text = kernel(
        "conv",
        [("f32", s) for s in shapes],
        [("f32", y)],
        EPILOGUE.replace("ROOT", root)
        .replace("%1 =", "%t =")
        .replace("%1,", "%t,")
        .replace("%0, %t, %2)", "%0, %1, %2)")
        .replace("%2 = arith", "%u = arith")
        .replace("addf %2", "addf %u"),
    )
    got = compile_kernel(text, context=context())(*(t.numpy() for t in tensors))
    exact = (
        torch.conv2d(x.double(), w.double(), bias.double(), padding=1) * scale[:, None, None]
        + residual
        + rows[:, :, None]
    )
    np.testing.assert_allclose(got, exact.relu().numpy(), rtol=1e-4, atol=1e-4)


def test_bf16_rounds_once():
    x, w = normal(1, 3, 8, 8).bfloat16(), normal(4, 3, 3, 3, seed=1).bfloat16()
    import ml_dtypes

    y = (1, 4, 8, 8)
    root = conv_op((1, 3, 8, 8), (4, 3, 3, 3), y, [1, 1], [1, 1], [1, 1], 1, "bf16")
    text = kernel(
        "conv",
        [("bf16", (1, 3, 8, 8)), ("bf16", (4, 3, 3, 3))],
        [("bf16", y)],
        f"{root}\nreturn %y : {tensor('bf16', y)}",
    )
    as_numpy = lambda t: t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    got = compile_kernel(text, context=context())(as_numpy(x), as_numpy(w)).astype(np.float64)
    exact = torch.conv2d(x.double(), w.double(), padding=1).numpy()
    np.testing.assert_allclose(got, exact, rtol=2**-8, atol=1e-2)
