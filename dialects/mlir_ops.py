"""Ops in MLIR seen through their classes: fields by name, and building with inferred types.

    cls = op_class(op)                   # Softmax, or None for `func.return` and `lamina.launch`
    operands_of(op)["x"], attributes_of(op)["dim"]
    y = build("softmax", [x], {"dim": -1}).result      # at the current insertion point

`build` infers result types through `Op.resolve`, so a pass never writes a type.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from mlir import ir

from .mlir_types import field_attribute, mlir_location, mlir_type, python_attribute, python_location, type_of
from .op import _REGISTRY, Op, OpError, OptionalOperand, Variadic, load_all, registry
from .record import Location, TensorType

PREFIX = "lamina."

load_all()  # so that `op_class` is one look-up


@cache
def needs_segments(cls: type[Op]) -> bool:
    """True if the op's operands are ambiguous without `operandSegmentSizes`."""
    return sum(f.kind in (OptionalOperand, Variadic) for f in cls.operands) > 1


def op_class(op: ir.Operation | ir.OpView) -> type[Op] | None:
    """Return the class of a `lamina` tensor op, None for any other op."""
    name = op.operation.name
    return _REGISTRY.get(name[len(PREFIX) :]) if name.startswith(PREFIX) else None


def operand_list(op: ir.Operation | ir.OpView) -> list[ir.Value | None]:
    """Return the operands in declared order with None for absent optional ones; what `Op.bind` takes."""
    cls = op_class(op)
    values = list(op.operands)
    if cls is None or (len(values) == len(cls.operands) and not needs_segments(cls)):
        return values
    if needs_segments(cls):
        sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    else:
        extra = len(values) - len(cls.operands) + 1  # of the only optional or variadic field
        sizes = [extra if f.kind in (OptionalOperand, Variadic) else 1 for f in cls.operands]
    if sum(sizes) != len(values) or min(sizes) < 0:
        raise OpError(f"takes {len(cls.operands)} operands, got {len(values)}")
    listed: list[ir.Value | None] = []
    rest = iter(values)
    for f, size in zip(cls.operands, sizes):
        listed += [next(rest) for _ in range(size)] if size or f.kind is Variadic else [None]
    return listed


def operands_of(op: ir.Operation | ir.OpView) -> dict[str, Any]:
    """Return the operands by field name: a Value, None (absent) or a list (variadic)."""
    cls = op_class(op)
    assert cls is not None, f"{op.operation.name} is no op of the registry"
    return cls.bind(operand_list(op))


def attributes_of(op: ir.Operation | ir.OpView) -> dict[str, Any]:
    """Return the attributes by field name as Python values."""
    cls = op_class(op)
    assert cls is not None, f"{op.operation.name} is no op of the registry"
    attributes = op.attributes
    return {f.name: python_attribute(attributes[f.name]) for f in cls.attributes}


def build(
    name: str,
    operands: Sequence[ir.Value | None],
    attributes: dict[str, Any] | None = None,
    location: Location | ir.Location = Location(),
    ip: ir.InsertionPoint | None = None,
) -> ir.Operation:
    """Create `lamina.<name>` at `ip` (default: the current one) with defaults filled in and result types inferred.

    Raises the op's own OpError, located, when operands and attributes do not fit.
    """
    cls = registry(name)
    python = python_location(location) if isinstance(location, ir.Location) else location
    types = [None if v is None else type_of(v) for v in operands]
    full, results = cls.resolve(types, attributes or {}, python)
    return create(cls, operands, full, results, location, ip)


def create(
    cls: type[Op],
    operands: Sequence[ir.Value | None],
    attributes: dict[str, Any],
    results: Sequence[TensorType | ir.Type],
    location: Location | ir.Location,
    ip: ir.InsertionPoint | None = None,
) -> ir.Operation:
    """Create an op whose full attributes and result types are known already (nothing is inferred or checked)."""
    mlir_attributes = {f.name: field_attribute(f, attributes[f.name]) for f in cls.attributes}
    if needs_segments(cls):
        mlir_attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(_segments(cls, operands))
    return ir.Operation.create(
        PREFIX + cls.name,
        results=[mlir_type(t) if isinstance(t, TensorType) else t for t in results],
        operands=[v for v in operands if v is not None],
        attributes=mlir_attributes,
        loc=location if isinstance(location, ir.Location) else mlir_location(location),
        ip=ip,
    )


def _segments(cls: type[Op], operands: Sequence[ir.Value | None]) -> list[int]:
    return [
        len(operands) - i if f.kind is Variadic else int(operands[i] is not None) for i, f in enumerate(cls.operands)
    ]
