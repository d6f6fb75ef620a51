"""From a loops-level kernel to the C entry points of kernel ABI version 1 (docs/contracts.md, section 7).

Every function with `lamina.range` becomes three:

    NAME(ctx*, void** buffers, const int64_t* dims) -> int32          computes range and grain, calls parallel_for
    NAME.range(ctx*, buffers, dims, begin, end) -> int32              loads pointers and sizes, calls the body
    NAME.body(noalias pointers..., status*, dims..., begin, end)      private; LLVM inlines it and keeps noalias

`lamina.range` and `lamina.grain` are size expressions over the kernel's symbols (a grain may also be an integer).
"""

from __future__ import annotations

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..registry import register
from .loops_builder import LoopsBuilder

# What LLVM is told about kernels of a kind (targets/llvm.py). Attention is not marked as written by hand: what its two
# products keep in registers then leaves no room for sums wherever tiles have several heights. With 197 keys (8 registers
# of sums in memory) it ran at 39 % of the FMA peak of a Zen 3 core, and runs at 71 %.
MARKS = {"matmul": "lamina-hand-written", "conv": "lamina-hand-written", "concat": "lamina-parts"}
DYNAMIC = -(2**31)  # kDynamicIndex of LLVM's getelementptr


@register
def kernel_abi(module: ir.Module) -> None:
    """Replace the memref arguments of each kernel by the kernel ABI.

    Before:
    ```mlir
    func.func @k(%x: memref<?xf32>, %y: memref<?xf32>, %status: memref<?xi32>, %begin: index, %end: index)
      attributes {lamina.range = "768", lamina.grain = 768 : i64, lamina.symbols = []} { ... }
    ```
    After:
    ```mlir
    func.func private @k.body(%x: !llvm.ptr {llvm.noalias}, %y: !llvm.ptr {llvm.noalias}, ...)
    func.func @k.range(%ctx: !llvm.ptr, %buffers: !llvm.ptr, %dims: !llvm.ptr, %begin: i64, %end: i64) -> i32
    func.func @k(%ctx: !llvm.ptr, %buffers: !llvm.ptr, %dims: !llvm.ptr) -> i32
    ```
    """
    with module.context, ir.Location.unknown():
        for op in list(module.body.operations):
            if op.operation.name == "func.func" and "lamina.range" in op.attributes:
                _Kernel(module, op.operation).rewrite()


