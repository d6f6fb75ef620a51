"""Tiles that multiply by lanes (AArch64's) compute the same; the code is portable, so it runs here."""

import dataclasses

import numpy as np
import pytest
from support import run_kernel
from support.tile_kernels import kernel

from lamina.dialects.mlir_context import context
from lamina.targets import native


@pytest.fixture(autouse=True)
def lanes(monkeypatch):
    host = native()
    # AArch64's tile, 8 rows of two vectors of 4: what its vectors of A hold is then whole in K here too
    features = dataclasses.replace(host.features, has_lane_fma=True, vector_bits=128, registers=32)
    monkeypatch.setattr(run_kernel, "get_target", lambda name: dataclasses.replace(host, features=features))


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (8, 4, 8), (9, 7, 20), (17, 258, 33), (3, 900, 8), (20, 900, 64)])
def test_products(m, k, n):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    types = f"(tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>"
    body = f'%y = "lamina.matmul"(%0, %1) : {types}\nreturn %y : tensor<{m}x{n}xf32>'
    text = kernel("matmul", [("f32", (m, k)), ("f32", (k, n))], [("f32", (m, n))], body)
    y = run_kernel.compile_kernel(text, context=context())(a, b)
    np.testing.assert_allclose(y, a.astype(float) @ b.astype(float), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("keys, depth", [(5, 8), (33, 20), (600, 16)])
def test_attention(keys, depth):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, depth), np.float32) for n in (11, keys, keys))
    shapes = [("f32", x.shape) for x in (q, k, v)]
    t = lambda n: f"tensor<2x{n}x{depth}xf32>"
    body = f"""%y, %l = "lamina.attention"(%0, %1, %2) {{causal = false, scale = unit, gqa = 1 : i64}} :
      ({t(11)}, {t(keys)}, {t(keys)}) -> ({t(11)}, tensor<2x11xf32>)
      return %y : {t(11)}"""
    y = run_kernel.compile_kernel(kernel("attention", shapes, shapes[:1], body), context=context())(q, k, v)
    scores = np.exp(q.astype(float) @ k.swapaxes(1, 2) / depth**0.5)
    np.testing.assert_allclose(y, scores / scores.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)
