"""Padding: elements added at both ends of every dimension."""

from __future__ import annotations

from typing import Any

from ..dims import Dim
from ..lazy import np, pt
from ..op import Attr, Dims, Op, Operand, Result, Sample, Scalar, check
from ..record import TensorType

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # ours: numpy's


def _sample(operand: Any, **attributes: Any) -> Sample:
    return Sample((operand,), attributes)


class Pad(Op, name="pad", category="gather"):
    """`low[i]` elements before and `high[i]` after `x` in dimension `i`; nothing is negative.

    mode: "constant" puts `value`, "reflect" mirrors without the edge, "replicate" repeats the edge, "circular" goes on
    at the other end.
    """

    x: Operand
    low: Attr[Dims]
    high: Attr[Dims]
    value: Attr[Scalar] = 0
    mode: Attr[str] = "constant"
    y: Result

    samples = (
        _sample(("f32", (2, 3)), low=(1, 0), high=(0, 2), value=1.5),
        _sample(("i64", (4,)), low=(2,), high=(1,), value=-3),
        _sample(("bool", (3,)), low=(1,), high=(1,), value=True),
        _sample(("f32", (2, 5)), low=(0, 3), high=(0, 4), mode="reflect"),
        _sample(("f32", (2, 3)), low=(0, 2), high=(0, 4), mode="replicate"),
        _sample(("f32", (2, 4)), low=(0, 2), high=(0, 4), mode="circular"),
        _sample(("f32", (0, 2)), low=(1, 1), high=(1, 0), value=2.0),
    )

    @staticmethod
    def infer(x, low, high, value, mode):
        check(len(low) == len(high) == x.rank, f"{len(low)} and {len(high)} amounts for a rank-{x.rank} tensor")
        check(mode in MODES, f"mode is {', '.join(MODES)}, got '{mode}'")
        for d, a, b in zip(x.shape, low, high):
            for amount in (a, b):
                check(not isinstance(amount, int) or amount >= 0, f"negative amount {amount}")
                known = isinstance(amount, int) and isinstance(d, int)
                check(mode == "constant" or d != 0 or amount == 0, f"{mode} padding of no elements")
                limit = {"reflect": d - 1, "circular": d}.get(mode, amount)
                check(not known or amount == 0 or amount <= limit, f"{mode} padding of {amount} in a size of {d}")
        return TensorType(x.dtype, tuple(a + d + b for d, a, b in zip(x.shape, low, high)))

    @staticmethod
    def torch(x, low, high, value, mode):
        pairs = [p for a, b in zip(reversed(low), reversed(high)) for p in (a, b)]
        if mode == "constant":
            return pt.nn.functional.pad(x, pairs, mode, value)
        return pt.nn.functional.pad(x, pairs[:2], mode)

    @staticmethod
    def reference(x, low, high, value, mode):
        extra: Any = {"constant_values": np.asarray(value).astype(x.dtype)} if mode == "constant" else {}
        kind: Any = MODES[mode]
        return np.pad(x, list(zip(low, high)), kind, **extra)

    @staticmethod
    def lower(b, x, low, high, value, mode):
        shape = [a + d + c for d, a, c in zip(x.shape, low, high)]

        def body(s, at):
            inside = s.const(True, "bool")
            sources = []
            for i, (d, a, c) in enumerate(zip(x.shape, low, high)):
                here = s.sub(at[i], s.size(a))
                if a == 0 and c == 0:
                    sources.append(here)
                    continue
                valid = s.bitwise_and(s.ge(here, 0), s.lt(here, s.size(d)))
                inside = s.bitwise_and(inside, valid)
                sources.append(_source(s, here, valid, d, mode))
            if mode != "constant":
                return s.read(x, sources)
            return s.select(inside, s.read(x, sources), value)

        if any(d == 0 for d in x.shape):
            return b.fill(shape, value, x.dtype)
        return b.generate(shape, x.dtype, body)


def _source(s: Any, here: Any, valid: Any, size: Dim, mode: str) -> Any:
    """The position within `0 .. size - 1` that position `here` shows."""
    end = s.size(size)
    match mode:
        case "replicate":
            return s.clamp(here, 0, s.sub(end, 1))
        case "reflect":
            mirrored = s.select(s.lt(here, 0), s.sub(0, here), s.sub(s.add(end, s.sub(end, 2)), here))
            return s.select(valid, here, mirrored)
        case "circular":
            return s.select(s.lt(here, 0), s.add(here, end), s.select(valid, here, s.sub(here, end)))
    return s.clamp(here, 0, s.maximum(s.sub(end, 1), 0))
