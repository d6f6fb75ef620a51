"""What rows in turn share, kept in shared memory: shifted weights, for which registers would hold fewer warps.

A thread writes what it has loaded to a place of its own and reads it again where a row needs it. Barriers of the row's reductions
lie between, so that nothing stays in registers meanwhile.
"""

from __future__ import annotations

from typing import Any

from mlir import ir

from ....dialects import dims
from ....dialects.dims import Dim
from ..gpu_kernel import element_bytes
from ..lane_places import LANE
from ..thread_values import ThreadValues

VECTOR_BYTES = 16  # at most, of one load


class KeepingValues(ThreadValues):
    """Values of rows that are taken in turn."""

    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **named)
        self._loaded: dict[tuple[ir.Value, Dim], ir.Value] = {}
        self._rooms: dict[tuple[ir.Value, Dim], ir.Value] = {}

    def load(self, argument: ir.Value, offset: Dim) -> Any:
        place = argument, offset
        if place in self._rooms:
            return self.remember(("kept", argument), (offset,), lambda: self._load_kept(self._rooms[place]))
        self._loaded[place] = super().load(argument, offset)
        return self._loaded[place]

    def keep(self, row: set[str]) -> None:
        """Move the vectors that have been loaded, and are at the same place for any values of the symbols `row`."""
        b, stage = self.b, self.stage
        for (argument, offset), loaded in self._loaded.items():
            if LANE not in dims.symbols(offset) or dims.symbols(offset) & row:
                continue
            room = stage.shared(ir.VectorType(loaded.type).element_type, stage.threads * self.width)
            b.op("vector.store", (loaded, room, self._place()), attributes={"alignment": self._bytes(room)})
            self._rooms[argument, offset] = room
            del b.scopes[0].cache[self, ("load", argument), (offset,)]

    def forget(self) -> None:
        """Evaluate again what has been: another row is next."""
        cache = self.b.scopes[0].cache
        for key in [k for k in cache if isinstance(k, tuple) and k[0] is self]:
            del cache[key]

    def _load_kept(self, room: ir.Value) -> ir.Value:
        type = ir.VectorType.get([self.width], ir.MemRefType(room.type).element_type)
        return self.b.value("vector.load", (room, self._place()), type, alignment=self._bytes(room))

    def _place(self) -> ir.Value:
        """Where this thread's vector is in a room."""
        return self.b.binary("arith.muli", self.stage.thread(), self.b.constant(self.width, self.b.index))

    def _bytes(self, room: ir.Value) -> ir.IntegerAttr:
        """The alignment of vectors in a room."""
        size = self.width * element_bytes(ir.MemRefType(room.type).element_type)
        return ir.IntegerAttr.get(self.b.i64, min(VECTOR_BYTES, size))
