"""Graph records to running programs, through real workers; values against numpy in float64."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.run_graph import run_graph, run_program

from lamina.compiler.api import GraphError, KernelError, Options, WorkerError, compile_graph, show_ir
from lamina.compiler.levels import LevelError
from lamina.compiler.pool import pool
from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Location, Symbol, TensorType


@pytest.fixture(autouse=True)
def cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("LAMINA_CACHE_DIR", str(tmp_path / "cache"))


def mlp(batch=8, sizes=(64, 128, 32), activation="relu"):
    g = Graph("mlp")
    if not isinstance(batch, int):
        g.symbols.append(Symbol(str(batch), 1, 512, 1, 0, 0))
    v = g.add_input("x", TensorType("f32", (batch, sizes[0])))
    for i, (k, n) in enumerate(zip(sizes, sizes[1:])):
        w = g.add_input(f"w{i}", TensorType("f32", (n, k)), kind="weight")
        b = g.add_input(f"b{i}", TensorType("f32", (n,)), kind="weight")
        v = g.add("linear", v, w, b, location=Location("model.py", 10 + i, "linear"))
        v = g.add(activation, v, location=Location("model.py", 20 + i, activation))
    g.add_output(g.add("softmax", v, dim=1, location=Location("model.py", 30, "softmax")), "y")
    return g


def arrays_of(graph, sizes, seed=0):
    rng = np.random.default_rng(seed)
    shape = lambda t: [d if isinstance(d, int) else sizes[str(d)] for d in t.shape]
    return {i.name: rng.standard_normal(shape(graph.types[i.value])).astype(np.float32) for i in graph.inputs}


def mlp_reference(arrays):
    v = arrays["x"].astype(np.float64)
    for i in range(2):
        v = np.maximum(v @ arrays[f"w{i}"].astype(np.float64).T + arrays[f"b{i}"], 0)
    e = np.exp(v - v.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("plain", [False, True])
def test_mlp(plain):
    g = mlp()
    arrays = arrays_of(g, {})
    (y,) = run_graph(g, arrays, Options(plain=plain))
    np.testing.assert_allclose(y, mlp_reference(arrays), rtol=2e-4, atol=1e-6)


def test_mlp_with_a_dynamic_batch_is_one_program():
    g = mlp(symbol("s0"))
    program = compile_graph(g)
    for batch in (1, 7, 64):
        arrays = arrays_of(g, {"s0": batch}, batch)
        (y,) = run_program(program, arrays)
        np.testing.assert_allclose(y, mlp_reference(arrays), rtol=2e-4, atol=1e-6)


def test_no_kernel_of_the_mlp_had_to_be_plain():
    kernels = compile_graph(mlp()).manifest["kernels"]
    assert kernels and not any(k["plain"] for k in kernels.values()), kernels


def test_equal_layers_are_one_kernel():
    program = compile_graph(mlp(sizes=(64, 64, 64)))
    names = [launch["kernel"] for launch in program.manifest["plan"]["launches"]]
    assert names[0] == names[1]


def test_image_is_the_same_from_a_cold_and_a_warm_kernel_cache():
    cold = compile_graph(mlp())
    assert compile_graph(mlp(), options=Options(cache=False)) == cold


def test_eight_threads_compile_at_once():
    graphs = [mlp(batch) for batch in range(1, 9)]
    with ThreadPoolExecutor(8) as threads:
        programs = list(threads.map(compile_graph, graphs))
    for g, program in zip(graphs, programs):
        arrays = arrays_of(g, {})
        np.testing.assert_allclose(run_program(program, arrays)[0], mlp_reference(arrays), rtol=2e-4, atol=1e-6)


def test_times_and_dumps(tmp_path):
    options = Options(time_passes=True, dump_dir=str(tmp_path / "dump"))
    manifest = compile_graph(mlp(), options=options).manifest
    assert manifest["times"]["lamina-outline"][1] == 1
    assert manifest["times"]["lamina-kernel-abi"][1] == len(manifest["kernels"])
    assert {p.name for p in (tmp_path / "dump").iterdir()} == {"graph", "host", "support", *manifest["kernels"]}
    assert (tmp_path / "dump" / "graph" / "host.ll").exists()


def test_an_op_that_does_not_fit_is_named_with_its_line():
    g = mlp()
    g.types[g.nodes[-1].results[0]] = TensorType("f32", (3, 3))
    with pytest.raises(GraphError, match="lamina.softmax at model.py:30") as caught:
        compile_graph(g)
    assert caught.value.nodes == (Location("model.py", 30, "softmax"),)
    g = mlp()
    g.nodes[-1].attributes["dim"] = 7
    with pytest.raises(GraphError, match="lamina.softmax at model.py:30.*dim 7") as caught:
        compile_graph(g)
    assert caught.value.nodes == (Location("model.py", 30, "softmax"),)


def test_a_small_time_limit_gives_up_with_the_kernel_named():
    pool().warm()
    with pytest.raises((KernelError, WorkerError), match="Timeout"):
        compile_graph(mlp(), options=Options(timeout=0.001, cache=False))


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("lamina", '"lamina.softmax"'),
        ("kernels", '"lamina.launch"'),
        ("loops", "memref.load"),
        ("llvmir", "define i32 @softmax_"),
        ("asm", "retq"),
    ],
)
def test_every_level_can_be_shown(level, text):
    assert text in show_ir(mlp(), level)


def test_a_level_that_does_not_exist():
    with pytest.raises(LevelError, match="there is no level 'ast'; levels are lamina, kernels"):
        show_ir(mlp(), "ast")
