"""Fetch the next row while this one is written.

The first loop of a layer norm over a row waits for memory, and the others find the row in the first-level cache, so
memory rests while they compute. The loop that writes the row therefore asks for the next one, a block at a time, since LLVM
makes no vectors of a loop that has a prefetch in it:

    for block in 0..1024 step 256:
      prefetch x[next, block], x[next, block + 16], ...      one of each cache line
      for j in block..block + 256:  y[row, j] = ...

The last row of a range asks for itself: no address lies outside the buffer. A layer norm of 1024 x 1024 takes 0.9 of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from .evaluate_accesses import Accesses
from .loop_nest import Loop
from .loops_builder import LoopsBuilder

BLOCK = 256  # elements of a row that are asked for at once: more fill the queue of misses, fewer cost the vectors' loop
LINE = 64  # bytes that one prefetch fetches
ROW_BYTES = 8192  # a quarter of a small first-level cache: the row, the next one and the result are in it together


def rows_read_again(accesses: Accesses, outer: Sequence[Loop], inner: Sequence[Loop]) -> list[tuple[ir.Value, Dim]]:
    """Where the innermost of `inner` reads rows that reductions have read before: arguments and offsets; [] if it need not ask."""
    size = dims.product(l.extent for l in inner)
    if not inner or not isinstance(size, int) or dims.floordiv(inner[-1].extent, BLOCK) == 0:
        return []
    last = inner[-1].name
    reduced = [dims.symbol(name) for r in accesses.reductions for name in r.names.values()]
    found: dict[tuple[ir.Value, Dim], None] = {}
    for argument, offset in accesses.loads:
        moves = any(dims.linear_coefficient(offset, l.name) != 0 for l in outer)
        if not moves or dims.linear_coefficient(offset, last) != 1 or size * _bytes(argument) > ROW_BYTES:
            continue
        if any((argument, dims.substitute(offset, {last: q})) in accesses.loads for q in reduced):
            found[argument, offset] = None
    return list(found)


@contextmanager
def asking_for_next_row(
    b: LoopsBuilder, loop: Loop, reads: Sequence[tuple[ir.Value, Dim]], interleave: int
) -> Iterator[None]:
    """`loop` in blocks that begin by asking for `reads`: buffers, and offsets in the next row."""
    assert isinstance(loop.extent, int)
    b.fresh += 1
    with b.loop(f"ahead{b.fresh}", 0, loop.extent, BLOCK) as block:
        end = b.dim(block + BLOCK)
        if loop.extent % BLOCK:
            end = b.value("arith.minsi", (end, b.dim(loop.extent)), b.index)
        for number, (buffer, offset) in enumerate(reads):
            name = f"line{b.fresh}_{number}"
            with b.loop(name, b.dim(block), end, LINE // _bytes(buffer)) as column:
                _prefetch(b, buffer, dims.substitute(offset, {loop.name: column}))
        with b.loop(loop.name, b.dim(block), end, interleave=interleave):
            yield


def _bytes(value: ir.Value) -> int:
    """Bytes of an element of a tensor or buffer."""
    element = ir.ShapedType(value.type).element_type
    return 8 if isinstance(element, ir.IndexType) else max(1, element.width // 8)  # type: ignore[attr-defined]


def _prefetch(b: LoopsBuilder, buffer: ir.Value, offset: Dim) -> None:
    flags = {"isWrite": b.attribute("false"), "isDataCache": b.attribute("true"), "localityHint": b.number(3, b.i32)}
    b.op("memref.prefetch", (buffer, b.dim(offset)), (), flags)
