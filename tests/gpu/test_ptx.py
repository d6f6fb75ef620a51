"""Every op's samples compile to PTX, and NVIDIA's assembler, where there is one, finds nothing to spill."""

import re

import pytest
from mlir import ir
from support.graph_kernel import graph_module
from support.overlap import assert_waits
from support.ptx import assembled, needs_ptxas
from support.samples import kernel_module

from lamina.compiler.levels import lower_kernel
from lamina.dialects.dtypes import FLOAT8
from lamina.dialects.mlir_context import context
from lamina.dialects.op import all_ops
from lamina.dialects.record import Graph, TensorType
from lamina.targets import TargetError, get_target, nvptx_code
from lamina.targets.nvptx_code import to_ptx

LOOPS = ("pointwise", "view", "creation", "gather", "reduction", "row", "concat")
OPS = {n: op for n, op in all_ops().items() if op.lower is not None and op.samples and op.category in LOOPS}
TARGET = get_target("sm_90a")


@pytest.mark.parametrize("name", OPS)
def test_samples_compile(name):
    module = kernel_module(OPS[name], OPS[name].samples)
    ptx = lower_kernel(module, TARGET, "loops", start="linalg", stop="asm")
    assert ".target sm_90a" in ptx and ".visible .entry k_0" in ptx
    assert_waits(ptx)


def graph_of(op, *types, **attributes):
    g = Graph()
    made = g.add(op, *(g.add_input(f"x{i}", TensorType(t, s)) for i, (t, s) in enumerate(types)), **attributes)
    g.add_output(made[0] if isinstance(made, tuple) else made)
    return g


def sum_of_sines():
    """Of columns: bodies that need registers themselves are not held down to those that loads ahead need."""
    g = Graph()
    wave = g.add("sin", g.add_input("x", TensorType("bf16", (8192, 4097))))
    g.add_output(g.add("sum", wave, dims=(0,), keepdim=False, dtype="bf16"))
    return g


HOT = {
    "add": graph_of("add", ("f32", (8192, 4096)), ("f32", (8192, 4096))),
    "gelu": graph_of("gelu", ("bf16", (8192, 4096))),
    "softmax": graph_of("softmax", ("f32", (8192, 4096)), dim=1),
    "softmax_bf16_odd": graph_of("softmax", ("bf16", (8192, 4097)), dim=1),
    "softmax_long": graph_of("softmax", ("f32", (4096, 16384)), dim=1),
    "layer_norm": graph_of(
        "layer_norm", ("bf16", (8192, 4096)), ("bf16", (4096,)), ("bf16", (4096,)), dims=1, eps=1e-5
    ),
    "layer_norm_odd": graph_of(
        "layer_norm", ("bf16", (8192, 4097)), ("bf16", (4097,)), ("bf16", (4097,)), dims=1, eps=1e-5
    ),
    "scale_odd": graph_of("mul", ("bf16", (8192, 4097)), ("bf16", (8192, 1))),
    "concat_odd": graph_of("concat", ("bf16", (8192, 4097)), ("bf16", (8192, 4097)), dim=1),
    "pad_odd": graph_of("pad", ("bf16", (32, 128, 56, 56)), low=(0, 0, 1, 1), high=(0, 0, 1, 1)),
    "transpose_odd": graph_of("permute", ("bf16", (8192, 4097)), dims=(1, 0)),
    "transpose_to_odd": graph_of("permute", ("f32", (4097, 8192)), dims=(1, 0)),
    "column_sum": graph_of("sum", ("f32", (8192, 4096)), dims=(0,), keepdim=False),
    "column_sum_odd": graph_of("sum", ("f32", (8192, 4097)), dims=(0,), keepdim=False),
    "column_sum_bf16_odd": graph_of("sum", ("bf16", (8191, 4097)), dims=(0,), keepdim=False),
    "column_argmax_odd": graph_of("argmax", ("bf16", (8192, 4097)), dims=(0,), keepdim=False),
    "column_sum_of_sines": sum_of_sines(),
}


