"""Row, column and pointwise functions of 1024 x 1024 elements: Lamina against eager, two threads.

`python benchmarks/rows.py [FUNCTION …]` writes benchmarks/results/rows.md, or prints the lines of the functions named.
Lamina is called in two ways: by a function under `torch.compile`, and by the callable of `lamina.compile`. In the first
each call goes through Dynamo: 13 µs after itself, 40 to 60 after a function that has just streamed 8 MB through the
caches, whatever the backend. So the table has eager's kernels called through Dynamo, too (`backend="eager"`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timing import interleaved, write

import lamina

ROWS, COLUMNS = 1024, 1024
SECONDS = 1.0  # per function

X, WEIGHT, BIAS = torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS), torch.randn(COLUMNS)
IMAGES, CHANNELS = torch.randn(8, 128, 32, 32), torch.rand(4, 128) + 0.5
HALF = tuple(t.bfloat16() for t in (X, WEIGHT, BIAS))
CLASSES = torch.randint(0, COLUMNS, (ROWS,))

FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), (X,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), (X, WEIGHT, BIAS)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (COLUMNS,), w), (X, WEIGHT)),
    "softmax, bf16": (lambda x, w, b: torch.softmax(x, -1), HALF),
    "layer_norm, bf16": (lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b), HALF),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), (X, CLASSES)),
    "gelu": (lambda x: F.gelu(x), (X,)),
    "silu": (lambda x: F.silu(x), (X,)),
    "x + 1": (lambda x: x + 1, (X,)),
    "gelu(x + b) / 2 + tanh(x)": (lambda x, b: F.gelu(x + b) * 0.5 + torch.tanh(x), (X, BIAS)),
    "sum of rows": (lambda x: x.sum(-1), (X,)),
    "sum of columns": (lambda x: x.sum(0), (X,)),
    "sum of all": (lambda x: x.sum(), (X,)),
    "largest of rows": (lambda x: x.amax(-1), (X,)),
    "largest of all": (lambda x: x.amax(), (X,)),
    "position of the largest": (lambda x: x.argmax(-1), (X,)),
    "variance of columns": (lambda x: x.var(0), (X,)),
    "cumsum": (lambda x: x.cumsum(-1), (X,)),
    "batch_norm, 8 x 128 x 32 x 32": (lambda x, c: F.batch_norm(x, *c), (IMAGES, CHANNELS)),
    "batch_norm in training": (lambda x, c: F.batch_norm(x, None, None, *c[:2], training=True), (IMAGES, CHANNELS)),
    "group_norm": (lambda x, c: F.group_norm(x, 8, *c[:2]), (IMAGES, CHANNELS)),
    "global average": (lambda x: x.mean((2, 3)), (IMAGES,)),
}


def compiled(
    function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]
) -> dict[str, Callable[[], object]]:
    """What one line of the table times, in the order of its columns; values are checked here."""
    ours = torch.compile(function, backend="lamina")
    code = function.__code__.replace(co_name="wrapped")  # other code: Dynamo keeps it apart
    wrapped = torch.compile(types.FunctionType(code, function.__globals__), backend="eager")
    direct = lamina.compile(function, inputs)
    # sums near zero differ by as much as the order of their terms makes them
    rtol = 2e-2 if inputs is HALF else 1e-4
    for call in (ours, direct, wrapped):
        torch.testing.assert_close(call(*inputs), function(*inputs), rtol=rtol, atol=1e-3)
    return {
        "ours": lambda: ours(*inputs),
        "direct": lambda: direct(*inputs),
        "eager": lambda: function(*inputs),
        "wrapped": lambda: wrapped(*inputs),
    }


def line(name: str, calls: dict[str, Callable[[], object]]) -> str:
    """Time one line of the table."""
    t = {k: v.median * 1e6 for k, v in interleaved(calls, SECONDS).items()}
    times = " | ".join(f"{t[k]:.0f}" for k in calls)
    return f"| {name} | {times} | {t['eager'] / t['ours']:.2f} | {t['eager'] / t['direct']:.2f} |"


def main() -> None:
    torch.set_num_threads(2)
    lines = [
        "| function | torch.compile µs | lamina.compile µs | eager µs | eager under Dynamo µs "
        "| eager / torch.compile | eager / lamina.compile |",
        "|---|---|---|---|---|---|---|",
    ]
    names = sys.argv[1:] or list(FUNCTIONS)
    with torch.no_grad():
        calls = {name: compiled(*FUNCTIONS[name]) for name in names}  # all before the first is timed: workers are busy
        for name in names:
            lines.append(line(name, calls[name]))
            print(lines[-1], flush=True)
    if len(names) == len(FUNCTIONS):
        write("rows", f"Rows of {ROWS} x {COLUMNS}", "python benchmarks/rows.py", lines)


if __name__ == "__main__":
    main()
