"""Matrix products on a GPU against cuBLAS (eager) and Inductor: python benchmarks/gpu_matmul.py [--inductor] [--json F]

With `--target sm_80` products are by `mma.sync`, as on GPUs before Hopper; against cuBLAS's own choice for this GPU.
Each line is checked first: outputs against float64 on random inputs, in memory that held NaN, and two runs to the bit.
Then CUDA graphs of all systems are replayed in turn on as many input sets as overflow the cache; medians of rounds.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from gpu_timing import CACHE, Captured, Tensors, by_group, error, interleaved, moved, save

ATTEMPTS = 4  # calls in a graph, at least


@dataclass(frozen=True)
class Case:
    """A product: `kind` names a function of KINDS, sizes are of one product."""

    kind: str
    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    batch: int = 1
    tf32: bool = False  # allowed, to both

    @property
    def name(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{self.kind} {batch}{self.m} x {self.n} x {self.k} {'tf32' if self.tf32 else self.dtype}"


def gelu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A layer of a transformer's MLP."""
    return F.gelu(F.linear(x, w, b), approximate="tanh")


def swiglu(x: torch.Tensor, w: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """With a second operand of the result's shape."""
    return F.silu(F.linear(x, w)) * gate


# kind: (function, operands: a is [M, K], A [K, M], w [N, K], b [K, N], v [N], y [M, N])
KINDS: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "linear": (lambda x, w: F.linear(x, w), "aw"),
    "matmul": (lambda x, y: x @ y, "ab"),
    "transposed": (lambda x, y: x.t() @ y, "Ab"),
    "linear+bias": (lambda x, w, v: F.linear(x, w, v), "awv"),
    "gelu": (gelu, "awv"),
    "swiglu": (swiglu, "awy"),
    "residual": (lambda x, w, v, y: F.linear(x, w, v) + y, "awvy"),
}
SQUARE = tuple(Case(kind, n, n, n) for n in (512, 1024, 2048, 4096, 8192) for kind in ("linear", "matmul"))
FEW_ROWS = tuple(Case("linear", m, n, k) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336)) for m in (1, 16, 64))
OTHERS = (
    Case("linear", 4096, 4096, 4096, "float16"),
    Case("transposed", 4096, 4096, 4096),
    Case("matmul", 1024, 1024, 1024, batch=32),
    Case("linear", 4097, 4099, 4098),
    Case("linear+bias", 1000, 776, 520),
    Case("matmul", 4096, 4104, 4096),
    Case("linear+bias", 2048, 5632, 2048),
    Case("linear+bias", 1024, 3072, 768),
    Case("linear+bias", 1024, 768, 3072),
    Case("linear", 300, 50257, 768),
    Case("linear", 1024, 50257, 768),
)
# the layers of ViT-B (32 images), and of BERT-base (32 x 128 tokens): a last wave that is not full
LAYERS = tuple(
    Case("linear+bias", m, n, k) for m in (6304, 4096) for n, k in ((768, 768), (2304, 768), (3072, 768), (768, 3072))
)
FUSED = (
    Case("gelu", 4096, 4096, 4096),
    Case("swiglu", 2048, 5632, 2048),
    Case("residual", 2048, 2048, 5632),
)
WIDE = (
    Case("matmul", 4096, 4096, 4096, "float32"),
    Case("linear", 2048, 2048, 2048, "float32"),
    Case("linear+bias", 1024, 1024, 1024, "float32"),
    Case("linear+bias", 128, 768, 768, "float32"),
    Case("linear", 1, 4096, 4096, "float32"),
    Case("linear", 16, 4096, 4096, "float32"),
    Case("matmul", 256, 256, 256, "float32"),
    Case("matmul", 128, 128, 64, "float32", batch=48),
)
TF32 = (
    Case("linear", 4096, 4096, 4096, "float32", tf32=True),
    Case("matmul", 4096, 4096, 4096, "float32", tf32=True),
    Case("transposed", 4096, 4096, 4096, "float32", tf32=True),
    Case("linear+bias", 2048, 2048, 2048, "float32", tf32=True),
    Case("linear+bias", 1024, 1024, 1024, "float32", tf32=True),
    Case("linear+bias", 4096, 3072, 768, "float32", tf32=True),
    Case("linear", 1000, 1001, 1003, "float32", tf32=True),
    Case("linear", 16, 4096, 4096, "float32", tf32=True),
    Case("matmul", 256, 256, 256, "float32", tf32=True),
    Case("matmul", 128, 128, 64, "float32", batch=48, tf32=True),
)


