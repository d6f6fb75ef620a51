"""On a machine with an NVIDIA GPU: models under torch.compile against eager. `python tests/gpu/run_compile.py`.

Dynamic sizes, training, views, writes, streams, errors. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures, distance

import lamina.frontend.dynamo  # noqa: F401
from lamina import stats


def check_model(m: nn.Module, *inputs: torch.Tensor, train: bool = False, dynamic: bool = False) -> None:
    """A compiled model beside eager: outputs, or gradients with `train`; with `dynamic` also for a batch of twice the size."""
    torch._dynamo.reset()
    compiled = torch.compile(m, backend="lamina", dynamic=dynamic or None)
    for scale in (1, 2) if dynamic else (1,):
        given = [torch.cat([x] * scale) for x in inputs]
        if train:
            grads = []
            for f in (m, compiled):
                m.zero_grad()
                f(*given).square().mean().backward()
                grads.append([p.grad.clone() for p in m.parameters()])
            for a, b in zip(*grads):
                torch.testing.assert_close(b, a, rtol=2e-3, atol=2e-4)
        else:
            with torch.no_grad():
                torch.testing.assert_close(compiled(*given), m(*given), rtol=2e-3, atol=2e-4)


class Lookup(nn.Module):
    """Rows of a table, summed and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 64)

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.table(i).sum(1), dim=-1)


def misaligned() -> None:
    """An input that starts between multiples of 16 bytes."""
    x = torch.randn(4097, device="cuda")[1:]
    f = torch.compile(lambda x: torch.relu(x) + 1, backend="lamina")
    torch.testing.assert_close(f(x), torch.relu(x) + 1)


def constants() -> None:
    """Tensors that are made of numbers on the device, in the function."""
    before = dict(stats()["fallback"])

    def f(x: torch.Tensor) -> torch.Tensor:
        x = x * torch.tensor([1.0, 2.0, 3.0], device="cuda") + torch.tensor(2, device="cuda")
        x = x / torch.tensor(64.0).sqrt() + torch.arange(3).to("cuda") * torch.tensor(0.5)
        return torch.where(x > 0, x, torch.tensor(torch.finfo(x.dtype).min))

    x = torch.randn(5, 3, device="cuda")
    torch.testing.assert_close(torch.compile(f, backend="lamina")(x), f(x))
    half = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
    scaled = lambda x: (
        x * torch.tensor(0.1),
        x + torch.tensor(0.1),
        x / torch.tensor(0.3),
    )  # eager rounds no such scalar
    for made, expected in zip(torch.compile(scaled, backend="lamina")(half), scaled(half)):
        assert torch.equal(made, expected)
    left = [op for op, found in stats()["fallback"].items() if found != before.get(op)]
    assert not left, f"in eager: {left}"


def in_place() -> None:
    """An input that is written."""
    x = torch.randn(4096, device="cuda")
    y = x.clone()
    torch.compile(lambda x: x.mul_(2).add_(1), backend="lamina")(x)
    torch.testing.assert_close(x, y * 2 + 1)


def out_of_range() -> None:
    """An index that is too large is raised by the next call."""
    f = torch.compile(lambda t, i: torch.ops.aten.embedding(t, i) + 1, backend="lamina")
    t = torch.randn(10, 8, device="cuda")
    f(t, torch.tensor([1, 2], device="cuda"))
    f(t, torch.tensor([1, 99], device="cuda"))
    torch.cuda.synchronize()
    try:
        f(t, torch.tensor([1, 2], device="cuda"))
    except IndexError:
        return
    raise AssertionError("no IndexError")


def other_stream() -> None:
    """A call on a stream that is not the default one."""
    x = torch.randn(1 << 20, device="cuda")
    f = torch.compile(lambda x: torch.tanh(x) * 3, backend="lamina")
    f(x)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = torch.randn(1 << 20, device="cuda")
        z = f(y)
    stream.synchronize()
    torch.testing.assert_close(z, torch.tanh(y) * 3, rtol=1e-5, atol=1e-6)


def attention_gradients(width: int, length: int, causal: bool, shared: int) -> None:
    """Attention whose forward pass is ours and whose backward pass is torch's, in bf16; against float64."""
    torch._dynamo.reset()
    before = stats()["fallback"]
    shapes = ((2, 8, length, width), (2, shared, length, width), (2, shared, length, width))
    given = [torch.randn(s, device="cuda").bfloat16().transpose(1, 2).contiguous().transpose(1, 2) for s in shapes]
    weight = torch.randn(2, 8, length, width, device="cuda").bfloat16()

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        made = F.scaled_dot_product_attention(q * 2, k, v, is_causal=causal, enable_gqa=shared != 8)
        return (made * weight).sum()

    def gradients(f: Callable[..., torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in given]
        return list(torch.autograd.grad(f(*leaves), leaves))

    made, eager = gradients(torch.compile(loss, backend="lamina"), torch.bfloat16), gradients(loss, torch.bfloat16)
    weight = weight.double()
    for m, e, x in zip(made, eager, gradients(loss, torch.float64)):
        assert distance(m, x) <= max(2 * distance(e, x), 1e-2), (
            f"error {distance(m, x):.1e}, eager {distance(e, x):.1e}"
        )
    left = [op for op, found in stats()["fallback"].items() if found != before.get(op) and "backward" not in op]
    assert not left, f"in eager: {left}"


def main() -> None:
    """Models through torch.compile: dynamic shapes, training, views, fallbacks."""
    failures = Failures()

    def model(name: str, m: nn.Module, *inputs: torch.Tensor, **how: bool) -> None:
        failures.run(name, lambda: check_model(m, *inputs, **how))

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10), nn.LogSoftmax(-1)).cuda()
    model("mlp", mlp, torch.randn(64, 256, device="cuda"))
    model("mlp dynamic", mlp, torch.randn(64, 256, device="cuda"), dynamic=True)
    model("mlp training", mlp, torch.randn(64, 256, device="cuda"), train=True)
    conv = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 64, 10)).cuda()  # fmt: skip
    model("conv", conv.eval(), torch.randn(4, 3, 16, 16, device="cuda"))
    block = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0).cuda()
    model("encoder layer", block.eval(), torch.randn(4, 50, 128, device="cuda"))
    model("encoder layer training", block.train(), torch.randn(4, 50, 128, device="cuda"), train=True)
    for case in ((64, 1024, True, 8), (64, 513, False, 8), (128, 300, True, 8), (128, 512, False, 2)):
        failures.run(f"gradients of attention {case}", lambda case=case: attention_gradients(*case))
    model("embedding", Lookup().cuda(), torch.randint(0, 1000, (32, 20), device="cuda"))

    for f in (misaligned, constants, in_place, out_of_range, other_stream):
        failures.run(f.__name__, f)
    failures.report("torch.compile")
    print(stats())


if __name__ == "__main__":
    main()
