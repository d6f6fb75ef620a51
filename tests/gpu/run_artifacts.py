"""On a machine with an NVIDIA GPU: calls of artifacts by native code. `python tests/gpu/run_artifacts.py`.

Threads and streams, results of other libraries' arrays, state that is updated in place, graphs: each against eager. It is
no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures, in_threads

import lamina
from lamina.runtime.errors import DeviceMemoryError
from lamina.runtime.gpu.array import DeviceArray

SIZE = 1 << 20  # elements a row's kernels take long enough for calls to overlap
THREADS, CALLS = 4, 50


class Chain(nn.Module):
    """Several kernels with an arena between them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(4):
            x = torch.softmax(x * 1.5, i % 2)
        return x


class Step(nn.Module):
    """A cache that each call updates at its position."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(64, 256))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, position, x)
        return F.softmax(self.cache, 1) + self.cache


def close(made: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(torch.from_dlpack(made), expected, rtol=1e-5, atol=1e-6)


def counted(model: Any) -> list[Any]:
    """The calls that Python has to make from now on."""
    general, slow = model._caller.general, []
    model._caller.general = lambda *given: slow.append(given) or general(*given)
    return slow


def natively(model: Any) -> None:
    """Torch's tensors and our arrays need Python twice each."""
    slow = counted(model)
    x = torch.randn(512, SIZE // 512, device="cuda")
    for _ in range(4):
        close(model(x), Chain()(x))
    ours = model(x)
    for _ in range(4):
        close(model(ours), Chain()(Chain()(x)))
    assert len(slow) == 4, f"Python made {len(slow)} calls"


def threads(model: Any) -> None:
    """Each thread on a stream of its own, on inputs of its own, one model."""

    def work(_: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.randn(512, SIZE // 512, device="cuda")
            expected = Chain()(x)
            made = [model(x, stream=stream.cuda_stream) for _ in range(CALLS)]
            for m in made:
                close(m, expected)
            del made
            stream.synchronize()

    in_threads(work, range(THREADS))


def between_streams(model: Any) -> None:
    """A call on one stream reads what another stream makes."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.randn(512, SIZE // 512, device="cuda")
    expected = Chain()(Chain()(x))
    torch.cuda.synchronize()
    for _ in range(CALLS):
        middle = model(x, stream=first.cuda_stream)
        close(model(middle, stream=second.cuda_stream), expected)
    torch.cuda.synchronize()


def host_arrays(model: Any) -> None:
    x = torch.randn(512, SIZE // 512)
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(model(x.numpy())), Chain()(x).numpy(), rtol=1e-5, atol=1e-6)


def interfaces(model: Any) -> None:
    """An array of nothing but the CUDA array interface."""

    class Foreign:
        def __init__(self, tensor: torch.Tensor):
            self.tensor, self.__cuda_array_interface__ = tensor, tensor.__cuda_array_interface__

    x = torch.randn(512, SIZE // 512, device="cuda")
    close(model(Foreign(x)), Chain()(x))
    again = torch.as_tensor(model(x), device="cuda")
    torch.testing.assert_close(again, Chain()(x), rtol=1e-5, atol=1e-6)


def state(model: Any) -> None:
    """A session's cache is updated in place by native calls."""
    slow, session = counted(model), model.session()
    cache = torch.zeros(64, 256, device="cuda")
    for number in range(8):
        x, position = torch.randn(1, 256, device="cuda"), torch.tensor([number], device="cuda")
        cache[number] = x[0]
        close(session(x, position), F.softmax(cache, 1) + cache)
    assert len(slow) == 2, f"Python made {len(slow)} calls"


def out_of_memory(model: Any) -> None:
    """More than there is, then a call that works."""
    try:
        DeviceArray.empty(model.device, (1 << 42,), "u8", 0)
    except DeviceMemoryError as error:
        assert "free device memory" in str(error), error
    else:
        raise AssertionError("4 TB were given")
    x = torch.randn(512, SIZE // 512, device="cuda")
    close(model(x), Chain()(x))


def main() -> None:
    """All checks, with and without graphs."""
    failures = Failures()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        chain, step = Path(folder) / "chain.lamina", Path(folder) / "step.lamina"
        lamina.export(torch.export.export(Chain(), (torch.randn(512, SIZE // 512),)), targets=["sm_90a"]).save(chain)
        args = torch.randn(1, 256), torch.tensor([0])
        lamina.export(torch.export.export(Step(), args), targets=["sm_90a"]).save(step)
        checks: list[Callable[[Any], None]] = [natively, threads, between_streams, host_arrays, interfaces, out_of_memory]  # fmt: skip
        for graphs in (False, True):
            for check in checks:
                model = lamina.load(chain, device="cuda:0", graphs=graphs)
                failures.run(f"{check.__name__}, graphs {graphs}", lambda check=check, model=model: check(model))
            model = lamina.load(step, device="cuda:0", graphs=graphs)
            failures.run(f"state, graphs {graphs}", lambda model=model: state(model))
    failures.report("artifacts")


if __name__ == "__main__":
    main()
