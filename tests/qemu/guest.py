"""Runs under qemu: each `NAME.lamina` beside a `NAME.npz` (inputs `x0 …`, expected `y0 …`), and prints errors as JSON.

    python guest.py FOLDER TARGET NAME…

The target is the loader's own choice; TARGET says what it must be.
"""

import json
import sys

import numpy as np

import lamina

folder, target, *names = sys.argv[1:]
found = {}
for name in names:
    data = np.load(f"{folder}/{name}.npz")
    arrays = {kind: [data[f"{kind}{i}"] for i in range(sum(k[0] == kind for k in data.files))] for kind in "xy"}
    model = lamina.load(f"{folder}/{name}.lamina")
    assert model.target == target, f"the loader chose {model.target}"
    results = model(*arrays["x"])
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(arrays["y"])
    # relative to the largest value, as float32 sums of another order differ
    found[name] = max(float(np.abs(r - y).max() / np.abs(y).max()) for r, y in zip(results, arrays["y"]))
print(json.dumps(found))
