"""GPU kernels run on the CPU, all threads in lockstep: the indexing and masking logic of emitters, without a GPU.

`simulate(module, arrays, symbols)` interprets the stages of the `gpu.module` at the loops level. A value is a numpy
array with one row per thread of the whole grid. Every access is checked against its buffer, a barrier must be reached
by all threads, outputs and shared memory start as NaN or large numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mlir import ir

from lamina.dialects import dims

from .scalar_ops import INTRINSICS, dtype_of, scalar
from .simulate_clusters import CLUSTER, ClusterInstructions, ClusterMemory
from .simulate_warps import WarpInstructions, address_of

LARGEST_OF_WARP = "llvm.nvvm.redux.sync.max"


def poisoned(count: int, dtype: np.dtype) -> np.ndarray:
    """Memory that shows when it is used without having been written."""
    if dtype.kind in "iu":
        return np.full(count, 77, dtype)
    return np.full(count, math.nan, dtype) if dtype.kind != "b" else np.ones(count, bool)


def simulate(
    module: ir.Module,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[tuple[Any, np.dtype]],
    symbols: Sequence[int] = (),
    scratch: dict[int, np.ndarray] | None = None,
) -> tuple[list[np.ndarray], int]:
    """The outputs of the kernel in `module` (shapes and dtypes given), and its status word; `scratch` gets its buffers."""
    (kernel,) = (op.operation for op in module.body.operations if op.operation.name == "gpu.module")
    names = [ir.StringAttr(s).value for s in ir.ArrayAttr(kernel.attributes["lamina.symbols"])]
    known = {**dict(zip(names, symbols)), "sms": 4}
    made = [poisoned(math.prod(shape), dtype) for shape, dtype in outputs]
    buffers = [np.ascontiguousarray(x).reshape(-1) for x in inputs] + made
    sizes = [
        dims.evaluate(dims.parse(ir.StringAttr(s).value), known)
        for s in ir.ArrayAttr(kernel.attributes["lamina.scratch"])
    ]
    scratch = {} if scratch is None else scratch
    status = np.zeros(1, np.int32)
    constants = {}
    for op in kernel.regions[0].blocks[0].operations:
        if op.operation.name == "memref.global":
            value = np.array(ir.DenseElementsAttr(op.attributes["initial_value"]))
            constants[ir.StringAttr(op.attributes["sym_name"]).value] = value.reshape(-1)
    for op in kernel.regions[0].blocks[0].operations:
        if op.operation.name != "gpu.func":
            continue
        arguments: list[Any] = []
        block = op.regions[0].blocks[0]
        roles = [ir.StringAttr(r).value for r in ir.ArrayAttr(op.attributes["lamina.args"])]
        for role, argument in zip(roles, block.arguments):
            kind, _, number = role.partition(":")
            if kind == "buffer":
                arguments.append(buffers[int(number)])
            elif kind == "scratch":
                if int(number) not in scratch:  # one that is only read by address was written by an earlier stage
                    dtype = dtype_of(ir.MemRefType(argument.type).element_type)
                    scratch[int(number)] = poisoned(sizes[int(number)] // dtype.itemsize, dtype)
                arguments.append(scratch[int(number)])
            else:
                arguments.append(status if kind == "status" else np.array([symbols[int(number)]], np.int64))
        grid = [
            dims.evaluate(dims.parse(ir.StringAttr(g).value), known) for g in ir.ArrayAttr(op.attributes["lamina.grid"])
        ]
        threads = list(ir.DenseI32ArrayAttr(op.attributes["known_block_size"]))[0]
        run_stage(op, grid, threads, constants, arguments)
    return [m.reshape(shape) for m, (shape, _) in zip(made, outputs)], int(status[0])


def run_stage(
    op: Any,
    grid: Sequence[int],
    threads: int,
    constants: dict[str, np.ndarray],
    arguments: Sequence[Any],
    in_turn: bool = False,
) -> None:
    """Run one `gpu.func` on arrays: flat ones for its buffers, of one element for symbols.

    With `in_turn` a block (or a cluster of blocks) starts when the one before has ended: what it reads may have been written
    over by that.
    """
    cluster = list(ir.DenseI32ArrayAttr(op.attributes[CLUSTER]))[0] if CLUSTER in op.attributes else 1
    shared = ir.IntegerAttr(op.attributes["lamina.shared"]).value
    count = math.prod(grid)
    assert count % cluster == 0, "a grid of more than whole clusters"
    for first in range(0, count, cluster) if in_turn else (0,):
        stage = _Stage(grid, range(first, first + cluster if in_turn else count), threads, constants)
        stage.cluster = ClusterMemory(cluster)
        stage.open_shared(shared, [a for a in arguments if isinstance(a, np.ndarray)])
        stage.run(op.regions[0].blocks[0], list(arguments))


class _Shared:
    """A shared buffer: one copy per block, side by side."""

    def __init__(self, blocks: int, size: int, dtype: np.dtype, block: np.ndarray):
        self.data, self.size = poisoned(blocks * size, dtype), size
        self.offset = block * size


class _Part:
    """A buffer of each thread's own: memory of its own, or a part of one that threads share."""

    def __init__(self, data: np.ndarray, size: int, offset: np.ndarray):
        self.data, self.size, self.offset = data, size, offset


