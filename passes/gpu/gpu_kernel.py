"""The frame of a GPU kernel: a `gpu.module` and its stages, and the builder that writes into a stage.

kernel = GpuKernel(graph)
stage = kernel.stage(block=256, grid=(dims.ceildiv(n, 256), 1, 1))
i = stage.b.bind("i", stage.global_thread())
...
stage.finish(); kernel.finish()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ..graph.residuals import ALIASED
from ..loops.loops_builder import LoopsBuilder
from ..loops.tensor_graph import TensorGraph
from .gpu_abi import drop_unused
from .summed_exponents import summed_exponents

DYNAMIC_SIZE = 2**31 - 1  # the size of a buffer that is not known: bare pointers carry none
WARP = 32  # lanes that any GPU runs together; a GPU may have wider waves


def element_bytes(type: ir.Type) -> int:
    """Bytes of one stored element."""
    if isinstance(type, ir.IntegerType):
        return max(1, ir.IntegerType(type).width // 8)
    return ir.FloatType(type).width // 8 if isinstance(type, ir.FloatType) else 8


class GpuKernel:
    """The `gpu.module` that replaces the linalg-level function of `graph`, for a GPU whose waves have `wave` lanes.

    `divide` and `exp2` are the LLVM intrinsics of an f32 quotient and power within 2 ulp, `largest` that of the largest
    i32 of a wave's lanes, if the machine has them;
    `stream`: loads may say that caches need not keep what they read (streamed_loads.py); `aligned`: vectors are loaded
    from multiples of their size only (unaligned_loads.py); `clusters`: blocks may share their shared memories
    (hopper/cluster.py); `overlaps`: a launch may begin before the one before it has ended (overlap_launches.py);
    `ballot`: the op by which lanes vote (llvm_ops.py).
    """

    def __init__(
        self,
        graph: TensorGraph,
        wave: int = WARP,
        divide: str = "",
        exp2: str = "",
        largest: str = "",
        stream: bool = False,
        aligned: bool = False,
        clusters: bool = False,
        overlaps: bool = False,
        ballot: str = "",
    ):
        self.graph, self.wave, self.stream, self.aligned = graph, wave, stream, aligned
        self.ballot = ballot
        self.clusters, self.overlaps = clusters, overlaps
        self.divide, self.exp2, self.largest = divide, exp2, largest
        self.rough = summed_exponents(graph) if exp2 else set()  # what `exp2` of a rounded exponent will do for
        op = graph.op
        self.name = ir.StringAttr(op.attributes["sym_name"]).value
        kept = ("lamina.kind", "lamina.symbols", "lamina.label")
        attributes = {k: op.attributes[k] for k in kept if k in op.attributes}
        attributes["sym_name"] = ir.StringAttr.get(self.name)
        self.op = ir.Operation.create(
            "gpu.module", attributes=attributes, regions=1, loc=op.location, ip=ir.InsertionPoint(op)
        )
        self.block = self.op.regions[0].blocks.append()
        self.scratch: list[tuple[ir.Type, Dim]] = []  # element type and count of each scratch buffer
        self.index_bits = 32
        self.apart = False  # its launches do not overlap with others (overlap_launches.py)
        self._count = 0
        self._has_dynamic = False
        self._space = ir.Attribute.parse("#gpu.address_space<global>")

    def buffer_type(self, element: ir.Type, count: Dim) -> ir.MemRefType:
        """The flat type of a global buffer."""
        size = count if isinstance(count, int) else DYNAMIC_SIZE
        if not isinstance(count, int) or count * element_bytes(element) >= 2**31:
            self.index_bits = 64
        return ir.MemRefType.get([max(size, 1)], element, memory_space=self._space)

    def new_scratch(self, element: ir.Type, count: Dim) -> int:
        """Room for `count` elements that stages of one launch hand to each other; returns its number."""
        self.buffer_type(element, count)
        self.scratch.append((element, count))
        return len(self.scratch) - 1

    def dynamic_shared(self) -> ir.FlatSymbolRefAttr:
        """The symbol of dynamic shared memory, which all stages that use it share."""
        if not self._has_dynamic:
            self._has_dynamic = True
            text = (
                "llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>"
            )
            parsed = ir.Module.parse(text)
            op = parsed.body.operations[0].operation.detach_from_parent()
            ir.InsertionPoint.at_block_begin(self.block).insert(op)
        return ir.FlatSymbolRefAttr.get("smem")

    def stage(self, block: int, grid: Sequence[Dim]) -> GpuStage:
        """Begin the next stage, with `block` threads and a grid of up to three sizes."""
        self._count += 1
        return GpuStage(self, f"{self.name}_{self._count - 1}", block, [*grid, 1, 1][:3])

    def finish(self) -> None:
        """Write what is known of the whole kernel and erase the function that it replaces."""
        sizes = [str(n * element_bytes(t)) for t, n in self.scratch]
        self.op.attributes["lamina.scratch"] = ir.ArrayAttr.get([ir.StringAttr.get(s) for s in sizes])
        self.op.attributes["lamina.index_bits"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.index_bits)
        if self.apart:
            self.op.attributes["lamina.apart"] = ir.UnitAttr.get()
        self.graph.op.erase()


class GpuStage:
    """One `gpu.func` being written: `b` builds its body; `inputs`, `outputs`, `scratch`, `status` are its buffers."""

    def __init__(self, kernel: GpuKernel, name: str, block: int, grid: Sequence[Dim]):
        self.kernel, graph = kernel, kernel.graph
        self.threads, self.grid = block, list(grid)
        location = graph.op.location
        i64, i32 = ir.IntegerType.get_signless(64), ir.IntegerType.get_signless(32)
        tensors = [*graph.inputs, *graph.results]
        types: list[ir.Type] = [
            kernel.buffer_type(ir.RankedTensorType(v.type).element_type, dims.product(graph.shape(v))) for v in tensors
        ]
        types += [kernel.buffer_type(t, n) for t, n in kernel.scratch]
        types += [kernel.buffer_type(i32, 1), *[i64] * len(graph.symbols)]
        self.op = ir.Operation.create(
            "gpu.func",
            attributes={
                "sym_name": ir.StringAttr.get(name),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
                "gpu.kernel": ir.UnitAttr.get(),
                "known_block_size": ir.DenseI32ArrayAttr.get([block, 1, 1]),
            },
            regions=1,
            loc=location,
            ip=ir.InsertionPoint(kernel.block),
        )
        self._body = self.op.regions[0].blocks.append(*types, arg_locs=[location] * len(types))
        self._roles = [f"buffer:{i}" for i in range(len(tensors))]
        self._roles += [f"scratch:{i}" for i in range(len(kernel.scratch))]
        self._roles += ["status", *(f"symbol:{i}" for i in range(len(graph.symbols)))]
        arguments = list(self._body.arguments)
        self.b = LoopsBuilder(self._body, location)
        self.inputs = dict(zip(graph.inputs, arguments))
        self.outputs = arguments[len(graph.inputs) : len(tensors)]
        self.scratch = arguments[len(tensors) : len(tensors) + len(kernel.scratch)]
        self.status = arguments[len(tensors) + len(kernel.scratch)]
        for symbol, value in zip(graph.symbols, arguments[len(arguments) - len(graph.symbols) :]):
            self.b.bind(symbol, self.b.value("arith.index_cast", (value,), self.b.index))
        self._shared: list[ir.Type] = []
        self._descriptors: list[dict[str, ir.Attribute]] = []
        self._ids: dict[str, ir.Value] = {}
        self._addresses: dict[ir.Value, ir.Value] = {}
        self.dynamic_shared = 0  # bytes of dynamic shared memory
        self.coherent = False  # inputs are read by loads that stay before the barriers that follow them
        self.blocks_per_sm = 0  # what registers must allow; 0: as it comes
        self.registers = 0  # of a thread at most, which ptxas may then use; 0: as it comes
        self.cluster = 1  # blocks that run together

    def thread(self) -> ir.Value:
        """The thread's number in its block, as an index."""
        return self._id("gpu.thread_id", "x")

    def block(self, dimension: str = "x") -> ir.Value:
        """The block's number along a dimension of the grid."""
        return self._id("gpu.block_id", dimension)

    def _id(self, op: str, dimension: str) -> ir.Value:
        key = op + dimension
        if key not in self._ids:
            with self.b.at_level(0):
                attribute = self.b.attribute(f"#gpu<dim {dimension}>")
                self._ids[key] = self.b.value(op, (), self.b.index, dimension=attribute)
        return self._ids[key]

    def global_thread(self) -> ir.Value:
        """`block * threads + thread` along x."""
        b = self.b
        first = b.binary("arith.muli", self.block(), b.constant(self.threads, b.index))
        return b.binary("arith.addi", first, self.thread())

    def shared(self, element: ir.Type, count: int) -> ir.Value:
        """A buffer of the block's shared memory."""
        space = self.b.attribute("#gpu.address_space<workgroup>")
        type = ir.MemRefType.get([count], element, memory_space=space)
        self._shared.append(type)
        return self._body.add_argument(type, self.b.location)

    def buffer_role(self, value: ir.Value) -> str:
        """The name of a buffer of this stage in `lamina.args`."""
        arguments = list(self._body.arguments)
        return self._roles[arguments.index(value)]

    def address(self, buffer: ir.Value) -> ir.Value:
        """The address of a buffer of this stage, which becomes a parameter of its own.

        (As an index it would lose its upper half where indices have 32 bits.)
        """
        if buffer not in self._addresses:
            assert not self._shared
            self._roles.append(self.buffer_role(buffer))
            pointer = ir.Type.parse("!llvm.ptr<1>")
            self._addresses[buffer] = self._body.add_argument(pointer, self.b.location)
        return self._addresses[buffer]

    def descriptor(self, entry: Mapping[str, Any]) -> ir.Value:
        """A TMA descriptor (contracts, section 11) as an `!llvm.ptr`; they come before shared buffers."""
        assert not self._shared
        i64 = self.b.i64
        written: dict[str, ir.Attribute] = {}
        for key, value in entry.items():
            if key in ("sizes", "strides"):
                written[key] = ir.ArrayAttr.get([ir.StringAttr.get(str(x)) for x in value])
            elif key in ("box", "lower", "upper", "steps"):
                written[key] = ir.DenseI64ArrayAttr.get(list(value))
            elif key == "swizzle":
                written[key] = ir.IntegerAttr.get(i64, value)
            else:
                written[key] = ir.StringAttr.get(str(value))
        self._roles.append(f"tma:{len(self._descriptors)}")
        self._descriptors.append(written)
        return self._body.add_argument(ir.Type.parse("!llvm.ptr"), self.b.location)

    def _aliased(self) -> list[str]:
        """The buffers that may be one: the result's, and those of operands that it may be written over."""
        attributes = self.kernel.graph.op.attributes
        if ALIASED not in attributes:
            return []
        return [f"buffer:{i}" for i in (*ir.DenseI64ArrayAttr(attributes[ALIASED]), len(self.inputs))]

    def barrier(self) -> None:
        """Wait for all threads of the block."""
        self.b.op("gpu.barrier", ())

    def finish(self) -> None:
        """End the function and write down how it is launched."""
        self.b.op("gpu.return", ())
        if self._shared:
            count = ir.IntegerAttr.get(self.b.i64, len(self._shared))
            self.op.attributes["workgroup_attributions"] = count
            aligned = ir.DictAttr.parse("{llvm.align = 16 : i64}")  # vectors of 16 bytes are read there
            self.op.attributes["workgroup_attrib_attrs"] = ir.ArrayAttr.get([aligned] * len(self._shared))
        none, pointer = ir.DictAttr.get({}), ir.DictAttr.parse("{llvm.noalias, llvm.align = 16 : i64}")
        shared = set(self._aliased())
        if self.coherent:
            shared.update(f"buffer:{i}" for i in range(len(self.inputs)))
        plain = ir.DictAttr.parse("{llvm.align = 16 : i64}")  # what is read and has no alias, LLVM loads as constant
        self.op.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [
                none if role.startswith(("symbol", "tma")) else plain if role in shared else pointer
                for role in self._roles
            ]
        )
        self.op.attributes["lamina.args"] = ir.ArrayAttr.get([ir.StringAttr.get(r) for r in self._roles])
        self.op.attributes["lamina.grid"] = ir.ArrayAttr.get([ir.StringAttr.get(str(g)) for g in self.grid])
        self.op.attributes["lamina.shared"] = ir.IntegerAttr.get(self.b.i64, self.dynamic_shared)
        if self._descriptors:
            self.op.attributes["lamina.tma"] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in self._descriptors])
        if self.blocks_per_sm:
            self.op.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(self.b.i32, self.blocks_per_sm)
        if self.cluster > 1:
            self.op.attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([self.cluster, 1, 1])
        if self.registers:
            self.op.attributes["nvvm.maxnreg"] = ir.IntegerAttr.get(self.b.i32, self.registers)
        drop_unused(self.op)
