"""The command line on artifacts: compile, inspect, run, bench; without torch."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from support.hang import HANG

from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType
from lamina.tools.compile import compile_command


def record():
    """`relu(x @ w.T + b)` with a dynamic batch."""
    batch = symbol("batch")
    g = Graph("layer", [Symbol("batch", 1, 64, 1, 0, 0)])
    x = g.add_input("x", TensorType("f32", (batch, 8)))
    w = g.add_input("w", TensorType("f32", (4, 8)), kind="weight")
    b = g.add_input("b", TensorType("f32", (4,)), kind="weight")
    g.add_output(g.add("relu", g.add("linear", x, w, b)), "y")
    return g


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifacts")
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((4, 8), np.float32), "b": rng.standard_normal(4, np.float32)}
    (folder / "layer.json").write_text(record().to_json())
    np.savez(folder / "layer.npz", **arrays)
    np.save(folder / "x.npy", rng.standard_normal((3, 8), np.float32))
    command(folder, "compile", "layer.json", "-t", "x86-64-v3")
    return folder


def command(folder, *arguments, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "lamina.tools.cli", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, "LAMINA_CACHE_DIR": str(folder / "cache")},
    )
    assert done.returncode == status, done.stderr
    return done


def test_inspect(folder):
    text = command(folder, "inspect", "layer.lamina", "--launches").stdout
    assert "main(x: f32[batch, 8]) -> y: f32[batch, 4]" in text
    assert "size 1 <= batch <= 64" in text and "w: f32[4, 8]" in text and "linear_relu_" in text
    assert re.search(r"launches, \d+\.\d kB of code", text) and re.search(r"weights, 0\.1 kB:", text)


def test_inspect_as_json(folder):
    assert json.loads(command(folder, "inspect", "layer.lamina", "--json").stdout)["format"] == "lamina"


def test_run_gives_the_values(folder):
    command(folder, "run", "layer.lamina", "--input", "x.npy", "-o", "y.npz")
    weights, x = np.load(folder / "layer.npz"), np.load(folder / "x.npy").astype(np.float64)
    expected = np.maximum(x @ weights["w"].T + weights["b"], 0)
    np.testing.assert_allclose(np.load(folder / "y.npz")["y"], expected, rtol=1e-5, atol=1e-6)


def test_run_on_random_values_of_a_size(folder):
    assert command(folder, "run", "layer.lamina", "--random", "--size", "batch=5").stdout.startswith("y: f32[5, 4]")


def test_inputs_by_name_give_the_sizes_of_others(folder):
    graph = Graph("sum", symbols=[Symbol("batch", 1, 64, 1, 0, 0)])
    x, y = (graph.add_input(name, TensorType("f32", (symbol("batch"), 8))) for name in ("a", "b"))
    graph.add_output(graph.add("add", x, y), "y")
    (folder / "sum.json").write_text(graph.to_json())
    command(folder, "compile", "sum.json")
    np.save(folder / "b.npy", np.zeros((5, 8), np.float32))
    assert "inputs a are not given" in command(folder, "run", "sum.lamina", "-i", "b=b.npy", status=1).stderr
    assert command(folder, "run", "sum.lamina", "-i", "b=b.npy", "--random").stdout.startswith("y: f32[5, 8]")


def test_run_imports_neither_mlir_nor_torch(folder):
    code = """if True:
        import sys
        from lamina.tools.cli import lamina
        lamina.main(["run", "layer.lamina", "--random"], standalone_mode=False)
        print([m for m in ("mlir", "llvmlite", "torch", "lamina.passes") if m in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=HANG)
    assert done.stdout.endswith("[]\n"), done.stderr


def test_bench(folder):
    text = command(folder, "bench", "layer.lamina", "--seconds", "0.05", "--size", "batch=2").stdout
    assert "median" in text and "x86-64-v3" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["layer.lamina"], "inputs x are not given; --input NAME=FILE.npy, or --random"),
        (["layer.lamina", "-i", "z=x.npy"], "there is no input 'z'; inputs are x"),
        (["layer.lamina", "-i", "x.npy", "-i", "x.npy"], "x.npy is one array too many; inputs are x"),
        (["layer.lamina", "--random", "--size", "n=2"], "there is no size 'n'; sizes are batch"),
        (["layer.lamina", "-i", "layer.json"], "is not an array in numpy's .npy format"),
        (["layer.lamina", "-i", "layer.npz"], "is not an array in numpy's .npy format"),
        (["layer.lamina", "-i", "absent.npy"], "cannot read absent.npy: No such file"),
        (["layer.json"], "is not a .lamina file"),
        (["layer.npz", "--random"], "layer.npz is a zip file but no artifact; `lamina compile` makes one of a model"),
    ],
)
def test_errors_of_run_are_one_line(folder, arguments, message):
    error = command(folder, "run", *arguments, status=1).stderr
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-t", "x86-64-v9"], 1, "no target 'x86-64-v9'"),
        (["-o", "absent/layer.lamina"], 1, "cannot write absent/layer.lamina: there is no folder absent"),
        (["--dump-ir", "layer.npz/ir"], 2, "cannot write below layer.npz/ir: Not a directory"),
    ],
)
def test_errors_of_compile_come_before_the_model_is_read(folder, arguments, status, message):
    (folder / "bad.json").write_text("{}")
    assert message in command(folder, "compile", "bad.json", *arguments, status=status).stderr


