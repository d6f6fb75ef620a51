"""Transposed convolution as a plain one: all phases of the output side by side as channels, then interleaved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.mlir_ops import build
from ...dialects.mlir_types import type_of
from ..registry import register
from .dataflow import Node, functions, read_function


@register
def lower_transposed_conv(module: ir.Module) -> None:
    """Replace transposed convolutions by plain ones of stride 1, which register tiles compute well.

    With stride s an output position is `q s + p` with phase `p < s`, and of the kernel only the positions `p + s t` meet
    the input there: `y[q s + p] = sum_t w[p + s t] x[q - t]`. So a plain convolution with `ceil(k / s)` kernel positions
    computes all phases as separate channels; a permutation interleaves them and a slice takes the padding off. The
    weights are rearranged by views and a copy, which `split-init` moves to `@init`. Where a dim has a stride and a dilation d,
    the kernel positions of a phase are not evenly spaced: there the kernel first gets `d - 1` zeros between its elements.
    Zeros that fill up a phase meet inputs that eager does not multiply: of an infinite one they make NaN, there 0 in eager.

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
                    _rewrite(node)


def _rewrite(node: Node) -> None:
    a = node.attributes
    stride, groups = a["stride"], a["groups"]
    b = _Builder(node.op)
    bound = list(node.op.operands)
    x, w, bias = bound[0], bound[1], bound[2] if len(bound) > 2 else None
    if not all(isinstance(k, int) for k in type_of(w).shape[2:]):
        return
    spread = [d if s > 1 else 1 for s, d in zip(stride, a["dilation"])]
    dilation = tuple(1 if s > 1 else d for s, d in zip(stride, a["dilation"]))
    w = _spread_kernel(b, w, spread) if any(d > 1 for d in spread) else w
    kernel: tuple[Any, ...] = type_of(w).shape[2:]
    out = type_of(node.op.results[0]).shape
    # stride 1 with enough kernel takes the padding off inside; else the slice at the end does
    direct = all(s == 1 and (k - 1) * d >= p for s, k, d, p in zip(stride, kernel, dilation, a["padding"]))
    direct = direct and not any(a["output_padding"])
    extra = a["output_padding"] or (0,) * len(stride)
    taps = [_taps(*sizes) for sizes in zip(kernel, stride, dilation, a["padding"], extra)]
    if direct:
        padding = tuple((k - 1) * d - p for k, d, p in zip(kernel, dilation, a["padding"]))
    else:
        padding = tuple((t - 1) * d for t, d in zip(taps, dilation))
    weights = _phase_weights(b, w, kernel, groups, stride, taps)
    phases = dims.product(stride)
    if bias is not None and phases != 1:
        repeated = b("expand", b("reshape", bias, shape=(out[1], 1)), shape=(out[1], phases))
        bias = b("reshape", repeated, shape=(out[1] * phases,))
    ones = (1,) * len(stride)
    y = b("conv", x, weights, bias, stride=ones, padding=padding, dilation=dilation, groups=groups)
    if phases != 1:
        y = _interleave(b, y, out[1], stride)
    if not direct:
        starts = (0, 0, *a["padding"])
        y = b("slice", y, starts=starts, sizes=out, steps=(1,) * len(out))
        y = b("materialize", y)
    node.op.results[0].replace_all_uses_with(y)
    node.op.erase()


class _Builder:
    """Builds ops before `op`, at its location."""

    def __init__(self, op: ir.Operation):
        self.location, self.ip = op.location, ir.InsertionPoint(op)

    def __call__(self, name: str, *operands: ir.Value | None, **attributes: Any) -> ir.Value:
        return build(name, operands, attributes, self.location, self.ip).results[0]


def _taps(kernel: int, stride: int, dilation: int, padding: int, extra: int) -> int:
    """Kernel positions of one phase: enough for the kernel, and for the output to reach its last position."""
    if stride == 1:
        return kernel + max(0, -((padding - extra) // dilation))
    return max(-(-kernel // stride), -(-(kernel + extra - padding) // stride))


def _spread_kernel(b: _Builder, w: ir.Value, steps: Sequence[int]) -> ir.Value:
    """`w` with `step - 1` zeros between the elements of each spatial dim."""
    front, kernel = type_of(w).shape[:2], [k for k in type_of(w).shape[2:] if isinstance(k, int)]
    w = b("reshape", w, shape=(*front, *(size for k in kernel for size in (k, 1))))
    after = (0, 0, *(size for step in steps for size in (0, step - 1)))
    w = b("pad", w, low=(0,) * len(after), high=after, value=0.0, mode="constant")
    w = b("reshape", w, shape=(*front, *(k * step for k, step in zip(kernel, steps))))
    sizes = (*front, *((k - 1) * step + 1 for k, step in zip(kernel, steps)))
    return b("slice", w, starts=(0,) * len(sizes), sizes=sizes, steps=(1,) * len(sizes))


def _phase_weights(
    b: _Builder, w: ir.Value, kernel: Sequence[int], groups: int, stride: Sequence[int], taps: Sequence[int]
) -> ir.Value:
    """`v[(o, p), c, t] = w[c, o, p + s (T - 1 - t)]`, 0 past the kernel, from `w` `[C, O / groups, kernel…]`."""
    n = len(kernel)
    inputs, outputs = type_of(w).shape[:2]
    high = [t * s - k for t, s, k in zip(taps, stride, kernel)]
    if any(high):
        w = b("pad", w, low=(0,) * (n + 2), high=(0, 0, *high), value=0.0, mode="constant")
    split = [size for t, s in zip(taps, stride) for size in (t, s)]
    w = b("reshape", w, shape=(groups, inputs // groups, outputs, *split))
    order = (0, 2, *(4 + 2 * d for d in range(n)), 1, *(3 + 2 * d for d in range(n)))
    w = b("permute", w, dims=order)
    w = b("reshape", w, shape=(groups * outputs * dims.product(stride), inputs // groups, *taps))
    return b("materialize", b("flip", w, dims=tuple(range(2, n + 2))))


def _interleave(b: _Builder, y: ir.Value, channels: Dim, stride: Sequence[int]) -> ir.Value:
    """`[N, (O, s…), Q…]` to `[N, O, Q s…]`."""
    batch, _, *sizes = type_of(y).shape
    n = len(stride)
    y = b("reshape", y, shape=(batch, channels, *stride, *sizes))
    y = b("permute", y, dims=(0, 1, *(axis for d in range(n) for axis in (2 + n + d, 2 + d))))
    return b("reshape", y, shape=(batch, channels, *(q * s for q, s in zip(sizes, stride))))