class _Stage(WarpInstructions, ClusterInstructions):
    """Some blocks of a launch at once: `self.env` holds a row per thread for each value."""

    def __init__(self, grid: Sequence[int], blocks: range, threads: int, constants: dict[str, np.ndarray]):
        self.blocks, self.threads, self.constants = len(blocks), threads, constants
        lane = np.arange(self.blocks * threads)
        self.block = lane // threads  # by its number among them
        number = blocks.start + self.block
        self.ids = {"thread_id x": lane % threads, "block_id x": number % grid[0]}
        self.ids["block_id y"] = number // grid[0] % grid[1]
        self.ids["block_id z"] = number // grid[0] // grid[1]
        self.lanes = len(lane)
        self.env: dict[ir.Value, Any] = {}

    def run(self, block: ir.Block, arguments: list[Any]) -> None:
        for value, given in zip(block.arguments, arguments):
            self.env[value] = address_of(given) if str(value.type).startswith("!llvm.ptr") else given
        for value in list(block.arguments)[len(arguments) :]:
            memref = ir.MemRefType(value.type)
            self.env[value] = _Shared(self.blocks, memref.shape[0], dtype_of(memref.element_type), self.block)
        with np.errstate(all="ignore"):
            self.ops(block, np.ones(self.lanes, bool))

    def ops(self, block: ir.Block, mask: np.ndarray) -> list[Any]:
        for op in block.operations:
            op = op.operation
            if op.name in ("scf.yield", "scf.condition", "gpu.return"):
                return [self.env[v] for v in op.operands]
            getattr(self, "_" + op.name.replace(".", "_"), self._scalar)(op, mask)
        return []

    def whole(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, (self.lanes, *x.shape[1:]))

    # -- control flow and threads --------------------------------------------------------------------------------------
    def _scf_if(self, op: ir.Operation, mask: np.ndarray) -> None:
        condition = self.whole(self.env[op.operands[0]])
        made = []
        for region, taken in zip(op.regions, (mask & condition, mask & ~condition)):
            made.append(self.ops(region.blocks[0], taken) if len(region.blocks) else [])
        for i, result in enumerate(op.results):
            self.env[result] = _where(condition, self.whole(made[0][i]), self.whole(made[1][i]))

    def _scf_for(self, op: ir.Operation, mask: np.ndarray) -> None:
        low, high, step, *carried = (self.whole(self.env[v]) for v in op.operands)
        block = op.regions[0].blocks[0]
        at = low.copy()
        while (active := mask & (at < high)).any():
            for argument, value in zip(block.arguments, [at, *carried]):
                self.env[argument] = value
            made = self.ops(block, active)
            carried = [_where(active, self.whole(m), c) for m, c in zip(made, carried)]
            at = at + step
        self.env.update(zip(op.results, carried))

    def _scf_while(self, op: ir.Operation, mask: np.ndarray) -> None:
        before, after = (r.blocks[0] for r in op.regions)
        carried = [self.whole(self.env[v]) for v in op.operands]
        results = list(carried)  # of the same types
        active = mask
        while active.any():
            self.env.update(zip(before.arguments, carried))
            goes_on, *passed = self.ops(before, active)
            results = [_where(active, self.whole(p), r) for p, r in zip(passed, results)]
            active = active & self.whole(goes_on)
            self.env.update(zip(after.arguments, results))
            if active.any():
                made = self.ops(after, active)
                carried = [_where(active, self.whole(m), c) for m, c in zip(made, carried)]
        self.env.update(zip(op.results, results))

    def _gpu_thread_id(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.ids["thread_id x"]

    def _gpu_block_id(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.ids[f"block_id {str(op.attributes['dimension'])[-2]}"]

    def _gpu_barrier(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.together(mask, self.threads, "a barrier")

    def _gpu_shuffle(self, op: ir.Operation, mask: np.ndarray) -> None:
        value, distance, width = (self.whole(self.env[v]) for v in op.operands)
        wave = int(width.max(initial=32))  # a launch of no blocks has no lanes
        assert wave in (32, 64) and (width == wave).all(), "a shuffle among other lanes than a warp's or a wave's"
        self.together(mask, wave, "a shuffle")
        self.env[op.results[0]] = value[np.arange(self.lanes) ^ distance]
        self.env[op.results[1]] = np.ones(1, bool)

    def _rocdl_ballot(self, op: ir.Operation, mask: np.ndarray) -> None:
        """A vote of the lanes of a wave, as many as the result has bits."""
        wave = ir.IntegerType(op.results[0].type).width
        self.together(mask, wave, "a vote")
        holds = self.whole(self.env[op.operands[-1]]).reshape(-1, wave)
        words = np.packbits(holds, 1, bitorder="little").view(f"int{wave}")
        self.env[op.results[0]] = np.repeat(words[:, 0], wave)

    _nvvm_vote_sync = _rocdl_ballot  # of all lanes

    # -- memory --------------------------------------------------------------------------------------------------------
    def _place(self, memref: Any, index: np.ndarray, width: int, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = self.whole(index)
        size = memref.size
        wrong = mask & ((index < 0) | (index + width > size))
        assert not wrong.any(), f"access at {index[wrong][:4]} of {width} in a buffer of {size}"
        index = np.where(mask, index, 0)
        if isinstance(memref, (_Shared, _Part)):
            return memref.data, index + memref.offset
        return memref, index

    def _load(self, op: ir.Operation, mask: np.ndarray, width: int) -> np.ndarray:
        memref = self.env[op.operands[0]]
        data, index = self._place(memref, self.env[op.operands[1]], width, mask)
        return (
            data[np.minimum(index[:, None] + np.arange(width), len(data) - 1)]
            if len(data)
            else np.zeros((self.lanes, width), data.dtype)
        )

    def _memref_load(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self._load(op, mask, 1)[:, 0]

    def _vector_load(self, op: ir.Operation, mask: np.ndarray) -> None:
        width = ir.VectorType(op.results[0].type).shape[0]
        self._aligned(op, self.env[op.operands[1]], mask, dtype_of(op.results[0].type))
        self.env[op.results[0]] = self._load(op, mask, width)

    def _aligned(self, op: ir.Operation, index: np.ndarray, mask: np.ndarray, dtype: np.dtype) -> None:
        if "alignment" in op.attributes:
            bytes_ = self.whole(index)[mask] * dtype.itemsize
            assert not (bytes_ % ir.IntegerAttr(op.attributes["alignment"]).value).any(), f"misaligned: {op}"

    def _memref_store(self, op: ir.Operation, mask: np.ndarray) -> None:
        data, index = self._place(self.env[op.operands[1]], self.env[op.operands[2]], 1, mask)
        data[index[mask]] = self.whole(self.env[op.operands[0]])[mask]

    def _vector_store(self, op: ir.Operation, mask: np.ndarray) -> None:
        value = self.whole(self.env[op.operands[0]])
        self._aligned(op, self.env[op.operands[2]], mask, value.dtype)
        data, index = self._place(self.env[op.operands[1]], self.env[op.operands[2]], value.shape[1], mask)
        data[index[mask][:, None] + np.arange(value.shape[1])] = value[mask]

    def _memref_get_global(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.constants[ir.FlatSymbolRefAttr(op.attributes["name"]).value]

    def _memref_cast(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.env[op.operands[0]]

    _memref_memory_space_cast = _memref_cast

    def _memref_alloca(self, op: ir.Operation, mask: np.ndarray) -> None:
        type = ir.MemRefType(op.results[0].type)
        size = type.shape[0]
        data = poisoned(self.lanes * size, dtype_of(type.element_type))
        self.env[op.results[0]] = _Part(data, size, np.arange(self.lanes) * size)

    def _memref_view(self, op: ir.Operation, mask: np.ndarray) -> None:
        data, shift, size = (self.env[v] for v in op.operands)
        dtype = dtype_of(ir.MemRefType(op.results[0].type).element_type)
        assert not (shift[mask] % dtype.itemsize).any(), "a misaligned part of a buffer"
        assert (shift[mask] + size[0] * dtype.itemsize <= data.size).all(), "a part outside its buffer"
        whole = data[: data.size // dtype.itemsize * dtype.itemsize].view(dtype)
        self.env[op.results[0]] = _Part(whole, int(size[0]), shift // dtype.itemsize)

    def _memref_extract_aligned_pointer_as_index(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = address_of(self.env[op.operands[0]])

    # -- values --------------------------------------------------------------------------------------------------------
    def _vector_broadcast(self, op: ir.Operation, mask: np.ndarray) -> None:
        width = ir.VectorType(op.results[0].type).shape[0]
        x = self.env[op.operands[0]]
        self.env[op.results[0]] = np.broadcast_to(x[:, None], (len(x), width))

    def _vector_extract(self, op: ir.Operation, mask: np.ndarray) -> None:
        (at,) = ir.DenseI64ArrayAttr(op.attributes["static_position"])
        self.env[op.results[0]] = self.env[op.operands[0]][:, at]

    def _vector_from_elements(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = np.stack([self.whole(self.env[v]) for v in op.operands], 1)

    def _vector_reduction(self, op: ir.Operation, mask: np.ndarray) -> None:
        x, kind = self.env[op.operands[0]], str(op.attributes["kind"])
        self.env[op.results[0]] = x.all(1) if "and" in kind else x.sum(1, dtype=x.dtype)
        assert "and" in kind or "add" in kind

    def _vector_shuffle(self, op: ir.Operation, mask: np.ndarray) -> None:
        both = np.concatenate([self.whole(self.env[v]) for v in op.operands], 1)
        self.env[op.results[0]] = both[:, list(ir.DenseI64ArrayAttr(op.attributes["mask"]))]

    def _vector_bitcast(self, op: ir.Operation, mask: np.ndarray) -> None:
        value = np.ascontiguousarray(self.whole(self.env[op.operands[0]]))
        self.env[op.results[0]] = value.view(dtype_of(op.results[0].type))

    def _llvm_call_intrinsic(self, op: ir.Operation, mask: np.ndarray) -> None:
        name = ir.StringAttr(op.attributes["intrin"]).value
        if name == LARGEST_OF_WARP:
            self.together(mask, 32, "a reduction of a warp")
            value = self.whole(self.env[op.operands[0]]).reshape(-1, 32)
            self.env[op.results[0]] = np.repeat(value.max(1), 32)
            return
        self.env[op.results[0]] = INTRINSICS[name](*(self.env[v] for v in op.operands))

    def _arith_constant(self, op: ir.Operation, mask: np.ndarray) -> None:
        attribute, type = op.attributes["value"], op.results[0].type
        if isinstance(attribute, ir.DenseElementsAttr):
            shape = ir.VectorType(type).shape
            if attribute.is_splat:
                splat = np.array([attribute.get_splat_value().value], dtype_of(type))
                self.env[op.results[0]] = np.broadcast_to(splat[:, None], (1, *shape))
            else:
                text = str(attribute)
                values = [int(v) for v in text[text.index("[") + 1 : text.index("]")].split(",")]
                self.env[op.results[0]] = np.array([values], dtype_of(type))
            return
        self.env[op.results[0]] = np.array([attribute.value]).astype(dtype_of(type))

    def _scalar(self, op: ir.Operation, mask: np.ndarray) -> None:
        operands = [self.env[v] for v in op.operands]
        wide = max((x.ndim for x in operands), default=1)
        operands = [x if x.ndim == wide else x[:, None] for x in operands]
        made = scalar(op, operands)
        self.env[op.results[0]] = np.asarray(made).astype(dtype_of(op.results[0].type), copy=False)


def _where(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(condition if a.ndim == 1 else condition[:, None], a, b)
