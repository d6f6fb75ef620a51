"""The verifier of the `lamina` and `kernels` levels: operands, attributes, types and launches, by the ops' own rules."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Sequence
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.mlir_ops import PREFIX, attributes_of, needs_segments, op_class, operand_list
from ...dialects.mlir_types import parse_dim, python_location, type_of
from ...dialects.op import Dims, DTypeAttr, Ints, Literal, Op, OpError, Scalar, all_ops
from ...dialects.record import Location, TensorType
from ..registry import register
from .dataflow import launched

_KINDS: dict[Any, tuple[type, ...]] = {
    int: (ir.IntegerAttr,),
    float: (ir.FloatAttr,),
    bool: (ir.BoolAttr,),
    str: (ir.StringAttr,),
    Ints: (ir.DenseI64ArrayAttr,),
    Dims: (ir.ArrayAttr,),
    DTypeAttr: (ir.TypeAttr,),
    Literal: (ir.StringAttr,),
    Scalar: (ir.IntegerAttr, ir.FloatAttr, ir.BoolAttr),
    type(None): (ir.UnitAttr,),
}


class VerifyError(ValueError):
    """A module that breaks an invariant of its level; the message has one line per error, `nodes` the ops' places."""

    def __init__(self, message: str, nodes: Sequence[Location] = ()):
        super().__init__(message)
        self.nodes = tuple(nodes)


@register
def verify_lamina(module: ir.Module) -> None:
    """Check every `lamina` op: operands, attributes and result types fit, sizes use declared symbols, launches match
    their kernels. Raises one VerifyError with all findings, each `lamina.softmax at model.py:31: …`; changes nothing.

    Before:
    ```mlir
    %0 = "lamina.neg"(%x) : (tensor<2xf32>) -> tensor<3xf32>
    ```
    After: `lamina.neg at model.py:31: its result 'y' is f32[3], but the op gives f32[2]`
    """
    errors: list[str] = []
    places: list[Location] = []
    kernels: dict[str, ir.Operation] = {}
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    for function in functions:
        kernels[ir.StringAttr(function.attributes["sym_name"]).value] = function
    for function in functions:
        if "lamina.arg_dims" in function.attributes:
            continue  # a kernel that is at the linalg level already
        known = _declared_symbols(module.operation, function)
        for block in function.regions[0].blocks:
            for argument in block.arguments:
                errors += _unknown_symbols(f"argument {argument.arg_number}", argument.type, known)
            for view in block.operations:
                op, found = view.operation, len(errors)
                if op.name == "lamina.launch":
                    errors += _check_launch(op, kernels)
                elif op.name.startswith(PREFIX):
                    errors += _check_op(op, known)
                elif op.name != "func.return":
                    errors.append(f"{where(op)}: only lamina ops and func.return may be here")
                if len(errors) > found:
                    places.append(python_location(op.location))
    if errors:
        raise VerifyError("\n".join(errors), places)


def where(op: ir.Operation) -> str:
    """Return `lamina.<op> at <location>`, how every message starts."""
    return f"{op.name} at {python_location(op.location)}"


def _check_op(op: ir.Operation, known: set[str] | None) -> list[str]:
    cls = op_class(op)
    if cls is None:
        near = difflib.get_close_matches(op.name.removeprefix(PREFIX), all_ops(), 3)
        return [f"{where(op)}: there is no such op" + (f"; did you mean {', '.join(near)}?" if near else "")]
    wrong = [f"{where(op)}: {text}" for text in _wrong_attributes(op, cls)]
    if wrong:
        return wrong
    try:
        types = [None if v is None else type_of(v) for v in operand_list(op)]
        _, inferred = cls.resolve(types, attributes_of(op), python_location(op.location))
        actual = [type_of(r) for r in op.results]
    except (OpError, ValueError) as error:
        text = str(error)
        return [text if text.startswith(PREFIX) else f"{where(op)}: {text}"]
    if len(actual) != len(inferred):
        return [f"{where(op)}: it has {len(inferred)} results, not {len(actual)}"]
    errors = []
    for f, t, i in zip(cls.results, actual, inferred):
        if t != i:
            errors.append(f"{where(op)}: its result '{f.name}' is {t}, but the op gives {i}")
        errors += _unknown_symbols(f"{where(op)}: result '{f.name}'", t, known)
    return errors


