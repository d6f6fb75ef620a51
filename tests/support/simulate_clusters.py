"""Clusters of blocks of the GPU simulator: stores to the shared memory of another block, and the barrier of a cluster.

An address in a cluster is one of shared memory with the block's number above bit 32. A store takes effect at the cluster's next
barrier; until then its target holds NaN, so what is read too early shows. Before the first barrier a block may not have begun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mlir import ir

from .scalar_ops import dtype_of

CLUSTER = "nvvm.cluster_dim"  # how a kernel says what its clusters are
SHARED, SHARED_CLUSTER = "!llvm.ptr<3>", "!llvm.ptr<7>"


@dataclass
class ClusterMemory:
    """What a launch knows of its clusters of `size` blocks: how far its barrier is, and the stores under way."""

    size: int
    arrived: bool = False
    begun: bool = False
    under_way: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)  # blocks, bytes, data


class ClusterInstructions:
    """Methods for the simulator's stage, beside those of warps."""

    env: dict[ir.Value, Any]
    lanes: int
    threads: int
    block: np.ndarray
    room: np.ndarray  # of each block, bytes
    cluster: ClusterMemory

    def together(self, mask: np.ndarray, count: int, what: str) -> None:
        raise NotImplementedError

    def whole(self, x: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _nvvm_griddepcontrol(self, op: ir.Operation, mask: np.ndarray) -> None:
        """The launch before has ended: stages run one after another."""

    def _nvvm_cluster_arrive(self, op: ir.Operation, mask: np.ndarray) -> None:
        self._together(mask)
        assert not self.cluster.arrived, "a second arrival at a cluster's barrier"
        self.cluster.arrived = True

    _nvvm_cluster_arrive_relaxed = _nvvm_cluster_arrive

    def _nvvm_cluster_wait(self, op: ir.Operation, mask: np.ndarray) -> None:
        self._together(mask)
        assert self.cluster.arrived, "a wait at a cluster's barrier before the arrival there"
        self.cluster.arrived, self.cluster.begun = False, True
        for blocks, at, data in self.cluster.under_way:
            self.room[blocks[:, None], at] = data
        self.cluster.under_way.clear()

    def _together(self, mask: np.ndarray) -> None:
        self.together(mask, self.threads * self.cluster.size, "a cluster's barrier")

    def _nvvm_mapa(self, op: ir.Operation, mask: np.ndarray) -> None:
        address, rank = (self.whole(self.env[v]).astype(np.int64) for v in op.operands)
        assert ((rank >= 0) & (rank < self.cluster.size))[mask].all(), "a block outside the cluster"
        self.env[op.results[0]] = address + (rank << 32)

    def _llvm_store(self, op: ir.Operation, mask: np.ndarray) -> None:
        value, address = (self.whole(self.env[v]) for v in op.operands)
        assert str(op.operands[1].type) == SHARED_CLUSTER and self.cluster.begun, (
            "a store to a block that may not have begun"
        )
        blocks = self.block // self.cluster.size * self.cluster.size + (address >> 32)
        at = self._bytes(address & 0xFFFFFFFF, value.dtype, mask)
        data = np.ascontiguousarray(value).view(np.uint8).reshape(self.lanes, -1)
        self.cluster.under_way.append((blocks[mask], at[mask], data[mask]))

    def _llvm_load(self, op: ir.Operation, mask: np.ndarray) -> None:
        assert str(op.operands[0].type) == SHARED
        dtype = dtype_of(op.results[0].type)
        at = self._bytes(self.whole(self.env[op.operands[0]]), dtype, mask)
        self.env[op.results[0]] = self.room[self.block[:, None], at].view(dtype)[:, 0]

    def _bytes(self, address: np.ndarray, dtype: np.dtype, mask: np.ndarray) -> np.ndarray:
        """The bytes of shared memory of a number of each thread that is in `mask`."""
        at = np.where(mask, address, 0)
        assert not (at % dtype.itemsize).any(), "a misaligned number in shared memory"
        assert (at + dtype.itemsize <= self.room.shape[1]).all(), "outside shared memory"
        return at[:, None] + np.arange(dtype.itemsize)
