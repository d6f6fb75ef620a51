"""Run cases under a backend beside eager and print one JSON line each: `python run.py BACKEND CASE…`."""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import sys
import threading
import time
import warnings
from pathlib import Path

import torch
import torch._dynamo
import torch._inductor.config as inductor_config
import torch.nn as nn

warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).parent.parent))
CASES = importlib.import_module("cases").CASES


def flat(value):
    return [y for x in value for y in flat(x)] if isinstance(value, (list, tuple)) else [value]


def fresh(value):
    """A copy of an argument that nothing else refers to."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        copied = value.detach().clone(memory_format=torch.preserve_format)
        return copied.requires_grad_() if value.requires_grad else copied
    return value


def attempt(case, function, args):
    """('ok', flat results) or ('err', exception type and first line)."""
    args = tuple(fresh(a) for a in args)
    if "seed" in case:
        torch.manual_seed(case["seed"])
    try:
        if "caller" in case:
            out = case["caller"](function)
        else:
            with torch.no_grad() if case.get("nograd") else contextlib.nullcontext():
                out = function(*args)
        if case.get("grad"):
            wanting = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
            flat(out)[0].backward()
            out = (out, [a.grad for a in wanting])
        if case.get("mutated"):
            out = (out, args)
        return "ok", flat(out)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:200]
        return "err", f"{type(error).__name__}: {first}"


def difference(case, eager, compiled) -> str:
    """'same', or what differs."""
    tolerance = case.get("tol", 1e-5)
    if len(eager) != len(compiled):
        return "number of results"
    for i, (a, b) in enumerate(zip(eager, compiled)):
        if not isinstance(a, torch.Tensor):
            if not (a is None and b is None) and a != b and not (isinstance(a, float) and abs(a - b) < 1e-3):
                return f"result {i}: {a} against {b}"
            continue
        if not isinstance(b, torch.Tensor) or a.dtype != b.dtype or a.shape != b.shape:
            return f"type of result {i}"
        if case.get("strides") and a.layout == torch.strided and a.stride() != b.stride():
            return f"strides of result {i}: {a.stride()} against {b.stride()}"
        if a.layout != torch.strided:
            a, b = a.to_dense(), b.to_dense()
        inexact = a.dtype.is_floating_point or a.dtype.is_complex
        if not (torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True) if inexact else torch.equal(a, b)):
            return f"values of result {i}: {a.flatten()[:8].tolist()} against {b.flatten()[:8].tolist()}"
    return "same"


def batch_norm_training(backend) -> bool:
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    ours = copy.deepcopy(eager)
    compiled = torch.compile(ours, backend=backend)
    x = torch.randn(4, 3, 8, 8)
    for _ in range(3):
        eager(x * 2 + 1)
        compiled(x * 2 + 1)
    eager.eval()
    ours.eval()
    return (
        torch.allclose(eager[1].running_mean, ours[1].running_mean, atol=1e-5)
        and torch.allclose(eager[1].running_var, ours[1].running_var, atol=1e-4)
        and eager[1].num_batches_tracked.item() == ours[1].num_batches_tracked.item() == 3
        and torch.allclose(eager(x), compiled(x), atol=1e-4)
    )


def replaced_buffer(backend) -> bool:
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = torch.tensor([0, 0])

        def forward(self, x, p):
            self.cache[p] = x
            return self.cache

    m = Cache()
    f = torch.compile(m, backend=backend)
    f(torch.tensor([2]), torch.tensor([0]))
    m.cache = torch.tensor([0, 0])
    return f(torch.tensor([1]), torch.tensor([1])).tolist() == [0, 1]


def eight_threads(backend) -> bool:
    f = torch.compile(lambda x, y: torch.sin(x) @ torch.cos(y), backend=backend)
    faults = []

    def work(i):
        try:
            x, y = torch.randn(4 + i, 8), torch.randn(8, 3)
            if not torch.allclose(f(x, y), torch.sin(x) @ torch.cos(y), atol=1e-4):
                faults.append("values")
        except Exception as error:
            faults.append(repr(error)[:200])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if faults:
        print(faults[:2], file=sys.stderr)
    return not faults


SPECIAL = {"bn": batch_norm_training, "cache": replaced_buffer, "threads": eight_threads}


def verdict(case, backend) -> str:
    if "special" in case:
        return "same" if SPECIAL[case["special"]](backend) else "different"
    for key, value in case.get("cfg", {}).get("inductor", {}).items():
        setattr(inductor_config, key, value)
    for key, value in case.get("cfg", {}).get("dynamo", {}).items():
        setattr(torch._dynamo.config, key, value)
    torch.manual_seed(0)
    eager_state, eager = attempt(case, *case["make"]())
    torch._dynamo.reset()
    torch.manual_seed(0)
    function, args = case["make"]()
    compiled = torch.compile(function, backend=backend, dynamic=case.get("dynamic"))
    state, result = attempt(case, compiled, args)
    if eager_state == "err":
        # TorchRuntimeError is how Dynamo itself, before any backend, reports what fails on fake tensors
        same_type = state == "err" and result.split(":")[0] in (eager.split(":")[0], "TorchRuntimeError")
        return "same" if same_type else f"eager raises {eager!r}, compiled gives {result!r}"
    if state == "err":
        return f"raises {result}"
    return difference(case, eager, result)


def main(backend: str, names: list[str]) -> None:
    for name in names:
        start = time.time()
        try:
            result = verdict(CASES[name], backend)
        except Exception as error:
            result = f"raises {type(error).__name__}: {error}"
        print(json.dumps({"case": name, "verdict": result, "seconds": round(time.time() - start, 1)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or list(CASES))
