"""One architecture of this folder under torch.compile against eager: `python survey.py NAME…` prints one JSON line each.

{"model", "verdict", "error", "eager", "detail", "graphs", "breaks", "fallback", "failures", "kernels", "plain", "seconds"}.
"verdict" is "right" by the rule of examples/models/accuracy.py, "wrong", "raises" (eager does not), or "absent" where this
version of transformers lacks the class. "breaks" are Dynamo's reasons, "seconds" those of the first call: capture and
compilation. Each name is run in the process that is given it; the cache on disk decides whether kernels are compiled.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does
from support.models import compare, doubled, flat  # noqa: E402

import lamina  # noqa: E402
from architectures import WIDER, Subject  # noqa: E402
from lamina.frontend.stats import COUNTERS  # noqa: E402


def survey(name: str, device: str = "cpu") -> dict[str, Any]:
    """The report of one architecture on a device."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    COUNTERS.reset()
    report: dict[str, Any] = {"model": name, "verdict": "right", "detail": ""}
    try:
        subject = WIDER[name]().to(device)
    except AttributeError as error:
        return report | {"verdict": "absent", "detail": str(error)}
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        eager, exact = results(subject, subject.module), results(subject, precise(subject.module))
        compiled = copy.deepcopy(subject.module)
        if subject.inside:
            compiled.compile(backend="lamina")
        else:
            compiled = torch.compile(compiled, backend="lamina")
        start = time.perf_counter()
        try:
            got = [results(subject, compiled)]
            report["seconds"] = round(time.perf_counter() - start, 1)
            got.append(results(subject, compiled))
        except Exception as error:
            return report | {"verdict": "raises", "detail": f"{type(error).__name__}: {error}"[:300]} | counted()
    found = [compare(g, eager, exact) for g in got]
    faults = [fault for f in found for fault in f.faults]
    report |= {"error": max(f.error for f in found), "eager": found[0].eager} | counted()
    return report | ({"verdict": "wrong", "detail": "; ".join(faults)[:300]} if faults else {})


def results(subject: Subject, module: torch.nn.Module) -> list[torch.Tensor]:
    """What the call returns, in float64 if the module is."""
    wide = next(module.parameters()).dtype == torch.float64
    given = {k: doubled(v) if wide else v for k, v in subject.arguments.items()}
    return [t.clone() for t in flat(subject.call(module, **given))]


def precise(module: torch.nn.Module) -> torch.nn.Module:
    """A float64 copy; experts are called one by one, since torch has no grouped product of float64."""
    wide = copy.deepcopy(module).double()
    if hasattr(wide, "set_experts_implementation"):
        wide.set_experts_implementation("eager")
    return wide


def counted() -> dict[str, Any]:
    """What `lamina.stats()` says of the models since they were last reset."""
    stats = lamina.stats()
    return {
        "graphs": stats["graphs"],
        "breaks": stats["graph_breaks"],
        "fallback": {op: entry["count"] for op, entry in stats["fallback"].items()},
        "failures": stats["failures"],
        "kernels": stats["kernels"],
        "plain": stats["plain_kernels"],
    }


def main(names: list[str]) -> None:
    """Print the reports of `names`, or of all."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    for name in names or WIDER:
        print(json.dumps(survey(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
