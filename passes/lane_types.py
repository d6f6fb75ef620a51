"""Types and constants that are scalars or vectors of them, with which emitters do the same."""

from __future__ import annotations

from mlir import ir


def element_of(type: ir.Type) -> ir.Type:
    """The type of a vector's elements; a scalar's own."""
    return ir.VectorType(type).element_type if isinstance(type, ir.VectorType) else type


def like(type: ir.Type, element: ir.Type) -> ir.Type:
    """`element`, or a vector of so many of it as `type` has."""
    return ir.VectorType.get(ir.VectorType(type).shape, element) if isinstance(type, ir.VectorType) else element


def number(value: float | int, type: ir.Type, location: ir.Location | None = None) -> ir.Attribute:
    """The attribute of a number of `type`; a splat where that is a vector."""
    if isinstance(type, ir.VectorType):
        return ir.DenseElementsAttr.get_splat(type, number(value, element_of(type), location))
    if not isinstance(type, (ir.IndexType, ir.IntegerType)):
        return ir.FloatAttr.get(type, float(value), loc=location)
    width, value = ir.IntegerType(type).width if isinstance(type, ir.IntegerType) else 64, int(value)
    if width == 1:
        value = int(value != 0)
    elif width < 64:  # MLIR takes what fits, with its sign
        half = 1 << (width - 1)
        value = (value + half) % (2 * half) - half
    return ir.IntegerAttr.get(type, value)
