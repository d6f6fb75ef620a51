"""On a machine with an NVIDIA GPU: rows, reductions and pointwise functions at real sizes. `python tests/gpu/run_shapes.py [--only=NAME,…]`.

Twice each, against float64. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures, distance

import lamina.frontend.dynamo  # noqa: F401

SHAPES = [(64, 4096), (1024, 1024), (8192, 4096), (8192, 4097), (8192, 5000), (20000, 1000), (32768, 256), (20000, 100), (4096, 16384), (37, 70000), (3, 1000003), (2, 33, 65, 17)]  # fmt: skip


def main() -> None:
    """Fused rows and reductions at real sizes against float64."""
    w = lambda x: torch.arange(x.shape[-1], device="cuda", dtype=torch.float32).mul(0.01).sin().to(x.dtype)
    cases: dict[str, Callable[..., Any]] = {
        "add": lambda x: x + x.flip(0) * 2,
        "silu": lambda x: F.silu(x) * x,
        "gelu": lambda x: F.gelu(x, approximate="tanh"),
        "softmax": lambda x: F.softmax(x, -1),
        "log_softmax": lambda x: F.log_softmax(x, -1),
        "losses": lambda x: losses(x),
        "losses, offset": lambda x: losses(100 * x.to(torch.promote_types(x.dtype, torch.float32)) - 1000),
        "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], w(x), w(x)),
        "rms_norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w(x),
        "sum_rows": lambda x: x.sum(-1),
        "sum_columns": lambda x: x.sum(0),
        "sum_all": lambda x: x.abs().sum(),  # of both signs its error has no measure
        "argmax": lambda x: x.argmax(-1),
        "amax_columns": lambda x: x.amax(0),
        "var": lambda x: x.var(-1),
        "transpose": lambda x: (x + 1).transpose(0, -1).contiguous(),
        "softmax_first": lambda x: F.softmax(x, 0),
        "pad": lambda x: F.pad(x, (1, 2)) * 2,
    }
    failures = Failures()
    only = [n for a in sys.argv if a.startswith("--only=") for n in a[7:].split(",")]
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device="cuda").to(dtype)
            for name, f in cases.items():
                if only and name not in only:
                    continue
                failures.run(f"{name} {shape} {dtype}", lambda f=f, x=x: compare(f, x))
        torch._dynamo.reset()
    for columns in (40, 1024, 4096, 4097, 16384):
        failures.run(f"losses of extremes, {columns}", lambda n=columns: extremes(n))
    failures.report("shapes")


def losses(x: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of each row, in f32 at least, with classes that the first elements give."""
    rows = x.flatten(0, -2).to(torch.promote_types(x.dtype, torch.float32))
    return F.cross_entropy(rows, rows[:, 0].long().abs() % rows.shape[1], reduction="none")


def extremes(columns: int) -> None:
    """Losses of rows of infinities, NaN, and numbers that are no f32 any more times log2(e), against eager."""
    x = torch.randn(9, columns, device="cuda")
    x[0], x[1, 5], x[2, 7], x[3, 1:], x[4] = -torch.inf, torch.inf, torch.nan, -torch.inf, -torch.inf
    x[4, -1], x[5, 3::7], x[6], x[7, ::2], x[8, ::3] = 3.4e38, 3e38, -3.4e38, -torch.inf, 2.0**30
    classes = torch.arange(9, device="cuda")
    f = lambda x, i: F.cross_entropy(x, i, reduction="none")
    made = torch.compile(f, backend="lamina", dynamic=False)(x, classes)
    torch.testing.assert_close(made, f(x, classes), equal_nan=True)


def compare(f: Callable[..., Any], x: torch.Tensor) -> None:
    """Twice: the same bits, and as near to float64 as eager is (to a factor)."""
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="lamina", dynamic=False)
    with torch.no_grad():
        first, second = compiled(x), compiled(x)
        assert torch.equal(first, second) or bool(torch.isnan(first).any()), "two runs differ"
        expected, exact = f(x), f(x.double())
    assert first.shape == expected.shape and first.dtype == expected.dtype and first.stride() == expected.stride()
    if not first.dtype.is_floating_point:
        assert torch.equal(first, expected), "unequal"
        return
    error, eagers = distance(first, exact), distance(expected, exact)
    floor = 2e-6 if x.dtype is torch.float32 else 1e-2
    assert error <= max(2 * eagers, floor), f"error {error:.2e}, eager's {eagers:.2e}"


if __name__ == "__main__":
    main()
