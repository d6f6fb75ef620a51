"""Which taps of its kernel a transposed convolution multiplies where, along one dim.

    y[q s + p] = sum over k of w[k] x[(q s + p - k d) / s], where s divides q s + p - k d

A phase `p < s` meets the taps with `k d = p (mod s)`. With `g = gcd(d, s)` these are none unless g divides p; else they are
every `s / g`-th one, and the places of `x` that they meet are `d / g` apart: a plain convolution of stride 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd


@dataclass(frozen=True)
class Phases:
    """`count` neighbouring phases from `first` on whose taps meet the same places.

        y[q s + first + i] = sum over t < taps of w[start + i + step t] x[q - shift - t dilation]       for i < count

    With no taps these are zeros.
    """

    first: int
    count: int
    taps: int
    start: int = 0
    step: int = 1
    shift: int = 0
    dilation: int = 1


def phases_of(kernel: int, stride: int, dilation: int) -> list[Phases]:
    """All phases of a stride, in order: one entry where the stride divides the kernel, two for other kernels without dilation."""
    found: list[Phases] = []
    for p in range(stride):
        new = _phase(p, kernel, stride, dilation)
        last = found[-1] if found else None
        if last is not None and replace(last, first=p, start=new.start, count=1) == new:
            found[-1] = replace(last, count=last.count + 1)
        else:
            found.append(new)
    return found


def _phase(p: int, kernel: int, stride: int, dilation: int) -> Phases:
    g = gcd(dilation, stride)
    step, apart = stride // g, dilation // g
    if p % g:
        return Phases(p, 1, 0)
    start = p // g * pow(apart, -1, step) % step
    if start >= kernel:
        return Phases(p, 1, 0)
    return Phases(p, 1, -(-(kernel - start) // step), start, step, (start * dilation - p) // stride, apart)
