"""Products of 8-bit floats on AMD's chips: by their matrix instructions where those know the format, else in bf16."""

import re

import numpy as np
import pytest
from support import amdgpu_code
from support.amdgpu_code import CHIPS, on_chips
from support.amdgpu_emulator.disassembly import disassemble
from support.fake_hip import FakeHip
from support.run_amdgpu import run_graph

from lamina.compiler.api import compile_graph
from lamina.dialects import interpret
from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.record import Graph, TensorType
from lamina.runtime.gpu.image import unpack
from lamina.targets import get_target

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
FORMATS = {"ocp": ("f8E4M3FN", "f8E5M2"), "fnuz": ("f8E4M3FNUZ", "f8E5M2FNUZ")}
INSTRUCTION = {"gfx942": "v_mfma_f32_16x16x32_{}_{}", "gfx1201": "v_wmma_f32_16x16x16_{}_{}"}


def scaled_product(a, b, m, n, k):
    """`a @ w.T * scale` of matrices of 8-bit floats, as bf16 and as f32."""
    g = Graph()
    x, w = g.add_input("x", TensorType(a, (m, k))), g.add_input("w", TensorType(b, (n, k)))
    scale = g.add_input("scale", TensorType("f32", ()))
    y = g.add("mul", g.add("matmul", x, g.add("permute", w, dims=(1, 0))), scale)
    g.add_output(g.add("cast", y, dtype="bf16"))
    g.add_output(y)
    return g


CASES = {
    "e4m3_e4m3": ("ocp", 0, 0, 64, 64, 128),
    "e4m3_e5m2_ragged": ("ocp", 0, 1, 70, 40, 72),
    "fnuz_e5m2_e4m3": ("fnuz", 1, 0, 70, 72, 200),
    "fnuz_e4m3_e4m3_odd": ("fnuz", 0, 0, 33, 50, 37),
}


@pytest.mark.parametrize(("case", "chip"), [*on_chips(CASES), ("fnuz_e5m2_e4m3", "gfx942"), ("e4m3_e4m3", "gfx1201")])
def test_products(case, chip, monkeypatch, tmp_path):
    fake = FakeHip(chip).install(monkeypatch, tmp_path)
    kind, first, second, *sizes = CASES[case]
    graph = scaled_product(FORMATS[kind][first], FORMATS[kind][second], *sizes)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(graph.types[i.value].shape) for i in graph.inputs]
    arrays = [np.asarray(a).astype(numpy_dtype(graph.types[i.value].dtype)) for a, i in zip(arrays, graph.inputs)]
    for made, expected in zip(run_graph(graph, arrays, fake), interpret.run(graph, arrays)):
        tolerance = 1e-5 if expected.dtype == np.float32 else 8e-3
        np.testing.assert_allclose(made.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)
    own = get_target(chip).float8 == kind
    names = ["bf8" if f else "fp8" for f in (second, first)]  # columns come first
    unit = INSTRUCTION[chip].format(*names) if own else "bf16"
    assert any(unit in name for name in fake.executed)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_loop_has_no_scratch(chip):
    kind = get_target(chip).float8 or "ocp"
    graph = scaled_product(FORMATS[kind][0], FORMATS[kind][0], 4096, 4096, 4096)
    (kernel,) = unpack(compile_graph(graph, chip).image)[1]
    (code,) = unpack(kernel)[1]
    text = "\n".join(map(str, disassemble(code).values()))
    assert ("fp8_fp8" if get_target(chip).float8 else "bf16") in text
    assert "scratch_load" not in text and "scratch_store" not in text
    assert re.search(r"global_load_(dwordx2|b64|dwordx4|b128)", text)
