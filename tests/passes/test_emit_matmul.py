"""Matmul kernels against float64: ragged and dynamic sizes, dtypes, views on operands, fused ops, K in blocks."""

import ml_dtypes
import numpy as np
import pytest
import torch
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

from lamina.dialects.irdl import context


def compiled(text, **options):
    return compile_kernel(text, context=context(), **options)


def product(a, b, y, dtype="f32", symbols=(), op="matmul"):
    root = f'%y = "lamina.{op}"(%0, %1) : ({tensor(dtype, a)}, {tensor(dtype, b)}) -> {tensor(dtype, y)}'
    return kernel("matmul", [(dtype, a), (dtype, b)], [(dtype, y)], f"{root}\nreturn %y : {tensor(dtype, y)}", symbols)


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(got, exact, eager=None, k=1):
    """At most twice eager's error against float64, plus a few roundings of a sum of k terms."""
    got, exact = np.asarray(got, np.float64), np.asarray(exact, np.float64)
    eager_error = np.abs(np.asarray(eager, np.float64) - exact).max(initial=0) if eager is not None else 0.0
    floor = 1e-6 * np.sqrt(k) * max(1.0, np.abs(exact).max(initial=0))
    assert np.abs(got - exact).max(initial=0) <= 2 * eager_error + floor


@pytest.mark.parametrize(
    "m, k, n",
    [(1, 1, 1), (6, 8, 16), (7, 5, 3), (13, 33, 17), (5, 64, 40), (200, 20, 130), (3, 1500, 20), (0, 4, 3), (4, 0, 3)],
)
def test_static_sizes(m, k, n):
    a, b = normal(m, k), normal(k, n, seed=1)
    y = compiled(product((m, k), (k, n), (m, n)))(a, b)
    close(y, a.astype(float) @ b, torch.from_numpy(a) @ torch.from_numpy(b), k)


def test_dynamic_sizes():
    symbols = ("d0", "d1", "d2")
    run = compiled(product(("d0", "d1"), ("d1", "d2"), ("d0", "d2"), symbols=symbols))
    for m, k, n in [(1, 1, 1), (6, 3, 16), (11, 70, 33), (2, 1200, 5), (3, 0, 4), (0, 3, 2), (400, 9, 150)]:
        a, b = normal(m, k), normal(k, n, seed=1)
        close(run(a, b, sizes={"d0": m, "d1": k, "d2": n}), a.astype(float) @ b, k=k)


def test_batches():
    a, b = normal(2, 3, 5, 7), normal(2, 3, 7, 18, seed=1)
    close(compiled(product(a.shape, b.shape, (2, 3, 5, 18)))(a, b), a.astype(float) @ b)


def test_linear_takes_weights_by_rows():
    x, w = normal(2, 5, 19), normal(21, 19, seed=1)
    y = compiled(product(x.shape, w.shape, (2, 5, 21), op="linear"))(x, w)
    close(y, x.astype(float) @ w.T.astype(float))


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "i32", "i64", "u8", "i8"])
def test_dtypes(dtype):
    a, b = normal(9, 21) * 3, normal(21, 19, seed=1) * 3
    numpy = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64, "u8": np.uint8}.get(
        dtype
    ) or f"int{dtype[1:]}"
    a, b = (np.abs(x) if dtype == "u8" else x for x in (a, b))
    a, b = a.astype(numpy), b.astype(numpy)
    y = compiled(product(a.shape, b.shape, (9, 19), dtype))(a, b)
    assert y.dtype == a.dtype
    if dtype[0] in "iu":
        np.testing.assert_array_equal(y, a @ b)
    else:
        exact = a.astype(np.float64) @ b.astype(np.float64)
        rounding = {"f64": 1e-13, "bf16": 2**-8, "f16": 2**-10}[dtype]
        np.testing.assert_allclose(y.astype(np.float64), exact, rtol=rounding, atol=rounding)


def test_nan_and_infinity_come_through():
    a, b = normal(7, 9), normal(9, 20, seed=1)
    a[2, 3], a[4, 0], b[1, 17] = np.nan, np.inf, -np.inf
    y = compiled(product(a.shape, b.shape, (7, 20)))(a, b)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(a.astype(float) @ b.astype(float)))


EPILOGUE = """
  %y = "lamina.linear"(%0, %1, %2) : (tensor<11x8xf32>, tensor<21x8xf32>, tensor<21xf32>) -> tensor<11x21xf32>
  %e = tensor.empty() : tensor<11x21xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%y, %3 : tensor<11x21xf32>, tensor<21x11xf32>) outs(%e : tensor<11x21xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %z = arith.constant 0.0 : f32
    %c = arith.maximumf %a, %z : f32
    %s = arith.addf %c, %b : f32
    linalg.yield %s : f32 } -> tensor<11x21xf32>
  return %r, %y : tensor<11x21xf32>, tensor<11x21xf32>"""


def test_bias_activation_and_transposed_residual_are_fused():
    args = [("f32", (11, 8)), ("f32", (21, 8)), ("f32", (21,)), ("f32", (21, 11))]
    x, w, bias, residual = (normal(*s, seed=i) for i, (_, s) in enumerate(args))
    y, pre = compiled(kernel("matmul", args, [("f32", (11, 21))] * 2, EPILOGUE))(x, w, bias, residual)
    exact = x.astype(float) @ w.T.astype(float) + bias
    close(pre, exact)
    close(y, np.maximum(exact, 0) + residual.T)


PROLOGUE = """
  %s = tensor.extract_slice %0[1, 0, 2] [3, 5, 7] [1, 1, 1] : tensor<4x5x10xf32> to tensor<3x5x7xf32>
  %e = tensor.empty() : tensor<5x3x7xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (j, i, k)>, affine_map<(i, j, k) -> (i, j, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<3x5x7xf32>) outs(%e : tensor<5x3x7xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32 } -> tensor<5x3x7xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%t : tensor<5x3x7xf32>) outs(%e : tensor<5x3x7xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.negf %a : f32
    linalg.yield %b : f32 } -> tensor<5x3x7xf32>
  %y = "lamina.linear"(OPERAND, %1) : (tensor<5x3x7xf32>, tensor<9x7xf32>) -> tensor<5x3x9xf32>
  return %y : tensor<5x3x9xf32>"""


@pytest.mark.parametrize("operand, sign", [("%t", 1), ("%n", -1)])
def test_rows_behind_views_and_computed_rows(operand, sign):
    args = [("f32", (4, 5, 10)), ("f32", (9, 7))]
    x, w = normal(4, 5, 10), normal(9, 7, seed=1)
    y = compiled(kernel("matmul", args, [("f32", (5, 3, 9))], PROLOGUE.replace("OPERAND", operand)))(x, w)
    close(y, sign * x[1:, :, 2:9].swapaxes(0, 1).astype(float) @ w.T.astype(float))
