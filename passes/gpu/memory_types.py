"""How values of threads lie in memory, shared or global: a bool as a byte, all others as they are."""

from __future__ import annotations

from mlir import ir

from ..lane_types import element_of, like
from ..loops.op_builder import OpBuilder


def memory_type(type: ir.Type) -> ir.Type:
    """The type in memory of a value, or of a vector of them."""
    element = element_of(type)
    is_bool = isinstance(element, ir.IntegerType) and ir.IntegerType(element).width == 1
    return like(type, ir.IntegerType.get_signless(8)) if is_bool else type


def to_memory(b: OpBuilder, value: ir.Value) -> ir.Value:
    """A value as it lies in memory."""
    type = memory_type(value.type)
    return value if value.type == type else b.value("arith.extui", (value,), type)


def from_memory(b: OpBuilder, loaded: ir.Value, element: ir.Type) -> ir.Value:
    """What was loaded as a value of `element`, or a vector of them."""
    type = like(loaded.type, element)
    return loaded if loaded.type == type else b.value("arith.trunci", (loaded,), type)
