"""Programs for GPUs whose launch tables are wrong: refused when they are loaded, for a kernel would write anywhere."""

import copy

import pytest
from support.fake_cuda import FakeDriver

from lamina.compiler.api import compile_graph
from lamina.dialects.record import Graph, TensorType
from lamina.runtime.errors import ArtifactError
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.image import unpack
from lamina.runtime.gpu.program import GpuProgram
from lamina.runtime.gpu.walk import Copy
from lamina.targets.gpu_container import pack


@pytest.fixture(scope="module")
def compiled():
    graph = Graph()
    x, w = graph.add_input("x", TensorType("f32", (40, 70))), graph.add_input("w", TensorType("f32", (70,)), "weight")
    y = graph.add("softmax", graph.add("mul", x, w), dim=0)
    graph.add_output(graph.add("softmax", y, dim=1))
    return compile_graph(graph, "sm_90a")


def load(manifest, image, monkeypatch):
    FakeDriver().install(monkeypatch)
    return GpuProgram(manifest, image, cuda.device(0)).walk(())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda launch: launch.update(kernel="other"), "launch 0 of 'other', which is not there"),
        (lambda launch: launch["args"].__setitem__(0, ["weight", 9]), "on weight 9"),
        (lambda launch: launch["args"].__setitem__(0, ["input", -1]), "on input -1"),
        (lambda launch: launch["args"].__setitem__(0, ["stack", 0]), "on stack 0"),
        (lambda launch: launch["args"].clear(), "stage .* of launch 0"),
        (lambda launch: launch["dims"].append(7), "launch 0 .* with 1 sizes"),
    ],
)
def test_a_launch_of_what_is_not_there_is_refused(change, message, compiled, monkeypatch):
    manifest = copy.deepcopy(compiled.manifest)
    change(manifest["plan"]["launches"][0])
    with pytest.raises(ArtifactError, match=message):
        load(manifest, compiled.image, monkeypatch)


# a descriptor in im2col mode
IMAGE = {
    "base": "buffer:0", "type": "f32", "sizes": [8, 4, 4, 2], "strides": [32, 128, 512], "box": [8, 8], "swizzle": 0,
    "lower": [-1, -1], "upper": [0, 0], "steps": [1, 2],
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"args": ["buffer:0", "buffer:7"]},
        {"args": ["buffer:0", "scratch:0"]},
        {"args": ["buffer:0", "tma:0"]},
        {"args": ["buffer:0", "symbol:-1"]},
        {"block": [0, 1, 1]},
        {"block": [1024, 2, 1]},
        {"shared": 1 << 20},
        {"grid": ["1", "1"]},
        {"grid": [1 << 31, 1, 1]},
        {"grid": ["1", "1 - 2", "1"]},
        {"tma": [{"base": "status", "type": "f32", "sizes": [70], "strides": [], "box": [70], "swizzle": 0}]},
        {"tma": [{"base": "buffer:0", "type": "f32", "sizes": [70], "strides": [], "box": [700], "swizzle": 0}]},
        {"tma": [{**IMAGE, "steps": [1]}]},
        {"tma": [{**IMAGE, "box": [8, 1, 1, 8]}]},
        {"tma": [{k: v for k, v in IMAGE.items() if k != "upper"}]},
    ],
)
def test_a_stage_that_no_launch_can_have_is_refused(change, compiled, monkeypatch):
    header, kernels = unpack(compiled.image)
    changed = []
    for kernel in kernels:
        described, blobs = unpack(kernel)
        described["stages"][0].update(change)
        changed.append(pack(described, blobs))
    with pytest.raises(ArtifactError, match="compile it again|no GPU has a grid"):
        load(compiled.manifest, pack(header, changed), monkeypatch)


def test_code_that_is_cut_or_longer_is_refused(compiled):
    image = compiled.image
    for length in (8, 20, 30, 100, len(image) - 1):
        with pytest.raises(ArtifactError, match="damaged"):
            unpack(image[:length])
    with pytest.raises(ArtifactError, match="do not add up"):
        unpack(image + b"\0")


def test_copies_after_the_launches_are_accepted(monkeypatch):
    graph = Graph()
    x, y = (graph.add_input(name, TensorType("f32", (40, 70))) for name in "xy")
    graph.add_output(graph.add("softmax", y, dim=0), mutates="x")  # each new value is made while the other is read
    graph.add_output(graph.add("softmax", x, dim=1), mutates="y")
    made = compile_graph(graph, "sm_90a")
    assert made.manifest["plan"]["after"] and any(b["last"] == 2 for b in made.manifest["plan"]["arena"])
    walk = load(made.manifest, made.image, monkeypatch)
    assert isinstance(walk.steps[-1], Copy)


def test_what_was_compiled_is_accepted(compiled, monkeypatch):
    assert load(compiled.manifest, compiled.image, monkeypatch).steps
