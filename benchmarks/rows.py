"""Row and pointwise functions at 1024 x 1024, f32, under torch.compile: Lamina against eager, two threads.

`python benchmarks/rows.py` writes benchmarks/results/rows.md. A call's time includes Dynamo's own dozen microseconds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timing import interleaved, write

ROWS, COLUMNS = 1024, 1024


def main() -> None:
    torch.set_num_threads(2)
    x, weight, bias = torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS), torch.randn(COLUMNS)
    functions = {
        "softmax": lambda x, w, b: torch.softmax(x, -1),
        "layer_norm": lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b),
        "gelu": lambda x, w, b: F.gelu(x),
        "x + 1": lambda x, w, b: x + 1,
        "sum of rows": lambda x, w, b: x.sum(-1),
        "largest of rows": lambda x, w, b: x.amax(-1),
        "gelu(x + b) / 2 + tanh(x)": lambda x, w, b: F.gelu(x + b) * 0.5 + torch.tanh(x),
    }
    lines = ["| function | Lamina µs | eager µs | eager / Lamina |", "|---|---|---|---|"]
    for name, function in functions.items():
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="lamina")
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, weight, bias), function(x, weight, bias))
            t = interleaved(
                {"ours": lambda c=compiled: c(x, weight, bias), "eager": lambda f=function: f(x, weight, bias)}, 2.0
            )
        ours, eager = t["ours"].median, t["eager"].median
        lines.append(f"| {name} | {ours * 1e6:.0f} | {eager * 1e6:.0f} | {eager / ours:.2f} |")
    write("rows", f"Rows of {ROWS} x {COLUMNS} f32", "python benchmarks/rows.py", lines)


if __name__ == "__main__":
    main()
