"""Products of which an operand is computed: on its way into panels, or stored first by a kernel of its own.

`python benchmarks/operands.py` writes benchmarks/results/operands.md. "Stored" is the same function when it returns the operand too.
On one thread, in its CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timing import interleaved, write

import lamina

SECONDS = 0.6  # per line
Tensor = torch.Tensor


def relu(w: Tensor) -> Tensor:
    return torch.relu(w)


def gelu(w: Tensor) -> Tensor:
    return F.gelu(w)


def dequantized(w: Tensor) -> Tensor:
    return w.float() * 0.02


def product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def turned(w: Tensor, x: Tensor) -> Tensor:
    return x @ w


def convolution(w: Tensor, x: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=w.shape[-1] // 2)


def attention(q: Tensor, kv: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, kv, kv)


def integers(*shape: int) -> Tensor:
    return torch.randint(-127, 128, shape, dtype=torch.int8)


Case = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor], Tensor, Tensor]
CASES: dict[str, Case] = {
    "512x768 @ relu(768x3072)": (product, relu, torch.randn(512, 768), torch.randn(768, 3072)),
    "128x768 @ relu(768x3072)": (product, relu, torch.randn(128, 768), torch.randn(768, 3072)),
    "16x768 @ relu(768x3072)": (product, relu, torch.randn(16, 768), torch.randn(768, 3072)),
    "1x768 @ relu(768x3072)": (product, relu, torch.randn(1, 768), torch.randn(768, 3072)),
    "linear 128x768, gelu(3072x768)": (F.linear, gelu, torch.randn(128, 768), torch.randn(3072, 768)),
    "linear 128x768, int8 3072x768": (F.linear, dequantized, torch.randn(128, 768), integers(3072, 768)),
    "linear 4x768, int8 3072x768": (F.linear, dequantized, torch.randn(4, 768), integers(3072, 768)),
    "12 of 128x64 @ relu(64x128)": (product, relu, torch.randn(12, 128, 64), torch.randn(12, 64, 128)),
    "attention 12x128x64, int8 keys": (attention, dequantized, torch.randn(1, 12, 128, 64), integers(1, 12, 128, 64)),
    "attention 12x1x64, 1024 int8 keys": (attention, dequantized, torch.randn(1, 12, 1, 64), integers(1, 12, 1024, 64)),
    "relu(512x768) @ 768x512": (turned, relu, torch.randn(768, 512), torch.randn(512, 768)),
    "relu(16x768) @ 768x512": (turned, relu, torch.randn(768, 512), torch.randn(16, 768)),
    "12 of relu(128x64) @ 64x128": (turned, relu, torch.randn(12, 64, 128), torch.randn(12, 128, 64)),
    "conv 64->64 3x3, relu(56^2)": (convolution, relu, torch.randn(64, 64, 3, 3), torch.randn(1, 64, 56, 56)),
    "conv 256->256 3x3, relu(14^2)": (convolution, relu, torch.randn(256, 256, 3, 3), torch.randn(1, 256, 14, 14)),
    "conv 256->128 1x1, relu(28^2)": (convolution, relu, torch.randn(128, 256, 1, 1), torch.randn(1, 256, 28, 28)),
}


def row(name: str, case: Case) -> str:
    """One line of the table."""
    multiply, compute, x, w = case  # `w` is the operand that is computed

    def packed(x: Tensor, w: Tensor) -> Tensor:
        return multiply(x, compute(w))

    def stored(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        made = compute(w)
        return multiply(x, made), made

    ours, other = lamina.compile(packed, (x, w)), lamina.compile(stored, (x, w))
    torch.testing.assert_close(ours(x, w), packed(x, w), rtol=1e-4, atol=1e-3)
    calls = {"packed": lambda: ours(x, w), "stored": lambda: other(x, w), "eager": lambda: packed(x, w)}
    with torch.no_grad():
        t = {k: v.median for k, v in interleaved(calls, SECONDS, clock=time.thread_time).items()}
    times = " | ".join(f"{t[k] * 1e3:.3f}" for k in ("packed", "stored", "eager"))
    return f"| {name} | {times} | {t['stored'] / t['packed']:.2f} | {t['eager'] / t['packed']:.2f} |"


def main() -> None:
    torch.set_num_threads(1)
    header = [
        "| product | packed, ms | stored | eager | speed-up over stored | over eager |",
        "|---|---|---|---|---|---|",
    ]
    lines = header + [row(name, case) for name, case in CASES.items()]
    write("operands", "Computed operands of products", "python benchmarks/operands.py", lines)


if __name__ == "__main__":
    main()
