"""Run an artifact with numpy alone: `run_artifact.py MODEL IN.npz OUT.npz`.

IN has the arguments of one or more calls, named `call.argument` ("0.0", "0.1", "1.0" …), OUT gets their results alike.
The calls of a model with state share one session. Then the last call is run again for every line on standard input,
and its seconds are printed. At the end a line of JSON says whether torch could have been imported here, whether it
was, and how much memory the process had at most.
"""

import importlib.util
import json
import sys
import time
from itertools import takewhile
from pathlib import Path

import numpy as np

import lamina


def peak_bytes() -> int:
    """The most memory that this process has held since it began; 0 where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("VmHWM:")), 0)


def main() -> None:
    path, given, taken = sys.argv[1:]
    model = lamina.load(path)
    session = model.session()
    calls, results = [], {}
    with np.load(given) as arrays:
        while f"{len(calls)}.0" in arrays:
            names = takewhile(arrays.__contains__, (f"{len(calls)}.{i}" for i in range(len(arrays.files))))
            calls.append([arrays[name] for name in names])
    for number, args in enumerate(calls):
        outputs = session(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        results.update({f"{number}.{i}": y for i, y in enumerate(outputs)})
    np.savez(taken, **results)
    run = session if session.state else model
    for _ in sys.stdin:
        start = time.perf_counter()
        run(*calls[-1])
        print(time.perf_counter() - start, flush=True)
    has_torch = importlib.util.find_spec("torch") is not None
    print(json.dumps({"torch": has_torch, "torch_imported": "torch" in sys.modules, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
