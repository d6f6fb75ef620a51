"""Tile kernels on random sizes: right numbers, and nothing read or written past the end of a buffer."""

import ml_dtypes
import numpy as np
import pytest
import torch
from mlir import ir
from support.guarded import guarded
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

from lamina.dialects.families.attention import Attention
from lamina.dialects.mlir_context import context
from lamina.passes import pass_manager
from lamina.targets import get_target
from lamina.targets.llvm import to_llvm_ir


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def run(text, inputs, shape, sizes=None):
    out = guarded(np.full(shape, np.nan, inputs[0].dtype))
    compile_kernel(text, context=context()).run([*map(guarded, inputs), out], sizes or {})
    return out


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("op", ["matmul", "linear"])
def test_products(seed, op):
    rng = np.random.default_rng(seed)
    m, k, n = (
        int(rng.choice([1, 2, 3, 5, 7, 13, 30, 200])),
        int(rng.integers(1, 70)),
        int(rng.choice([1, 9, 16, 40, 66, 130, 200])),
    )
    k = 1024 + k if seed % 6 == 5 else k
    dynamic = seed % 4 == 3
    a, b = normal(rng, m, k), normal(rng, *((k, n) if op == "matmul" else (n, k)))
    a_shape, y_shape = (("d0", k), ("d0", n)) if dynamic else ((m, k), (m, n))
    types = tensor("f32", a_shape), tensor("f32", b.shape), tensor("f32", y_shape)
    body = f'%y = "lamina.{op}"(%0, %1) : ({types[0]}, {types[1]}) -> {types[2]}\nreturn %y : {types[2]}'
    text = kernel("matmul", [("f32", a_shape), ("f32", b.shape)], [("f32", y_shape)], body, ("d0",) if dynamic else ())
    y = run(text, [a, b], (m, n), {"d0": m})
    np.testing.assert_allclose(
        y, a.astype(float) @ (b if op == "matmul" else b.T).astype(float), rtol=1e-4, atol=1e-4 * k**0.5
    )


@pytest.mark.parametrize("m, k, n", [(1, 7, 33), (9, 19, 70), (5, 64, 16)])
@pytest.mark.parametrize("op", ["matmul", "linear"])
def test_computed_operands(op, m, k, n):
    rng = np.random.default_rng(m)
    a, b = normal(rng, m, k), normal(rng, *((k, n) if op == "matmul" else (n, k)))
    x, w, y_type = (tensor("f32", s) for s in (a.shape, b.shape, (m, n)))

    def negated(name, given, type):
        return f"""
      %{name}e = tensor.empty() : {type}
      %{name} = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
          iterator_types = ["parallel", "parallel"]}} ins({given} : {type}) outs(%{name}e : {type}) {{
      ^bb0(%x: f32, %o: f32):
        %n = arith.negf %x : f32
        linalg.yield %n : f32 }} -> {type}"""

    body = f"""{negated("p", "%0", x)}{negated("q", "%1", w)}
      %y = "lamina.{op}"(%p, %q) : ({x}, {w}) -> {y_type}
      return %y : {y_type}"""
    y = run(kernel("matmul", [("f32", a.shape), ("f32", b.shape)], [("f32", (m, n))], body), [a, b], (m, n))
    exact = a.astype(float) @ (b if op == "matmul" else b.T).astype(float)
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5 * k**0.5)


@pytest.mark.parametrize(
    "m, k, n, dtype", [(50, 1100, 140, "f32"), (7, 5, 130, "f32"), (13, 21, 200, "f64"), (20, 9, 130, "bf16")]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_transposed_first_operands(m, k, n, dtype, dynamic):
    numpy = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}[dtype]
    rng = np.random.default_rng(m)
    a, b = (normal(rng, *s).astype(numpy) for s in [(k, m), (k, n)])
    rows = "d0" if dynamic else m
    given, turned, y_type = (tensor(dtype, s) for s in [(k, rows), (rows, k), (rows, n)])
    empty = f"tensor.empty({'%d0' if dynamic else ''}) : {turned}"
    body = f"""
      %e = {empty}
      %t = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
          iterator_types = ["parallel", "parallel"]}} ins(%0 : {given}) outs(%e : {turned}) {{
      ^bb0(%x: {dtype}, %o: {dtype}):
        linalg.yield %x : {dtype} }} -> {turned}
      %y = "lamina.matmul"(%t, %1) : ({turned}, {tensor(dtype, b.shape)}) -> {y_type}
      return %y : {y_type}"""
    args, symbols = [(dtype, (k, rows)), (dtype, b.shape)], ("d0",) if dynamic else ()
    y = run(kernel("matmul", args, [(dtype, (rows, n))], body, symbols), [a, b], (m, n), {"d0": m})
    exact = a.astype(float).T @ b.astype(float)
    close = {"f32": 1e-5, "f64": 1e-13, "bf16": 2**-8}[dtype]
    np.testing.assert_allclose(y.astype(float), exact, rtol=close, atol=close * k**0.5)


