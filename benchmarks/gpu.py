"""Row, pointwise and reduction kernels on an NVIDIA GPU beside eager and Inductor, in microseconds.

    python benchmarks/gpu.py [--inductor] [--json results.json] [--only softmax] [--shapes 8192x4096,64x4096]

Each case is checked against float64 first. A function is captured into a CUDA graph of several calls, so that launch
overhead does not count, on as many input sets as overflow the cache; replays of all systems are interleaved, and the
median of rounds is shown. `copy` is the share of a device-to-device copy's bandwidth, by bytes read and written.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gpu_timing import CACHE, Captured, Tensors, attempt, error, interleaved, moved, save


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """With f32 statistics, as in language models."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w


def batch_norm(x: torch.Tensor, m: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Of inference: channels are rows, as of one image."""
    return F.batch_norm(x[None], m, m.square() + 1, n, m)[0]


def max_pool(x: torch.Tensor) -> torch.Tensor:
    """Rows are square images."""
    side = math.isqrt(x.shape[1])
    return F.max_pool2d(x.view(1, -1, side, side), 3, 2, 1)


# name: (function, operands by name: x and y are matrices, w and v rows, m and n columns, i classes, j numbers of rows)
CASES: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "add": (lambda x, y: x + y, "xy"),
    "silu_mul": (lambda x, y: F.silu(x) * y, "xy"),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), "x"),
    "softmax": (lambda x: F.softmax(x, -1), "x"),
    "layer_norm": (lambda x, w, v: F.layer_norm(x, x.shape[-1:], w, v), "xwv"),
    "rms_norm": (rms_norm, "xw"),
    "cross_entropy": (lambda x, i: F.cross_entropy(x.float(), i), "xi"),
    "column_sum": (lambda x: x.sum(0), "x"),
    "transpose": (lambda x: x.t().contiguous(), "x"),
    "row_sum": (lambda x: x.sum(-1), "x"),
    "sum_all": (lambda x: x.sum(), "x"),
    "argmax": (lambda x: x.argmax(-1), "x"),
    "middle_sum": (lambda x: x.view(-1, 64, x.shape[1]).sum(1), "x"),
    "two_sums": (lambda x, y: x.sum(0) + (x * y).sum(0), "xy"),  # as of a norm's gradients
    "embedding": (lambda x, j: F.embedding(j, x), "xj"),
    "concat": (lambda x, y: torch.cat([x, y], -1), "xy"),
    "batch_norm": (batch_norm, "xmn"),
    "max_pool": (max_pool, "x"),
}
SHAPES = ("64x4096", "8192x4096", "8192x4097", "32768x1024")
SQUARES = ("max_pool",)  # which need rows of a square's length


def operands(names: str, rows: int, columns: int, dtype: torch.dtype) -> Tensors:
    """Random operands."""
    floats = dict.fromkeys("xy", (rows, columns)) | dict.fromkeys("wv", (columns,)) | dict.fromkeys("mn", (rows,))
    integers = {"i": columns, "j": rows}
    return [
        torch.randn(floats[n], device="cuda").to(dtype)
        if n in floats
        else torch.randint(0, integers[n], (rows,), device="cuda")
        for n in names
    ]


def measure(name: str, rows: int, columns: int, dtype: torch.dtype, inductor: bool) -> dict[str, Any]:
    """One line of the table."""
    function, names = CASES[name]
    found = compared(name, function, lambda: operands(names, rows, columns, dtype), inductor)
    return {"case": name, "shape": f"{rows}x{columns}", "dtype": str(dtype).removeprefix("torch."), **found}


def compared(
    name: str, function: Callable[..., torch.Tensor], make: Callable[[], Tensors], inductor: bool
) -> dict[str, Any]:
    """`function` on sets of operands that `make` gives, in all systems, and a copy of as many bytes."""
    torch.manual_seed(0)  # else the sum of everything is close to zero now and then, and its error large
    first = make()
    torch._dynamo.reset()
    systems: dict[str, Callable[..., Any]] = {"lamina": torch.compile(function, backend="lamina", dynamic=False)}
    with torch.no_grad():
        started = time.perf_counter()
        made = systems["lamina"](*first)
        seconds = time.perf_counter() - started
        exact = function(*[t.double() if t.is_floating_point() else t for t in first])
        eager = function(*first)
        errors = error(made, exact), error(eager, exact)
        assert errors[0] <= max(2 * errors[1], 2e-6), f"{name}: error {errors[0]:.1e}, eager's {errors[1]:.1e}"
        size = moved(first, made)
        del exact, eager, made
        count = max(1, min(8, CACHE // max(size, 1) + 1))
        sets = [first, *(make() for _ in range(count - 1))]
        calls = 20 if size < 64 * 2**20 else 4
        systems["eager"] = function
        if inductor:
            systems["inductor"] = torch.compile(function, backend="inductor", dynamic=False)
        half = -(-size // 8192) * 4096  # a copy of an odd size takes up to 1.5 times as long
        flat = torch.empty(half, dtype=torch.uint8, device="cuda")
        copies = [(torch.empty_like(flat), torch.empty_like(flat)) for _ in range(count)]
        systems_captured = {n: Captured(f, sets, calls) for n, f in systems.items()}
        systems_captured["copy"] = Captured(lambda a, b: a.copy_(b), copies, calls)
        times = interleaved(systems_captured)
    best = min(t for n, t in times.items() if n in ("eager", "inductor"))
    return {
        "us": {n: round(t, 2) for n, t in times.items()},
        "copy": round(times["copy"] / times["lamina"], 3),
        "against best": round(best / times["lamina"], 3),
        "error": errors[0],
        "compile s": round(seconds, 2),
    }


# name: (backend, mode); `noop` gives an argument back and so costs what Dynamo costs
OVERHEAD = {
    "noop": ("noop", None),
    "lamina": ("lamina", None),
    "lamina, no graphs": ("lamina", "max-autotune-no-cudagraphs"),
    "inductor": ("inductor", None),
    "inductor, reduce-overhead": ("inductor", "reduce-overhead"),
}


def attempted(title: str, dtype: torch.dtype, measure: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """The line that `measure` makes, which is printed behind `title`; none where it fails."""
    line = attempt(f"{' '.join(title.split())} {dtype}", measure)
    if line is None:
        return []
    times = "  ".join(f"{n} {t:8.2f}" for n, t in line["us"].items())
    ratios = f"of copy {line['copy']:.2f}  against best {line['against best']:.2f}"
    print(f"{title}{line['dtype']:9}{times}  {ratios}", flush=True)
    return [line]


def overhead() -> None:
    """CPU time of issuing a call whose kernels the device runs faster than they are issued, on three inputs in turn."""
    from torch._dynamo.backends.registry import register_backend

    register_backend(lambda gm, inputs, **options: lambda *args: (args[0],), name="noop")
    w = torch.randn(96, device="cuda")
    inputs = [torch.randn(64, 96, device="cuda") for _ in range(3)]

    def chain(kernels: int) -> Callable[..., torch.Tensor]:
        def one(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return x * w + 1

        def many(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            for i in range(kernels):
                x = torch.softmax(x * w, i % 2)  # over another dim each time: they do not fuse
            return x

        return one if kernels == 1 else many

    for kernels in (1, 8):
        torch._dynamo.reset()
        compiled = {
            n: torch.compile(chain(kernels), backend=b, mode=m, dynamic=False) for n, (b, m) in OVERHEAD.items()
        }
        rounds: dict[str, list[float]] = {n: [] for n in compiled}
        with torch.no_grad():
            for number in range(12):
                for name, f in compiled.items():
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                    for i in range(100):
                        f(inputs[i % 3], w)
                    if number:  # the first compiles
                        rounds[name].append((time.perf_counter() - start) * 1e4)
        print(
            f"issuing {kernels} kernels, us: { {n: round(statistics.median(t), 1) for n, t in rounds.items()} }",
            flush=True,
        )


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    given = parser.parse_args()
    import lamina.frontend.dynamo  # noqa: F401

    print(torch.cuda.get_device_name(0), torch.__version__)
    if given.overhead:
        overhead()
    lines = []
    for name in CASES:
        if given.only and name not in given.only.split(","):
            continue
        for shape in given.shapes.split(","):
            rows, columns = map(int, shape.split("x"))
            if name in SQUARES and math.isqrt(columns) ** 2 != columns:
                continue
            for dtype in (torch.float32, torch.bfloat16):
                one = functools.partial(measure, name, rows, columns, dtype, given.inductor)
                lines += attempted(f"{name:14}{shape:12}", dtype, one)
    save(given.json, lines)


if __name__ == "__main__":
    main()
