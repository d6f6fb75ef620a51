"""Code objects for AMD GPUs: what the hot loops consist of, and that lld and llvm-readelf agree with our linker."""

import re
import subprocess
from functools import cache

import numpy as np
import pytest
from llvmlite import binding as llvm
from support import amdgpu_code
from support.amdgpu_code import CHIPS
from support.amdgpu_emulator import launch
from support.amdgpu_emulator.disassembly import disassemble, tool
from support.amdgpu_emulator.occupancy import uses

from lamina.compiler.api import compile_graph
from lamina.compiler.lowering import Lowering
from lamina.dialects.record import Graph, TensorType
from lamina.passes.pass_manager import Observer
from lamina.runtime.gpu.image import unpack
from lamina.targets import TargetError, get_target, linker
from lamina.targets.amdgpu_code import emit_code_object
from lamina.targets.linker import LinkError, link

READELF = tool("llvm-readelf")
needs_tools = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")


def graph_of(op, *types, **attributes):
    g = Graph()
    made = g.add(op, *(t and g.add_input(f"x{i}", TensorType(*t)) for i, t in enumerate(types)), **attributes)
    g.add_output(made[0] if isinstance(made, tuple) else made)
    return g


LOOPS = {
    "add_f32": graph_of("add", ("f32", (8192, 4096)), ("f32", (8192, 4096))),
    "gelu_bf16": graph_of("gelu", ("bf16", (8192, 4096))),
    "softmax_f32": graph_of("softmax", ("f32", (8192, 4096)), dim=1),
    "layer_norm_f16": graph_of(
        "layer_norm", ("f16", (8192, 4096)), ("f16", (4096,)), ("f16", (4096,)), dims=1, eps=1e-5
    ),
    "column_sum_f32": graph_of("sum", ("f32", (8192, 4096)), dims=(0,), keepdim=False),
}


@cache
def code_of(name, chip):
    """A kernel's code object, and its instructions as text."""
    image = compile_graph((LOOPS | PRODUCTS | CONVOLUTIONS | ATTENTIONS)[name], chip).image
    (kernel,) = unpack(image)[1]
    (code,) = unpack(kernel)[1]
    return code, "\n".join(map(str, disassemble(code).values()))