def _wrong_attributes(op: ir.Operation, cls: type[Op]) -> list[str]:
    """What is missing, unknown or of the wrong kind; names with a dot are notes of passes."""
    attributes = {op.attributes[i].name: op.attributes[i].attr for i in range(len(op.attributes))}
    wrong = []
    if needs_segments(cls) and "operandSegmentSizes" not in attributes:
        wrong.append("attribute 'operandSegmentSizes' is missing")
    for f in cls.attributes:
        if f.name not in attributes:
            wrong.append(f"attribute '{f.name}' is missing")
        elif f.default is None and isinstance(attributes[f.name], ir.UnitAttr):
            continue  # absent
        elif not _is_kind(attributes[f.name], f.type):
            wrong.append(f"attribute '{f.name}' cannot be {attributes[f.name]}")
    known = {f.name for f in cls.attributes} | {"operandSegmentSizes"}
    for name in attributes:
        if name not in known and "." not in name:
            wrong.append(f"unknown attribute '{name}'; it has {', '.join(sorted(known)) or 'none'}")
    return wrong


def _is_kind(attribute: ir.Attribute, declared: Any) -> bool:
    """True if `attribute` is of the declared attribute type (or of one of a union)."""
    kinds = set()
    for t in typing.get_args(declared) or (declared,):
        kinds |= set(_KINDS.get(t, (ir.Attribute,)))
    if isinstance(attribute, ir.BoolAttr):  # a subclass of IntegerAttr in MLIR's eyes
        return ir.BoolAttr in kinds
    return isinstance(attribute, tuple(kinds))


def _unknown_symbols(what: str, type: ir.Type | TensorType, known: set[str] | None) -> list[str]:
    if known is None:
        return []
    try:
        shape = (type if isinstance(type, TensorType) else type_of(type)).shape
    except ValueError as error:
        return [f"{what}: {error}"]
    unknown = sorted(set().union(*map(dims.symbols, shape)) - known)
    return [f"{what} has the size symbol '{s}', which is not declared" for s in unknown]


def _declared_symbols(module: ir.Operation, function: ir.Operation) -> set[str] | None:
    """The symbols that a function may use: a kernel's own, else the module's; None where neither says."""
    if "lamina.symbols" in function.attributes:
        return {ir.StringAttr(a).value for a in ir.ArrayAttr(function.attributes["lamina.symbols"])}
    if "lamina.symbols" in module.attributes:
        return {ir.StringAttr(ir.DictAttr(a)["name"]).value for a in ir.ArrayAttr(module.attributes["lamina.symbols"])}
    return None


def _check_launch(op: ir.Operation, kernels: dict[str, ir.Operation]) -> list[str]:
    name = launched(op)
    kernel = kernels.get(name)
    if kernel is None:
        return [f"{where(op)}: there is no kernel '@{name}'"]
    symbols = [ir.StringAttr(a).value for a in ir.ArrayAttr(kernel.attributes["lamina.symbols"])]
    given = [parse_dim(ir.StringAttr(a).value) for a in ir.ArrayAttr(op.attributes["dims"])]
    if len(symbols) != len(given):
        return [f"{where(op)}: kernel '@{name}' takes {len(symbols)} sizes, got {len(given)}"]
    values = dict(zip(symbols, given))
    signature = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    errors = []
    for what, actual, declared in (
        ("operand", [v.type for v in op.operands], signature.inputs),
        ("result", [r.type for r in op.results], signature.results),
    ):
        if len(actual) != len(declared):
            errors.append(f"{where(op)}: kernel '@{name}' has {len(declared)} {what}s, got {len(actual)}")
            continue
        for i, (a, d) in enumerate(zip(actual, declared)):
            t, k = type_of(a), type_of(d)
            expected = TensorType(k.dtype, tuple(dims.substitute(x, values) for x in k.shape))
            if t != expected:
                errors.append(f"{where(op)}: {what} {i} is {t}, but kernel '@{name}' has {expected}")
    return errors
