"""Run an artifact on one .npy input with numpy alone, and print the timing as JSON: `run_artifact.py MODEL IN OUT`."""

import importlib.util
import json
import statistics
import sys
import time

import numpy as np

import lamina

model = lamina.load(sys.argv[1])
x = np.load(sys.argv[2])
outputs = model(x)
np.save(sys.argv[3], outputs[0] if isinstance(outputs, (tuple, list)) else outputs)
times = []
for _ in range(30):
    start = time.perf_counter()
    model(x)
    times.append(time.perf_counter() - start)
has_torch = importlib.util.find_spec("torch") is not None
print(json.dumps({"torch": has_torch, "runs": len(times), "median_ms": statistics.median(times) * 1e3}))
