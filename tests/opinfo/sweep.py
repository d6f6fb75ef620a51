"""torch's own OpInfo samples under a backend, against eager: `python sweep.py [OP …]`.

Prints one JSON line per op: {"op", "verdict", "graphs", "compiled", "eager", "fallback", "detail", "seconds"}. A verdict
is "right", "wrong", "raises" (eager does not), or "frontend" where `aot_eager`, the same plumbing with no compiler behind
it, fails alike. `graphs` came to the backend, with `compiled` and `eager` nodes; `fallback` names what ran in eager, with
the reason. Ops run in the order given.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import time
import warnings
from functools import partial
from typing import Any

import torch
import torch._dynamo
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
# results of these hold whatever was in memory: only their types are compared
UNDEFINED = ("empty", "resize_")
# Eager leaves the order of equal elements open: of these ops' indices, what they select is compared. The number of `dim`.
TIES = {"argsort": 0, "sort": 0, "topk": 1}


def op_name(op) -> str:
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def leaves(value):
    return tree_flatten(value)[0]


def fresh(value):
    return tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, value)


def widened(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def same(got, want, values: bool = True, exact=None) -> str:
    """'' if equal within dtype tolerances (of type only, without `values`), else what differs.

    `exact()` gives the results in float64: values that are as near to them as eager's are right too.
    """
    a, b = leaves(got), leaves(want)
    if len(a) != len(b):
        return f"{len(a)} results, eager gives {len(b)}"
    for i, (x, y) in enumerate(zip(a, b)):
        try:
            if not values and isinstance(x, torch.Tensor):
                x, y = torch.empty_like(x).zero_(), torch.empty_like(y).zero_()
            torch.testing.assert_close(x, y, equal_nan=True)
        except AssertionError as error:
            if exact is None or not as_near(x, y, leaves(exact())[i]):
                return f"result {i}: {' '.join(str(error).split())[:200]}"
        if isinstance(y, torch.Tensor) and y.layout == torch.strided and steps(x) != steps(y):
            return f"result {i}: strides {x.stride()}, eager gives {y.stride()}"
    return ""


def steps(x) -> list[int]:
    """The strides that matter: of dims with more than one element, in a tensor with some."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1] if x.numel() else []


def as_near(x, y, exact) -> bool:
    """True if `x` is at most twice as far from `exact` as eager's `y`, give or take 1e-6 of the largest element."""
    if not isinstance(x, torch.Tensor) or (x.shape, x.dtype, x.layout) != (y.shape, y.dtype, y.layout):
        return False
    special = ~y.isfinite()
    if not y.is_floating_point() or not torch.equal(x[special], y[special]):
        return False
    x, y, exact = (t.double()[~special] for t in (x, y, exact))
    return bool((x - exact).abs().max() <= 2 * (y - exact).abs().max() + 1e-6 * exact.abs().max())


def selected(op, sample, result):
    """`result` with indices of equal elements made comparable: replaced by the elements that they select."""
    x, place = sample.input, TIES.get(op.name)
    if place is None or x.dim() == 0 or sample.kwargs.get("stable"):
        return result
    dim = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else -1)
    *values, index = leaves(result)
    return [*values, torch.take_along_dim(x, index, dim)]


def run(op, sample, backend, wide=False):
    def call(x, args, kwargs):
        return op(x, *args, **kwargs)

    compiled = torch.compile(call, backend=backend) if backend else call
    torch.manual_seed(0)
    x, args, kwargs = fresh((sample.input, sample.args, sample.kwargs))
    if wide:
        x, args, kwargs = tree_map(widened, (x, args, kwargs))
    with torch.no_grad():
        return compiled(x, args, kwargs)


def sweep(op, backend: str, dtype: torch.dtype, first: int, count: int) -> dict:
    report = {
        "op": op_name(op),
        "verdict": "right",
        "graphs": 0,
        "compiled": 0,
        "eager": 0,
        "fallback": {},
        "detail": "",
    }
    defined = not any(part in op.name for part in UNDEFINED)
    torch.manual_seed(0)
    samples = op.sample_inputs("cpu", dtype, requires_grad=False)
    for sample in list(itertools.islice(samples, first, first + count)):
        try:
            want = selected(op, sample, run(op, sample, None))
        except Exception:
            continue  # eager refuses the sample
        torch._dynamo.reset()
        before = counters(backend)
        try:
            exact = partial(lambda sample: selected(op, sample, run(op, sample, None, wide=True)), sample)
            got = selected(op, sample, run(op, sample, backend))
            fault, verdict = same(got, want, defined, exact), "wrong"
        except Exception as error:
            fault, verdict = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", "raises"
        for name, amount in counters(backend).items():
            if name in ("graphs", "compiled", "eager"):
                report[name] += amount - before[name]
            elif before.get(name) != amount:
                report["fallback"][name] = amount[1]
        if fault:
            torch._dynamo.reset()
            try:
                ours = not same(selected(op, sample, run(op, sample, "aot_eager")), want, defined)
            except Exception:
                ours = False
            report |= {"verdict": verdict if ours else "frontend", "detail": fault}
            if ours:
                break
    return report


def counters(backend: str) -> dict[str, Any]:
    """Graphs, nodes compiled and nodes in eager so far, and per thing that ran in eager (count, reason)."""
    if backend != "lamina":
        return {"graphs": 0, "compiled": 0, "eager": 0}
    import lamina

    stats = lamina.stats()
    names = {"graphs": "graphs", "compiled": "compiled_nodes", "eager": "eager_nodes"}
    found: dict[str, Any] = {name: stats[key] for name, key in names.items()}
    found |= {op: (entry["count"], entry["reason"]) for op, entry in stats["fallback"].items()}
    for reason, count in stats["graph_breaks"].items():
        first = reason.splitlines()[0]
        found[f"graph break: {first}"] = (count, first)
    if failures := stats["failures"]:
        found["failure"] = (len(failures), " ".join(failures[-1].split())[:300])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="lamina")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("ops", nargs="*")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    known = {op_name(op): op for op in op_db if dtype in op.supported_dtypes("cpu")}
    for name in options.ops or known:
        if name not in known:
            continue  # another torch
        print(json.dumps({"start": name}), flush=True)
        start = time.perf_counter()
        report = sweep(known[name], options.backend, dtype, options.first, options.samples)
        print(json.dumps(report | {"seconds": round(time.perf_counter() - start, 1)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
