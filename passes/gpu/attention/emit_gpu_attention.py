"""Emit kernels of kind `attention` for GPUs with matrix instructions; scores are never stored.

| code | where |
|---|---|
| `wgmma` | chips with wgmma and TMA |
| `warps` | `mma.sync`, since sm_80 |
| `waves` | the matrix instructions of AMD's waves |
"""

from __future__ import annotations

from mlir import ir

from ...loops.kernel_functions import kernels
from ...loops.tensor_graph import TensorGraph
from ...registry import register
from ..gpu_kernel import WARP, GpuKernel
from ..matmul.matrix_units import unit_for
from .parts import emit_parts, new_parts
from .problem import read_attention
from .tiles import AttentionTiles, choose_attention_tiles
from .warp_tiles import WarpTiles, choose_warp_tiles
from .warps import WarpAttention
from .wave_tiles import choose_wave_tiles
from .waves import WaveAttention
from .wgmma import FlashAttention


@register
def emit_gpu_attention(module: ir.Module, wgmma: bool = False, wave: int = WARP, matrix: str = "") -> None:
    """Replace each linalg-level kernel of kind `attention` by its GPU form (docs/contracts.md, section 11).

    Before: `%y, %lse = "lamina.attention"(%q, %k, %v)` and a `linalg.generic` epilogue on tensors.
    After: a `gpu.module` whose stages copy operands where that is needed, attend, and merge parts of the keys.
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            kernel = GpuKernel(TensorGraph(op), wave)
            if matrix:
                _emit_waves(kernel, matrix)
            else:
                _emit(kernel, wgmma)
            kernel.finish()
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()


def _emit_waves(kernel: GpuKernel, matrix: str) -> None:
    attention = read_attention(kernel.graph, pack=False)
    unit = attention and unit_for(matrix, attention.product.dtype)
    tiles = attention and unit and choose_wave_tiles(attention, unit, kernel.wave)
    if not attention or not unit or not tiles:
        raise NotImplementedError("attention by matrix instructions is of bf16 or f16 heads of at most 128 elements")
    WaveAttention(kernel, attention, unit, tiles).emit()


def _emit(kernel: GpuKernel, wgmma: bool) -> None:
    attention = read_attention(kernel.graph)
    if attention is None:
        raise NotImplementedError("attention on tensor cores is of bf16 or f16 heads of at most 256 elements")
    p = attention.product
    operands = attention.place(kernel)
    tiles: AttentionTiles | WarpTiles
    if wgmma:
        tiles = choose_attention_tiles(attention.depth, p.m, p.k, p.batches, attention.causal, attention.few)
        parts = new_parts(kernel, attention, tiles) if tiles.splits != 1 else None
        stage = FlashAttention(kernel, attention, operands, tiles, parts)
    else:
        tiles = choose_warp_tiles(attention.depth, p.m, p.k, p.batches, attention.few)
        parts = new_parts(kernel, attention, tiles) if tiles.splits != 1 else None
        stage = WarpAttention(kernel, attention, operands, tiles, parts)
    stage.emit()
    if parts is not None:
        emit_parts(kernel, attention, tiles, parts, stage.softmax.exact)
