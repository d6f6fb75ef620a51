"""Training steps of whole models in bf16 on an NVIDIA GPU, beside eager and Inductor.

    python benchmarks/gpu_training.py [--device cpu --small] [--profile] [--caches FOLDER [--prepare]] [MODEL …]

A step is forward, loss, backward and an AdamW of torch's own fused kernel, which is the same for all: the model with its loss
is compiled. (`optimizer_step.py` compiles optimisers.) The gradients of the first step are compared with float64.
MB are those of a step's forward and backward passes beside parameters, gradients and the optimiser's state.
Processes, options and clocks are those of gpu_processes.py. Models are in `eval` mode: no dropout.
"""

from __future__ import annotations

import copy
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gpu_models
import gpu_processes
from model_process import counts

TRAINED = ("bert_base", "gpt2_small", "vit_base", "resnet50")  # the others write a cache
RATE = 1e-3


class Trained:
    """A copy of a model with its loss and its optimiser."""

    def __init__(self, model: Any, name: str):
        import torch

        self.model = copy.deepcopy(model)
        self.loss: Callable[..., Any] = functools.partial(loss, name, self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), RATE, fused=True)

    def gradients(self, *given: Any) -> list[Any]:
        """The gradients of a call, which parameters keep until the next one."""
        self.optimizer.zero_grad()
        self.loss(*given).backward()
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def step(self, *given: Any) -> None:
        """Forward, backward and the optimiser's step."""
        self.gradients(*given)
        self.optimizer.step()


def exact_gradients(model: Any, name: str, given: Sequence[Any]) -> list[Any]:
    """The gradients in float64, rounded to f32; the model is left in float64."""
    wide = [t.double() if t.is_floating_point() else t for t in given]
    return [g.float() for g in Trained(model.double(), name).gradients(*wide)]


def loss(name: str, model: Any, *given: Any) -> Any:
    """Cross entropy of the next token or of a class; BERT has no head: the mean square of its states."""
    from torch.nn import functional as F

    outputs = model(*given)
    first = (outputs[0] if isinstance(outputs, tuple) else outputs).float()
    if name == "bert_base":
        return first.square().mean()
    if name == "gpt2_small":
        return F.cross_entropy(first[:, :-1].flatten(0, 1), given[0][:, 1:].flatten())
    return F.cross_entropy(first, first.new_zeros(len(first), dtype=given[0].new_zeros((), dtype=int).dtype))


class Training(gpu_models.Model):
    """One model in its process, trained by each system on a copy of its own."""

    def begin(self) -> None:
        """Gradients in float64, and eager's step."""
        with self.torch.enable_grad():
            given = self.calls[0]
            self.exact = exact_gradients(self.model, self.name, given)
            self.model.bfloat16()
            eager = Trained(self.model, self.name)
            self.eager = [g.clone() for g in eager.gradients(*given)]
            self.eager_peak = self.peak(eager.gradients, self.allocated())
            self.systems["eager"] = eager.step

    def compile(self, backend: str) -> dict[str, Any]:
        """Compile the model with its loss; the seconds of the first gradients, and how far they are from float64."""
        with self.torch.enable_grad():
            if backend == "lamina":
                import lamina.frontend.dynamo  # noqa: F401
            ours = Trained(self.model, self.name)
            ours.loss = self.torch.compile(ours.loss, backend=backend, dynamic=False)
            start = time.perf_counter()
            got = ours.gradients(*self.calls[0])
            self.synchronize()
            answer = {"seconds": time.perf_counter() - start}
            answer |= {"error": apart(got, self.exact), "eager error": apart(self.eager, self.exact)}
            del got  # the peak is to be that of one set of gradients
            answer |= {"peak": self.peak(ours.gradients, self.allocated()), "eager peak": self.eager_peak}
            self.systems[backend] = ours.step
            if backend == "lamina":
                answer |= counts()
            return answer

    def row(self, system: str, repeats: int) -> float:
        """As for inference, with gradients."""
        with self.torch.enable_grad():
            return super().row(system, repeats)


def apart(some: list[Any], others: list[Any]) -> float:
    """The norm of the difference relative to that of `others`."""
    pairs = [(a.detach().float(), b.detach().float()) for a, b in zip(some, others, strict=True)]
    off, size = (
        float(sum(t.square().sum() for t in tensors)) for tensors in ([a - b for a, b in pairs], [b for _, b in pairs])
    )
    return math.sqrt(off / size)


def left_to_torch(fallback: Mapping[str, int]) -> str:
    """The cell of the ops that torch runs, from how often each was left to it."""
    return ", ".join(f"{count} {op.removeprefix('aten.')}" for op, count in fallback.items()) or "nothing"


HEAD = """
| model | gradients' error | eager's | Lamina ms | eager ms | Inductor ms | eager / Lamina | Inductor / Lamina | compile s | Inductor's | MB | eager's | Inductor's | left to torch |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
""".strip()


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of the table, and geometric means."""
    lines = HEAD.splitlines()
    for name, facts in found.items():
        ours, theirs, ms = facts["lamina"], facts.get("inductor", {}), facts["ms"]
        cells = [name, f"{ours['error']:.1e}", f"{ours['eager error']:.1e}"]
        cells += [f"{ms[s]:.3f}" if s in ms else "" for s in ("lamina", "eager", "inductor")]
        cells += [f"{ms[s] / ms['lamina']:.2f}" if s in ms else "" for s in ("eager", "inductor")]
        cells += [f"{t['seconds']:.1f}" if t else "" for t in (ours, theirs)]
        cells += [f"{ours['peak']:.0f}", f"{ours['eager peak']:.0f}", f"{theirs.get('peak', math.nan):.0f}"]
        lines.append(f"| {' | '.join([*cells, left_to_torch(ours['fallback'])])} |")
    return lines + gpu_models.means(found)


if __name__ == "__main__":
    gpu_processes.main(__doc__, TRAINED, Training, __file__, table)
