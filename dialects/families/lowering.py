"""Steps that the lowerings of several structured ops share; `b` is a `LinalgBuilder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from ..dims import Dim

# Windows of up to this many elements are read one after the other in the body, which keeps a pooling pointwise.
UNROLLED_WINDOW = 32


def computed(b: Any, x: Any) -> Any:
    """`x` in the type that float ops compute in: f32 for f16 and bf16."""
    return b.cast(x, "f32") if x.dtype in ("f16", "bf16") else x


def fold_window(
    b: Any,
    shape: Sequence[Dim],
    window: Sequence[int],
    inits: Sequence[tuple[Any, str]],
    step: Callable[..., tuple[Any, ...]],
    finish: Callable[..., tuple[Any, ...]],
    dtypes: Sequence[str],
) -> tuple[Any, ...]:
    """For each index `p` of `shape`: fold `step(s, p, k, *acc)` over the indices `k` of `window` in row-major order.

    `inits` are the accumulators' `(value, dtype)`; `finish(s, p, *acc)` gives the results, of `dtypes`. Small windows are
    unrolled in one parallel `linalg.generic`, others are its reduction loops (then `step` may run in any order).
    """
    rank = len(shape)

    def index(s: Any) -> list[Any]:
        return [s.index(i) for i in range(rank)]

    if prod(window) <= UNROLLED_WINDOW:

        def unrolled(s: Any) -> tuple[Any, ...]:
            p, acc = index(s), tuple(s.const(value, dtype) for value, dtype in inits)
            for k in product(*map(range, window)):
                acc = step(s, p, [s.const(i, "index") for i in k], *acc)
            return finish(s, p, *acc)

        made = b.generic(shape, [], list(dtypes), unrolled)
        return made if len(dtypes) > 1 else (made,)

    def reduced(s: Any, _: Any, *acc: Any) -> tuple[Any, ...]:
        return step(s, index(s), [s.index(rank + i) for i in range(len(window))], *acc)

    starts = [b.fill(shape, value, dtype) for value, dtype in inits]
    loops = (*shape, *window)
    kinds = [dtype for _, dtype in inits]
    # linalg asks that every loop be the dim of some operand: an operand without values has those of the window
    extent = (b.empty(window, "f32"), tuple(range(rank, len(loops))))
    acc = b.generic(loops, [extent], kinds, reduced, reduced=tuple(range(rank, len(loops))), inits=starts)
    acc = acc if len(inits) > 1 else (acc,)
    same = [(a, tuple(range(rank))) for a in acc]
    made = b.generic(shape, same, list(dtypes), lambda s, *v: finish(s, index(s), *v))
    return made if len(dtypes) > 1 else (made,)