PRODUCTS = {f"matmul_{t}": graph_of("matmul", (t, (4096, 4096)), (t, (4096, 4096))) for t in ("f16", "bf16", "f32")}
CONVOLUTIONS = {
    f"conv_f16_{size}": graph_of(
        "conv",
        ("f16", (8, 256, 56, 56)),
        ("f16", (64, 256, size, size)),
        None,
        stride=(1, 1),
        padding=(size // 2,) * 2,
        dilation=(1, 1),
        groups=1,
        transposed=False,
        output_padding=(0, 0),
    )  # fmt: skip
    for size in (1, 3)
}
ATTENTIONS = {
    f"attention_{t}_{n}_{d}": graph_of("attention", *[(t, (16, n, d))] * 3, None, causal=causal, scale=None, gqa=1)
    for t, n, d, causal in (
        ("f16", 512, 64, False),
        ("bf16", 4096, 128, True),
        ("bf16", 512, 256, False),
        ("f32", 512, 64, False),
        ("f32", 500, 128, True),
    )
}
WIDE_LOAD = re.compile(r"global_load_(dwordx4|b128)")
MATRIX = {"gfx90a": "v_mfma", "gfx942": "v_mfma", "gfx1100": "v_wmma", "gfx1201": "v_wmma"}


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_load_16_bytes_and_use_no_scratch(name, chip):
    code, text = code_of(name, chip)
    assert WIDE_LOAD.search(text)
    assert not re.search(r"\b(scratch|flat)_(load|store)", text)
    assert all(row.scratch == 0 and row.waves >= 2 for row in uses(code))


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_matrix_instructions(name, chip):
    code, text = code_of(name, chip)
    (row,) = uses(code)
    assert row.scratch == 0 and row.waves >= 2 and row.lds <= 64 * 1024 and WIDE_LOAD.search(text)
    if name == "matmul_f32" and chip.startswith("gfx1"):
        assert text.count("fmac_f32") > 256  # there is no f32 WMMA
        return
    assert MATRIX[chip] in text and row.busy > 0.5, row


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["f8E4M3FN", "f8E4M3FNUZ"])
def test_widened_operands_fit_into_registers(dtype, chip):
    """Each chip multiplies at most one of the formats itself; the other is widened as tiles are loaded."""
    g = graph_of("matmul", *[(dtype, (4096, 4096))] * 2)
    (kernel,) = unpack(compile_graph(g, chip).image)[1]
    (row,) = uses(unpack(kernel)[1][0])
    assert row.scratch == 0 and row.waves >= 2, row


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_matrix_instructions(name, chip):
    code, text = code_of(name, chip)
    (row,) = uses(code)
    assert row.scratch == 0 and row.waves >= 2 and MATRIX[chip] in text
    assert row.busy > (0.5 if name == "conv_f16_1" else 0.4), row  # patches are loaded one by one
    assert re.search(r"\bds_(write|store)_b128", text)  # patches, gathered along K


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_matrix_instructions_on_registers(name, chip):
    code, text = code_of(name, chip)
    (row,) = uses(code)
    assert row.scratch == 0 and row.waves >= 1 and row.lds <= 64 * 1024
    assert WIDE_LOAD.search(text) and re.search(r"\bds_(read|load)_b128", text)  # K and V
    assert not re.search(r"\b(scratch|flat)_(load|store)", text)
    if "f32" in name and chip.startswith("gfx1"):
        assert text.count("fmac_f32") >= 256
        return
    assert MATRIX[chip] in text and row.busy > 0.5, row


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
def test_keys_of_one_query_are_split_and_merged(chip):
    g = graph_of(
        "attention", ("f16", (8, 1, 128)), *[("f16", (8, 4096, 128))] * 2, None, causal=False, scale=None, gqa=1
    )
    (kernel,) = unpack(compile_graph(g, chip).image)[1]
    header, (code,) = unpack(kernel)
    blocks = [int(stage["grid"][0]) for stage in header["stages"]]
    assert len(blocks) == 2 and blocks[0] > 8 and len(header["scratch"]) == 3  # O, maxima, totals
    assert all(row.scratch == 0 for row in uses(code))


def test_attention_without_a_fast_kernel_says_what_runs():
    g = graph_of("attention", *[("f64", (2, 8, 16))] * 3, None, causal=False, scale=None, gqa=1)
    (facts,) = compile_graph(g, "gfx942").manifest["kernels"].values()
    assert facts["plain"]
    assert re.match(r"attention is of f16, .*; plain loops give the same values, only slower$", facts["reason"])


