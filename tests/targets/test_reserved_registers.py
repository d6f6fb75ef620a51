"""Code for AArch64 leaves register x18 to the system: on macOS, where it may change at any time, the same images run."""

import re
import subprocess

import pytest
from link.arm import OBJDUMP

from lamina.compiler.api import compile_graph
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType


def program() -> Graph:
    """Kernels that keep many numbers: a product of symbolic sizes, attention, a sort along a middle dim."""
    graph, rows = Graph(), symbol("s0")
    graph.symbols.append(Symbol("s0", 1, 4096, 1, 0, 1))
    x = graph.add_input("x", TensorType("f32", (2, rows, 48)))
    y = graph.add("linear", x, graph.add_input("w", TensorType("f32", (48, 48)), "weight"), None)
    heads = graph.add("permute", graph.add("reshape", y, shape=(2, rows, 3, 16)), dims=(0, 2, 1, 3))
    attended, _ = graph.add("attention", heads, heads, heads, None, causal=True, scale=None, gqa=1)
    values, _ = graph.add("sort", attended, dim=1, descending=False, stable=True)
    graph.add_output(values)
    return graph


@pytest.mark.skipif(not OBJDUMP.exists(), reason="needs llvm-objdump")
@pytest.mark.parametrize("target", ["aarch64", "apple-m1", "neoverse-v1"])
def test_no_code_for_aarch64_uses_x18(target, tmp_path):
    path = tmp_path / "image.so"
    path.write_bytes(compile_graph(program(), target).image)
    shown = subprocess.run([OBJDUMP, "-d", "--mattr=+all", path], capture_output=True, text=True, check=True).stdout
    used = set(re.findall(r"\b[xw](\d+)\b", shown))
    assert {"17", "19", "28"} <= used and "18" not in used
