"""Emit matmul, linear, packed_linear, grouped_matmul and pack kernels: register tiles over panels of B (see `gemm`, `matmul`)."""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ...dialects.families.packed import UNIT
from ..loops.strided_view import strided_view
from ..registry import register
from . import numeric
from .code import Index
from .column_parts import PartedMatmul, parts_of_columns
from .computed import computed_matrix
from .frame import EmitError, Frame, kernels, open_frame
from .gemm import grain
from .grouped_matmul import GroupedMatmul
from .groups import pack_groups
from .matmul import Matmul
from .micro import Tile, choose_tile
from .narrow import Instruction, bf16_pairs, instructions
from .narrow_matmul import NarrowMatmul, narrow_instruction
from .pack import Matrix, PanelSource, pack_panel
from .problem import operand_shape, read_problem


@register
def emit_matmul(
    module: ir.Module, vector_bits: int = 256, registers: int = 16, by_lane: bool = False,
    bf16_dot: str = "", bf16_square: str = "", i8_dot: str = "", i8_square: str = "", u8_dot: str = "",
    u8_square: str = "", u8_u8_dot: str = "", u8_u8_square: str = "", i16_pair: str = "",
) -> None:  # fmt: skip
    """Replace each kernel of kind `matmul` by loops over register tiles.

    Before: `%y = "lamina.matmul"(%a, %b)` and a `linalg.generic` epilogue on tensors.
    After: a function on flat memrefs whose inner loop is `vector.fma` on a tile of accumulators.
    """
    given = {
        "bf16_dot": bf16_dot, "bf16_square": bf16_square, "i8_dot": i8_dot, "i8_square": i8_square, "u8_dot": u8_dot,
        "u8_square": u8_square, "u8_u8_dot": u8_u8_dot, "u8_u8_square": u8_u8_square, "i16_pair": i16_pair,
    }  # fmt: skip
    intrinsics = {name: intrinsic for name, intrinsic in given.items() if intrinsic}
    known, pairs = instructions(vector_bits, intrinsics), bf16_pairs(intrinsics)
    with module.context:
        for function in kernels(module, "matmul"):
            with open_frame(function) as frame:
                root = frame.root(
                    "matmul", "linear", "packed_linear", "grouped_matmul", "packed_grouped_matmul", "pack"
                )
                if root.name == "lamina.pack":
                    _emit_pack(frame, root, vector_bits, registers)
                elif root.name.endswith("grouped_matmul"):
                    dtype = str(ir.RankedTensorType(root.results[0].type).element_type)
                    tile = choose_tile(numeric.compute_dtype(dtype), vector_bits, registers, by_lane)
                    GroupedMatmul(frame, tile).emit()
                else:
                    _product(frame, vector_bits, registers, by_lane, known, pairs).emit()


def _product(
    frame: Frame, vector_bits: int, registers: int, by_lane: bool, known: dict[tuple[str, str], Instruction],
    pairs: Instruction | None,
) -> Matmul:  # fmt: skip
    problem = read_problem(frame)
    tile = choose_tile(numeric.compute_dtype(problem.dtype), vector_bits, registers, by_lane)
    if instruction := narrow_instruction(frame, problem, tile, known):
        return NarrowMatmul(frame, problem, tile, instruction)
    views = (problem.a_view, problem.b_view)
    stored = {frame.inputs[v.base].dtype if v is not None else "" for v in views}
    if parts_of_columns(frame, problem) > 1:
        return PartedMatmul(frame, problem, tile)
    in_pairs = problem.dtype == "bf16" and stored == {"bf16"} and problem.a_view.strides[-1] == 1  # type: ignore[union-attr]
    return Matmul(frame, problem, tile, pairs if in_pairs else None)


def _emit_pack(frame: Frame, root: ir.Operation, vector_bits: int, registers: int) -> None:
    """A kernel around `lamina.pack`: one panel of one weight per item."""
    code, weight = frame.code, root.operands[0]
    view = strided_view(weight, frame.shapes)
    if len(frame.outputs) != 1:
        raise EmitError(f"kernel '{frame.name}' returns more than the packed weight")
    _, out = frame.outputs[0]
    columns = ir.IntegerAttr(root.attributes["columns"]).value
    depth = ir.IntegerAttr(root.attributes["depth"]).value if "depth" in root.attributes else 1
    n, k = operand_shape(frame, weight)
    lines = dims.ceildiv(k, UNIT) * UNIT if depth > 1 else k
    # packed as it is stored: the width of the vectors that move it is all that matters
    tile = Tile(1, 1, columns, out.dtype)
    width = choose_tile(numeric.compute_dtype(out.dtype), vector_bits, registers).width
    if columns % width == 0 and out.dtype in ("f32", "f64"):
        tile = Tile(1, columns // width, width, out.dtype)
    if view is None:
        matrix = computed_matrix(frame, weight, [], by_k=True)
    else:
        n_stride, k_stride = (code.size(s) for s in view.strides)
        matrix = Matrix(frame.inputs[view.base].memref, out.dtype, code.size(view.offset), k_stride, n_stride)

    def panel(p: Index) -> None:
        first = code.mul(p, columns)
        count = columns if isinstance(n, int) and n % columns == 0 else code.min(columns, code.sub(code.size(n), first))
        at = code.mul(first, code.size(lines))
        weight = PanelSource(matrix, 0, code.size(k), first, count, out.memref, at)
        if depth > 1:
            pack_groups(code, weight, depth, code.size(lines), columns)
        else:
            pack_panel(code, tile, weight)

    code.loop(frame.begin, frame.end, 1, [], panel)
    work = columns * (k if isinstance(k, int) else 256) * 16
    frame.close(dims.ceildiv(n, columns), grain(work, width))
