"""Matmul kernels against float64: ragged and dynamic sizes, dtypes, views on operands, fused ops, K in blocks."""

import ml_dtypes
import numpy as np
import pytest
import torch
from support.run_kernel import compile_kernel
from support.tile_kernels import byte_product, kernel, tensor

from lamina.dialects.mlir_context import context
from lamina.passes.tiles.micro import Tile, fitted
from lamina.runtime.machine import missing
from lamina.targets import get_target


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


@pytest.mark.parametrize("m, k, n", [(64, 768, 64), (12, 4096, 48), (1, 4096, 128), (7, 20000, 16)])
@pytest.mark.parametrize("op", ["matmul", "linear"])
def test_long_sums_are_as_accurate_as_eager(m, k, n, op):
    a, b = normal(m, k), normal(*((k, n) if op == "matmul" else (n, k)), seed=1)
    y = compiled(product(a.shape, b.shape, (m, n), op=op))(a, b)
    right = b if op == "matmul" else b.T
    exact = a.astype(float) @ right.astype(float)
    eager = (torch.from_numpy(a) @ torch.from_numpy(right)).numpy()
    error = lambda x: np.sqrt(np.mean((x - exact) ** 2))
    assert error(y) <= 2 * error(eager)


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


@pytest.mark.parametrize("m, n", [(1, 70), (2, 64), (4, 66), (15, 100)])
def test_few_rows_read_b_in_place(m, n):
    a, b = normal(m, 21), normal(21, n, seed=1)
    close(compiled(product(a.shape, b.shape, (m, n)))(a, b), a.astype(float) @ b)


def test_few_rows_of_symbolic_length_read_b_in_place():
    run = compiled(product((3, "d0"), ("d0", 70), (3, 70), symbols=("d0",)))
    for k in (0, 1, 8, 21):
        a, b = normal(3, k), normal(k, 70, seed=1)
        close(run(a, b, sizes={"d0": k}), a.astype(float) @ b)


@pytest.mark.parametrize(
    "m, k, n, dtype", [(1, 19, 70, "f32"), (2, 64, 64, "f32"), (4, 5, 66, "f32"), (3, 40, 64, "bf16")]
)
def test_few_rows_times_weights_are_dot_products(m, k, n, dtype):
    x, w = (
        normal(*s, seed=i).astype(ml_dtypes.bfloat16 if dtype == "bf16" else np.float32)
        for i, s in enumerate([(m, k), (n, k)])
    )
    y = compiled(product(x.shape, w.shape, (m, n), dtype, op="linear"))(x, w)
    exact = x.astype(float) @ w.T.astype(float)
    close(y, exact) if dtype == "f32" else np.testing.assert_allclose(y.astype(float), exact, rtol=2**-7, atol=2**-6)


