"""torch's own OpInfo samples under a backend, against eager: `python sweep.py [--backend lamina] [--samples 2] [OP …]`.

Prints one JSON line per op: {"op", "verdict", "kernels", "fallback", "detail"}. A verdict is "right", "wrong", "raises"
(eager does not), or "frontend" where `aot_eager`, the same plumbing with no compiler behind it, fails alike. `compiled`
is true when the op ran through our code with nothing left to eager.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import sys
import warnings

import torch
import torch._dynamo
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


def op_name(op) -> str:
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def leaves(value):
    return tree_flatten(value)[0]


def fresh(value):
    return tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, value)


def same(got, want) -> str:
    """'' if equal within dtype tolerances, else what differs."""
    a, b = leaves(got), leaves(want)
    if len(a) != len(b):
        return f"{len(a)} results, eager gives {len(b)}"
    for i, (x, y) in enumerate(zip(a, b)):
        try:
            torch.testing.assert_close(x, y, equal_nan=True)
            if isinstance(y, torch.Tensor) and y.layout == torch.strided and x.stride() != y.stride() and y.numel() > 1:
                return f"result {i}: strides {x.stride()}, eager gives {y.stride()}"
        except AssertionError as error:
            return f"result {i}: {' '.join(str(error).split())[:200]}"
    return ""


def run(op, sample, backend):
    def call(x, args, kwargs):
        return op(x, *args, **kwargs)

    torch._dynamo.reset()
    compiled = torch.compile(call, backend=backend) if backend else call
    torch.manual_seed(0)
    x, args, kwargs = fresh((sample.input, sample.args, sample.kwargs))
    with torch.no_grad():
        return compiled(x, args, kwargs)


def sweep(op, backend: str, count: int) -> dict:
    report = {"op": op_name(op), "verdict": "right", "kernels": 0, "fallback": [], "detail": ""}
    torch.manual_seed(0)
    samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=False), count))
    for sample in samples:
        try:
            want = run(op, sample, None)
        except Exception:
            continue  # eager refuses the sample
        before = counters(backend)
        try:
            fault, verdict = same(run(op, sample, backend), want), "wrong"
        except Exception as error:
            fault, verdict = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", "raises"
        after = counters(backend)
        report["kernels"] += after[0] - before[0]
        report["fallback"] = sorted({*report["fallback"], *(k for k, n in after[1].items() if n != before[1].get(k))})
        if fault:
            with contextlib.suppress(Exception):
                if not same(run(op, sample, "aot_eager"), want):
                    return report | {"verdict": verdict, "detail": fault}
            report |= {"verdict": "frontend", "detail": fault}
    return report


def counters(backend: str) -> tuple[int, dict[str, int]]:
    """(kernels compiled so far, eager ops by name so far)."""
    if backend != "lamina":
        return 0, {}
    import lamina

    stats = lamina.stats()
    return stats["kernels"], dict(stats["fallback"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="lamina")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("ops", nargs="*")
    options = parser.parse_args()
    for op in op_db:
        if torch.float32 not in op.supported_dtypes("cpu") or (options.ops and op_name(op) not in options.ops):
            continue
        print(json.dumps({"start": op_name(op)}), flush=True)
        print(json.dumps(sweep(op, options.backend, options.samples)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
