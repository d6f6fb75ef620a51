"""Inference of whole models in bf16 on an NVIDIA GPU, beside eager and Inductor.

    python benchmarks/gpu_models.py [--device cpu --small] [--profile] [--seconds 1.5] [--deadline 300]
        [--caches FOLDER [--prepare]] [MODEL …]

Each model lives in a process of its own (`gpu_processes.py`). First all of them compile with Lamina, at once and with empty
caches, and are compared with float64; then each in turn is timed against eager; then all compile with Inductor, and each in
turn is timed against both. A time is that of a call among others in a row on several
inputs, by CUDA events: what a user gets, launch overhead included. Systems alternate, the median of rounds counts.

MB is the peak of torch's allocator in a call beyond the weights: results, activations, and weights that a system keeps in another form.
With `--prepare` nothing is timed, and what was compiled stays in the caches in FOLDER: a later run with these has warm
compilers ("compile s" then says how long those take), so that a short lease of a machine suffices.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import gpu_processes
from model_process import counts, make_model

CALLS = 3  # different inputs
ROUND = 0.02  # seconds of calls in a row, about

# name: (a model of examples/models and its arguments, the same small)
MODELS: dict[str, tuple[tuple[str, dict[str, Any]], dict[str, Any]]] = {
    "bert_base": (("language.bert_base", {"length": 512, "batch": 8}), {"length": 16, "batch": 1}),
    "llama_prefill": (
        ("llama.prefill", {"layers": 8, "width": 2048, "length": 2048, "prompt": True}),
        {"layers": 1, "width": 64, "length": 16, "vocabulary": 100},
    ),
    "gpt2_small": (("language.gpt2_small", {"length": 1024}), {"layers": 1, "width": 48, "vocabulary": 100}),
    "vit_base": (("vision.vit_base", {"batch": 32}), {"batch": 1}),
    "llama_decode": (
        ("llama.decode", {"layers": 8, "width": 2048, "length": 2048}),
        {"layers": 1, "width": 64, "length": 16, "vocabulary": 100},
    ),
    "resnet50": (("resnet.resnet50_images", {"batch": 32}), {"batch": 1}),
    "convnext_tiny": (("vision.convnext_tiny", {"batch": 32}), {"batch": 1, "size": 32}),
    "mobilenet_v3": (("convolutional.mobilenet_v3", {"batch": 32}), {"batch": 1, "size": 32}),
    "unet": (("convolutional.unet", {"batch": 8, "size": 256, "width": 64}), {"batch": 1, "size": 16, "width": 8}),
}


class Model:
    """One model in its process, and the systems that have been compiled for it."""

    def __init__(self, name: str, device: str, small: bool):
        import torch

        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self.torch, self.device, self.name = torch, device, name
        (path, arguments), less = MODELS[name]
        with torch.device(device), torch.no_grad():
            made, first = make_model(path, {**arguments, **(less if small else {})}, device)
            self.model = made.to(torch.bfloat16).eval()
            self.calls = [self.another(first, i) for i in range(CALLS)]
        self.systems: dict[str, Callable[..., Any]] = {}
        self.begin()

    def begin(self) -> None:
        """What the model gives in float64 and in eager, the first system."""
        from models.accuracy import exact_calls

        self.exact = exact_calls(self.model, self.calls)
        self.eager = [self.copied(self.model, a) for a in self.calls]
        self.systems["eager"] = self.model

    def another(self, first: Sequence[Any], number: int) -> list[Any]:
        """Other values of the same sizes; positions and masks are kept, the step of a decoder is the next one."""
        if self.name == "llama_decode":
            token, position = first
            return [(token + 7 * number) % 100, position + number]
        data, *rest = first
        if data.is_floating_point():
            return [self.torch.randn_like(data).bfloat16(), *rest]
        return [self.torch.randint_like(data, int(data.max()) + 1), *rest]

    def copied(self, function: Callable[..., Any], given: Sequence[Any]) -> list[Any]:
        """The outputs of a call, kept apart from what later calls write."""
        from models.accuracy import flat

        return [t.clone() for t in flat(function(*given))]

    def synchronize(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def allocated(self) -> int:
        """Bytes of torch's allocator that are in use."""
        return 0 if self.device == "cpu" else self.torch.cuda.memory_allocated()

    def peak(self, function: Callable[..., Any], before: int) -> float:
        """MB that are in use at most while a call runs, beyond `before`: what a system keeps, and its results, included."""
        if self.device == "cpu":
            return math.nan
        self.torch.cuda.reset_peak_memory_stats()
        function(*self.calls[0])
        return (self.torch.cuda.max_memory_allocated() - before) / 1e6

    def compile(self, backend: str) -> dict[str, Any]:
        """Compile with empty caches; the seconds of the first call, and how far the outputs are from float64."""
        from models.accuracy import compare

        if backend == "lamina":
            import lamina.frontend.dynamo  # noqa: F401
        compiled = self.torch.compile(self.model, backend=backend, dynamic=False)
        self.synchronize()
        before, start = self.allocated(), time.perf_counter()
        compiled(*self.calls[0])
        self.synchronize()
        seconds = time.perf_counter() - start
        found = compare([self.copied(compiled, a) for a in self.calls], self.eager, self.exact)
        self.systems[backend] = compiled
        answer = {"seconds": seconds, "error": found.error, "eager error": found.eager, "faults": found.faults}
        answer |= {"MB": self.peak(compiled, before), "eager MB": self.peak(self.model, self.allocated())}
        if backend == "lamina":
            answer |= counts()
        return answer

    def row(self, system: str, repeats: int) -> float:
        """Seconds of a call, of `repeats` calls of every input in a row."""
        function = self.systems[system]
        if self.device == "cpu":
            start = time.perf_counter()
            for _ in range(repeats):
                for given in self.calls:
                    function(*given)
            return (time.perf_counter() - start) / repeats / CALLS
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(repeats):
            for given in self.calls:
                function(*given)
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3 / repeats / CALLS

    def time(self, seconds: float) -> dict[str, float]:
        """Milliseconds of a call of each system: medians of alternating rounds."""
        repeats = {}
        for system in self.systems:
            self.row(system, 1)
            repeats[system] = max(1, round(ROUND / CALLS / self.row(system, 1)))
        found: dict[str, list[float]] = {system: [] for system in self.systems}
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or min(map(len, found.values())) < 5:
            for system, times in found.items():
                times.append(self.row(system, repeats[system]))
        return {system: statistics.median(times) * 1e3 for system, times in found.items()}

    def profile(self, system: str) -> list[tuple[str, int, float]]:
        """The kernels of a call that take the longest: name, launches, microseconds."""
        from torch.profiler import ProfilerActivity, profile

        self.row(system, 1)
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as watched:
            self.row(system, 1)
            self.synchronize()
        rows = [
            (e.key, round(e.count / CALLS), e.self_device_time_total / CALLS)
            for e in watched.key_averages()
            if e.self_device_time_total > 0 and e.device_type != self.torch.autograd.DeviceType.CPU
        ]
        return sorted(rows, key=lambda r: -r[2])


