"""Warps' instructions of the GPU simulator: asynchronous copies to shared memory, `ldmatrix`, `mma.sync`.

Addresses of shared memory are bytes from its start in a block, those of global memory the buffers' own. A copy takes
effect at the wait for its group; until then its target holds NaN, so what is read too early or too late shows.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from mlir import ir

LINE = 16  # bytes of a copy, and of a row of an 8 x 8 matrix
# what a word of an operand of mma.sync holds: numbers of a type, and how many
FACTORS = {"bf16": (ml_dtypes.bfloat16, 2), "f16": (np.float16, 2), "tf32": (np.float32, 1)}


def address_of(buffer: np.ndarray) -> np.ndarray:
    """Where a buffer lies: the same in all threads."""
    return np.array([buffer.__array_interface__["data"][0]], np.int64)


class WarpInstructions:
    """Methods for the simulator's stage: `env` holds a row per thread for each value."""

    env: dict[ir.Value, Any]
    lanes: int
    block: np.ndarray
    blocks: int

    def open_shared(self, bytes_per_block: int, buffers: list[np.ndarray]) -> None:
        """Dynamic shared memory of each block, and the buffers that copies may read."""
        self.room = np.full((self.blocks, bytes_per_block), 0xFF, np.uint8)  # NaN in every float
        self.sources = buffers
        self.under_way: list[list[list[tuple[np.ndarray, np.ndarray]]]] = [[[]] for _ in range(self.blocks)]

    def together(self, mask: np.ndarray, count: int, what: str) -> None:
        """Of each `count` neighbouring threads all must be here, or none."""
        here = mask.reshape(-1, count)
        assert (here == here[:, :1]).all(), f"{what} that only some threads reach"

    def whole(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, (self.lanes, *x.shape[1:]))

    # -- addresses -----------------------------------------------------------------------------------------------------
    def _llvm_mlir_addressof(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = np.zeros(1, np.int64)

    def _llvm_inttoptr(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.env[op.operands[0]]

    _llvm_ptrtoint = _llvm_inttoptr

    def _llvm_getelementptr(self, op: ir.Operation, mask: np.ndarray) -> None:
        assert str(op.attributes["elem_type"]) == "i8"
        self.env[op.results[0]] = self.env[op.operands[0]] + self.env[op.operands[1]].astype(np.int64)

    def _shared_bytes(self, address: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Blocks and bytes (one line a thread) of shared memory."""
        at = np.where(mask, self.whole(address), 0)
        assert not (at % LINE).any(), "a misaligned line of shared memory"
        assert ((at >= 0) & (at + LINE <= self.room.shape[1])).all(), "outside shared memory"
        return self.block[:, None], at[:, None] + np.arange(LINE)

    # -- copies --------------------------------------------------------------------------------------------------------
    def _nvvm_cp_async_shared_global(self, op: ir.Operation, mask: np.ndarray) -> None:
        to, source, *valid = (self.whole(self.env[v]) for v in op.operands)
        count = valid[0] if valid else np.full(self.lanes, LINE)
        assert ((count >= 0) & (count <= LINE))[mask].all()
        data, lost = np.zeros((self.lanes, LINE), np.uint8), mask & (count > 0)
        for buffer in self.sources:
            raw = buffer.view(np.uint8)
            first = source - buffer.__array_interface__["data"][0]
            inside = mask & (first >= 0) & (first < max(raw.size, 1))
            taken = inside & (count > 0)
            assert (first[taken] + count[taken] <= raw.size).all(), "a copy from outside its buffer"
            assert not (first[taken] % LINE).any(), "a misaligned copy"
            at = first[taken][:, None] + np.arange(LINE)
            read = np.arange(LINE) < count[taken][:, None]
            data[taken] = np.where(read, raw[np.where(read, at, 0)], 0)
            lost = lost & ~inside
        assert not lost.any(), "a copy from no buffer"
        _, at = self._shared_bytes(to, mask)
        for block in np.unique(self.block[mask]):
            own = mask & (self.block == block)
            self.room[block, at[own]] = 0xFF
            self.under_way[block][-1].append((at[own], data[own]))

    def _nvvm_cp_async_commit_group(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.together(mask, self.lanes // self.blocks, "the end of a group of copies")
        for block in np.unique(self.block[mask]):
            self.under_way[block].append([])

    def _nvvm_cp_async_wait_group(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.together(mask, self.lanes // self.blocks, "a wait for copies")
        pending = ir.IntegerAttr(op.attributes["n"]).value
        for block in np.unique(self.block[mask]):
            ended = max(len(self.under_way[block]) - 1 - pending, 0)
            for at, data in (copy for group in self.under_way[block][:ended] for copy in group):
                self.room[block, at] = data
            self.under_way[block] = self.under_way[block][ended:]

    # -- matrices ------------------------------------------------------------------------------------------------------
    def _nvvm_ldmatrix(self, op: ir.Operation, mask: np.ndarray) -> None:
        """Lane `8 i + r` of a warp gives the address of row `r` of matrix `i`."""
        self.together(mask, 32, "an instruction of a warp")
        count = ir.IntegerAttr(op.attributes["num"]).value
        rows = self.room[self._shared_bytes(self.env[op.operands[0]], mask)].view(np.uint16).reshape(-1, 4, 8, 8)
        if "col" in str(op.attributes["layout"]):
            rows = rows.swapaxes(2, 3)
        lane = np.arange(32)
        made = []
        for i in range(count):
            pair = np.stack([rows[:, i, lane // 4, 2 * (lane % 4) + e] for e in range(2)], 2)
            made.append(np.ascontiguousarray(pair).view(np.int32).reshape(-1))
        self.env[op.results[0]] = made[0] if count == 1 else made

    def _llvm_bitcast(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.env[op.operands[0]]  # an i32 as two halves: `_nvvm_mma_sync` takes either

    def _llvm_extractvalue(self, op: ir.Operation, mask: np.ndarray) -> None:
        (at,) = ir.DenseI64ArrayAttr(op.attributes["position"])
        self.env[op.results[0]] = self.env[op.operands[0]][at]

    def _nvvm_shfl_sync(self, op: ir.Operation, mask: np.ndarray) -> None:
        self.together(mask, 32, "a shuffle")
        _, value, lane, _ = (self.whole(self.env[v]) for v in op.operands)
        own = np.arange(self.lanes)
        self.env[op.results[0]] = value[own ^ lane if "bfly" in str(op.attributes["kind"]) else own - own % 32 + lane]

    def _llvm_inline_asm(self, op: ir.Operation, mask: np.ndarray) -> None:
        assert ir.StringAttr(op.attributes["asm_string"]).value == "cvt.rna.tf32.f32 $0, $1;"
        bits = self.whole(self.env[op.operands[0]]).view(np.uint32)
        finite = (bits & 0x7F800000) != 0x7F800000
        self.env[op.results[0]] = (np.where(finite, bits + 0x1000, bits) & 0xFFFFE000).astype(np.uint32).view(np.int32)

    def _nvvm_mma_sync(self, op: ir.Operation, mask: np.ndarray) -> None:
        """16 x 8 x 16 of 16-bit elements or 16 x 8 x 8 of TF32, by the fragment tables of the PTX ISA."""
        self.together(mask, 32, "an instruction of a warp")
        dtype, each = FACTORS[str(op.attributes["multiplicandAPtxType"])[len("#nvvm.mma_type<") : -1]]
        words = [np.ascontiguousarray(self.whole(self.env[v])) for v in op.operands]
        held = [w.reshape(-1, 1).view(dtype).astype(np.float32).reshape(-1, 32, each) for w in words[:6]]
        sums = [w.reshape(-1, 32) for w in words[6:]]
        group, place = np.arange(32) // 4, np.arange(32) % 4
        depth = 8 * each
        a, b, d = (np.zeros((self.lanes // 32, *shape), np.float32) for shape in ((16, depth), (depth, 8), (16, 8)))
        for e in range(each):
            for i in range(4):
                a[:, group + 8 * (i % 2), each * place + e + depth // 2 * (i // 2)] = held[i][:, :, e]
            for i in range(2):
                b[:, each * place + e + depth // 2 * i, group] = held[4 + i][:, :, e]
        for i in range(4):
            d[:, group + 8 * (i // 2), 2 * place + i % 2] = sums[i]
        d = d + a @ b
        made = [d[:, group + 8 * (i // 2), 2 * place + i % 2].reshape(-1) for i in range(4)]
        self.env[op.results[0]] = made
