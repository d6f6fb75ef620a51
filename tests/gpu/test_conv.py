"""Convolutions on GPUs as matrix products, simulated: with bias, groups, strides; and the patches that TMA then reads."""

import ml_dtypes
import numpy as np
import pytest
import torch
from mlir import ir
from support.simulate_gpu import simulate
from support.tile_kernels import kernel, tensor

from lamina.dialects.families.channels_last_conv import ChannelsLastConv
from lamina.dialects.mlir_context import context
from lamina.passes.gpu.gpu_kernel import GpuKernel
from lamina.passes.gpu.matmul import emit_gpu_matmul
from lamina.passes.gpu.matmul.operands import place_operands
from lamina.passes.gpu.matmul.read_product import read_product
from lamina.passes.loops.kernel_functions import kernels
from lamina.passes.loops.tensor_graph import TensorGraph
from lamina.passes.pass_manager import run


def ints(values):
    return f"array<i64: {', '.join(map(str, values))}>"


def text_of(x, w, y, stride, padding, dilation, groups, dtype):
    attributes = (
        f"stride = {ints(stride)}, padding = {ints(padding)}, dilation = {ints(dilation)}, groups = {groups} : i64"
    )
    shapes = [x, w, (w[0],)]
    root = (
        f'%y = "lamina.conv"(%0, %1, %2) {{{attributes}, transposed = false, output_padding = array<i64>}} : '
        f"({', '.join(tensor(dtype, s) for s in shapes)}) -> {tensor(dtype, y)}"
    )
    return kernel("conv", [(dtype, s) for s in shapes], [(dtype, y)], f"{root}\nreturn %y : {tensor(dtype, y)}")


def eager(x, w, bias, stride, padding, dilation, groups):
    given = [torch.from_numpy(t.astype(np.float64)) for t in (x, w, bias)]
    return torch.convolution(*given, stride, padding, dilation, False, [0] * len(stride), groups).numpy()


CASES = [
    ((1, 3, 8, 9), (7, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    ((2, 4, 11, 9), (5, 4, 3, 2), [2, 1], [1, 0], [1, 2], 1),
    ((2, 6, 6, 5), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], 2),
    ((1, 5, 7, 7), (6, 5, 1, 1), [1, 1], [0, 0], [1, 1], 1),
    ((2, 3, 20), (4, 3, 5), [3], [2], [1], 1),
    ((1, 4, 6, 6), (4, 1, 3, 3), [1, 1], [1, 1], [1, 1], 4),
]


def given_of(x, w, dtype):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(dtype) for s in (x, w, (w[0],))]


@pytest.mark.parametrize("x, w, stride, padding, dilation, groups", CASES)
def test_against_eager(x, w, stride, padding, dilation, groups):
    given = given_of(x, w, np.float32)
    exact = eager(*given, stride, padding, dilation, groups)
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text_of(x, w, exact.shape, stride, padding, dilation, groups, "f32"))
        run(module, "lamina-emit-gpu-matmul{matrix=mma}")
        (y,), status = simulate(module, given, [(exact.shape, np.dtype(np.float32))])
    assert status == 0
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)


# few positions, so that one warp computes all of them: vectors of K cross taps, some of them outside of the image
FEW_POSITIONS = [
    ("f32", (2, 9, 3), (4, 4, 3), (3,), (2,), (1,)),
    ("f32", (1, 5, 4, 6), (8, 3, 2, 6), (2, 1), (1, 1), (1, 1)),
    ("f64", (1, 6, 2), (2, 3, 2), (1,), (2,), (2,)),
    ("bf16", (1, 4, 4, 4), (4, 3, 3, 4), (2, 2), (1, 1), (1, 1)),
    ("f16", (1, 3, 3, 2, 2), (3, 2, 2, 2, 2), (2, 2, 1), (1, 0, 1), (1, 1, 1)),
    ("f32", (2, 2, 2, 8), (5, 1, 1, 8), (1, 1), (0, 0), (1, 1)),
]
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@pytest.mark.parametrize("dtype, x, w, stride, padding, dilation", FEW_POSITIONS)
def test_few_positions_with_channels_last(dtype, x, w, stride, padding, dilation):
    given = given_of(x, w, NUMPY[dtype])
    exact = ChannelsLastConv.reference(*(t.astype(np.float64) for t in given), stride, padding, dilation)
    shapes, y = [x, w, (w[0],)], tensor(dtype, exact.shape)
    attributes = f"stride = {ints(stride)}, padding = {ints(padding)}, dilation = {ints(dilation)}"
    types = ", ".join(tensor(dtype, s) for s in shapes)
    root = f'%y = "lamina.channels_last_conv"(%0, %1, %2) {{{attributes}}} : ({types}) -> {y}'
    text = kernel("conv", [(dtype, s) for s in shapes], [(dtype, exact.shape)], f"{root}\nreturn %y : {y}")
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        run(module, "lamina-emit-gpu-matmul")
        assert "gpu.shuffle" in str(module)
        (made,), status = simulate(module, given, [(exact.shape, np.dtype(NUMPY[dtype]))])
    tolerance = {"f64": 1e-12, "f32": 1e-5, "f16": 4e-3, "bf16": 2e-2}[dtype]
    np.testing.assert_allclose(made.astype(np.float64), exact, rtol=tolerance, atol=tolerance)
    assert status == 0


