"""Artifacts for GPUs carry native entries for other hosts, which launch there as here."""

import json
from pathlib import Path

import pytest
from qemu.conftest import Guest

from lamina.compiler import artifact
from lamina.compiler.api import compile_graph
from lamina.dialects.record import Graph, TensorType
from lamina.runtime.artifact import read_artifact


@pytest.mark.parametrize(
    ("guest", "host"),
    [
        pytest.param(Guest("aarch64", "cortex-a72"), "aarch64", id="aarch64"),
        pytest.param(
            Guest("riscv64", "rv64,v=true,vext_spec=v1.0,vlen=128", "v"),
            "riscv64",
            id="riscv64",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_gpu_is_launched_by_another_host(guest, host, packages, tmp_path):
    if reason := guest.skip_reason():
        pytest.skip(reason)
    graph = Graph()
    x = graph.add_input("x", TensorType("f32", (64,)))
    graph.add_output(graph.add("add", x, x))
    path = artifact.save(tmp_path / "m.lamina", {t: compile_graph(graph, t) for t in ("sm_90a", host)}, {}, {})
    assert [*read_artifact(path).manifest["hosts"]] == [host]
    done = json.loads(guest.python(Path(__file__).parent / "gpu_guest.py", path, packages=packages))
    assert done["slow"] == 2
    assert [done["calls"].count(c) for c in ("cuMemAllocFromPoolAsync", "cuLaunchKernel")] == [1, 1]
