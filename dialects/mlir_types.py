"""Types, attributes and locations: between Python values of the op registry and MLIR.

A type is spelled `tensor<2x768xf32>`; with a dynamic size it carries every size as text in its encoding,
`tensor<?x768xf32, ["s0", "768"]>`, so that types are equal exactly when their sizes are. Attributes:

| Python | MLIR |
|---|---|
| int, float, bool, str | `1 : i64`, `1.0 : f64`, `true`, `"text"` |
| tuple of int | `array<i64: 1, 2>` |
| tuple of sizes (`Dims`) | `["s0", "768"]` |
| dtype name (`DTypeAttr`) | type attribute `f32`, `ui8`, `i1` |
| None | `unit` |

All functions need a current Context (`with context:`) where they create MLIR objects. Converted texts are memoised:
they are plain data and belong to no Context.
"""

from __future__ import annotations

import typing
from functools import lru_cache
from typing import Any

from mlir import ir

from . import dims
from .dtypes import DTYPES, FROM_MLIR
from .op import Dims, DTypeAttr, Field, Ints
from .record import Location, TensorType

_I64_MAX = 2**63 - 1


@lru_cache(maxsize=65536)
def type_text(type: TensorType) -> str:
    """Spell a tensor type as MLIR."""
    element = DTYPES[type.dtype].mlir
    shape = "".join(f"{d}x" if isinstance(d, int) else "?x" for d in type.shape)
    if all(isinstance(d, int) for d in type.shape):
        return f"tensor<{shape}{element}>"
    sizes = ", ".join(f'"{d}"' for d in type.shape)
    return f"tensor<{shape}{element}, [{sizes}]>"


def mlir_type(type: TensorType) -> ir.Type:
    """Return the MLIR type of a tensor type."""
    return ir.Type.parse(type_text(type))


@lru_cache(maxsize=65536)
def _parse_type(text: str) -> TensorType:
    if not text.startswith("tensor<") or text.startswith("tensor<*"):
        raise ValueError(f"'{text}' is not a ranked tensor type")
    body, _, encoding = text[len("tensor<") : -1].partition(", ")
    *sizes, element = body.split("x")
    if element not in FROM_MLIR:
        raise ValueError(f"element type '{element}' of '{text}' is none of {', '.join(FROM_MLIR)}")
    if "?" not in sizes:
        return TensorType(FROM_MLIR[element], tuple(map(int, sizes)))
    if not encoding.startswith("["):
        raise ValueError(f"'{text}' has a dynamic size but no encoding that says which")
    # Sizes may hold commas (`floordiv(s0, 2)`), never quotes.
    shape = tuple(parse_dim(t) for t in encoding[1:-1].split('"')[1::2])
    if len(shape) != len(sizes) or any(s != "?" and shape[i] != int(s) for i, s in enumerate(sizes)):
        raise ValueError(f"the encoding of '{text}' does not fit its shape")
    return TensorType(FROM_MLIR[element], shape)


def type_of(value: ir.Value | ir.Type) -> TensorType:
    """Return the tensor type of an MLIR value or type; ValueError for anything else."""
    return _parse_type(str(value.type if isinstance(value, ir.Value) else value))


@lru_cache(maxsize=65536)
def parse_dim(text: str) -> dims.Dim:
    """`dims.parse`, memoised."""
    return dims.parse(text)


def attribute(value: Any, type: Any = None) -> ir.Attribute:
    """Return the MLIR attribute of `value`; `type` is the declared attribute type, which tells Dims from Ints."""
    kinds = typing.get_args(type) or (type,)
    if value is None:
        return ir.UnitAttr.get()
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int) and float not in kinds:
        if value > _I64_MAX:  # of a u64 tensor; `IntegerAttr.get` takes no such value
            return ir.Attribute.parse(f"{value} : ui64")
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, (int, float)):
        return ir.FloatAttr.get(ir.F64Type.get(), float(value))
    if isinstance(value, str):
        return ir.TypeAttr.get(ir.Type.parse(DTYPES[value].mlir)) if DTypeAttr in kinds else ir.StringAttr.get(value)
    if isinstance(value, tuple):
        if Dims in kinds or (Ints not in kinds and any(isinstance(v, dims.Expr) for v in value)):
            return ir.ArrayAttr.get([ir.StringAttr.get(str(v)) for v in value])
        return ir.DenseI64ArrayAttr.get(list(value))
    if isinstance(value, dims.Expr):
        return ir.StringAttr.get(str(value))
    raise TypeError(f"no attribute for {value!r}")


def python_attribute(attr: ir.Attribute) -> Any:
    """Return the Python value of an MLIR attribute; the inverse of `attribute`."""
    if isinstance(attr, ir.BoolAttr):
        return attr.value
    if isinstance(attr, ir.IntegerAttr):
        return attr.value + 2**64 if attr.value < 0 and str(attr).endswith("ui64") else attr.value
    if isinstance(attr, ir.FloatAttr):
        return attr.value
    if isinstance(attr, ir.StringAttr):
        return attr.value
    if isinstance(attr, ir.DenseI64ArrayAttr):
        return tuple(attr)
    if isinstance(attr, ir.ArrayAttr):
        return tuple(parse_dim(ir.StringAttr(a).value) for a in attr)
    if isinstance(attr, ir.TypeAttr):
        return FROM_MLIR[str(attr.value)]
    if isinstance(attr, ir.UnitAttr):
        return None
    raise ValueError(f"attribute '{attr}' is of a kind that no lamina op has")


def field_attribute(field: Field, value: Any) -> ir.Attribute:
    """Return the MLIR attribute of `value` for a declared attribute of an op."""
    return attribute(value, field.type)


def mlir_location(location: Location) -> ir.Location:
    """Return `loc("name"("file":line:1))`, or the part of it that is known."""
    where = ir.Location.file(location.file, location.line, 1) if location.file else None
    if location.name:
        return ir.Location.name(location.name, where) if where else ir.Location.name(location.name)
    return where or ir.Location.unknown()


def python_location(location: ir.Location) -> Location:
    """Return the file, line and name of an MLIR location; of a fused one the first part that has a file."""
    if location.is_a_fused():
        parts = [python_location(part) for part in location.locations]
        return next((p for p in parts if p.file), parts[0] if parts else Location())
    name = ""
    if location.is_a_name():
        name, location = location.name_str, location.child_loc
    if location.is_a_file():
        return Location(location.filename, location.start_line, name)
    return Location(name=name)
