"""Products and casts of 8-bit floats on a GPU against eager (cuBLASLt) and Inductor: python benchmarks/gpu_float8.py [--inductor] [--json F]

`scaled` is `torch._scaled_mm` in e4m3 with a scale a tensor and a result of bf16; `rows` has scales of rows and columns;
`fast` lets eager keep its sums in the few bits of the tensor cores (`use_fast_accum`), which we do not.
Each line is checked first against float64; then CUDA graphs are replayed in turn, as in gpu_matmul.py.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gpu_timing import CACHE, Captured, Tensors, by_group, error, interleaved, moved, save

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ATTEMPTS = 4  # calls in a graph, at least


@dataclass(frozen=True)
class Case:
    """A product, or (K 0) the cast of M x N elements; `kind` names a function of KINDS."""

    kind: str
    m: int
    n: int
    k: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind} {self.m} x {self.n}" + (f" x {self.k}" if self.k else "")


def scaled(
    a: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor, fast: bool = False, dtype: Any = torch.bfloat16
) -> torch.Tensor:
    """A layer of 8-bit activations and weights."""
    return torch._scaled_mm(a, w.t(), s, t, out_dtype=dtype, use_fast_accum=fast)


def exact(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    return a.double() @ w.double().t() * s.double() * t.double()


def product_operands(case: Case, rows: bool = False, first: torch.dtype = E4M3) -> Tensors:
    """Random factors and scales."""
    a, w = (torch.randn(n, case.k, device="cuda").to(d) for n, d in ((case.m, first), (case.n, E4M3)))
    shapes = ((case.m, 1), (1, case.n)) if rows else ((), ())
    return [a, w, *(torch.rand(shape, device="cuda") + 0.5 for shape in shapes)]


def cast_operand(case: Case, dtype: torch.dtype) -> Tensors:
    """Random elements."""
    return [torch.randn(case.m, case.n, device="cuda").to(dtype)]


# kind: function, the same in float64 (None: bit for bit as eager), operands
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None, Callable[[Case], Tensors]]] = {
    "scaled": (scaled, exact, product_operands),
    "fast": (functools.partial(scaled, fast=True), exact, product_operands),
    "rows": (scaled, exact, functools.partial(product_operands, rows=True)),
    "e5m2": (scaled, exact, functools.partial(product_operands, first=E5M2)),
    "bf16 to e4m3": (lambda x: x.to(E4M3), None, functools.partial(cast_operand, dtype=torch.bfloat16)),
    "f32 to e5m2": (lambda x: x.to(E5M2), None, functools.partial(cast_operand, dtype=torch.float32)),
    "e4m3 to bf16": (lambda x: x.to(torch.bfloat16), None, functools.partial(cast_operand, dtype=E4M3)),
    "quantise": (
        lambda x: (x * 0.3).clamp(-448, 448).to(E4M3), None, functools.partial(cast_operand, dtype=torch.bfloat16),
    ),
}  # fmt: skip
SQUARE = tuple(Case("scaled", n, n, n) for n in (512, 1024, 2048, 4096, 8192))
FAST = tuple(Case("fast", n, n, n) for n in (1024, 4096, 8192))
OTHERS = (
    Case("rows", 4096, 4096, 4096),
    Case("e5m2", 4096, 4096, 4096),
    Case("scaled", 16, 4096, 4096),
    Case("scaled", 64, 14336, 4096),
    Case("scaled", 2048, 5632, 2048),
    Case("rows", 2048, 4096, 14336),
    Case("scaled", 1024, 50256, 768),
)
CASTS = tuple(Case(kind, 8192, 8192) for kind in ("bf16 to e4m3", "f32 to e5m2", "e4m3 to bf16", "quantise"))


def measure(case: Case, inductor: bool) -> dict[str, Any]:
    """One line of the table; an AssertionError if ours is wrong."""
    torch._dynamo.reset()
    function, wide, operands = KINDS[case.kind]
    first = operands(case)
    ours = torch.compile(function, backend="lamina", dynamic=False)
    systems: dict[str, Callable[..., Any]] = {"lamina": ours, "eager": function}
    made, eager = ours(*first), function(*first)
    errors = [error(y, wide(*first) if wide else eager.double()) for y in (made, eager)]
    assert errors[0] <= (2 * errors[1] if wide else 0), f"error {errors[0]:.1e}, eager's {errors[1]:.1e}"
    if inductor:
        systems["inductor"] = torch.compile(function, backend="inductor", dynamic=False)
    size, work = moved(first, made), 2 * case.m * case.n * case.k
    sets = [first, *(operands(case) for _ in range(min(5, CACHE // size)))]
    calls = max(ATTEMPTS, min(40, int(2e-3 / (work / 1e15 + size / 4e12 + 2e-6))))
    times = interleaved({n: Captured(f, sets, calls) for n, f in systems.items()}, rounds=9)
    best = min(t for n, t in times.items() if n != "lamina")
    rate = f"{work / times['lamina'] / 1e6:.0f} TFLOPS" if work else f"{size / times['lamina'] / 1e3:.0f} GB/s"
    return {
        "case": case.name,
        "us": {n: round(t, 2) for n, t in times.items()},
        "rate": rate,
        "against eager": round(times["eager"] / times["lamina"], 3),
        "against best": round(best / times["lamina"], 3),
        "error": errors[0],
        "eager error": errors[1],
    }


def shown(line: dict[str, Any]) -> str:
    """A line for people."""
    times = "  ".join(f"{n} {t:8.2f}" for n, t in line["us"].items())
    ratio = f"of eager {line['against eager']:.2f}  of best {line['against best']:.2f}"
    return f"{line['case']:30}{times}  {line['rate']}  {ratio}  error {line['error']:.1e}, eager's {line['eager error']:.1e}"


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="", help="groups: square, fast, others, casts")
    given = parser.parse_args()
    import lamina
    import lamina.frontend.dynamo  # noqa: F401

    print(torch.cuda.get_device_name(0), torch.__version__)
    groups = {"square": SQUARE, "fast": FAST, "others": OTHERS, "casts": CASTS}
    lines = []
    for group, found in by_group(groups, given.only, functools.partial(measure, inductor=given.inductor), shown):
        lines += found
        if found:
            geomean = math.exp(sum(math.log(line["against eager"]) for line in found) / len(found))
            print(f"{group}: geomean {geomean:.3f} of eager", flush=True)
    print(lamina.stats()["fallback"], lamina.stats()["failures"])
    save(given.json, lines)


if __name__ == "__main__":
    main()