def placed(text, given, shape):
    """A product's operands where a copy engine reads them, and what the stages before it have written there."""
    buffers = {}
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        (op,) = kernels(module)
        made = GpuKernel(TensorGraph(op))
        operands = place_operands(made, read_product(made.graph))
        made.finish()
        simulate(module, given, [(shape, np.dtype(ml_dtypes.bfloat16))], scratch=buffers)
    return operands, buffers


def test_patches_in_memory():
    """The copy of patches that a TMA product reads: rows of channel and tap, positions side by side."""
    x, w, geometry = (2, 3, 6, 7), (8, 3, 3, 3), ([2, 1], [1, 1], [1, 1], 1)
    given = given_of(x, w, ml_dtypes.bfloat16)
    y = eager(*given, *geometry)
    (weights, patches), buffers = placed(text_of(x, w, y.shape, *geometry, "bf16"), given, y.shape)
    positions, pitch = y.shape[2] * y.shape[3], 24
    assert patches.matrix.turned and patches.matrix.k_stride == pitch and weights.matrix.row_stride == 32
    found = buffers[patches.source].reshape(2, 27, pitch)[:, :, :positions].astype(np.float64)
    stored = buffers[weights.source].reshape(8, 32)[:, :27].astype(np.float64)
    bias = given[2].astype(np.float64)[:, None]
    np.testing.assert_allclose(stored @ found + bias, y.reshape(2, 8, positions), atol=1e-12)


@pytest.mark.parametrize(
    "x, w, stride, padding, dilation",
    [
        ((2, 6, 7, 3), (8, 3, 3, 3), (2, 1), (1, 1), (1, 1)),
        ((3, 40, 1), (16, 5, 1), (3,), (2,), (2,)),
        ((1, 4, 5, 6, 2), (8, 2, 3, 2, 2), (1, 2, 1), (0, 1, 1), (1, 1, 1)),
    ],
)
def test_short_patches_in_memory(x, w, stride, padding, dilation):
    """Rows of tap and channel, filled up with zeros."""
    given = given_of(x, w, ml_dtypes.bfloat16)[:2]
    exact = ChannelsLastConv.reference(*(t.astype(np.float64) for t in given), None, stride, padding, dilation)
    attributes = f"stride = {ints(stride)}, padding = {ints(padding)}, dilation = {ints(dilation)}"
    types, y = ", ".join(tensor("bf16", s) for s in (x, w)), tensor("bf16", exact.shape)
    root = f'%y = "lamina.channels_last_conv"(%0, %1) {{{attributes}}} : ({types}) -> {y}'
    text = kernel("conv", [("bf16", s) for s in (x, w)], [("bf16", exact.shape)], f"{root}\nreturn %y : {y}")
    (patches, _), buffers = placed(text, given, exact.shape)
    positions, length = exact.size // w[0], given[1][0].size
    found = buffers[patches.source].reshape(-1, patches.matrix.row_stride)[:positions].astype(np.float64)
    assert not found[:, length:].any()
    weights = given[1].astype(np.float64).reshape(w[0], length)
    np.testing.assert_allclose(found[:, :length] @ weights.T, exact.reshape(positions, w[0]), atol=1e-12)


def test_patches_by_mma_sync(monkeypatch):
    """Products of 16-bit images since sm_80: weights and patches are copied in stages."""
    monkeypatch.setattr(emit_gpu_matmul, "SMALL", 0)
    x, w, geometry = (2, 8, 9, 7), (40, 8, 3, 3), ([1, 2], [1, 1], [1, 1], 1)
    given = given_of(x, w, ml_dtypes.bfloat16)
    exact = eager(*given, *geometry)
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text_of(x, w, exact.shape, *geometry, "bf16"))
        run(module, "lamina-emit-gpu-matmul{matrix=mma}")
        assert "nvvm.ldmatrix" in str(module)
        (y,), _ = simulate(module, given, [(exact.shape, np.dtype(ml_dtypes.bfloat16))])
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=1e-2, atol=1e-2)


def test_a_kernel_of_one_element_reads_the_image_in_place():
    x, w, y = (2, 64, 8, 8), (32, 64, 1, 1), (2, 32, 8, 8)
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text_of(x, w, y, [1, 1], [0, 0], [1, 1], 1, "bf16"))
        (op,) = kernels(module)
        made = GpuKernel(TensorGraph(op))
        operands = place_operands(made, read_product(made.graph))
    assert not made.scratch and [o.matrix.turned for o in operands] == [False, True]
