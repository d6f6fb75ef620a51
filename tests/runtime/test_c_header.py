"""C programs run artifacts through the generated lamina.h, natively and under qemu, with no library but libc and libm."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lamina
from lamina.runtime.artifact import read_artifact
from lamina.targets import get_target, native
from lamina.tools.c_header import c_header

# reads the input from a file, calls twice (scratch is fresh each time), writes the output
MAIN = r"""
#include "lamina.h"
#include <stdio.h>
int main(int argc, char **argv) {
  lamina_model model;
  lamina_sizes sizes = {argc > 4 ? atoll(argv[4]) : 0};
  static float x[4096];
  FILE *file = fopen(argv[2], "rb");
  if (fread(x, 1, sizeof x, file) == 0) return 10;
  int32_t status = lamina_open(&model, argv[1], 2);
  if (status) return fprintf(stderr, "open: %d\n", status), 11;
  int64_t count = lamina_output_elements(&sizes, 0);
  float *y = malloc(count * sizeof *y);
  void *inputs[LAMINA_INPUTS] = {x}, *outputs[LAMINA_OUTPUTS] = {y};
  for (int i = 0; i < 2; i++)
    if ((status = lamina_call(&model, &sizes, inputs, outputs))) return fprintf(stderr, "call: %d\n", status), 12;
  fwrite(y, sizeof *y, count, fopen(argv[3], "wb"));
  lamina_close(&model);
  return 0;
}
"""
CROSS = {"aarch64": "aarch64-linux-gnu", "riscv64": "riscv64-linux-gnu"}
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]


def tools(arch: str) -> tuple[str, list[str]]:
    """The compiler for `arch`, and what runs its programs; skips where they are absent."""
    if arch == native().arch:
        compiler, runner = "gcc", []
    else:
        compiler, runner = f"{CROSS[arch]}-gcc", [f"qemu-{arch}", "-L", f"/usr/{CROSS[arch]}"]
        runner[1:1] = ["-cpu", "rv64,v=true,vext_spec=v1.0"] if arch == "riscv64" else []
    for tool in (compiler, *runner[:1]):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    return compiler, runner


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 10), nn.Softmax(-1)).eval()
    return model, torch.randn(5, 24)


@pytest.fixture(scope="module")
def artifact(network, tmp_path_factory) -> Path:
    model, x = network
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", max=64)},))
    targets = [native().name, "aarch64", "riscv64"]
    path = tmp_path_factory.mktemp("c") / "model.lamina"
    lamina.export(exported, targets=targets).save(path)
    return path


@pytest.mark.parametrize("target", ["native", "aarch64", "riscv64"])
@pytest.mark.parametrize("batch", [1, 5])
def test_a_c_program_computes_what_eager_does(artifact, network, target, batch, tmp_path):
    model, x = network
    chosen = get_target(target)
    compiler, runner = tools(chosen.arch)
    read = read_artifact(artifact)
    (tmp_path / "lamina.h").write_text(c_header(read, "main", chosen.name, "libmodel.so"))
    (tmp_path / "libmodel.so").write_bytes(read.program("main", chosen.name)[1])
    (tmp_path / "main.c").write_text(MAIN)
    command = [compiler, *WARNINGS, "-D_GNU_SOURCE", "main.c", "libmodel.so", "-o", "main", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    x[:batch].numpy().tofile(tmp_path / "x")
    done = subprocess.run(
        [*runner, "./main", artifact, "x", "y", str(batch)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    y = np.fromfile(tmp_path / "y", np.float32).reshape(batch, 10)
    np.testing.assert_allclose(y, model(x[:batch]).detach().numpy(), rtol=1e-5, atol=1e-7)


def test_another_file_is_not_taken_for_the_artifact(artifact, tmp_path):
    compiler, _ = tools(native().arch)
    read = read_artifact(artifact)
    (tmp_path / "lamina.h").write_text(c_header(read, "main", native().name, "libmodel.so"))
    (tmp_path / "libmodel.so").write_bytes(read.program("main", native().name)[1])
    (tmp_path / "main.c").write_text(MAIN)
    command = [compiler, "-D_GNU_SOURCE", "main.c", "libmodel.so", "-o", "main", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "other").write_bytes(b"x" * 5000)
    done = subprocess.run(["./main", "other", "main.c", "y"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (11, "open: -2\n")


def test_an_entry_is_described(artifact):
    text = c_header(read_artifact(artifact), "main", native().name, "libmodel.so")
    assert "inputs[0]: input, float[s0][24]" in text and "int64_t s0;" in text
    assert "outputs[0]" in text and "<= s0 <= 64" in text
