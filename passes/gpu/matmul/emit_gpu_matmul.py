"""Emit kernels of kind `matmul` and `conv` for a GPU: matrix products with what is fused to them.

Which code computes a product, in this order:

| code | where |
|---|---|
| `depthwise` | convolutions of each channel by itself |
| `rows` | at most 16 rows of floats that tensor cores do not take, or not from where B lies |
| `hopper/wgmma` | 16-bit operands, or f32 as three TF32 products, on chips with wgmma and TMA, where the product is large; 8-bit floats |
| `waves` | f16, bf16 and f32 by the matrix instructions of waves: AMD's, and `mma.sync` |
| `simt` | everything else |
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.kernel_functions import kernels
from ...loops.tensor_graph import TensorGraph
from ...registry import register
from ..gpu_kernel import WARP, GpuKernel
from ..hopper.wgmma import ROW_BYTES
from .conv_product import GroupWeights, PatchRows
from .depthwise import DepthwiseConv
from .matrix_units import Unit, unit_for
from .mma_sync import MMA_SYNC
from .multistage import MultistageProduct
from .operands import Operand, in_place, place_operands
from .patch_operands import place_patches
from .problem import Product
from .read_product import read_product
from .rows import RowsProduct
from .rows import suits as suits_rows
from .simt import SimtProduct
from .stack import Stack, find_stack, place_stack
from .sums import emit_sums, sums_pitch
from .tiles import Wanted, choose_tiles, choose_warp_tiles, halved_rows
from .waves import WaveProduct
from .waves import suits as suits_waves
from .wgmma import AnyOperand, WgmmaProduct
from .widen_float8 import widen_float8

LARGE_F32 = 1 << 25  # multiplications from which f32 goes through tensor cores
LONG_F32 = 256  # elements of K; with fewer, it must be four times as many
SHORT_F32 = 128  # and with fewer than these, f32 does not
COPIED_F32 = 128  # multiplications for each element of K that is copied, from which many small products do
SMALL = 1 << 18  # and 16-bit floats
LEAST = 32  # columns and elements of K, with fewer of which tiles are mostly padding
LEAST_PATCHES = 8  # and of patches, which only the copy engine gathers well
FEW = 4  # rows of f32 that are as fast without tensor cores, and exact, where TF32 is allowed
_FLOAT8 = {"ocp": ("f8E4M3FN", "f8E5M2"), "fnuz": ("f8E4M3FNUZ", "f8E5M2FNUZ")}


@register
def emit_gpu_matmul(
    module: ir.Module, wgmma: bool = False, wave: int = WARP, matrix: str = "", float8: str = ""
) -> None:
    """Replace each linalg-level kernel of kind `matmul` or `conv` by its GPU form (docs/contracts.md, section 11).

    `float8` are the formats of 8 bits that matrix instructions multiply: "ocp", "fnuz" or none.

    Before: `%y = "lamina.linear"(%x, %w)` and a `linalg.generic` epilogue on tensors.
    After: a `gpu.module` whose stages copy operands where that is needed, and multiply.
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            widen_float8(op, _FLOAT8.get(float8, ()))
            graph = TensorGraph(op)
            kernel = GpuKernel(graph, wave)
            _emit(kernel, read_product(graph), wgmma, matrix)
            kernel.finish()
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()


def _emit(kernel: GpuKernel, product: Product, wgmma: bool, matrix: str) -> None:
    if any(n == 0 for n in product.shape):
        return
    if product.root.name == "lamina.depthwise_conv":
        DepthwiseConv(kernel, product).emit()
        return
    few = isinstance(product.m, int) and product.m <= FEW
    factors = product.dtype in ("bf16", "f16") or product.tf32 and product.dtype == "f32" and not few
    tensor_cores = wgmma and factors and _reads_in_place(kernel, product)
    if product.float8 and not wgmma:
        unit = unit_for(matrix, "f8")
        assert unit is not None, "other operands of 8 bits are widened before"
        WaveProduct(kernel, product, unit).emit()
    elif product.float8:
        _emit_wgmma(kernel, product)
    elif suits_rows(product) and not tensor_cores:
        RowsProduct(kernel, product).emit()
    elif wgmma and _suits_tensor_cores(product):
        _emit_wgmma(kernel, product)
    elif matrix == "mma" and _suits_tensor_cores(product):
        _emit_multistage(kernel, product)
    elif unit := _unit(product, matrix):
        WaveProduct(kernel, product, unit).emit()
    else:
        SimtProduct(kernel, product).emit()


