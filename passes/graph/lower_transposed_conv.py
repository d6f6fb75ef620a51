"""Transposed convolution as plain ones: phases of the output with the same taps side by side as channels, then interleaved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.families.channels_last_conv import suits_channels_last
from ...dialects.mlir_ops import build
from ...dialects.mlir_types import type_of
from ..registry import register
from .channels_last import to_first, to_last
from .dataflow import Node, functions, read_function
from .transposed_phases import Phases, phases_of


@register
def lower_transposed_conv(module: ir.Module, last: bool = False) -> None:
    """Replace transposed convolutions by plain ones of stride 1, which register tiles compute well.

    With stride s an output position is `q s + p` with phase `p < s`, and of the kernel only every s-th element meets the
    input there (`transposed_phases`). A plain convolution computes all phases with as many taps, as separate channels: one
    where the strides divide the kernel. A permutation interleaves them, and a slice takes the padding off. Results of several
    convolutions are joined. The weights are rearranged by views and a copy, which
    `split-init` moves to `@init`. No tap is added: of an infinite input a weight of zero would make NaN. With `last`, for
    `channels-last`, what it will compute with channels last is copied in that order.

    Before:
    ```mlir
    %y = "lamina.conv"(%x, %w) {stride = array<i64: 2, 2>, transposed = true, …} : (tensor<1x8x4x4xf32>, tensor<8x3x2x2xf32>) -> tensor<1x3x8x8xf32>
    ```
    After:
    ```mlir
    %v = …views of %w… : tensor<12x8x1x1xf32>
    %z = "lamina.conv"(%x, %v) {stride = array<i64: 1, 1>, transposed = false, …} : (…) -> tensor<1x12x4x4xf32>
    %y = …views of %z… : tensor<1x3x8x8xf32>
    ```
    """
    for function in functions(module).values():
        flow = read_function(function)
        with module.context, ir.Location.unknown():
            for node in flow.nodes:
                if node.name == "conv" and node.attributes["transposed"]:
                    _rewrite(node, last)


def _rewrite(node: Node, last: bool) -> None:
    x, w = (type_of(v) for v in list(node.op.operands)[:2])
    kernel = [k for k in w.shape[2:] if isinstance(k, int)]
    if len(kernel) < w.rank - 2:
        return
    y = _Transposed(node, kernel).build(last and suits_channels_last(x, w, node.attributes))
    node.op.results[0].replace_all_uses_with(y)
    node.op.erase()


@dataclass(frozen=True)
class _Range:
    """Of one dim: `size` positions from number `first` of each phase are computed, of which results begin at `start`."""

    first: int
    size: Dim
    start: int
    reach: int  # size - size of the input

    @staticmethod
    def of(n: Dim, kernel: int, stride: int, padding: int, dilation: int, extra: int) -> _Range:
        """For an input of size `n`: positions `padding … (n - 1) stride + (kernel - 1) dilation + 1 + extra - padding`."""
        first = padding // stride
        reach = -(-((kernel - 1) * dilation + 1 + extra - padding) // stride) - 1 - first
        return _Range(first, n + reach, padding % stride, reach)

    def padding(self, phases: Phases) -> tuple[int, int]:
        """What a plain convolution of `phases` pads on both sides, and where in its result the range begins."""
        low = (phases.taps - 1) * phases.dilation + phases.shift - self.first
        both = max(low, self.reach + self.first - phases.shift, 0)
        return both, both - low


Parts = dict[tuple[Phases, ...], Any]  # values of phases of each dim


class _Transposed:
    """Builds what replaces one transposed convolution, before it and at its location."""

    def __init__(self, node: Node, kernel: Sequence[int]):
        a, op = node.attributes, node.op
        self.location, self.ip = op.location, ir.InsertionPoint(op)
        bound = list(op.operands)
        self.x, self.w, self.bias = bound[0], bound[1], bound[2] if len(bound) > 2 else None
        self.kernel, self.stride, self.groups = kernel, a["stride"], a["groups"]
        self.out = type_of(op.results[0]).shape
        extra = a["output_padding"] or (0,) * len(kernel)
        sizes = type_of(self.x).shape[2:]
        self.ranges = [_Range.of(*each) for each in zip(sizes, kernel, self.stride, a["padding"], a["dilation"], extra)]
        self.phases = [phases_of(*each) for each in zip(kernel, self.stride, a["dilation"])]

    def _op(self, name: str, *operands: ir.Value | None, **attributes: Any) -> ir.Value:
        return build(name, operands, attributes, self.location, self.ip).results[0]

    def _reshape(self, value: ir.Value, *shape: Dim) -> ir.Value:
        return value if type_of(value).shape == shape else self._op("reshape", value, shape=shape)

    def _slice(
        self, value: ir.Value, starts: Sequence[Dim], sizes: Sequence[Dim], steps: Sequence[int] = ()
    ) -> ir.Value:
        if type_of(value).shape == tuple(sizes):
            return value
        steps = tuple(steps) or (1,) * len(sizes)
        return self._op("slice", value, starts=tuple(starts), sizes=tuple(sizes), steps=steps)

    def build(self, last: bool) -> ir.Value:
        """The result, which is copied with channels `last` or first."""
        parts = {each: self._part(each) for each in product(*self.phases)}
        found = [part is not None for part in parts.values()]
        y = self._joined(parts) if all(found) and not last else self._added(parts)
        sizes = tuple(r.size * s for r, s in zip(self.ranges, self.stride))
        if last and prod(self.stride) > 1 and sizes == self.out[2:]:
            # a product stores its results in this order itself
            y = self._op("materialize", self._op("permute", y, dims=to_last(type_of(y).rank)))
            y = self._reshape(y, self.out[0], *self.out[2:], self.out[1])
            return self._op("permute", y, dims=to_first(len(self.out)))
        y = self._slice(self._reshape(y, *self.out[:2], *sizes), (0, 0, *(r.start for r in self.ranges)), self.out)
        if not isinstance(y.owner, ir.Block) and y.owner.name == "lamina.conv":
            return y
        if not last:
            return self._op("materialize", y)
        y = self._op("permute", y, dims=to_last(len(self.out)))
        return self._op("permute", self._op("materialize", y), dims=to_first(len(self.out)))

    def _part(self, each: Sequence[Phases]) -> ir.Value | None:
        """The results of some phases as `[N, O, q, p, q, p…]`; None for nothing but zeros."""
        return self._conv(each) if all(p.taps for p in each) else self._bias_alone(each)

    def _joined(self, parts: Parts) -> ir.Value:
        """All phases, joined one dim after another from the last on: CPUs copy rows, and interleave elements by vectors."""
        for d in reversed(range(len(self.phases))):
            fronts = dict.fromkeys(each[:d] for each in parts)
            parts = {f: self._concat([v for each, v in parts.items() if each[:d] == f], 3 + 2 * d) for f in fronts}
        return parts[()]

    def _concat(self, parts: Sequence[ir.Value], dim: int) -> ir.Value:
        return parts[0] if len(parts) == 1 else self._op("concat", *parts, dim=dim)

    def _added(self, parts: Parts) -> ir.Value:
        """All phases, each put between zeros, as one sum: a GPU's kernel of one pass, which reads only what is no zero."""
        y, *more = [self._between_zeros(part, each) for each, part in parts.items() if part is not None]
        for part in more:
            y = self._op("add", y, part)
        return y

    def _between_zeros(self, part: ir.Value, each: Sequence[Phases]) -> ir.Value:
        low, high = [0, 0], [0, 0]
        for p, s in zip(each, self.stride):
            low += [0, p.first]
            high += [0, s - p.first - p.count]
        if not any(low) and not any(high):
            return part
        return self._op("pad", part, low=tuple(low), high=tuple(high), value=0.0, mode="constant")

    def _conv(self, each: Sequence[Phases]) -> ir.Value:
        padding, starts = zip(*(r.padding(p) for r, p in zip(self.ranges, each)))
        counts, n = [p.count for p in each], len(each)
        bias = None if self.bias is None else self._repeated_bias(prod(counts))
        dilation = tuple(p.dilation for p in each)
        weights, ones = self._weights(each), (1,) * n
        y = self._op("conv", self.x, weights, bias, stride=ones, padding=padding, dilation=dilation, groups=self.groups)
        front, sizes = type_of(y).shape[:2], [r.size for r in self.ranges]
        y = self._slice(y, (0, 0, *starts), (*front, *sizes))
        if prod(self.stride) == 1:
            return y
        y = self._reshape(y, front[0], self.groups, *counts, self._outputs(), *sizes)
        order = (0, 1, 2 + n, *(d for i in range(n) for d in (3 + n + i, 2 + i)))
        y = self._op("permute", y, dims=order)
        return self._reshape(y, *self.out[:2], *(d for pair in zip(sizes, counts) for d in pair))

    def _weights(self, each: Sequence[Phases]) -> ir.Value:
        """`v[(g, i, o), c, t] = w[(g, c), o, start + i + step (T - 1 - t)]`, from `w` `[C, O / groups, kernel…]`."""
        w, n = self.w, len(each)
        inputs, outputs = type_of(w).shape[:2]
        # taps of one phase are a slice with steps; of several phases, rows of `step` elements of which `count` are theirs
        steps = [p.step if p.count == 1 else 1 for p in each]
        lengths = [p.step if p.count > 1 else 1 for p in each]
        sizes = [min(k - p.start, t * p.taps) if p.count > 1 else p.taps for p, k, t in zip(each, self.kernel, lengths)]
        w = self._slice(w, (0, 0, *(p.start for p in each)), (inputs, outputs, *sizes), (1, 1, *steps))
        if any(high := [t * p.taps - size for p, t, size in zip(each, lengths, sizes)]):
            w = self._op("pad", w, low=(0,) * (n + 2), high=(0, 0, *high), value=0.0, mode="constant")
        front = (self.groups, dims.floordiv(inputs, self.groups), outputs)
        w = self._reshape(w, *front, *(d for p, t in zip(each, lengths) for d in (p.taps, t)))
        w = self._slice(w, (0,) * (3 + 2 * n), (*front, *(d for p in each for d in (p.taps, p.count))))
        order = (0, *(4 + 2 * d for d in range(n)), 2, 1, *(3 + 2 * d for d in range(n)))
        w = self._op("permute", w, dims=order)
        channels = self.groups * prod(p.count for p in each) * outputs
        w = self._reshape(w, channels, front[1], *(p.taps for p in each))
        return self._op("materialize", self._op("flip", w, dims=tuple(range(2, n + 2))))

    def _outputs(self) -> Dim:
        return type_of(self.w).shape[1]

    def _repeated_bias(self, phases: int) -> ir.Value:
        """The bias of each channel `(g, i, o)`."""
        assert self.bias is not None
        if phases == 1:
            return self.bias
        bias = self._reshape(self.bias, self.groups, 1, self._outputs())
        bias = self._op("expand", bias, shape=(self.groups, phases, self._outputs()))
        return self._reshape(bias, phases * self.out[1])

    def _bias_alone(self, each: Sequence[Phases]) -> ir.Value | None:
        if self.bias is None:
            return None
        shape = [d for r, p in zip(self.ranges, each) for d in (r.size, p.count)]
        bias = self._reshape(self.bias, 1, self.out[1], *(1 for _ in shape))
        return self._op("expand", bias, shape=(*self.out[:2], *shape))