@pytest.mark.parametrize("seed", range(14))
def test_convolutions(seed):
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2, 4]))
    inputs, outputs = groups * int(rng.integers(1, 5)), groups * int(rng.choice([1, 2, 5, 9]))
    window, stride, dilation = ([int(rng.integers(1, top)) for _ in range(2)] for top in (4, 3, 3))
    padding = [int(rng.integers(0, w)) for w in window]
    size = [int(rng.integers(6, 40)) for _ in range(2)]
    x, w = normal(rng, 2, inputs, *size), normal(rng, outputs, inputs // groups, *window)
    check_convolution(x, w, (stride, padding, dilation), groups)


@pytest.mark.parametrize("seed", range(8))
def test_convolutions_of_few_positions(seed):
    rng = np.random.default_rng(seed)
    groups, channels, outputs = int(rng.choice([1, 1, 2])), int(rng.integers(1, 20)), int(rng.choice([4, 7, 17, 66]))
    padding, positions = ([int(rng.integers(low, low + 3)) for _ in range(2)] for low in (0, 1))
    window = [int(rng.integers(4, 20)) for _ in range(2)]
    size = [k + n - 1 - 2 * p for k, n, p in zip(window, positions, padding)]
    size = [max(1, s) for s in size]
    window = [s + 2 * p + 1 - n for s, p, n in zip(size, padding, positions)]
    x, w = normal(rng, 40, groups * channels, *size), normal(rng, groups * outputs, channels, *window)
    check_convolution(x, w, ([1, 1], padding, [1, 1]), groups)


def check_convolution(x, w, options, groups):
    exact = torch.convolution(
        torch.from_numpy(x).double(), torch.from_numpy(w).double(), None, *options, False, [0, 0], groups
    ).numpy()
    ints = [f"array<i64: {a}, {b}>" for a, b in options]
    types = tensor("f32", x.shape), tensor("f32", w.shape), tensor("f32", exact.shape)
    body = (
        f'%y = "lamina.conv"(%0, %1) {{stride = {ints[0]}, padding = {ints[1]}, dilation = {ints[2]}, groups = {groups} : i64, '
        f"transposed = false, output_padding = array<i64>}} : ({types[0]}, {types[1]}) -> {types[2]}\nreturn %y : {types[2]}"
    )
    text = kernel("conv", [("f32", x.shape), ("f32", w.shape)], [("f32", exact.shape)], body)
    np.testing.assert_allclose(run(text, [x, w], exact.shape), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_attention(seed):
    rng = np.random.default_rng(seed)
    heads, gqa = int(rng.integers(1, 3)), int(rng.choice([1, 2]))
    queries, keys = int(rng.choice([1, 2, 4, 7, 20, 100])), int(rng.choice([1, 3, 16, 50, 530]))
    depth, width, causal = int(rng.choice([4, 16, 20])), int(rng.choice([3, 16, 64])), bool(rng.integers(2))
    q, k, v = normal(rng, heads * gqa, queries, depth), normal(rng, heads, keys, depth), normal(rng, heads, keys, width)
    expected, _ = Attention.reference(q, k, v, None, causal, None, gqa)
    types = [tensor("f32", s) for s in (q.shape, k.shape, v.shape, expected.shape, q.shape[:-1])]
    body = (
        f'%y, %l = "lamina.attention"(%0, %1, %2) {{causal = {str(causal).lower()}, scale = unit, gqa = {gqa} : i64}} : '
        f"({', '.join(types[:3])}) -> ({types[3]}, {types[4]})\nreturn %y : {types[3]}"
    )
    text = kernel("attention", [("f32", x.shape) for x in (q, k, v)], [("f32", expected.shape)], body)
    np.testing.assert_allclose(run(text, [q, k, v], expected.shape), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_tiles_follow_the_target(target):
    """The innermost loop multiplies vectors of the target's width, without spilling sums to the stack."""
    text = kernel(
        "matmul", [("f32", (64, 64)), ("f32", (64, 64))], [("f32", (64, 64))],
        '%y = "lamina.matmul"(%0, %1) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>\nreturn %y : tensor<64x64xf32>',
    )  # fmt: skip
    module = ir.Module.parse(text, context())
    made = get_target(target)
    pass_manager.run(module, made.pipeline("matmul"))
    assembly = made.assembly(to_llvm_ir(module))
    register = {"x86-64-v3": "%ymm", "x86-64-v4": "%zmm"}[target]
    lines = assembly.splitlines()
    sums = [i for i, line in enumerate(lines) if "vfmadd" in line and register in line]
    assert len(sums) >= 12
    assert not any("(%rsp)" in line and register in line for line in lines[sums[0] : sums[11]])
