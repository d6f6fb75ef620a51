"""One system with one model in a process: builds it, answers with what that took, then times calls as it is told.

`python -m systems.worker SYSTEM MODEL THREADS FOLDER`, started by peers.py in benchmarks/. It writes FOLDER/SYSTEM.npz (outputs)
and listens at FOLDER/SYSTEM.socket; each span that arrives there is answered by the seconds of the calls that it took.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from model_process import answers, zoo_model

from . import SYSTEMS


def processor_seconds() -> float:
    """What this process and all that it started have used of the processors."""
    me = psutil.Process()
    times = [p.cpu_times() for p in (me, *me.children(recursive=True))]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def build(system: str, model: str, threads: int, folder: Path) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A call of the model, whose outputs it writes, and what building took."""
    made, args = zoo_model(model)
    start, used = time.perf_counter(), processor_seconds()
    call = importlib.import_module(f"systems.{system}").build(made.eval(), args, threads)
    outputs = call()
    facts = {"wall": time.perf_counter() - start, "processor": processor_seconds() - used}
    leaves = torch.utils._pytree.tree_leaves(outputs)
    np.savez(folder / f"{system}.npz", *[np.array(y) for y in leaves if hasattr(y, "shape")])
    return call, facts


def serve(call: Callable[[], Any], listener: Listener) -> None:
    """Answer spans of seconds by the times of calls that fill them, until the other side hangs up.

    As many are made before and not counted: threads that were stopped share one processor until the system moves them.
    """

    def fill(span: float) -> list[float]:
        times, end = [], time.perf_counter() + span
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return times

    with listener.accept() as connection:
        while True:
            try:
                span = connection.recv()
            except EOFError:
                return
            fill(span)
            connection.send(fill(span))


def main() -> None:
    system, model, threads, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    assert system in SYSTEMS
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    stdout = answers()
    with torch.no_grad():
        try:
            call, facts = build(system, model, threads, folder)
        except Exception as error:  # whatever a system cannot do is a line of the table
            traceback.print_exc()
            reason = (str(error).strip() or "?").splitlines()[0][:160]
            call, facts = None, {"reason": f"{type(error).__name__}: {reason}"}
        with Listener(str(folder / f"{system}.socket")) as listener:  # before the answer, after which peers.py connects
            print(json.dumps(facts), file=stdout, flush=True)
            if call:
                serve(call, listener)


if __name__ == "__main__":
    main()