class _Kernel:
    """One kernel on its way to the ABI."""

    def __init__(self, module: ir.Module, op: ir.Operation):
        self.module, self.op = module, op
        self.name = ir.StringAttr(op.attributes["sym_name"]).value
        self.symbols = [ir.StringAttr(a).value for a in ir.ArrayAttr(op.attributes["lamina.symbols"])]
        self.pointer = ir.Type.parse("!llvm.ptr")
        self.block = op.regions[0].blocks[0]
        self.count = len(self.block.arguments) - len(self.symbols) - 3  # inputs and outputs; status, begin, end left
        self.shapes = self._shapes()

    def rewrite(self) -> None:
        location = self.op.location
        self._launch(location)
        self._range(location)
        self._body()

    def _shapes(self) -> list[list[Dim] | None]:
        shapes: list[list[Dim] | None] = []
        for key in ("lamina.arg_dims", "lamina.result_dims"):
            if key in self.op.attributes:
                shapes += [
                    [dims.parse(ir.StringAttr(d).value) for d in ir.ArrayAttr(a)]
                    for a in ir.ArrayAttr(self.op.attributes[key])
                ]
        return shapes if len(shapes) == self.count else [None] * self.count

    def _function(self, name: str, arguments: list[ir.Type], location: ir.Location) -> LoopsBuilder:
        i32 = ir.IntegerType.get_signless(32)
        op = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get(name),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(arguments, [i32])),
            },
            regions=1,
            loc=location,
            ip=ir.InsertionPoint(self.module.body),
        )
        block = op.regions[0].blocks.append(*arguments, arg_locs=[location] * len(arguments))
        return LoopsBuilder(block, location)

    def _slot(self, b: LoopsBuilder, base: ir.Value, number: int, type: ir.Type) -> ir.Value:
        """Load 8-byte slot `number` behind pointer `base`."""
        address = base
        if number:
            address = b.value(
                "llvm.getelementptr",
                (base,),
                self.pointer,
                elem_type=ir.TypeAttr.get(b.i64),
                rawConstantIndices=ir.DenseI32ArrayAttr.get([number]),
                noWrapFlags=b.number(3, b.i32),
            )
        return b.value("llvm.load", (address,), type)

    def _bind_symbols(self, b: LoopsBuilder, sizes: ir.Value) -> list[ir.Value]:
        """Load the symbols from the `dims` array; returns them as i64."""
        loaded = [self._slot(b, sizes, i, b.i64) for i in range(len(self.symbols))]
        for name, value in zip(self.symbols, loaded):
            b.bind(name, b.value("arith.index_cast", (value,), b.index))
        return loaded

    def _launch(self, location: ir.Location) -> None:
        pointer = self.pointer
        b = self._function(self.name + ".launch", [pointer] * 3, location)
        context, buffers, sizes = b.scopes[0].block.arguments
        self._bind_symbols(b, sizes)
        expression = dims.parse(ir.StringAttr(self.op.attributes["lamina.range"]).value)
        total, grain = b.value("arith.index_cast", (b.dim(expression),), b.i64), self._grain(b)
        zero32, zero = b.constant(0, b.i32), b.constant(0, b.i64)

        def direct() -> list[ir.Value]:
            return [self._call(b, self.name + ".range", [context, buffers, sizes, zero, total])]

        def parallel() -> list[ir.Value]:
            return [self._parallel_for(b, context, [buffers, sizes, total, grain])]

        def some() -> list[ir.Value]:
            small = b.compare("sle", total, grain)
            return b.branch(small, [b.i32], direct, parallel)

        nonempty = b.compare("sgt", total, zero)
        b.op("func.return", b.branch(nonempty, [b.i32], some, lambda: [zero32]))

    def _grain(self, b: LoopsBuilder) -> ir.Value:
        """The items of a chunk, as an i64."""
        grain = self.op.attributes["lamina.grain"]
        if isinstance(grain, ir.StringAttr):
            return b.value("arith.index_cast", (b.dim(dims.parse(ir.StringAttr(grain).value)),), b.i64)
        return b.constant(max(1, ir.IntegerAttr(grain).value), b.i64)

    def _parallel_for(self, b: LoopsBuilder, context: ir.Value, arguments: list[ir.Value]) -> ir.Value:
        """`ctx->parallel_for(ctx, NAME.range, *arguments)`: its status."""
        pointer = self.pointer
        target = self._slot(b, context, 1, pointer)
        body = b.value(
            "func.constant",
            (),
            ir.FunctionType.get([pointer, pointer, pointer, b.i64, b.i64], [b.i32]),
            value=ir.FlatSymbolRefAttr.get(self.name + ".range"),
        )
        body = b.value("builtin.unrealized_conversion_cast", (body,), pointer)
        operands = [target, context, body, *arguments]
        attributes = {
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        }
        return b.op("llvm.call", operands, [b.i32], attributes).result

    def _call(self, b: LoopsBuilder, name: str, operands: list[ir.Value]) -> ir.Value:
        return b.op("func.call", operands, [b.i32], {"callee": ir.FlatSymbolRefAttr.get(name)}).result

    def _range(self, location: ir.Location) -> None:
        pointer, i64 = self.pointer, ir.IntegerType.get_signless(64)
        b = self._function(self.name + ".range", [pointer, pointer, pointer, i64, i64], location)
        _, buffers, sizes, begin, end = b.scopes[0].block.arguments
        pointers = [self._slot(b, buffers, i, pointer) for i in range(self.count)]
        status = b.value("llvm.alloca", (b.constant(1, b.i64),), pointer, elem_type=ir.TypeAttr.get(b.i32))
        b.op("llvm.store", (b.constant(0, b.i32), status))
        symbols = [self._slot(b, sizes, i, b.i64) for i in range(len(self.symbols))]
        b.op(
            "func.call",
            [*pointers, status, *symbols, begin, end],
            attributes={"callee": ir.FlatSymbolRefAttr.get(self.name + ".body")},
        )
        b.op("func.return", (b.value("llvm.load", (status,), b.i32),))

    def _body(self) -> None:
        """Turn the kernel itself into NAME.body, and NAME.launch into NAME."""
        b = LoopsBuilder(self.block, self.op.location, at_start=True)
        old = list(self.block.arguments)
        types = [self.pointer] * (self.count + 1) + [b.i64] * (len(self.symbols) + 2)
        new = [self.block.add_argument(t, self.op.location) for t in types]
        casts = new[self.count + 1 :]
        values = [b.value("arith.index_cast", (x,), b.index) for x in casts]
        for name, value in zip(self.symbols, values):
            b.bind(name, value)
        for i, argument in enumerate(old[: self.count + 1]):
            shape = self.shapes[i] if i < self.count else None
            argument.replace_all_uses_with(self._descriptor(b, new[i], argument.type, shape))
        for argument, value in zip(old[self.count + 1 :], values):
            argument.replace_all_uses_with(value)
        for _ in old:
            self.block.erase_argument(0)
        noalias = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
        none = ir.DictAttr.get({})
        attributes = self.op.attributes
        attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        attributes["arg_attrs"] = ir.ArrayAttr.get([noalias] * (self.count + 1) + [none] * (len(self.symbols) + 2))
        attributes["sym_name"] = ir.StringAttr.get(self.name + ".body")
        attributes["sym_visibility"] = ir.StringAttr.get("private")
        # one copy of it is compiled: inlined into NAME.range it would be two, and lose that its arguments do not alias
        attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
        kind = ir.StringAttr(attributes["lamina.kind"]).value if "lamina.kind" in attributes else ""
        marks = ["noinline", *([MARKS[kind]] if kind in MARKS else [])]
        attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get(mark) for mark in marks])
        for key in [a.name if hasattr(a, "name") else a for a in attributes]:
            if key.startswith("lamina."):
                del attributes[key]
        for op in self.module.body.operations:
            if "sym_name" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value == self.name + ".launch":
                op.attributes["sym_name"] = ir.StringAttr.get(self.name)

    def _descriptor(self, b: LoopsBuilder, pointer: ir.Value, type: ir.Type, shape: list[Dim] | None) -> ir.Value:
        """A memref of `type` (identity layout) at `pointer`, through MLIR's descriptor struct."""
        memref = ir.MemRefType(type)
        if shape is None or len(shape) != memref.rank:
            total = dims.product(shape) if shape is not None else 0
            shape = [total] if memref.rank == 1 else []
            if memref.rank > 1 or (memref.rank == 1 and not memref.is_dynamic_dim(0)):
                shape = [memref.get_dim_size(i) for i in range(memref.rank)]
        array = f", array<{memref.rank} x i64>" * 2 if memref.rank else ""
        struct = ir.Type.parse(f"!llvm.struct<(ptr, ptr, i64{array})>")
        value = b.value("llvm.mlir.poison", (), struct)

        def insert(item: ir.Value, *position: int) -> None:
            nonlocal value
            value = b.value("llvm.insertvalue", (value, item), struct, position=ir.DenseI64ArrayAttr.get(position))

        insert(pointer, 0)
        insert(pointer, 1)
        insert(b.constant(0, b.i64), 2)
        stride: Dim = 1
        for i in reversed(range(memref.rank)):
            insert(b.value("arith.index_cast", (b.dim(shape[i]),), b.i64), 3, i)
            insert(b.value("arith.index_cast", (b.dim(stride),), b.i64), 4, i)
            stride = stride * shape[i]
        return b.value("builtin.unrealized_conversion_cast", (value,), type)
