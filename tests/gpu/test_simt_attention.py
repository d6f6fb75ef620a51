"""Attention in f32 by multiply-adds, run on the CPU with its threads simulated, against float64; and what is assembled."""

import numpy as np
import pytest
from mlir import ir
from support.ptx import assembled, needs_ptxas
from support.simulate_gpu import simulate
from support.tile_kernels import attention, open_attention

from lamina.dialects.mlir_context import context
from lamina.passes.gpu.attention.layout import NVIDIA
from lamina.passes.gpu.attention.parts import emit_parts, new_parts
from lamina.passes.gpu.attention.simt import SimtAttention
from lamina.passes.gpu.attention.wave_tiles import choose_wave_tiles
from lamina.passes.gpu.matmul.matrix_units import MULTIPLY_ADD


def attended(q, k, causal):
    """Values and log-sum-exps of the kernel on random operands, simulated, the exact ones, and the kernel's tiles."""
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(s).astype(np.float32) for s in (q, k, k)]
    with context(), ir.Location.unknown():
        module = ir.Module.parse(attention(q, k, causal, q[1] // k[1], "f32", lse=True))
        made, found = open_attention(module)
        tiles = choose_wave_tiles(found, MULTIPLY_ADD, made.wave)
        parts = new_parts(made, found, tiles) if tiles.splits != 1 else None
        SimtAttention(made, found, MULTIPLY_ADD, tiles, NVIDIA, parts).emit()
        if parts is not None:
            emit_parts(made, found, tiles, parts, exact=False)
        made.finish()
        kinds = [(q, np.dtype(np.float32)), (q[:-1], np.dtype(np.float32))]
        results, status = simulate(module, operands, kinds)
    assert status == 0
    x, y, z = (a.astype(np.float64) for a in operands)
    y, z = (np.repeat(a, q[1] // k[1], 1) for a in (y, z))
    scores = x @ y.swapaxes(-1, -2) * q[-1] ** -0.5
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    total = weights.sum(-1, keepdims=True)
    return results, (weights @ z / total, (scores.max(-1, keepdims=True) + np.log(total))[..., 0]), tiles


@pytest.mark.parametrize(
    ("q", "k", "causal", "split"),
    [
        ((1, 2, 40, 64), (1, 1, 50, 64), False, False),
        ((1, 1, 70, 24), (1, 1, 70, 24), True, False),
        ((1, 1, 20, 128), (1, 1, 33, 128), False, False),
        ((1, 4, 1, 64), (1, 2, 300, 64), False, True),
    ],
)
def test_values(q, k, causal, split):
    made, exact, tiles = attended(q, k, causal)
    assert (tiles.splits != 1) == split
    for m, e in zip(made, exact):
        np.testing.assert_allclose(m, e, rtol=2e-5, atol=2e-6)


@needs_ptxas
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("shape", [(16, 12, 512, 64), (4, 16, 2000, 128)])
def test_code(shape, target):
    with context(), ir.Location.unknown():
        made = assembled(ir.Module.parse(attention(shape, shape, dtype="f32")), target, "attention")
    assert "ld.shared.v4" in made.ptx and "fma.rn.f32" in made.ptx
