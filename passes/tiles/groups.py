"""B in groups of `depth` elements of a column, for instructions that multiply several along K (`narrow`).

    groups[k / depth][c][k % depth] = b[k, c]        zeros where k is beyond K, up to a multiple of `unit`

Weights are packed so ahead of time (`pack_groups`). Another B is laid out in scratch, a panel at a time, once for all tiles of the rows of an
item, in the dtype of the instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from ...dialects.dtypes import DTYPES
from . import numeric
from .code import Code, Index
from .micro import Panel, Tile
from .narrow import Instruction, shuffle
from .pack import Matrix, PanelSource
from .transpose import transpose


@dataclass(frozen=True)
class Grouped(Panel):
    """A panel of groups: those of line `k`, a multiple of the depth, begin at element `start + k * stride`."""

    def columns(self, code: Code, tile: Tile, instruction: Instruction, k: Index) -> list[ir.Value]:
        """The groups that begin at line `k`, in registers of a few columns each."""
        taken, panel = instruction.elements, self.stride
        assert isinstance(panel, int)  # its columns
        at, registers = code.add(self.start, code.mul(k, panel)), panel * instruction.depth // taken
        loaded = []
        for i in range(tile.columns * instruction.depth // taken):
            number, place = divmod(i, registers)
            vector = code.vload(self.buffer, code.add(at, code.mul(number, self.next), place * taken), taken)
            loaded.append(numeric.convert(code, vector, self.dtype, instruction.b))
        return loaded


def padded(code: Code, size: Index, unit: int) -> Index:
    """`size`, rounded up to a multiple of `unit`."""
    return code.mul(code.ceildiv(size, unit), unit)


def lay_out(
    code: Code, tile: Tile, instruction: Instruction, panel: Panel, low: Index, high: Index, groups: ir.Value
) -> Grouped:
    """Lay out lines `low .. high` of a panel whose lines lie one after the other in `groups`."""
    depth = instruction.depth

    def put(k: ir.Value, rows: list[list[ir.Value]]) -> None:
        at = code.mul(code.sub(k, low), tile.columns)
        for q in range(tile.vectors):
            merged = _merged(code, [row[q] for row in rows], instruction)
            for i, vector in enumerate(merged):
                vector = numeric.convert(code, vector, panel.dtype, instruction.b)
                code.vstore(vector, groups, code.add(at, q * tile.width * depth + i * instruction.elements))

    whole = code.add(low, code.mul(code.div(code.sub(high, low), depth), depth))
    lines = lambda k: put(k, [panel.raw(code, tile, code.add(k, o)) for o in range(depth)])
    code.loop(low, whole, depth, [], lines)
    end = code.add(low, padded(code, code.sub(high, low), instruction.unit))
    line = [ir.VectorType.get([tile.width], numeric.element_type(panel.dtype))] * tile.vectors
    zeros = [code.constant(0, kind) for kind in line]

    def beyond(k: ir.Value) -> None:
        at = [code.add(k, o) for o in range(depth)]
        inside = [code.compare("lt", x, high) for x in at]
        put(k, [code.branch(i, lambda x=x: panel.raw(code, tile, x), lambda: zeros, line) for i, x in zip(inside, at)])

    if not (isinstance(end, int) and end == whole):
        code.loop(whole, end, depth, [], beyond)
    return _in_scratch(code, tile, instruction, groups, low)


def lay_out_columns(
    code: Code, tile: Tile, instruction: Instruction, b: Matrix, first: Index, low: Index, high: Index, groups: ir.Value
) -> Grouped:
    """`lay_out` of columns `first ...` of a B with unit stride along K; `high - low` is a multiple of `unit`.

    Blocks of as many columns as groups fill registers, a column each, and are transposed there.
    """
    depth = instruction.depth
    bits = 8 * DTYPES[instruction.b].bytes * depth
    side = 8 * instruction.register // bits
    wide = ir.VectorType.get([side], ir.IntegerType.get_signless(bits))
    narrow = ir.VectorType.get([instruction.elements], numeric.element_type(instruction.b))

    def column(k: Index, c: int, count: int) -> ir.Value:
        return numeric.convert(code, b.column(code, k, code.add(first, c), count), b.dtype, instruction.b)

    def place(k: Index, c: int) -> Index:
        return code.add(code.mul(code.sub(k, low), tile.columns), c * depth)

    def block(k: ir.Value) -> None:
        for c in range(0, tile.columns, side):
            rows = [code.op("vector.bitcast", [wide], [column(k, c + i, side * depth)]) for i in range(side)]
            for i, vector in enumerate(transpose(code, rows, bits)):
                out = code.op("vector.bitcast", [narrow], [vector])
                code.vstore(out, groups, place(code.add(k, i * depth), c))

    def one(k: ir.Value) -> None:
        for c in range(tile.columns):
            code.vstore(column(k, c, depth), groups, place(k, c))

    whole = code.add(low, code.mul(code.div(code.sub(high, low), side * depth), side * depth))
    code.loop(low, whole, side * depth, [], block)
    if not (isinstance(high, int) and high == whole) and side * depth > instruction.unit:
        code.loop(whole, high, depth, [], one)
    return _in_scratch(code, tile, instruction, groups, low)


def pack_groups(code: Code, weight: PanelSource, depth: int, lines: Index, columns: int) -> None:
    """Pack columns of a weight as they are stored to a panel of `lines` lines and `columns` columns."""
    b, k_size, out = weight.b, weight.high, weight.out
    zero = code.constant(0, ir.MemRefType(out.type).element_type)
    place = lambda k, c: code.add(weight.at, code.mul(k, columns), code.mul(c, depth))
    put = lambda x, k, c, i: code.store(x, out, code.add(place(k, c), i))
    whole = code.mul(code.div(k_size, depth), depth)

    def column(c: ir.Value) -> None:
        n = code.add(weight.first, c)

        def group(k: Index) -> None:
            if b.columns_in_place:
                code.vstore(b.column(code, k, n, depth), out, place(k, c))
            else:
                for i in range(depth):
                    put(b.element(code, code.add(k, i), n), k, c, i)

        def last(k: Index) -> None:
            for i in range(depth):
                row, types = code.add(k, i), [zero.type]
                inside = code.compare("lt", row, k_size)
                put(code.branch(inside, lambda row=row: [b.element(code, row, n)], lambda: [zero], types)[0], k, c, i)

        code.loop(0, whole, depth, [], group)
        if not (isinstance(lines, int) and lines == whole):
            code.loop(whole, lines, depth, [], last)

    def beyond(c: ir.Value) -> None:
        code.loop(0, lines, depth, [], lambda k: [put(zero, k, c, i) for i in range(depth)] and None)

    code.loop(0, weight.columns, 1, [], column)
    code.loop(weight.columns, columns, 1, [], beyond)


def _in_scratch(code: Code, tile: Tile, instruction: Instruction, groups: ir.Value, low: Index) -> Grouped:
    return Grouped(groups, code.mul(code.sub(0, low), tile.columns), tile.columns, instruction.b)


def _merged(code: Code, lines: list[ir.Value], instruction: Instruction) -> list[ir.Value]:
    """Vectors of lines, one under the other, as registers of columns: each column's elements together."""
    columns, size = ir.VectorType(lines[0].type).shape[0], 1
    while size < instruction.depth:
        both = [o + c * size + i for c in range(columns) for o in (0, columns * size) for i in range(size)]
        size *= 2
        cut = instruction.elements if size == instruction.depth else len(both)
        masks = [both[i : i + cut] for i in range(0, len(both), cut)]
        lines = [shuffle(code, x, y, mask) for x, y in zip(lines[::2], lines[1::2]) for mask in masks]
    return lines
