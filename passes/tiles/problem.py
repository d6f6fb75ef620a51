"""Read the matrix product at the root of a kernel: its operands, and its sizes as batch, rows, K and columns.

    y[batch, m, n] = sum_k a[batch, m, k] * b[batch, k, n] (+ bias[n])

`lamina.linear` has no batch: all leading dimensions of `x` are rows. A `lamina.matmul` whose B is the same for all
batches (strides 0) is one product with more rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..loops.strided_view import View, merge, widened_view
from .code import Code, Index, delinearize
from .computed import Computed, computed_matrix
from .frame import EmitError, Frame
from .pack import Matrix


@dataclass(frozen=True)
class Problem:
    """One product. `a_view` / `b_view` are None for operands that the kernel computes; their bases may be narrower."""

    root: ir.Operation
    a: ir.Value
    b: ir.Value
    bias: ir.Value | None
    batch: tuple[Dim, ...]
    rows: tuple[Dim, ...]
    k: Dim
    n: Dim
    dtype: str  # of the result
    a_dtype: str  # of `a`
    a_view: View | None
    b_view: View | None
    b_is_nk: bool  # linear's weight is [N, K]
    panel: int = 0  # packed_linear: columns of a panel of B, which is [panels, K / depth, columns * depth]
    depth: int = 1

    @property
    def lead(self) -> tuple[Dim, ...]:
        """All dimensions of the result but the last."""
        return (*self.batch, *self.rows)

    @property
    def m(self) -> Dim:
        """The number of rows of one batch."""
        return dims.product(self.rows)

    @property
    def b_strides(self) -> tuple[Dim, Dim]:
        """The strides of an unpacked B in memory along K and N."""
        assert self.b_view is not None
        first, last = self.b_view.strides[-2:]
        return (last, first) if self.b_is_nk else (first, last)


def read_problem(frame: Frame) -> Problem:
    """The product at the root of a kernel of kind `matmul`."""
    root = frame.root("matmul", "linear", "packed_linear")
    linear, packed = root.name != "lamina.matmul", root.name == "lamina.packed_linear"
    a, b = root.operands[0], root.operands[1]
    a_shape, b_shape = operand_shape(frame, a), operand_shape(frame, b)
    a_view, b_view = widened_view(a, frame.shapes), widened_view(b, frame.shapes)
    lead = 0 if linear else len(a_shape) - 2
    if b_view is not None and all(s == 0 or n == 1 for n, s in zip(b_view.shape[:lead], b_view.strides)):
        lead = 0
    # the storage type's name is enough: sums of unsigned ints have the same low bits
    dtype = str(ir.RankedTensorType(root.results[0].type).element_type)
    depth = ir.IntegerAttr(root.attributes["depth"]).value if packed and "depth" in root.attributes else 1
    return Problem(
        root=root,
        a=a,
        b=b,
        bias=root.operands[2] if len(root.operands) > 2 else None,
        batch=a_shape[:lead],
        rows=a_shape[lead:-1],
        k=a_shape[-1],
        n=ir.IntegerAttr(root.attributes["size"]).value if packed else b_shape[-2] if linear else b_shape[-1],
        dtype=dtype,
        a_dtype=_dtype_of(frame, a, dtype),
        a_view=a_view,
        b_view=b_view,
        b_is_nk=linear,
        panel=ir.RankedTensorType(b.type).shape[-1] // depth if packed else 0,
        depth=depth,
    )


def operand_shape(frame: Frame, value: ir.Value) -> tuple[Dim, ...]:
    """The sizes of a tensor of the kernel."""
    shape = frame.shapes.of(value)
    if shape is None:
        raise EmitError(f"the sizes of an operand in kernel '{frame.name}' are not known")
    return shape


def _dtype_of(frame: Frame, value: ir.Value, result: str) -> str:
    """The dtype of an operand of a product whose result is `result`. A type does not tell i8 from u8."""
    element = ir.RankedTensorType(value.type).element_type
    if str(element) == result or isinstance(element, ir.FloatType):
        return str(element)  # sums of unsigned ints have the same low bits
    while value not in frame.inputs:
        op = value.owner
        if isinstance(op, ir.Block) or not op.operands or op.operands[0].type.element_type != value.type.element_type:
            raise EmitError(f"kernel '{frame.name}' computes an operand whose sign is not known")
        value = op.operands[0]
    return frame.inputs[value].dtype


def element_offset(code: Code, view: View, index: Sequence[Index]) -> Index:
    """The flat offset of an element of a view (missing trailing indices are 0)."""
    at = code.size(view.offset)
    for i, stride in zip(index, view.strides):
        at = code.add(at, code.mul(i, code.size(stride)))
    return at


def row_start(code: Code, problem: Problem, batch_index: Sequence[Index], m: Index) -> Index:
    """The flat offset of row `m` of A, which is a view."""
    view, lead = problem.a_view, len(problem.batch)
    assert view is not None
    base = element_offset(code, view, batch_index)
    one = merge(problem.rows, view.strides[lead:-1])
    if one is not None:
        return code.add(base, code.mul(m, code.size(one[1])))
    for i, stride in zip(delinearize(code, m, problem.rows), view.strides[lead:-1]):
        base = code.add(base, code.mul(i, code.size(stride)))
    return base


def b_matrix(frame: Frame, problem: Problem, batch_index: Sequence[Index]) -> Matrix | Computed:
    """B of one batch."""
    view, code = problem.b_view, frame.code
    if view is None:
        return computed_matrix(frame, problem.b, batch_index, problem.b_is_nk)
    k_stride, n_stride = problem.b_strides
    buffer = frame.inputs[view.base]
    offset = element_offset(code, view, batch_index)
    return Matrix(buffer.memref, buffer.dtype, offset, code.size(k_stride), code.size(n_stride))