KERNELS = ("softmax_f32", "matmul_bf16", "conv_f16_3", "attention_f16_512_64")


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", KERNELS)
def test_code_objects_are_of_version_5_and_readable(name, chip, tmp_path):
    file = tmp_path / "k.hsaco"
    file.write_bytes(code_of(name, chip)[0])
    done = subprocess.run([READELF, "-a", file], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    symbol = name.partition("_")[0]
    for expected in (
        r"OS/ABI: +AMDGPU - HSA",
        r"ABI Version: +3",  # ELFABIVERSION_AMDGPU_HSA_V5
        rf"Flags: .*{chip}",
        rf"FUNC +GLOBAL \w+ +\d+ {symbol}\w+_0\n",
        rf"OBJECT +GLOBAL \w+ +\d+ {symbol}\w+_0\.kd\n",
        r"NT_AMDGPU_METADATA",
        rf"amdhsa\.target: +'?amdgcn-amd-amdhsa--{chip}",
    ):
        assert re.search(expected, done.stdout), expected


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", KERNELS)
def test_lld_links_kernels_to_the_same_code(name, chip, monkeypatch):
    """Instructions, the registers that a descriptor asks for, and the note, of the very objects that LLVM emits."""
    objects = []
    read = linker.read_object
    monkeypatch.setattr(linker, "read_object", lambda data, name: objects.append(data) or read(data, name))
    graph = (LOOPS | PRODUCTS | CONVOLUTIONS | ATTENTIONS)[name]
    text = Lowering(get_target(chip), Observer()).record(graph, "llvmir")
    ours = emit_code_object(get_target(chip), text)
    (made,) = objects
    theirs = amdgpu_code.link(made)
    # each linker chooses where code begins; distances within it are equal
    shown = [[str(i).rpartition(" at ")[0] for i in disassemble(code).values()] for code in (ours, theirs)]
    assert len(shown[0]) > 50 and shown[0] == shown[1]
    assert uses(ours) == uses(theirs)


TABLE = """
@table = internal addrspace(4) constant [4 x i32] [i32 3, i32 1, i32 4, i32 1]
@names = internal addrspace(4) constant ptr addrspace(4) @table
define amdgpu_kernel void @k(ptr addrspace(1) %o) "amdgpu-flat-work-group-size"="64,64" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = and i32 %t, 3
  %direct = getelementptr i32, ptr addrspace(4) @table, i32 %i
  %x = load i32, ptr addrspace(4) %direct
  %base = load volatile ptr addrspace(4), ptr addrspace(4) @names
  %through = getelementptr i32, ptr addrspace(4) %base, i32 %i
  %y = load i32, ptr addrspace(4) %through
  %s = mul i32 %x, %y
  %to = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %s, ptr addrspace(1) %to
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
"""


def table_object(chip):
    """An object with constants that are addressed by code, through the GOT, and by each other."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=2, reloc="pic")
    flags = '\n!llvm.module.flags = !{!0}\n!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n'
    module = llvm.parse_assembly(TABLE + flags)
    module.triple, module.data_layout = "amdgcn-amd-amdhsa", str(machine.target_data)
    return machine.emit_object(module)


@needs_tools
@pytest.mark.parametrize("chip", CHIPS)
def test_lld_links_the_same(chip, tmp_path):
    made = table_object(chip)
    shown = []
    for name, image in (("ours", link([made], libraries={})), ("lld", amdgpu_code.link(made))):
        file = tmp_path / name
        file.write_bytes(image)

        def text(option, file=file):
            return subprocess.run([READELF, option, file], capture_output=True, text=True, check=True).stdout

        symbols = sorted(re.findall(r"(FUNC|OBJECT) +GLOBAL +\w+ +(?!UND)\w+ (\S+)", text("--dyn-symbols")))
        relocations = sorted(re.findall(r"R_AMDGPU_\w+", text("-r")))
        shown.append((symbols, relocations, text("-n").partition("Displaying")[2]))
        out = np.zeros(64, np.int32)
        launch(image, "k", (1,), (64,), [out])
        assert out.tolist() == [9, 1, 16, 1] * 16
    assert shown[0][:2] == shown[1][:2]
    assert shown[0][2].partition("\n")[2] == shown[1][2].partition("\n")[2]  # the metadata


def test_a_function_that_nobody_defines_is_named():
    text = "declare float @f(float)\ndefine float @g(float %x) {\n %y = call float @f(float %x)\n ret float %y\n}"
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx942", reloc="pic")
    with pytest.raises(LinkError, match="undefined symbol 'f'"):
        link([machine.emit_object(llvm.parse_assembly(text))], libraries={})


def test_a_kind_without_a_kernel_is_named():
    with pytest.raises(TargetError, match="target 'gfx942' has no kernel of kind 'fft' yet"):
        get_target("gfx942").pipeline("fft", False)