@needs_ptxas
@pytest.mark.parametrize("name", HOT)
def test_hot_kernels_do_not_spill(name):
    with context(), ir.Location.unknown():
        made = assembled(graph_module(HOT[name]), TARGET.name, "loops")
    for stage, registers in zip(made.stages, made.registers, strict=True):
        threads = stage["block"][0]
        assert threads * (-(-registers // 8) * 8) <= 65536, f"{registers} registers in {threads} threads"
    assert re.search(r"ld\.global(\.nc)?(\.L\S+)?\.v[48]", made.ptx) or "odd" in name


def ptx_of(graph):
    with context(), ir.Location.unknown():
        return lower_kernel(graph_module(graph), TARGET, "loops", start="linalg", stop="asm")


def test_quotients_of_approximations_need_no_correct_rounding():
    f32 = ("f32", (64, 64))
    assert "div.full.f32" in ptx_of(graph_of("silu", f32)) and "div.rn" not in ptx_of(graph_of("silu", f32))
    assert "div.rn.f32" in ptx_of(graph_of("div", f32, f32, rounding="none"))
    assert "div.rn" not in ptx_of(graph_of("softmax", f32, dim=1))


@needs_ptxas
def test_what_is_loaded_ahead_stays_ahead():
    types = ("f32", (64, 4096)), ("f32", (4096,)), ("f32", (4096,))
    with context(), ir.Location.unknown():
        made = assembled(graph_module(graph_of("layer_norm", *types, dims=1, eps=1e-5)), TARGET.name, "loops")
    (registers,) = made.registers
    assert registers > 48  # four vectors of the row and of both weights


def test_a_maximum_of_windows_without_positions():
    window = dict(kernel=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1))
    ptx = ptx_of(graph_of("max_pool", ("f32", (1, 2, 8, 8)), **window))
    assert not re.search(r"selp\.b64|setp\.\w+\.[su]64", ptx)


def test_one_over_a_root_is_one_instruction():
    ptx = ptx_of(graph_of("layer_norm", *[("f32", (64, 256)), ("f32", (256,)), ("f32", (256,))], dims=1, eps=1e-5))
    assert "rsqrt.approx.f32" in ptx and "sqrt.rn" not in ptx


@pytest.mark.parametrize("source", ["f32", "bf16", "f16"])
def test_pairs_are_rounded_to_8_bits_by_one_instruction(source):
    """Unless the format is one that the chip does not know; infinity of e5m2 is what the instruction does not make."""
    made = {d: ptx_of(graph_of("cast", (source, (1 << 20,)), dtype=d)) for d in FLOAT8}
    pairs = {d: ptx.count("cvt.rn.satfinite") for d, ptx in made.items()}
    assert pairs["f8E4M3FN"] == pairs["f8E5M2"] > 1 and not pairs["f8E4M3FNUZ"] and not pairs["f8E5M2FNUZ"]
    assert "setp" not in made["f8E4M3FN"] and made["f8E5M2"].count("0f47700000") == 2 * pairs["f8E5M2"]  # 61440


def test_a_function_without_implementation_is_named():
    declared = (
        "declare float @__nv_j0f(float)\ndefine float @f(float %x) { %y = call float @__nv_j0f(float %x) ret float %y }"
    )
    with pytest.raises(TargetError, match="has no function __nv_j0f"):
        to_ptx(TARGET, f'target triple = "nvptx64-nvidia-cuda"\n{declared}')


def test_an_assembler_that_cannot_run_is_named(monkeypatch):
    monkeypatch.setattr(nvptx_code, "find_ptxas", lambda: "/absent/ptxas")
    with pytest.raises(TargetError, match="cannot run ptxas, '/absent/ptxas': No such file or directory; LAMINA_PTXAS"):
        nvptx_code.assemble(TARGET, "")
