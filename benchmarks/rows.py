"""Row, column and pointwise functions of 1024 x 1024 elements, f32, under torch.compile: Lamina against eager, two threads.

`python benchmarks/rows.py` writes benchmarks/results/rows.md. A call's time includes Dynamo's own: a dozen microseconds,
and twice that where the function has just gone through the caches; eager itself takes 35 for a sum of rows. On a busy
machine it is several times that. So the table has the time of what Dynamo calls, too, which is all that a backend decides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from timing import interleaved, write
from torch import fx
from torch._dynamo import lookup_backend

ROWS, COLUMNS = 1024, 1024
SECONDS = 0.5  # per function

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


def entry(function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> Callable[[], object]:
    """The call that Dynamo makes after its guards when the compiled `function` is called with `inputs`."""
    made: list[Callable[[], object]] = []

    def recording(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        compiled = lookup_backend("lamina")(graph, list(examples))

        def call(*args: Any) -> Any:
            made.append(functools.partial(compiled, *args))
            return compiled(*args)

        return call

    torch._dynamo.reset()
    torch.compile(function, backend=recording)(*inputs)
    return made[0]


def row(name: str, function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> str:
    """One line of the table."""
    with torch.no_grad():
        call = entry(function, inputs)
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="lamina")
        # sums near zero differ by as much as the order of their terms makes them
        rtol = 2e-2 if inputs is HALF else 1e-4
        torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=rtol, atol=1e-3)
        calls = {"ours": lambda: compiled(*inputs), "entry": call, "eager": lambda: function(*inputs)}
        ours, alone, eager = (t.median * 1e6 for t in interleaved(calls, SECONDS).values())
    return f"| {name} | {ours:.0f} | {alone:.0f} | {eager:.0f} | {eager / ours:.2f} | {eager / alone:.2f} |"


def main() -> None:
    torch.set_num_threads(2)
    lines = [
        "| function | Lamina µs | without Dynamo | eager µs | eager / Lamina | without Dynamo |",
        "|---|---|---|---|---|---|",
    ]
    lines += [row(name, function, inputs) for name, (function, inputs) in FUNCTIONS.items()]
    write("rows", f"Rows of {ROWS} x {COLUMNS}", "python benchmarks/rows.py", lines)


if __name__ == "__main__":
    main()