def test_binary_file_read_as_text(folder):
    arguments = ("layer.npz", "--from", "linalg", "--to", "asm")
    assert "layer.npz is not text" in command(folder, "compile", *arguments, status=1).stderr
    assert "layer.npz is not text" in command(folder, "opt", "layer.npz", "-p", "cse", status=1).stderr


def test_weights_that_a_file_lacks_are_named(folder):
    (folder / "part.json").write_text(record().to_json())
    np.savez(folder / "part.npz", w=np.zeros((4, 8), np.float32))
    assert "part.npz has no array for b; it has w" in command(folder, "compile", "part.json", status=1).stderr


def test_weights_of_a_record_must_be_given(folder):
    (folder / "bare.json").write_text(record().to_json())
    assert (
        "the graph has weights (w, b …); give them in bare.npz"
        in command(folder, "compile", "bare.json", status=1).stderr
    )


def test_second_compile_comes_from_the_cache_and_is_the_same(folder):
    command(folder, "compile", "layer.json", "-t", "x86-64-v3", "-o", "again.lamina")
    assert (folder / "again.lamina").read_bytes() == (folder / "layer.lamina").read_bytes()


def test_time_passes_of_a_whole_compilation(folder):
    error = command(folder, "compile", "layer.json", "-o", "timed.lamina", "--time-passes").stderr
    assert "lamina-outline" in error and "total" in error


def test_a_file_that_is_no_model(folder):
    (folder / "bad.json").write_text("{}")
    expected = "bad.json: not a graph record: it has no 'name'"
    assert expected in command(folder, "compile", "bad.json", status=1).stderr


def test_a_plain_kernel_is_reported_for_each_target(folder, monkeypatch, tmp_path):
    reasons = {"sm_80": "no such tiles", "gfx942": "no such dtype", "riscv64": ""}

    def compile_graph(graph, target, options, progress):
        return SimpleNamespace(manifest={"times": {}, "kernels": {"k": {"reason": reasons[target]}}})

    monkeypatch.setattr("lamina.compiler.api.compile_graph", compile_graph)
    monkeypatch.setattr("lamina.compiler.pool.warm", lambda: None)
    monkeypatch.setattr("lamina.compiler.artifact.save", lambda output, *_: Path(output).write_bytes(b""))
    arguments = [str(folder / "layer.json"), "-t", ",".join(reasons), "-o", str(tmp_path / "x.lamina")]
    warnings = re.findall("'k' is plain for (.*): (.*)", CliRunner().invoke(compile_command, arguments).output)
    assert warnings == [("sm_80", "no such tiles"), ("gfx942", "no such dtype")]
