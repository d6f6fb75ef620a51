"""Evaluate ops on constants at compile time, with the ops' own numpy references."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from mlir import ir

from ...dialects.dtypes import is_float
from ...dialects.interpret import numpy_dtype
from ...dialects.mlir_ops import attributes_of, build, op_class, operand_list
from ...dialects.mlir_types import type_of
from ...dialects.op import Op
from ...dialects.record import TensorType
from ..registry import register
from .dataflow import entry_functions
from .dce import dce

# Ops whose reference rounds as the compiled code does; the others may differ in the last bit and stay.
_EXACT_CATEGORIES = ("pointwise", "view", "creation", "gather", "concat", "reduction")


@register
def fold_constants(module: ir.Module, limit: int = 4096) -> None:
    """Replace ops on known tensors of at most `limit` elements by `full` (one value) or `constant`.

    Float reductions and functions that are not exact stay, since eager rounds them in its own way.

    Before:
    ```mlir
    func.func @main() -> tensor<4xi1> {
      %0 = "lamina.iota"() {dtype = i64, size = ["4"], start = 0 : i64, step = 1 : i64} : () -> tensor<4xi64>
      %1 = "lamina.full"() {dtype = i64, shape = [], value = 2 : i64} : () -> tensor<i64>
      %2 = "lamina.lt"(%0, %1) : (tensor<4xi64>, tensor<i64>) -> tensor<4xi1>
      return %2 : tensor<4xi1> }
    ```
    After:
    ```mlir
    func.func @main() -> tensor<4xi1> {
      %0 = "lamina.constant"() {data = "AQEAAA==", dtype = i1, shape = ["4"]} : () -> tensor<4xi1>
      return %0 : tensor<4xi1> }
    ```
    """
    with module.context:
        for function in entry_functions(module):
            _Folder(limit).run(function)
    dce(module)


class _Folder:
    def __init__(self, limit: int):
        self.limit = limit
        self.known: dict[ir.Value, np.ndarray] = {}
        self.uniform: dict[ir.Value, np.ndarray] = {}  # the element of tensors of one value, of any size

    def run(self, function: ir.Operation) -> None:
        for view in list(function.regions[0].blocks[0].operations):
            op = view.operation
            cls = op_class(op)
            if cls is None or not self._may_fold(cls):
                continue
            if cls.name == "full":
                self.uniform[op.results[0]] = evaluate(cls, [], attributes_of(op) | {"shape": ()}, None)[0]  # type: ignore[index]
            types = [self._static(r) for r in op.results]
            operands = operand_list(op)
            if cls.category == "pointwise" and self._fold_uniform(op, cls, operands):
                continue
            if None in types or any(x is not None and x not in self.known for x in operands):
                continue
            arrays = [None if x is None else self.known[x] for x in operands]
            made = evaluate(cls, arrays, attributes_of(op), types)
            if made is None:
                continue
            if cls.category == "creation":
                self.known[op.results[0]] = made[0]
                continue
            for result, array in zip(op.results, made):
                new = _literal(array, type_of(result), op)
                self.known[new] = array
                result.replace_all_uses_with(new)
            op.erase()

    def _fold_uniform(self, op: ir.Operation, cls: type[Op], operands: list[ir.Value | None]) -> bool:
        """Replace a pointwise op on tensors of one value each by `full`, whatever their sizes."""
        if any(x is not None and x not in self.uniform for x in operands) or len(op.results) != 1:
            return False
        type = type_of(op.results[0])
        elements = [None if x is None else self.uniform[x] for x in operands]
        made = evaluate(cls, elements, attributes_of(op), [TensorType(type.dtype, ())])
        new = _full(made[0].reshape(1), type, op) if made else None
        if new is None:
            return False
        self.uniform[new] = made[0]  # type: ignore[index]
        static = self._static(new)
        if static is not None:
            self.known[new] = np.broadcast_to(made[0], static.shape)  # type: ignore[index,arg-type]
        op.results[0].replace_all_uses_with(new)
        op.erase()
        return True

    def _may_fold(self, cls: type[Op]) -> bool:
        return cls.category in _EXACT_CATEGORIES and cls.numerics == "exact" and cls.name != "materialize"

    def _static(self, value: ir.Value) -> TensorType | None:
        type = type_of(value)
        return type if isinstance(type.numel, int) and type.numel <= self.limit else None


def evaluate(
    cls: type[Op], operands: list[np.ndarray | None], attributes: dict[str, Any], types: list[Any]
) -> list[np.ndarray] | None:
    """The results as numpy computes them, or None if it cannot or gives something else than `types`, if given."""
    if cls.category == "reduction" and types and any(is_float(t.dtype) for t in types):
        return None
    if any(isinstance(v, tuple) and not all(isinstance(x, int) for x in v) for v in attributes.values()):
        return None  # a symbolic size
    try:
        with np.errstate(all="ignore"):
            made = cls.reference(**cls.bind(operands), **attributes)
    except (ArithmeticError, ValueError, IndexError, NotImplementedError):
        return None  # such as an index out of range, which must fail when the program runs
    arrays = [np.asarray(a) for a in (made if isinstance(made, tuple) else (made,))]
    fits = types is None or all(
        a.dtype == numpy_dtype(t.dtype) and a.shape == t.shape for a, t in zip(arrays, types, strict=True)
    )
    return arrays if fits else None


def _literal(array: np.ndarray, type: TensorType, op: ir.Operation) -> ir.Value:
    """`full` if all elements have the same bits and one number says it, else `constant`."""
    flat = np.ascontiguousarray(array).reshape(-1)
    data = flat.tobytes()
    if flat.size and data == flat[:1].tobytes() * flat.size:
        full = _full(flat[:1], type, op)
        if full is not None:
            return full
    fields = {"dtype": type.dtype, "shape": type.shape, "data": base64.b64encode(data).decode()}
    return build("constant", [], fields, op.location, ir.InsertionPoint(op)).results[0]


def _full(element: np.ndarray, type: TensorType, op: ir.Operation) -> ir.Value | None:
    """A `full` of the one element; None for NaN, of which a number does not say the bits."""
    value = float(element[0]) if is_float(type.dtype) else element[0].item()
    if isinstance(value, float) and math.isnan(value):
        return None
    fields = {"shape": type.shape, "value": value, "dtype": type.dtype}
    return build("full", [], fields, op.location, ir.InsertionPoint(op)).results[0]
