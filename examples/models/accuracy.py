"""How near a model's outputs must be to eager's: the rule that tests and benchmarks share.

The error of an output is max |y - exact| / max |exact|, where `exact` is the model in float64. It may be twice eager's
plus 1e-6; where the two largest values of a row are further apart than that, the same one must be the largest.
Outputs that are no floats must be equal.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FLOOR = 1e-6


@dataclass(frozen=True)
class Accuracy:
    """The largest error of any output, eager's, and a line for each output that breaks the rule."""

    error: float
    eager: float
    faults: tuple[str, ...]


def compare(got: Any, eager: Any, exact: Any) -> Accuracy:
    """Judge outputs (tensors or arrays in tuples, lists or dicts, which correspond in order)."""
    errors, eagers, faults = [0.0], [0.0], []
    triples = list(zip(flat(got), flat(eager), flat(exact), strict=True))
    for number, (ours, theirs, truth) in enumerate(triples):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            faults.append(f"output {number} is {ours.dtype}{list(ours.shape)}, not {theirs.dtype}{list(theirs.shape)}")
        elif not truth.is_floating_point():
            if not torch.equal(ours, theirs):
                faults.append(f"output {number} differs")
        elif truth.numel():
            scale = truth.abs().max().clamp_min(1e-30).item()
            errors.append(_distance(ours, truth) / scale)
            eagers.append(_distance(theirs, truth) / scale)
            allowed = 2 * eagers[-1] + FLOOR
            if not errors[-1] <= allowed:
                faults.append(f"output {number} has error {errors[-1]:.1e}, eager {eagers[-1]:.1e}")
            elif not _same_largest(ours, theirs, allowed * scale):
                faults.append(f"output {number} has another argmax")
    return Accuracy(max(errors), max(eagers), tuple(faults))


def _distance(y: Tensor, exact: Tensor) -> float:
    return (y.double() - exact.double()).abs().max().item()


def _same_largest(ours: Tensor, theirs: Tensor, gap: float) -> bool:
    if theirs.dim() == 0 or theirs.shape[-1] < 2:
        return True
    first, second = theirs.topk(2, -1).values.unbind(-1)
    clear = first - second > gap
    return bool((ours.argmax(-1) == theirs.argmax(-1))[clear].all())


def exact_calls(model: nn.Module, calls: Sequence[Sequence[Any]]) -> list[list[Tensor]]:
    """The outputs of successive calls of a float64 copy of `model`, which keeps its own state."""
    precise = copy.deepcopy(model).double()
    return [flat(precise(*map(doubled, args))) for args in calls]


def flat(value: Any) -> list[Tensor]:
    """The tensors in nested tuples, lists and dicts, in order; arrays become tensors."""
    if isinstance(value, Tensor):
        return [value.detach()]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in flat(v)]
    return [torch.from_numpy(value)] if hasattr(value, "__array_interface__") else []


def doubled(value: Any) -> Any:
    """Floating-point tensors as float64; anything else as it is."""
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
