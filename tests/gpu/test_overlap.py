"""Launches that begin while the one before them ends: who may, and how the driver is told, on a fake driver."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.fake_cuda import FakeDriver
from support.overlap import assert_waits
from support.samples import attributes, operands, type_of

import lamina
from lamina.compiler import artifact
from lamina.compiler.api import compile_graph, show_ir
from lamina.dialects.op import all_ops
from lamina.dialects.record import Graph, TensorType
from lamina.runtime.gpu.array import DeviceArray
from lamina.runtime.gpu.image import unpack
from lamina.targets.gpu_container import pack

RNG = np.random.default_rng(0)


def softmaxes():
    graph = Graph()
    y = graph.add("softmax", graph.add_input("x", TensorType("f32", (12, 70))), dim=0)
    graph.add_output(graph.add("softmax", y, dim=1))
    return graph


def call_thrice(program, target, graphs, monkeypatch, tmp_path, fail=None, **driver):
    """The stages that overlapped in three calls, of which the last is native, and those that one call launches."""
    fake = FakeDriver(show_ir(softmaxes(), "loops", target), **driver).install(monkeypatch)
    fake.fail |= fail or {}
    path = artifact.save(tmp_path / "m.lamina", {target: program}, {}, {})
    x = RNG.standard_normal((12, 70), np.float32)
    wanted = torch.softmax(torch.softmax(torch.as_tensor(x), 0), 1)
    model = lamina.load(path, device="cuda:0", graphs=graphs)
    array = DeviceArray.of(model.device, x, 0)
    for _ in range(3):
        fake.launches.clear()
        np.testing.assert_allclose(np.asarray(model(array)), wanted, rtol=1e-5, atol=1e-6)
    return fake.overlapping, [name for name, _, _ in fake.launches]


def test_all_launches_overlap(monkeypatch, tmp_path):
    program = compile_graph(softmaxes(), "sm_90a")
    overlapping, launched = call_thrice(program, "sm_90a", False, monkeypatch, tmp_path)
    assert overlapping == 3 * launched and len(launched) > 1


def test_all_nodes_of_a_graph_but_the_first_overlap(monkeypatch, tmp_path):
    program = compile_graph(softmaxes(), "sm_90a")
    overlapping, launched = call_thrice(program, "sm_90a", True, monkeypatch, tmp_path)
    assert overlapping == 2 * launched + launched[1:]


def test_nodes_follow_each_other_where_a_driver_refuses(monkeypatch, tmp_path):
    program, fail = compile_graph(softmaxes(), "sm_90a"), {"cuGraphAddDependencies_v2": 801}
    overlapping, launched = call_thrice(program, "sm_90a", True, monkeypatch, tmp_path, fail=fail)
    assert overlapping == 2 * launched


def unmarked(program):
    """The program as it was made before kernels waited."""
    header, kernels = unpack(program.image)
    described = [unpack(k) for k in kernels]
    for stages, _ in described:
        assert stages.pop("overlaps") is True
    return replace(program, image=pack(header, [pack(*d) for d in described]))


@pytest.mark.parametrize(
    ("target", "driver", "change"),
    [
        ("sm_80", {}, None),  # its kernels cannot wait
        ("sm_90", {"version": 12020}, None),  # graphs of older drivers cannot overlap
        ("sm_90a", {}, unmarked),
    ],
)
def test_other_launches_do_not_overlap(target, driver, change, monkeypatch, tmp_path):
    program = compile_graph(softmaxes(), target)
    program = change(program) if change else program
    for graphs in (False, True):
        overlapping, launched = call_thrice(program, target, graphs, monkeypatch, tmp_path, **driver)
        assert not overlapping and launched


@pytest.mark.parametrize("name", ["sort", "scatter", "index_put", "cumsum"])
def test_direct_kernels_wait(name):
    op = all_ops()[name]
    sample = op.samples[0]
    graph = Graph(name)
    values = [None if x is None else graph.add_input(f"x{k}", type_of(x)) for k, x in enumerate(operands(sample))]
    made = graph.add(name, *values, **attributes(op, sample))
    for value in made if isinstance(made, tuple) else (made,):
        graph.add_output(value)
    for kernel in unpack(compile_graph(graph, "sm_90").image)[1]:
        assert_waits(unpack(kernel)[1][0].decode())
