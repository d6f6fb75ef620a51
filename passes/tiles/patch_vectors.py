"""Load vectors of consecutive output positions from a patch of the input (`patch`).

For one channel and kernel position the input of neighbouring output positions lies side by side, except where a vector
runs over the end of an output row: there two loads are blended.
"""

from __future__ import annotations

from collections.abc import Callable

from mlir import ir

from .code import Code, Index
from .patch import Patch

Load = Callable[[Index], ir.Value]  # the vector at the offset of a channel and kernel position
Loader = Callable[[Index], Load]  # the loads of the vector that starts at an output position


class PatchVectors:
    """Vectors of `width` positions out of `count`, from the patch in `buffer`."""

    def __init__(self, code: Code, patch: Patch, buffer: ir.Value, width: int, count: Index):
        self.code, self.patch, self.buffer, self.width = code, patch, buffer, width
        self.last = code.sub(count, 1)
        self.row = code.size(patch.windows[-1].out)
        self.start: Index = 0

    def emit(self, start: Index, body: Callable[[Loader], None]) -> None:
        """Emit `body(loader)` for the patch that begins at output slice `start`, once or for two kinds of rows.

        Positions past the last one give junk.
        """
        code, row, enough = self.code, self.row, self.width - 1
        self.start = start
        if len(self.patch.windows) == 1:
            body(self._in_line)
        elif isinstance(row, int):
            body(self._over_two_rows if row >= enough else self._lane_by_lane)
        else:
            code.branch(
                code.compare("ge", row, enough), lambda: body(self._over_two_rows), lambda: body(self._lane_by_lane)
            )

    def _in_line(self, position: Index) -> Load:
        """One spatial dim: the positions lie side by side."""
        at, _ = self.patch.offset(self.code.min(position, self.last), self.start)
        return lambda source: self.code.vload(self.buffer, self.code.add(source, at), self.width)

    def _lane_by_lane(self, position: Index) -> Load:
        """Rows so short that a vector touches several: one load a lane."""
        code = self.code
        vector = ir.VectorType.get([self.width], ir.MemRefType(self.buffer.type).element_type)
        positions = [code.min(code.add(position, i), self.last) for i in range(self.width)]
        lanes = [self.patch.offset(p, self.start)[0] for p in positions]

        def load(source: Index) -> ir.Value:
            scalars = [code.load(self.buffer, code.add(source, lane)) for lane in lanes]
            return code.op("vector.from_elements", [vector], scalars)

        return load

    def _over_two_rows(self, position: Index) -> Load:
        """Rows of at least `width - 1` positions: the rest of this row blended with the start of the next."""
        code, width, buffer = self.code, self.width, self.buffer
        position = code.min(position, self.last)
        at, place = self.patch.offset(position, self.start)
        here = code.sub(self.row, place)  # lanes in this row, at least one
        next_row = code.add(position, here)
        following, _ = self.patch.offset(code.min(next_row, self.last), self.start)
        crosses = code.both(code.compare("lt", here, width), code.compare("le", next_row, self.last))
        other = code.select(crosses, code.sub(following, here), at)
        kind = ir.VectorType.get([width], ir.IntegerType.get_signless(1))
        mask = code.op("vector.create_mask", [kind], [code.value(code.min(here, width))])

        def load(source: Index) -> ir.Value:
            a = code.vload(buffer, code.add(source, at), width)
            b = code.vload(buffer, code.add(source, other), width)
            return code.op("arith.select", [a.type], [mask, a, b])

        return load
