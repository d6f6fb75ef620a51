"""On a machine with an NVIDIA GPU: random torch programs against eager. `python tests/gpu/run_programs.py [FIRST [COUNT]]`.

The programs of tests/frontend/random_programs.py, with gradients in every third: values, dtypes, strides and what is written to
inputs. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frontend.random_programs import Program
from support.device import Failures

import lamina
import lamina.frontend.dynamo  # noqa: F401

FIRST, COUNT = 72441, 150


def called(function: Any, inputs: list[torch.Tensor], grad: bool) -> list[torch.Tensor]:
    """Results, what the inputs hold afterwards, and gradients."""
    given = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    with torch.set_grad_enabled(grad):
        results = list(function(*given))
    found = [*results, *given]
    roots = [r.square().sum() for r in results if r.requires_grad]
    if roots:
        torch.stack(roots).sum().backward()
        found += [x.grad for x in given if x.grad is not None]
    return found


def strides(x: torch.Tensor) -> list[int]:
    """Those that say where elements lie."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1] if x.numel() else []


def check(seed: int) -> None:
    """One program."""
    torch._dynamo.reset()
    grad = seed % 3 == 2
    program = Program(seed, grad=grad)
    try:
        expected = called(program.function, program.inputs, grad)
        made = called(torch.compile(program.function, backend="lamina"), program.inputs, grad)
        assert len(made) == len(expected), "other gradients"
        for m, e in zip(made, expected):
            assert strides(m) == strides(e), f"strides {m.stride()}, eager {e.stride()}"
            torch.testing.assert_close(
                m, e, rtol=1e-4, atol=1e-4 * (1 + float(e.detach().double().abs().max()) if e.numel() else 1)
            )
    except Exception as error:
        raise type(error)(f"{error}\n{program.source}") from None


def main() -> None:
    """COUNT programs from seed FIRST on."""
    given = [int(a) for a in sys.argv[1:] if a.isdigit()]
    first, count = [*given, *(FIRST, COUNT)[len(given) :]][:2]
    torch.set_default_device("cuda")
    failures = Failures()
    for seed in range(first, first + count):
        failures.run(f"program {seed}", lambda s=seed: check(s))
    failures.report("random programs")
    print(lamina.stats())


if __name__ == "__main__":
    main()
