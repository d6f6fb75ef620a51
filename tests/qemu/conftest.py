"""Artifacts of small models for other CPUs, and a Python of those CPUs under qemu-user to run them."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from qemu.roots import PYTHON, root
from support.hang import HANG
from support.models import SMALL

import lamina

TARGETS = ("aarch64", "aarch64+sve", "riscv64")


class Bf16(torch.nn.Module):
    """Products in bf16 between f32 on the outside, which numpy knows: with weights, and of two activations."""

    def __init__(self) -> None:
        super().__init__()
        # K that no step of an instruction divides, and one of several blocks
        linear = torch.nn.Linear
        layers = (linear(67, 91), torch.nn.ReLU(), linear(91, 1101), torch.nn.ReLU(), linear(1101, 67))
        self.layers = torch.nn.Sequential(*layers).bfloat16()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x.bfloat16()
        several, one = self.layers(x), self.layers(x[:5])  # rows for several tiles, and for one
        flat = several.flatten()
        batches = flat[: 2 * 9 * 16].view(2, 9, 16) @ flat[: 2 * 16 * 36].view(2, 16, 36)
        return several.float(), one.float(), (several[:, :19] @ several).float(), batches.float()


class Int8(torch.nn.Module):
    """Products of i8 in i32: B by rows and by columns, K that no step divides and of several blocks, few rows and columns.

    Weights that are packed ahead of time, and products of u8 with i8 and with u8.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.randint(-128, 128, (72, 208), dtype=torch.int8))
        self.register_buffer("ragged", torch.randint(-128, 128, (1101, 67), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x * 40).to(torch.int8)  # 19 x 208
        wide = y.T.contiguous()
        ragged = y[:, :203].contiguous()
        squares = torch._int_mm(wide, y), torch._int_mm(wide, wide.T), torch._int_mm(ragged.T.contiguous(), ragged)
        long = wide.repeat(1, 100)  # 1900 elements of K
        few = torch._int_mm(y, y.T), torch._int_mm(y, wide[:, :9]), torch._int_mm(y[:3].contiguous(), wide)
        packed = [torch._int_mm(rows, self.whole.T) for rows in (y, y[:1])]
        packed.append(torch._int_mm(long[:21, :1101].contiguous(), self.ragged))
        positive = (y.int() + 128).to(torch.uint8)
        unsigned = positive.int() @ self.whole.T.int(), positive.T.int() @ y.int()
        both = positive.T.int() @ positive.int(), positive.int() @ positive.T.int()
        return *squares, *few, torch._int_mm(long, long.T), *packed, *unsigned, *both


MAKERS = {**SMALL, "int8": lambda: (Int8(), (torch.randn(19, 208),)), "bf16": lambda: (Bf16(), (torch.randn(19, 67),))}
ONLY = {
    "bf16": ("neoverse-v1",),
    "int8": ("neoverse-v1", "neoverse-n1", "aarch64"),
}  # model → its targets, where not all


@dataclass(frozen=True)
class Guest:
    """A CPU that qemu imitates; `flags` are those that qemu does not report to its guest."""

    arch: str
    cpu: str
    flags: str = ""

    def skip_reason(self) -> str:
        if shutil.which(f"qemu-{self.arch}") is None:
            return f"needs qemu-{self.arch}: install qemu-user"
        if root(self.arch) is None:
            return f"needs Python for {self.arch}: run 'python tests/qemu/roots.py {self.arch}'"
        return ""

    def python(self, *arguments: str | Path, packages: Path) -> str:
        """Run Python with `packages` on its path; what it prints."""
        where = root(self.arch)
        assert where is not None
        libraries = where / f"usr/lib/{self.arch}-linux-gnu"
        variables = {
            "PYTHONHOME": where / "usr",
            "PYTHONPATH": packages,
            "LD_LIBRARY_PATH": f"{libraries}/blas:{libraries}/lapack",
            "LAMINA_CPU_FLAGS": self.flags,
            "LAMINA_NUM_THREADS": "2",
        }
        settings = [word for key, value in variables.items() for word in ("-E", f"{key}={value}")]
        command = [f"qemu-{self.arch}", "-cpu", self.cpu, "-L", where, *settings, where / f"usr/bin/{PYTHON}"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def packages(tmp_path_factory) -> Path:
    """A folder in which the source tree is the package `lamina`."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "lamina").symlink_to(Path(lamina.__file__).parent)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Callable[[str], Path]:
    """Make the artifact of a model and the values that eager computes; returns the folder."""
    folder = tmp_path_factory.mktemp("models")

    def make(name: str) -> Path:
        if not (folder / f"{name}.lamina").exists():
            torch.manual_seed(0)
            model, args = MAKERS[name]()
            model.eval()
            with torch.no_grad():
                exported = torch.export.export(model, args)
                results = torch.utils._pytree.tree_leaves(copy.deepcopy(model)(*args))  # it may change its buffers
            arrays = {f"x{i}": a.numpy() for i, a in enumerate(args)} | {f"y{i}": r for i, r in enumerate(results)}
            np.savez(folder / f"{name}.npz", **arrays)
            lamina.export(exported, targets=list(ONLY.get(name, TARGETS))).save(folder / f"{name}.lamina")
        return folder

    return make


@pytest.fixture
def run_models(models, packages) -> Callable[[Guest, str, tuple[str, ...]], dict[str, float]]:
    """Run models on a guest that must choose a target; the relative error of each."""

    def run(guest: Guest, target: str, names: tuple[str, ...]) -> dict[str, float]:
        if reason := guest.skip_reason():
            pytest.skip(reason)
        folder = [models(name) for name in names][0]
        script = Path(__file__).parent / "guest.py"
        return json.loads(guest.python(script, folder, target, *names, packages=packages))

    return run
