"""Types of scalars and of vectors of them, with which emitters do the same."""

from __future__ import annotations

from mlir import ir


def element_of(type: ir.Type) -> ir.Type:
    """The type of a vector's elements; a scalar's own."""
    return ir.VectorType(type).element_type if isinstance(type, ir.VectorType) else type


def like(type: ir.Type, element: ir.Type) -> ir.Type:
    """`element`, or a vector of so many of it as `type` has."""
    return ir.VectorType.get(ir.VectorType(type).shape, element) if isinstance(type, ir.VectorType) else element
