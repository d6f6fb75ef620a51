"""When weights have changed, so that what was computed from them once (packed, transposed, folded) is computed again.

A weight is unchanged while all of these agree with the last call:

    identity of the tensor object     load_state_dict(assign=True), a new Parameter
    data_ptr                          `.data = t`
    version counter                   every in-place operator, load_state_dict, most optimisers
    epoch                             fused optimisers write without counting: a hook after each optimiser step counts

Writes through `w.data.add_()` or `.numpy()` leave no trace: call `lamina.invalidate()` after them.
`options={"freeze": True}` leaves version and epoch out.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

import torch

# One 8-byte cell, so that native code can read it: counts optimiser steps, `invalidate` calls and forks.
_EPOCH = ctypes.c_int64(0)


def invalidate() -> None:
    """Have everything that was computed from weights computed again at the next call.

    Needed only after a write that torch does not count: `w.data.mul_(2)`, or one through `w.numpy()`.
    """
    _EPOCH.value += 1


def epoch_address() -> int:
    """The address of the epoch's cell."""
    return ctypes.addressof(_EPOCH)


@functools.cache
def watch() -> None:
    """Count optimiser steps from now on, and forget memoised state in forked children."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda *_: invalidate())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=invalidate)


def epoch() -> int:
    """The epoch now."""
    return _EPOCH.value


def fingerprint(tensors: Sequence[torch.Tensor], frozen: bool) -> tuple[Any, ...] | None:
    """What changes when one of `tensors` does; None where that cannot be known (inference tensors have no version)."""
    places = tuple((id(t), t.data_ptr()) for t in tensors)
    if frozen:
        return places
    if any(t.is_inference() for t in tensors):
        return None
    return places, tuple(t._version for t in tensors), _EPOCH.value
