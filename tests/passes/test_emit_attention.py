"""Attention kernels against the op's float64 reference: masks, causal, grouped heads, ragged and dynamic sizes, views."""

import ml_dtypes
import numpy as np
import pytest
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

from lamina.dialects.families.attention import Attention
from lamina.dialects.mlir_context import context


def attention_text(
    q, k, v, mask=None, mask_dtype="f32", causal=False, scale=None, gqa=1, dtype="f32", lse=True, symbols=()
):
    args = [(dtype, q), (dtype, k), (dtype, v)] + ([(mask_dtype, mask)] if mask is not None else [])
    out, sums = (*q[:-1], v[-1]), q[:-1]
    lse_dtype = "f64" if dtype == "f64" else "f32"
    scale_text = "unit" if scale is None else f"{scale} : f64"
    operands = ", ".join(f"%{i}" for i in range(len(args)))
    types = ", ".join(tensor(d, s) for d, s in args)
    body = (
        f'%y, %l = "lamina.attention"({operands}) {{causal = {str(causal).lower()}, scale = {scale_text}, gqa = {gqa} : i64}} : '
        f"({types}) -> ({tensor(dtype, out)}, {tensor(lse_dtype, sums)})\n"
    )
    results = [(dtype, out)] + ([(lse_dtype, sums)] if lse else [])
    body += f"return %y{', %l' if lse else ''} : {', '.join(tensor(d, s) for d, s in results)}"
    return kernel("attention", args, results, body, symbols)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(q, k, v, mask=None, rtol=2e-5, dtype="f32", **options):
    mask_dtype = "bool" if mask is not None and mask.dtype == bool else "f32"
    text = attention_text(
        q.shape, k.shape, v.shape, None if mask is None else mask.shape, mask_dtype, dtype=dtype, **options
    )
    operands = [x for x in (q, k, v, mask) if x is not None]
    out, lse = compile_kernel(text, context=context())(*operands)
    expected = Attention.reference(
        q, k, v, mask, options.get("causal", False), options.get("scale"), options.get("gqa", 1)
    )
    np.testing.assert_allclose(out.astype(float), expected[0].astype(float), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(lse, expected[1], rtol=max(rtol, 1e-5), atol=rtol)


@pytest.mark.parametrize(
    "heads, queries, keys, depth, width",
    [
        ((2, 3), 4, 6, 8, 8),
        ((1, 1), 1, 1, 1, 1),
        ((2,), 7, 33, 16, 16),
        ((1, 2), 50, 40, 20, 24),
        ((1, 2), 1, 70, 64, 64),
    ],
)
def test_sizes(heads, queries, keys, depth, width):
    check(normal(*heads, queries, depth), normal(*heads, keys, depth, seed=1), normal(*heads, keys, width, seed=2))


def test_causal_and_scale():
    check(normal(1, 2, 19, 8), normal(1, 2, 19, 8, seed=1), normal(1, 2, 19, 8, seed=2), causal=True, scale=0.3)
    check(normal(1, 2, 5, 8), normal(1, 2, 19, 8, seed=1), normal(1, 2, 19, 8, seed=2), causal=True)
    check(normal(1, 2, 19, 8), normal(1, 2, 5, 8, seed=1), normal(1, 2, 5, 8, seed=2), causal=True)


def test_causal_over_blocks_of_keys():
    check(normal(1, 1, 700, 8), normal(1, 1, 700, 8, seed=1), normal(1, 1, 700, 8, seed=2), causal=True)


def test_masks_over_blocks_of_keys():
    mask = np.zeros((3, 1100), bool)
    mask[0, 1050], mask[1, 3] = True, True
    check(normal(2, 3, 8), normal(2, 1100, 8, seed=1), normal(2, 1100, 8, seed=2), mask)


def test_grouped_heads():
    check(normal(2, 4, 3, 8), normal(2, 2, 7, 8, seed=1), normal(2, 2, 7, 8, seed=2), gqa=2)


@pytest.mark.parametrize("shape", [(3, 11), (2, 1, 1, 11), (2, 2, 3, 1), (1,)])
def test_float_masks_are_added(shape):
    check(normal(2, 2, 3, 8), normal(2, 2, 11, 8, seed=1), normal(2, 2, 11, 8, seed=2), normal(*shape, seed=3))


def test_bool_masks_keep_true_and_masked_rows_are_zero():
    mask = np.arange(33).reshape(3, 11) % 4 != 0
    mask[1] = False
    check(normal(2, 2, 3, 8), normal(2, 2, 11, 8, seed=1), normal(2, 2, 11, 8, seed=2), mask)


@pytest.mark.parametrize(
    "dtype, numpy, rtol", [("bf16", ml_dtypes.bfloat16, 1e-2), ("f16", np.float16, 2e-3), ("f64", np.float64, 1e-12)]
)
def test_dtypes(dtype, numpy, rtol):
    q, k, v = (normal(1, 2, 9, 16, seed=i).astype(numpy) for i in range(3))
    check(q, k, v, dtype=dtype, rtol=rtol)


def test_dynamic_sizes():
    q, kv = ("d0", 2, "d1", 16), ("d0", 2, "d2", 16)
    run = compile_kernel(attention_text(q, kv, kv, symbols=("d0", "d1", "d2"), lse=False), context=context())
    for b, queries, keys in [(1, 1, 1), (2, 13, 5), (1, 100, 70), (1, 2, 600), (1, 3, 0)]:
        x = normal(b, 2, queries, 16), normal(b, 2, keys, 16, seed=1), normal(b, 2, keys, 16, seed=2)
        expected, _ = Attention.reference(*x, None, False, None, 1)
        np.testing.assert_allclose(run(*x, sizes={"d0": b, "d1": queries, "d2": keys}), expected, rtol=2e-5, atol=2e-5)


def test_nan_stays_in_its_row():
    q, k, v = (normal(1, 1, 9, 8, seed=i) for i in range(3))
    q[0, 0, 4, 2] = np.nan
    out = compile_kernel(attention_text(q.shape, k.shape, v.shape, lse=False), context=context())(q, k, v)
    assert np.isnan(out[0, 0, 4]).all() and np.isfinite(np.delete(out[0, 0], 4, 0)).all()
