"""What benchmarks share in which each model has a process of its own: its caches, its model, its answers, a line each, and its counts."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_CACHES = ("LAMINA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def own_caches(folder: Path) -> dict[str, str]:
    """This process's environment, with the caches of all compilers in `folder`."""
    return {**os.environ, **{name: str(folder / name.lower()) for name in _CACHES}}


def answers() -> IO[str]:
    """Stdout for answers alone: what libraries print goes to stderr from now on."""
    kept = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return kept


def line_within(stream: IO[str], seconds: float) -> str | None:
    """The next line of a process's stdout: None if it is late, "" if the process has ended."""
    return stream.readline() if select.select([stream], [], [], max(0, seconds))[0] else None


def make_model(path: str, arguments: Mapping[str, Any], device: str) -> tuple[Any, Any]:
    """A model of examples/models (`language.bert_base`) and its inputs, the same in every process."""
    import torch

    sys.path[0] = str(EXAMPLES)  # not the script's folder: transformers would take kernels.py for a package
    import models

    torch.manual_seed(0)
    module, maker = path.split(".")
    with torch.device(device):
        return getattr(getattr(models, module), maker)(**arguments)


def zoo_model(name: str) -> tuple[Any, Any]:
    """A model of the zoo by its name, and its inputs, the same in every process."""
    import torch

    sys.path[0] = str(EXAMPLES)  # not the scripts' folder, as above
    from models import ZOO

    torch.manual_seed(0)
    return ZOO[name]()


def counts() -> dict[str, Any]:
    """What `lamina.stats()` counts in this process, and how often each op was left to torch."""
    import lamina

    stats = lamina.stats()
    found = {n: stats[n] for n in ("parts", "kernels", "plain_kernels", "failures", "graph_breaks")}
    return {"fallback": {op: entry["count"] for op, entry in stats["fallback"].items()}, **found}
