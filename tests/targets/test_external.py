"""The target of CONTRIBUTING.md, installed as a package of its own: one file and an entry point are all it takes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.hang import HANG

import lamina
from lamina.dialects.record import Graph, TensorType

ROOT = Path(lamina.__file__).parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the package, as pip would install it, and a small graph."""
    folder = tmp_path_factory.mktemp("site")
    source = (ROOT / "CONTRIBUTING.md").read_text()
    code = re.search(r"```python\n(# my_package/loongarch64\.py\n.*?)```", source, re.S)
    entry = re.search(r"\[project\.entry-points\.\"lamina\.targets\"\]\nloongarch64 = \"(.*)\"", source)
    assert code and entry
    (folder / "my_package").mkdir()
    (folder / "my_package/loongarch64.py").write_text(code[1])
    info = folder / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lamina.targets]\nloongarch64 = {entry[1]}\n")
    graph = Graph("layer")
    x, w = graph.add_input("x", TensorType("f32", (16, 32))), graph.add_input("w", TensorType("f32", (32, 16)))
    graph.add_output(graph.add("relu", graph.add("matmul", x, w)), "y")
    (folder / "layer.json").write_text(graph.to_json())
    return folder


def command(site, *arguments, status=0):
    environment = {**os.environ, "PYTHONPATH": str(site), "LAMINA_CACHE_DIR": str(site / "cache")}
    line = [sys.executable, "-m", "lamina.tools.cli", *arguments]
    done = subprocess.run(line, cwd=site, capture_output=True, text=True, timeout=HANG, env=environment)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_it_is_listed(site):
    assert re.search(r"^loongarch64 +yes +no: loongarch64 only", command(site, "targets"), re.M)


def test_it_compiles(site):
    text = command(site, "compile", "layer.json", "--to", "asm", "--target", "loongarch64")
    assert "vfmadd.s" in text


def test_what_it_lacks_for_artifacts_is_said(site):
    text = command(site, "compile", "layer.json", "--target", "loongarch64", status=1)
    assert "ELF machine 258 is not supported" in text
