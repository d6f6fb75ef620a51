"""Emit kernels of direct ops (sort, scan, scatter …) for a GPU: a thread for each work item of the CPU's form.

The emitters of `passes/direct` write a body for items `begin .. end` that do not meet; here a thread runs it for one item.
That is right and parallel over rows or columns, and far from the fastest: under torch.compile such ops run through torch,
but for those that have stages of their own: updates that combine nothing (`write_updates`) or add rows (`added_rows`), cumsum
and cumprod (`scan`), topk of short rows (`top_rows`) and of up to 256 elements (`top_long_rows`).
"""

from __future__ import annotations

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ....dialects.dtypes import DTYPES
from ....dialects.status import code_of
from ...direct.emit_direct import Emitter, find_root
from ...direct.kernel import DirectKernel
from ...loops.evaluate import Evaluator
from ...loops.kernel_functions import kernels, strings
from ...loops.tensor_graph import TensorGraph
from ...registry import register
from ..gpu_kernel import WARP, GpuKernel, GpuStage
from ..loops.emit_gpu_loops import emit_gpu_loops
from ..thread_values import store_failure
from .added_rows import AddedRows, adds_rows
from .scan_columns import scan_stage
from .top_long_rows import TopLongRows, takes_long
from .top_rows import TopRows, takes_rows
from .write_updates import writes_updates

THREADS = 64
LOCAL_BYTES = 1024  # of a thread's own memory for one scratch buffer; beyond this it lies in the launch's scratch


@register
def emit_gpu_direct(module: ir.Module, wave: int = WARP, ballot: str = "nvvm.vote.sync") -> None:
    """Replace each kernel around a direct op by its GPU form (docs/contracts.md, section 11).

    `wave` is the number of lanes that run together, `ballot` the op by which they vote.

    Before:
    ```mlir
    func.func private @k(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
      %y = "lamina.cumsum"(%x) {dim = 1 : i64, lamina.operand_dtypes = ["f32"]} : (tensor<8x4xf32>) -> tensor<8x4xf32> ... }
    ```
    After:
    ```mlir
    gpu.module @k { gpu.func @k_0(%x: memref<32xf32, #gpu.address_space<global>>, %y: ...) kernel {
      %item = ... %inside = arith.cmpi slt, %item, %c8
      scf.if %inside { ... } } }
    ```
    """
    with module.context, ir.Location.unknown():
        for op in kernels(module):
            found = find_root(op, "GPU form of")
            if found is None:
                emit_gpu_loops(module, wave)
                return
            root, emit = found
            graph = TensorGraph(op)
            for result, shape in zip(graph.results, ir.ArrayAttr(op.attributes["lamina.result_dims"])):
                graph.declare(result, [dims.parse(d) for d in strings(shape)])
            kernel = GpuKernel(graph, wave, ballot=ballot)
            if scan := scan_stage(root, graph.shape(root.operands[0])):
                scan(kernel, root).emit()
            elif updates := writes_updates(root):
                updates(kernel, root).emit()
            elif adds_rows(graph, root):
                AddedRows(kernel, root).emit()
            elif takes_rows(graph, root):
                TopRows(kernel, root).emit()
            elif takes_long(graph, root):
                TopLongRows(kernel, root).emit()
            else:
                _emit_items(kernel, root, emit)
            kernel.finish()
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()


class _ThreadChecks(Evaluator):
    """Elements as in the CPU's form, with checks that threads may fail at once."""

    def check(self, ok: ir.Value, message: str) -> None:
        assert self.status is not None
        store_failure(self.b, self.status, ok, code_of(message))


class _Items(DirectKernel):
    """The CPU's form, whose large scratch buffers become parts of one buffer of the launch."""

    strip = 1
    evaluator_type = _ThreadChecks

    def __init__(self, graph: TensorGraph, root: ir.Operation):
        super().__init__(graph, root)
        self.large: list[Dim] = []  # bytes of a buffer for one item

    def scratch(self, count: Dim, dtype: str) -> ir.Value:
        if isinstance(count, int) and count * DTYPES[dtype].bytes <= LOCAL_BYTES:
            return super().scratch(count, dtype)
        b, size, dynamic = self.b, count * DTYPES[dtype].bytes, ir.ShapedType.get_dynamic_size()
        bytes_ = ir.MemRefType.get([dynamic], ir.IntegerType.get_signless(8))
        whole = self.function.regions[0].blocks[0].add_argument(bytes_, b.location)
        self.large.append(size)
        shift = b.binary("arith.muli", self.begin, b.dim(size))
        part = ir.MemRefType.get([dynamic], self.cache.storage(dtype))
        return b.value("memref.view", (whole, shift, b.dim(count)), part)


def _emit_items(kernel: GpuKernel, root: ir.Operation, emit: Emitter) -> None:
    """A stage of the CPU's form, as `emit` writes it."""
    kernel.index_bits = 64  # buffers are compared by address
    direct = _Items(kernel.graph, root)
    items, _ = emit(direct)
    _launch(kernel, direct, items)
    direct.function.erase()


def _launch(kernel: GpuKernel, direct: _Items, items: Dim) -> None:
    """Make the one stage, and move the body of the CPU's form into it."""
    i8 = ir.IntegerType.get_signless(8)
    for size in direct.large:
        kernel.new_scratch(i8, items * size)
    stage = kernel.stage(THREADS, (dims.ceildiv(items, THREADS), 1, 1))
    b = stage.b
    item = stage.global_thread()
    inside = b.compare("slt", item, items)
    after = b.binary("arith.addi", item, b.constant(1, b.index))
    source = direct.function.regions[0].blocks[0]
    given = [_generic(stage, m) for m in (*stage.inputs.values(), *stage.outputs, stage.status)]
    given += [b.dim(dims.symbol(s)) for s in kernel.graph.symbols]
    given += [item, after, *(_generic(stage, m) for m in stage.scratch)]
    for argument, value in zip(source.arguments, given):
        argument.replace_all_uses_with(value)
    branch = b.op("scf.if", (inside,), regions=2)
    target = branch.regions[0].blocks.append()
    with ir.InsertionPoint(target):
        end = ir.Operation.create("scf.yield", loc=b.location)
    for op in list(source.operations):  # a thread's own memory is that of the function's first block
        op.operation.move_before(branch if op.operation.name == "memref.alloca" else end)
    stage.finish()


def _generic(stage: GpuStage, memref: ir.Value) -> ir.Value:
    """A buffer as the CPU's form has it: in no address space, of unknown size. LLVM infers the space again."""
    b, type = stage.b, ir.MemRefType(memref.type)
    flat = b.value("memref.memory_space_cast", (memref,), ir.MemRefType.get(type.shape, type.element_type))
    dynamic = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], type.element_type)
    return b.value("memref.cast", (flat,), dynamic)
