"""Convolutions of each channel by itself on GPUs, simulated: runs of outputs, strides, edges, what follows them."""

import ml_dtypes
import numpy as np
import pytest
from mlir import ir
from support.simulate_gpu import simulate
from support.tile_kernels import kernel, tensor

from lamina.dialects.families.depthwise_conv import DepthwiseConv
from lamina.dialects.mlir_context import context
from lamina.passes.conv_window import Window
from lamina.passes.gpu.matmul.depthwise import MOST_RUN, best_run
from lamina.passes.pass_manager import run

NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
CASES = {  # dtype, image, kernel, stride, padding, dilation
    "padded": ("bf16", (2, 9, 10, 16), (3, 3), (1, 1), (1, 1), (1, 1)),
    "wide kernel": ("f16", (1, 7, 7, 8), (7, 7), (1, 1), (3, 3), (1, 1)),
    "strided": ("bf16", (1, 11, 30, 24), (3, 2), (2, 3), (1, 0), (1, 1)),
    "dilated": ("f32", (1, 9, 17, 4), (2, 3), (1, 2), (2, 1), (3, 2)),
    "a prime number of outputs": ("bf16", (3, 2, 23, 8), (1, 5), (1, 1), (0, 2), (1, 1)),
    "one dimension": ("f16", (2, 37, 16), (9,), (1,), (4,), (1,)),
    "three dimensions": ("f32", (1, 3, 4, 5, 8), (2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 1)),
    "odd channels": ("f32", (2, 5, 6, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    "f64": ("f64", (1, 4, 5, 6), (2, 2), (1, 1), (0, 0), (1, 1)),
}


def ints(values):
    return f"array<i64: {', '.join(map(str, values))}>"


def text_of(dtype, x, w, y, stride, padding, dilation, sizes=None):
    """A kernel with relu and the sum with another image behind it; `sizes` gives image and result by symbols."""
    image, result = sizes or (x, y)
    shapes = [image, w, (w[-1],), result]
    attributes = f"stride = {ints(stride)}, padding = {ints(padding)}, dilation = {ints(dilation)}"
    types, made = ", ".join(tensor(dtype, s) for s in shapes[:3]), tensor(dtype, result)
    same = f"affine_map<({', '.join(f'd{i}' for i in range(len(y)))}) -> ({', '.join(f'd{i}' for i in range(len(y)))})>"
    dynamic = "%n" if sizes else ""
    body = f"""
  %y = "lamina.depthwise_conv"(%0, %1, %2) {{{attributes}}} : ({types}) -> {made}
  %e = tensor.empty({dynamic}) : {made}
  %z = linalg.generic {{indexing_maps = [{same}, {same}, {same}], iterator_types = [{", ".join(['"parallel"'] * len(y))}]}}
      ins(%y, %3 : {made}, {made}) outs(%e : {made}) {{
  ^bb0(%p: {dtype}, %q: {dtype}, %r: {dtype}):
    %s = arith.addf %p, %q : {dtype}
    linalg.yield %s : {dtype}
  }} -> {made}
  return %z : {made}"""
    return kernel("conv", [(dtype, s) for s in shapes], [(dtype, result)], body, ["n"] if sizes else [])


def check(dtype, x, taps, stride, padding, dilation, sizes=None):
    rng, w = np.random.default_rng(0), (*taps, x[-1])
    given = [rng.standard_normal(s).astype(NUMPY[dtype]) for s in (x, w, (x[-1],))]
    exact = DepthwiseConv.reference(*(t.astype(np.float64) for t in given), stride, padding, dilation)
    given.append(rng.standard_normal(exact.shape).astype(NUMPY[dtype]))
    text = text_of(dtype, x, w, exact.shape, stride, padding, dilation, sizes and sizes(exact.shape))
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        run(module, "lamina-emit-gpu-matmul")
        (y,), status = simulate(module, given, [(exact.shape, np.dtype(NUMPY[dtype]))], [x[0]] if sizes else [])
        made = str(module)
    assert status == 0
    tolerance = {"f64": 1e-12, "f32": 1e-5, "f16": 8e-3, "bf16": 4e-2}[dtype]
    np.testing.assert_allclose(
        y.astype(np.float64), exact + given[3].astype(np.float64), rtol=tolerance, atol=tolerance
    )
    return made


@pytest.mark.parametrize("name", CASES)
def test_against_the_reference(name):
    text = check(*CASES[name])
    assert text.count("gpu.func @") == 1


def test_symbolic_images():
    check("bf16", (3, 5, 9, 8), (3, 3), (1, 1), (1, 1), (1, 1), lambda y: (("n", 5, 9, 8), ("n", *y[1:])))


def test_elements_of_the_image_are_read_once_for_a_run():
    """A row of 7 outputs with 3 taps sees 9 columns and 3 weights; the others are of the bias and of what is added."""
    text = check("bf16", (2, 6, 14, 64), (3, 3), (1, 1), (1, 1), (1, 1))
    assert text.count("vector.load") == 9 + 3 + 1 + 7


@pytest.mark.parametrize("out, run", [(56, 7), (14, 7), (8, 4), (5, 5)])
def test_runs_divide_rows(out, run):
    assert best_run(Window(out, out, 3, 1, 1, 1)) == run <= MOST_RUN
