"""The maximum of a row and the sum of exponentials below it in one pass, of a row that registers hold.

    m = max(x)    s = sum(exp(x - m))        of a log-softmax whose elements nobody else needs (cross-entropy, logsumexp)

Each thread takes its own maximum `m_t` and sums `exp(x - m_t)`, so that no exponential waits for the other threads: those of a wave
combine their maxima, scale their sums by `exp(m_t - m)` and add them; waves do so once more, with one barrier where there were two.
What lies beyond the end of a row is -inf, in its 16 bits where it has no more, and maxima are taken of those: two elements in an
instruction. cross_entropy of 32768 x 1024 bf16 takes 17.3 us instead of 18.1, a copy 17.7 (H200).

An exponential is one multiply-add and the machine's exp2: `2^(x * L - c)` with `L = log2(e)` and `c = m_t * L`, rounded. What `c` is
off by is the same for all terms of a thread, and known, for a multiply-add gives `m_t * L - c` exactly: the scale of its sum makes up
for it. So a term is off by `|d| e^d 2^-24`, as those of summed_exponents.py are, in each of its two factors; and by up to
`|m| 2^-48`, which is less than a rounding up to `|m| = 2^24`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from mlir import ir

from ....dialects.dims import Dim
from ...loops.loops_builder import LoopsBuilder
from ...loops.tensor_graph import Generic, TensorGraph
from ..block_reduce import Combine, exchange, reduce_lanes, tree
from ..machine_functions import LOG2_E
from ..summed_exponents import summed_below
from ..thread_values import ThreadValues
from .joint_reductions import Joint, joint_of
from .row_values import Piece, Row

LOWEST = -3.4028234663852886e38  # the lowest f32: what is below it, -inf, has no difference from itself
HUGE = 2.0**30  # f32 beyond are 64 and more apart: powers of any base are 1 at the maximum and nothing elsewhere


@dataclass(frozen=True)
class OnlineSum:
    """`largest` is the maximum of a row, `total` the sum of exponentials of its elements less that."""

    largest: Generic
    total: Generic

    @property
    def keys(self) -> list[ir.Value]:
        """Both, by their last arguments."""
        return [self.largest.arguments[-1], self.total.arguments[-1]]

    def of(self, generic: Generic, made: list[ir.Value]) -> list[ir.Value]:
        """The result of one of both, out of what `reduce` made."""
        return [made[self.keys.index(generic.arguments[-1])]]

    def reduce(self, row: Row, ev: ThreadValues, at: Sequence[Dim]) -> list[ir.Value]:
        """The maximum and the sum of the row at position `at` of the loops, in all of its threads."""
        b, threads, wave = ev.b, row.threads, row.stage.kernel.wave
        own, total, off = self._of_thread(row, ev, at)
        most = ev.largest_of_lanes(own, min(threads, wave))
        distance = _both(b, "arith.subf", own, most)
        off = b.value("arith.negf", (off,), b.f32)
        factor = b.value("math.fma", (distance, b.constant(LOG2_E, b.f32), off), b.f32)
        total = _both(b, "arith.mulf", total, ev.power_of_two(factor))
        total = reduce_lanes(b, [total], min(threads, wave), _added(ev))[0]
        if threads > wave:
            most, total = self._across_waves(row, ev, most, total)
        none = b.compare("oeq", total, b.constant(0.0, b.f32))  # the largest term is 1: all elements are -inf
        most = b.select(none, b.constant(float("-inf"), b.f32), most)
        return [most, _both(b, "arith.addf", total, _both(b, "arith.subf", most, most))]  # NaN where it is infinite

    def _of_thread(self, row: Row, ev: ThreadValues, at: Sequence[Dim]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """This thread's maximum (at least LOWEST), the sum of `2^(x * L - c)` of what it has, and `m_t * L - c`."""
        b = ev.b
        elements = [self._elements(row, piece, at) for piece in row.pieces(ev)]
        own = _both(b, "arith.maximumf", _largest(ev, elements), b.constant(LOWEST, b.f32))
        huge = b.compare("ogt", b.value("math.absf", (own,), b.f32), b.constant(HUGE, b.f32))
        scale = b.select(huge, b.constant(1.0, b.f32), b.constant(LOG2_E, b.f32))
        less = b.value("arith.negf", (_both(b, "arith.mulf", own, scale),), b.f32)

        powers = []
        for x in elements:
            factors = [ev.vector(v) if isinstance(x.type, ir.VectorType) else v for v in (scale, less)]
            powers.append(ev.power_of_two(b.value("math.fma", (x, *factors), x.type)))
        total = _combined(b, "arith.addf", powers)
        return own, total, b.value("math.fma", (own, scale, less), b.f32)

    def _elements(self, row: Row, piece: Piece, at: Sequence[Dim]) -> ir.Value:
        """What a thread has at one place of its row: -inf where the row has no such elements, which adds nothing to either."""
        values, b = piece.values, piece.values.b
        joint = Joint((self.largest,))
        loops, inits = row.loops(values, joint, at, piece.column), joint.inits(values, at)
        x = values.vector(values.body_values(self.largest, loops, inits, self.largest.arguments[:1])[0])
        if piece.mask is None:
            return x
        if x in values.narrow:  # half as many registers to choose
            narrow = values.narrow[x]
            return values.widened(b.select(piece.mask, narrow, b.constant(float("-inf"), narrow.type)))
        return b.select(piece.mask, x, b.constant(float("-inf"), x.type))

    def _across_waves(self, row: Row, ev: ThreadValues, most: ir.Value, total: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The maximum and the sum of all waves of the block, from those of each."""
        b, larger, added = ev.b, _larger(ev), _added(ev)
        parts = exchange(row.stage, [most, total])
        lanes = row.threads // row.stage.kernel.wave // len(parts)  # that have a wave's each
        most = reduce_lanes(b, tree([part[:1] for part in parts], larger), lanes, larger)[0]
        scaled: list[list[ir.Value]] = []
        for highest, terms in parts:
            power = _both(b, "arith.mulf", _both(b, "arith.subf", highest, most), b.constant(LOG2_E, b.f32))
            scaled.append([_both(b, "arith.mulf", terms, ev.power_of_two(power))])
        return most, reduce_lanes(b, tree(scaled, added), lanes, added)[0]


def find_online(graph: TensorGraph, rough: set[ir.Value], passes: Sequence[Sequence[ir.Value]]) -> list[OnlineSum]:
    """Such pairs among the `passes` of one reduction each; `rough` are the exponentials that only a sum sees."""
    alone = {g.arguments[-1]: g for keys in passes if len(keys) == 1 for g in joint_of(graph, keys).generics}
    found = []
    for total in alone.values():
        largest = summed_below(graph, total, rough)
        if largest is not None and largest.arguments[-1] in alone and _is_f32(largest):
            found.append(OnlineSum(largest, total))
    return found


def _is_f32(g: Generic) -> bool:
    return isinstance(g.arguments[-1].type, ir.F32Type)


def _largest(values: ThreadValues, elements: Sequence[ir.Value]) -> ir.Value:
    """The maximum of all elements; vectors of 16-bit floats are compared before they are f32, two in an instruction."""
    b = values.b
    narrow = [values.narrow[x] for x in elements if x in values.narrow]
    wide = [x for x in elements if x not in values.narrow]
    if narrow:
        pair = _halved(b, "arith.maximumf", reduce(partial(_both, b, "arith.maximumf"), narrow), 2)
        wide += b.elements(values.widened(pair))
    return _combined(b, "arith.maximumf", wide)


def _combined(b: LoopsBuilder, op: str, values: Sequence[ir.Value]) -> ir.Value:
    """All elements of vectors and single values combined by `op`, lane by lane first."""
    vectors = [v for v in values if isinstance(v.type, ir.VectorType)]
    singles = [v for v in values if not isinstance(v.type, ir.VectorType)]
    if vectors:
        singles.append(_halved(b, op, reduce(partial(_both, b, op), vectors), 1))
    return reduce(partial(_both, b, op), singles)


def _halved(b: LoopsBuilder, op: str, vector: ir.Value, width: int) -> ir.Value:
    """The halves of a vector combined by `op`, until they are `width` lanes; one is a scalar."""
    count = ir.VectorType(vector.type).shape[0]
    while count > width:
        count //= 2
        vector = _both(b, op, b.part(vector, 0, count), b.part(vector, count, count))
    return vector


def _larger(ev: ThreadValues) -> Combine:
    return lambda x, y: [_both(ev.b, "arith.maximumf", x[0], y[0])]


def _added(ev: ThreadValues) -> Combine:
    return lambda x, y: [_both(ev.b, "arith.addf", x[0], y[0])]


def _both(b: LoopsBuilder, op: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """An op on two floats, or vectors of them."""
    return b.value(op, (x, y), x.type)
