"""Matrices one below another as an operand of a product: each has a descriptor, and a tile is of one of them.

    %0 = tensor.insert_slice %q into %empty[0, 0] [N1, K] [1, 1]       B = q over k, where the graph put weights
    %b = tensor.insert_slice %k into %0[N1, 0] [N2, K] [1, 1]          one below another and copies none of them

Tiles have a number of columns that divides where each matrix begins (`Stack.unit`), so that the producer chooses a descriptor once
a tile, and consumers see no difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ...loops.strided_view import Shapes, View, strided_view
from ...loops.tensor_graph import TensorGraph, slice_operands
from ..gpu_kernel import GpuKernel, GpuStage
from .operands import Operand, matrix_in_place, place_operand
from .problem import Product, Strides, graph_shapes


@dataclass(frozen=True)
class Stack:
    """Rows `starts[i] …` are those of `parts[i]`, matrices of K by columns that lie alike."""

    parts: tuple[Operand, ...]
    starts: tuple[int, ...]

    planes = (0,)
    turned = False

    @property
    def unit(self) -> int:
        """What divides the rows of each."""
        return math.gcd(*self.starts[1:], *(p.matrix.rows for p in self.parts[-1:]))  # type: ignore[arg-type]

    def blocks(self, k: Dim, depth: int) -> Dim:
        """Blocks of `depth` elements along K."""
        return self.parts[0].blocks(k, depth)

    def descriptors(self, stage: GpuStage, box: Sequence[int]) -> list[ir.Value]:
        """The descriptors of all parts."""
        return [stage.descriptor(part.entry(part.role(stage), box)) for part in self.parts]

    def number(self, row: Dim) -> Dim:
        """Which of the parts row `row` is of."""
        return sum((self._reached(row, start) for start in self.starts[1:]), 0)

    def own(self, row: Dim) -> Dim:
        """Its number there."""
        steps = zip(self.starts, self.starts[1:])
        return row - sum(((start - before) * self._reached(row, start) for before, start in steps), 0)

    @staticmethod
    def _reached(row: Dim, start: int) -> Dim:
        """1 from row `start` on, 0 before."""
        return dims.dim_min(dims.floordiv(row, start), 1)

    def part(self, stage: GpuStage, descriptors: Sequence[ir.Value], row: Dim) -> tuple[ir.Value, Dim]:
        """The descriptor of the part that row `row` is of, and the row's number there, computed once."""
        b = stage.b
        number, (found, *others) = b.dim(self.number(row)), descriptors
        for i, descriptor in enumerate(others, 1):
            reached = b.compare("sge", number, i)
            found = b.select(reached, descriptor, found)
        place = b.dim(self.own(row))
        return found, b.bind_unique("own", place, b.value_level(place))

    def coordinates(self, batch: Dim, row: Dim, block: Dim, depth: int, blocks: Dim) -> list[Dim]:
        """Where the copy of block number `block` of K begins, of a row in its own matrix."""
        return self.parts[0].coordinates(batch, row, block, depth, blocks)

    def offsets(self, block: Dim, depth: int) -> list[Dim]:
        """As of other operands that are not patches."""
        return self.parts[0].offsets(block, depth)


def place_stack(kernel: GpuKernel, product: Product) -> tuple[Operand, Stack] | None:
    """Both operands where B is a stack, with the stage that copies A where it is not read in place; else None."""
    stack = find_stack(kernel.graph, product)
    return None if stack is None else (place_operand(kernel, product, product.a, product.m), stack)


def find_stack(graph: TensorGraph, product: Product) -> Stack | None:
    """B as a stack of inputs that the copy engine reads where they lie; None if it is no such thing."""
    b = product.b
    views = _views(graph, b.value, graph_shapes(graph)) if b.view is None and b.rows == (0,) and b.k == (1,) else None
    if views is None or product.is_split or product.float8:
        return None
    parts: list[Operand] = []
    starts: list[int] = []
    at = 0
    for start, view in views:
        rows = view.shape[0]
        if start != at or not isinstance(rows, int) or view.offset != 0:
            return None
        strides = Strides(view.base, 0, (), (), *view.strides)
        part = matrix_in_place(product, b, strides, rows, may_turn=False)
        if part is None or parts and part.matrix.row_stride != parts[0].matrix.row_stride:
            return None
        parts.append(part)
        starts.append(at)
        at += rows
    return Stack(tuple(parts), tuple(starts)) if len(parts) > 1 and at == product.n else None


def _views(graph: TensorGraph, value: ir.Value, shapes: Shapes) -> list[tuple[Any, View]] | None:
    """The first row and the view of each matrix in a chain of `tensor.insert_slice`, from the top; None if it is none."""
    found: list[tuple[Any, View]] = []
    op = graph.owner(value)
    while op is not None and op.name == "tensor.insert_slice":
        source, into = list(op.operands)[:2]
        offsets, _, steps = slice_operands(graph, op, 2)
        view = strided_view(source, shapes)
        if view is None or len(view.shape) != 2 or offsets[1:] != [0] or steps != [1, 1]:
            return None
        found.append((offsets[0], view))
        op = graph.owner(into)
    return found[::-1] if op is not None and op.name == "tensor.empty" else None
