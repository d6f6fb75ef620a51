"""Emit kernels of kind `attention` for GPUs; scores are never stored.

| code | where |
|---|---|
| `wgmma` | f16 and bf16 on chips with wgmma and TMA |
| `warps` | f16 and bf16 by `mma.sync`, since sm_80 |
| `waves` | the matrix instructions of AMD's waves; f32 everywhere, by multiply-adds where there are none |
"""

from __future__ import annotations

from mlir import ir

from ...loops.kernel_functions import kernels
from ...loops.tensor_graph import TensorGraph
from ...registry import register
from ..gpu_kernel import WARP, GpuKernel
from ..matmul.matrix_units import MULTIPLY_ADD, MultiplyAdd, attention_unit
from .layout import AMD, NVIDIA
from .parts import emit_parts, new_parts
from .problem import read_attention
from .simt import SimtAttention
from .tiles import AttentionTiles, choose_attention_tiles
from .warp_tiles import WarpTiles, choose_warp_tiles
from .warps import WarpAttention
from .wave_tiles import WaveTiles, choose_wave_tiles
from .waves import WaveAttention
from .wgmma import FlashAttention

MOST_SIMT_DEPTH = 128  # a lane's part of wider O takes all registers


@register
def emit_gpu_attention(module: ir.Module, wgmma: bool = False, wave: int = WARP, matrix: str = "") -> None:
    """Replace each linalg-level kernel of kind `attention` by its GPU form (docs/contracts.md, section 11).

    Before: `%y, %lse = "lamina.attention"(%q, %k, %v)` and a `linalg.generic` epilogue on tensors.
    After: a `gpu.module` whose stages copy operands where that is needed, attend, and merge parts of the keys.
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            kernel = GpuKernel(TensorGraph(op), wave)
            _emit(kernel, wgmma, matrix)
            kernel.finish()
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()


def _emit(kernel: GpuKernel, wgmma: bool, matrix: str) -> None:
    attention = read_attention(kernel.graph)
    if attention is None:
        raise NotImplementedError("attention is of f16, bf16 or f32 heads of at most 256 elements")
    p = attention.product
    tiles: AttentionTiles | WarpTiles | WaveTiles
    stage: FlashAttention | WarpAttention | WaveAttention
    functions = AMD if matrix else NVIDIA
    if matrix or p.dtype == "f32":
        unit = attention_unit(matrix, p.dtype) if matrix else MULTIPLY_ADD
        if isinstance(unit, MultiplyAdd) and attention.depth > MOST_SIMT_DEPTH:
            raise NotImplementedError(f"attention by multiply-adds is of heads of at most {MOST_SIMT_DEPTH} elements")
        tiles = choose_wave_tiles(attention, unit, kernel.wave)
        parts = new_parts(kernel, attention, tiles) if tiles.splits != 1 else None
        kind = SimtAttention if tiles.simt else WaveAttention
        stage = kind(kernel, attention, unit, tiles, functions, parts)
    elif wgmma:
        operands = attention.place(kernel)
        tiles = choose_attention_tiles(attention.depth, p.m, p.k, p.batches, attention.causal, attention.few)
        parts = new_parts(kernel, attention, tiles) if tiles.splits != 1 else None
        stage = FlashAttention(kernel, attention, operands, tiles, parts)
    else:
        operands = attention.place(kernel)
        tiles = choose_warp_tiles(attention.depth, p.m, p.k, p.batches, attention.few)
        parts = new_parts(kernel, attention, tiles) if tiles.splits != 1 else None
        stage = WarpAttention(kernel, attention, operands, tiles, parts)
    stage.emit()
    if parts is not None:
        emit_parts(kernel, attention, tiles, parts, stage.softmax.exact, functions)
