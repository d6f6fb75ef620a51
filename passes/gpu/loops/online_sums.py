"""The maximum of a row and the sum of exponentials below it in one pass, of a row that registers hold.

    m = max(x)    s = sum(exp(x - m))        of a log-softmax whose elements nobody else needs (cross-entropy, logsumexp)

Each thread takes its own maximum `m_t` and sums `exp(x - m_t)`, so that no exponential waits for the other threads: those of a wave
combine their maxima, scale their sums by `exp(m_t - m)` and add them; waves do so once more, with one barrier where there were two.

An exponential is one multiply-add and the machine's exp2: `2^(x * L - c)` with `L = log2(e)` and `c = m_t * L`, rounded. What `c` is
off by is the same for all terms of a thread, and known, for a multiply-add gives `m_t * L - c` exactly: the scale of its sum makes up
for it. So a term is off by `|d| e^d 2^-24`, as those of summed_exponents.py are, in each of its two factors; and by up to
`|m| 2^-48`, which is less than a rounding up to `|m| = 2^24`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from ....dialects.dims import Dim
from ...loops.loops_builder import LoopsBuilder
from ...loops.tensor_graph import Generic, TensorGraph
from ..block_reduce import Combine, exchange, reduce_lanes, tree
from ..machine_functions import LOG2_E
from ..summed_exponents import summed_below
from ..thread_values import ThreadValues
from .joint_reductions import Joint, joint_of
from .row_values import Row

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
        most = reduce_lanes(b, [own], min(threads, wave), _larger(ev))[0]
        distance = _f32(b, "arith.subf", own, most)
        off = b.value("arith.negf", (off,), b.f32)
        factor = b.value("math.fma", (distance, b.constant(LOG2_E, b.f32), off), b.f32)
        total = _f32(b, "arith.mulf", total, ev.power_of_two(factor))
        total = reduce_lanes(b, [total], min(threads, wave), _added(ev))[0]
        if threads > wave:
            most, total = self._across_waves(row, ev, most, total)
        none = b.compare("oeq", total, b.constant(0.0, b.f32))  # the largest term is 1: all elements are -inf
        most = b.select(none, b.constant(float("-inf"), b.f32), most)
        return [most, _f32(b, "arith.addf", total, _f32(b, "arith.subf", most, most))]  # NaN where it is infinite

    def _of_thread(self, row: Row, ev: ThreadValues, at: Sequence[Dim]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """This thread's maximum (at least LOWEST), the sum of `2^(x * L - c)` of what it has, and `m_t * L - c`."""
        b, joint = ev.b, Joint((self.largest,))
        pieces, inits = row.pieces(ev), joint.inits(ev, at)
        elements: list[ir.Value] = []
        best = [ev.vector(inits[0])]
        for piece in pieces:
            values = piece.values
            if values is not ev:  # elements after vectors
                best = ev.across_lanes(best, _larger(ev))
            loops = row.loops(ev, joint, at, piece.column)
            x = values.vector(values.body_values(self.largest, loops, inits, self.largest.arguments[:1])[0])
            elements.append(x)
            best = piece.kept(_larger(ev)(best, [x]), best)
        own = _larger(ev)(ev.across_lanes(best, _larger(ev)), [b.constant(LOWEST, b.f32)])[0]
        huge = b.compare("ogt", b.value("math.absf", (own,), b.f32), b.constant(HUGE, b.f32))
        scale = b.select(huge, b.constant(1.0, b.f32), b.constant(LOG2_E, b.f32))
        less = b.value("arith.negf", (_f32(b, "arith.mulf", own, scale),), b.f32)
        total = [ev.vector(b.constant(0.0, b.f32))]
        for piece, x in zip(pieces, elements):
            values = piece.values
            if values is not ev:
                total = ev.across_lanes(total, _added(ev))
            power = b.value("math.fma", (x, values.vector(scale), values.vector(less)), x.type)
            total = piece.kept(_added(ev)(total, [values.power_of_two(power)]), total)
        total = ev.across_lanes(total, _added(ev))
        return own, total[0], b.value("math.fma", (own, scale, less), b.f32)

    def _across_waves(self, row: Row, ev: ThreadValues, most: ir.Value, total: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The maximum and the sum of all waves of the block, from those of each."""
        b, larger, added = ev.b, _larger(ev), _added(ev)
        parts = exchange(row.stage, [most, total])
        lanes = row.threads // row.stage.kernel.wave // len(parts)  # that have a wave's each
        most = reduce_lanes(b, tree([part[:1] for part in parts], larger), lanes, larger)[0]
        scaled: list[list[ir.Value]] = []
        for highest, terms in parts:
            power = _f32(b, "arith.mulf", _f32(b, "arith.subf", highest, most), b.constant(LOG2_E, b.f32))
            scaled.append([_f32(b, "arith.mulf", terms, ev.power_of_two(power))])
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


def _larger(ev: ThreadValues) -> Combine:
    return lambda x, y: [_f32(ev.b, "arith.maximumf", x[0], y[0])]


def _added(ev: ThreadValues) -> Combine:
    return lambda x, y: [_f32(ev.b, "arith.addf", x[0], y[0])]


def _f32(b: LoopsBuilder, op: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """An op on f32, or on vectors of them."""
    return b.value(op, (x, y), x.type)