HEAD = """
| model | error | eager's error | Lamina ms | eager ms | Inductor ms | eager / Lamina | Inductor / Lamina | compile s | Inductor's | MB | eager's | Inductor's | kernels (plain) | left to torch |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
""".strip()


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of the table, and geometric means."""
    lines: list[str] = [*HEAD.splitlines()]
    for name, facts in found.items():
        ours, theirs, ms = facts["lamina"], facts.get("inductor", {}), facts["ms"]
        left = ", ".join(f"{count} {op.removeprefix('aten.')}" for op, count in ours["fallback"].items())
        ratio = {s: f"{ms[s] / ms['lamina']:.2f}" if s in ms else "" for s in ("eager", "inductor")}
        cells = [name, f"{ours['error']:.1e}", f"{ours['eager error']:.1e}"]
        cells += [f"{ms[s]:.3f}" if s in ms else "" for s in ("lamina", "eager", "inductor")] + list(ratio.values())
        cells += [f"{t['seconds']:.1f}" if t else "" for t in (ours, theirs)]
        cells += [f"{ours['MB']:.0f}", f"{ours['eager MB']:.0f}", f"{theirs.get('MB', math.nan):.0f}"]
        cells += [f"{ours['kernels']} ({ours['plain_kernels']})", left or "nothing"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines + means(found)


def means(found: dict[str, dict[str, Any]]) -> list[str]:
    """Lines with the geometric means of the others' times relative to ours."""
    lines = []
    for system in ("eager", "inductor"):
        ratios = [f["ms"][system] / f["ms"]["lamina"] for f in found.values() if system in f["ms"]]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            lines += ["", f"Geometric mean of {system} / Lamina over {len(ratios)} models: {mean:.2f}"]
    return lines


if __name__ == "__main__":
    gpu_processes.main(__doc__, tuple(MODELS), Model, __file__, table)
