"""On a machine with an NVIDIA GPU: pointwise functions of 16-bit floats round as eager's do. `python tests/gpu/run_rounding.py`.

Numbers, 0-d tensors on the CPU and on the GPU, and tensors, bit for bit; functions that are right to some ulp of f32 may round
one element of a thousand to the neighbouring value. (`addcdiv` with a factor is not among them: Dynamo takes it apart, and each part
rounds.) It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures

import lamina.frontend.dynamo  # noqa: F401

Function = Callable[[torch.Tensor, object], torch.Tensor]

BINARY: dict[str, Function] = {
    "add": lambda x, s: x + s,
    "sub": lambda x, s: x - s,
    "rsub": lambda x, s: s - x,
    "mul": lambda x, s: x * s,
    "div": lambda x, s: x / s,
    "rdiv": lambda x, s: s / x,
    "add with a factor": lambda x, s: torch.add(x, s, alpha=0.7),
    "maximum": lambda x, s: torch.maximum(x, torch.as_tensor(s, device=x.device)),
    "less": lambda x, s: x < s,
    "equal": lambda x, s: x == s,
    "where": lambda x, s: torch.where(x > 0, x, s),
    "remainder": lambda x, s: torch.remainder(x, s),
    "floor": lambda x, s: torch.div(x, s, rounding_mode="floor"),
    "power": lambda x, s: torch.pow(x.abs() + 0.25, s),
    "in place": lambda x, s: x.clone().add_(s).mul_(s),
}
UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": lambda x: F.elu(x, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.3),
    "clamp": lambda x: x.clamp(-0.1, 0.3),
    "threshold": lambda x: F.threshold(x, 0.1, 0.3),
    "exp": torch.exp,
    "log": lambda x: x.abs().log(),
    "sqrt": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: x.abs().rsqrt(),
    "tanh": torch.tanh,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "addcmul": lambda x: torch.addcmul(x, x.flip(0), x, value=0.3),
    "chain": lambda x: (x * 0.1 + 0.3) * x - 0.7,
    "normalised": lambda x: (x - 0.485) / 0.229,
}
ROUGH = 1e-3  # of all elements, that functions may round to the other side


def check(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    """Eager's values, but for ROUGH of them."""
    torch._dynamo.reset()
    made, expected = torch.compile(function, backend="lamina")(x), function(x)
    assert made.dtype == expected.dtype, f"{made.dtype}, eager {expected.dtype}"
    different = ~((made == expected) | (made.isnan() & expected.isnan()))
    assert float(different.float().mean()) <= ROUGH, f"{int(different.sum())} of {x.numel()} differ"
    torch.testing.assert_close(made.float(), expected.float(), rtol=2e-2, atol=1e-2, equal_nan=True)


def main() -> None:
    """All functions in bf16 and f16."""
    torch.manual_seed(0)
    failures = Failures()
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.randn(1 << 18, device="cuda").to(dtype)
        scalars = {
            "a number": 0.1,
            "on the CPU": torch.tensor(0.1),
            "on the GPU": torch.tensor(0.1, device="cuda"),
            "of its dtype": torch.tensor(0.1, device="cuda", dtype=dtype),
            "a tensor": torch.randn(1 << 18, device="cuda").to(dtype),
        }
        for name, f in BINARY.items():
            for kind, scalar in scalars.items():
                if kind == "on the CPU" and name == "maximum":
                    continue
                given = (lambda: torch.tensor(0.1)) if kind == "on the CPU" else lambda scalar=scalar: scalar
                failures.run(f"{name}, {kind}, {dtype}", lambda f=f, g=given, x=x: check(lambda x: f(x, g()), x))
        for name, function in UNARY.items():
            failures.run(f"{name}, {dtype}", lambda f=function, x=x: check(f, x))
    failures.report("rounding")


if __name__ == "__main__":
    main()