def operands(case: Case) -> Tensors:
    """Random operands."""
    c = case
    batch = (c.batch,) if c.batch > 1 else ()
    shapes = {"a": (c.m, c.k), "A": (c.k, c.m), "w": (c.n, c.k), "b": (c.k, c.n), "v": (c.n,), "y": (c.m, c.n)}
    dtype = getattr(torch, c.dtype)
    return [torch.randn(batch + shapes[n], device="cuda").to(dtype) for n in KINDS[c.kind][1]]


def check(case: Case, compiled: Callable[..., torch.Tensor], given: Tensors) -> tuple[float, float]:
    """Our error and eager's against float64; an AssertionError if ours is wrong."""
    function = KINDS[case.kind][0]
    eager = function(*given)
    exact = function(*[t.double() for t in given])
    poison = torch.full_like(eager, math.nan)
    del poison  # the allocator gives this memory to the result
    made = compiled(*given)
    again = compiled(*given)
    assert torch.equal(made, again), f"{case.name}: two runs differ"
    errors = error(made, exact), error(eager, exact)
    assert errors[0] <= max(2 * errors[1], 1e-7), f"{case.name}: error {errors[0]:.1e}, eager's {errors[1]:.1e}"
    return errors


def measure(case: Case, inductor: bool, target: str) -> dict[str, Any]:
    """One line of the table."""
    torch._dynamo.reset()
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    function, first = KINDS[case.kind][0], operands(case)
    ours = torch.compile(function, backend="lamina", dynamic=False, options={"target": target})
    systems: dict[str, Callable[..., Any]] = {"lamina": ours}
    with torch.no_grad():
        started = time.perf_counter()
        result = systems["lamina"](*first)
        seconds = time.perf_counter() - started
        errors = check(case, systems["lamina"], first)
        size = moved(first, result)
        sets = [first, *(operands(case) for _ in range(min(5, CACHE // size)))]
        systems["eager"] = function
        if inductor:
            systems["inductor"] = torch.compile(function, backend="inductor", dynamic=False)
        work = 2 * case.m * case.n * case.k * case.batch
        calls = max(ATTEMPTS, min(40, int(2e-3 / (work / 5e14 + size / 4e12 + 2e-6))))
        times = interleaved({n: Captured(f, sets, calls) for n, f in systems.items()}, rounds=9)
    best = min(t for n, t in times.items() if n != "lamina")
    return {
        "case": case.name,
        "us": {n: round(t, 2) for n, t in times.items()},
        "tflops": round(work / times["lamina"] / 1e6, 1),
        "against eager": round(times["eager"] / times["lamina"], 3),
        "against best": round(best / times["lamina"], 3),
        "error": errors[0],
        "eager error": errors[1],
        "compile s": round(seconds, 2),
    }


def shown(line: dict[str, Any]) -> str:
    """A line for people."""
    times = "  ".join(f"{n} {t:8.2f}" for n, t in line["us"].items())
    ratio = f"of eager {line['against eager']:.2f}  of best {line['against best']:.2f}"
    errors = f"error {line['error']:.1e}, eager's {line['eager error']:.1e}"
    return f"{line['case']:42}{times}  {ratio}  {errors}"


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="", help="groups: square, rows, others, layers, fused, wide, tf32")
    parser.add_argument("--target", default="native")
    given = parser.parse_args()
    import lamina
    import lamina.frontend.dynamo  # noqa: F401

    print(torch.cuda.get_device_name(0), torch.__version__)
    groups = {"square": SQUARE, "rows": FEW_ROWS, "others": OTHERS, "layers": LAYERS, "fused": FUSED, "wide": WIDE}
    groups["tf32"] = TF32
    lines = []
    one = functools.partial(measure, inductor=given.inductor, target=given.target)
    for group, found in by_group(groups, given.only, one, shown):
        lines += found
        ratios = [math.log(l["against eager"]) for l in found]
        if ratios:
            print(f"{group}: geomean {math.exp(sum(ratios) / len(ratios)):.3f} of eager", flush=True)
    print(lamina.stats()["fallback"], lamina.stats()["failures"])
    save(given.json, lines)


if __name__ == "__main__":
    main()