def _unit(p: Product, matrix: str) -> Unit | None:
    """The matrix instructions of waves, if there are any for this dtype and results are not mostly padding."""
    if p.k == 0 or not suits_waves(p):
        return None
    if matrix == "mma":
        return MMA_SYNC if p.dtype in ("bf16", "f16") else None
    return unit_for(matrix, p.dtype)


def _suits_tensor_cores(p: Product) -> bool:
    """True for dtypes of tensor cores and for sizes at which a tile is not mostly padding."""
    if p.dtype not in ("bf16", "f16", "f32") or p.k == 0 or isinstance(p.a, GroupWeights):
        return False
    if p.is_split:  # three products and a copy of each operand must pay
        if isinstance(p.k, int) and p.k < SHORT_F32 or _copies_much(p):
            return False
        least = LARGE_F32 if not isinstance(p.k, int) or p.k >= LONG_F32 else 4 * LARGE_F32
        return all(not isinstance(x, int) or x >= 64 for x in (p.m, p.n, p.k)) and (p.work or least) >= least
    least = LEAST_PATCHES if isinstance(p.a, PatchRows) else LEAST
    return all(not isinstance(x, int) or x >= least for x in (p.n, p.k)) and (p.work or SMALL) >= SMALL


def _copies_much(p: Product) -> bool:
    """True for many small products, whose operands are a large part of the work."""
    m, n = p.m, p.n
    return p.batches != 1 and isinstance(m, int) and isinstance(n, int) and m * n < COPIED_F32 * (m + n)


def _emit_wgmma(kernel: GpuKernel, product: Product) -> None:
    """Operands, the product, and the sums of its parts where K is split."""
    p = product
    a, b = place_patches(p) or place_stack(kernel, p) or place_operands(kernel, p)
    wanted = Wanted(
        turned=b.turned,
        promoted=p.is_split,
        float8=bool(p.float8),
        plain=list(kernel.graph.results) == [p.root.results[0]],
        wide=p.tf32 and p.dtype == "f32",
        unit=b.unit if isinstance(b, Stack) else 0,
    )
    tiles = choose_tiles(p.m, p.n, _length(p), p.batches, wanted)
    if _mostly_halves(p, a, b):
        tiles = halved_rows(tiles)
    sums = _new_sums(kernel, p, tiles.splits)
    emitted = WgmmaProduct(kernel, p, a, b, tiles, sums)
    kernel.apart = isinstance(a, Operand) and not p.float8 and emitted.is_long
    emitted.emit()
    if sums is not None:
        emit_sums(kernel, p, sums, tiles.splits)


def _mostly_halves(p: Product, a: AnyOperand, b: AnyOperand) -> bool:
    """True for runs along K that leave a quarter of their blocks or more empty: 32 channels, 96, a row of 32."""
    size = 2 if p.dtype in ("bf16", "f16") and not p.float8 else 0
    if not size or a.turned or b.turned or isinstance(b, Stack) or isinstance(a, Stack) or not isinstance(a.run, int):
        return False
    blocks, rest = divmod(a.run * size, ROW_BYTES)
    return blocks < 2 and 0 < rest <= ROW_BYTES // 2


def _reads_in_place(kernel: GpuKernel, p: Product) -> bool:
    """True if the copy engine reads B where it lies."""
    return in_place(p, p.b, p.n) is not None or find_stack(kernel.graph, p) is not None


def _emit_multistage(kernel: GpuKernel, product: Product) -> None:
    """The same by `mma.sync`."""
    p = product
    a, b = place_operands(kernel, p)
    tiles = choose_warp_tiles(p.m, p.n, _length(p), p.batches, p.is_split)
    sums = _new_sums(kernel, p, tiles.splits)
    MultistageProduct(kernel, p, a, b, tiles, sums).emit()
    if sums is not None:
        emit_sums(kernel, p, sums, tiles.splits)


def _length(p: Product) -> Dim:
    """K as the choice of tiles counts it, in elements of 16 bits."""
    if p.float8:
        return dims.ceildiv(p.k, 2)
    return 2 * p.k if p.tf32 and p.dtype == "f32" else p.k


def _new_sums(kernel: GpuKernel, p: Product, splits: int) -> int | None:
    """Scratch memory for the sums of the parts of K; None where it is not split."""
    if splits == 1:
        return None
    return kernel.new_scratch(ir.F32Type.get(), splits * p.batches * p.m * sums_pitch(p))
