"""On a machine with two NVIDIA GPUs: both at once, and the second while the first is current. `python tests/gpu/run_devices.py`.

`torch.compile` and artifacts, each against eager on the same device. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures, in_threads

import lamina
import lamina.frontend.dynamo  # noqa: F401
from lamina.runtime.errors import WrongDeviceError

DEVICES = ("cuda:0", "cuda:1")
GRAPHS = (None, "reduce-overhead", "max-autotune-no-cudagraphs")
CALLS = 20


def rows(x: torch.Tensor) -> torch.Tensor:
    """Several kernels with memory of their own, one in two stages."""
    return torch.softmax(x * 2, 0) + F.layer_norm(x, x.shape[-1:]) + x.sum()


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Products by the copy engine, whose descriptors belong to a device, and attention."""
    y = F.gelu(x @ w)
    heads = y.view(4, -1, 4, 64).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


def compiled(function: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="lamina", mode=mode)


def close(made: torch.Tensor, expected: torch.Tensor) -> None:
    assert made.device == expected.device, f"on {made.device}, eager's on {expected.device}"
    tolerance = 2e-2 if made.dtype is torch.bfloat16 else 1e-3  # a sum of 76800 is in each
    torch.testing.assert_close(made, expected, rtol=tolerance, atol=tolerance)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256))


def in_turns(mode: str | None) -> None:
    """One compiled function on both devices; the current device stays the first."""
    f, g = compiled(rows, mode), torch.compile(block, backend="lamina", mode=mode)
    for number in range(CALLS):
        device = DEVICES[number % 2]
        x = torch.randn(300, 256, device=device)
        y, w = (torch.randn(n, 256, device=device, dtype=torch.bfloat16) / 8 for n in (400, 256))
        close(f(x), rows(x))
        close(g(y, w), block(y, w))
        assert torch.cuda.current_device() == 0


def current() -> None:
    """The second is current, and its stream is not the default one."""
    f = compiled(rows)
    with torch.cuda.device(1), torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(CALLS):
            x = torch.randn(300, 256, device="cuda")
            close(f(x), rows(x))
        torch.cuda.current_stream().synchronize()


def at_once() -> None:
    """A thread for each device."""
    f = compiled(rows)
    for device in DEVICES:
        f(torch.randn(300, 256, device=device))

    def work(device: str) -> None:
        for _ in range(10 * CALLS):
            x = torch.randn(300, 256, device=device)
            close(f(x), rows(x))

    in_threads(work, DEVICES * 2)


def training() -> None:
    """Steps on both devices: gradients are made by autograd's threads, one for each device."""
    models = [network().to(device) for device in DEVICES]
    steps = [compiled(models[0]), torch.compile(models[1], backend="lamina")]
    for _ in range(3):
        for model, step, device in zip(models, steps, DEVICES):
            x, twin = torch.randn(64, 256, device=device), copy.deepcopy(model)
            twin.zero_grad()
            twin(x).square().mean().backward()
            model.zero_grad()
            step(x).square().mean().backward()
            for p, q in zip(model.parameters(), twin.parameters()):
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)


def across() -> None:
    """A graph that goes from one device to the other, and back."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x * 2, -1).to("cuda:1")
        return (torch.tanh(y) + 1).to("cuda:0") * 3

    g = compiled(f)
    for _ in range(CALLS):
        x = torch.randn(300, 256, device="cuda:0")
        close(g(x), f(x))


def mixed() -> None:
    """Operands on both devices are refused, as in eager."""
    f = compiled(lambda x, y: x + y)
    try:
        f(torch.randn(8, device="cuda:0"), torch.randn(8, device="cuda:1"))
    except Exception as error:
        assert "device" in str(error), str(error)
        return
    raise AssertionError("no error")


def index_error() -> None:
    """An index out of range on the second device is raised there."""
    f = compiled(lambda t, i: torch.ops.aten.embedding(t, i) + 1)
    t = torch.randn(10, 8, device="cuda:1")
    good, bad = (torch.tensor([1, n], device="cuda:1") for n in (2, 99))
    f(t, good), f(t, bad)
    torch.cuda.synchronize(1)
    try:
        f(t, good)
    except IndexError:
        return
    raise AssertionError("no IndexError")


def capture() -> None:
    """A capture of torch's on the second device."""
    f = compiled(rows, "max-autotune-no-cudagraphs")
    with torch.cuda.device(1):
        x = torch.randn(300, 256, device="cuda")
        f(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = f(x)
        for _ in range(3):
            x.normal_()
            graph.replay()
            close(made, rows(x))


def artifact(path: Path, graphs: bool) -> None:
    """A model on each device, in turns and in threads; an input on the other one is refused."""
    models = {d: lamina.load(path, device=d, graphs=graphs) for d in DEVICES}
    eager = {d: network().to(d).eval() for d in DEVICES}

    def work(device: str) -> None:
        for _ in range(CALLS):
            x = torch.randn(64, 256, device=device)
            with torch.no_grad():
                close(torch.from_dlpack(models[device](x)), eager[device](x))

    for device in (*DEVICES, *DEVICES):
        work(device)
    in_threads(work, DEVICES)
    try:
        models["cuda:1"](torch.randn(64, 256, device="cuda:0"))
    except WrongDeviceError as error:
        assert "cuda:0" in str(error) and "cuda:1" in str(error), str(error)
        return
    raise AssertionError("an input of the other device was taken")


def main() -> None:
    """Everything."""
    assert torch.cuda.device_count() > 1, "this needs two GPUs"
    failures = Failures()
    for mode in GRAPHS:
        failures.run(f"in turns, {mode}", lambda mode=mode: in_turns(mode))
    for check in (current, at_once, training, across, mixed, index_error, capture):
        failures.run(check.__name__, check)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.lamina")
        program = torch.export.export(network().eval(), (torch.randn(64, 256),))
        lamina.export(program, targets=["sm_90a"]).save(path)
        for graphs in (False, True):
            failures.run(f"artifact, graphs {graphs}", lambda graphs=graphs: artifact(path, graphs))
    failures.report("two devices")


if __name__ == "__main__":
    main()
