"""Training steps of whole models on the CPU in f32, two threads: gradients first, then time and memory.

`python benchmarks/training.py [--inductor] [--one-thread] [MODEL …]` writes benchmarks/results/training.md. `--one-thread` times one
thread by its own clock, which leaves out most of what others do to the machine.

A step is forward, loss, backward and torch's fused AdamW, which is the same for all: the model with its loss is compiled. ResNet-18 has
batch statistics, the others are in `eval` mode: no dropout. MB is what forward and backward take at most beside parameters,
their gradients and the optimiser's state: the peak of the process's resident memory, and for ours the arena, which stays between calls
and is that of the largest model so far: one model a run says what it takes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from gpu_training import Trained, apart, exact_gradients, left_to_torch
from model_process import counts

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from models import language, resnet, vision  # noqa: E402
from timing import interleaved, table, write  # noqa: E402

Made = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]
# name: (the loss of gpu_training.py, what makes a model and its input)
MODELS: dict[str, tuple[str, Callable[[], Made]]] = {
    "resnet18": ("resnet18", lambda: (resnet.resnet18(), (torch.randn(4, 3, 224, 224),))),
    "bert_small": ("bert_base", lambda: language.bert_small(batch=8)),
    "gpt2_4_layers": ("gpt2_small", lambda: language.gpt2_small(layers=4, length=256)),
    "vit_tiny": ("vit_tiny", lambda: vision.vit_tiny(batch=8)),
}
HEAD = "| model | gradients' error | eager's | Lamina ms | eager ms | eager / Lamina | MB | eager's | left to torch |"
BESIDE = " Inductor ms | Inductor / Lamina | Inductor's MB |"


def peak(trained: Trained, given: tuple[torch.Tensor, ...], kept: int) -> float:
    """MB of one forward and backward pass, with `kept` bytes of before; NaN where the system does not count them."""
    trained.optimizer.zero_grad()
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # another libc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        trained.gradients(*given)
        parameters = sum(p.nbytes for p in trained.model.parameters())
        return (_resident("VmHWM") - before + kept - parameters) / 1e6
    except OSError:
        return float("nan")


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


def measure(name: str, inductor: bool, clock: Callable[[], float]) -> str:
    """One line of the table."""
    from lamina.frontend.stats import COUNTERS
    from lamina.runtime.entry import SHARED

    torch.manual_seed(0)
    torch._dynamo.reset()
    COUNTERS.reset()
    kind, make = MODELS[name]
    model, given = make()
    model.train(name == "resnet18")
    exact = exact_gradients(model, kind, given)
    model.float()
    systems = {"eager": Trained(model, kind), "lamina": Trained(model, kind)}
    if inductor:
        systems["inductor"] = Trained(model, kind)
    error, memory = {}, {}
    for system, trained in systems.items():
        if system != "eager":
            trained.loss = torch.compile(trained.loss, backend=system, dynamic=False)
        error[system] = apart(trained.gradients(*given), exact)
        memory[system] = peak(trained, given, SHARED.size if system == "lamina" else 0)
    times = interleaved({s: lambda t=t: t.step(*given) for s, t in systems.items()}, 4.0, clock=clock)
    ms = {system: t.median * 1e3 for system, t in times.items()}
    cells = [name, f"{error['lamina']:.1e}", f"{error['eager']:.1e}", f"{ms['lamina']:.1f}", f"{ms['eager']:.1f}"]
    cells += [f"{ms['eager'] / ms['lamina']:.2f}", f"{memory['lamina']:.0f}", f"{memory['eager']:.0f}"]
    cells += [left_to_torch(counts()["fallback"])]
    if inductor:
        cells += [f"{ms['inductor']:.1f}", f"{ms['inductor'] / ms['lamina']:.2f}", f"{memory['inductor']:.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inductor", action="store_true", help="time torch.compile's default backend too")
    parser.add_argument("--one-thread", action="store_true", help="time one thread by its own clock")
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.one_thread else 2)
    clock = time.thread_time if options.one_thread else time.perf_counter
    head = HEAD + BESIDE if options.inductor else HEAD
    lines = table(head, (measure(name, options.inductor, clock) for name in options.models or MODELS))
    lines += ["", "Errors are of the gradients, relative to their norm, against float64; times are medians."]
    write("training", "Training steps, CPU, two threads", " ".join(["python", *sys.argv]), lines)


if __name__ == "__main__":
    main()
