"""The verifier of the `lamina` and `kernels` levels: what IRDL cannot say, through the ops' own `infer`."""

from __future__ import annotations

from mlir import ir

from ..dialects import dims
from ..dialects.mlir_ops import PREFIX, attributes_of, op_class, operand_list
from ..dialects.mlir_types import parse_dim, python_location, type_of
from ..dialects.op import OpError
from ..dialects.record import TensorType
from .registry import register


class VerifyError(ValueError):
    """A module that breaks an invariant of its level; the message has one line per error."""


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
    kernels: dict[str, ir.Operation] = {}
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    for function in functions:
        kernels[ir.StringAttr(function.attributes["sym_name"]).value] = function
    for function in functions:
        known = _declared_symbols(module.operation, function)
        for block in function.regions[0].blocks:
            for argument in block.arguments:
                errors += _unknown_symbols(f"argument {argument.arg_number}", argument.type, known)
            for view in block.operations:
                op = view.operation
                if op.name == "lamina.launch":
                    errors += _check_launch(op, kernels)
                elif op.name.startswith(PREFIX):
                    errors += _check_op(op, known)
    if errors:
        raise VerifyError("\n".join(errors))


def where(op: ir.Operation) -> str:
    """Return `lamina.<op> at <location>`, how every message starts."""
    return f"{op.name} at {python_location(op.location)}"


def _check_op(op: ir.Operation, known: set[str] | None) -> list[str]:
    cls = op_class(op)
    if cls is None:
        return [f"{where(op)}: no such op in the registry"]
    try:
        types = [None if v is None else type_of(v) for v in operand_list(op)]
        _, inferred = cls.resolve(types, attributes_of(op), python_location(op.location))
        actual = [type_of(r) for r in op.results]
    except OpError as error:
        return [str(error)]
    except ValueError as error:
        return [f"{where(op)}: {error}"]
    errors = []
    for f, t, i in zip(cls.results, actual, inferred):
        if t != i:
            errors.append(f"{where(op)}: its result '{f.name}' is {t}, but the op gives {i}")
        errors += _unknown_symbols(f"{where(op)}: result '{f.name}'", t, known)
    return errors


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
    name = ir.FlatSymbolRefAttr(op.attributes["kernel"]).value
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
