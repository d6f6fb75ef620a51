"""On a machine with an NVIDIA GPU since sm_90: launches that overlap give the bits of launches one after another.

`python tests/gpu/run_overlap.py`. The chains reuse memory of their own at once, in kernels of very different lengths, and
hand memory to and from kernels of torch; each way to launch is compared with launches that do not overlap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures

import lamina.frontend.dynamo  # noqa: F401
from lamina.runtime.gpu import cuda

Step = Callable[..., torch.Tensor]
CALLS = 100
MODES = {"launches": "max-autotune-no-cudagraphs", "graph": None}


def chain(x: torch.Tensor, big: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Some seventy kernels, each of which reads what the one before wrote: tiny ones, and every sixth a long one."""
    for i in range(24):
        x = torch.softmax(x * w, i % 2) + 0.25 * x
        if i % 6 == 5:
            x = x + 1e-3 * (big * x[0, 0]).square().sum(1)[: x.shape[0], None]
    return x


def products(x: torch.Tensor, big: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Products, attention and rows in turn, in bf16."""
    y = x.bfloat16()
    for _ in range(6):
        y = torch.nn.functional.layer_norm(torch.relu(y @ big[:96, :96].bfloat16()) + y, (96,), w.bfloat16())
        heads = y.view(1, -1, 1, 96).transpose(1, 2)
        y = y + torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(y.shape)
    return y


def in_place(x: torch.Tensor, big: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """What is read is overwritten: by the part itself, and by torch after it."""
    y = torch.softmax(x * w, 0)
    x.add_(y.sum(1, keepdim=True)).mul_(0.5)
    return torch.softmax(x + y, 1)


def repeated(step: Step, between: Callable[[torch.Tensor], object]) -> list[torch.Tensor]:
    """The results of many calls in a row, each on what the last one made; `between` is other work of the stream."""
    torch.manual_seed(0)
    x, w = torch.randn(64, 96, device="cuda"), torch.rand(96, device="cuda")
    big = torch.randn(8192, 4096, device="cuda")
    made = []
    for _ in range(CALLS):
        y = step(x, big, w).float()
        between(y)
        x = y * 1.5 - x
        made.append(y)
    torch.cuda.synchronize()
    return made


def captured(step: Step, _: object) -> list[torch.Tensor]:
    """The same with three calls, a copy, a fill and another stream in a CUDA graph of torch's."""
    torch.manual_seed(0)
    x, w = torch.randn(64, 96, device="cuda"), torch.rand(96, device="cuda")
    big, start = torch.randn(8192, 4096, device="cuda"), x.clone()

    def work() -> torch.Tensor:
        y = step(x, big, w).float()
        copied = y.clone()
        y.zero_()
        z = step(copied, big, w).float()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other = torch.tanh(z)
        here = step(z, big, w).float()
        torch.cuda.current_stream().wait_stream(side)
        result = step(here + other, big, w).float()
        x.copy_(result)
        return result

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = work()
        x.copy_(start)
        made = []
        for _ in range(CALLS):
            graph.replay()
            made.append(result.clone())
    torch.cuda.synchronize()
    return made


def sleep(y: torch.Tensor) -> None:
    """A kernel of torch's that takes long and does not let others in."""
    torch.cuda._sleep(20000)
    y.mul_(1.0)


def nothing(y: torch.Tensor) -> None:
    """No other work."""


def results(function: Step, mode: str | None, run: Callable[..., list[torch.Tensor]], between: object, overlaps: bool) -> list[torch.Tensor]:  # fmt: skip
    """What `run` makes of `function`, compiled anew for a device whose launches may overlap or not."""
    device = cuda.device(0)
    allowed, device.overlaps = device.overlaps, overlaps
    try:
        torch._dynamo.reset()
        with torch.no_grad():
            return run(torch.compile(function, backend="lamina", mode=mode, dynamic=False), between)
    finally:
        device.overlaps = allowed


def check(function: Step, mode: str | None, run: Callable[..., list[torch.Tensor]], between: object) -> None:
    """All results are equal, bit for bit, and no NaN."""
    one, other = (results(function, mode, run, between, overlaps) for overlaps in (False, True))
    for number, (a, b) in enumerate(zip(one, other)):
        assert not torch.isnan(a).any() and torch.equal(a, b), f"call {number} differs"


def main() -> None:
    """Every chain in every way."""
    assert cuda.device(0).overlaps, "launches on this device do not overlap"
    failures = Failures()
    for function in (chain, products, in_place):
        for name, mode in MODES.items():
            for run, between in ((repeated, nothing), (repeated, sleep), (captured, nothing)):
                title = f"{function.__name__}, {name}, {run.__name__}, {between.__name__}"
                failures.run(title, lambda f=function, m=mode, r=run, b=between: check(f, m, r, b))
    failures.report("overlapping launches")


if __name__ == "__main__":
    main()
