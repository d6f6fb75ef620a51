"""On a machine with an NVIDIA GPU: an artifact that is loaded there. `python tests/gpu/run_load.py`.

numpy's, torch's and our own arrays in and out, sizes, errors; `run_artifacts.py` looks at native calls. It is no pytest
file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures

import lamina


def _exported_there(m: torch.nn.Module, x: torch.Tensor, path: Path) -> Any:
    """What an artifact gives that was exported from a model whose weights are on the device."""
    there, given = copy.deepcopy(m).cuda(), x.cuda()
    lamina.export(torch.export.export(there.eval(), (given,)), targets=["sm_90a"]).save(path)
    return lamina.load(path, device="cuda:0")(given)


def main() -> None:
    """An artifact on the device: numpy, torch and our own arrays in and out, state, errors."""
    failures = Failures()
    m = torch.nn.Sequential(torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.Softmax(-1))
    x = torch.randn(8, 256)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(m.eval(), (x,), dynamic_shapes=({0: batch},))
    with torch.no_grad():
        expected = m(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.lamina")
        lamina.export(program, targets=["sm_90a", "sm_80", "x86-64-v3"]).save(path)
        model = lamina.load(path, device="cuda:0")

        def close(made: torch.Tensor) -> None:
            torch.testing.assert_close(made.cpu(), expected, rtol=1e-4, atol=1e-6)

        def refuses(what: str, call: Callable[[], Any]) -> None:
            try:
                call()
            except RuntimeError as error:
                assert what in str(error), str(error)
                return
            raise AssertionError("no error")

        failures.run("numpy in", lambda: close(torch.from_numpy(np.asarray(model(x.numpy())))))
        failures.run("torch in, DLPack out", lambda: close(torch.from_dlpack(model(x.cuda()))))
        failures.run("torch in, array interface out", lambda: close(torch.as_tensor(model(x.cuda()), device="cuda")))
        failures.run("misaligned in", lambda: close(torch.from_dlpack(model(torch.cat([x.new_zeros(1), x.flatten()]).cuda()[1:].view(8, 256)))))  # fmt: skip
        failures.run("sm_80 code is refused no device that can", lambda: close(torch.from_dlpack(lamina.load(path, device="cuda", target="sm_80")(x.cuda()))))  # fmt: skip
        failures.run("strided", lambda: refuses("not contiguous", lambda: model(x.t().contiguous().t().cuda())))
        failures.run("shape", lambda: refuses("size 255", lambda: model(x[:, 1:].contiguous().cuda())))
        failures.run("device", lambda: refuses("no device cuda:7", lambda: lamina.load(path, device="cuda:7")))
        failures.run("a model on the device", lambda: close(torch.from_dlpack(_exported_there(m, x, Path(folder, "there.lamina")))))  # fmt: skip
        failures.run("the CPU of the same file", lambda: close(torch.from_numpy(lamina.load(path)(x.numpy()))))
    failures.report("load")


if __name__ == "__main__":
    main()