def pack(w, columns):
    n, k = w.shape
    padded = np.zeros((-(-n // columns) * columns, k), w.dtype)
    padded[:n] = w
    return np.ascontiguousarray(padded.reshape(-1, columns, k).swapaxes(1, 2))


@pytest.mark.parametrize(
    "n, k, dtype", [(16, 8, "f32"), (21, 19, "f32"), (40, 33, "f64"), (20, 9, "bf16"), (3, 2, "f16")]
)
def test_pack(n, k, dtype):
    numpy = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64}.get(dtype, np.float32)
    w = normal(n, k).astype(numpy)
    panels = (-(-n // 16), k, 16)
    body = f'%y = "lamina.pack"(%0) {{columns = 16 : i64}} : ({tensor(dtype, (n, k))}) -> {tensor(dtype, panels)}'
    text = kernel("matmul", [(dtype, (n, k))], [(dtype, panels)], f"{body}\nreturn %y : {tensor(dtype, panels)}")
    np.testing.assert_array_equal(compiled(text)(w), pack(w, 16))


@pytest.mark.parametrize("m", [1, 2, 3, 9, 70, "d0"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_packed_weights(m, dtype):
    n, k, columns = 120, 1100, 16
    x_type, w_type, y_type = (tensor(dtype, s) for s in [(m, k), (8, k, columns), (m, n)])
    body = (
        f'%y = "lamina.packed_linear"(%0, %1, %2) {{size = {n} : i64}} : ({x_type}, {w_type}, {tensor(dtype, (n,))}) -> {y_type}\n'
        f"return %y : {y_type}"
    )
    args = [(dtype, (m, k)), (dtype, (8, k, columns)), (dtype, (n,))]
    run = compiled(kernel("matmul", args, [(dtype, (m, n))], body, ("d0",) if m == "d0" else ()), target="x86-64-v3")
    rows = 13 if m == "d0" else m
    numpy = ml_dtypes.bfloat16 if dtype == "bf16" else np.float32
    x, w, bias = (normal(*s, seed=i).astype(numpy) for i, s in enumerate([(rows, k), (n, k), (n,)]))
    y = run(x, pack(w, columns), bias, sizes={"d0": rows} if m == "d0" else {})
    exact = x.astype(float) @ w.T.astype(float) + bias.astype(float)
    close(y, exact, k=k) if dtype == "f32" else np.testing.assert_allclose(
        y.astype(float), exact, rtol=2**-8, atol=2**-5
    )


@pytest.mark.parametrize("m, fetches", [(6, False), (70, True)])
def test_weights_are_fetched_while_several_tiles_read_those_before(m, fetches):
    x, w, y = (tensor("f32", s) for s in [(m, 40), (3, 40, 16), (m, 48)])
    body = f'%y = "lamina.packed_linear"(%0, %1) {{size = 48 : i64}} : ({x}, {w}) -> {y}\nreturn %y : {y}'
    text = kernel("matmul", [("f32", (m, 40)), ("f32", (3, 40, 16))], [("f32", (m, 48))], body)
    assert ("call void @llvm.prefetch" in compiled(text, target="x86-64-v3").llvm_ir) == fetches


X86 = ("x86-64-v3", "x86-64-v3+vnni", "x86-64-v4", "x86-64-v4+vnni")


def groups(w, columns, depth):
    """`w` [N, K] as `lamina.pack` lays it out with a depth."""
    n, k = w.shape
    padded = np.zeros((-(-n // columns) * columns, -(-k // 16) * 16 if depth > 1 else k), w.dtype)
    padded[:n, :k] = w
    panels = padded.reshape(-1, columns, padded.shape[1] // depth, depth).swapaxes(1, 2)
    return np.ascontiguousarray(panels.reshape(*panels.shape[:2], columns * depth))


def random_bytes(dtype, *shape, seed=0):
    """Integers of 8 bits, the extreme ones often."""
    limits = np.iinfo(dtype)
    made = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape, dtype)
    return np.where(made % 3 == 0, np.where(made > limits.max // 2, limits.max, limits.min), made).astype(dtype)


@pytest.fixture(params=X86)
def x86(request):
    target = get_target(request.param)
    if lacks := missing(target.arch, target.flags):
        pytest.skip(f"this machine lacks {', '.join(lacks)}")
    return target


# rows for one tile and several, K in blocks and of no whole register, columns of no whole panel
@pytest.mark.parametrize("m, k, n", [(5, 40, 140), (33, 1101, 131), (40, 64, 128), ("d0", 96, 128)])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("a, b", [("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8")])
def test_products_of_bytes_are_exact(x86, a, b, by_columns, m, k, n):
    names = {"i8": np.int8, "u8": np.uint8}
    run = compiled(byte_product(a, b, m, k, n, by_columns, ("d0",) if m == "d0" else ()), target=x86.name)
    rows = 17 if m == "d0" else m
    x, w = random_bytes(names[a], rows, k), random_bytes(names[b], *((n, k) if by_columns else (k, n)), seed=1)
    y = run(x, w, sizes={"d0": rows} if m == "d0" else {})
    np.testing.assert_array_equal(y, x.astype(np.int32) @ (w.T if by_columns else w).astype(np.int32))


@pytest.mark.parametrize("m, k, n", [(1, 64, 140), (3, 40, 256), (33, 1101, 131), ("d0", 96, 128)])
@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize("grouped", [False, True])
def test_packed_bytes_are_exact(x86, dtype, grouped, m, k, n):
    columns, depth = 2 * x86.features.lanes(), x86.features.packed_depth(dtype) if grouped else 1
    rows = 17 if m == "d0" else m
    x, w = random_bytes({"i8": np.int8, "u8": np.uint8}[dtype], rows, k), random_bytes(np.int8, n, k, seed=1)
    packed = groups(w, columns, depth)
    y = tensor("i32", (m, n))
    attributes = f"{{size = {n} : i64, depth = {depth} : i64}}"
    root = f'%y = "lamina.packed_linear"(%0, %1) {attributes} : ({tensor(dtype, (m, k))}, {tensor("i8", packed.shape)}) -> {y}'
    args = [(dtype, (m, k)), ("i8", packed.shape)]
    symbols = ("d0",) if m == "d0" else ()
    text = kernel("matmul", args, [("i32", (m, n))], f"{root}\nreturn %y : {y}", symbols)
    got = compiled(text, target=x86.name)(x, packed, sizes={"d0": rows} if m == "d0" else {})
    np.testing.assert_array_equal(got, x.astype(np.int32) @ w.T.astype(np.int32))


@pytest.mark.parametrize("n, k, depth, turned", [(21, 35, 4, False), (32, 48, 2, True), (16, 17, 8, True)])
def test_weights_in_groups(n, k, depth, turned):
    w = random_bytes(np.int8, *((k, n) if turned else (n, k)))
    made = groups(w.T if turned else w, 16, depth)
    shape, out = tensor("i8", w.shape), tensor("i8", made.shape)
    turn = f"""
  %e = tensor.empty() : {tensor("i8", (n, k))}
  %w = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
      ins(%0 : {shape}) outs(%e : {tensor("i8", (n, k))}) {{
  ^bb0(%x: i8, %o: i8):
    linalg.yield %x : i8
  }} -> {tensor("i8", (n, k))}""" if turned else ""  # fmt: skip
    body = f"""{turn}
  %y = "lamina.pack"(%{"w" if turned else "0"}) {{columns = 16 : i64, depth = {depth} : i64}} : ({tensor("i8", (n, k))}) -> {out}
  return %y : {out}"""
    np.testing.assert_array_equal(compiled(kernel("matmul", [("i8", w.shape)], [("i8", made.shape)], body))(w), made)


@pytest.mark.parametrize("rows, height", [(3, 6), (6, 6), (8, 4), (9, 5), (12, 6), (14, 5), (20, 5), (32, 6), (128, 6)])
def test_tiles_are_as_high_as_cuts_the_rows_best(rows, height):
    assert fitted(Tile(6, 2, 8, "f32"), rows).rows == height
    assert fitted(Tile(6, 2, 8, "f32", by_lane=True), rows).rows == 6
