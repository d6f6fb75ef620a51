"""Open the `loops`-level function for a kernel that a tile emitter writes, and close it again (contracts, sections 5-6).

`open_frame(function)` reads the `linalg`-level kernel, adds beside it the function on flat memrefs with status, symbols
and range, and returns the `Frame` in which to emit. `Frame.close(range, grain)` ends it and drops the old function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..loops.literal_table import literal_table
from ..loops.strided_view import Shapes
from .code import Code
from .numeric import element_type


class EmitError(RuntimeError):
    """A kernel that an optimised emitter does not take; the plain pipeline compiles it instead."""


@dataclass(frozen=True)
class Buffer:
    """A flat memref argument with the dtype and shape of the tensor it holds."""

    memref: ir.Value
    dtype: str
    shape: tuple[Dim, ...]


@dataclass
class Frame:
    """The new function being written, and what the old one says."""

    old: ir.Operation
    new: ir.Operation
    name: str
    code: Code
    shapes: Shapes
    inputs: dict[ir.Value, Buffer]  # by argument of the old function
    outputs: list[tuple[ir.Value, Buffer]]  # (value that the old function returns, where it goes)
    status: ir.Value
    begin: ir.Value
    end: ir.Value
    tables: dict[ir.Value, ir.Operation] = field(default_factory=dict)  # the globals of dense constants

    def table(self, constant: ir.Operation) -> ir.Operation:
        """The global that holds a dense constant; EmitError for one too large for code."""
        key = constant.results[0]
        if key not in self.tables:
            name = f"{self.name}.table{len(self.tables)}"
            try:
                self.tables[key] = literal_table(constant, name, ir.InsertionPoint(self.old))
            except NotImplementedError as error:
                raise EmitError(f"{error} in kernel '{self.name}'") from error
        return self.tables[key]

    def roots(self) -> list[ir.Operation]:
        """The `lamina` ops that the kernel holds."""
        return [
            op.operation for op in self.old.regions[0].blocks[0].operations if op.operation.name.startswith("lamina.")
        ]

    def root(self, *names: str) -> ir.Operation:
        """The one `lamina` op of the kernel; EmitError unless it is one of `names`."""
        roots = self.roots()
        if len(roots) != 1 or roots[0].name.removeprefix("lamina.") not in names:
            raise EmitError(f"kernel '{self.name}' has roots {', '.join(r.name for r in roots) or 'none'}")
        return roots[0]

    def close(self, total: Dim, grain: int) -> None:
        """Free scratch, return, note the parallel range, and put the new function in the old one's place."""
        self.code.release()
        self.code.op("func.return", [], [])
        i64 = ir.IntegerType.get_signless(64)
        for key in ("lamina.kind", "lamina.symbols", "lamina.label", "sym_visibility"):
            if key in self.old.attributes:
                self.new.attributes[key] = self.old.attributes[key]
        self.new.attributes["lamina.range"] = ir.StringAttr.get(str(total))
        self.new.attributes["lamina.grain"] = ir.IntegerAttr.get(i64, grain)
        self.old.erase()
        self.new.attributes["sym_name"] = ir.StringAttr.get(self.name)


def kernels(module: ir.Module, kind: str) -> list[ir.Operation]:
    """The functions of kind `kind` that are still at the `linalg` level."""
    found = []
    for op in module.body.operations:
        attributes = op.operation.attributes
        if "lamina.kind" in attributes and ir.StringAttr(attributes["lamina.kind"]).value == kind:
            if "lamina.range" not in attributes:
                found.append(op.operation)
    return found


@contextmanager
def open_frame(old: ir.Operation) -> Iterator[Frame]:
    """Begin the new function; inside, ops are emitted into it. On an error the new function is removed again."""
    symbols = [ir.StringAttr(s).value for s in ir.ArrayAttr(old.attributes["lamina.symbols"])]
    arguments = list(old.regions[0].blocks[0].arguments)
    tensors, indices = arguments[: len(arguments) - len(symbols)], arguments[len(arguments) - len(symbols) :]
    in_dtypes, out_dtypes = _names(old, "lamina.arg_dtypes"), _names(old, "lamina.result_dtypes")
    in_dims, out_dims = _dims(old, "lamina.arg_dims"), _dims(old, "lamina.result_dims")
    with old.location:
        index, dynamic = ir.IndexType.get(), ir.ShapedType.get_dynamic_size()
        flat = [ir.MemRefType.get([dynamic], element_type(d)) for d in (*in_dtypes, *out_dtypes)]
        status = ir.MemRefType.get([dynamic], ir.IntegerType.get_signless(32))
        types = [*flat, status, *[index] * (len(symbols) + 2)]
        name = ir.StringAttr(old.attributes["sym_name"]).value
        new = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get(f"{name}.new"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            },
            regions=1,
            ip=ir.InsertionPoint(old),
        )
        block = new.regions[0].blocks.append(*types, arg_locs=[old.location] * len(types))
        args = list(block.arguments)
        n_in, n_out = len(tensors), len(out_dtypes)
        returned = list(list(old.regions[0].blocks[0].operations)[-1].operands)
        symbol_values = dict(zip(symbols, args[n_in + n_out + 1 : -2]))
        frame = Frame(
            old=old,
            new=new,
            name=name,
            code=Code(block, symbol_values),
            shapes=Shapes(dict(zip(tensors, in_dims)), dict(zip(indices, symbols))),
            inputs={t: Buffer(m, d, s) for t, m, d, s in zip(tensors, args, in_dtypes, in_dims)},
            outputs=[(v, Buffer(m, d, s)) for v, m, d, s in zip(returned, args[n_in:], out_dtypes, out_dims)],
            status=args[n_in + n_out],
            begin=args[-2],
            end=args[-1],
        )
        with ir.InsertionPoint(block):
            try:
                yield frame
            except BaseException:
                new.erase()
                for table in frame.tables.values():
                    table.erase()
                raise


def _names(op: ir.Operation, attribute: str) -> Sequence[str]:
    return [ir.StringAttr(s).value for s in ir.ArrayAttr(op.attributes[attribute])]


def _dims(op: ir.Operation, attribute: str) -> list[tuple[Dim, ...]]:
    shapes = ir.ArrayAttr(op.attributes[attribute])
    return [tuple(dims.parse(ir.StringAttr(d).value) for d in ir.ArrayAttr(s)) for s in shapes]
